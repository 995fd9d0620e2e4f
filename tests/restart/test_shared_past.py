"""Two watchers over one engine, each with a journal of its own: what one has tried, the other knows from the lock."""

import json
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.kubernetes_api import NAMESPACE, FakeKubernetes
from tests.restart.dispatching import Story
from tests.restart.world import REQUEST
from vllm_watch.restart.locks import lease as lease_lock
from vllm_watch.restart.locks.record import Limits

pytestmark = pytest.mark.usefixtures("quick")

EAGER = {
    "cooldown_seconds": 0.0,
    "cooldown_load_times": 0.0,
    "budget_per_hour": 100,
    "budget_per_day": 100,
}
LIMITS = Limits(slots=1)
THEIRS = replace(REQUEST, incident_id="i2")
"""The same trouble, as the second watcher calls it."""


class Lease:
    """The lock's record; each watcher has a client of its own."""

    def __init__(self, api, folder):
        self._api, self._folder = api, folder

    def watcher(self):
        shared = lease_lock.Shared(self._api.api(self._folder), NAMESPACE, "gpu")
        return lambda: lease_lock.Lock(shared, LIMITS, 60.0)

    @property
    def _annotations(self):
        said: dict[str, str] = self._api.objects["leases", NAMESPACE, "gpu"]["metadata"][
            "annotations"
        ]
        return said

    async def past(self):
        """Return the record's last attempts."""
        found: list[dict[str, Any]] = json.loads(self._annotations[lease_lock.ANNOTATION])["past"]
        return found

    async def damage(self):
        record = json.loads(self._annotations[lease_lock.ANNOTATION])
        record["past"] = [{"id": "x"}]
        self._annotations[lease_lock.ANNOTATION] = json.dumps(record)


@asynccontextmanager
async def lease(folder):
    async with FakeKubernetes().running() as api:
        yield Lease(api, folder / "pod")


def second(server, lock, **how):
    """The other watcher, whose state folder is its own."""
    story = Story(server, lock=lock, settings=EAGER, folder="state-2", holder="them", **how)
    story.incident(name="i2")
    return story


async def test_hook_that_did_not_help_is_not_called_by_the_second(server, tmp_path):
    """Until a person there says so; and what it does then, the first one knows."""
    async with lease(tmp_path) as place:
        ours, theirs = place.watcher(), place.watcher()
        async with Story(server, "does nothing", lock=ours, settings=EAGER) as story:
            story.dispatcher.submit(REQUEST)
            assert (await story.fulfilled()).state == "did_not_help"
        assert [each["state"] for each in await place.past()] == ["did_not_help"]
        async with second(server, theirs) as story:
            decision = await story.decided(THEIRS)
            assert (decision.verdict, decision.check) == ("refuse", "breaker")
            assert "did not help (known from the lock)" in decision.text
            assert len(server.lines("called")) == 1
            await story.resumed()
            assert (await story.fulfilled()).state == "helped"
        assert [each["state"] for each in await place.past()] == ["did_not_help", "helped"]


async def test_call_is_written_before_it_is_made(server, tmp_path):
    """And who dies with it open is uncertain for the other, once its slot is free."""
    async with lease(tmp_path) as place:
        ours, theirs = place.watcher(), place.watcher()
        async with Story(server, "hangs", lock=ours, settings=EAGER) as story:
            story.dispatcher.submit(REQUEST)
            while not server.lines("called"):
                story.world.change.clear()
                await story.world.change.wait()
            assert [each["state"] for each in await place.past()] == ["calling"]
        (past,) = await place.past()
        dead = ours()
        await dead.acquire("us", past["id"])
        await dead.release()
        held = await theirs().acquire("them", "another")
        assert [each.state for each in held.others] == ["uncertain"]


async def test_past_that_is_damaged_is_a_no(server, tmp_path):
    async with lease(tmp_path) as place:
        lock = place.watcher()
        async with Story(server, lock=lock, settings=EAGER) as story:
            story.dispatcher.submit(REQUEST)
            await story.fulfilled()
        await place.damage()
        server.hang()
        async with second(server, lock) as story:
            decision = await story.decided(THEIRS)
            assert decision.check == "lock"
        assert len(server.lines("called")) == 1


async def test_clock_of_another_that_is_ahead_blocks_for_one_cooldown(server, tmp_path):
    """An attempt of next year counts from when it was first seen, and a person ends it."""
    async with lease(tmp_path) as place:
        ours, theirs = place.watcher(), place.watcher()
        ahead = REQUEST.attempt("a1", "intent", "script", time.time() + 365 * 86400.0)
        other = ours()
        await other.acquire("us", "a1", ahead)
        await other.release(ended=replace(ahead, state="did_not_help"))
        async with second(server, theirs) as story:
            story.dispatcher.submit(THEIRS)
            await story.until(lambda: story.dispatcher.blocked[("chat-0", "breaker")])
            await story.resumed()
            assert (await story.fulfilled()).state == "helped"
