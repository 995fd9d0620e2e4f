"""Finds slow steps of an engine core that waits for a CPU. No restart cures them."""

from dataclasses import replace

from vllm_watch.detectors.base import Evidence
from vllm_watch.detectors.collapse_causes import NEIGHBOUR, SLOW_ENGINE, THERMAL, UNKNOWN, Cause
from vllm_watch.signals.baseline import Comparison
from vllm_watch.signals.cpu_waits import Waited

EXPLAINS_RATIO = 0.5
"""CPU waits are the cause if they explain this share of the log slowdown. The share is below 1,
because only one thread is measured."""

HINTS_RATIO = 0.2
"""If CPU waits explain this share of the log slowdown, no restart is advised. A fresh engine would
wait too."""

THROTTLED_SHARE_MIN = 0.05
"""A CPU limit is to blame if it throttled at least this share of its periods."""

OUTLIVED_SECONDS = 20.0
"""If steps stay slow this long after a neighbour left, another cause is named. Smoothed CPU waits
show a change after about five blocks."""

_WAIT = "cpu_wait_ratio"


class Outlived:
    """Finds slow steps that continue after the neighbour has left."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def note(self, known: str, found: Cause, comparison: Comparison) -> bool:
        seen = any(each.name == _WAIT for each in found.evidence_for)
        if known != NEIGHBOUR or found.name == NEIGHBOUR or not comparison.slow_now or not seen:
            self._seconds = 0.0
            return False
        self._seconds += comparison.block.seconds
        return self._seconds >= OUTLIVED_SECONDS


def judged(found: Cause, waited: Waited | None) -> Cause:
    """Combine the cause found on the GPUs with the CPU waits."""
    if waited is None or found.name == THERMAL:
        return found
    wait = _cpu_wait(waited)
    if waited.explained_ratio >= EXPLAINS_RATIO:
        beside = found.evidence_for if found.name == NEIGHBOUR else ()
        return Cause(NEIGHBOUR, (wait, _cpu_limit(waited), *beside))
    if found.name == NEIGHBOUR:
        return found
    if found.name == SLOW_ENGINE and waited.explained_ratio >= HINTS_RATIO:
        return Cause(
            UNKNOWN, found.evidence_for, (*found.evidence_against, wait, _cpu_limit(waited))
        )
    return replace(found, evidence_for=(*found.evidence_for, wait))


def in_short(cause: Cause) -> str:
    """Return the cause as a clause for the summary."""
    waits = cause.name == NEIGHBOUR and any(each.name == _WAIT for each in cause.evidence_for)
    return "; most of the delay is waiting for a CPU of its host" if waits else ""


def _cpu_wait(waited: Waited) -> Evidence:
    text = (
        f"{waited.who} waited for a CPU during {waited.share:.0%} of its step time "
        f"({waited.usual_share:.0%} after the start). That explains {waited.explained_ratio:.0%} of the slowdown"
    )
    return Evidence(
        name=_WAIT,
        value=waited.share,
        unit="ratio",
        expected=waited.usual_share,
        text=text,
    )


def _cpu_limit(waited: Waited) -> Evidence:
    share = waited.throttled_share
    if share is not None and share >= THROTTLED_SHARE_MIN:
        text = f"its CPU limit was used up in {share:.0%} of the periods: raise the limit of its container or service"
        return Evidence(
            name="cpu_throttled_ratio", value=share, unit="ratio", expected=0.0, text=text
        )
    whose = (
        "no CPU limit of its own is seen" if share is None else "its own CPU limit is not the cause"
    )
    text = f"{whose}: other processes use the CPUs; find them with `top` on the host, or give the engine more CPUs"
    return Evidence(name="cpu_throttled_ratio", value=share, unit="ratio", expected=0.0, text=text)
