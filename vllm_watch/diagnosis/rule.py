"""Rules, failure classes and cures: plain data with conditions.

A rule matches one message. A class explains its messages; a variant explains some of them more precisely. A cure
is printed only if its condition was read in the log. For a new message, add a row to a table in `families/`,
and an example and a counter-example to the tests.
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
    """States the cause."""
    GENERAL = 1
    """An error; the one it was raised from, or one in its output, may explain more."""
    IMPORT = 2
    """A failed import ends a start, but is also often caught."""
    MESSAGE = 3
    """A line at level ERROR that no rule knows and that is not an exception."""
    SYMPTOM = 4
    """An effect of a failure elsewhere: a worker that does not answer, an actor that died."""
    DEATH = 5
    """Only reports the death."""
    REQUEST = 6
    """One request was refused; the engine lives on."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was read of one life, for conditions."""

    message: str  # the root line and the lines after it
    log: str  # every line that was kept, and the functions named in tracebacks
    facts: Facts
    phase: int | None = None  # None: no line shows it
    serving: bool = False


@dataclass(frozen=True, slots=True)
class When:
    """A condition; fields not given are not checked."""

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
    """Return a condition from patterns."""
    one, two, three = (each and re.compile(each) for each in (says, lacks, seen))
    return When(one or None, two or None, three or None, facts, phases, serving)


@dataclass(frozen=True, slots=True)
class Cure:
    """One fix, and the condition under which it is right."""

    fix: Fix
    when: When


def cure(what: str, command: str | None = None, on: When = When()) -> Cure:
    """Return a cure. Without a condition it applies to all messages of its class and may only inspect."""
    return Cure(Fix(what, command), on)


@dataclass(frozen=True, slots=True)
class Rule:
    """One message of vLLM or of its libraries."""

    failure: str
    literals: tuple[str, ...]
    """Each match contains one of them; searched first, as that is cheap."""
    pattern: re.Pattern[str] | None
    """None: a literal is enough."""
    rank: Rank
    quiet: bool
    """True if vLLM logs it as INFO or WARNING; else such a line reports an error that it survived."""
    heals: bool
    """True if it is over once the engine makes tokens again."""
    numeric: bool
    """True if digits decide the match; else lines that differ only in numbers are read once."""
    deterministic: bool | None
    """True if the next start fails the same way; None: as for its class."""
    header: bool
    """True if the announced error is in the lines after it."""
    needs: When
    """Further condition on the log for this to be a failure."""

    def fits(self, text: str) -> tuple[int, int] | None:
        """Return the span of the message in `text`, or None."""
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
    """Additions to a class from the numbers in a log."""

    explanation: str = ""
    fixes: Sequence[Fix] = ()
    deterministic: bool | None = None
    """True only if the numbers show that the same start must fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A more precise explanation of some messages of a class; replaces that of the class."""

    when: When
    sentence: str
    why: str = ""
    cures: tuple[Cure, ...] = ()
    deterministic: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A class of failures: name, explanation, cures."""

    slug: str
    sentence: str
    """The finding, one sentence without a full stop; true of every message of the class."""
    why: str
    cures: tuple[Cure, ...]
    deterministic: bool
    """True if an unchanged start fails the same way again."""
    variants: tuple[Variant, ...] = ()
    """The first variant whose condition holds is used."""
    numbers: Callable[[str, Facts], Told] | None = None
    """Reads the message (with the lines after it) and the facts; its fixes come before the others."""
