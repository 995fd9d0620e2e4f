"""Rules, failure classes and cures.

A cure is printed only if the log meets its condition. To add a message, add a row to a table in `families/`,
and an example and a counter-example to the tests.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from vllm_watch.diagnosis.report import Check, Fix

DECIMAL = r"(?<![\d.])\d{1,12}(?:\.\d{1,12})?(?![\d.])"
"""Matches 14.99 in "14.99 GiB"."""

WHOLE = r"(?<!\d)\d{1,12}(?!\d)"
"""Matches 32768 in "32768 tokens"."""

GROUPED = r"(?<![\d,])\d[\d,]{0,15}(?![\d,])"
"""Matches 32,768 in "32,768 tokens"."""


def whole(text: str) -> int:
    """Convert a match of `GROUPED` to an integer."""
    return int(text.replace(",", ""))


Facts = Mapping[str, str | float | int]

_INNERMOST = 3
"""Number of innermost frames that a condition searches."""


class Rank(IntEnum):
    """How much a message explains. Lower ranks explain more.

    The root is the first message of rank CAUSE or GENERAL. Without one, it is the first message of the lowest rank."""

    CAUSE = 0
    GENERAL = 1
    """An error that a more specific error may explain."""
    IMPORT = 2
    """A failed import. Unless caught, it ends the start."""
    MESSAGE = 3
    """A line at level ERROR that matches no rule and is not an exception."""
    SYMPTOM = 4
    """An effect of a failure elsewhere."""
    DEATH = 5
    REQUEST = 6
    """One request was refused."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The parts of a log that conditions may search."""

    message: str  # the root line and the lines after it
    log: str  # all kept lines, and function names of tracebacks
    facts: Facts
    phase: int | None = None  # None if no line shows it
    serving: bool = False
    frames: tuple[str, ...] = ()  # of the root's traceback, innermost first


@dataclass(frozen=True, slots=True)
class When:
    """A condition. Fields that are not given are not checked."""

    says: re.Pattern[str] | None = None  # must match the message
    lacks: re.Pattern[str] | None = None  # must not match the log
    seen: re.Pattern[str] | None = None  # must match the log
    facts: tuple[str, ...] = ()  # must be known; with a leading `!`, unknown
    phases: tuple[int, ...] = ()
    serving: bool | None = None
    frames: re.Pattern[str] | None = None  # must match one of the innermost frames

    def holds(self, evidence: Evidence) -> bool:
        return (
            (self.says is None or self.says.search(evidence.message) is not None)
            and (self.lacks is None or self.lacks.search(evidence.log) is None)
            and (self.seen is None or self.seen.search(evidence.log) is not None)
            and all((each.lstrip("!") in evidence.facts) != (each[0] == "!") for each in self.facts)
            and (not self.phases or evidence.phase in self.phases)
            and (self.serving is None or self.serving == evidence.serving)
            and (self.frames is None or any(map(self.frames.search, evidence.frames[:_INNERMOST])))
        )

    @property
    def empty(self) -> bool:
        return self == When()


def when(
    says: str | None = None,
    *,
    lacks: str | None = None,
    seen: str | None = None,
    facts: tuple[str, ...] = (),
    phases: tuple[int, ...] = (),
    serving: bool | None = None,
    frames: str | None = None,
) -> When:
    """Return a condition from patterns."""
    one, two, three, four = (each and re.compile(each) for each in (says, lacks, seen, frames))
    return When(one or None, two or None, three or None, facts, phases, serving, four or None)


@dataclass(frozen=True, slots=True)
class Cure:
    """One fix and its condition."""

    fix: Fix
    when: When


def cure(what: str, command: str | None = None, on: When = When()) -> Cure:
    """Return a cure that changes something."""
    return Cure(Fix(what, command), on)


def check(what: str, command: str | None = None, on: When = When()) -> Cure:
    """Return a cure that only reads."""
    return Cure(Check(what, command), on)


@dataclass(frozen=True, slots=True)
class Rule:
    """One message of vLLM or a library."""

    failure: str
    literals: tuple[str, ...]
    """Each matching line contains one of these."""
    pattern: re.Pattern[str] | None
    """None if the literals suffice."""
    rank: Rank
    quiet: bool
    """True if vLLM logs the message as INFO or WARNING. Other rules skip these levels."""
    heals: bool
    """True if new tokens show that the failure is over."""
    numeric: bool
    """True if lines that differ only in digits must all be read. Other rules read only one of them."""
    deterministic: bool | None  # None if the class decides
    header: bool
    """True if the message announces an error in the lines after it."""
    needs: When

    def fits(self, text: str) -> tuple[int, int] | None:
        if self.pattern is not None:
            found = self.pattern.search(text)
            return None if found is None else found.span()
        spots = [(text.find(each), len(each)) for each in self.literals]
        known = [(at, at + length) for at, length in spots if at >= 0]
        return min(known, default=None)


def rule(
    failure: str,
    *literals: str,
    pattern: str | None = None,
    rank: Rank = Rank.CAUSE,
    quiet: bool = False,
    heals: bool = False,
    numeric: bool = False,
    deterministic: bool | None = None,
    header: bool = False,
    needs: When = When(),
) -> Rule:
    """Return one row of a table."""
    compiled = None if pattern is None else re.compile(pattern)
    return Rule(failure, literals, compiled, rank, quiet, heals, numeric, deterministic, header, needs)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told:
    """Text and fixes derived from numbers in a log."""

    explanation: str = ""
    fixes: Sequence[Fix] = ()
    deterministic: bool | None = None
    """True if the numbers show that another start would fail, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Replaces the explanation and the cures of a class for some of its messages."""

    when: When
    sentence: str
    why: str = ""
    cures: tuple[Cure, ...] = ()
    deterministic: bool | None = None
    confidence: float = 1.0  # at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A class of failures."""

    slug: str
    sentence: str
    """A sentence without a full stop. It must hold for every message of the class."""
    why: str
    cures: tuple[Cure, ...]
    deterministic: bool
    variants: tuple[Variant, ...] = ()  # the first that matches applies
    numbers: Callable[[str, Facts], Told] | None = None
    """Derives text and fixes from the message and facts. These fixes come first."""
