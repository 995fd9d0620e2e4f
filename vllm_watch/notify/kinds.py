"""Make notifiers from their settings."""

from vllm_watch.notify import apprise, kubernetes_events, webhook
from vllm_watch.notify.base import Finding, Notifier, Tools
from vllm_watch.settings.notifications import (
    AnyNotifier,
    AppriseNotifier,
    KubernetesEvents,
    NotifierSettings,
    WebhookNotifier,
)


def make(settings: NotifierSettings, tools: Tools) -> Notifier:
    """Make the notifier."""
    if isinstance(settings, WebhookNotifier):
        return webhook.Notifier(settings, tools)
    assert isinstance(settings, AppriseNotifier)  # noqa: S101 - there is no other kind
    return apprise.Notifier(settings, tools)


def check(settings: AnyNotifier, tools: Tools) -> list[Finding]:
    """Check the notifier's requirements."""
    if isinstance(settings, KubernetesEvents):
        return kubernetes_events.check(settings, tools)
    return make(settings, tools).check()
