"""Computes a robust standard deviation."""

from collections.abc import Collection
from statistics import median

_NORMAL = 1.48
"""Standard deviation ÷ median absolute deviation, for a normal distribution."""


def scatter(values: Collection[float]) -> float:
    """Return a standard deviation that tolerates outliers in up to half of the values (at least one value)."""
    middle = median(values)
    return _NORMAL * median(abs(each - middle) for each in values)
