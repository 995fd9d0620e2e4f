"""The guard: each check refuses for its own reason, and fails closed where something is not known."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from vllm_watch.board.restarts import Paused
from vllm_watch.incidents.incident import Incident
from vllm_watch.restart import guard
from vllm_watch.restart.facts import Answer, Facts, Peers, RestartRequest
from vllm_watch.settings.restart import BlockersSettings, LockSettings, RestartSettings
from vllm_watch.settings.restart_times import FreezeSettings
from vllm_watch.state.attempt import Attempt

NOW = 1_790_000_000.0  # Mon 2026-09-21 14:13:20 UTC
REQUEST = RestartRequest(
    target="chat-0", group="chat", trigger="incident", reason="no step for 90 s", asked_t=NOW,
    engine="0", incident_id="i1", kind="engine_stalled", cause="hang",
)  # fmt: skip
PERSON = replace(REQUEST, trigger="manual", actor="ana", incident_id=None)
SETTINGS = RestartSettings(
    mode="auto", hook="systemd", blockers=BlockersSettings(alerts=".*"), lock=LockSettings(kind="file")
)  # fmt: skip
INCIDENT = Incident(
    id="i1", target="chat-0", engine="0", kind="engine_stalled", cause="hang", severity="page",
    summary="no step for 90 s", restart_advised=True, opened_t=NOW - 90, began_t=NOW - 90, updated_t=NOW,
)  # fmt: skip
ON_HOST = replace(
    INCIDENT, target="host:gpu-1", engine=None, kind="gpu_fault", cause="xid", concerns=("chat-0", "chat-1"),
    restart_targets=("chat-1",),
)  # fmt: skip
FACTS = Facts(
    t=NOW, stale=None, state="stalled", attempts=(), incident=INCIDENT,
    peers=Peers(healthy=3, total=4), version_first_t=NOW - 7200, startup_seconds=600,
    hook=Answer(name="systemd", allows=True, text=""),
    blockers=(Answer(name="prometheus", allows=True, text="no alert fires"),),
    lock=Answer(name="file", allows=True, text="taken"),
)  # fmt: skip


def frozen(begin_t, end_t, reason=""):
    """A freeze, as settings."""
    begin, end = (datetime.fromtimestamp(t, UTC) for t in (begin_t, end_t))
    return {"freezes": (FreezeSettings(begin=begin, end=end, reason=reason),)}


def attempt(ago_seconds, state, **more):
    """An attempt of the group that touched its server so long ago."""
    begun_t = NOW - ago_seconds
    known: dict[str, Any] = {
        "id": f"a{ago_seconds:.0f}", "target": "chat-1", "group": "chat", "trigger": "incident",
        "hook": "systemd", "reason": "", "actor": "vllm-watch", "began_t": begun_t, "called_t": begun_t,
    }  # fmt: skip
    return Attempt(state=state, **known | more)


def asked(request=None, settings=None, facts=None, base=REQUEST):
    return guard.decide(
        replace(base, **request or {}),
        SETTINGS.model_copy(update=settings or {}),
        replace(FACTS, **facts or {}),
    )


def test_acts_when_every_check_agrees():
    """The one combination that acts, from which every row below differs in one thing."""
    assert asked().verdict == guard.ACT


REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "off": ({"settings": {"mode": "off"}}, "mode", "restarts are off"),
    "no hook": ({"settings": {"hook": ""}}, "mode", "no hook is configured"),
    "nothing would relaunch": (
        {"facts": {"hook": Answer(name="signal", allows=False, text="nothing starts it again")}},
        "hook", "the hook signal refuses: nothing starts it again"),
    "trigger switched off": (
        {"settings": {"triggers": ()}}, "trigger", "the trigger incident is disabled"),
    "incident forgotten": ({"facts": {"incident": None}}, "trigger", "no longer known"),
    "incident ended": (
        {"facts": {"incident": replace(INCIDENT, resolved_t=NOW)}}, "trigger", "ended"),
    "a GPU's fault that is not its own": (
        {"facts": {"incident": ON_HOST}}, "trigger", "no restart is known to cure"),
    "no restart cures it": (
        {"facts": {"incident": replace(INCIDENT, restart_advised=False)}}, "trigger",
        "no restart is known to cure engine_stalled (hang)"),
    "silenced": (
        {"facts": {"silenced": True}},
        "trigger", "silenced"),
    "the trouble is over": (
        {"facts": {"incident": replace(INCIDENT, phase="recovering", firing=False, ended_t=NOW - 16)}},
        "trigger", "the trouble is over since 2026-09-21 14:13:04Z; the incident is recovering"),
    "the last scrape no longer shows the incident": (
        {"facts": {"incident": replace(INCIDENT, firing=False)}}, "trigger", "the last scrape no longer shows the incident"),
    "the last scrape is old": (
        {"facts": {"stale": "the last scrape is 45 s old"}}, "trigger", "the last scrape is 45 s old"),
    "a schedule, and the last scrape is old": (
        {"facts": {"stale": "the last scrape is 45 s old"}, "request": {"trigger": "schedule", "incident_id": None}},
        "trigger", "the last scrape is 45 s old"),
    "a yes to trouble that is over": (
        {"facts": {"incident": replace(INCIDENT, phase="recovering", firing=False)},
         "request": {"approved_by": "ana"}}, "trigger", "the trouble is over"),
    "a yes to what the last scrape did not find": (
        {"facts": {"incident": replace(INCIDENT, firing=False)}, "request": {"approved_by": "ana"}},
        "trigger", "the last scrape no longer shows the incident"),
    "an alert about another process": (
        {"facts": {"replaced": "another process serves"}, "request": {"trigger": "alertmanager", "incident_id": None}},
        "trigger", "another process serves"),
    "a schedule whose conditions do not hold": (
        {"facts": {"condition": "it has run for 8 s, less than 1000"}, "request": {"trigger": "schedule", "incident_id": None}},
        "trigger", "it has run for 8 s, less than 1000"),
    "paused": (
        {"facts": {"pause": Paused(actor="ana", reason="migration")}}, "pause",
        "paused by ana: migration"),
    "frozen": (
        {"settings": frozen(NOW - 5, NOW + 60, "launch")}, "freeze", "launch"),
    "denied window": (
        {"settings": {"deny_windows": ("Mon-Fri 08:00-18:00",)}}, "freeze", "until 2026-09-21 18:00:00Z"),
    "window closed": (
        {"settings": {"windows": ("Tue 01:00-05:00",)}}, "window", "next opens 2026-09-22 01:00:00Z"),
    "a leak, and no window to wait for": (
        {"request": {"kind": "host_memory_growth", "cause": "leak"}}, "window",
        "host_memory_growth (leak) is not urgent: it needs a window (restart.windows), and none is configured"),
    "another rank of its gang": (
        {"facts": {"gang": (Answer(name="dp-1", allows=False, text="it is loading"),)}}, "gang",
        "dp-1 of its gang: it is loading"),
    "asked for by another rank, and at work": (
        {"facts": {"asker": "chat-0", "state": "serving"}}, "engine_state",
        "the gang is not stuck"),
    "starting": ({"facts": {"state": "starting"}}, "engine_state", "still loading"),
    "asleep": ({"facts": {"state": "sleeping"}}, "engine_state", "serves no requests on purpose"),
    "state unknown": ({"facts": {"state": None}}, "engine_state", "not known"),
    "disk full": ({"facts": {"journal_refusal": "no space left"}}, "journal", "no space left"),
    "journal unread": ({"facts": {"attempts": None}}, "journal", "cannot be read"),
    "under way": (
        {"facts": {"attempts": (attempt(60, "verifying", target="chat-0"),)}, "settings": {"budget_per_hour": 9, "cooldown_seconds": 0, "cooldown_load_times": 0}}, "under_way", "a60 has been under way"),
    "one is still verified": (
        {"facts": {"busy": "a9"}}, "under_way", "a9 is not verified yet"),
    "cooldown": (
        {"facts": {"attempts": (attempt(1700, "helped"),)}, "settings": {"budget_per_hour": 9}},
        "cooldown", "the next restart is allowed from"),
    "an intent holds its part of the budget": (
        {"facts": {"attempts": (attempt(60, "intent", called_t=None),)},
         "settings": {"cooldown_seconds": 0, "cooldown_load_times": 0}}, "budget", "1 of 1"),
    "budget of the hour": (
        {"facts": {"attempts": (attempt(3500, "helped"),)}}, "budget", "1 of 1 restarts in the last hour"),
    "no budget at all": ({"settings": {"budget_per_day": 0}}, "budget", "0 of 0"),
    "did not help": (
        {"facts": {"attempts": (attempt(40_000, "did_not_help"),)}}, "breaker", "did not help"),
    "uncertain": (
        {"facts": {"attempts": (attempt(40_000, "uncertain"),)}}, "breaker", "may not have happened"),
    "failed": (
        {"facts": {"attempts": (attempt(40_000, "failed", text="exit 1"),)}}, "breaker", "failed (exit 1)"),
    "served in vain, and a peer's helped since": (
        {"facts": {"attempts": (
            attempt(50_000, "did_not_help", target="chat-0", incident_id="i1"), attempt(40_000, "helped"))}},
        "breaker", "only a person may order another"),
    "can not start": (
        {"facts": {"start_failure": "max_model_len is too large"}}, "start_failure", "too large"),
    "new version": ({"facts": {"version_first_t": NOW - 60}}, "new_version", "only observes until"),
    "version unknown": ({"facts": {"version_first_t": None}}, "new_version", "first run of this version is unknown"),
    "unprotected": (
        {"settings": {"blockers": BlockersSettings(), "lock": LockSettings()}}, "protection", "explicit peers: none"),
    "peers unknown": ({"facts": {"peers": None}}, "peers", "health of its peers is unknown"),
    "too few peers": (
        {"facts": {"peers": Peers(healthy=1, total=4, unknown=2)}}, "peers",
        "1 of 4 in the group would stay healthy, 2 unknown; 50% must"),
    "alert fires": (
        {"facts": {"blockers": (Answer(name="alerts", allows=False, text="NodeDown fires"),)}},
        "blockers", "alerts: NodeDown fires"),
    "prometheus away": (
        {"facts": {"blockers": (Answer(name="prometheus", allows=None, text="timed out"),)}},
        "blockers", "timed out"),
    "lock taken": (
        {"facts": {"lock": Answer(name="lease", allows=False, text="held by other")}}, "lock", "held by other"),
    "lock unasked": (
        {"facts": {"lock": Answer(name="lease", allows=None, text="no answer")}}, "lock", "no answer"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "check", "words"), REFUSALS.values(), ids=REFUSALS)
def test_refuses(change, check, words):
    """Each check refuses alone, says so under its slug, and in words."""
    decision = asked(**change)

    assert decision.verdict in (guard.REFUSE, guard.WAIT)
    assert decision.check == check
    assert words in decision.text
    assert list(decision.refusals) == [check]


def test_every_check_has_a_row():
    """No check is left untried."""
    assert {check for _, check, _ in REFUSALS.values()} | {"approval"} == set(guard.CHECK_NAMES)


UNTIL: dict[str, tuple[dict[str, Any], float]] = {
    "pause": ({"facts": {"pause": Paused(actor="a", reason="b", until_timestamp_seconds=NOW + 9)}}, NOW + 9),
    "freeze": ({"settings": frozen(NOW - 5, NOW + 60)}, NOW + 60),
    "new version": ({"facts": {"version_first_t": NOW - 60}}, NOW + 3540),
}  # fmt: skip


@pytest.mark.parametrize(("change", "until_t"), UNTIL.values(), ids=UNTIL)
def test_waits_for_what_passes_with_time(change, until_t):
    """What time alone mends is waited for, and is over at that very moment."""
    decision = asked(**change)
    assert (decision.verdict, decision.until_t) == (guard.WAIT, until_t)

    later = change | {"facts": change.get("facts", {}) | {"t": until_t}}
    assert asked(**later).verdict == guard.ACT


def test_a_fault_of_the_host_restarts_the_targets_that_it_names():
    """And no other one that it concerns: that row is above."""
    assert asked({"target": "chat-1"}, facts={"incident": ON_HOST}).verdict == guard.ACT


def test_of_several_freezes_the_one_that_ends_last_holds():
    """To its last moment, and from its first."""
    both = frozen(NOW, NOW + 10)["freezes"] + frozen(NOW - 5, NOW + 99, "long")["freezes"]
    assert asked(settings={"freezes": both}).until_t == NOW + 99
    assert asked(settings=frozen(NOW - 10, NOW)).verdict == guard.ACT
    assert asked(settings=frozen(NOW + 1, NOW + 10)).verdict == guard.ACT


YES, NO = (Answer(name=name, allows=name == "yes", text="it says so") for name in ("yes", "no"))
NEXT: dict[str, tuple[dict[str, Any], str, str | None]] = {
    # what has been said: what is done next
    "no blocker is configured": (
        {"settings": {"blockers": BlockersSettings(), "lock": LockSettings(kind="file")}, "facts": {"blockers": None}},
        guard.ACT, None),
    "... and no lock": (
        {"settings": {"blockers": BlockersSettings(), "lock": LockSettings(), "peers": "none"},
         "facts": {"blockers": None, "lock": None}}, guard.ACT, None),
    "one blocker of two blocks": ({"facts": {"blockers": (YES, NO), "lock": None}}, guard.REFUSE, "blockers"),
    "... before the gang is asked": ({"facts": {"blockers": (NO, YES), "gang": None, "lock": None}}, guard.REFUSE, "blockers"),
    "the gang was not asked": ({"facts": {"gang": None, "lock": None}}, guard.ASK, "gang"),
    "one rank of two objects": ({"facts": {"gang": (YES, NO), "lock": None}}, guard.REFUSE, "gang"),
    "all agree, and the lock was not asked": ({"facts": {"gang": (YES, YES), "blockers": (YES, YES), "lock": None}}, guard.ASK, "lock"),
    "... and it is a dry run": ({"settings": {"mode": "observe"}, "facts": {"lock": None}}, guard.OBSERVE, None),
    "... and a person must approve": ({"settings": {"mode": "approve"}, "facts": {"lock": None}}, guard.APPROVE, "approval"),
    "... and a person has approved": (
        {"settings": {"mode": "approve"}, "request": {"approved_by": "ana"}, "facts": {"lock": None}}, guard.ASK, "lock"),
    "the hook could not say": (
        {"facts": {"hook": Answer(name="docker", allows=None, text="no answer"), "blockers": None, "lock": None}},
        guard.REFUSE, "hook"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "verdict", "check"), NEXT.values(), ids=NEXT)
def test_what_is_asked_next(change, verdict, check):
    """Nothing that is not configured, nothing twice, and nothing more once one has refused."""
    decision = asked(**change)
    assert (decision.verdict, decision.check) == (verdict, check)


def test_observe_and_approve_do_not_act_by_themselves():
    """A dry run says what it would do; approval waits for a person, who then has acted in their own name."""
    assert asked(settings={"mode": "observe"}).verdict == guard.OBSERVE
    waits = asked(settings={"mode": "approve"})
    assert (waits.verdict, waits.check) == (guard.APPROVE, "approval")
    assert asked(settings={"mode": "approve"}, request={"approved_by": "ana"}).verdict == guard.ACT


PERSONS: dict[str, tuple[dict[str, Any], str | None]] = {
    "acts": ({}, None),
    "in mode observe too": ({"settings": {"mode": "observe"}}, None),
    "not when off": ({"settings": {"mode": "off"}}, "mode"),
    "after a failure": ({"facts": {"attempts": (attempt(40_000, "did_not_help"),)}}, None),
    "after an old look": ({"facts": {"stale": "the last scrape is 45 s old"}}, None),
    "in an unknown state": ({"facts": {"state": "unknown"}}, None),
    "not while it starts": ({"facts": {"state": "starting"}}, "engine_state"),
    "not in a freeze": ({"settings": frozen(NOW - 5, NOW + 60)}, "freeze"),
    "in a freeze with a reason": (
        {"settings": frozen(NOW - 5, NOW + 60), "request": {"override_reason": "dead"}}, None),
    "in a closed window with a reason": (
        {"settings": {"windows": ("Tue 01:00-05:00",)}, "request": {"override_reason": "dead"}}, None),
    "not beyond the budget": ({"facts": {"attempts": (attempt(3500, "helped"),)}}, "budget"),
    "not when peers are down": ({"facts": {"peers": Peers(healthy=0, total=4)}}, "peers"),
    "not without a journal": ({"facts": {"journal_refusal": "full"}}, "journal"),
    "not against a pause": ({"facts": {"pause": Paused(actor="bo", reason="x")}}, "pause"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "check"), PERSONS.values(), ids=PERSONS)
def test_person(change, check):
    """A person goes through the same guard; what only keeps us from acting by ourselves does not hold them."""
    decision = asked(**change, base=PERSON)
    assert (decision.verdict == guard.ACT, decision.check) == (check is None, check)


def test_watcher_may_not_override_a_freeze():
    """A reason without a person is none."""
    change = frozen(NOW - 5, NOW + 60)
    assert asked(settings=change, request={"override_reason": "x"}).check == "freeze"


LEAK = {"kind": "host_memory_growth", "cause": "leak"}

UNHURRIED: dict[str, tuple[dict[str, Any], str]] = {
    "in its window": ({"settings": {"windows": ("Mon 00:00-24:00",)}}, guard.ACT),
    "before its window": ({"settings": {"windows": ("Tue 01:00-05:00",)}}, guard.WAIT),
    "no window, by itself": ({}, guard.REFUSE),
    "no window, as it would be": ({"settings": {"mode": "observe"}}, guard.REFUSE),
    "no window, and a person is asked": ({"settings": {"mode": "approve"}}, guard.APPROVE),
    "no window, and a person has agreed": (
        {"settings": {"mode": "approve"}, "request": {"approved_by": "ana"}}, guard.ACT),
    "no window, and a person has agreed in mode auto": ({"request": {"approved_by": "ana"}}, guard.ACT),
    "an alert that somebody routed to it": (
        {"request": {"trigger": "alertmanager"}, "settings": {"triggers": ("alertmanager",)}}, guard.ACT),
}  # fmt: skip


@pytest.mark.parametrize(("change", "verdict"), UNHURRIED.values(), ids=UNHURRIED)
def test_what_is_no_emergency_waits_for_a_window(change, verdict):
    """A leak of host memory costs nobody anything yet: without windows it is for people, schedules and alerts."""
    assert asked(**change | {"request": LEAK | change.get("request", {})}).verdict == verdict


RANKS: dict[str, tuple[dict[str, Any], str | None]] = {
    "it works": ({"facts": {"asker": "chat-0", "state": "serving"}}, "engine_state"),
    "it works, and asks itself": ({"facts": {"state": "serving"}}, None),
    "it hangs, too": ({"facts": {"asker": "chat-0"}}, None),
    "it works, and a schedule asks": (
        {"facts": {"asker": "chat-0", "state": "serving"}, "settings": {"triggers": ("schedule",)},
         "request": {"trigger": "schedule", "incident_id": None}}, None),
    "it works, and a person asks": (
        {"facts": {"asker": "chat-0", "state": "serving"}, "request": {"approved_by": "ana"}}, None),
    "the incident is the other's": ({"request": {"target": "chat-1"}, "facts": {"asker": "chat-0"}}, None),
    "the incident is another server's": ({"request": {"target": "chat-1"}}, "trigger"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "check"), RANKS.values(), ids=RANKS)
def test_a_rank_that_another_asks_for(change, check):
    """What works shows that the gang is not stuck; that is nothing against who does not ask for that."""
    assert asked(**change).check == check


CLOCKS_GO_BACK: dict[str, tuple[str, dict[str, Any], str | None]] = {
    # in Berlin at 01:00 UTC on 2026-10-25: from 02:00 to 03:00 it is twice, and now the second time
    "forbidden from the first to the second": ("2026-10-25 01:00", {"deny_windows": ("Sun 02:30-02:45",)}, "freeze"),
    "forbidden to the end of the second": ("2026-10-25 01:44", {"deny_windows": ("Sun 02:30-02:45",)}, "freeze"),
    "allowed in neither": ("2026-10-25 00:35", {"windows": ("Sun 02:30-02:45",)}, "window"),
    "none is left that opens": ("2026-10-18 12:00", {"windows": ("Sun 02:30-02:45",)}, "window"),
    "allowed a week before": ("2026-10-18 00:35", {"windows": ("Sun 02:30-02:45",)}, None),
}  # fmt: skip


@pytest.mark.parametrize(("at", "settings", "check"), CLOCKS_GO_BACK.values(), ids=CLOCKS_GO_BACK)
def test_in_an_hour_that_is_twice_it_waits(at, settings, check):
    """Of two readings of the clock the one that keeps it from acting holds."""
    t = datetime.fromisoformat(f"{at}+00:00").timestamp()
    facts = {"t": t, "version_first_t": t - 7200}
    assert asked(settings=settings | {"time_zone": "Europe/Berlin"}, facts=facts).check == check


def test_all_that_stands_against_it_is_told():
    """A person who asks why not now sees every check, in order."""
    decision = asked(
        settings=frozen(NOW - 5, NOW + 60),
        facts={"state": "starting", "start_failure": "no memory"},
    )
    assert list(decision.refusals) == ["freeze", "engine_state", "start_failure"]
    assert decision.verdict == guard.WAIT


def helped(*ago_seconds):
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
    "what never touched the engine": (
        {"attempts": (attempt(60, "dry_run"), attempt(50, "cancelled"))}, {}, None, None),
    "what was called late counts from then": (
        {"attempts": (attempt(4000, "helped", called_t=NOW - 3000),)}, FREE, "budget", NOW + 600),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "settings", "check", "until_t"), PACE.values(), ids=PACE)
def test_how_often_it_may_be_restarted(facts, settings, check, until_t):
    """Cooldown and budget: which restarts count, and when the next may come."""
    decision = asked(facts=facts, settings=settings)
    assert (decision.check, decision.until_t) == (check, until_t)


def _i1(ago_seconds, state, **more):
    return attempt(ago_seconds, state, **{"target": "chat-0", "incident_id": "i1"} | more)


FAILED = attempt(50_000, "did_not_help")
BREAKER: dict[str, tuple[tuple[Attempt, ...], float | None, str | None]] = {
    # what was tried, how long ago a person resumed: what stands against it
    "the last one in time, not in the list": ((attempt(40_000, "helped"), FAILED), None, None),
    "it was called after the one that helped": (
        (replace(FAILED, called_t=NOW - 30_000), attempt(40_000, "helped")), None, "breaker"),
    "one that is not verified yet has helped nobody": ((FAILED, attempt(30_000, "verifying")), None, "breaker"),
    "a person resumed since": ((FAILED,), 40_000, None),
    "a person resumed before": ((FAILED,), 60_000, "breaker"),
    "another incident of this target had its own": ((_i1(40_000, "helped", incident_id="i0"),), None, None),
    "this incident had one on another target": ((_i1(40_000, "helped", target="chat-1"),), None, None),
    "this incident had one here": ((_i1(40_000, "helped"),), None, "breaker"),
    "... before a person resumed, who gives it another": ((_i1(40_000, "helped"),), 30_000, None),
    "... after that": ((_i1(40_000, "helped"),), 50_000, "breaker"),
    "a hook that failed did nothing for it, and a peer's helped since": (
        (_i1(50_000, "failed"), attempt(40_000, "helped")), None, None),
    "a dry run for this incident": ((_i1(40_000, "dry_run"),), None, None),
}  # fmt: skip


@pytest.mark.parametrize(("attempts", "ago_s", "check"), BREAKER.values(), ids=BREAKER)
def test_what_opens_the_breaker(attempts, ago_s, check):
    """The last restart of the group that failed, or one for this very incident; a person closes it, or one that helped."""
    facts = {"attempts": attempts, "breaker_reset_t": 0.0 if ago_s is None else NOW - ago_s}
    assert asked(facts=facts).check == check


def test_a_restart_for_no_incident_has_not_served_another():
    """A schedule's restart yesterday, and a schedule's today: neither is for an incident."""
    scheduled = {"trigger": "schedule", "incident_id": None}
    before = attempt(40_000, "helped", target="chat-0", trigger="schedule", incident_id=None)
    facts, settings = {"attempts": (before,)}, {"triggers": ("schedule",)}
    assert asked(scheduled, settings, facts).verdict == guard.ACT


def test_only_an_attempt_on_this_server_is_under_way_on_it():
    """A peer's, or one that has ended, is not."""
    settings = FREE | {"budget_per_hour": 9}
    for other in (attempt(60, "verifying"), attempt(60, "helped", target="chat-0")):
        assert asked(facts={"attempts": (other,)}, settings=settings).check is None
    mine = attempt(60, "verifying", target="chat-0")
    found = asked(facts={"attempts": (attempt(60, "verifying"), mine)}, settings=settings)
    assert found.check == "under_way"


