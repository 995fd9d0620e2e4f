"""The file lock: real files, real processes, killed while they hold it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.restart.locks.clock import Clock
from vllm_watch.errors import WatchError
from vllm_watch.restart.hooks.base import Tools
from vllm_watch.restart.locks import file
from vllm_watch.restart.locks.base import Held
from vllm_watch.restart.locks.file import Lock
from vllm_watch.settings.lock import LockSettings


def lock(
    folder: Path, *, slots: int = 1, ttl_seconds: float = 60.0, per_hour: int | None = None
) -> Lock:
    return Lock(folder, "gpu", slots=slots, ttl_seconds=ttl_seconds, per_hour=per_hour)


async def test_one_at_a_time(tmp_path: Path) -> None:
    """The second is told who has it; after the release it is free."""
    first, second = lock(tmp_path), lock(tmp_path)
    assert (await first.acquire("w1", "a1")).held is True
    refused = await second.acquire("w2", "a2")
    assert refused.held is False
    assert "held by w1 (a1) for" in refused.text
    assert (first.still_ours(), second.still_ours()) == (True, False)

    await first.release()
    assert not first.still_ours()
    assert (await second.acquire("w2", "a2")).held is True


async def test_slots(tmp_path: Path) -> None:
    """As many as there are slots, and not one more."""
    answers = [await lock(tmp_path, slots=2).acquire("w", f"a{n}") for n in range(3)]
    assert [answer.held for answer in answers] == [True, True, False]
    assert "and 1 more" in answers[2].text


async def test_twice_under_one_attempt_is_once(tmp_path: Path) -> None:
    """A retry, or the same attempt after a restart of the watcher, takes no second slot."""
    assert (await lock(tmp_path).acquire("w1", "a1")).held is True
    assert (await lock(tmp_path).acquire("w1", "a1")).held is True


async def test_lease_ends_without_a_sign_of_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that does not renew stops believing two TTLs before others may have it; renewing prolongs."""
    clock = Clock(monkeypatch, file)
    first, second = lock(tmp_path, ttl_seconds=6000), lock(tmp_path)
    await first.acquire("w1", "a1")
    clock.passes(4000)
    assert (await first.renew()).held is True
    clock.passes(4000)
    assert first.still_ours()
    clock.passes(2000)
    assert not first.still_ours()
    clock.passes(11_000)
    assert (await second.acquire("w2", "a2")).held is False
    clock.passes(1000)
    assert (await second.acquire("w2", "a2")).held is True
    lost = await first.renew()
    assert (lost.held, lost.text) == (False, "it was lost")
    assert not first.still_ours()


async def test_so_many_in_an_hour(tmp_path: Path) -> None:
    """What was restarted counts for an hour from its end; what was given up before the hook does not."""
    unused, used = lock(tmp_path, per_hour=1), lock(tmp_path, per_hour=1)
    await unused.acquire("w1", "a1")
    await unused.release(60.0, used=False)
    assert (await used.acquire("w1", "a2")).held is True
    assert (await used.acquire("w1", "a2")).held is True
    await used.release()
    refused = await lock(tmp_path, per_hour=1).acquire("w2", "a3")
    assert (refused.held, refused.text[:36]) == (False, "1 of 1 restarts in an hour are spent")

    path = tmp_path / "gpu.lock.json"
    document = json.loads(path.read_text())
    (spent,) = document["spent"]
    left_s = spent["expires_s"] - time.clock_gettime(time.CLOCK_BOOTTIME)
    assert 3590 < left_s <= 3600
    spent["expires_s"] -= 3601
    path.write_text(json.dumps(document))
    assert (await lock(tmp_path, per_hour=1).acquire("w2", "a3")).held is True


