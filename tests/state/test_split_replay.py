"""A watcher that is replaced in the midst of a story tells the same of it as one that stays."""

import pytest

from tests.state.splitting import judged, told


def of(fault, end=480):
    return ("healthy", 900, 5.0, ((300, "fault", fault), (end, "clear", fault)))


# Name → the story, and the looks (one in 5 s) at which the watcher is replaced.
STORIES = {
    "a hang, before it and while it is open": (of("hang"), (50, 75, 90)),
    "a hang, at the moment of it": (of("hang"), (61,)),
    "a hang, as it ends": (of("hang"), (97, 99)),
    "a crash, while it is open and as it ends": (of("crash"), (70, 97)),
    "a dead engine core": (of("engine_dead"), (50, 70)),
    "a silent API server": (of("api_hang"), (50, 70, 98)),
    "an admission deadlock": (of("admission_deadlock"), (55, 80)),
    "slow steps, before them and while they are open": (of("slow"), (55, 80)),
    "slow steps, in the midst of the first signs": (of("slow"), (61, 62)),
    "held pages": (of("pinning"), (55, 85)),
    "leaking pages": (of("leak"), (55, 75, 90)),
    "more demand than it can serve": (("overload", 900, 5.0), (50, 100)),
    "a rolling update": (("rolling_update", 600, 5.0), (20, 30)),
    "a cold start of fifteen minutes": (("cold_start", 1500, 5.0), (60, 120)),
    "asleep and awake": (("sleep_wake", 840, 5.0), (30, 60, 90)),
    "two engines become four": (("elastic_scale_up", 720, 5.0), (22, 60)),
    "several API servers": (("several_api_servers", 600, 5.0), (30, 60)),
    "the V0 engine": (("legacy", 600, 5.0), (30, 60)),
}

TIMES_DIFFER_BY = 20.0
"""Seconds by which what is said may come later: rates need a block, silences three looks."""


def in_short(events):
    keys = ("event", "kind", "engine", "severity", "restart_advised", "resolution")
    return [[each.get(key) for key in keys] for each in ends(events)]


@pytest.mark.parametrize(("story", "splits"), STORIES.values(), ids=STORIES)
def test_it_tells_the_same(tmp_path, story, splits):
    """The same incidents under the same ids, opened once and ended once, at about the same time."""
    observations = told(*story)
    whole, _ = judged(observations)
    split, _ = judged(observations, splits=splits, folder=tmp_path)

    assert in_short(split) == in_short(whole)
    assert names(split) == names(whole)
    later = [one["t"] - other["t"] for one, other in zip(ends(split), ends(whole), strict=True)]
    assert max(map(abs, later), default=0.0) <= TIMES_DIFFER_BY
    assert last_causes(split) == last_causes(whole)


def ends(events):
    return [each for each in events if each["event"] != "updated"]


def names(events):
    """Which incident each event tells of, by the order in which they opened."""
    known = [each["id"] for each in events if each["event"] == "opened"]
    assert len(set(known)) == len(known)
    return [known.index(each["id"]) for each in ends(events)]


def last_causes(events):
    return {(each["kind"], each["engine"]): (each["cause"], each["severity"]) for each in events}
