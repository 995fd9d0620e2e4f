"""Ranks that step together are restarted all, or none is: by one attempt, and none twice."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.restart.dispatching import Story
from tests.restart.test_crash import KILLED
from tests.restart.watcher import Watchers, on_disk
from tests.restart.world import MATE, REQUEST, Server, command, hanging
from vllm_watch.restart import guard, restart, verify
from vllm_watch.restart.facts import Peers
from vllm_watch.settings.restart import LockSettings
from vllm_watch.settings.target import TargetConfig


@pytest.fixture
def mate(tmp_path):
    """The other rank: it has nothing to do and reads healthy."""
    (tmp_path / "mate").mkdir()
    mate = Server(tmp_path / "mate")
    mate.start()
    yield mate
    mate.end_all()


class Gang(Story):
    """Two ranks, one of which hangs."""

    def __init__(self, server, mate, script="restarts", **kept):
        settings = kept.pop("mate_settings", {})
        super().__init__(server, **kept)
        self.world.add_mate(mate, **settings)
        self.backends.others["mate"] = command(mate, script)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(restart, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(verify, "STOP_SECONDS", 0.5)


@pytest.fixture
def idle(monkeypatch):
    """Of the servers here, one that runs reads `serving`: in these tests it has nothing to do."""
    signals, read = Server.signals, {"serving": "idle"}

    def as_idle(self, fresh_ratio=1.0):
        found = signals(self, fresh_ratio)
        return replace(found, state=read.get(found.state, found.state))

    monkeypatch.setattr(Server, "signals", as_idle)
    return read


@pytest.mark.usefixtures("idle")
async def test_a_gang_is_one_server_of_its_group(server, mate):
    """No rank is a peer that would be left to serve."""
    async with Gang(server, mate) as story:
        for name in ("chat-0", MATE):
            story.world.look(name)
        assert story.world.targets.peers("chat-0") == Peers(healthy=0, total=1)
        assert TargetConfig(name="a", url="http://a", gang="ranks").identity().gang == "ranks"


@pytest.mark.usefixtures("idle")
async def test_one_attempt_restarts_every_rank(server, mate):
    """One intent that names both, one unit of the budget, and an id of its own for each call."""
    async with Gang(server, mate) as story:
        story.dispatcher.submit(REQUEST)
        attempt = await story.fulfilled()
        assert attempt.state == "helped"
        assert attempt.names == ("chat-0", MATE)
        assert server.lines("ended") == [attempt.id]
        assert mate.lines("ended") == [f"{attempt.id}-{MATE}"]
        (known,) = await story.journal.attempts()
        assert set(known.gang or {}) == {MATE}
        history = story.world.targets.history(MATE, [known])
        assert [each.spent for each in history] == [True]
        last = story.dispatcher.attempts.ledger.last(MATE)
        assert last is not None
        assert last[0].id == attempt.id


AGAINST: dict[str, tuple[dict[str, Any], str]] = {
    "it loads": ({"state": "starting"}, "chat-1 of its gang: the engine is starting"),
    "it works": ({"state": "serving"}, "the gang is not stuck"),
    "it is off": ({"mode": "off"}, "chat-1 of its gang: restarts are off"),
    "only a person may": ({"mode": "approve"}, "chat-1 of its gang: it waits for a person's approval"),
    "another lock": ({"lock": LockSettings(kind="file")}, "it has a different restart.lock"),
}  # fmt: skip


@pytest.mark.parametrize("name", AGAINST)
async def test_what_is_against_one_is_against_all(server, mate, name, idle):
    """No hook is called, of none of them."""
    settings, text = AGAINST[name]
    idle["serving"] = settings.get("state", "idle")
    mate_settings = {key: value for key, value in settings.items() if key != "state"}
    async with Gang(server, mate, mate_settings=mate_settings) as story:
        decision = await story.decided()
        assert (decision.verdict, decision.check) == (guard.REFUSE, "gang")
        assert text in decision.text
        assert (server.lines("called"), mate.lines("called")) == ([], [])


@pytest.mark.usefixtures("idle")
async def test_a_hook_that_failed_for_one_is_told(server, mate):
    """The other has been restarted: this one is called again, and then it is for a person."""
    async with Gang(server, mate, script="always busy") as story:
        story.dispatcher.submit(REQUEST)
        attempt = await story.fulfilled()
        assert attempt.state == "did_not_help"
        assert f"not restarted: {MATE}: /bin/sh ended with status 75" in attempt.text
        assert (len(server.lines("called")), len(mate.lines("called"))) == (
            1,
            restart.RETRIES_MAX + 1,
        )


@pytest.mark.usefixtures("idle")
async def test_a_gang_that_changed_is_decided_anew(server, mate, monkeypatch):
    """Who left while requests finished is not restarted, nor are the others alone."""
    async with Gang(server, mate) as story:
        gone = story.world.evidence.keep

        async def keep(attempt):
            story.world.targets.managed.pop(MATE, None)
            return await gone(attempt)

        monkeypatch.setattr(story.world.evidence, "keep", keep)
        story.dispatcher.submit(REQUEST)
        await story.until(
            lambda: story.dispatcher.attempts.outcomes[("chat-0", "incident", "cancelled")]
        )
        assert (server.lines("called"), mate.lines("called")) == ([], [])


POINTS = ("before hook.restart 1", "hook called 1", "mate called", "after hook.restart 1")
"""Before the first call, within each of them, and between them."""


def test_killed_at_any_call_no_rank_is_called_twice(tmp_path):
    """The next watcher says that each may have been restarted, calls none, and leaves it to a person."""
    pool = Watchers(), Watchers()
    try:
        with ThreadPoolExecutor(len(pool)) as threads:
            shares = [
                threads.submit(_kill_at, watchers, tmp_path, POINTS[number :: len(pool)])
                for number, watchers in enumerate(pool)
            ]
            for share in shares:
                share.result()
    finally:
        for each in pool:
            each.close()


def _kill_at(watchers, tmp_path, points):
    for point in points:
        folder = tmp_path / point.replace(" ", "-")
        with hanging(folder) as server, hanging(folder / "mate") as mate:
            servers = server, mate
            assert watchers.run(servers[0], point) == KILLED, point
            assert watchers.run(servers[0], "") == 0, point
            # A hook outlives the watcher that called it, so its line may come late; a second call has one of its own.
            assert all(len(each.lines("called")) <= 1 for each in servers), point
        (attempt,) = on_disk(folder)
        assert attempt.names == ("chat-0", MATE), point
        assert attempt.state in ("did_not_help", "helped", "uncertain"), point
        told = f"the hooks of chat-0, {MATE} were called: each may have acted"
        assert told in (folder / "log").read_text(), point
