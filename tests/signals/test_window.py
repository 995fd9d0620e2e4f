"""Growth within the window is right across restarts, gaps and series that come and go."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.signals.window import ENTRIES_MAX, Window


def window(*looks, seconds=60.0):
    """A window that took (at_s, generation_tokens) looks, or whole samples."""
    made = Window(seconds)
    for at_s, value in looks:
        sample = value if isinstance(value, EngineSample) else tokens(value)
        made.add(at_s, sample, began_anew=False)
    return made


def tokens(count):
    return EngineSample(engine="0", generation_tokens=count)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(0, 100)], None),  # one look says nothing of growth
        ([(0, 100), (5, 150)], (50, 5)),
        ([(0, 100), (5, 100)], (0, 5)),
        ([(0, 100), (20, 180)], (80, 20)),  # a scrape was missed
        ([(0, 100), (5, 150), (10, 30)], (80, 10)),  # a restart: 50 before, 30 after
        ([(0, 100), (5, 10), (10, 5), (15, 8)], (18, 15)),  # two restarts in one window
        ([(0, None), (5, 10), (10, 40)], (30, 5)),  # it appeared later: from where it appeared
        ([(0, 10), (5, None), (10, 40)], (30, 10)),  # it was absent once
        ([(0, 100), (5, 150), (10, None), (15, 30)], (80, 15)),  # it was absent as it began anew
        ([(0, 10), (5, 40), (10, None)], None),  # it is gone: nothing is known of now
        ([(0, 100), (30, 130), (61, 161)], (31, 31)),  # the oldest look left the window
        ([(0, 100), (60, 160)], (60, 60)),  # and at its very edge it has not
        ([(0, 100), (61, 160)], None),
    ],
)
def test_growth_of_a_counter(looks, expected):
    """(growth, seconds) between the oldest and the newest look in the window."""
    assert window(*looks).counter("generation_tokens") == expected


def test_a_restart_that_overtook_the_old_count_is_still_a_restart():
    """With the time at which counters were made, a fresh counter above the old one is not taken for growth."""
    made = Window(60)
    made.add(0, tokens(100), began_anew=False)
    made.add(5, tokens(130), began_anew=True)
    assert made.counter("generation_tokens") == (130, 5)


def success(**counts):
    return EngineSample(engine="0", request_success=counts)


def test_growth_by_label():
    """Each label grows by itself; one that appears counts from zero, a restart from what is left."""
    assert window((0, success(stop=5)), (5, success(stop=9, abort=2))).labelled("request_success") == (
        {"stop": 4, "abort": 2}, 5,
    )  # fmt: skip
    assert window((0, success(stop=5, abort=3)), (5, success(stop=1))).labelled(
        "request_success"
    ) == ({"stop": 1}, 5)


def ttft(*cumulative, bounds=(0.1, 1.0, inf), total=None):
    return EngineSample(engine="0", ttft=Histogram(cumulative[-1], total, bounds, cumulative))


def test_growth_of_a_histogram():
    """Bucket by bucket, with sum and count."""
    grown = window((0, ttft(1, 2, 3, total=3.0)), (5, ttft(4, 6, 9, total=8.0))).histogram("ttft")
    assert (grown.count, grown.sum, grown.cumulative, grown.seconds) == (6, 5.0, (3, 4, 6), 5)


def test_growth_of_a_histogram_that_had_no_sum_at_one_end():
    """The count is known, the sum is not."""
    for first, last in ((None, 8.0), (3.0, None)):
        grown = window((0, ttft(1, 2, 3, total=first)), (5, ttft(4, 6, 9, total=last)))
        assert (grown.histogram("ttft").count, grown.histogram("ttft").sum) == (6, None)


def test_growth_of_a_histogram_across_a_restart():
    """What was observed before and after are added, bucket by bucket."""
    grown = window((0, ttft(1, 2, 3)), (5, ttft(2, 4, 6)), (10, ttft(1, 1, 2))).histogram("ttft")
    assert (grown.count, grown.cumulative) == (5, (2, 3, 5))


def test_growth_of_a_histogram_across_two_restarts():
    """Both old lives count, sums too; where one of them had no sum, none is known."""
    first, second = (0, ttft(1, 2, 3, total=3.0)), (5, ttft(2, 4, 6, total=7.0))
    again, last = (10, ttft(1, 1, 2, total=2.0)), (15, ttft(0, 1, 1, total=0.5))
    grown = window(first, second, again, last).histogram("ttft")
    assert (grown.count, grown.sum, grown.cumulative) == (6, 6.5, (2, 4, 6))
    without = window(first, second, (10, ttft(1, 1, 2)), last).histogram("ttft")
    assert (without.count, without.sum) == (6, None)


def test_what_was_carried_in_other_buckets_is_left_out():
    """A restart, an upgrade with other buckets, a restart: only what was counted in these buckets is added."""
    other = (0.5, 2.0, inf)
    made = window(
        (0, ttft(5, 6, 7)), (5, ttft(1, 1, 1)), (10, ttft(6, 7, 8, bounds=other)),
        (15, ttft(1, 2, 3, bounds=other)),
    )  # fmt: skip
    grown = made.histogram("ttft")
    assert (grown.count, grown.cumulative, grown.seconds) == (3, (1, 2, 3), 5)


def test_a_histogram_with_other_buckets_begins_anew():
    """After an upgrade buckets may differ; only looks with the same ones are compared."""
    other = (0.5, 2.0, inf)
    made = window((0, ttft(1, 2, 3)), (5, ttft(5, 6, 7, bounds=other)))
    assert made.histogram("ttft") is None
    made.add(10, ttft(6, 8, 9, bounds=other), began_anew=False)
    assert made.histogram("ttft").cumulative == (1, 2, 2)


def test_the_window_is_bounded():
    """However quick the looks, memory is."""
    made = window(*((i * 0.001, i) for i in range(ENTRIES_MAX + 50)), seconds=3600.0)
    assert made.counter("generation_tokens") == (
        ENTRIES_MAX - 1,
        pytest.approx((ENTRIES_MAX - 1) * 0.001),
    )


def test_cleared_it_knows_nothing():
    """After an unknown gap the window begins anew."""
    made = window((0, 100), (5, 150))
    made.clear()
    made.add(10, tokens(160), began_anew=False)
    assert made.counter("generation_tokens") is None


@given(
    st.lists(
        st.tuples(st.floats(0.1, 20), st.integers(0, 100), st.booleans()), min_size=2, max_size=40
    )
)
def test_growth_is_what_was_counted(story):
    """Whatever restarts there were, growth is the sum of what was added while somebody could see it."""
    made, at_s, count = Window(1e9), 0.0, 1000.0
    made.add(at_s, tokens(count), began_anew=False)
    added = 0.0
    for pause, more, restarts in story:
        at_s += pause
        # A restart is seen by the fall of the counter, so it must fall.
        count = float(more) if restarts and more < count else count + more
        added += more
        made.add(at_s, tokens(count), began_anew=False)
    grown, seconds = made.counter("generation_tokens")
    assert grown == pytest.approx(added)
    assert seconds == pytest.approx(at_s)
