"""Sample the GPUs until the plan to end a process is certain."""

import asyncio
import os
import pwd
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from vllm_watch.errors import WatchError
from vllm_watch.reclaim.ending import Pinned, pin
from vllm_watch.reclaim.plan import Plan, Refusal, Sightings, Surroundings, Victim, plan
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.holders.records import Limits
from vllm_watch.sources.processes import parse_stat

SAMPLE_SECONDS = 1.0
"""Seconds between samples, about the interval at which the driver updates each process's load."""


class Looks:
    """Samples the GPUs, and pins each process that a plan names."""

    def __init__(self, pid: int, read: Callable[[], Awaitable[GpuReading]], limits: Limits) -> None:
        self.pid = pid
        self.gpus: tuple[GpuSample, ...] = ()
        self._read = read
        self._judge = HolderJudge(limits)
        self._sightings = Sightings()
        self._pins: dict[tuple[int, float | None], Pinned] = {}

    async def until_certain(self, seconds: float) -> Plan | Refusal:
        """Return a confirmed plan, or a refusal that is final or has lasted for `seconds`. Raises WatchError for unreadable GPUs."""
        began_s = time.monotonic()
        while True:
            found, confirmed = await self._sample()
            if isinstance(found, Plan):
                if confirmed:
                    return found
            elif found.final or time.monotonic() - began_s >= seconds:
                return found
            await asyncio.sleep(SAMPLE_SECONDS)

    async def once_more(self, agreed: Plan) -> Plan | Refusal:
        found, confirmed = await self._sample()
        if isinstance(found, Refusal):
            return found
        if not confirmed or found.key != agreed.key:
            return Refusal(
                cause="it changed while you were asked", remedy="check again: vllm-watch gpus"
            )
        return found

    def pinned(self, victim: Victim) -> Pinned:
        return self._pins[_name(victim)]

    def close(self) -> None:
        for each in self._pins.values():
            each.close()
        self._pins.clear()

    async def _sample(self) -> tuple[Plan | Refusal, bool]:
        reading = await self._read()
        gpus = reading.known_gpus
        if gpus is None or (not gpus and reading.text):
            raise WatchError(
                f"the GPUs cannot be read: {reading.text}",
                "see docs/gpu.md for the meaning of each state",
            )
        self.gpus = gpus
        at_s = time.monotonic()
        judged = self._judge.look(at_s, reading.t, gpus)
        around = Surroundings(parents=_parents(), own_pid=os.getpid())
        found = plan(self.pid, judged, around)
        if isinstance(found, Plan):
            found = self._pin(found.victims) or found
        return found, self._sightings.take(at_s, found)

    def _pin(self, victims: Sequence[Victim]) -> Refusal | None:
        for victim in victims:
            process = victim.holder.process
            name = _name(victim)
            if name not in self._pins:
                pinned = pin(process.pid_local or 0, process.create_time)
                if pinned is None:
                    return _gone(victim)
                self._pins[name] = pinned
            try:
                there = self._pins[name].send(0) and self._pins[name].lives()
            except PermissionError:
                return _not_ours(victim)
            if not there:
                return _gone(victim)
        return None


def _name(victim: Victim) -> tuple[int, float | None]:
    return victim.pid, victim.holder.process.create_time


def _gone(victim: Victim) -> Refusal:
    return Refusal(
        cause=f"process {victim.pid} has just ended, or its PID was reused",
        remedy="check again: vllm-watch gpus",
    )


def _not_ours(victim: Victim) -> Refusal:
    uid = victim.holder.process.uid
    owner = "another user" if uid is None else f"user {user_name(uid)}"
    return Refusal(
        cause=f"process {victim.pid} belongs to {owner}, and we run as {user_name(os.geteuid())}, which may not end it",
        remedy=f"run it as that user or as root (CAP_KILL): sudo vllm-watch gpus --reclaim {victim.pid}",
        final=True,
    )


def user_name(uid: int) -> str:
    """Return the user's name, or the UID if the user has none."""
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


PROCESSES_MAX = 65_536


def _parents(procfs: Path = Path("/proc")) -> dict[int, int]:
    found: dict[int, int] = {}
    for folder in procfs.iterdir():
        if not folder.name.isdigit() or len(found) >= PROCESSES_MAX:
            continue
        with suppress(OSError):
            stat = parse_stat((folder / "stat").read_bytes())
            if stat is not None:
                found[stat.pid] = stat.ppid
    return found
