"""One message found in a log, and what stood around it."""

from dataclasses import dataclass, field

from vllm_watch.diagnosis.rule import Rank, Rule

TAIL_LINES = 8
"""Terminals and pagers wrap long messages; a message's numbers stand within so many lines."""

HINT_LINES_BEFORE, HINT_LINES_AFTER = 80, 40
"""A traceback of vLLM with its worker's frames is 30 to 60 lines long."""


@dataclass(slots=True)
class Finding:
    """A rule's match."""

    rule: Rule
    line: str
    number: int  # 1-based
    phase: int  # how far the start had come
    at: int = 0  # where in its line the message begins
    tail: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    @property
    def order(self) -> tuple[Rank, int, int]:
        """The smallest is nearest to the root."""
        return self.rule.rank, self.number, self.at

    @property
    def text(self) -> str:
        """The message with the lines after it."""
        return "\n".join((self.line, *self.tail))
