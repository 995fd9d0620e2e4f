"""A lock among the watchers of one host: one small file that says who holds which slot until when.

Times are CLOCK_BOOTTIME, which all processes of a host share, which no clock step moves and which goes
on during a suspend; a file from before a reboot holds nothing. What cannot be read or written is never
a yes.
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

from vllm_watch.actions.locks.base import Held

WAIT_SECONDS = 2.0
"""For another watcher to finish its change of the file, which takes milliseconds."""

BYTES_MAX = 1 << 16
"""A hundred slots take less; what is larger is not ours."""

_REMEDY = "remove it when no restart is under way"


@dataclass(frozen=True, slots=True)
class _Slot:
    holder: str
    attempt_id: str
    expires_s: float  # CLOCK_BOOTTIME


class Lock:
    """One of the slots of the lock `name` in `folder`."""

    def __init__(self, folder: Path, name: str, *, slots: int, ttl_seconds: float) -> None:
        self.ttl_seconds = ttl_seconds
        self._file = folder / f"{name}.lock.json"
        self._guard = folder / f"{name}.lock"
        self._slots = slots
        self._mine: _Slot | None = None

    async def acquire(self, holder: str, attempt_id: str) -> Held:
        return await asyncio.to_thread(self._change, holder, attempt_id)

    async def renew(self) -> Held:
        mine = self._mine
        if mine is None:
            return Held(held=False, text="it is not held")
        return await asyncio.to_thread(self._change, mine.holder, mine.attempt_id, only_renew=True)

    def still_ours(self) -> bool:
        return self._mine is not None and _now_s() < self._mine.expires_s

    async def release(self, delay_seconds: float = 0.0) -> None:
        mine, self._mine = self._mine, None
        if mine is not None:
            with contextlib.suppress(OSError, ValueError, TimeoutError):
                await asyncio.to_thread(self._give_back, mine, delay_seconds)

    def _change(self, holder: str, attempt_id: str, *, only_renew: bool = False) -> Held:
        try:
            with self._exclusive():
                return self._take(self._read(), holder, attempt_id, only_renew=only_renew)
        except TimeoutError:
            return Held(held=None, text=f"{self._guard} is held by another process")
        except (OSError, ValueError) as error:
            return Held(held=None, text=f"{self._file}: {error}")

    def _take(self, slots: list[_Slot], holder: str, attempt_id: str, *, only_renew: bool) -> Held:
        others = [slot for slot in slots if slot.attempt_id != attempt_id]
        if len(others) == len(slots):
            if only_renew:
                self._mine = None
                return Held(held=False, text="it was lost")
            if len(others) >= self._slots:
                return Held(held=False, text=_who(others))
        # Counted from before the write: what others read is never earlier than what we believe.
        mine = _Slot(holder, attempt_id, _now_s() + self.ttl_seconds)
        self._write([*others, mine])
        self._mine = mine
        return Held(held=True, text=f"held for {self.ttl_seconds:.0f} s")

    def _give_back(self, mine: _Slot, delay_seconds: float) -> None:
        with self._exclusive():
            slots = self._read()
            if all(slot.attempt_id != mine.attempt_id for slot in slots):
                return
            others = [slot for slot in slots if slot.attempt_id != mine.attempt_id]
            if delay_seconds > 0:
                resting = _Slot(mine.holder, f"after {mine.attempt_id}", _now_s() + delay_seconds)
                others.append(resting)
            self._write(others)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        deadline = time.monotonic() + WAIT_SECONDS
        descriptor = os.open(
            self._guard, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
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

    def _read(self) -> list[_Slot]:
        """The slots that hold now; raises ValueError for a file that is damaged."""
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return []
        with os.fdopen(descriptor, "rb") as file:
            body = file.read(BYTES_MAX + 1)
        if len(body) > BYTES_MAX:
            raise ValueError(f"is damaged (too large); {_REMEDY}")
        try:
            document = json.loads(body)
            kept = document["slots"] if document["boot_id"] == _boot_id() else []
            slots = [_Slot(**each) for each in kept]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"is damaged ({error}); {_REMEDY}") from error
        now_s = _now_s()
        return [slot for slot in slots if slot.expires_s > now_s]

    def _write(self, slots: list[_Slot]) -> None:
        document = {"boot_id": _boot_id(), "slots": [asdict(slot) for slot in slots]}
        new = self._file.with_suffix(".new")
        descriptor = os.open(
            new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._file)


def _who(slots: list[_Slot]) -> str:
    first = min(slots, key=lambda slot: slot.expires_s)
    rest = f" and {len(slots) - 1} more" if len(slots) > 1 else ""
    left_s = first.expires_s - _now_s()
    return f"held by {first.holder} ({first.attempt_id}) for {left_s:.0f} s more{rest}"


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
