"""A lock between the watchers of one host, in a small file with slots, holders and expiry times.

Times are CLOCK_BOOTTIME, which all processes of a host share. A file from before a reboot counts
as empty.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from vllm_watch.errors import WatchError
from vllm_watch.restart.hooks.base import Tools
from vllm_watch.restart.locks.base import Held, boottime_s
from vllm_watch.restart.locks.record import EXPIRY_TTLS, HOUR_SECONDS, SPENT_MAX, Limits
from vllm_watch.settings.restart import LockSettings
from vllm_watch.state.attempt import Attempt
from vllm_watch.support import json_text, regular_file

WAIT_SECONDS = 2.0
"""A watcher waits at most this many seconds for the file."""

BYTES_MAX = 1 << 18
"""Maximum size of the file. A hundred slots and a thousand restarts need less."""

_REMEDY = "remove it when no restart is under way"


@dataclass(frozen=True, slots=True)
class _Slot:
    holder: str
    attempt_id: str
    expires_s: float  # CLOCK_BOOTTIME


@dataclass(frozen=True, slots=True)
class _Spent:
    attempt_id: str
    expires_s: float


@dataclass(frozen=True, slots=True)
class _Kept:
    slots: list[_Slot]
    spent: list[_Spent]


def make(settings: LockSettings, tools: Tools) -> "Lock":
    """Return a lock for one attempt. Raises WatchError and OSError."""
    folder = settings.path or (tools.state_dir and tools.state_dir / "locks")
    if folder is None:
        raise WatchError("the folder of the lock is not known", "set restart.lock.path")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Lock(
        folder, settings.name, slots=settings.slots, ttl_seconds=settings.ttl_seconds,
        per_hour=settings.restarts_per_hour_max,
    )  # fmt: skip


class Lock:
    """One slot of the lock `name` in `folder`."""

    def __init__(
        self, folder: Path, name: str, *, slots: int, ttl_seconds: float, per_hour: int | None = None
    ) -> None:  # fmt: skip
        self.ttl_seconds = ttl_seconds
        self._file = folder / f"{name}.lock.json"
        self._guard = folder / f"{name}.lock"
        self._limits = Limits(slots=slots, per_hour=per_hour)
        self._mine: _Slot | None = None
        self._until_s = 0.0

    async def acquire(self, holder: str, attempt_id: str, attempt: Attempt | None = None) -> Held:
        return await asyncio.to_thread(self._change, holder, attempt_id)

    async def renew(self, attempt: Attempt | None = None) -> Held:
        mine = self._mine
        if mine is None:
            return Held(held=False, text="it is not held")
        return await asyncio.to_thread(self._change, mine.holder, mine.attempt_id, only_renew=True)

    def still_ours(self) -> bool:
        return self._mine is not None and boottime_s() < self._until_s

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        mine, self._mine = self._mine, None
        if mine is not None:
            with contextlib.suppress(OSError, ValueError, TimeoutError):
                await asyncio.to_thread(self._give_back, mine, delay_seconds, used=used)

    def _change(self, holder: str, attempt_id: str, *, only_renew: bool = False) -> Held:
        try:
            with self._exclusive():
                return self._take(self._read(), holder, attempt_id, only_renew=only_renew)
        except TimeoutError:
            return Held(held=None, text=f"{self._guard} is held by another process")
        except (OSError, ValueError) as error:
            return Held(held=None, text=f"{self._file}: {error}")

    def _take(self, kept: _Kept, holder: str, attempt_id: str, *, only_renew: bool) -> Held:
        others = [slot for slot in kept.slots if slot.attempt_id != attempt_id]
        spent = list(kept.spent)
        if len(others) == len(kept.slots):
            if only_renew:
                self._mine = None
                return Held(held=False, text="it was lost")
            refusal = self._refusal(others, spent)
            if refusal is not None:
                return Held(held=False, text=refusal)
        # Read the clock first, so that our lease ends before others see the slot expire.
        now_s = boottime_s()
        mine = _Slot(holder, attempt_id, now_s + EXPIRY_TTLS * self.ttl_seconds)
        spent = [each for each in spent if each.attempt_id != attempt_id]
        spent.append(_Spent(attempt_id, mine.expires_s + HOUR_SECONDS))
        self._write(_Kept([*others, mine], spent[-SPENT_MAX:]))
        self._until_s, self._mine = now_s + self.ttl_seconds, mine
        return Held(held=True, text=f"held for {self.ttl_seconds:.0f} s")

    def _refusal(self, others: list[_Slot], spent: list[_Spent]) -> str | None:
        if len(others) >= self._limits.slots:
            return _taken_text(others)
        limit = self._limits.per_hour
        if limit is not None and len(spent) >= limit:
            return f"{len(spent)} of {limit} restarts per hour are spent by all users of the lock"
        return None

    def _give_back(self, mine: _Slot, delay_seconds: float, *, used: bool) -> None:
        with self._exclusive():
            kept = self._read()
            if all(slot.attempt_id != mine.attempt_id for slot in kept.slots):
                return
            others = [slot for slot in kept.slots if slot.attempt_id != mine.attempt_id]
            spent = [each for each in kept.spent if each.attempt_id != mine.attempt_id]
            if used:
                now_s, rests = boottime_s(), f"after {mine.attempt_id}"
                spent.append(_Spent(mine.attempt_id, now_s + HOUR_SECONDS))
                others.append(_Slot(mine.holder, rests, now_s + delay_seconds))
            self._write(_Kept(others, spent))

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        deadline = time.monotonic() + WAIT_SECONDS
        descriptor = os.open(
            self._guard, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
        )
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise TimeoutError from None
                    time.sleep(0.01)
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> _Kept:
        try:
            body = regular_file.read(self._file, BYTES_MAX, follow=False)
        except FileNotFoundError:
            return _Kept([], [])
        except regular_file.UnusableFileError as error:
            raise ValueError(f"is damaged ({error.strerror}); {_REMEDY}") from None
        try:
            document = json_text.read(body)
            same_boot = document["boot_id"] == _boot_id()
            slots = [_Slot(**each) for each in document["slots"] if same_boot]
            spent = [_Spent(**each) for each in document["spent"] if same_boot]
            now_s = boottime_s()
            return _Kept(
                [slot for slot in slots if slot.expires_s > now_s],
                [each for each in spent if each.expires_s > now_s],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"is damaged ({error}); {_REMEDY}") from error

    def _write(self, kept: _Kept) -> None:
        document = {"boot_id": _boot_id(), **asdict(kept)}
        new = self._file.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        descriptor = os.open(new, flags, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._file)


def _taken_text(slots: list[_Slot]) -> str:
    first = min(slots, key=lambda slot: slot.expires_s)
    rest = f" and {len(slots) - 1} more" if len(slots) > 1 else ""
    left_s = first.expires_s - boottime_s()
    return f"held by {first.holder} ({first.attempt_id}) for {left_s:.0f} s more{rest}"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
