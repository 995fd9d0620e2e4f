"""Troubles that follow each other, in virtual time: what is told at each look is what is so."""

from types import SimpleNamespace
from unittest.mock import ANY

import pytest

from benchmarks.detection.sequences import KINDS, Told, demo_day, play, random_day
from benchmarks.lab.virtual import EPOCH
from vllm_watch.incidents import incident, lifecycle

CAUSES = {
    "hang": {"hang"}, "slow": {"slow_engine"}, "leak": {"kv_leak", "kv_pinning"}, "crash": {"crash"},
}  # fmt: skip
CYCLE_SECONDS = 585.0


@pytest.mark.parametrize(("interval_s", "cycles"), [(1.0, 20), (5.0, 12)])
def test_the_demo_tells_each_trouble_as_it_is_for_hours(interval_s, cycles):
    """By its own kind and cause, in an incident of its own that began with it; and nothing once it is over."""
    told = play(Told("demo", interval_s), demo_day, 20.0 + cycles * CYCLE_SECONDS, target="batch")
    assert len(told.troubles) == 4 * cycles
    incidents = set()
    for trouble in told.troubles:
        kind, causes = KINDS[trouble.slug], CAUSES[trouble.slug]
        right = [one for one in trouble.last if (one.kind, one.cause in causes) == (kind, True)]
        assert len(right) == 1, trouble
        incident = right[0]
        assert trouble.begin_s - 10.0 <= incident.began_t - EPOCH <= trouble.end_s, trouble
        assert incident.severity == "page" or trouble.slug == "slow", trouble
        incidents.add(incident.id)
    assert len(incidents) == 4 * cycles
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
    every_phase = SimpleNamespace(**vars(incident) | {"ACTIVE": ANY})
    monkeypatch.setattr(lifecycle, "incident", every_phase)  # every phase passes for it
    told = play(Told("random", 5.0), random_day(7, 2.0), 7200.0)
    assert any(each.slug != "slow" for each in told.missed)
