"""Rules, failure classes and cures: plain data with conditions.

A rule knows one message. A class says what its messages mean; a variant says it more precisely for some of
them. A cure is printed only if its condition was read in the log. To teach a new message, add a row to a
table in `families/`, and its example and counter-example to the tests.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from vllm_watch.diagnosis.report import Fix

Facts = Mapping[str, str | float | int]


class Rank(IntEnum):
    """How much a message explains. The first error of a life is its root, unless it explains too little."""

    CAUSE = 0
    """Says why."""
    GENERAL = 1
    """A real error; one that it was raised from, or that follows in its output, may say more."""
    IMPORT = 2
    """A failed import ends a start, but is also often caught."""
    MESSAGE = 3
    """A line at level ERROR that no rule knows and that is not an exception."""
    SYMPTOM = 4
    """What others see of a failure: a worker that does not answer, an actor that died."""
    DEATH = 5
    """Only says that the engine is dead."""
    REQUEST = 6
    """One request was refused; the engine lives on."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was read of one life, as conditions see it."""

    message: str  # the root line and the lines after it
    log: str  # every line that was kept, and the functions named in tracebacks
    facts: Facts
    phase: int | None = None  # None: no line shows it
    serving: bool = False


@dataclass(frozen=True, slots=True)
class When:
    """A condition; what is not given is not asked for."""

    says: re.Pattern[str] | None = None
    """The message, or a line after it, fits."""
    lacks: re.Pattern[str] | None = None
    """No line of the log fits."""
    seen: re.Pattern[str] | None = None
    """Some line of the log fits."""
    facts: tuple[str, ...] = ()
    """These are known; `!name`: this is not."""
    phases: tuple[int, ...] = ()
    """The phase was read, and is one of these."""
    serving: bool | None = None

    def holds(self, evidence: Evidence) -> bool:
        """Return True if all of it was read."""
        return (
            (self.says is None or self.says.search(evidence.message) is not None)
            and (self.lacks is None or self.lacks.search(evidence.log) is None)
            and (self.seen is None or self.seen.search(evidence.log) is not None)
            and all((each.lstrip("!") in evidence.facts) != (each[0] == "!") for each in self.facts)
            and (not self.phases or evidence.phase in self.phases)
            and (self.serving is None or self.serving == evidence.serving)
        )

    @property
    def empty(self) -> bool:
        """Does it hold for every log?"""
        return self == When()


def when(
    says: str | None = None,
    *,
    lacks: str | None = None,
    seen: str | None = None,
    facts: tuple[str, ...] = (),
    phases: tuple[int, ...] = (),
    serving: bool | None = None,
) -> When:
    """A condition, from patterns."""
    one, two, three = (each and re.compile(each) for each in (says, lacks, seen))
    return When(one or None, two or None, three or None, facts, phases, serving)


@dataclass(frozen=True, slots=True)
class Cure:
    """One thing to do, and what must have been read for it to be right."""

    fix: Fix
    when: When


def cure(what: str, command: str | None = None, on: When = When()) -> Cure:
    """A cure. Without a condition it may only look at something: it holds for all messages of its class."""
    return Cure(Fix(what, command), on)


@dataclass(frozen=True, slots=True)
class Rule:
    """One message of vLLM, or of what it is built on."""

    failure: str
    literals: tuple[str, ...]
    """One of them stands in every line that the pattern fits: found first, since that costs little."""
    pattern: re.Pattern[str] | None
    """None: a literal is enough."""
    rank: Rank
    quiet: bool
    """Does vLLM write it as INFO or WARNING? Else such a line only reports something that it survived."""
    heals: bool
    """Is it over when the engine makes tokens again?"""
    numeric: bool
    """Do the digits in a line decide whether it fits? Else lines that differ only in numbers are read once."""
    deterministic: bool | None
    """Would the next start fail the same way? None: as its class says."""
    header: bool
    """Does the error that it announces stand in the lines after it?"""
    needs: When
    """What else the log must hold for this to be a failure."""

    def fits(self, text: str) -> tuple[int, int] | None:
        """Return where in `text` the message stands; None where it does not."""
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
    """One row of a table."""
    compiled = None if pattern is None else re.compile(pattern)
    return Rule(failure, literals, compiled, rank, quiet, heals, numeric, deterministic, header, needs)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told:
    """What the numbers in a log add to what its class says."""

    explanation: str = ""
    fixes: Sequence[Fix] = ()
    deterministic: bool | None = None
    """True only if the numbers show that the same start must fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What some messages of a class mean more precisely; it replaces what the class says."""

    when: When
    sentence: str
    why: str = ""
    cures: tuple[Cure, ...] = ()
    deterministic: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A class of failures: what it is called, what it means, what to do."""

    slug: str
    sentence: str
    """The finding, one sentence without a full stop; true of every message of the class."""
    why: str
    cures: tuple[Cure, ...]
    deterministic: bool
    """Would a start that failed so fail the same way again, with nothing changed?"""
    variants: tuple[Variant, ...] = ()
    """The first whose condition holds counts."""
    numbers: Callable[[str, Facts], Told] | None = None
    """Reads the message (with the lines after it) and the facts; its fixes come before the others."""
