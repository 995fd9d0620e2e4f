"""Counters and histograms of our own: from zero, never back, and never more than was seen."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.signals.totals import BOUNDS, Totals


def tokens(*counts, anew=()):
    """The total after each look; `anew`: the looks before which counters certainly started from zero."""
    totals = Totals()
    return [
        totals.add(EngineSample(engine="0", generation_tokens=count), began_anew=i in anew).generation_tokens
        for i, count in enumerate(counts)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5000.0], [0]),  # what it had done before was not seen
        ([5000.0, 5040.0, 5040.0], [0, 40, 40]),
        ([5000.0, 5040.0, 7.0, 9.0], [0, 40, 47, 49]),  # it restarted, and has done 7 since
        ([5000.0, None, 5040.0], [0, 0, 40]),
        ([5000.0, 5040.0, None, 7.0], [0, 40, 40, 47]),  # absent while it restarted
        ([None, 5000.0, 5001.0], [None, 0, 1]),
    ],
)
def test_a_counter(counts, expected):
    """What grew between two looks, across restarts and absences."""
    assert tokens(*counts) == expected


@given(st.lists(st.lists(st.integers(0, 1000), min_size=1), min_size=1))
def test_the_total_is_what_was_done_while_it_was_watched(lives):
    """Whatever lives an engine leads, the total is all of its work but what came before the first look."""
    looks, anew, done = [], set(), 0.0
    for life in lives:
        anew.add(len(looks))
        count = 0.0
        for work in life:
            count += work
            done += work
            looks.append(count)
    told = tokens(*looks, anew=anew)
    assert told == sorted(told)
    assert told[-1] == done - lives[0][0]


def test_another_server_behind_the_address_adds_nothing():
    """After what cannot be compared the total stays, and grows from there."""
    totals = Totals()
    told = []
    for count, compared in ((100.0, True), (150.0, True), (9000.0, False), (9010.0, True)):
        if not compared:
            totals.forget_last()
        told.append(totals.add(finished(stop=count), began_anew=False).requests_finished)
    assert told == [{"stop": 0}, {"stop": 50}, {"stop": 50}, {"stop": 60}]


def finished(**counts):
    return EngineSample(engine="0", request_success=counts)


def e2e(bounds, *below, seconds=0.0):
    return EngineSample(engine="0", e2e_latency=Histogram(below[-1], seconds, bounds, below))


def at(told, bound):
    """Observations at or below a bound of ours."""
    return told.e2e_latency[2 + BOUNDS["e2e_latency"].index(bound)]


def test_a_histogram_is_told_with_bounds_of_our_own():
    """Bounds that a release lacks have what is known to be below them; so engines of two releases add up."""
    bounds = (1.0, 2.5, 50.0, inf)
    totals = Totals()
    totals.add(e2e(bounds, 1, 2, 3, 4, seconds=100.0), began_anew=False)
    told = totals.add(e2e(bounds, 3, 6, 9, 12, seconds=160.0), began_anew=False)
    assert told.e2e_latency[:2] == (8, 60.0)
    assert [at(told, each) for each in (0.5, 1.0, 2.5, 30.0, 60.0)] == [0, 2, 4, 4, 6]


def test_an_update_to_a_release_with_other_buckets_does_not_go_back():
    """A new life counts in full; buckets that change without one add nothing."""
    totals = Totals()
    totals.add(e2e((1.0, inf), 0, 0), began_anew=False)
    before = totals.add(e2e((1.0, inf), 4, 10, seconds=50.0), began_anew=False)
    after = totals.add(e2e((0.5, 1.0, inf), 1, 2, 3, seconds=2.0), began_anew=False)
    assert (before.e2e_latency[:2], after.e2e_latency[:2]) == ((10, 50.0), (13, 52.0))
    assert (at(after, 0.5), at(after, 1.0)) == (1, 6)
    unlike = totals.add(e2e((2.5, inf), 9, 90, seconds=900.0), began_anew=False)
    assert unlike == after
