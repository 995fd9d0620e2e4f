"""Send a test message through one notifier."""

import time
from collections.abc import Mapping
from typing import Any

from vllm_watch.errors import WatchError
from vllm_watch.notify import base, kinds, kubernetes_events
from vllm_watch.notify.words import Links, trial_message
from vllm_watch.settings.notifications import (
    AnyNotifier,
    KubernetesEvents,
    NotificationsSettings,
)


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


async def send_test(settings: NotificationsSettings, one: AnyNotifier) -> list[base.Finding]:
    """Return the findings of the checks. If all are ok, also send the test message and add its finding."""
    tools = base.Tools()
    findings = kinds.check(one, tools)
    if not all(each.ok for each in findings):
        return findings
    t = time.time()
    if isinstance(one, KubernetesEvents):
        return [*findings, await kubernetes_events.send_test(one, tools, t)]
    links = Links(settings.page_url, settings.runbooks_url)
    sent = await kinds.make(one, tools).send(trial_message(one.name, links, t))
    ok = sent.outcome == base.SENT
    text = (
        f"the test message was accepted: {sent.text}" if ok else f"it was not accepted: {sent.text}"
    )
    return [*findings, base.Finding(ok=ok, text=text)]
