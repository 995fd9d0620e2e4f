"""How far values scatter, whatever a few of them do."""

from collections.abc import Collection
from statistics import median

_NORMAL = 1.48
"""Median absolute deviation → standard deviation, for a normal distribution."""


def scatter(values: Collection[float]) -> float:
    """Standard deviation of the values, of which fewer than half may be anything. At least one is given."""
    middle = median(values)
    return _NORMAL * median(abs(each - middle) for each in values)
