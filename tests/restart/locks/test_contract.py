"""What every kind of lock does, whatever it is kept in; what is one kind's own: test_file.py, test_lease.py."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.kubernetes_api import NAMESPACE, FakeKubernetes
from tests.restart.waits import Clock
from vllm_watch.clients.kubernetes import Api
from vllm_watch.restart.locks import file, lease
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.locks.record import Limits

ROOT = Path(__file__).parents[3]
KEY = ("leases", NAMESPACE, "gpu")


class FilePlace:
    """A lock of one host."""

    def __init__(self, folder):
        self._folder = folder
        self._kept = folder / "gpu.lock.json"
        self.words = (str(folder),)

    def watcher(self):
        """Its watchers remember nothing."""

    def lock(self, _=None, *, slots=1, ttl_seconds=60.0, per_hour=None):  # fmt: skip
        return file.Lock(
            self._folder, "gpu", slots=slots, ttl_seconds=ttl_seconds, per_hour=per_hour
        )

    @property
    def kept(self):
        return json.loads(self._kept.read_text())

    def remove(self):
        self._kept.unlink()


class LeasePlace:
    """A lock of one cluster: an API server, and watchers that ask it."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder

    def watcher(self, token=None):
        return lease.Shared(self.server.api(self.folder, token), NAMESPACE, "gpu")

    def lock(self, watcher=None, *, slots=1, ttl_seconds=60.0, per_hour=None):
        limits = Limits(slots=slots, per_hour=per_hour)
        return lease.Lock(watcher or self.watcher(), limits, ttl_seconds)

    @property
    def words(self):
        api = self.server.api(self.folder)
        return api.url, str(api.token_file)

    @property
    def lease(self):
        return self.server.objects[KEY]

    @property
    def kept(self):
        return json.loads(self.lease["metadata"]["annotations"][lease.ANNOTATION])

    def remove(self):
        del self.server.objects[KEY]


@contextlib.asynccontextmanager
async def cluster(folder):
    async with FakeKubernetes().running() as server:
        yield LeasePlace(server, folder / "pod")


@pytest.fixture(params=["file", "lease"])
async def place(request, tmp_path):
    if request.param == "file":
        yield FilePlace(tmp_path)
        return
    async with cluster(tmp_path) as here:
        yield here


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch, file, lease)


async def until(asked, seconds=20.0):
    """Ask again and again, as the guard does."""
    async with asyncio.timeout(seconds):
        while (await asked()).held is not True:
            await asyncio.sleep(0.2)


async def test_one_at_a_time(place):
    first, second = place.lock(), place.lock()
    assert (await first.acquire("w1", "a1")).held is True
    refused = await second.acquire("w2", "a2")
    assert refused.held is False
    assert "held by w1 (a1)" in refused.text
    assert (first.still_ours(), second.still_ours()) == (True, False)
    await first.release()
    assert not first.still_ours()
    assert (await second.acquire("w2", "a2")).held is True


async def test_slots(place):
    """As many as there are slots, and not one more; who still has another keeps it."""
    first, second = place.lock(slots=2), place.lock(slots=2)
    for number, each in enumerate((first, second)):
        assert (await each.acquire("w", f"a{number}")).held is True
    refused = await place.lock(slots=2).acquire("w", "a2")
    assert (refused.held, "and 1 more" in refused.text) == (False, True)
    await first.release()
    assert (await place.lock(slots=2).acquire("w", "a2")).held is True
    assert (await place.lock(slots=2).acquire("w", "a3")).held is False
    assert second.still_ours()


async def test_twice_under_one_attempt_is_once(place):
    """A retry takes no second slot; the next run of the watcher can renew the first one's and give it back."""
    mine = place.lock(slots=2)
    for _ in range(2):
        assert (await mine.acquire("w1 process 7", "a1")).held is True
    again = place.lock(slots=2, per_hour=1)
    assert (await again.acquire("w1 process 8", "a1")).held is True
    assert again.still_ours()
    assert (await again.renew()).held is True
    assert [slot["attempt_id"] for slot in place.kept["slots"]] == ["a1"]
    assert (await place.lock().acquire("w2", "a2")).held is False
    await again.release(used=False)
    assert (await place.lock(per_hour=1).acquire("w2", "a2")).held is True


async def test_lease_ends_without_a_sign_of_its_holder(place, clock):
    """A holder that does not renew stops believing two TTLs before others may have it; renewing prolongs."""
    first, watcher = place.lock(ttl_seconds=6000), place.watcher()
    await first.acquire("w1", "a1")
    clock.passes(4000)
    assert (await first.renew()).held is True
    assert (await place.lock(watcher).acquire("w2", "a2")).held is False
    clock.passes(4000)
    assert first.still_ours()
    clock.passes(2000)
    assert not first.still_ours()
    clock.passes(11_000)
    assert (await place.lock(watcher).acquire("w2", "a2")).held is False
    clock.passes(1001)
    assert (await place.lock(watcher).acquire("w2", "a2")).held is True
    lost = await first.renew()
    assert (lost.held, "it was lost" in lost.text, first.still_ours()) == (False, True, False)


