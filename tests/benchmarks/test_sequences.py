"""Troubles that follow each other, in virtual time: what is told at each look is what is so."""

from unittest.mock import ANY

import pytest

from benchmarks.detection.sequences import Told, demo_day, play, random_day
from vllm_watch.incidents import lifecycle


@pytest.mark.parametrize("interval_s", [1.0, 5.0])
def test_an_hour_of_the_demo_never_contradicts_itself(interval_s):
    """Every trouble is told as what it is while it lasts; nothing pages or is advised once it is over."""
    told = play(Told("demo", interval_s), demo_day, 3600.0, target="batch")
    assert len(told.judged) == 25
    # A leak takes as long to be felt as the load at that moment lets it.
    assert [each for each in told.missed if each.slug != "leak"] == []
    assert any(each.told_in_time for each in told.judged if each.slug == "leak")
    assert told.late_pages == []
    assert told.advised_when_healthy == []
    assert told.healthy_page_s == 0.0


@pytest.mark.parametrize("interval_s", [5.0, 15.0])
def test_two_hours_of_troubles_in_any_order(interval_s):
    told = play(Told("random", interval_s), random_day(7, 2.0), 7200.0)
    assert len(told.judged) >= 8
    # What is slow from the first minute of a new process has no fresh self to be compared with.
    assert [each for each in told.missed if each.slug != "slow"] == []
    assert told.late_pages == told.advised_when_healthy == []
    assert told.healthy_page_s <= 0.02 * told.healthy_s


def test_the_rules_of_today_are_judged_by_the_same_truth():
    """An alert on silence of a minute finds crashes that last, and nothing that still answers; it is late for none."""
    told = play(Told("random", 15.0), random_day(7, 2.0), 7200.0, rules=True)
    rule = told.by_rules["no answer 60 s, no token 5 min, nothing else"]
    assert [each.slug for each in rule.troubles] == [each.slug for each in told.troubles]
    found = {each.slug for each in rule.judged if each.told_in_time}
    assert found <= {"crash", "api_hang"} < {each.slug for each in rule.judged}
    assert len(rule.missed) > len(told.missed)
    assert (rule.healthy_s, rule.advised_when_healthy) == (told.healthy_s, [])


def test_a_lifecycle_in_which_what_recovers_hides_fails(monkeypatch):
    """The comparison sees what it is for: a hang hidden behind a crash that is over."""
    monkeypatch.setattr(lifecycle, "ACTIVE", ANY)  # every phase passes for it
    told = play(Told("random", 5.0), random_day(7, 2.0), 7200.0)
    assert any(each.slug != "slow" for each in told.missed)
