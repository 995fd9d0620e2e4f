"""How often the guard lets a server be restarted, who must be left, and what a person may override."""

from typing import Any

import pytest

from tests.restart.asking import NOW, PERSON, asked, attempt
from vllm_watch.restart import guard
from vllm_watch.restart.facts import Pause, Peers
from vllm_watch.settings.restart import BlockersSettings, LockSettings
from vllm_watch.state.attempt import Attempt


def helped(*ago_seconds: float) -> dict[str, Any]:
    """Restarts of the group that helped, so long ago each."""
    return {"attempts": tuple(attempt(each, "helped") for each in sorted(ago_seconds)[::-1])}


FREE = {"cooldown_seconds": 0, "cooldown_load_times": 0}
PACE: dict[str, tuple[dict[str, Any], dict[str, Any], str | None, float | None]] = {
    "the last one counts for the cooldown": (helped(3700, 1700), {"budget_per_hour": 9}, "cooldown", NOW + 100),
    "a start that was never seen": (helped(1700) | {"startup_seconds": None}, {"budget_per_hour": 9}, "cooldown", NOW + 100),
    "starts of ten minutes, three of them": (
        helped(1700), {"budget_per_hour": 9, "cooldown_seconds": 60, "cooldown_load_times": 3}, "cooldown", NOW + 100),
    "the cooldown is over": (helped(1800), {"budget_per_hour": 9}, None, None),
    "an hour ago is not within the hour": (helped(3601), FREE, None, None),
    "the oldest of an hour's two makes room": (
        helped(3000, 2000), FREE | {"budget_per_hour": 2}, "budget", NOW + 600),
    "more than the limit, since it was lowered": (
        helped(3000, 2000, 1000), FREE | {"budget_per_hour": 2}, "budget", NOW + 1600),
    "one of two": (helped(3000), FREE | {"budget_per_hour": 2}, None, None),
    "a day ago is not within the day": (helped(86_401, 40_000, 20_000), FREE, None, None),
    "the oldest of a day's three makes room": (helped(80_000, 40_000, 20_000), FREE, "budget", NOW + 6400),
    "what was cancelled": (
        {"attempts": (attempt(60, "cancelled"),)}, FREE, None, None),
    "what was called late counts from then": (
        {"attempts": (attempt(4000, "helped", called_t=NOW - 3000),)}, FREE, "budget", NOW + 600),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "settings", "check", "until_t"), PACE.values(), ids=PACE)
def test_how_often_it_may_be_restarted(
    facts: dict[str, Any], settings: dict[str, Any], check: str | None, until_t: float | None
) -> None:
    """Cooldown and budget: which restarts count, and when the next may come."""
    decision = asked(facts=facts, settings=settings)
    assert (decision.check, decision.until_t) == (check, until_t)


def _i1(ago_seconds: float, state: str, **more: Any) -> Attempt:
    return attempt(ago_seconds, state, **{"target": "chat-0", "incident_id": "i1"} | more)


BREAKER: dict[str, tuple[tuple[Attempt, ...], str | None]] = {
    "the last one in time, not in the list": (
        (attempt(40_000, "helped"), attempt(50_000, "did_not_help")), None),
    "it was called after the one that helped": (
        (attempt(50_000, "did_not_help", called_t=NOW - 30_000), attempt(40_000, "helped")), "breaker"),
    "one that is not verified yet has helped nobody": (
        (attempt(40_000, "did_not_help"), attempt(30_000, "verifying")), "breaker"),
    "another incident of this target had its own": ((_i1(40_000, "helped", incident_id="i0"),), None),
    "this incident had one on another target": ((_i1(40_000, "helped", target="chat-1"),), None),
    "this incident had one here": ((_i1(40_000, "helped"),), "breaker"),
    "a dry run for this incident": ((_i1(40_000, "dry_run"),), None),
}  # fmt: skip


