"""Computes a robust standard deviation."""

from collections.abc import Collection
from statistics import median

_NORMAL = 1.48
"""Ratio of standard deviation to median absolute deviation in a normal distribution."""


def scatter(values: Collection[float]) -> float:
    """Return a standard deviation. Up to half of the values may be outliers. `values` must not be empty."""
    middle = median(values)
    return _NORMAL * median(abs(each - middle) for each in values)
