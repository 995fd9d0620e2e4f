"""What the board shows, as alerts: which incidents, which steps of restarts, which targets nobody can read."""

import time
from dataclasses import replace

import pytest

from tests.told import made
from vllm_watch.board.board import Board
from vllm_watch.board.restarts import AttemptShown, Gate, RestartCounts, RestartPlan, Waiting
from vllm_watch.notify.alert import UNREADABLE
from vllm_watch.notify.board_alerts import FORGOTTEN_SECONDS, BoardAlerts
from vllm_watch.samples.target import WATCHER, Target
from vllm_watch.signals.records import TargetSignals
from vllm_watch.story.kinds import STORIES


def board(*names):
    one = Board()
    for name in names or ("a",):
        one.add_target(Target(name=name, url=f"http://{name}", group="chat"), 5.0)
    return one


BLANK = {"name": "", "value": None, "unit": "", "expected": None}


def event(name="i1", target="a", *, event="opened", t=None, **more):
    said = {
        "t": time.time() if t is None else t, "event": event, "id": name, "target": target,
        "engine": None, "kind": "engine_stalled", "cause": "hang", "severity": "page",
        "summary": "no step for 40 s", "restart_advised": True,
        "evidence": {"for": [BLANK | {"text": text} for text in ("one", "", "two")], "against": []},
    }  # fmt: skip
    return said | more


def looked(one, *, up=True, state="serving", outcome="ok", age_s=0.0, name="a"):
    one.publish(TargetSignals(
        target=name, t=time.time() - age_s, up=up, outcome=outcome, state=state, state_text="said so",
    ))  # fmt: skip


def alerts(one, *, silenced=(), unreadable=300.0):
    return BoardAlerts(one, lambda name: name in silenced, unreadable)


def found(one, **more):
    return alerts(one, **more).now([])


RECURRING = {
    "times": 4,
    "within_seconds": 2460.0,
    "ill_seconds": 240.0,
    "text": "recurring: 4th time",
}


@pytest.mark.parametrize(("earlier", "inhibited"), [("", False), ("i0", True)])
def test_what_recurs_is_told_once(earlier, inhibited):
    """Not for each of its times; but one that does not end is no more of the same."""
    one = board()
    one.tell(made(event(times=4, recurring=RECURRING | {"earlier": earlier})))
    (alert,) = found(one)
    assert alert.inhibited is inhibited


def test_what_is_part_of_a_common_one_is_inhibited():
    """Tickets linked to the watcher's own page; one that pages by itself is told."""
    one = board("a", "b", "c")
    common = event("c1", WATCHER, kind="engine_down", cause="unreachable")
    one.tell(made(common))
    down = {"kind": "engine_down", "cause": "crash", "related": ["c1"]}
    one.tell(made(event("a1", "a", severity="ticket", **down)))
    one.tell(made(event("b1", "b", severity="page", **down)))
    one.tell(made(event("c2", "c", severity="ticket")))
    assert {each.id: each.inhibited for each in found(one)} == {"c1": False, "a1": True, "b1": False, "c2": False}  # fmt: skip


def test_how_an_alert_ended():
    """As the board knows it; what it does not know yet is not over."""
    one = board()
    one.tell(made(event(t=5.0)))
    said = alerts(one)
    [alert] = said.now([])
    assert said.ended(alert) is None
    one.tell(made(event(event="resolved", t=9.0, resolution="restarted")))
    over = said.ended(alert)
    assert (over.incident.resolved_t, over.incident.resolution) == (9.0, "restarted")


def test_an_incident_that_nobody_knows_any_more():
    """Not at the start, when targets are still looked for; later it is over."""
    said = alerts(board())
    one = board()
    one.tell(made(event()))
    [alert] = alerts(one).now([])
    assert said.ended(alert) is None
    said._began_t -= FORGOTTEN_SECONDS
    assert said.ended(alert).incident.resolution == "unknown"


UNREADABLE_STORIES = {
    # what: (looks: up, state, outcome, age in seconds; seconds since it was read; cause that is told)
    "it is read": ((True, "serving", "ok", 0), 0, None),
    "it answers nonsense for five minutes": ((False, "unknown", "garbled", 0), 301, "garbled"),
    "it answers nonsense for less": ((False, "unknown", "garbled", 0), 299, None),
    "it starts": ((False, "starting", "refused", 0), 999, None),
    "it sleeps": ((False, "sleeping", "http", 0), 999, None),
    "it is down, which is an incident": ((False, "down", "refused", 0), 999, None),
    "nobody looks at it": ((True, "serving", "ok", 400), 400, "not_looked_at"),
    "the last look was a moment ago": ((True, "serving", "ok", 40), 400, None),
}


@pytest.mark.parametrize(("look", "read_s", "cause"), UNREADABLE_STORIES.values(), ids=UNREADABLE_STORIES)  # fmt: skip
def test_a_target_that_cannot_be_read(look, read_s, cause):
    """Only where no incident says why, and not before it has lasted."""
    one = board()
    up, state, outcome, age_s = look
    one.call("metrics", "a", "ok", 0.1, time.time() - read_s)
    looked(one, up=up, state=state, outcome=outcome, age_s=age_s)
    told = [
        (each.incident.kind, each.incident.cause, each.incident.severity) for each in found(one)
    ]
    assert told == ([] if cause is None else [("target_unreadable", cause, "ticket")])


