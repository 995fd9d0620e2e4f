"""Make functions that pick a field from a body's numbers. The field's positions are found once per
layout."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

from vllm_watch.samples.engine import Histogram

Values = Sequence[float]
Take = Callable[[Values], Any]
T = TypeVar("T")

LABEL_VALUES_MAX = 64
"""At most this many values of a label are kept apart. vLLM's own labels (finished_reason, source) have under ten."""

OTHER_LABEL_VALUES = "other"

BUCKETS_MAX = 200
"""At most this many buckets of a histogram are kept. vLLM's histograms have at most 40."""


EQUAL_LABELS_MAX = 1_000
"""At most this many label sets are shared. Sharing more may take more memory than it saves."""


class Row:
    """A series. Its labels are a flat tuple, which needs less memory than a dictionary."""

    __slots__ = ("_labels", "index", "name")

    def __init__(self, index: int, name: str, labels: tuple[str, ...]) -> None:
        self.index = index
        self.name = name
        self._labels = labels

    @property
    def labels(self) -> dict[str, str]:
        return dict(zip(self._labels[::2], self._labels[1::2], strict=True))

    def label(self, name: str) -> str | None:
        for at in range(0, len(self._labels), 2):
            if self._labels[at] == name:
                return self._labels[at + 1]
        return None


def make_rows(series: Iterable[tuple[int, str, dict[str, str]]]) -> tuple[list[int], list[Row]]:
    """Split each series (position among all numbers, name, labels) into its position and its row."""
    places: list[int] = []
    rows: list[Row] = []
    one: dict[tuple[str, ...], tuple[str, ...]] = {}
    for place, name, labels in series:
        kept = tuple(chain.from_iterable(labels.items()))
        if len(one) < EQUAL_LABELS_MAX:
            kept = one.setdefault(kept, kept)
        places.append(place)
        rows.append(Row(len(rows), name, kept))
    return places, rows


class At:
    """Picks one number."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __call__(self, values: Values) -> float:
        return values[self.index]


def tuple_at(indices: list[int]) -> Callable[[Sequence[T]], tuple[T, ...]]:
    """Return a function that picks these items."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda values: tuple([values[index] for index in indices])


def reduced(rows: list[Row], reduce: Callable[[Values], float]) -> Take:
    """Return a function that reduces these series to one number by `sum` or `max`."""
    if len(rows) == 1:
        return At(rows[0].index)
    pick = itemgetter(*(row.index for row in rows))
    return lambda values: reduce(pick(values))


def labelled(rows: list[Row], label: str) -> Take:
    """Return a function that maps label values to numbers. Values beyond LABEL_VALUES_MAX are summed as "other"."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        value = row.label(label) or ""
        known = value in groups or len(groups) < LABEL_VALUES_MAX
        groups[value if known else OTHER_LABEL_VALUES].append(row)
    return by_group(groups)


def by_group(groups: dict[str, list[Row]]) -> Take:
    """Return a function that sums each group of series."""
    keys, numbers = tuple(groups), _tuple_of(list(groups.values()))
    return lambda values: dict(zip(keys, numbers(values), strict=True))


def info_of(rows: list[Row]) -> Take:
    """Return a function that picks the labels of the newest series. Each value is the time of its series."""
    labels = [{k: v for k, v in row.labels.items() if k != "engine"} for row in rows]
    if len(rows) == 1:
        only = labels[0]
        return lambda _: only
    pick = itemgetter(*(row.index for row in rows))

    def newest(values: Values) -> dict[str, str]:
        times: tuple[float, ...] = pick(values)
        return labels[times.index(max(times))]

    return newest


def histogram_of(
    bounded: list[Row], sums: list[Row], counts: list[Row], scale: float, *, buckets: bool
) -> Take:
    """Return a function that reads a histogram. The bounds and the sum are multiplied by `scale`.
    The counts of the buckets are read only if `buckets` is True."""
    by_bound: dict[float, list[Row]] = defaultdict(list)
    for row in bounded:
        by_bound[_bound(row.label("le") or "+Inf")].append(row)
    order = sorted(by_bound)
    if len(order) > BUCKETS_MAX:
        order = [*order[: BUCKETS_MAX - 1], order[-1]]
    bounds = _one(tuple(bound * scale for bound in order))
    # The last bucket has the count, too, if a proxy dropped `_count`.
    totals = [counts or by_bound[order[-1]], *([sums] if sums else [])]
    numbers = _tuple_of([*totals, *(by_bound[bound] for bound in order if buckets)])
    begin = len(totals)

    def take(values: Values) -> Histogram:
        found = numbers(values)
        return Histogram(found[0], found[1] * scale if sums else None, bounds, found[begin:])

    return take


@lru_cache(maxsize=64)
def _one(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """Return one object for equal bounds, so that comparing them is fast."""
    return bounds


def _tuple_of(groups: list[list[Row]]) -> Callable[[Values], tuple[float, ...]]:
    if all(len(group) == 1 for group in groups):
        return tuple_at([group[0].index for group in groups])
    takes = [reduced(group, sum) for group in groups]
    return lambda values: tuple([take(values) for take in takes])


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")
