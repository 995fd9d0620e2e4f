"""Letting a server's requests finish before it is restarted.

The readiness gate says "no" from now on (export/gate.py), so that who asks it sends no more; then the
work in hand is waited for, to a deadline. An engine that makes no progress is not waited for at all, and
one that comes to a halt meanwhile no longer.
"""

import asyncio
import time
from collections.abc import Callable

from vllm_watch.settings.restart import DrainSettings
from vllm_watch.signals.records import TargetSignals

STUCK = frozenset(("stalled", "down", "unknown", "starting"))

POLL_SECONDS = 0.5
"""How often the last look is read again; looks themselves come at their own pace."""


def work(signals: TargetSignals | None) -> float | None:
    """Return how many requests the server has in hand; None where that is not known."""
    if signals is None or not signals.up or not signals.engines:
        return None
    counts = [
        (engine.requests_running, engine.requests_waiting) for engine in signals.engines.values()
    ]
    if any(running is None for running, _ in counts):
        return None
    return sum((running or 0.0) + (waiting or 0.0) for running, waiting in counts)


async def wait(
    settings: DrainSettings,
    signals: Callable[[], TargetSignals | None],
    said: Callable[[str], None],
) -> str:
    """Wait until nothing is in hand, or as long as is allowed; return how it went, in words."""
    if not settings.enabled:
        return "requests in hand were not waited for (restart.drain.enabled)"
    began_s = time.monotonic()
    while True:
        now = signals()
        if now is None or now.state in STUCK:
            return "requests in hand were not waited for: the engine makes no progress"
        left, waited_s = work(now), time.monotonic() - began_s
        if left is None:
            return "requests in hand were not waited for: their number is not known"
        if left == 0:
            return f"no request was in hand after {waited_s:.0f} s"
        if waited_s >= settings.deadline_seconds:
            return f"{left:.0f} requests were still in hand after {waited_s:.0f} s"
        said(
            f"{left:.0f} requests may finish, for {settings.deadline_seconds - waited_s:.0f} s more"
        )
        await asyncio.sleep(POLL_SECONDS)
