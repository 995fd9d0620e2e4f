"""Send a test message through one notifier."""

import time
from collections.abc import Mapping
from typing import Any

from vllm_watch.errors import WatchError
from vllm_watch.notify import base, kinds, kubernetes_events
from vllm_watch.notify.words import Links, trial_message
from vllm_watch.settings.notifications import KubernetesEvents, NotificationsSettings


async def trial(settings: NotificationsSettings, name: str) -> tuple[int, Mapping[str, Any]]:
    """Return an HTTP status and the result. Raises WatchError if the name is unknown."""
    known = {each: one for _, each, one in settings.each()}
    if name not in known:
        names = ", ".join(known) or "none is configured"
        raise WatchError(f"There is no notifier {name[:50]!r}", f"Known are: {names}")
    one, tools = known[name], base.Tools()
    wrong = [each for each in kinds.check(one, tools) if not each.ok]
    if wrong:
        return 409, {"error": wrong[0].text, "remedy": wrong[0].remedy}
    if isinstance(one, KubernetesEvents):
        found = await kubernetes_events.send_test(one, tools, time.time())
        ok, said = found.ok, found.text
    else:
        links = Links(settings.page_url, settings.runbooks_url)
        sent = await kinds.make(one, tools).send(trial_message(name, links, time.time()))
        ok, said = sent.outcome == base.SENT, sent.text
    if ok:
        return 200, {"text": f"The test message of {name} was sent: {said}"}
    return 409, {"error": f"{name} did not take the test message: {said}", "remedy": f"Run vllm-watch notify test {name} on the watcher's host"}  # fmt: skip
