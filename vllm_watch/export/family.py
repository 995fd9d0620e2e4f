"""Rows of the tables of metrics in `*_families.py`. To add a metric, add a row."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

Kind = Literal["gauge", "counter", "summary", "histogram", "info"]
Scope = Literal["watcher", "notifier", "target", "incidents", "engine", "source", "gpu"]
Series = Iterable[tuple[tuple[str, ...], float | None]]  # label values → value

# Scope → labels of every series.
SCOPE_LABELS: Mapping[Scope, tuple[str, ...]] = {
    "watcher": (),
    "notifier": ("notifier",),
    "target": ("target",),
    "incidents": ("target",),  # a target or the watcher
    "engine": ("target", "engine", "model_name"),
    "source": ("source", "target"),
    "gpu": ("gpu",),
}

# A faulty server could export any number of values.
LABEL_VALUES_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric. `value` returns a single series, and `series` returns several. For None, no series is exported."""

    name: str
    kind: Kind
    scope: Scope
    help: str
    absent: str = ""  # when and why no series is exported
    labels: tuple[str, ...] = ()
    value: Callable[[Any], float | None] | None = None
    series: Callable[[Any], Series | None] = lambda _: None
    # Upper bounds without +Inf. `histogram` returns count, sum and cumulative counts.
    bounds: tuple[float, ...] = ()
    histogram: Callable[[Any], tuple[float, ...] | None] = lambda _: None
    few: bool = False  # labels have few values, which never change: the text is cached

    @property
    def all_labels(self) -> tuple[str, ...]:
        return SCOPE_LABELS[self.scope] + self.labels

    @property
    def help_text(self) -> str:
        return f"{self.help} {self.absent}".strip()


def rows(prefix: str, scope: Scope, kind: Kind = "gauge") -> Callable[..., Family]:
    """Return a function that makes families of one kind and scope, from the rest of the name, HELP and absence."""

    def made(name: str, help_: str, absent: str = "", **more: Any) -> Family:
        return Family(name=prefix + name, kind=kind, scope=scope, help=help_, absent=absent, **more)

    return made


def optional(
    path: str, convert: Callable[[Any], float | None] = lambda value: value
) -> Callable[[Any], float | None]:
    """Return a function that reads `part.attribute`, and returns None without the part."""
    part, _, attribute = path.partition(".")
    get_part, get = attrgetter(part), attrgetter(attribute)

    def read(row: Any) -> float | None:
        found = get_part(row)
        return None if found is None else convert(get(found))

    return read


def flag(value: bool | None) -> int | None:
    """Return 1 for True, 0 for False, None for None."""
    return None if value is None else int(value)


def is_set(value: object) -> int:
    """Return 1 for a value, 0 for None."""
    return int(value is not None)


def one_hot(
    path: str, words: tuple[str, ...], otherwise: str = ""
) -> Callable[[Any], Series | None]:
    """Return a function that returns one series per word. The current word, or `otherwise`, has the value 1."""
    get = attrgetter(path)
    tables: dict[str, Series] = {
        holds: tuple(((word,), 1 if word == holds else 0) for word in words) for holds in words
    }
    return lambda row: tables.get(get(row), tables.get(otherwise))


def by_label(path: str) -> Callable[[Any], Series | None]:
    """Return a function that returns one series per key, for at most LABEL_VALUES_MAX keys."""
    get = attrgetter(path)

    def read(row: Any) -> Series | None:
        mapping = get(row)
        if not mapping:
            return None
        return [((str(key),), mapping[key]) for key in sorted(mapping)[:LABEL_VALUES_MAX]]

    return read


def quantiles(path: str) -> Callable[[Any], Series]:
    """Return a function that returns the quantiles of a signals.records.Quantiles."""
    get = attrgetter(path)

    def read(row: Any) -> Series:
        found = get(row)
        return ((("0.5",), found.p50), (("0.95",), found.p95), (("0.99",), found.p99))

    return read