PEERS: dict[str, tuple[Peers, dict[str, Any], str | None]] = {
    "half of two": (Peers(healthy=1, total=2), {}, None),
    "nobody else is there, with it or without": (Peers(healthy=0, total=1), {}, None),
    "less than half": (Peers(healthy=1, total=3), {}, "peers"),
    "less than half, which is enough here": (Peers(healthy=1, total=4), {"peers_healthy_ratio_min": 0.25}, None),
    "none of two": (Peers(healthy=0, total=2), {}, "peers"),
    "peers are not asked for": (Peers(healthy=0, total=2), {"peers": "none"}, None),
}  # fmt: skip


@pytest.mark.parametrize(("peers", "settings", "check"), PEERS.values(), ids=PEERS)
def test_who_must_be_left(peers, settings, check):
    """At least the share that the settings ask for, of a group with more than one."""
    assert asked(facts={"peers": peers}, settings=settings).check == check


@pytest.mark.parametrize("mode", ["observe", "approve"])
def test_what_keeps_it_from_acting_by_itself_holds_in_mode_auto_alone(mode):
    """A new version, and nothing that keeps two from being restarted at once: a dry run shows what it would do."""
    bare = {"mode": mode, "blockers": BlockersSettings(), "lock": LockSettings()}
    for facts in ({"version_first_t": None}, {"version_first_t": NOW}):
        assert asked(settings=bare, facts=facts).verdict in (guard.OBSERVE, guard.APPROVE)
    acted = asked(settings=bare | {"mode": "auto"}, base=PERSON, facts={"version_first_t": None})
    assert acted.verdict == guard.ACT


def test_no_reason_is_no_override():
    """Nor does a window that never opens become an open one."""
    closed = {"windows": ("Tue 01:00-05:00",)}
    assert asked(settings=closed, base=PERSON).check == "window"
    assert asked(settings=closed, request={"override_reason": "x"}).check == "window"
    assert asked(settings={"deny_windows": ("Mon-Fri 08:00-18:00",)}, base=PERSON).check == "freeze"