@pytest.mark.parametrize(("attempts", "check"), BREAKER.values(), ids=BREAKER)
def test_what_opens_the_breaker(attempts: tuple[Attempt, ...], check: str | None) -> None:
    """The last restart of the group that failed, or one for this very incident."""
    assert asked(facts={"attempts": attempts}).check == check


@pytest.mark.parametrize(("reset_t", "check"), [(NOW - 50_000, "breaker"), (NOW - 30_000, None)])
def test_a_person_may_give_an_incident_another_restart(reset_t: float, check: str | None) -> None:
    """With a resume after the one that it had."""
    facts = {"attempts": (_i1(40_000, "helped"),), "breaker_reset_t": reset_t}
    assert asked(facts=facts).check == check


def test_a_restart_for_no_incident_has_not_served_another() -> None:
    """A schedule's restart yesterday, and a schedule's today: neither is for an incident."""
    scheduled = {"trigger": "schedule", "incident_id": None}
    before = attempt(40_000, "helped", target="chat-0", trigger="schedule", incident_id=None)
    facts, settings = {"attempts": (before,)}, {"triggers": ("schedule",)}
    assert asked(scheduled, settings, facts).verdict == guard.ACT


def test_only_an_attempt_on_this_server_is_under_way_on_it() -> None:
    """A peer's, or one that has ended, is not."""
    settings = FREE | {"budget_per_hour": 9}
    for other in (attempt(60, "verifying"), attempt(60, "helped", target="chat-0")):
        assert asked(facts={"attempts": (other,)}, settings=settings).check is None
    mine = attempt(60, "verifying", target="chat-0")
    found = asked(facts={"attempts": (attempt(60, "verifying"), mine)}, settings=settings)
    assert found.check == "under_way"


PEERS: dict[str, tuple[Peers, dict[str, Any], str | None]] = {
    "half of two": (Peers(healthy=1, total=2), {}, None),
    "less than half": (Peers(healthy=1, total=3), {}, "peers"),
    "less than half, which is enough here": (Peers(healthy=1, total=4), {"peers_healthy_ratio_min": 0.25}, None),
    "none of two": (Peers(healthy=0, total=2), {}, "peers"),
    "peers are not asked for": (Peers(healthy=0, total=2), {"peers": "none"}, None),
}  # fmt: skip


@pytest.mark.parametrize(("peers", "settings", "check"), PEERS.values(), ids=PEERS)
def test_who_must_be_left(peers: Peers, settings: dict[str, Any], check: str | None) -> None:
    """At least the share that the settings ask for, of a group with more than one."""
    assert asked(facts={"peers": peers}, settings=settings).check == check


def test_a_pause_without_end_lasts_and_one_that_has_ended_does_not() -> None:
    """Its end is its last moment."""
    for until_t, check in ((None, "pause"), (NOW + 1, "pause"), (NOW, None), (NOW - 1, None)):
        held = Pause(actor="ana", reason="x", until_t=until_t)
        assert asked(facts={"pause": held}).check == check


@pytest.mark.parametrize("mode", ["observe", "approve"])
def test_what_keeps_it_from_acting_by_itself_holds_in_mode_auto_alone(mode: str) -> None:
    """A new version, and nothing that keeps two from being restarted at once: a dry run shows what it would do."""
    bare = {"mode": mode, "blockers": BlockersSettings(), "lock": LockSettings()}
    for facts in ({"version_first_t": None}, {"version_first_t": NOW}):
        assert asked(settings=bare, facts=facts).verdict in (guard.OBSERVE, guard.APPROVE)
    acted = asked(settings=bare | {"mode": "auto"}, base=PERSON, facts={"version_first_t": None})
    assert acted.verdict == guard.ACT


def test_no_reason_is_no_override() -> None:
    """Nor does a window that never opens become an open one."""
    closed = {"windows": ("Tue 01:00-05:00",)}
    assert asked(settings=closed, base=PERSON).check == "window"
    assert asked(settings=closed, request={"override_reason": "x"}).check == "window"
    assert asked(settings={"deny_windows": ("Mon-Fri 08:00-18:00",)}, base=PERSON).check == "freeze"
