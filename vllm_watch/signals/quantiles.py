"""Computes quantiles and shares from histogram buckets."""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf, isinf

from vllm_watch.signals.records import Quantiles

_EXPORTED = (0.5, 0.95, 0.99)


def quantile(q: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    """Return the q-quantile as PromQL's histogram_quantile does, or None without observations. `counts` are cumulative, for ascending `bounds`."""
    total = counts[-1] if counts else 0.0
    return _at(q * total, bounds, counts) if 0 < total < inf else None


def _at(rank: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    index = bisect_left(counts, rank)
    if index == len(counts):  # buckets are NaN
        return None
    bound = bounds[index]
    if isinf(bound):
        return bounds[index - 1] if index else None
    lower, below = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    if index == 0 and bound <= 0:
        return bound
    inside = counts[index] - below
    return lower + (bound - lower) * ((rank - below) / inside) if inside > 0 else bound


def quantiles(
    bounds: Sequence[float], counts: Sequence[float], mean: float | None = None
) -> Quantiles:
    """Return the exported quantiles. In the lowest bucket, `mean` limits the quantiles (Markov's inequality)."""
    first = bounds[0] if bounds and 0 < bounds[0] < inf else None
    total = counts[-1] if counts else 0.0
    if not 0 < total < inf:
        return Quantiles(None, None, None, first)
    found = [_at(q * total, bounds, counts) for q in _EXPORTED]
    if first is not None and mean is not None and (found[0] is None or found[0] <= first):
        found = [
            value if value is None or value > first else min(value, max(0.0, mean) / (1.0 - q))
            for q, value in zip(_EXPORTED, found, strict=True)
        ]
    return Quantiles(found[0], found[1], found[2], first)


def share_within(limit: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    """Return the share of observations up to `limit`, or None."""
    total = counts[-1] if counts else 0.0
    if not 0 < total < inf:
        return None
    lower, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if limit <= bound:
            if bound == inf:
                return below / total
            width = bound - lower
            inside = 1.0 if width <= 0 else (limit - lower) / width
            return (below + (count - below) * max(0.0, inside)) / total
        lower, below = bound, count
    return 1.0
