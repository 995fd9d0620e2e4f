"""Many targets that fall silent at once: what is said of them, who is counted, and what can be set."""

import pytest

from tests.detectors.looks import T
from tests.incidents.test_fleet import Many, pages, texts
from vllm_watch.samples.target import WATCHER


def test_of_many_targets_eight_are_named():
    """The related incidents name all; who still answers on the same hosts speaks against those hosts."""
    many = Many(14, host="10.0.0.7")
    many.until(100)
    many.lose(12)
    told = many.until(200)
    assert texts(told, "for")[0] == (
        "12 of the 14 targets that had answered: t0, t1, t2, t3, t4, t5, t6, t7, …"
    )
    assert texts(told, "against") == [
        "2 targets still answer, some of them on the same hosts (10.0.0.7)"
    ]


@pytest.mark.parametrize(("late_s", "pause", "said"), [(7.0, 0, True), (1.9, 0, False), (7.0, 65, False)])  # fmt: skip
def test_a_delay_of_our_own_is_said_where_it_may_explain_it(late_s, pause, said):
    """Not one of milliseconds, and not one that was over a minute before."""
    many = Many()
    many.until(100, late_s=late_s)
    many.until(100 + pause)
    many.lose(6)
    told = many.until(130 + pause)
    assert any("was delayed" in each for each in texts(told, "for")) is said


@pytest.mark.parametrize(
    ("settings", "lost", "paged"),
    [
        ({"targets_min": 2}, 2, ["t0", "t1"]),  # half of them are not more than half
        ({"share": 0.25, "targets_min": 2}, 2, [WATCHER]),
        ({"share": 0.25, "targets_min": 3}, 2, ["t0", "t1"]),
        ({"targets_min": 5}, 4, ["t0", "t1", "t2", "t3"]),
    ],
)
def test_how_many_are_too_many_can_be_set(settings, lost, paged):
    many = Many(4, **settings)
    many.until(100)
    many.lose(lost)
    assert pages(many.until(200)) == paged


def test_one_of_them_that_leaves_is_not_waited_for():
    """It was dead; the others are back, and with the last of those the common trouble ends."""
    many = Many(6)
    many.until(100)
    many.lose(6)
    many.until(200)
    many.ways = {"t0": "read_timeout"}
    many.until(220)
    many.fleet.forget("t0", T)
    many.names = many.names[1:]
    told = many.until(400)
    assert pages(told) == []
    last = [each for each in told if each["target"] == WATCHER][-1]
    assert (last["event"], last["resolution"]) == ("resolved", "healthy")
    assert many.fleet.incidents == ()


def test_who_falls_within_the_minute_is_counted_with_them():
    """The common incident says how many there are by now, and names them all."""
    many = Many()
    many.until(100)
    many.lose(6)
    first = next(each for each in many.until(125) if each["target"] == WATCHER)
    assert first["summary"].startswith("6 of 8 targets fell silent within a minute")
    many.lose(8)
    told = many.until(200)
    newest = [each for each in told if each["target"] == WATCHER][-1]
    assert newest["summary"].startswith("8 of 8 targets fell silent within a minute")
    assert len(newest["related"]) == 8


def test_one_server_that_is_dead_inside_is_told_as_it_is():
    """It answers, and nothing is common."""
    many = Many()
    many.until(100)
    many.lose(1, "ill")
    told = many.until(160)
    assert pages(told) == ["t0"]
    assert {each["cause"] for each in told} == {"engine_dead"}
