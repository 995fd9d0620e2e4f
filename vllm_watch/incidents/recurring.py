"""The record of a trouble that recurs: what is told of it beside its present time."""

from dataclasses import asdict, dataclass
from typing import Any

from vllm_watch.signals import stored
from vllm_watch.support.durations import in_words


@dataclass(frozen=True, slots=True)
class Recurring:
    """How often one kind of trouble came to one engine within an hour."""

    times: int
    within_seconds: float  # from the beginning of the first to now, or to the end of the last
    ill_seconds: float  # of this so much was trouble
    text: str  # both in words, without a stop
    earlier: str = ""  # id of the incident that told it before; empty: this one tells it
    longer: bool = False  # does it last far longer now than any time before?

    @property
    def told(self) -> bool:
        """Was it told before, and is this one more of the same?"""
        return bool(self.earlier) and not self.longer


def words(times: int, within_seconds: float, ill_seconds: float) -> str:
    """How often, within what time, and how long in all."""
    last = {1: "st", 2: "nd", 3: "rd"}.get(times % 10, "th")
    ordinal = f"{times}{'th' if times % 100 in (11, 12, 13) else last}"
    return (
        f"recurring: {ordinal} time in {in_words(within_seconds)}, {in_words(ill_seconds)} in all"
    )


def plain(recurring: Recurring | None) -> dict[str, Any] | None:
    """Its published form."""
    return None if recurring is None else asdict(recurring)


def from_plain(said: stored.Stored | None) -> Recurring | None:
    """Make it of its published form. Raises one of stored.DAMAGE."""
    if said is None:
        return None
    return Recurring(
        stored.count(said["times"]),
        stored.number(said["within_seconds"]),
        stored.number(said["ill_seconds"]),
        stored.text(said["text"]),
        stored.text(said["earlier"]),
        stored.flag(said["longer"]),
    )
