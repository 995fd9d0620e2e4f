"""Decides which slowdowns page, and which lead to the advice to restart."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from vllm_watch.detectors.base import Evidence
from vllm_watch.support.durations import in_words

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
    harm: bool = True  # users must be harmed (signals/harm.py)
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
