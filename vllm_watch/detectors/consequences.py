"""Decides which slowdowns page, and which lead to the advice to restart."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean
from typing import Any, ClassVar

from vllm_watch.detectors.base import FIRING, Evidence, Verdict
from vllm_watch.detectors.collapse_causes import KIND
from vllm_watch.signals import stored
from vllm_watch.signals.baseline import Comparison
from vllm_watch.signals.blocks import Block
from vllm_watch.signals.scales import ALIKE, FEW, MINUTE_SECONDS, MOMENT_SECONDS, ODD_TIMES
from vllm_watch.signals.wander import Wander
from vllm_watch.support.quantities import in_words

OWN_PAST, SIBLINGS, FORMER = "its own past", "its siblings", "the process before"
_COMPARED_WITH = {
    OWN_PAST: "as usual",
    SIBLINGS: "as those of the other engines",
    FORMER: "as before the restart",
}

PAGE, RESTART = "page", "restart"


@dataclass(frozen=True, slots=True)
class Rule:
    """Conditions under which a slowdown has this consequence."""

    consequence: str
    yardstick: str
    times: float
    seconds: float
    harm: bool = True  # users must be harmed (Harm)
    curable: bool = False  # a restart must be able to help

    @property
    def log_ratio(self) -> float:
        return log(self.times)


RULES = (
    Rule(PAGE, OWN_PAST, 1.7, 40.0),
    Rule(RESTART, OWN_PAST, 1.7, 120.0, curable=True),
    Rule(PAGE, SIBLINGS, 1.45, 600.0),
    Rule(PAGE, FORMER, 3.0, 180.0, harm=False),
)
"""The rules of each yardstick (the reference for step times), mildest first. A rule applies only if
the one before it does.

Own past: adapters, grammars and encoders make steps up to 1.6 times as long. In the test world
`lora_bursts`, a limit of 1.6 paged once a day and 1.7 never. A burst of images ends within 40 s.

Siblings: a smaller ratio is enough, because siblings share load and hardware. Their step times are
known after 600 s.

