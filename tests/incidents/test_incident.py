"""One record of an incident: what it says of itself, and its form where it is published or kept."""

import json
from dataclasses import replace

import pytest

from tests.told import made, told
from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents import incident
from vllm_watch.incidents.incident import (
    OPENED,
    RECOVERING,
    RESOLVED,
    UPDATED,
    Incident,
    IncidentEvent,
    Worst,
)
from vllm_watch.signals import stored

T = 1_700_000_000.0
FAULT = Incident(
    id="gpu_fault-1", target="host:h", engine=None, kind="gpu_fault", cause="xid", severity="ticket",
    summary="GPU 0: Xid 31", opened_t=T, began_t=T, updated_t=T + 5, restart_advised=True, firing=False,
    concerns=("a", "b"), restart_targets=("a",), related=("engine_down-1", "engine_down-2"),
    evidence_for=(
        Evidence(name="xid", value=31, text="GPU 0: Xid 31"),
        Evidence(name="state", value="lost", unit="", expected=0.5),
        Evidence(name="unknown", value=None, unit="s", expected="it answers"),
    ),
    evidence_against=(Evidence(name="health", value=200.0),),
)  # fmt: skip
STALL = replace(
    FAULT, stacks="A waits for B.", phase=RECOVERING, ended_t=T + 40, times=3, worst=Worst(T + 20, 44.0, Evidence(name="quiet", value=44.0, unit="s")), id="engine_stalled-1", target="a", engine="0", kind="engine_stalled", cause="hang", severity="page",
    restart_advised=False, concerns=(), restart_targets=(), related=(), evidence_for=(), evidence_against=(),
)  # fmt: skip


def through_json(state):
    return json.loads(json.dumps(state, allow_nan=False))


@pytest.mark.parametrize("one", [FAULT, STALL])
def test_what_is_kept_of_an_open_incident_is_all_of_it(one):
    """Whom it concerns, whose restart is advised, and what later looks need to know."""
    assert incident.restore(through_json(incident.export_state(one))) == one


@pytest.mark.parametrize("event", [OPENED, UPDATED, RESOLVED])
@pytest.mark.parametrize("one", [FAULT, STALL])
def test_an_event_is_read_back_as_it_was_published(one, event):
    """What its one line says; of what is not published the record says the ordinary."""
    end = incident.ended(one, T + 60, "restarted") if event == RESOLVED else one
    line = through_json(incident.published(IncidentEvent(event, T + 60, end)))
    assert incident.from_published(line, T) == replace(
        end, updated_t=T + 60, firing=event != RESOLVED
    )


PUBLISHED = {
    "of an engine": (STALL, {"restart_advised", "evidence", "times", "stacks"}),
    "of a host": (FAULT, {"restart_advised", "evidence", "concerns", "restart_targets", "related"}),
}


@pytest.mark.parametrize(("one", "beyond"), PUBLISHED.values(), ids=PUBLISHED)
def test_only_what_there_is_is_published(one, beyond):
    """The contract's keys always; others where they say something."""
    always = {"t", "event", "id", "target", "engine", "kind", "cause", "severity", "summary"}
    always |= {"phase", "began", "ended", "worst", "requests_lost"}
    assert incident.published(IncidentEvent(OPENED, T, one)).keys() == always | beyond
    ended = IncidentEvent(RESOLVED, T, incident.ended(one, T, "healthy"))
    assert incident.published(ended)["resolution"] == "healthy"


DAMAGES = {
    "no id": {"id": None}, "a number for a target": {"target": 7}, "advice that is a word": {"restart_advised": "yes"},
    "servers that are a text": {"concerns": "a"}, "a restart of a number": {"restart_targets": [7]},
    "no time": {"opened_t": None}, "a phase that is none": {"phase": 7}, "no number of times": {"times": "often"},
    "lost requests that are a text": {"requests_lost": "many"}, "a worst that is a number": {"worst": 7}, "evidence that is a list": {"evidence": []},
    "evidence without words": {"evidence": {"for": [{"name": "n"}], "against": []}},
    "a number that is none": {"evidence": {"for": [{"name": "n", "value": True, "unit": "", "expected": None, "text": ""}], "against": []}},
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_no_incident(damage):
    """It raises what its readers know."""
    with pytest.raises(stored.DAMAGE):
        incident.restore(incident.export_state(FAULT) | damage)


def test_numbers_that_json_has_not_are_unknown():
    """Evidence may be a ratio to nothing."""
    odd = replace(
        STALL, evidence_for=(Evidence(name="n", value=float("inf"), expected=float("nan")),)
    )
    (said,) = incident.published(IncidentEvent(OPENED, T, odd))["evidence"]["for"]
    assert (said["value"], said["expected"]) == (None, None)


ADVICE = {
    "its own target": (replace(STALL, restart_advised=True), "a", True),
    "another target": (replace(STALL, restart_advised=True), "b", False),
    "nothing is advised": (STALL, "a", False),
    "of a host: a server that is named": (FAULT, "a", True),
    "of a host: one that is only concerned": (FAULT, "b", False),
    "of a host: named, and the advice withdrawn": (replace(FAULT, restart_advised=False), "a", False),
}  # fmt: skip


@pytest.mark.parametrize(("one", "target", "advised"), ADVICE.values(), ids=ADVICE)
def test_whose_restart_is_advised(one, target, advised):
    assert one.advises_restart_of(target) is advised


def test_an_end_withdraws_the_advice():
    """Nobody restarts a server for what is over."""
    end = incident.ended(FAULT, T + 9, "healthy")
    assert (end.open, end.resolved_t, end.resolution) == (False, T + 9, "healthy")
    assert (end.firing, end.restart_advised, end.advises_restart_of("a")) == (False, False, False)


def test_the_end_is_the_first_good_look():
    """What recovered first ended then; what was cut off ends with its record."""
    assert incident.ended(STALL, T + 90, "healthy").ended_t == T + 40
    assert incident.ended(FAULT, T + 90, "superseded").ended_t == T + 90


def test_a_line_of_an_earlier_version_is_read():
    """It had no phase and no worst: it is an active incident that began as it was opened."""
    line = incident.published(IncidentEvent(OPENED, T, FAULT))
    for key in ("phase", "began", "ended", "worst", "requests_lost"):
        del line[key]
    read = incident.from_published(line, T)
    assert (read.phase, read.began_t, read.ended_t, read.times, read.worst) == (
        "active",
        T,
        None,
        1,
        None,
    )


def test_nothing_but_the_event_may_be_known():
    """Then it is told since when it is known."""
    (event,) = made(told(UPDATED, T + 7))
    assert (event.incident.opened_t, event.incident.updated_t) == (T + 7, T + 7)
