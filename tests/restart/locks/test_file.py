"""The file lock: real files, real processes, killed while they hold it."""

import fcntl
import json
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.restart.waits import Clock
from vllm_watch.errors import WatchError
from vllm_watch.restart.hooks.base import Tools
from vllm_watch.restart.locks import file
from vllm_watch.restart.locks.file import Lock
from vllm_watch.settings.restart import LockSettings


def lock(folder, *, slots=1, ttl_seconds=60.0, per_hour=None):
    return Lock(folder, "gpu", slots=slots, ttl_seconds=ttl_seconds, per_hour=per_hour)


async def test_reboot_frees_it(tmp_path):
    await lock(tmp_path).acquire("w1", "a1")
    path = tmp_path / "gpu.lock.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"boot_id": "another"}))
    assert (await lock(tmp_path).acquire("w2", "a2")).held is True


BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
DAMAGED = {
    "empty": "",
    "cut off": '{"boot_id": "x", "slo',
    "an end that is not a time": json.dumps(
        {"boot_id": BOOT, "slots": [{"holder": "a", "attempt_id": "b", "expires_s": "soon"}], "spent": []}),
    "deep": "[" * 100_000,
    "larger than any of ours": json.dumps({"boot_id": BOOT, "slots": [], "spent": []}) + " " * file.BYTES_MAX,
}  # fmt: skip


@pytest.mark.parametrize("body", DAMAGED.values(), ids=DAMAGED)
async def test_damaged_file_is_never_a_yes(tmp_path, body):
    """Nobody knows who holds it, and it says what to do."""
    (tmp_path / "gpu.lock.json").write_text(body)
    answer = await lock(tmp_path).acquire("w1", "a1")
    assert answer.held is None
    assert "remove it when no restart is under way" in answer.text


async def test_of_two_slots_the_one_that_is_free_first_is_named(tmp_path):
    for attempt_id, ttl_seconds in (("a1", 60), ("a2", 30)):
        mine = lock(tmp_path, slots=2, ttl_seconds=ttl_seconds)
        assert (await mine.acquire("w1", attempt_id)).held is True
    refused = await lock(tmp_path, slots=2).acquire("w2", "a3")
    assert refused.text == "held by w1 (a2) for 90 s more and 1 more"


async def test_folder_that_is_gone_is_never_a_yes(tmp_path):
    """Neither when taking nor when renewing it."""
    folder = tmp_path / "locks"
    folder.mkdir()
    held = lock(folder)
    assert (await held.acquire("w1", "a1")).held is True
    shutil.rmtree(folder)
    assert (await held.renew()).held is None
    assert (await lock(folder).acquire("w2", "a2")).held is None
    await held.release()


async def test_symbolic_link_is_not_followed(tmp_path):
    """Whoever may write into the folder cannot have us overwrite another file."""
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "gpu.lock.new").symlink_to(other)
    (tmp_path / "gpu.lock.json").symlink_to(other)
    assert (await lock(tmp_path).acquire("w1", "a1")).held is None
    assert other.read_text() == "precious"


def test_a_lock_without_a_folder_is_refused():
    with pytest.raises(WatchError, match="the folder of the lock is not known"):
        file.make(LockSettings(), Tools())


async def test_it_is_where_the_settings_say(tmp_path):
    """In the folder that is named, else beside the state; nobody else may read or change it."""
    tools = Tools(state_dir=tmp_path / "state" / "deep")
    named = LockSettings(kind="file", path=tmp_path / "named", restarts_per_hour_max=1)
    for settings, folder in (
        (named, tmp_path / "named"),
        (LockSettings(kind="file"), tmp_path / "state" / "deep" / "locks"),
    ):
        for attempt_id in ("a1", "a1"):
            assert (await file.make(settings, tools).acquire("w1", attempt_id)).held is True
        files = sorted(folder.iterdir())
        assert [each.name for each in files] == ["vllm-watch.lock", "vllm-watch.lock.json"]
        assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not (tmp_path / "state" / "vllm-watch.lock").exists()


async def test_lease_is_of_the_time_before_it_was_written(tmp_path, monkeypatch):
    """Who was paused while it wrote believes no longer than others do."""
    clock, mine = Clock(monkeypatch, file), lock(tmp_path, ttl_seconds=60)
    write = os.fsync

    def slowly(descriptor):
        write(descriptor)
        clock.passes(59)

    monkeypatch.setattr(os, "fsync", slowly)
    assert (await mine.acquire("w1", "a1")).held is True
    assert mine.still_ours()
    clock.passes(2)
    assert not mine.still_ours()


async def test_what_takes_the_place_of_the_old_is_on_the_disk(tmp_path, monkeypatch):
    """A host that loses its power keeps the old file or the new one, and never half of one."""
    synced: list[tuple[dict[str, object], bool]] = []
    kept = tmp_path / "gpu.lock.json"

    def sync(descriptor):
        said = json.loads((tmp_path / "gpu.lock.new").read_text())
        synced.append((said, kept.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    assert (await lock(tmp_path).acquire("w1", "a1")).held is True
    assert synced == [(json.loads(kept.read_text()), False)]


class Busy:
    """Another process that is at the file, until `left` looks of ours at the guard have failed."""

    def __init__(self, folder, monkeypatch, left):
        self.waited: list[float] = []
        self._left, self._descriptor = left, os.open(folder / "gpu.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        fake = SimpleNamespace(monotonic=lambda: 1000 + sum(self.waited), sleep=self._sleep)
        monkeypatch.setattr(file, "time", fake)

    def _sleep(self, seconds):
        self.waited.append(seconds)
        if len(self.waited) >= self._left:
            self.end()

    def end(self):
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)


async def test_another_process_that_hangs_is_waited_for_two_seconds(tmp_path, monkeypatch):
    """Then it is not known who holds it; neither is a release more than tried."""
    held = lock(tmp_path)
    assert (await held.acquire("w1", "a1")).held is True
    busy = Busy(tmp_path, monkeypatch, 1000)
    answer = await lock(tmp_path).acquire("w2", "a2")
    assert (answer.held, answer.text) == (None, f"{tmp_path}/gpu.lock is held by another process")
    assert 2.0 <= sum(busy.waited) < 2.05
    await held.release()
    assert not held.still_ours()
    busy.end()
    assert (await lock(tmp_path).acquire("w2", "a2")).held is False