async def test_release_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one waits that long."""
    clock = Clock(monkeypatch, file)
    first, second = lock(tmp_path), lock(tmp_path)
    await first.acquire("w1", "a1")
    await first.release(delay_seconds=5000)
    clock.passes(4000)
    assert (await second.acquire("w2", "a2")).held is False
    clock.passes(1000)
    assert (await second.acquire("w2", "a2")).held is True


async def test_reboot_frees_it(tmp_path: Path) -> None:
    """What was held before a reboot is held by nobody."""
    await lock(tmp_path).acquire("w1", "a1")
    path = tmp_path / "gpu.lock.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"boot_id": "another"}))
    assert (await lock(tmp_path).acquire("w2", "a2")).held is True


DAMAGED = {
    "empty": b"",
    "cut off": b'{"boot_id": "x", "slo',
    "a list": b"[]",
    "slots of another kind": json.dumps(
        {
            "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "slots": [{"a": 1}],
        }
    ).encode(),
    "huge": b"x" * 300_000,
}


@pytest.mark.parametrize("body", DAMAGED.values(), ids=DAMAGED)
async def test_damaged_file_is_never_a_yes(tmp_path: Path, body: bytes) -> None:
    """Nobody knows who holds it, and it says what to do."""
    (tmp_path / "gpu.lock.json").write_bytes(body)
    answer = await lock(tmp_path).acquire("w1", "a1")
    assert answer.held is None
    assert "remove it when no restart is under way" in answer.text


async def test_folder_that_is_gone_is_never_a_yes(tmp_path: Path) -> None:
    """Neither when taking nor when renewing it."""
    folder = tmp_path / "locks"
    folder.mkdir()
    held = lock(folder)
    assert (await held.acquire("w1", "a1")).held is True
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert (await held.renew()).held is None
    assert (await lock(folder).acquire("w2", "a2")).held is None
    await held.release()


async def test_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    """Whoever may write into the folder cannot have us overwrite another file."""
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "gpu.lock.new").symlink_to(other)
    (tmp_path / "gpu.lock.json").symlink_to(other)
    assert (await lock(tmp_path).acquire("w1", "a1")).held is None
    assert other.read_text() == "precious"


RACE = """
import asyncio, sys
from pathlib import Path
from vllm_watch.restart.locks.file import Lock
async def main():
    lock = Lock(Path(sys.argv[1]), "gpu", slots=2, ttl_seconds=60)
    print((await lock.acquire(sys.argv[2], sys.argv[2])).held, flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


def test_processes_race_and_die(tmp_path: Path) -> None:
    """Of six processes two get it; those that are killed keep it until their lease ends, not for ever."""
    processes = [
        subprocess.Popen([sys.executable, "-c", RACE, str(tmp_path), f"w{n}"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])})
        for n in range(6)
    ]  # fmt: skip
    try:
        said = [process.stdout.readline().strip() for process in processes if process.stdout]
        assert sorted(said) == ["False"] * 4 + ["True"] * 2
        for process in processes:
            process.send_signal(signal.SIGKILL)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    answer: Held = asyncio.run(lock(tmp_path, slots=2).acquire("w9", "a9"))
    assert answer.held is False
    document = json.loads((tmp_path / "gpu.lock.json").read_text())
    for slot in document["slots"]:
        slot["expires_s"] = time.clock_gettime(time.CLOCK_BOOTTIME) - 1
    (tmp_path / "gpu.lock.json").write_text(json.dumps(document))
    assert asyncio.run(lock(tmp_path, slots=2).acquire("w9", "a9")).held is True


def test_a_lock_without_a_folder_is_refused() -> None:
    """Neither a path nor a state folder: it is said which setting is missing."""
    with pytest.raises(WatchError, match="the folder of the lock is not known"):
        file.make(LockSettings(), Tools())


async def test_a_file_that_is_too_large_is_never_a_yes(tmp_path: Path) -> None:
    """Though what it says could be read."""
    mine = lock(tmp_path)
    assert (await mine.acquire("w1", "a1")).held is True
    await mine.release()
    kept = tmp_path / "gpu.lock.json"
    kept.write_bytes(kept.read_bytes() + b" " * file.BYTES_MAX)
    refused = await lock(tmp_path).acquire("w1", "a1")
    assert refused.held is None
    assert "is damaged (too large)" in refused.text