Predecessor: no change of flag or GPU makes steps 3.0 times as long, and no warm-up takes 180 s.
"""


@dataclass(frozen=True, slots=True)
class Shift:
    """A slowdown in comparison with a yardstick."""

    yardstick: str
    log_ratio: float
    seconds: float
    harmed: bool
    curable: bool = False


def rule(consequence: str, yardstick: str) -> Rule:
    """Return the rule for this consequence and yardstick."""
    return next(
        each for each in RULES if (each.consequence, each.yardstick) == (consequence, yardstick)
    )


def fulfilled(shift: Shift) -> Sequence[str]:
    """Return the consequences that the shift has besides a ticket, mildest first."""
    found: list[str] = []
    for each in RULES:
        if each.yardstick == shift.yardstick:
            if _lacking(each, shift):
                break
            found.append(each.consequence)
    return found


def finding(
    engine: str | None,
    cause: str,
    text: str,
    evidence_for: tuple[Evidence, ...],
    evidence_against: tuple[Evidence, ...] = (),
    *,
    measure: float,
    family: str = "",
    reached: Collection[str] = (),
    present: bool = True,
    since_seconds: float = 0.0,
) -> Verdict:
    """Return the verdict of any test that finds an engine slow. `reached` are its consequences."""
    return Verdict(
        state=FIRING,
        kind=KIND,
        engine=engine,
        cause=cause,
        family=family,
        severity="page" if PAGE in reached else "ticket",
        restart_advised=RESTART in reached,
        summary=f"Engine {engine}{text}",
        evidence_for=evidence_for,
        evidence_against=evidence_against,
        present=present,
        since_seconds=since_seconds,
        measure=measure,
    )


def explained(
    shift: Shift, reached: Sequence[str], *, curable: bool = True
) -> tuple[Evidence, ...]:
    """Return the rule that applies, and the unmet conditions of the next one."""
    times, took, lasts = exp(shift.log_ratio), "steps take", "for"
    if shift.yardstick == SIBLINGS:
        lasts = "on average over"
    elif reached:  # the slowdown never fell below the rule's ratio
        times, took = rule(reached[0], shift.yardstick).times, "steps have taken at least"
    over = f" {lasts} {in_words(shift.seconds)}" if shift.seconds else ""
    text = f"{took} {times:.3g} times as long {_COMPARED_WITH[shift.yardstick]}{over}"
    spoke = Evidence(name="rule", value=reached[-1] if reached else "ticket", text=text)
    for each in RULES:
        later = each.yardstick == shift.yardstick and each.consequence not in reached
        if later and (curable or each.consequence != RESTART):
            lacking = " and ".join(_lacking(each, shift)) or "the next scrape confirms it"
            then = "becomes critical" if each.consequence == PAGE else "a restart is advised"
            return spoke, Evidence(
                name="next_rule", value=each.consequence, text=f"{then} when {lacking}"
            )
    return (spoke,)


def _lacking(rule: Rule, shift: Shift) -> Sequence[str]:
    lacks = (
        (shift.log_ratio < rule.log_ratio, f"steps take {rule.times:.4g} times as long"),
        (shift.seconds < rule.seconds, f"it has lasted {in_words(rule.seconds)}"),
        (
            rule.harm and not shift.harmed,
            "users wait longer or get fewer tokens than in the worst minutes so far",
        ),
        (
            rule.curable and not shift.curable,
            "the slowdown is worse than those that ended by themselves",
        ),
    )
    return [text for lacking, text in lacks if lacking]


LOSS_LOG_RATIO = log(1.12)
"""A ticket opens if the mean slowdown over LASTING_MINUTES reaches this log ratio, or the mean
slowdown relative to the siblings."""

LASTING_DEVIATIONS = 2.5
"""A small slowdown must also exceed this many standard deviations of one-minute means."""

LASTING_MINUTES = 20
"""Small slowdowns are judged over this many minutes of work. Only minutes with familiar loads
count."""


KNOWN_MINUTES = 30.0
"""The standard deviation of one-minute means is known after this many minutes of work."""

_PAGE = rule(PAGE, OWN_PAST)


class Bar(stored.Kept):
    """Follows the slowdown of one process.

    A page and the advice to restart need more proof than a ticket, because step times drift without
    a fault.
    """

    KEPT: ClassVar[stored.Fields] = {
        "wander": stored.part(Wander),
        "reached": stored.texts,
        **dict.fromkeys(("seconds", "worst", "recovered"), stored.number),
    }
    LATER = ("reached",)

    def __init__(self) -> None:
        self.wander = Wander()
        self._sum = self._sum_seconds = 0.0  # of log ratios in this minute
        self._minutes: deque[float] = deque(maxlen=LASTING_MINUTES)
        self.reached: Sequence[str] = ()
        self.shift = Shift(OWN_PAST, 0.0, 0.0, harmed=False)
        self._seconds = 0.0
        self._worst = 0.0
        self._recovered = 0.0  # worst slowdown that ended by itself

    def follow(self, comparison: Comparison, *, doubt: bool, harmed: bool) -> None:
        block, log_ratio, alarm = comparison.block, comparison.slow_log_ratio, comparison.slow
        if log_ratio is None or block.long_prompts:
            return
        self.wander.add(log_ratio, block.seconds, well=not (doubt or alarm))
        if comparison.familiar:
            self._add(log_ratio, block.seconds)
        if not alarm:
            if self.reached:
                self.wander.forget()
            self._recovered = max(self._recovered, self._worst)
            self.reached = ()
            self._seconds = self._worst = 0.0
            return
        now = self.wander.now
        self._worst = max(self._worst, now)
        exceeded = comparison.sure and self.wander.exceeded(_PAGE.log_ratio)
        beyond = now >= _PAGE.log_ratio if self.reached else exceeded
        self._seconds = self._seconds + block.seconds if beyond else 0.0
        out_of_reach = now >= self._recovered + log(ALIKE)
        self.shift = Shift(OWN_PAST, now, self._seconds, harmed=harmed, curable=out_of_reach)
        self.reached = max(self.reached, fulfilled(self.shift), key=len)

    def _add(self, log_ratio: float, seconds: float) -> None:
        self._sum += log_ratio * seconds
        self._sum_seconds += seconds
        if self._sum_seconds >= MINUTE_SECONDS:
            self._minutes.append(self._sum / self._sum_seconds)
            self._sum = self._sum_seconds = 0.0

    def lasts(self) -> Evidence | None:
        if len(self._minutes) < LASTING_MINUTES or self.wander.minutes < KNOWN_MINUTES:
            return None
        least = max(LOSS_LOG_RATIO, LASTING_DEVIATIONS * self.wander.stray)
        log_ratio = mean(self._minutes)
        if log_ratio < least or min(self._minutes) < 0.5 * least:
            return None
        text = f"for {LASTING_MINUTES} minutes of work each step has taken {exp(log_ratio):.2f} times as long as usual at this load"
        return Evidence(name="step_time_ratio", value=exp(log_ratio), expected=1.0, text=text)

    def excuse(self) -> None:
        self._worst = 0.0


class Harm:
    """Follows one engine's latencies and queue."""

    def __init__(self) -> None:
        self._now: list[float] = []  # step seconds, first-token seconds, requests waiting
        self._sums, self._seconds, self._well = [0.0, 0.0, 0.0], 0.0, True
        self._worst: list[list[float]] = [[], [], []]  # healthy minutes, worst first

    def add(self, block: Block, *, well: bool) -> None:
        """Add a block. Minutes with a queue are not learnt, because after an outage all clients return at once."""
        if not block.step_seconds:
            return
        first = self._now[1] if self._now else 0.0
        if block.prompts and block.first_token_seconds:
            first = block.first_token_seconds / block.prompts
        values = [block.step_seconds, first, block.waiting_min]
        share = 1.0 - exp(-block.seconds / MOMENT_SECONDS)
        self._now = [a + share * (b - a) for a, b in zip(self._now or values, values, strict=True)]
        self._sums = [a + b * block.seconds for a, b in zip(self._sums, values, strict=True)]
        self._seconds += block.seconds
        self._well = self._well and well and block.waiting_min < 1.0
        if self._seconds < MINUTE_SECONDS:
            return
        if self._well:
            for worst, total in zip(self._worst, self._sums, strict=True):
                worst.append(total / self._seconds)
                worst.sort(reverse=True)
                del worst[FEW:]
        self._sums, self._seconds, self._well = [0.0, 0.0, 0.0], 0.0, True

    @property
    def waits(self) -> bool:
        return bool(self._now) and self._now[2] >= 1.0

    @property
    def felt(self) -> bool:
        if len(self._worst[0]) < FEW or not self._now:
            return True
        step, first, waiting = (
            now > ODD_TIMES * worst[-1] for now, worst in zip(self._now, self._worst, strict=True)
        )
        return step or (first and self._worst[1][-1] > 0.0) or (waiting and self.waits)

    def export_state(self) -> dict[str, Any]:
        return {"now": list(self._now), "worst": [list(each) for each in self._worst]}

    def restore(self, state: stored.Stored) -> None:
        now, worst = stored.numbers(state["now"]), [stored.numbers(each) for each in state["worst"]]
        if len(now) not in (0, len(self._worst)) or len(worst) != len(self._worst):
            raise ValueError("three measures are kept")
        self._now, self._worst = list(now), [list(each)[:FEW] for each in worst]
