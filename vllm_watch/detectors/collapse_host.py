"""Are steps slow because the engine waits for a CPU of its host? Pure helpers.

A neighbour on the host (another pod, a cron job, a build) or a CPU limit that is used up makes every step
longer, on GPUs too: the engine core is a loop on the host. No restart cures that. How much of a slowdown the
waiting explains is reckoned in signals/cpu_waits.py.
"""

from dataclasses import replace

from vllm_watch.detectors.base import Evidence
from vllm_watch.detectors.collapse_causes import NEIGHBOUR, SLOW_ENGINE, THERMAL, UNKNOWN, Cause
from vllm_watch.signals.baseline import Comparison
from vllm_watch.signals.cpu_waits import Waited

EXPLAINS_RATIO = 0.5
"""At least this share of the slowdown (of its logarithm: 1.4 of 2.0 times) is time spent waiting for a CPU: then
the host is the larger part of it. All of it is seldom seen, for what is counted is the wait of one thread and not of those who wait for it."""

HINTS_RATIO = 0.2
"""From this share on it is no slow engine for sure, and no restart is advised: a fresh one would wait as well. Below,
waiting is what a slow engine itself may bring about, by clients that come back and requests that pile up."""

THROTTLED_SHARE_MIN = 0.05
"""Share of the periods of a CPU limit that were cut short from which the limit is named: a burst at the start of a
prefill uses up one now and then."""

OUTLIVED_SECONDS = 20.0
"""Steps that stay long for so long without any neighbour have another cause: smoothed waits fade in five blocks."""

_WAIT = "cpu_wait_ratio"


class Outlived:
    """Has the slowness outlived the neighbour that it was put down to?"""

    def __init__(self) -> None:
        self._seconds = 0.0

    def note(self, known: str, found: Cause, comparison: Comparison) -> bool:
        """`known`: the cause that was said; `found`: what speaks in this block. Where the host's CPUs are not
        seen, nothing is known of what became of it."""
        seen = any(each.name == _WAIT for each in found.evidence_for)
        if known != NEIGHBOUR or found.name == NEIGHBOUR or not comparison.slow_now or not seen:
            self._seconds = 0.0
            return False
        self._seconds += comparison.block.seconds
        return self._seconds >= OUTLIVED_SECONDS


def judged(found: Cause, waited: Waited | None) -> Cause:
    """What the GPUs say (`found`) and what the host's CPUs say, together; None: those are not seen."""
    if waited is None or found.name == THERMAL:
        return found
    told = _told(waited)
    if waited.explained_ratio >= EXPLAINS_RATIO:
        beside = found.evidence_for if found.name == NEIGHBOUR else ()
        return Cause(NEIGHBOUR, (told, _whose(waited), *beside))
    if found.name == NEIGHBOUR:
        return found
    if found.name == SLOW_ENGINE and waited.explained_ratio >= HINTS_RATIO:
        return Cause(UNKNOWN, found.evidence_for, (*found.evidence_against, told, _whose(waited)))
    return replace(found, evidence_for=(*found.evidence_for, told))


def in_short(cause: Cause) -> str:
    """What a one-line summary adds of it."""
    waits = cause.name == NEIGHBOUR and any(each.name == _WAIT for each in cause.evidence_for)
    return "; most of that it waits for a CPU of its host" if waits else ""


def _told(waited: Waited) -> Evidence:
    text = (
        f"{waited.who} waited for a CPU {waited.share:.0%} of the time of its steps; "
        f"{waited.usual_share:.0%} when fresh. That explains {waited.explained_ratio:.0%} of the slowdown"
    )
    return Evidence(
        name=_WAIT,
        value=waited.share,
        unit="ratio",
        expected=waited.usual_share,
        text=text,
    )


def _whose(waited: Waited) -> Evidence:
    """The engine's own limit, or others on the host?"""
    share = waited.throttled_share
    if share is not None and share >= THROTTLED_SHARE_MIN:
        text = f"its CPU limit was used up in {share:.0%} of the periods: raise the limit of its container or service"
        return Evidence(
            name="cpu_throttled_ratio", value=share, unit="ratio", expected=0.0, text=text
        )
    whose = (
        "no CPU limit of its own is seen" if share is None else "its own CPU limit is not the cause"
    )
    text = f"{whose}: others have the CPUs; `top` on the host names them, and more CPUs for the engine cure it"
    return Evidence(name="cpu_throttled_ratio", value=share, unit="ratio", expected=0.0, text=text)