def test_an_unreadable_target_with_an_incident_that_says_why():
    """One message is enough."""
    one = board()
    one.call("metrics", "a", "ok", 0.1, time.time() - 999)
    looked(one, up=False, state="unknown", outcome="http")
    one.tell(made(event(kind="engine_down", cause="unreachable")))
    assert [each.about for each in found(one)] == ["incident"]


def test_an_unreadable_target_is_the_same_for_the_next_run_of_the_watcher():
    """Which does not know since when, and is not to tell again; until it is read."""
    one = board()
    one.call("metrics", "a", "ok", 0.1, time.time() - 999)
    looked(one, up=False, state="unknown", outcome="garbled")
    [told] = found(one)
    after = board()
    said = alerts(after)
    assert said.now([told]) == []
    assert said.ended(told) is None  # not looked at yet
    looked(after, up=False, state="unknown", outcome="garbled")
    assert [each.id for each in said.now([told])] == [told.id]
    looked(after)
    assert said.now([told]) == []
    assert said.ended(told).incident.resolution == "healthy"
    assert told.about == UNREADABLE


NOW = time.time()
ATTEMPT = AttemptShown(
    id="at1", state="verifying", trigger="incident", reason="it hangs", actor="vllm-watch", hook="h",
    text="waits for the first token", began_timestamp_seconds=NOW, called_timestamp_seconds=NOW,
    incident_id="i1",
)  # fmt: skip
WISH = Waiting(
    trigger="incident", reason="it hangs", asked_timestamp_seconds=NOW, incident_id="i1",
    verdict="approve", gate="approval", text="a person must say yes",
)  # fmt: skip


def ended(state):
    return replace(ATTEMPT, state=state, ended_timestamp_seconds=NOW, text="it stalls again")


STEPS = {
    "nothing": (RestartPlan(mode="auto", hook="h"), []),
    "the hook is not called yet": (
        RestartPlan(mode="auto", hook="h", under_way=replace(ATTEMPT, called_timestamp_seconds=None)), []),
    "it is under way": (RestartPlan(mode="auto", hook="h", under_way=ATTEMPT), ["begun"]),
    **{f"it ended: {state}": (RestartPlan(mode="auto", hook="h", last=ended(state)), [state])
       for state in ("helped", "did_not_help", "failed", "uncertain", "cancelled", "dry_run")},
    "it opened the breaker": (
        RestartPlan(mode="auto", hook="h", last=ended("did_not_help"), breaker="the last one did not help"),
        ["did_not_help", "breaker"]),
    "another target opened the breaker": (
        RestartPlan(mode="auto", hook="h", last=ended("helped"), breaker="the last one did not help"), ["helped"]),
    "it waits for a yes": (RestartPlan(mode="approve", hook="h", waiting=(WISH,)), ["approval"]),
    "a gate holds it back": (
        RestartPlan(mode="auto", hook="h", waiting=(replace(WISH, verdict="wait", gate="window"),)), ["refused"]),
    "it is not decided yet": (RestartPlan(mode="auto", hook="h", waiting=(replace(WISH, verdict=None),)), []),
}  # fmt: skip


@pytest.mark.parametrize(("plan", "steps"), STEPS.values(), ids=STEPS)
def test_steps_of_restarts(plan, steps):
    one = board()
    one.show_restart("a", plan, RestartCounts())
    assert [each.incident.cause for each in found(one)] == steps
    ids = [each.id for each in found(one)]
    assert len(set(ids)) == len(ids)


def test_a_gate_is_told_once_and_another_gate_again():
    """The id of a refusal is that of its wish and its gate."""
    one = board()
    ids = []
    for gate in ("window", "window", "cooldown"):
        wish = replace(WISH, verdict="refuse", gate=gate, gates=(Gate(gate=gate, text="no"),))
        one.show_restart("a", RestartPlan(mode="auto", hook="h", waiting=(wish,)), RestartCounts())
        ids.append(found(one)[0].id)
    assert ids[0] == ids[1] != ids[2]


WORDS = {
    "not advised": ({"restart_advised": False}, None, STORIES["engine_stalled"].restart),
    "restarts are off": ({}, None, "advised; do it by hand, because automatic restarts are off."),
    "not decided yet": ({}, RestartPlan(mode="auto", hook="h"), "advised."),
    "observe": ({}, RestartPlan(mode="observe", hook="h"), "advised; do it by hand: vllm-watch is in mode observe and will not."),
    "approval": ({}, RestartPlan(mode="approve", hook="h", waiting=(WISH,)),
                 "advised, and waiting for approval: vllm-watch approve i1"),
    "kept back": ({}, RestartPlan(mode="auto", hook="h", waiting=(replace(WISH, verdict="wait", gate="window", text="not before 03:00"),)),
                  "advised, but blocked by window: not before 03:00"),
    "under way": ({}, RestartPlan(mode="auto", hook="h", under_way=ATTEMPT),
                  "one is under way: waits for the first token"),
}  # fmt: skip


@pytest.mark.parametrize(("more", "plan", "words"), WORDS.values(), ids=WORDS)
def test_what_is_said_of_a_restart(more, plan, words):
    one = board()
    one.tell(made(event(**more)))
    if plan is not None:
        one.show_restart("a", plan, RestartCounts())
    assert next(each for each in found(one) if each.id == "i1").restart == words
