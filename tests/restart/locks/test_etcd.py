"""The etcd lock, against real etcd servers that are stopped, killed, started again and cut off."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.etcd_process import Member, Wire, answers, etcd
from tests.kubernetes_api import certified
from vllm_watch.clients.etcd import Access, Etcd, EtcdError
from vllm_watch.restart.hooks.base import Tools, new_session
from vllm_watch.restart.locks import etcd as kind
from vllm_watch.restart.locks.etcd import Lock, Shared
from vllm_watch.restart.locks.record import Limits
from vllm_watch.settings.restart import LockSettings


class Etcds:
    """The servers, and watchers that ask them."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def watcher(self, *endpoints: str) -> Shared:
        return Shared(self.client(*endpoints), "gpu")

    def client(self, *endpoints: str) -> Etcd:
        return Etcd(Access(endpoints=endpoints or self.endpoints), new_session)

    def lock(
        self, watcher: Shared | None = None, *, slots: int = 1, ttl_seconds: float = 60.0,
        per_hour: int | None = None,
    ) -> Lock:  # fmt: skip
        return Lock(watcher or self.watcher(), Limits(slots=slots, per_hour=per_hour), ttl_seconds)

    async def keys(self) -> list[str]:
        return [
            each.key.removeprefix("vllm-watch/gpu/")
            for each in await self.client().range("vllm-watch/gpu/")
        ]


@asynccontextmanager
async def servers(folder: Path, count: int = 1) -> AsyncIterator[Etcds]:
    async with etcd(folder, count) as members:
        yield Etcds(members)


async def until(asked: Callable[[], Any], seconds: float = 30.0) -> None:
    """Ask again and again, as the guard does."""
    async with asyncio.timeout(seconds):
        while (await asked()).held is not True:
            await asyncio.sleep(0.3)


async def test_one_at_a_time_and_its_hour(tmp_path: Path) -> None:
    """The second is told who has it; after the release it is free, and nothing is left but the hour."""
    async with servers(tmp_path) as here:
        first, second = here.lock(per_hour=2), here.lock(per_hour=2)
        assert (await first.acquire("w1", "a1")).held is True
        assert (await first.acquire("w1", "a1")).held is True
        assert await here.keys() == ["hour/0000", "slot/0000"]
        refused = await second.acquire("w2", "a2")
        assert (refused.held, refused.text) == (False, "held by w1 (a1)")
        assert (first.still_ours(), second.still_ours()) == (True, False)

        await first.release()
        assert not first.still_ours()
        assert await here.keys() == ["hour/0000"]
        assert (await second.acquire("w2", "a2")).held is True
        await second.release()
        spent = await here.lock(per_hour=2).acquire("w3", "a3")
        assert (spent.held, spent.text[:36]) == (False, "2 of 2 restarts in an hour are spent")


async def test_what_was_not_used_leaves_nothing(tmp_path: Path) -> None:
    """Neither a rest nor an hour; what was used rests."""
    async with servers(tmp_path) as here:
        unused = here.lock(per_hour=1)
        await unused.acquire("w1", "a1")
        await unused.release(60.0, used=False)
        assert await here.keys() == []
        used = here.lock()
        await used.acquire("w1", "a2")
        await used.release(1.0)
        resting = await here.lock().acquire("w2", "a3")
        assert (resting.held, resting.text) == (False, "it rests after a2")
        await until(lambda: here.lock().acquire("w2", "a3"))


async def test_hour_lasts_an_hour(tmp_path: Path) -> None:
    """Etcd itself counts it, from the end of the restart."""
    async with servers(tmp_path) as here:
        used = here.lock(per_hour=1)
        await used.acquire("w1", "a1")
        await used.release()
        (hour,) = await here.client().range("vllm-watch/gpu/")
        said = await here.client()._call("lease/timetolive", {"ID": str(hour.lease_id)})
        assert (said["grantedTTL"], 3590 < int(said["TTL"]) <= 3600) == ("3600", True)


async def test_dead_holder_is_succeeded(tmp_path: Path) -> None:
    """Three TTLs after its last sign; it has stopped believing by then. Who renews is not succeeded."""
    async with servers(tmp_path) as here:
        dead, alive = here.lock(slots=2, ttl_seconds=1.0), here.lock(slots=2, ttl_seconds=3.0)
        await dead.acquire("w1", "a1")
        await alive.acquire("w2", "a2")
        third = here.lock(slots=2)
        assert "and 1 more" in (await third.acquire("w3", "a3")).text
        await asyncio.sleep(1.1)
        assert not dead.still_ours()
        assert (await alive.renew()).held is True
        await until(lambda: third.acquire("w3", "a3"))
        assert (await alive.renew()).held is True
        lost = await dead.renew()
        assert (lost.held, lost.text[:11]) == (False, "it was lost")
        await dead.release()
        assert third.still_ours()
        assert await here.keys() == ["slot/0000", "slot/0001"]


