"""Histograms are fed in bulk; the buckets must be those of feeding value by value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_watch.lab.ledger import Buckets

BOUNDS = (0.1, 0.25, 0.5, 1.0, float("inf"))


@given(st.floats(0.001, 2), st.floats(0, 0.3), st.integers(1, 50), st.integers(1, 5))
def test_a_ramp_is_its_values(first, slope, steps, times):
    """A ramp of step times lands in the buckets of its single values, to within a rounding at a bound."""
    ramp, single = Buckets(BOUNDS), Buckets(BOUNDS)
    ramp.observe_ramp(first, slope, steps, times)
    for step in range(steps):
        single.observe(first + slope * step, times)

    assert ramp.snapshot().count == single.snapshot().count == steps * times
    assert ramp.snapshot().sum == pytest.approx(single.snapshot().sum)
    for got, expected in zip(ramp.counts, single.counts, strict=True):
        assert abs(got - expected) <= times


def test_a_bound_belongs_to_its_bucket():
    """`le` is less or equal."""
    buckets = Buckets(BOUNDS)
    buckets.observe_all([0.1, 0.10001, 5.0])
    assert buckets.snapshot().cumulative == (1.0, 2.0, 2.0, 2.0, 3.0)


def test_a_snapshot_is_made_anew_only_after_a_change():
    """Reading twice gives the same record, which is what makes frequent reading cheap."""
    buckets = Buckets(BOUNDS)
    buckets.observe(0.2)
    first = buckets.snapshot()
    assert buckets.snapshot() is first
    buckets.observe(0.2)
    assert buckets.snapshot() != first
