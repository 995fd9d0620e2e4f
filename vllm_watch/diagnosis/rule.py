"""What a rule and a failure class are.

A rule knows one message; a class knows what its messages mean and what to do. Both are plain data: to
teach a new message, add a row to a table in `families/` and its example to the tests.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from vllm_watch.diagnosis.report import Fix

Facts = Mapping[str, str | float | int]


class Rank(IntEnum):
    """How near a message is to the root; among many the lowest rank is the cause, then the earliest."""

    CAUSE = 0
    """Says in so many words why; nothing else in a log explains it."""
    GENERAL = 1
    """A real error that a more precise message may explain: NCCL, CUDA, the compiler."""
    IMPORT = 2
    """A failed import ends a start, but is also often caught and lived with."""
    SYMPTOM = 3
    """What others see of a failure: a worker that does not answer, an actor that died."""
    DEATH = 4
    """Only says that the engine is dead."""
    REQUEST = 5
    """One request was refused; the engine lives on."""


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
    """Does vLLM write it as INFO or WARNING? Else such a line says only that something was lived with."""
    heals: bool
    """Is it over when the engine makes tokens again?"""
    numeric: bool
    """Do the digits in a line decide whether it fits? Else lines that differ only in numbers are read once."""
    deterministic: bool | None
    """Would the next start fail the same way? None: as its class says."""

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
) -> Rule:
    """One row of a table."""
    compiled = None if pattern is None else re.compile(pattern)
    return Rule(failure, literals, compiled, rank, quiet, heals, numeric, deterministic)


@dataclass(frozen=True, slots=True)
class Told:
    """What the numbers in a log add to what its class says."""

    explanation: str = ""
    fixes: Sequence[Fix] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A class of failures: what it is called, what it means, what to do."""

    slug: str
    sentence: str
    """The finding, one sentence without a full stop."""
    why: str
    fixes: tuple[Fix, ...]
    deterministic: bool
    """Would a start that failed so fail the same way again, with nothing changed?"""
    numbers: Callable[[str, Facts], Told] | None = None
    """Reads the message (with the lines after it) and the facts; its fixes come before the general ones."""
