"""Why an incident is a warning, and what the advice to restart lacks: in one sentence, by the rule that comes next."""

from dataclasses import replace

import pytest

from tests.export.demo_board import event
from tests.told import made
from vllm_watch.export import reasons
from vllm_watch.incidents.way import extended

T = 1_763_700_000.0


def incident(
    kind="throughput_collapse", cause="slow_engine", severity="ticket", text="", change=""
):
    """One that is open, whose next rule reads so."""
    rules = [("next_rule", "", "", None, text)] if text else []
    story = {"engine": "0", "kind": kind, "cause": cause, "severity": severity, "summary": "", "restart_advised": False, "for": rules, "against": []}  # fmt: skip
    (told,) = made(event("chat", story, T))
    one = replace(told.incident, way=())
    return replace(one, way=extended(one, T, "opened", change))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"text": "a page needs 40 s of work like that"}, "that needs 40 s of work like that"),
        ({"text": "a restart needs 120 s of work like that"}, "no user is known to wait longer or to get less than before"),
        ({"change": "page → ticket: its peer pages"}, "page → ticket: its peer pages"),
        ({"kind": "overload", "cause": "demand"}, "the engine works as fast as usual; there is more work than it can do"),
        ({"kind": "engine_stalled", "cause": "waits_for_peer"}, "the server that it waits for has the trouble"),
    ],
)  # fmt: skip
def test_a_warning_says_why_it_is_not_critical(given, why):
    """Each by what is known of it: the rule that is next, who lowered it, its cause, its kind."""
    assert reasons.of_severity(incident(**given)) == f"A warning, not critical: {why}."


def test_what_is_critical_or_over_gives_no_reason():
    """There is nothing to explain."""
    assert reasons.of_severity(incident(severity="page")) == ""
    assert reasons.of_severity(replace(incident(), resolved_t=T)) == ""


def test_a_restart_that_is_not_advised_yet_says_what_that_needs():
    """By the rule that is next; nothing where none is known."""
    assert reasons.of_restart(incident(text="a restart needs 120 s of work like that")) == " That needs 120 s of work like that."  # fmt: skip
    assert reasons.of_restart(incident()) == ""
