"""Slack and the signed webhook against a receiver on loopback; addresses that may not be used."""

from __future__ import annotations

import hashlib
import hmac
import socket
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.alerts.channels import channels_of
from dflash_supervise.alerts.message import compose
from dflash_supervise.alerts.post import BadAddress, NoAnswer, post
from dflash_supervise.alerts.result import Again, Never, Off, Result, Sent
from dflash_supervise.alerts.slack import Slack, cut_at_line, payload
from dflash_supervise.alerts.webhook import Webhook
from dflash_supervise.config import Secret, load
from tests.unit.alerts.receiver import Receiver, receiving
from tests.unit.alerts.test_message import CRASH

Doc = dict[str, Any]


def entry(**facts: Any) -> Doc:
    return {
        "id": 1,
        "key": "demo-1/incident/1-cuda_oom/warn",
        "kind": "incident",
        "severity": "warn",
        "created_at": 5.0,
        "facts": {**CRASH, **facts},
        "tries": 0,
    }


def secret(text: str) -> Secret:
    return Secret("literal", (text,))


def slack(receiver: Receiver) -> Result:
    return Slack(secret(receiver.url), allow_loopback_http=True).send(entry())


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        ((200, "ok"), Sent),
        ((200, "<html>a proxy</html>"), Again),
        ((500, "oops"), Again),
        ((503, "busy"), Again),
        ((400, "invalid_payload"), Never),
        ((403, "invalid_token"), Off),
        ((404, "no_team"), Off),
        ((404, "no_service"), Off),
        ((410, "channel_is_archived"), Off),
        ((302, "", {"Location": "http://127.0.0.1:1/elsewhere"}), Off),
    ],
)
def test_only_ok_is_a_success_and_each_answer_has_its_meaning(answer: Any, want: type) -> None:
    with receiving(answer) as receiver:
        assert isinstance(slack(receiver), want)
        assert len(receiver.got) == 1, "nothing is followed and nothing is sent twice"


def test_too_many_requests_waits_as_long_as_slack_says() -> None:
    with receiving((429, "rate_limited", {"Retry-After": "7"})) as receiver:
        assert slack(receiver) == Again("Slack answered 429 rate_limited", 7.0)


def test_refused_blocks_go_once_more_as_plain_words() -> None:
    with receiving((400, "invalid_blocks")) as receiver:
        assert slack(receiver) == Sent()
        first, second = receiver.documents
    assert "blocks" in first and set(second) == {"text"}
    assert "torch.OutOfMemoryError" in second["text"]
    with receiving((400, "invalid_blocks"), (400, "invalid_blocks")) as receiver:
        assert isinstance(slack(receiver), Never)
        assert len(receiver.got) == 2


def test_a_receiver_that_is_not_there_is_tried_again() -> None:
    with receiving() as receiver:
        url = receiver.url
    assert isinstance(Slack(secret(url), allow_loopback_http=True).send(entry()), Again)


def test_markup_in_log_text_is_escaped_and_cannot_close_its_block() -> None:
    hostile = entry(key_line="<!channel> & ``` *bold* " + "x" * 5000, sentence="a <b> & c")
    document = payload(compose("incident", "warn", hostile["facts"]))
    sections = [block["text"]["text"] for block in document["blocks"][1:]]
    assert any("a &lt;b&gt; &amp; c" in text for text in sections)
    [code] = [text for text in sections if "channel" in text]
    assert code.startswith("```&lt;!channel&gt; &amp; '''") and code.endswith("```") and code.count("```") == 2
    assert "<!channel>" not in str(document)


def test_limits_of_slack_hold_for_any_text() -> None:
    huge = entry(sentence="s" * 9000, evidence=[{"what": "w" * 900, "value": "v"}] * 50, key_line="<" * 9000)
    document = payload(compose("incident", "warn", huge["facts"]))
    assert len(document["blocks"]) <= 50 and len(document["text"]) <= 3000
    for block in document["blocks"]:
        assert len(block["text"]["text"]) <= (150 if block["type"] == "header" else 3000)


def test_text_is_cut_at_a_line_and_never_inside_an_escape() -> None:
    assert cut_at_line("one\ntwo\nthree", 9) == "one\n\N{HORIZONTAL ELLIPSIS}"
    for most in range(3, 30):
        cut = cut_at_line("&amp;" * 10, most)
        assert len(cut) <= most and "&" not in cut.replace("&amp;", "")


def test_the_webhook_is_signed_over_time_and_body_and_carries_its_key() -> None:
    with receiving((204, "")) as receiver:
        hook = Webhook(secret(receiver.url), secret("s3"), allow_loopback_http=True, clock=lambda: 1234.5)
        assert hook.send(entry()) == Sent()
        headers, body = receiver.got[0]
        [document] = receiver.documents
    assert headers["Idempotency-Key"] == "demo-1/incident/1-cuda_oom/warn" == document["key"]
    assert headers["X-Dflash-Timestamp"] == "1234"
    want = hmac.new(b"s3", b"1234." + body, hashlib.sha256).hexdigest()
    assert headers["X-Dflash-Signature"] == f"sha256={want}"
    assert document["facts"]["cause"] == "cuda_oom" and document["schema"] == 1


@pytest.mark.parametrize(
    ("status", "want"), [(404, Off), (410, Off), (301, Off), (429, Again), (502, Again), (422, Never)]
)
def test_the_webhooks_answers_have_their_meaning(status: int, want: type) -> None:
    with receiving((status, "x")) as receiver:
        assert isinstance(Webhook(secret(receiver.url), allow_loopback_http=True).send(entry()), want)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://hooks.example/x", "https"),
        ("ftp://hooks.example/x", "https"),
        ("https:///x", "no host"),
        ("nothing", "no host"),
        ("https://127.0.0.1/x", "leads to this machine"),
        ("https://localhost/x", "leads to this machine"),
        ("https://[::1]/x", "leads to this machine"),
        ("https://169.254.169.254/latest", "no receiver"),
    ],
)
def test_an_address_that_may_not_be_used_switches_the_channel_off_without_showing_it(url: str, words: str) -> None:
    result = Slack(secret(url)).send(entry())
    assert isinstance(result, Off) and words in result.reason and "/x" not in result.reason


def test_http_stays_on_this_machine_even_where_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: elsewhere)
    with pytest.raises(BadAddress, match="https"):
        post("http://relay.example/x", b"", {}, allow_loopback_http=True)


def test_a_name_that_nobody_knows_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_args: object, **_more: object) -> None:
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(NoAnswer, match=r"hooks\.example"):
        post("https://hooks.example/x", b"", {}, allow_loopback_http=False)


def test_proxies_of_the_environment_are_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://192.0.2.1:1")
    with receiving((200, "ok")) as receiver:
        assert slack(receiver) == Sent()


def test_the_configuration_names_the_channels(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[slack]\nwebhook = 'https://h/abc'\n[webhook]\nurl = 'https://w/def'\n")
    channels = channels_of(load(files=(file,), environ={}))
    assert [channel.name for channel in channels] == ["slack", "webhook"]
    assert "abc" not in repr(channels) and "def" not in repr(channels)
    assert channels_of(load(files=(), environ={})) == ()
