"""Why an incident is critical or a warning, and whether a restart helps: one sentence each, for every reader."""

import json
from dataclasses import replace

import pytest

from tests.export.demo_board import event
from tests.incidents.test_lifecycle import FOUR, Story, collapse, gpu_fault, overload, ranks, stall
from tests.told import made
from vllm_watch.detectors.base import Evidence
from vllm_watch.detectors.consequences import OWN_PAST, Shift, explained, fulfilled
from vllm_watch.incidents import reasons
from vllm_watch.incidents.lifecycle import Lifecycle
from vllm_watch.incidents.way import LOWERED, extended
from vllm_watch.signals.scales import PAST_KEPT

RULE = Evidence(name="rule", value="slow", text="steps take 1.4 times as long as usual")
NEXT = Evidence(
    name="next_rule", value="page", text="becomes critical when steps take 1.7 times as long"
)
SLOWER = Evidence(name="ratio", value=1.4, text="steps take 1.4× as long")
FEW = Evidence(name="waiting", value=0.0, text="nobody waits")
FOUND = {"severity": "ticket", "cause": "slow_engine", "evidence_for": (RULE, SLOWER), "evidence_against": (NEXT, FEW)}  # fmt: skip


def one(story, kind="throughput_collapse"):
    return next(each for each in story.lifecycle.incidents if each.kind == kind)


def test_each_change_is_a_step_with_its_rule_and_evidence():
    """Not each look: what was known changed at two of ten; then it recovers."""
    story = Story().look(collapse(**FOUND), times=5).look(collapse(**FOUND | {"severity": "page"}), times=5)  # fmt: skip
    story.look(collapse("clear"))
    opened, worse, recovering = one(story).way
    assert (opened.event, opened.severity, worse.severity, recovering.event) == ("opened", "ticket", "page", "recovering")  # fmt: skip
    assert (opened.rule, opened.next_rule) == (RULE.text, NEXT.text)
    assert (opened.evidence, opened.against) == ((SLOWER.text,), (FEW.text,))


def test_a_page_that_people_were_told_of_does_not_become_milder():
    story = Story().look(collapse()).look(collapse(**FOUND | {"severity": "ticket"}), times=4)
    story.look(collapse(**FOUND | {"cause": "thermal_throttle"}), times=4)
    assert one(story).severity == one(story).way[-1].severity


def test_a_page_that_is_kept_says_so():
    story = Story().look(stall(severity="page")).look(stall(severity="ticket", restart_advised=True))  # fmt: skip
    (_, kept) = one(story, "engine_stalled").way
    assert (kept.severity, kept.restart_advised) == ("page", True)
    assert "stays critical" in kept.changes[0]


def test_one_more_of_the_same_says_who_told_it():
    story = Story()
    for _ in range(2):
        story.look(stall(), times=12).look(stall("clear"), times=84)
    story.look(stall())
    third = one(story, "engine_stalled")
    assert "not notified again" in third.way[-1].changes[0]


def test_it_is_bounded_and_outlives_the_watcher():
    story = Story()
    for _ in range(40):
        story.look(stall(), times=3).look(stall("clear"), times=3)
    steps = one(story, "engine_stalled").way
    assert (len(steps), steps[0].event) == (PAST_KEPT, "opened")
    again = Lifecycle("x")
    again.restore(json.loads(json.dumps(story.lifecycle.export_state())), ("engine_stalled",))
    assert again.incidents[0].way == steps


T = 1_763_700_000.0
SLOW = Shift(OWN_PAST, 0.7, 30.0, harmed=True)
CRITICAL = replace(SLOW, seconds=60.0)


