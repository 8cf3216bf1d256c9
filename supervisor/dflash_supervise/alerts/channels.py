"""The channels that the configuration asks for."""

from __future__ import annotations

from dflash_supervise.alerts.result import Channel
from dflash_supervise.alerts.slack import Slack
from dflash_supervise.alerts.webhook import Webhook
from dflash_supervise.config import Settings


def channels_of(settings: Settings) -> tuple[Channel, ...]:
    """In the order of the configuration; none when nothing is configured."""
    found: list[Channel] = []
    common = {
        "public_url": settings.daemon.public_url,
        "allow_loopback_http": settings.alerts.allow_loopback_http,
    }
    if settings.slack.webhook is not None:
        found.append(Slack(settings.slack.webhook, **common))  # type: ignore[arg-type]  # by name, each of its type
    if settings.webhook.url is not None:
        found.append(Webhook(settings.webhook.url, settings.webhook.secret, **common))  # type: ignore[arg-type]  # likewise
    return tuple(found)
