"""One row of the table of exported metrics, and the little language the tables are written in.

A row says a family's name, what it means, when it is missing, its labels, and how its value is
taken. Rendering, the documentation and the tests all read the same rows, so adding a metric is
adding a row.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

Kind = Literal["gauge", "counter", "summary", "histogram", "info"]
Scope = Literal["watcher", "target", "incidents", "engine", "source", "gpu"]
Series = Iterable[tuple[tuple[str, ...], float | None]]  # values of the row's labels → value

# The labels that every series of a scope carries, before the row's own.
SCOPE_LABELS: Mapping[Scope, tuple[str, ...]] = {
    "watcher": (),
    "target": ("target",),
    "incidents": ("target",),  # those of each target, and the watcher's own
    "engine": ("target", "engine", "model_name"),
    "source": ("source", "target"),
    "gpu": ("gpu",),
}

# Reasons come from the watched server: a server gone mad must not fill our memory or a Prometheus.
LABEL_VALUES_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric family. `value` gives one series per record; without it, `series` gives several.

    Both take the scope's record; None, there or as a value, leaves the series out.
    """

    name: str
    kind: Kind
    scope: Scope
    help: str  # what it is and its unit
    absent: str = ""  # when there is no series, and what that means
    labels: tuple[str, ...] = ()  # beyond the scope's
    value: Callable[[Any], float | None] | None = None
    series: Callable[[Any], Series | None] = lambda _: None
    # Of a histogram: its upper bounds without +Inf, and what takes count, sum and the observations at or below each.
    bounds: tuple[float, ...] = ()
    histogram: Callable[[Any], tuple[float, ...] | None] = lambda _: None
    few: bool = False  # are they a few words of ours and 0 or 1, alike for many records of a scope?

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The scope's labels, then its own."""
        return SCOPE_LABELS[self.scope] + self.labels

    @property
    def help_text(self) -> str:
        """The HELP line's text."""
        return f"{self.help} {self.absent}".strip()


def flag(path: str) -> Callable[[Any], float | None]:
    """Read a bool as 1 or 0, and None as None."""
    get = attrgetter(path)

    def read(row: Any) -> float | None:
        value = get(row)
        return None if value is None else int(value)

    return read


def one_hot(path: str, words: tuple[str, ...]) -> Callable[[Any], Series | None]:
    """One series per word: 1 for the one that holds, 0 for the rest."""
    get = attrgetter(path)
    tables: dict[str, Series] = {
        holds: tuple(((word,), 1 if word == holds else 0) for word in words) for holds in words
    }
    return lambda row: tables.get(get(row))


def by_label(path: str) -> Callable[[Any], Series | None]:
    """One series per key of a mapping, at most LABEL_VALUES_MAX of them."""
    get = attrgetter(path)

    def read(row: Any) -> Series | None:
        mapping = get(row)
        if not mapping:
            return None
        return [((str(key),), mapping[key]) for key in sorted(mapping)[:LABEL_VALUES_MAX]]

    return read


def quantiles(path: str) -> Callable[[Any], Series]:
    """The series of a signals.records.Quantiles."""
    get = attrgetter(path)

    def read(row: Any) -> Series:
        found = get(row)
        return ((("0.5",), found.p50), (("0.95",), found.p95), (("0.99",), found.p99))

    return read
