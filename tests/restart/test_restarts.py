"""Schedules, reloads, locks and the memory of a dry run: how the parts are joined."""

import asyncio
import sqlite3
import time

import pytest

from tests.daemon_process import daemon
from tests.restart.station import station
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

WEEKLY = {"name": "weekly", "cron": "0 4 * * sun"}


async def test_a_schedule_that_is_due_asks(tmp_path):
    """Through the guard as everything else; it is wanted for as long as it may be late."""
    async with station(tmp_path, schedules=[WEEKLY]) as one:
        plan = await one.shown(lambda plan: plan["next_scheduled_timestamp_seconds"])
        assert 0 < plan["next_scheduled_timestamp_seconds"] - time.time() <= 7 * 86400
        one.restarts._due("a", one.config.restart.schedules[0])
        (pending,) = await one.decided()
        assert (pending.request.trigger, pending.request.schedule) == ("schedule", "weekly")
        assert pending.request.expires_t == pytest.approx(time.time() + 3600, abs=30)


async def test_what_is_begun_twice_runs_once(tmp_path):
    """A reload begins it, too: two loops would call a hook twice, and a schedule would be due twice."""
    async with station(tmp_path, schedules=[WEEKLY]) as one:
        await asyncio.gather(one.restarts.start(), one.restarts.start())
        running = [task.get_name() for task in asyncio.all_tasks()]
        assert (running.count("restarts"), running.count("schedules")) == (1, 1)


async def test_a_dry_run_is_told_once(tmp_path):
    async with station(tmp_path, mode="observe", start=False) as one:
        await one.journal.write(Attempt(
            id="x", target="a", group="g", trigger="incident", hook="h", reason="", actor="",
            state="dry_run", began_t=time.time(), incident_id="engine_stalled-a",
        ))  # fmt: skip
        await one.restarts._plan.read_attempts()
        one.incident()
        assert one.restarts.dispatcher.waiting("a") == []


async def test_a_lock_that_cannot_be_made_is_a_no(tmp_path, monkeypatch):
    """Whatever the reason: what is not held keeps nobody else away."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with station(tmp_path, mode="auto", lock={"kind": "lease"}) as one:
        one.incident()
        (pending,) = await one.decided()
        assert (pending.decision.check, pending.decision.verdict) == ("lock", "refuse")
        assert not (tmp_path / "calls").exists()


async def test_a_journal_that_takes_writes_again_is_no_trouble(tmp_path):
    """Without a request for a restart, which would try: an alert on it must end by itself."""
    async with station(tmp_path, start=False) as one:
        other = sqlite3.connect(tmp_path / "vllm-watch.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await one.journal.probe()
        assert "locked" in one.journal.trouble
        other.execute("ROLLBACK")
        other.close()
        await one.restarts._check_incidents()
        assert one.journal.trouble is None


async def test_a_reload_stands_in_the_journal(tmp_path):
    config = tmp_path / "config.yaml"
    text = f"state_dir: {tmp_path}/state\ntargets: [{{name: a, url: 'http://127.0.0.1:1'}}]\n"
    config.write_text(text)
    async with daemon("--config", config) as process:
        config.write_text(text + "scrape: {interval_seconds: 7}\nrestart: {mode: observe}\n")
        assert (await process.get("/-/reload", "POST"))[0] == 200
        status = await process.until(lambda s: s["targets"] and s["targets"][0]["restart"])
        assert status["targets"][0]["restart"]["mode"] == "observe"
        assert await process.end() == 0
    journal = Journal(tmp_path / "state")
    (entry,) = [each for each in await journal.entries() if each.action == "reload"]
    await journal.close()
    assert entry.source == "127.0.0.1"
    assert entry.before == "restart.mode: off"
    assert entry.after == "restart.mode: observe"


async def test_an_attempt_does_not_hold_the_end_up(tmp_path):
    """A hook that waits is cut off: what it did is for the next run to see."""
    async with station(tmp_path, peers="none") as one:
        (tmp_path / "hook").write_text("#!/bin/sh\nsleep 60\n")
        await one.ask("/api/v1/targets/a/restart", {"reason": "x"})
        # It is called once a scrape has found the same process again.
        await one.shown(
            lambda plan: one.look() or (plan["under_way"] or {}).get("state") == "calling"
        )
        began = asyncio.get_running_loop().time()
        await one.restarts.stop()
        assert asyncio.get_running_loop().time() - began < 4
