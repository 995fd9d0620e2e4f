"""One axis of time that neither clock steps nor late lines can bend."""

import pytest

from vllm_watch.signals import stored
from vllm_watch.signals.timeline import Timeline

# Each story: list of (t, monotonic_s or None), then what the last step is: (seconds, known).
STORIES = {
    "a missed scrape": ([(0, None), (5, None), (10, None), (20, None)], (10, True)),
    "clock set back an hour": ([(3600, None), (3605, None), (3610, None), (10, None)], (5, False)),
    "a gap of ten minutes may be a step": ([(0, None), (5, None), (10, None), (610, None)], (5, False)),
    "clock set back, but the monotonic clock is there": ([(3600, 100), (3605, 105), (10, 110)], (5, True)),
    "a gap of ten minutes on the monotonic clock is a gap": ([(0, 100), (5, 105), (605, 705)], (600, True)),
    "a reboot within a joined recording": ([(0, 9000), (5, 9005), (300, 12)], (5, False)),
    "at a second's pace a pause of ten is no step": ([(0, None), (1, None), (2, None), (12, None)], (10, True)),
    "a monotonic clock that began before the world": ([(0, -1e308), (5, 100), (10, 105)], (5, True)),
    "... and what came of it": ([(0, 5), (5, 10), (10, 1e308)], (5, False)),
    "a Unix time that is none": ([(0, None), (1e300, None)], (1, False)),
    "two looks at one moment": ([(0, 5), (5, 10), (10, 10 + 1e-9)], (5, False)),
}  # fmt: skip


@pytest.mark.parametrize(("story", "expected"), STORIES.values(), ids=STORIES)
def test_the_last_step_of_a_story(story, expected):
    """How far the axis moved, and whether that is known."""
    timeline = Timeline()
    moments = [timeline.advance(*moment) for moment in story]
    assert (moments[-1][0] - moments[-2][0], moments[-1][1]) == expected


def test_the_axis_never_goes_back():
    """Whatever the clock does, time on the axis grows."""
    timeline = Timeline()
    times = [timeline.advance(t, None)[0] for t in (100, 105, 50, 55, 55, 9000, 9005, 1)]
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("moment", "late"),
    [
        ((11, None), False),
        ((10, None), True),
        ((9, None), True),
        ((9, 200), False),
        ((11, 90), True),
    ],
)
def test_an_observation_at_or_before_the_last_one_is_late(moment, late):
    """The monotonic clock has the word where both have it."""
    timeline = Timeline()
    timeline.advance(10, 100)
    if moment[1] is None:
        timeline = Timeline()
        timeline.advance(10, None)
    assert timeline.is_late(*moment) is late


@pytest.mark.parametrize("at_s", [1e18, -5.0, float("inf")])
def test_an_axis_that_stands_nowhere_is_not_gone_on_with(at_s):
    """Steps of seconds would be lost on it."""
    timeline = Timeline()
    with pytest.raises(stored.DAMAGE):
        timeline.restore({"t": 100.0, "at_s": at_s})
    assert timeline.export_state() is None
