"""Another family of causes is another trouble; what fires again is judged anew in full."""

import json
from dataclasses import replace

import pytest

from tests.incidents.test_lifecycle import Story, T, collapse
from vllm_watch.detectors.base import Evidence


def slow(state="firing", **fields):
    return collapse(state, cause="slow_engine", severity="ticket", **fields)


@pytest.mark.parametrize("found", [{"cause": "kv_leak"}, {"family": "cache"}], ids=["leak", "not known yet"])  # fmt: skip
def test_another_family_of_causes_is_another_trouble(found):
    """It opens at once with its own begin and severity; the one that only recovers ends when it really ended."""
    story = Story().look(slow(), times=9).look(slow("clear"), times=9)
    story.look(collapse(since_seconds=10.0, **found))
    opened, _, ended, other = story.events
    assert (ended["event"], ended["resolution"], ended["ended"]) == (
        "resolved",
        "superseded",
        T + 45,
    )
    assert (other["event"], other["severity"], other["began"]) == ("opened", "page", T + 80)
    assert other["id"] != opened["id"] == other["related"][0] == ended["id"]
    assert "times" not in other


def test_another_family_takes_over_while_the_first_is_still_seen():
    story = Story().look(slow(), times=9).look(collapse(cause="kv_leak"))
    assert [(each["event"], each["cause"]) for each in story.events] == [
        ("opened", "slow_engine"), ("resolved", "slow_engine"), ("opened", "kv_leak"),
    ]  # fmt: skip


def test_each_family_recurs_by_itself():
    """Three slownesses do not make the first leak the fourth time of anything."""
    story = Story()
    for _ in range(3):
        story.look(slow(), times=3).look(slow("clear"), times=9)
    story.look(collapse(cause="kv_leak"))
    assert story.events[-2]["times"] == 3
    assert "times" not in story.events[-1]


def test_a_trouble_that_fires_again_is_judged_anew_in_full():
    """Cause, severity, summary, begin, worst and advice are those of now, also where the cause is not known."""
    bad, mild = (Evidence(name="n", value=value, text="t") for value in (9.0, 2.0))
    story = Story().look(
        collapse(cause="kv_leak", restart_advised=True, measure=9.0, evidence_for=(bad,)), times=3
    )
    story.look(collapse("clear"), times=4)
    again = collapse(family="cache", severity="ticket", measure=2.0, evidence_for=(mild,))
    story.look(replace(again, summary="now", since_seconds=4.0))
    known = (story.events[0]["id"], "unknown", "ticket", "now", False, T + 31, 2)
    names = ("id", "cause", "severity", "summary", "restart_advised", "began", "times")
    assert tuple(story.events[-1][name] for name in names) == known
    assert story.events[-1]["worst"]["measure"] == 2.0


def test_what_a_release_without_families_kept_is_read():
    before = Story().look(slow(), times=9).look(slow("clear"), times=3)
    kept = json.loads(json.dumps(before.lifecycle.export_state()))
    del kept["followed"][0]["incident"]["family"]
    kept["recurrence"] = {"ended": [["throughput_collapse", "0", 45.0, 60.0]]}
    story = Story()
    story.now = 60.0
    story.lifecycle.restore(kept, ("throughput_collapse",))
    story.look(slow())
    (event,) = story.events
    assert (event["event"], event["phase"], event["id"]) == (
        "updated",
        "active",
        before.events[0]["id"],
    )
