"""A robust standard deviation."""

from collections.abc import Collection
from statistics import median

_NORMAL = 1.48
"""Median absolute → standard deviation (normal)."""


def scatter(values: Collection[float]) -> float:
    """Up to half may be outliers."""
    middle = median(values)
    return _NORMAL * median(abs(each - middle) for each in values)