async def test_next_run_of_a_watcher_takes_up_what_it_held(tmp_path: Path) -> None:
    """Under the same attempt it is the same slot, which it can renew and give back."""
    async with servers(tmp_path) as here:
        await here.lock(per_hour=1).acquire("w1 process 7", "a1")
        again = here.lock(per_hour=1)
        assert (await again.acquire("w1 process 8", "a1")).held is True
        assert again.still_ours()
        assert (await again.renew()).held is True
        assert (await here.lock(per_hour=9).acquire("w2", "a2")).held is False
        await again.release(used=False)
        assert (await here.lock(per_hour=1).acquire("w2", "a2")).held is True


async def test_deleted_key_is_lost(tmp_path: Path) -> None:
    """A person has said that nobody holds it."""
    async with servers(tmp_path) as here:
        mine = here.lock()
        await mine.acquire("w1", "a1")
        (slot,) = await here.client().range("vllm-watch/gpu/slot/")
        await here.client().revoke(slot.lease_id)
        assert ((await mine.renew()).held, mine.still_ours()) == (False, False)


async def test_etcd_that_is_stopped_killed_and_back(tmp_path: Path) -> None:
    """Without an answer there is never a yes; what was held before is held after, for as long again."""
    async with servers(tmp_path) as here:
        (member,) = here.members
        mine, watcher = here.lock(ttl_seconds=5.0), here.watcher()
        await mine.acquire("w1", "a1")
        member.send(signal.SIGSTOP)
        renewed, other = await asyncio.gather(mine.renew(), here.lock(watcher).acquire("w2", "a2"))
        assert (renewed.held, other.held) == (None, None)
        member.kill()
        assert (await mine.renew()).held is None
        await asyncio.sleep(2)
        assert not mine.still_ours()
        member.start()
        await answers(here.client())
        assert (await here.lock(watcher).acquire("w2", "a2")).held is False
        assert (await mine.renew()).held is True
        assert mine.still_ours()
        await mine.release()
        assert (await here.lock(watcher).acquire("w2", "a3")).held is True


async def test_holder_that_is_cut_off_stops_before_others_begin(tmp_path: Path) -> None:
    """Its own clock ends its lease; when it is back it finds that it has lost."""
    async with servers(tmp_path) as here, Wire(here.endpoints[0]).open() as wire:
        mine = here.lock(here.watcher(wire.endpoint), ttl_seconds=1.5)
        assert (await mine.acquire("w1", "a1")).held is True
        wire.cut()
        other = here.lock(ttl_seconds=60)
        stopped = asyncio.create_task(mine.renew())
        await until(lambda: other.acquire("w2", "a2"))
        assert not mine.still_ours()
        assert (await stopped).held is None
        wire.mend()
        assert (await mine.renew()).held is False
        assert other.still_ours()


async def test_answer_that_was_lost_is_made_up_for(tmp_path: Path) -> None:
    """It has the slot and does not know: the attempt is void, and its process's next asking tidies up."""
    async with (
        servers(tmp_path) as here,
        Wire(here.endpoints[0], lose=b"/v3/kv/txn").open() as wire,
    ):
        watcher = here.watcher(wire.endpoint)
        mine = here.lock(watcher, per_hour=1)
        assert (await mine.acquire("w1", "a1")).held is None
        assert not mine.still_ours()
        assert await here.keys() == ["hour/0000", "slot/0000"]
        assert (await here.lock(slots=2, per_hour=1).acquire("w2", "a2")).held is False
        wire.mend()
        assert (await here.lock(watcher, per_hour=1).acquire("w1", "a3")).held is True
        assert await here.keys() == ["hour/0000", "slot/0000"]


async def test_lock_that_nobody_took_is_not_held(tmp_path: Path) -> None:
    """Nothing is asked of anybody for it, and giving it back does nothing."""
    async with servers(tmp_path) as here:
        mine = here.lock()
        renewed = await mine.renew()
        assert (renewed.held, renewed.text) == (False, "it is not held")
        await mine.release()
        assert await here.keys() == []


