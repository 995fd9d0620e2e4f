"""What every kind of lock does, whatever it is kept in; what is one kind's own: test_file.py, test_lease.py."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.restart.locks.lease_cluster import KEY, Cluster, cluster
from tests.restart.waits import Clock
from vllm_watch.restart.locks import file, lease
from vllm_watch.restart.locks.base import Lock


class FilePlace:
    """A lock of one host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = folder / "gpu.lock.json"

    def watcher(self) -> None:
        """Its watchers remember nothing."""

    def lock(self, _: None = None, *, slots: int = 1, ttl_seconds: float = 60.0, per_hour: int | None = None) -> Lock:  # fmt: skip
        return file.Lock(
            self._folder, "gpu", slots=slots, ttl_seconds=ttl_seconds, per_hour=per_hour
        )

    @property
    def kept(self) -> Any:
        return json.loads(self._kept.read_text())

    def remove(self) -> None:
        self._kept.unlink()


class LeasePlace(Cluster):
    """A lock of one cluster."""

    @property
    def kept(self) -> Any:
        return self.record

    def remove(self) -> None:
        del self.server.objects[KEY]


Place = FilePlace | LeasePlace


@pytest.fixture(params=["file", "lease"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "file":
        yield FilePlace(tmp_path)
        return
    async with cluster(tmp_path) as here:
        yield LeasePlace(here.server, here.folder)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, file, lease)


async def test_one_at_a_time(place: Place) -> None:
    """The second is told who has it; after the release it is free."""
    first, second = place.lock(), place.lock()
    assert (await first.acquire("w1", "a1")).held is True
    refused = await second.acquire("w2", "a2")
    assert refused.held is False
    assert "held by w1 (a1)" in refused.text
    assert (first.still_ours(), second.still_ours()) == (True, False)
    await first.release()
    assert not first.still_ours()
    assert (await second.acquire("w2", "a2")).held is True


async def test_slots(place: Place) -> None:
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


async def test_twice_under_one_attempt_is_once(place: Place) -> None:
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


async def test_lease_ends_without_a_sign_of_its_holder(place: Place, clock: Clock) -> None:
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


async def test_so_many_in_an_hour(place: Place, clock: Clock) -> None:
    """What was restarted counts for an hour from its end; what was given up before the hook does not."""
    unused, used, watcher = place.lock(per_hour=1), place.lock(per_hour=1), place.watcher()
    await unused.acquire("w1", "a1")
    await unused.release(60.0, used=False)
    for _ in range(2):
        assert (await used.acquire("w1", "a2")).held is True
    await used.release()
    for seconds in (0, 3590):
        clock.passes(seconds)
        refused = await place.lock(watcher, per_hour=1).acquire("w2", "a3")
        assert (refused.held, refused.text[:34]) == (False, "1 of 1 restarts per hour are spent")
    clock.passes(11)
    assert (await place.lock(watcher, per_hour=1).acquire("w2", "a3")).held is True


async def test_release_delay(place: Place, clock: Clock) -> None:
    """The next one waits that long."""
    first, watcher = place.lock(), place.watcher()
    await first.acquire("w1", "a1")
    await first.release(delay_seconds=5000)
    for seconds, held in ((0, False), (4000, False), (1001, True)):
        clock.passes(seconds)
        assert (await place.lock(watcher).acquire("w2", "a2")).held is held


async def test_what_was_never_taken_cannot_be_renewed(place: Place) -> None:
    """It is no error, and it is not held."""
    mine = place.lock()
    assert ((await mine.renew()).held, mine.still_ours()) == (False, False)
    await mine.release()
    assert (await place.lock().acquire("w2", "a2")).held is True


async def test_slot_that_was_lost_is_not_given_back(place: Place) -> None:
    """Its restart rests for nobody, and the slot of who has it now stays."""
    mine, other = place.lock(), place.lock()
    assert (await mine.acquire("w1", "a1")).held is True
    place.remove()
    assert (await other.acquire("w2", "a2")).held is True
    before = place.kept
    await mine.release(600)
    assert place.kept == before


async def test_what_a_person_has_removed_is_lost(place: Place) -> None:
    """Its holder learns it when it renews, and acts no more."""
    mine = place.lock()
    assert (await mine.acquire("w1", "a1")).held is True
    place.remove()
    assert mine.still_ours()
    assert ((await mine.renew()).held, mine.still_ours()) == (False, False)
    assert (await mine.renew()).held is False