async def test_so_many_in_an_hour(place, clock):
    """What is under way counts, and for an hour from its end; what was given up before the hook does not."""
    unused, used, watcher = place.lock(per_hour=1), place.lock(per_hour=1), place.watcher()
    await unused.acquire("w1", "a1")
    await unused.release(60.0, used=False)
    for _ in range(2):
        assert (await used.acquire("w1", "a2")).held is True
    refused = await place.lock(watcher, slots=2, per_hour=1).acquire("w2", "a3")
    assert (refused.held, refused.text[:34]) == (False, "1 of 1 restarts per hour are spent")
    await used.release()
    for seconds in (0, 3590):
        clock.passes(seconds)
        refused = await place.lock(watcher, per_hour=1).acquire("w2", "a3")
        assert (refused.held, refused.text[:34]) == (False, "1 of 1 restarts per hour are spent")
    clock.passes(11)
    assert (await place.lock(watcher, per_hour=1).acquire("w2", "a3")).held is True


async def test_release_delay(place, clock):
    first, watcher = place.lock(), place.watcher()
    await first.acquire("w1", "a1")
    await first.release(delay_seconds=5000)
    for seconds, held in ((0, False), (4000, False), (1001, True)):
        clock.passes(seconds)
        assert (await place.lock(watcher).acquire("w2", "a2")).held is held


async def test_what_was_never_taken_cannot_be_renewed(place):
    mine = place.lock()
    assert ((await mine.renew()).held, mine.still_ours()) == (False, False)
    await mine.release()
    assert (await place.lock().acquire("w2", "a2")).held is True


async def test_slot_that_was_lost_is_not_given_back(place):
    """Its restart rests for nobody, and the slot of who has it now stays."""
    mine, other = place.lock(), place.lock()
    assert (await mine.acquire("w1", "a1")).held is True
    place.remove()
    assert (await other.acquire("w2", "a2")).held is True
    before = place.kept
    await mine.release(600)
    assert place.kept == before


async def test_what_a_person_has_removed_is_lost(place):
    """Its holder learns it when it renews, and acts no more."""
    mine = place.lock()
    assert (await mine.acquire("w1", "a1")).held is True
    place.remove()
    assert mine.still_ours()
    assert ((await mine.renew()).held, mine.still_ours()) == (False, False)
    assert (await mine.renew()).held is False


async def test_twenty_contend_for_three_slots(place):
    """Each asks until it had its turn: never more than three hold, each gets it, none is spent twice."""
    holding: set[str] = set()
    worst, full = 0, asyncio.Event()

    async def contend(number):
        nonlocal worst
        watcher, chance = place.watcher(), random.Random(number)
        mine = place.lock(watcher, slots=3)
        await until(lambda: mine.acquire(f"w{number}", f"a{number}"), 60)
        assert mine.still_ours()
        holding.add(f"w{number}")
        worst = max(worst, len(holding))
        if worst == 3:
            full.set()
        await full.wait()
        await asyncio.sleep(chance.random() * 0.2)
        holding.discard(f"w{number}")
        await mine.release()
        # A release that lost to the others too often goes with this watcher's next change.
        for again in range(20):
            if all(slot["holder"] != f"w{number}" for slot in place.kept["slots"]):
                return
            await until(partial(mine.acquire, f"w{number}", f"a{number}-{again}"), 60)
            await mine.release(used=False)

    async with asyncio.timeout(240):
        await asyncio.gather(*(contend(number) for number in range(20)))
    assert (worst, len(place.kept["spent"]), place.kept["slots"]) == (3, 20, [])


HOLD = """
import asyncio, sys
from tests.restart.locks.test_contract import held_by_a_process
asyncio.run(held_by_a_process(*sys.argv[1:]))
"""


async def held_by_a_process(where, token_file=""):
    """Runs in a process of its own: take the lock, renew it as attempts do, until killed."""
    mine: Lock = file.Lock(Path(where), "gpu", slots=1, ttl_seconds=0.9)
    if token_file:
        api = Api(url=where, token_file=Path(token_file), namespace=NAMESPACE)
        shared = lease.Shared(api, NAMESPACE, "gpu")
        mine = lease.Lock(shared, Limits(slots=1), 0.9)
    print((await mine.acquire("w1", "attempt of w1")).held, flush=True)
    while True:
        await asyncio.sleep(mine.ttl_seconds / 3)
        await mine.renew()
        print(mine.still_ours(), flush=True)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_process_that_dies_or_hangs_is_succeeded(place, end):
    """Its slot comes free after three times its TTL; one that wakes up again finds that it has lost."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, *place.words,
        stdout=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert (await process.stdout.readline()).strip() == b"True"
        watcher = place.watcher()
        assert (await place.lock(watcher).acquire("w2", "a2")).held is False
        process.send_signal(end)
        await until(lambda: place.lock(watcher).acquire("w2", "a2"))
        if end == signal.SIGSTOP:
            process.send_signal(signal.SIGCONT)
            async with asyncio.timeout(20):
                while (await process.stdout.readline()).strip() != b"False":
                    pass
        assert [slot["holder"] for slot in place.kept["slots"]] == ["w2"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
