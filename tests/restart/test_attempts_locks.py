"""The lock of an attempt: renewed while it goes on, given back once nothing acts any more, taken again by the next run."""

import asyncio
from typing import Any, cast

import pytest
import structlog

from tests.restart.test_attempts import Run, left
from tests.restart.world import SETTINGS, Server
from vllm_watch.restart import attempts as attempts_module
from vllm_watch.restart import verify
from vllm_watch.restart.locks.base import Held, Lock
from vllm_watch.state.attempt import Attempt

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
async def run(server: Server) -> Any:
    """A run on a server that hangs."""
    run = Run(server)
    yield run
    await run.close()


class Lent:
    """A lock that notes what is done with it, and may be another's."""

    ttl_seconds = 0.03

    def __init__(self, held: bool | None = True) -> None:
        self.held, self.renewing = held, False
        self.done: list[str] = []

    async def acquire(self, *_: object) -> Held:
        return Held(held=self.held, text="another's")

    async def renew(self, *_: object) -> Held:
        self.renewing = True
        try:
            await asyncio.Event().wait()
        finally:
            self.done.append("renewed no more")
        raise AssertionError

    def still_ours(self) -> bool:
        return True

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        assert ended is not None
        self.done.append(f"released by one that {ended.state}, {'used' if used else 'unused'}")


async def test_a_lock_is_given_back_after_its_last_renewal(run: Run) -> None:
    """Or a late one would take it again."""
    lock = Lent()
    run.world.fresh_ratio = None
    await run.begin("a1", cast("Lock", lock))
    assert (await run.ended()).state == "helped"
    await given_back_by(lock)
    assert lock.renewing
    assert lock.done == ["renewed no more", "released by one that helped, used"]


async def given_back_by(lock: Lent) -> None:
    """Wait until it is."""
    async with asyncio.timeout(10):
        while not any(each.startswith("released") for each in lock.done):
            await asyncio.sleep(0.01)


STOPPED: dict[str, tuple[str, list[str]]] = {
    # in which state our own end comes: what becomes of the lock
    "intent": ("intent", ["released by one that intent, unused"]),
    "verifying": ("verifying", []),
}


@pytest.mark.parametrize(("state", "released"), STOPPED.values(), ids=STOPPED)
async def test_a_watcher_that_ends_after_the_call_keeps_the_lock(
    server: Server, state: str, released: list[str]
) -> None:
    """Its server may be loading: the next run takes both up."""
    run = Run(server, "never starts")
    run.world.settings = SETTINGS.model_copy(
        update={"drain": SETTINGS.drain.model_copy(update={"deadline_seconds": 60.0})}
        if state == "intent"
        else {}
    )
    lock = Lent()
    await run.begin("a1", cast("Lock", lock))
    async with asyncio.timeout(10):
        while (await run.on_disk()) != {"a1": state}:
            await asyncio.sleep(0.01)
    await run.close()
    assert run.attempts.busy("chat-0") is None
    assert [each for each in lock.done if each.startswith("released")] == released


@pytest.mark.parametrize(("held", "told"), [(True, 0), (False, 1), (None, 1)])
async def test_a_resumed_attempt_without_its_lock_is_told(
    server: Server, held: bool | None, told: int
) -> None:
    """It is verified all the same: the server is as it is."""
    before = verify.before(server.signals(), ("engine_stalled",))
    server.start()
    lent = Lent(held)
    run = Run(server, lock=lambda: cast("Lock", lent))
    await run.journal.write(left("verifying", before))
    with structlog.testing.capture_logs() as logs:
        await run.attempts.resume()
        assert (await run.ended()).state == "helped"
    assert [each["event"] for each in logs].count("lock_not_held") == told
    await run.close()


async def test_a_lock_is_renewed_three_times_within_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that two renewals may fail before it is lost."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    class Held30:
        ttl_seconds = 30.0

        async def renew(self) -> Held:
            return Held(held=True, text="")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await attempts_module._renew(cast("Lock", Held30()))
    assert slept == [10.0, 10.0, 10.0]


async def test_a_lock_that_is_not_renewed_is_logged_once() -> None:
    """Each change for the worse: not each try, and not that it is ours again."""

    class Renewing:
        ttl_seconds = 0.01

        def __init__(self) -> None:
            self.left = [True, False, False, False, None, True]

        async def renew(self) -> Held:
            if not self.left:
                raise asyncio.CancelledError
            held = self.left.pop(0)
            return Held(held=held, text=f"held: {held}")

    with structlog.testing.capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await attempts_module._renew(cast("Lock", Renewing()))
    said = [each["because"] for each in logs if each["event"] == "lock_not_renewed"]
    assert said == ["held: False", "held: None"]
