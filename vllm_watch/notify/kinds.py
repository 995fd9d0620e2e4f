"""Make notifiers from their settings, check them, and send a test message through one."""

import time
from collections.abc import Mapping
from typing import Any

from vllm_watch.errors import Finding, WatchError
from vllm_watch.notify import apprise, kubernetes_events, webhook
from vllm_watch.notify.base import SENT, Notifier, Tools
from vllm_watch.notify.words import trial_message
from vllm_watch.settings.notifications import (
    AnyNotifier,
    AppriseNotifier,
    KubernetesEvents,
    NotificationsSettings,
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


async def trial(settings: NotificationsSettings, name: str) -> tuple[int, Mapping[str, Any]]:
    """Return an HTTP status and the result. Raises WatchError."""
    _, one = named(settings, name)
    findings = await send_test(settings, one)
    wrong = [each for each in findings if not each.ok]
    if not wrong:
        return 200, {"text": f"{name}: {findings[-1].text}"}
    remedy = wrong[0].remedy or f"Run vllm-watch notify test {name} on the watcher's host"
    return 409, {"error": f"{name}: {wrong[0].text}", "remedy": remedy}


def named(settings: NotificationsSettings, name: str) -> tuple[str, AnyNotifier]:
    """Return the kind and the settings of a notifier. Raises WatchError."""
    known = {each: (kind, one) for kind, each, one in settings.each()}
    if name not in known:
        names = f"write the name of one: {', '.join(known)}"
        remedy = names if known else "configure one in notifications"
        raise WatchError(f"there is no notifier {name[:50]!r}", remedy)
    return known[name]


async def send_test(settings: NotificationsSettings, one: AnyNotifier) -> list[Finding]:
    """Return the findings of the checks. If all are ok, also send the test message and add its finding."""
    tools = Tools()
    findings = check(one, tools)
    if not all(each.ok for each in findings):
        return findings
    t = time.time()
    if isinstance(one, KubernetesEvents):
        return [*findings, await kubernetes_events.send_test(one, tools, t)]
    sent = await make(one, tools).send(trial_message(one.name, settings, t))
    ok = sent.outcome == SENT
    text = (
        f"the test message was accepted: {sent.text}" if ok else f"it was not accepted: {sent.text}"
    )
    return [*findings, Finding(ok=ok, text=text)]
