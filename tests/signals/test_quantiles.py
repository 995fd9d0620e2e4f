"""Quantiles and shares of a window's buckets, as PromQL reckons them."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_watch.signals.engine import quantile, quantiles, share_within
from vllm_watch.signals.records import Quantiles

BOUNDS = (0.1, 0.5, 1.0, inf)


@pytest.mark.parametrize(
    ("q", "counts", "expected"),
    [
        (0.5, (0, 0, 0, 0), None),  # nothing observed
        (0.5, (10, 10, 10, 10), 0.05),  # the lowest bucket begins at 0
        (0.5, (0, 10, 10, 10), 0.3),  # halfway through the second
        (0.99, (0, 0, 5, 10), 1.0),  # beyond all finite bounds: the highest of them
        (0.5, (0, 0, 0, 10), 1.0),
        (1.0, (2, 4, 8, 8), 1.0),
        (0.0, (0, 4, 8, 8), 0.1),  # the first bucket that holds anything
    ],
)
def test_quantile_is_that_of_histogram_quantile(q, counts, expected):
    """Linear within a bucket; None where there is nothing."""
    assert quantile(q, BOUNDS, counts) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    "counts", [(1, float("nan"), 3, 4), (1, 2, 3, float("nan")), (1, 2, 3, inf), (9, 5, 3, 2)]
)
def test_buckets_that_make_no_sense_harm_nobody(counts):
    """NaN, infinite or descending buckets give a number or nothing, and never an error."""
    for q in (0.0, 0.5, 0.99, 1.0):
        found = quantile(q, BOUNDS, counts)
        assert found is None or found >= 0
    share_within(0.3, BOUNDS, counts)


def test_in_the_lowest_bucket_the_mean_bounds_it():
    """A queue in which nobody waits read 285 ms for every engine: 95 % of the way through its first bucket."""
    bounds, counts = (0.3, 0.5, inf), (100, 100, 100)
    assert quantiles(bounds, counts).p95 == pytest.approx(0.285)
    assert quantiles(bounds, counts, 0.001) == Quantiles(
        pytest.approx(0.002), pytest.approx(0.02), pytest.approx(0.1), 0.3
    )
    assert quantiles(bounds, counts, 0.1).p95 == pytest.approx(0.285)
    assert quantiles(bounds, (10, 100, 100), 0.001).p95 == quantile(0.95, bounds, (10, 100, 100))


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any), st.floats(0.01, 1.0))
def test_quantile_and_share_are_each_others_inverse(increments, q):
    """At the q-quantile, a share of q lies at or under it (inside the finite bounds)."""
    counts = tuple(sum(increments[: i + 1]) for i in range(4))
    value = quantile(q, BOUNDS, counts)
    if value is not None and value < BOUNDS[-2]:
        assert share_within(value, BOUNDS, counts) >= q - 1e-9


@pytest.mark.parametrize(
    ("limit", "counts", "expected"),
    [
        (0.5, (0, 0, 0, 0), None),
        (0.5, (2, 6, 8, 10), 0.6),  # exactly at a bound
        (0.3, (2, 6, 8, 10), 0.4),  # halfway between two
        (0.05, (2, 6, 8, 10), 0.1),
        (5.0, (2, 6, 8, 10), 0.8),  # beyond the finite bounds: those above them count as above
        (0.0, (2, 6, 8, 10), 0.0),
    ],
)
def test_share_within_a_limit(limit, counts, expected):
    """The share at or under the limit, evenly spread within a bucket."""
    assert share_within(limit, BOUNDS, counts) == (
        None if expected is None else pytest.approx(expected)
    )
