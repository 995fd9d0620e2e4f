"""Let requests finish before a restart, while the readiness probe (gates.py) keeps new ones away."""

from vllm_watch.settings.restart import DrainSettings
from vllm_watch.signals.records import TargetSignals

STUCK = frozenset(("stalled", "down", "unknown", "starting"))


def progress(
    settings: DrainSettings, signals: TargetSignals | None, waited_s: float
) -> tuple[bool, str]:
    """Return whether the wait is over, and a status text."""
    if not settings.enabled:
        return True, "did not wait for requests in flight (restart.drain.enabled)"
    if signals is None or signals.state in STUCK:
        return True, "did not wait for requests in flight: the engine makes no progress"
    left = requests_in_flight(signals)
    if left is None:
        return True, "did not wait for requests in flight: their number is not known"
    if left == 0:
        return True, f"no request was in flight after {waited_s:.0f} s"
    if waited_s >= settings.deadline_seconds:
        return True, f"{left:.0f} requests were still in flight after {waited_s:.0f} s"
    more_s = settings.deadline_seconds - waited_s
    return False, f"waiting at most {more_s:.0f} s more for {left:.0f} requests in flight"


def requests_in_flight(signals: TargetSignals) -> float | None:
    """Return the number of running and waiting requests; None if unknown."""
    if not signals.up or not signals.engines:
        return None
    counts = [
        (engine.requests_running, engine.requests_waiting) for engine in signals.engines.values()
    ]
    if any(running is None for running, _ in counts):
        return None
    return sum((running or 0.0) + (waiting or 0.0) for running, waiting in counts)
