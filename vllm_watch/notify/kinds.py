"""Which module sends for which kind; each is loaded only where it is configured."""

from vllm_watch.notify.base import Finding, Notifier, Tools
from vllm_watch.settings.notifications import (
    AppriseNotifier,
    JsonlStream,
    NotifierSettings,
    WebhookNotifier,
)


def make(settings: NotifierSettings, tools: Tools) -> Notifier:
    """Return the notifier of these settings."""
    if isinstance(settings, WebhookNotifier):
        from vllm_watch.notify import webhook  # noqa: PLC0415

        return webhook.Notifier(settings, tools)
    assert isinstance(settings, AppriseNotifier)  # noqa: S101 - there is no other kind
    from vllm_watch.notify import apprise  # noqa: PLC0415

    return apprise.Notifier(settings, tools)


def check(settings: NotifierSettings | JsonlStream, tools: Tools) -> list[Finding]:
    """Look at what it needs on this machine; nothing is sent."""
    if isinstance(settings, JsonlStream):
        from vllm_watch.notify import jsonl  # noqa: PLC0415

        return jsonl.check(settings)
    return make(settings, tools).check()
