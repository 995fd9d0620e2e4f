"""One line of the table: a figure, what it stands beside, and the bar that it is held to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """`limit` is the most that `value` may be, in the same unit; None: nothing is asked of it."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    beside: str = ""  # the peer of the same run, in words

    @property
    def verdict(self) -> str:
        """Does it keep its bar?"""
        if self.limit is None:
            return ""
        return "met" if self.value <= self.limit else "NOT MET"

    def cells(self) -> tuple[str, ...]:
        """As it is shown."""
        limit = "" if self.limit is None else f"{self.limit:g} {self.unit}".rstrip()
        return self.what, f"{self.value:.3g} {self.unit}".rstrip(), limit, self.verdict, self.beside
