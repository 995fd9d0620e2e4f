"""What operators ask for: what comes of it, what is answered, and what is written down."""

import time
from dataclasses import replace

import pytest

from tests.restart.station import station
from vllm_watch.incidents.incident import RECOVERING, IncidentEvent


async def test_a_person_restarts_a_target(tmp_path):
    """The attempt begins at once; who, from where and why stand in the journal."""
    async with station(tmp_path) as one:
        status, said = await one.ask("/api/v1/targets/a/restart", {"reason": "driver update"})
        assert (status, said["verdict"]) == (202, "act")
        plan = await one.shown(lambda plan: plan["under_way"])
        assert plan["under_way"]["id"] == said["attempt"]
        assert plan["under_way"]["actor"] == "anna"
        (entry,) = await one.entries("restart")
        assert (entry.actor, entry.source, entry.target) == ("anna", "127.0.0.1", "a")
        assert (entry.reason, entry.before) == ("driver update", "serving: said so")
        assert entry.after == "act: every check passed"


@pytest.mark.parametrize(("restart", "gate"), [({"mode": "off"}, "mode"), ({"budget_per_day": 0}, "budget")])  # fmt: skip
async def test_a_person_is_refused_with_all_that_is_against_it(tmp_path, restart, gate):
    """409, the gate that decided, and each check's sentence."""
    async with station(tmp_path, **restart) as one:
        status, said = await one.ask("/api/v1/targets/a/restart", {"reason": "now"})
        assert (status, said["gate"]) == (409, gate)
        assert said["error"] == said["gates"][0]["text"]


async def test_an_override_with_a_reason_opens_a_freeze(tmp_path):
    async with station(tmp_path, deny_windows=["00:00-24:00"]) as one:
        status, said = await one.ask("/api/v1/targets/a/restart", {"reason": "now"})
        assert (status, said["gate"]) == (409, "freeze")
        body = {"reason": "dead", "override_freeze": "it serves nobody"}
        assert (await one.ask("/api/v1/targets/a/restart", body))[0] == 202
        (_, entry) = await one.entries("restart")
        assert entry.reason == "dead; override: it serves nobody"


async def test_unknown_names_are_not_found(tmp_path):
    async with station(tmp_path) as one:
        assert (await one.ask("/api/v1/targets/zz/restart", {"reason": "x"}))[0] == 404
        assert (await one.ask("/api/v1/incidents/zz/approve"))[0] == 404
        assert (await one.ask("/api/v1/incidents/zz/silence", {"reason": "x"}))[0] == 404


async def test_without_a_disk_nobody_restarts_anything(tmp_path):
    """Mode observe needs no state folder, and then a person's request is refused, too."""
    async with station(tmp_path, mode="observe", state_dir=False) as one:
        incident = one.incident()
        plan = await one.shown(lambda plan: plan["last"])
        assert (plan["last"]["state"], plan["last"]["incident_id"]) == ("dry_run", incident)
        status, said = await one.ask("/api/v1/targets/a/restart", {"reason": "x"})
        assert (status, said["remedy"]) == (409, "Set state_dir")
        assert not (tmp_path / "calls").exists()


async def test_nothing_to_approve(tmp_path):
    """An incident for which no restart is known to help does not wait for a yes."""
    async with station(tmp_path) as one:
        incident = one.incident(advised=False)
        status, said = await one.ask(f"/api/v1/incidents/{incident}/approve")
        assert (status, said["error"]) == (409, "No restart waits for this incident's approval")
        one.incident("resolved", advised=False)
        status, said = await one.ask(f"/api/v1/incidents/{incident}/approve")
        assert (status, said["error"]) == (409, "The incident has ended")


async def test_trouble_that_is_over(tmp_path):
    """A yes to it is refused; a restart that a person demands by name is made, and is told the same."""
    async with station(tmp_path) as one:
        name, now_t = one.incident(), time.time()
        found = one.restarts.targets.incident(name)
        over = replace(found, phase=RECOVERING, firing=False, ended_t=now_t)
        one.look(events=[IncidentEvent("updated", now_t, over)])
        status, said = await one.ask(f"/api/v1/incidents/{name}/approve")
        # Decided anew while the request waits, or said of the incident once the request is gone.
        assert (status, said["error"][:26].lower()) == (409, "the trouble is over since ")
        status, said = await one.ask("/api/v1/targets/a/restart", {"reason": "to be sure"})
        assert (status, "; but the trouble is over since " in said["text"]) == (202, True)


async def test_a_silenced_incident_restarts_nothing(tmp_path):
    """The request stays, and says why it waits."""
    async with station(tmp_path, mode="auto", peers="none", budget_per_hour=0) as one:
        incident = one.incident()
        body = {"reason": "I look at it", "minutes": 5}
        status, said = await one.ask(f"/api/v1/incidents/{incident}/silence", body)
        assert status == 200
        assert said["until_timestamp_seconds"] == pytest.approx(time.time() + 300, abs=20)
        plan = await one.shown(
            lambda plan: plan["waiting"] and plan["waiting"][0]["gate"] == "trigger"
        )
        assert plan["waiting"][0]["text"] == "the incident was silenced by a person"
        assert [gate["gate"] for gate in plan["waiting"][0]["gates"]] == ["trigger", "budget"]
        (entry,) = await one.entries("silence")
        assert (entry.actor, entry.before) == ("anna", "not silenced")


async def test_pause_and_resume(tmp_path):
    """Both are shown at once, on every target, and written down with what was before and after."""
    async with station(tmp_path, targets=("a", "b")) as one:
        assert (await one.ask("/api/v1/pause", {"reason": "a move", "minutes": 10}))[0] == 200
        for name in ("a", "b"):
            plan = await one.shown(lambda plan: plan["paused"], name)
            assert (plan["paused"]["actor"], plan["paused"]["reason"]) == ("anna", "a move")
        status, said = await one.ask("/api/v1/targets/a/restart", {"reason": "x"})
        assert (status, said["gate"]) == (409, "pause")
        status, said = await one.ask("/api/v1/resume", {"reason": "moved"})
        assert status == 200
        await one.shown(lambda plan: not plan["paused"], "b")
        (paused,), (resumed,) = await one.entries("pause"), await one.entries("resume")
        assert paused.before == "not paused"
        assert resumed.before == paused.after
        assert paused.after.startswith("paused by anna until ")
        assert resumed.reason == "moved"


async def test_a_disk_that_fails_is_no_yes(tmp_path):
    """503, so that who asks knows that it does not hold."""
    async with station(tmp_path) as one:
        await one.journal.close()  # as if its thread had died
        for path, body in (("/api/v1/pause", {"reason": "x"}), ("/api/v1/resume", {})):
            assert (await one.ask(path, body))[0] == 503
        status, said = await one.ask("/api/v1/targets/a/restart", {"reason": "x"})
        assert status in (409, 503), said
