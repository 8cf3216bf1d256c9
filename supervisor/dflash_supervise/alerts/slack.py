"""Slack incoming webhook: Block Kit with a text beside it, within Slack's limits."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dflash_supervise.alerts.message import Message, compose
from dflash_supervise.alerts.post import Answer, BadAddress, NoAnswer, post
from dflash_supervise.alerts.result import Again, Never, Off, Result, Sent
from dflash_supervise.config import Secret

Doc = dict[str, Any]

# https://docs.slack.dev/reference/block-kit/blocks
MAX_BLOCKS = 50
SECTION_CHARACTERS = 3000
HEADER_CHARACTERS = 150
# https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks, Handling errors
_GONE = ("no_service", "no_active_hooks", "invalid_token", "channel_is_archived", "channel_not_found", "no_team")


@dataclass(frozen=True)
class Slack:
    """A channel of one incoming webhook, which knows its own Slack channel."""

    webhook: Secret = field(repr=False)
    public_url: str = ""
    allow_loopback_http: bool = False

    @property
    def name(self) -> str:
        return "slack"

    def send(self, entry: Doc) -> Result:
        message = compose(entry["kind"], entry["severity"], entry["facts"], self.public_url)
        url = self.webhook.reveal()
        carry = partial(post, allow_loopback_http=self.allow_loopback_http)
        headers = {"Content-Type": "application/json; charset=utf-8"}
        try:
            answer = carry(url, _body(payload(message)), headers)
            if answer.status == 400 and "invalid_blocks" in answer.body:
                # A message in plain words beats a fine one that never arrives.
                answer = carry(url, _body({"text": escape(message.text)}), headers)
        except BadAddress as error:
            return Off(f"[slack] webhook {error}")
        except NoAnswer as error:
            return Again(str(error))
        return judge(answer)


def judge(answer: Answer) -> Result:
    """What Slack's answer means. Only the body ``ok`` is a success: proxies answer 200 with pages of their own."""
    if answer.status == 200 and answer.body == "ok":
        return Sent()
    said = f"Slack answered {answer.status} {answer.body}"
    if answer.status == 429:
        return Again(said, answer.retry_after_s)
    if answer.status in (403, 404, 410) or any(word in answer.body for word in _GONE):
        return Off(said)
    if answer.status >= 500 or answer.status == 200:
        return Again(said)
    return Off(f"{said} (a redirect is not followed)") if 300 <= answer.status < 400 else Never(said)


def payload(message: Message) -> Doc:
    """The webhook's JSON."""
    blocks: list[Doc] = [
        {"type": "header", "text": {"type": "plain_text", "text": message.headline[:HEADER_CHARACTERS]}}
    ]
    body = "\n".join(escape(line) for line in message.lines)
    if body:
        blocks.append(_section(cut_at_line(body, SECTION_CHARACTERS)))
    if message.key_line:
        blocks.append(_section(fence(message.key_line)))
    if message.commands:
        blocks.append(_section(fence("\n".join(message.commands))))
    if message.link:
        blocks.append(_section(f"<{message.link}>"))
    # Notifications and readers without blocks get the text, so it is all there too.
    return {"text": cut_at_line(escape(message.text), SECTION_CHARACTERS), "blocks": blocks[:MAX_BLOCKS]}


def escape(text: str) -> str:
    """The three characters that are markup to Slack."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def fence(text: str) -> str:
    """A code block that log text cannot close, and that is always closed."""
    inner = escape(text.replace("```", "'''"))
    return "```" + cut_at_line(inner, SECTION_CHARACTERS - 6) + "```"


def cut_at_line(text: str, most: int) -> str:
    """At most ``most`` characters, cut behind a whole line where there is one, never inside an escape."""
    if len(text) <= most:
        return text
    kept = text[: most - 2]
    line_end = kept.rfind("\n")
    if line_end > 0:
        kept = kept[:line_end]
    else:
        begun = kept.rfind("&")
        if begun >= 0 and ";" not in kept[begun:]:
            kept = kept[:begun]
    return kept + "\n\N{HORIZONTAL ELLIPSIS}"


def _section(text: str) -> Doc:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _body(document: Doc) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()
