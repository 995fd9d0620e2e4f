"""Computes a robust standard deviation."""

from collections.abc import Collection
from statistics import median

_NORMAL = 1.48
"""Standard deviation ÷ median absolute deviation, for a normal distribution."""


def scatter(values: Collection[float]) -> float:
    """Return the standard deviation of at least one value; up to half may be outliers."""
    middle = median(values)
    return _NORMAL * median(abs(each - middle) for each in values)
