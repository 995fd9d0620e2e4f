"""Which bytes in a line are worth decoding it for, and what each may mean."""

from dataclasses import dataclass, field

from vllm_watch.diagnosis import noise, phases
from vllm_watch.diagnosis.catalogue import RULES
from vllm_watch.diagnosis.facts import FACTS, Pattern
from vllm_watch.diagnosis.rule import Rule


@dataclass(slots=True)
class Interest:
    """What a line may hold."""

    rules: list[Rule] = field(default_factory=list)
    facts: list[Pattern] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)

    def add(self, other: "Interest") -> None:
        """Take what is not yet in it."""
        self.rules += [each for each in other.rules if each not in self.rules]
        self.facts += [each for each in other.facts if each not in self.facts]
        self.marks += [each for each in other.marks if each not in self.marks]


Table = tuple[tuple[bytes, Interest], ...]


def _table(*, calm: bool) -> Table:
    table: dict[str, Interest] = {}

    def of(literal: str) -> Interest:
        return table.setdefault(literal, Interest())

    for rule in RULES:
        for literal in rule.literals if rule.quiet or not calm else ():
            of(literal).rules.append(rule)
    for pattern in FACTS:
        for literal in pattern.literals:
            of(literal).facts.append(pattern)
    for word, literals in noise.MARKS.items():
        for literal in literals:
            of(literal).marks.append(word)
    for literal, _ in phases.PROGRESS:
        of(literal).marks.append("phase")
    for literal in phases.HINTS if not calm else ():
        of(literal).marks.append("hint")
    return tuple((literal.encode(), interest) for literal, interest in table.items())


_ALL, _CALM = _table(calm=False), _table(calm=True)

_LEVEL_BYTES = 160
"""Prefixes of pods, journals and workers, and then the level."""


def of(line: bytes) -> Interest | None:
    """Return what this line may hold; None where it is of no interest."""
    if any(each in line for each in noise.USERS_TEXT):
        return None
    calm = b"INFO" in line[:_LEVEL_BYTES] and b"rror" not in line and b"ERR" not in line
    found: Interest | None = None
    for literal, interest in _CALM if calm else _ALL:
        if literal in line:
            if found is None:
                found = Interest()
            found.add(interest)
    return found