def incident(
    kind="throughput_collapse", cause="slow_engine", severity="ticket", shift=None, change="", missed_by="", against=()
):  # fmt: skip
    """Return an open one; its rules are those that the detector gives for `shift`."""
    rules = explained(shift, fulfilled(shift)) if shift else ()
    rules += (Evidence(name="missed_by", value=1.0, text=missed_by),) if missed_by else ()
    story = {"engine": "0", "kind": kind, "cause": cause, "severity": severity, "summary": "", "restart_advised": False, "for": [], "against": list(against)}  # fmt: skip
    (told,) = made(event("chat", story, T))
    one = replace(told.incident, way=(), evidence_for=rules)
    return replace(one, way=extended(one, T, "opened", change))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"shift": SLOW}, "it becomes critical when it has lasted 40 s"),
        ({}, "no user is known to wait longer or to get less than before"),
        ({"change": f"{LOWERED}its peer is down"}, "its peer is down"),
        ({"kind": "overload", "cause": "demand"}, "more requests arrive than it can serve, and it is not known to be slower than usual"),
        ({"kind": "engine_stalled", "cause": "peer_wait"}, "the server that it waits for is at fault"),
        ({"kind": "engine_down", "cause": "crash", "against": [("few", None, "", None, "few requests were in flight.")]}, "few requests were in flight"),
    ],
)  # fmt: skip
def test_why_a_warning_is_not_critical(given, why):
    """By the next rule, by the change that lowered it, by its evidence, by its cause and kind."""
    assert reasons.of_severity(incident(**given)) == f"A warning, not critical: {why}."
    assert reasons.of_severity(incident(**given, severity="info")) == f"Info only: {why}."


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"shift": CRITICAL}, "steps have taken at least 1.7 times as long as usual for 60 s"),
        ({"kind": "engine_down", "cause": "crash"}, "no request is answered"),
        ({"kind": "engine_stalled", "missed_by": "decode-1"}, "others wait for it: decode-1"),
    ],
)  # fmt: skip
def test_why_it_is_critical(given, why):
    one = incident(severity="page", **given)
    assert reasons.of_severity(one) == f"Critical: {why}."
    assert reasons.on_card(one) == (
        f"Critical: {why}." if given.keys() & {"shift", "missed_by"} else ""
    )
    assert reasons.notifies(one)


def test_what_is_over_or_recovering_is_neither():
    over = replace(incident(), resolved_t=T)
    assert reasons.of_severity(over) == "It is over."
    assert reasons.of_restart(over, "No restart is advised yet: check the host first.") == "It is over: no restart is needed."  # fmt: skip
    story = Story().look(collapse(**FOUND), times=5)
    (one,) = story.look(collapse("clear")).lifecycle.incidents
    assert reasons.of_severity(one) == "It is recovering, and closes if the engine stays healthy."
    assert reasons.of_restart(one, "") == "It is recovering: no restart is needed now."
    assert not reasons.notifies(one)


def test_a_restart_that_is_not_advised_yet_says_when_it_is():
    """Only where it can still be: a slow engine, and not a neighbour that stays."""
    one = incident(severity="page", shift=CRITICAL)
    yet = "No restart is advised yet: check the host first."
    assert reasons.of_restart(one, yet) == f"{yet} A restart is advised when it has lasted 2 min and the slowdown is worse than those that ended by themselves."  # fmt: skip
    never, curable = "A restart does not help: the neighbour stays.", {"curable": False}
    one = replace(one, evidence_for=explained(CRITICAL, fulfilled(CRITICAL), **curable))
    assert reasons.of_restart(one, never) == never
    assert reasons.of_restart(incident(), yet) == yet


def test_the_incident_that_is_its_cause_is_named():
    """A GPU that is critical already, or another rank."""
    story = Story().look(gpu_fault(), collapse())
    effect, cause = sorted(story.lifecycle.incidents, key=lambda each: each.kind == "gpu_fault")
    assert reasons.of_severity(effect).startswith("A warning, not critical: its cause is a separate incident: ")  # fmt: skip
    assert cause.id in reasons.of_severity(effect)
    first, second = Story().look(*ranks("0", "1"), moment=FOUR).lifecycle.incidents
    assert "another rank has the same trouble" in reasons.of_severity(second)
    assert first.id in reasons.of_severity(second)


def test_a_recurring_one_says_that_nobody_is_notified_again():
    story = Story()
    for _ in range(2):
        story.look(stall(), times=12).look(stall("clear"), times=84)
    (third,) = story.look(stall()).lifecycle.incidents
    said = reasons.of_severity(third)
    assert said.startswith("Critical: no request gets a token. People are not notified again (recurring: 3rd time")  # fmt: skip
    assert third.recurring.earlier in said
    assert not reasons.notifies(third)


def test_the_fleet_is_named_where_many_fell_silent():
    (opened,) = Story().look(stall()).lifecycle.incidents
    shown = replace(opened, severity="ticket", related=("engine_down-1-common",))
    assert "engine_down-1-common is critical for all of them" in reasons.of_severity(shown)


def test_evidence_against_the_cause_is_no_reason_for_the_severity():
    """An overload lists what it could not exclude; that is not why it is a warning."""
    (one,) = (
        Story().look(overload(evidence_against=(FOUND["evidence_against"][1],))).lifecycle.incidents
    )
    assert "nobody waits" not in reasons.of_severity(one)