async def test_restart_whose_slot_could_not_be_given_back_counts_for_its_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is tidied up later is the slot of it, and not the hour."""
    async with servers(tmp_path) as here:
        (member,) = here.members
        watcher = here.watcher()
        mine = here.lock(watcher, per_hour=1)
        assert (await mine.acquire("w1", "a1")).held is True
        monkeypatch.setattr(kind, "ASK_SECONDS", 0.5)
        member.send(signal.SIGSTOP)
        await mine.release(used=True)
        assert [end.attempt_id for end in watcher._ends] == ["a1"]
        member.send(signal.SIGCONT)
        monkeypatch.undo()
        await answers(here.client())
        refused = await here.lock(watcher, per_hour=1).acquire("w1", "a3")
        assert (refused.held, refused.text[:36]) == (False, "1 of 1 restarts in an hour are spent")
        assert (watcher._ends, watcher._left) == ([], [])


async def test_who_was_slower_waits_before_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer each time; what was given back is not made up for."""
    tries: list[int] = []
    put = Etcd.put

    async def back_off(number: int) -> None:
        tries.append(number)

    async def late(client: Etcd, changes: Any) -> bool:
        return len(tries) > 2 and await put(client, changes)

    monkeypatch.setattr(kind, "_back_off", back_off)
    monkeypatch.setattr(Etcd, "put", late)
    async with servers(tmp_path) as here:
        watcher = here.watcher()
        mine = here.lock(watcher)
        assert (await mine.acquire("w1", "a1")).held is True
        assert tries == [0, 1, 2]
        await mine.release()
        assert (watcher._ends, watcher._left) == ([], [])


async def test_leader_of_three_is_killed(tmp_path: Path) -> None:
    """The others elect one within seconds; the lock is held all the while, and one endpoint is away."""
    async with servers(tmp_path, 3) as here:
        mine, watcher = here.lock(ttl_seconds=10.0), here.watcher()
        await mine.acquire("w1", "a1")
        here.members[0].kill()
        async with asyncio.timeout(30):
            while (await mine.renew()).held is not True:
                await asyncio.sleep(0.3)
        assert mine.still_ours()
        assert (await here.lock(watcher).acquire("w2", "a2")).held is False
        here.members[1].kill()
        assert (await mine.renew()).held is None
        assert (await here.lock(watcher).acquire("w2", "a3")).held is None


async def test_twenty_contend_for_three_slots(tmp_path: Path) -> None:
    """Each asks until it had its turn, never more than three hold, and each is spent once."""
    holding: set[int] = set()
    worst, full = 0, asyncio.Event()
    async with servers(tmp_path) as here:

        async def contend(number: int) -> None:
            nonlocal worst
            mine, chance = here.lock(slots=3, per_hour=25), random.Random(number)
            await until(lambda: mine.acquire(f"w{number}", f"a{number}"), 60)
            holding.add(number)
            worst = max(worst, len(holding))
            if worst == 3:
                full.set()
            await full.wait()
            await asyncio.sleep(chance.random() * 0.2)
            holding.discard(number)
            await mine.release()

        async with asyncio.timeout(120):
            await asyncio.gather(*(contend(number) for number in range(20)))
        assert worst == 3
        assert await here.keys() == [f"hour/{number:04}" for number in range(20)]


async def test_certificates(tmp_path: Path) -> None:
    """Etcd is trusted by what signed it, and trusts us by ours; without either nothing is asked."""
    certificate, _ = certified(tmp_path / "tls")
    async with etcd(tmp_path, certificate=certificate) as (member,):
        settings = LockSettings(
            kind="etcd", endpoints=(member.endpoint,), ca_file=certificate,
            certificate_file=certificate, key_file=certificate.with_name("tls.key"),
        )  # fmt: skip
        assert (await kind.make(settings, Tools()).acquire("w1", "a1")).held is True
        refused = await kind.make(settings, Tools()).acquire("w2", "a2")
        assert (refused.held, refused.text) == (False, "held by w1 (a1)")
        for without in ({"ca_file": None}, {"certificate_file": None, "key_file": None}):
            stranger = kind.make(settings.model_copy(update=without), Tools())
            assert (await stranger.acquire("w3", "a3")).held is None
        missing = settings.model_copy(update={"ca_file": tmp_path / "none"})
        assert "check ca_file" in (await kind.make(missing, Tools()).acquire("w4", "a4")).text


STRANGERS = {
    "another server": '{"status": "success"}',
    "no JSON": "<html>",
    "a list": "[]",
    "a key that is a number": '{"kvs": [{"key": 5}]}',
}


@pytest.mark.parametrize("body", STRANGERS.values(), ids=STRANGERS)
async def test_what_is_no_etcd_is_never_a_yes(body: str) -> None:
    """Whatever it answers."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        client = Etcd(
            Access(endpoints=(f"http://127.0.0.1:{runner.addresses[0][1]}",)), new_session
        )
        mine = Lock(Shared(client, "gpu"), Limits(slots=1), 60.0)
        assert (await mine.acquire("w1", "a1")).held is not True
        assert not mine.still_ours()
    finally:
        await runner.cleanup()


async def test_error_names_every_endpoint() -> None:
    """And what to do."""
    client = Etcd(Access(endpoints=("http://127.0.0.1:1", "http://127.0.0.1:2")), new_session)
    with pytest.raises(EtcdError, match=r"127.0.0.1:1: .*127.0.0.1:2: .*etcdctl"):
        await client.range("x")
