"""A robust standard deviation."""

from collections.abc import Collection
from statistics import median

_NORMAL = 1.48
"""Median absolute deviation → standard deviation, for a normal distribution."""


def scatter(values: Collection[float]) -> float:
    """Return the standard deviation; up to half of the values may be outliers. At least one is given."""
    middle = median(values)
    return _NORMAL * median(abs(each - middle) for each in values)
