"""Find lines worth reading by their keywords.

Keywords are grouped by a common substring. A line without the substring is not searched for the group's keywords."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from vllm_watch.diagnosis import lines, noise, phases
from vllm_watch.diagnosis.catalogue import RULES
from vllm_watch.diagnosis.facts import FACTS, Pattern
from vllm_watch.diagnosis.rule import Rule


@dataclass(slots=True)
class Interest:
    """Patterns that a line may match."""

    rules: list[Rule] = field(default_factory=list)
    facts: list[Pattern] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)

    def add(self, other: "Interest") -> None:
        self.rules += [each for each in other.rules if each not in self.rules]
        self.facts += [each for each in other.facts if each not in self.facts]
        self.marks += [each for each in other.marks if each not in self.marks]


Groups = tuple[tuple[str, tuple[tuple[str, Interest], ...]], ...]

_PIECES = (
    "rro", "not ", "vali", "weig", "avai", "mem", "supp", "iled", "must", "ille", "ptio", "loop", "step",
    "compil", "_STA", "GPU ", "onne", "nccl", "NCCL", "max", "time", "dtyp", "LLM", "arch", "json", "acto",
    "CUDA", "oRA", "lora", "oken", "rope", "nti", "UDA", "ray", "Ray", "Tim", "cap", "back", "ker", "ill",
)  # fmt: skip

_PIECE_CHARACTERS = 4


def _grouped(table: dict[str, Interest]) -> Groups:
    groups: dict[str, list[tuple[str, Interest]]] = {piece: [] for piece in _PIECES}
    for literal, interest in table.items():
        piece = next((each for each in groups if each in literal), None)
        if piece is None:
            begin = max(0, len(literal) // 2 - _PIECE_CHARACTERS // 2)
            piece = literal[begin : begin + _PIECE_CHARACTERS]
        groups.setdefault(piece, []).append((literal, interest))
    return tuple((piece, tuple(group)) for piece, group in groups.items() if group)


def _table(*, calm: bool) -> Groups:
    table: dict[str, Interest] = {}

    def of(literals: Iterable[str]) -> list[Interest]:
        return [table.setdefault(literal, Interest()) for literal in literals]

    for rule in RULES:
        for interest in of(rule.literals if rule.quiet or not calm else ()):
            interest.rules.append(rule)
    for pattern in FACTS:
        for interest in of(pattern.literals):
            interest.facts.append(pattern)
    for word, literals in noise.MARKS.items():
        for interest in of(literals):
            interest.marks.append(word)
    for interest in of(literal for literal, _ in phases.PROGRESS):
        interest.marks.append("phase")
    for interest in of(phases.HINTS if not calm else ()):
        interest.marks.append("hint")
    return _grouped(table)


_ALL, _CALM = _table(calm=False), _table(calm=True)

_REQUEST = Interest(marks=["request"])

_LEVEL_BYTES = 160
"""Bytes searched for a line's level. Pods, journals and workers add prefixes before the level."""

_READ_BYTES_MAX = 16 << 10


def of(line: bytes) -> Interest | None:
    """Return the patterns that may match this line, or None."""
    text = line[:_READ_BYTES_MAX].decode("latin-1")  # keywords are ASCII
    if "\x1b" in text:
        text = lines.uncoloured(text)
    if any(each in text for each in noise.USERS_TEXT):
        return _REQUEST
    calm = "INFO" in text[:_LEVEL_BYTES] and "rror" not in text and "ERR" not in text
    found: Interest | None = None
    for piece, group in _CALM if calm else _ALL:
        if piece not in text:
            continue
        for literal, interest in group:
            if literal in text:
                if found is None:
                    found = Interest()
                found.add(interest)
    return found
