"""Growth within the window is right across restarts, gaps and series that come and go."""

from itertools import pairwise
from math import inf
from random import Random

import pytest

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


def ttft(*cumulative, bounds=(0.1, 1.0, inf), total=None):
    return EngineSample(engine="0", ttft=Histogram(cumulative[-1], total, bounds, cumulative))


def test_growth_of_a_histogram_across_two_restarts():
    """Both old lives count, sums too; where one of them had no sum, none is known."""
    first, second = (0, ttft(1, 2, 3, total=3.0)), (5, ttft(2, 4, 6, total=7.0))
    again, last = (10, ttft(1, 1, 2, total=2.0)), (15, ttft(0, 1, 1, total=0.5))
    grown = window(first, second, again, last).histogram("ttft")
    assert (grown.count, grown.sum, grown.cumulative) == (6, 6.5, (2, 4, 6))
    without = window(first, second, (10, ttft(1, 1, 2)), last).histogram("ttft")
    assert (without.count, without.sum) == (6, None)


@pytest.mark.parametrize("other", [(0.5, 2.0, inf), (0.1, 0.5, 1.0, inf)])
def test_what_was_carried_in_other_buckets_is_left_out(other):
    """A restart, an upgrade with other buckets, a restart: only what was counted in these buckets is added."""
    before, after = ((6, 7, 8), (1, 2, 3)) if len(other) == 3 else ((5, 6, 7, 8), (0, 1, 2, 3))
    made = window(
        (0, ttft(5, 6, 7)), (5, ttft(1, 1, 1)), (10, ttft(*before, bounds=other)),
        (15, ttft(*after, bounds=other)),
    )  # fmt: skip
    grown = made.histogram("ttft")
    assert (grown.count, grown.cumulative, grown.seconds) == (3, after, 5)


def test_histograms_that_fall_show_a_restart():
    """A server may report no counter beside them."""
    names = ("iteration_tokens", "ttft", "inter_token_latency", "queue_time", "e2e_latency")

    def look(count):
        one = Histogram(count, None, (inf,), (count,))
        return EngineSample(engine="0", **dict.fromkeys(names, one))

    for name in names:
        grown = window((0, look(5)), (5, look(9)), (10, look(2))).histogram(name)
        assert (grown.count, grown.seconds) == (6, 10)


def test_the_window_is_bounded():
    """However quick the looks, memory is: an hour at one look a second, and little more."""
    assert 3600 < ENTRIES_MAX < 5000
    made = window(*((i * 0.001, i) for i in range(ENTRIES_MAX + 50)), seconds=3600.0)
    assert made.counter("generation_tokens") == (
        ENTRIES_MAX - 1,
        pytest.approx((ENTRIES_MAX - 1) * 0.001),
    )


def counted_up(values):
    """What PromQL's increase() adds up: after a fall, or a beginning that is known, all that is there is new."""
    return sum(
        now if anew or now < before else now - before
        for (before, _), (now, anew) in pairwise(values)
    )


def random_looks(random):
    """Looks at an engine that restarts and does not always show all: (at_s, sample, was it seen to begin anew)."""
    at_s, made, preempted, stops, looks = 0.0, 0, 0, {"stop": 0, "abort": 0}, []
    buckets = [0, 0, 0]
    for _ in range(random.randrange(2, 30)):
        at_s += random.choice((1.0, 5.0, 30.0))
        restarted = random.random() < 0.15
        if restarted:
            made, stops, buckets = 0, dict.fromkeys(random.sample(sorted(stops), 1), 0), [0, 0, 0]
        made += random.randrange(50)
        preempted = 0 if random.random() < 0.1 else preempted + 3  # a counter may fall alone
        for label in stops:
            stops[label] += random.randrange(5)
        if random.random() < 0.3:
            stops.setdefault("abort", 1)
            stops.setdefault("stop", 1)
        for index in range(random.randrange(4)):
            buckets[-1 - index] += 3 - index
        shown = [random.random() < 0.8 for _ in range(3)]
        sample = EngineSample(
            engine="0",
            generation_tokens=float(made) if shown[0] else None,
            preemptions=float(preempted) if shown[1] else None,
            request_success={k: float(v) for k, v in stops.items()} if shown[1] else None,
            ttft=Histogram(buckets[-1], 2.0 * buckets[-1], (0.1, 1.0, inf), tuple(buckets)) if shown[2] else None,
        )  # fmt: skip
        looks.append((at_s, sample, restarted and random.random() < 0.5))
    return looks


@pytest.mark.parametrize("seed", range(40))
def test_growth_is_increase_over_the_looks_of_the_window(seed):
    """Of a counter, of each label and of each bucket, whatever was absent and whenever it began anew."""
    looks, made = random_looks(Random(seed)), Window(60.0)
    for at_s, sample, anew in looks:
        made.add(at_s, sample, began_anew=anew)
        assert (made.newest, made.last.at_s) == (sample, at_s)
    end_s = looks[-1][0]
    inside = [each for each in looks if each[0] >= end_s - 60.0]
    assert made.first.at_s == inside[0][0]

    def shown(name):
        """(second, value, began anew) where it was shown; nothing where the last look did not."""
        found = [(at_s, getattr(each, name), anew) for at_s, each, anew in inside]
        if found[-1][1] is None:
            return []
        return [each for each in found if each[1] is not None]

    for name in ("generation_tokens", "preemptions"):
        counts = shown(name)
        if len(counts) < 2:
            assert made.counter(name) is None
        else:
            expected = counted_up([(value, anew) for _, value, anew in counts])
            assert made.counter(name) == (expected, end_s - counts[0][0])
    stops, ttfts = shown("request_success"), shown("ttft")
    if len(stops) < 2:
        assert made.finished() is None
    else:
        expected = {
            label: counted_up([(value.get(label, 0.0), anew) for _, value, anew in stops])
            for label in stops[-1][1]
        }
        assert made.finished() == (expected, end_s - stops[0][0])
    grown = made.histogram("ttft")
    if len(ttfts) < 2:
        assert grown is None
    else:
        cumulative, total = (0, 0, 0), 0.0
        for (_, before, _), (_, now, anew) in pairwise(ttfts):
            began = anew or now.count < before.count  # as a whole, which its count shows
            cumulative = tuple(
                sum_ + each - (0 if began else was)
                for sum_, each, was in zip(
                    cumulative, now.cumulative, before.cumulative, strict=True
                )
            )
            total += now.sum - (0 if began else before.sum)
        assert (grown.seconds, grown.cumulative) == (end_s - ttfts[0][0], cumulative)
        assert (grown.count, grown.sum) == (cumulative[-1], total)
