"""Finds an engine that runs far more requests at once than before, or than its siblings, for the same work."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, floor, log
from statistics import median
from typing import NamedTuple

from vllm_watch.detectors.base import FIRING, Evidence, Verdict
from vllm_watch.detectors.collapse_siblings import KNOWN_SECONDS, SIBLINGS_MIN, share_of
from vllm_watch.signals.blocks import Block

WORK_RATIO_MAX = 1.15
"""An engine does no more work than usual if its tokens per second are at most this many times the
usual number."""

CONTEXT_RATIO_MAX = 1.3
"""Requests are longer than usual if each uses more than this multiple of its usual share of the KV
cache."""

SIBLINGS_TIMES_MIN = 2.0
"""The running requests and the step time must both be this many times the siblings' medians.
Routers spread requests unevenly."""

GRAIN = log(1.5)
"""Rates (tokens per second) are grouped in steps of this log ratio."""

RATES_MAX = 32
"""At most this many groups of rates are kept."""

USUAL_SECONDS = 4 * 3600.0
"""The usual number of running requests and the usual step time are means over this many seconds."""

TIMES_MIN = 3.0
"""The running requests and the step time must both be this many times their usual values. Adapters,
grammars and images lengthen steps by up to half."""

LEARNT_TIMES = 1.5
"""If the running requests and the step time both reach this many times their usual values, neither
is learnt. A growing slowdown must not become usual."""

PRESENT_TIMES, PRESENT_SECONDS = 2.0, 30.0
"""A finding also needs PRESENT_TIMES × the usual values in the last PRESENT_SECONDS. The long-term
means stay high while a recovered engine drains its queue."""

HELD_TIMES, HELD_WORK_RATIO = 1.5, 1.5
"""During a finding, these limits replace PRESENT_TIMES and WORK_RATIO_MAX for the last
PRESENT_SECONDS."""


class Work(NamedTuple):
    """An engine's mean load, tokens per second and step time."""

    running: float = 0.0
    generated: float = 0.0
    prompted: float = 0.0
    kv_usage: float = 0.0
    step_seconds: float = 0.0


class OwnWork:
    """Follows the work of one process."""

    def __init__(self) -> None:
        self.now = self._lately = Work()
        self.at_s = self._seconds = 0.0
        self.behind_s: float | None = None
        self._usual: dict[int, tuple[float, Work]] = {}  # grouped rate → (seconds, means)
        self.found: Evidence | None = None

    @property
    def known(self) -> bool:
        return self._seconds >= KNOWN_SECONDS

    def add(self, block: Block) -> None:
        if not (block.step_seconds and block.generated and block.running and block.kv_usage):
            return
        prompted = block.prompted or 0.0
        seen = Work(block.running, block.generated, prompted, block.kv_usage, block.step_seconds)
        self.now = _mixed(self.now, seen, share_of(block.seconds, self._seconds))
        self._lately = _mixed(self._lately, seen, 1.0 - exp(-block.seconds / PRESENT_SECONDS))
        self.at_s, self._seconds = block.at_s, self._seconds + block.seconds
        if not self.known:
            return
        rate = floor(log(self.now.generated) / GRAIN)
        seconds, usual = self._usual.get(rate, (0.0, self.now))
        known = seconds >= KNOWN_SECONDS
        lasts = known and _behind(self.now, usual, TIMES_MIN, WORK_RATIO_MAX)
        least, most = (
            (HELD_TIMES, HELD_WORK_RATIO) if self.found else (PRESENT_TIMES, WORK_RATIO_MAX)
        )
        present = lasts and _behind(self._lately, usual, least, most)
        self.found = self._evidence(usual) if present else None
        odd = known and min(_times(self.now, usual)) >= LEARNT_TIMES
        if not odd and (rate in self._usual or len(self._usual) < RATES_MAX):
            seconds = min(seconds + block.seconds, USUAL_SECONDS)
            self._usual[rate] = seconds, _mixed(usual, self.now, block.seconds / seconds)

    def _evidence(self, usual: Work) -> Evidence:
        requests, steps = _times(self.now, usual)
        text = (
            f"it runs {requests:.1f} times as many requests at once as usual and produces no more tokens per second;"
            f" each step takes {steps:.1f} times as long"
        )
        return Evidence(name="step_time_ratio", value=steps, expected=1.0, text=text)


def beside_siblings(
    verdict: Verdict, works: Mapping[str, OwnWork], siblings: Sequence[str]
) -> Verdict:
    """Compare an engine with its siblings."""
    own = works.get(verdict.engine or "")
    others = [each.now for name in siblings if (each := works.get(name)) and each.known]
    if own is None or not own.known or len(others) < SIBLINGS_MIN or verdict.state == FIRING:
        return verdict
    usual = Work(*map(median, zip(*others, strict=True)))
    if not _behind(own.now, usual, SIBLINGS_TIMES_MIN, WORK_RATIO_MAX):
        own.behind_s = None
        return verdict
    own.behind_s = own.at_s if own.behind_s is None else own.behind_s
    requests, steps = _times(own.now, usual)
    text = (
        f"it runs {requests:.1f} times as many requests at once as its {len(others)} sibling engines and produces"
        f" no more tokens per second; each token takes {steps:.1f} times as long"
    )
    said = Evidence(name="siblings_step_time_ratio", value=steps, expected=1.0, text=text)
    past = Evidence(name="own_past", value=None, text="it may always have been this slow")
    return replace(
        verdict, state=FIRING, cause="slow_engine", severity="ticket",
        summary=f"Engine {verdict.engine}: {text}", evidence_for=(said,), evidence_against=(past,),
        since_seconds=own.at_s - own.behind_s, measure=steps,
    )  # fmt: skip


def _times(now: Work, usual: Work) -> tuple[float, float]:
    return now.running / usual.running, now.step_seconds / usual.step_seconds


def _behind(now: Work, usual: Work, times: float, more: float) -> bool:
    if now.generated > more * usual.generated or (usual.prompted and now.prompted > more * usual.prompted):  # fmt: skip
        return False
    alike = now.kv_usage / now.running <= CONTEXT_RATIO_MAX * usual.kv_usage / usual.running
    return alike and min(_times(now, usual)) >= times


def _mixed(was: Work, now: Work, share: float) -> Work:
    return Work(*(old + share * (new - old) for old, new in zip(was, now, strict=True)))
