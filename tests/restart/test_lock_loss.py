"""A watcher that loses its lock stops before it acts: the whole way from the request to the hook, over a Lease."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kubernetes_api import NAMESPACE, FakeKubernetes, status
from tests.restart.world import LOCKED, REQUEST, TARGET, Backends, LookedAt, Server, World, command
from vllm_watch.restart import restart, verify
from vllm_watch.restart.controls import Controls
from vllm_watch.restart.dispatcher import Dispatcher
from vllm_watch.restart.locks.lease import Lock, Shared
from vllm_watch.restart.locks.record import Limits
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

KEY = ("leases", NAMESPACE, "gpu")


class Troubled(LookedAt):
    """Something happens while requests are let finish, before the last question."""

    def __init__(self, world: World, trouble: Callable[[], None]) -> None:
        super().__init__(world)
        self._trouble = trouble

    def draining(self, name: str, *, on: bool) -> None:
        super().draining(name, on=on)
        if on:
            self._trouble()


async def restarted(
    server: Server,
    folder: Path,
    trouble: Callable[[FakeKubernetes], None],
    ttl_seconds: float = 60.0,
) -> tuple[Attempt, FakeKubernetes]:
    """Wish once for a restart, have the trouble come in the middle, and return how it ended."""
    async with FakeKubernetes().running() as api:
        shared = Shared(api.api(folder / "pod"), NAMESPACE, "gpu")
        world = World(server, LOCKED)
        targets = Troubled(world, lambda: trouble(api))
        targets.managed = world.targets.managed
        journal = Journal(server.folder)
        backends = Backends(
            lambda: command(server, "restarts"),
            lambda: Lock(shared, Limits(slots=1, per_hour=1), ttl_seconds), holder="us",
        )  # fmt: skip
        dispatcher = Dispatcher(targets, journal, Controls(journal, "1"), backends, world.evidence)
        try:
            await dispatcher.resume()
            decision, attempt = await dispatcher.decide_now(REQUEST)
            assert (decision.verdict, decision.text) == ("act", "every check passed")
            assert attempt is not None
            async with asyncio.timeout(30):
                while dispatcher.attempts.busy(TARGET.name) is not None:
                    world.change.clear()
                    await world.change.wait()
            last = dispatcher.attempts.last(TARGET.name)
            assert last is not None
            return last[0], api
        finally:
            await dispatcher.attempts.stop()
            await journal.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "BLIND_SECONDS", 0.01)
    monkeypatch.setattr(verify, "STOP_SECONDS", 0.3)


async def test_lock_that_is_kept_is_used_and_given_back(server: Server, tmp_path: Path) -> None:
    """The restart counts for the hour, and nothing else is left."""
    ended, api = await restarted(server, tmp_path, lambda _: None)
    assert ended.state == "helped"
    assert server.lines("called")
    said = api.objects[KEY]["metadata"]["annotations"]["vllm-watch/lock"]
    assert '"slots":[]' in said
    assert ended.id in said


def deleted(api: FakeKubernetes) -> None:
    del api.objects[KEY]


def taken_over(api: FakeKubernetes) -> None:
    metadata = api.objects[KEY]["metadata"]
    said = metadata["annotations"]["vllm-watch/lock"]
    metadata["annotations"]["vllm-watch/lock"] = said.replace(
        '"attempt_id":"', '"attempt_id":"other-'
    )
    metadata["resourceVersion"] = "77"


def away(api: FakeKubernetes) -> None:
    api.instead += [
        status(503, "ServiceUnavailable", "apiserver is shutting down") for _ in range(50)
    ]


def no_rights(api: FakeKubernetes) -> None:
    api.token = "another"


LOST = {
    "a person has deleted it": (deleted, "the lock was lost"),
    "somebody else has taken it up": (taken_over, "the lock was lost"),
    "the API server is going down": (away, "apiserver is shutting down"),
    "our token is not taken any more": (no_rights, "HTTP 401"),
}


@pytest.mark.parametrize(("trouble", "said"), LOST.values(), ids=LOST)
async def test_who_has_lost_it_does_not_act(
    server: Server, tmp_path: Path, trouble: Callable[[FakeKubernetes], None], said: str
) -> None:
    """The hook is not called, and the journal says why."""
    ended, _ = await restarted(server, tmp_path, trouble)
    assert (ended.state, server.lines("called")) == ("cancelled", [])
    assert said in ended.text


async def test_attempt_that_was_given_up_is_not_spent(server: Server, tmp_path: Path) -> None:
    """Its slot is free and the hour as before, once the API server is back."""

    def once(api: FakeKubernetes) -> None:
        api.instead += [status(403, "Forbidden", "a webhook said no")]

    ended, api = await restarted(server, tmp_path, once)
    assert (ended.state, server.lines("called")) == ("cancelled", [])
    said = api.objects[KEY]["metadata"]["annotations"]["vllm-watch/lock"]
    assert said == '{"slots":[],"spent":[],"past":[]}'
