"""Reclaim GPU memory from stale processes on a person's request.

The GPUs are sampled until the plan is certain. Each step is journaled before it is done.
"""

import asyncio
import os
import pwd
import select
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM, Signals

from vllm_watch.errors import JournalError, WatchError
from vllm_watch.reclaim import vram_release
from vllm_watch.reclaim.plan import Plan, RefusalError, Sightings, Victim, plan
from vllm_watch.reclaim.vram_release import Release
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.holders.records import Limits
from vllm_watch.sources.processes import ProcessFacts, ProcReader, parse_stat
from vllm_watch.state.journal import Entry, Journal
from vllm_watch.support.quantities import size
from vllm_watch.support.waiting import happens

SAME_START_SECONDS = 2.0
"""Tolerance for comparing start times. Each reading may be off by a second, and no PID is reused
that soon."""

_CLOSED = -1


class Pinned:
    """A process pinned by a pidfd, which must be closed, so that no later process with its PID is hit.

    Source: pidfd_open(2), pidfd_send_signal(2); Linux 5.3 and later.
    """

    def __init__(self, descriptor: int, facts: ProcessFacts) -> None:
        self.facts = facts
        self._descriptor = descriptor

    @property
    def pid(self) -> int:
        """The PID in our own namespace."""
        return self.facts.pid

    def lives(self) -> bool:
        """Return True if the process runs, False for a zombie."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return not poll.poll(0)

    def send(self, number: signal.Signals | int) -> bool:
        """Send a signal. Signal 0 only checks the permission. Return False if the process was reaped. Raises PermissionError."""
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            return False
        return True

    async def ended(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end = asyncio.Event()
        loop.add_reader(self._descriptor, end.set)
        try:
            return await happens(end, seconds) or not self.lives()
        finally:
            loop.remove_reader(self._descriptor)

    def state(self, procfs: Path = Path("/proc")) -> str | None:
        facts = ProcReader(procfs).read(self.pid)
        try:
            unreaped = self.send(0)
        except PermissionError:
            unreaped = True
        return facts.state if facts is not None and unreaped else None

    def close(self) -> None:
        if self._descriptor != _CLOSED:
            os.close(self._descriptor)
            self._descriptor = _CLOSED


def pin(pid: int, create_time: float | None, procfs: Path = Path("/proc")) -> Pinned | None:
    """Pin the process. Return None if no process has this PID and start time. Raises WatchError if the kernel lacks pidfd_open."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        raise WatchError(
            f"process {pid} cannot be pinned: {error}",
            "it needs Linux 5.3 or later, and a sandbox that allows pidfd_open; else end the process by hand",
        ) from error
    facts = ProcReader(procfs).read(pid)
    # If the pinned process is still alive, the facts were read from it.
    pinned = None if facts is None else Pinned(descriptor, facts)
    if pinned is None or not pinned.lives() or not _started(pinned.facts, create_time):
        os.close(descriptor)
        return None
    return pinned


def _started(facts: ProcessFacts, create_time: float | None) -> bool:
    if facts.create_time is None or create_time is None:
        return False
    return abs(facts.create_time - create_time) <= SAME_START_SECONDS


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

    async def until_certain(self, seconds: float) -> Plan:
        """Return a confirmed plan. Raises a RefusalError that is final or has lasted for `seconds`, and WatchError for unreadable GPUs."""
        began_s = time.monotonic()
        while True:
            try:
                found, confirmed = await self._sample()
                if confirmed:
                    return found
            except RefusalError as refusal:
                if refusal.final or time.monotonic() - began_s >= seconds:
                    raise
            await asyncio.sleep(SAMPLE_SECONDS)

    async def once_more(self, agreed: Plan) -> None:
        found, confirmed = await self._sample()
        if not confirmed or found.key != agreed.key:
            raise RefusalError("it changed while you were asked", "check again: vllm-watch gpus")

    def pinned(self, victim: Victim) -> Pinned:
        return self._pins[_name(victim)]

    def close(self) -> None:
        for each in self._pins.values():
            each.close()
        self._pins.clear()

    async def _sample(self) -> tuple[Plan, bool]:
        reading = await self._read()
        gpus = reading.gpus if reading.status == "ok" else None
        if gpus is None:
            raise WatchError(
                f"the GPUs cannot be read: {reading.text}",
                "see docs/gpu.md for the meaning of each state",
            )
        self.gpus = gpus
        at_s = time.monotonic()
        judged = self._judge.look(at_s, reading.t, gpus)
        try:
            found = plan(self.pid, judged, _parents(), os.getpid())
            self._pin(found.victims)
        except RefusalError:
            self._sightings.take(at_s, None)
            raise
        return found, self._sightings.take(at_s, found)

    def _pin(self, victims: Sequence[Victim]) -> None:
        for victim in victims:
            process = victim.holder.process
            name = _name(victim)
            if name not in self._pins:
                pinned = pin(process.pid_local or 0, process.create_time)
                if pinned is None:
                    raise _gone(victim)
                self._pins[name] = pinned
            try:
                there = self._pins[name].send(0) and self._pins[name].lives()
            except PermissionError:
                raise _not_ours(victim) from None
            if not there:
                raise _gone(victim)


def _name(victim: Victim) -> tuple[int, float | None]:
    return victim.pid, victim.holder.process.create_time


def _gone(victim: Victim) -> RefusalError:
    cause = f"process {victim.pid} has just ended, or its PID was reused"
    return RefusalError(cause, "check again: vllm-watch gpus")


def _not_ours(victim: Victim) -> RefusalError:
    uid = victim.holder.process.uid
    owner = "another user" if uid is None else f"user {user_name(uid)}"
    return RefusalError(
        f"process {victim.pid} belongs to {owner}, and we run as {user_name(os.geteuid())}, which may not end it",
        f"run it as that user or as root (CAP_KILL): sudo vllm-watch gpus --reclaim {victim.pid}",
        final=True,
    )


def user_name(uid: int) -> str:
    """Return the user's name, or the UID if the user has none."""
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            stat = parse_stat((folder / "stat").read_bytes())
            if stat is not None:
                found[stat.pid] = stat.ppid
    return found


KILL_SECONDS = 10.0
"""A process must end within this many seconds of SIGKILL. Freeing 100 GiB of host memory takes some seconds."""

TITLE_CHARACTERS = 40

INTENT, TERM, KILL, OUTCOME = "reclaim_intent", "reclaim_term", "reclaim_kill", "reclaim_outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Timeouts of a reclaim."""

    term_seconds: float = 10.0
    kill_seconds: float = KILL_SECONDS
    release_seconds: float = vram_release.DEADLINE_SECONDS


@dataclass(slots=True, kw_only=True)
class Ended:
    """How one process ended. `by` is None if the process did not end."""

    pid: int
    by: str | None = None  # "term" | "kill"
    after_seconds: float | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of the reclaim."""

    ended: tuple[Ended, ...]
    release: Release
    trouble: str | None = None  # why it was aborted
    journaled: bool = True

    @property
    def freed(self) -> bool:
        return self.release.released is True and all(each.by for each in self.ended)


@dataclass(slots=True, kw_only=True)
class Reclaim:
    """A confirmed reclaim. If `journal` is None, nothing is journaled."""

    plan: Plan
    pins: Mapping[int, Pinned]  # by the victim's PID
    gpus: Sequence[GpuSample]  # when the plan was confirmed
    read: Callable[[], Awaitable[GpuReading]]
    journal: Journal | None
    actor: str
    patience: Patience = field(default_factory=Patience)
    tell: Callable[[str], None] = lambda _: None

    async def run(self) -> Outcome:
        """Carry out the reclaim. If the intent cannot be written, JournalError is raised and nothing is done."""
        claims = vram_release.claims(self.gpus, [each.pid for each in self.plan.victims])
        for victim in self.plan.victims:
            await self._note(INTENT, victim, reason=why(victim), before=held(victim))
        ended = {victim.pid: Ended(pid=victim.pid) for victim in self.plan.victims}
        try:
            trouble = await self._end(ended)
            seconds = 0.0 if trouble else self.patience.release_seconds
            release = await vram_release.wait(self.read, claims, deadline_seconds=seconds)
        except asyncio.CancelledError:
            await self._note(
                OUTCOME, self.plan.victims[0], after="interrupted before the result was known"
            )
            raise
        outcome = Outcome(ended=tuple(ended.values()), release=release, trouble=trouble)
        try:
            await self._note(OUTCOME, self.plan.victims[0], after=said(outcome))
        except JournalError as error:
            self.tell(f"the outcome could not be written to the journal: {error.cause}")
            return replace(outcome, journaled=False)
        return outcome

    async def _end(self, ended: Mapping[int, Ended]) -> str | None:
        began_s = time.monotonic()
        steps = (
            (TERM, SIGTERM, self.patience.term_seconds),
            (KILL, SIGKILL, self.patience.kill_seconds),
        )
        for action, number, seconds in steps:
            rest = [each for each in self.plan.victims if ended[each.pid].by is None]
            try:
                for victim in rest:
                    await self._send(action, number, victim)
            except (WatchError, PermissionError) as error:
                cause = error.cause if isinstance(error, WatchError) else str(error)
                return f"{number.name} was not sent: {cause}"
            await asyncio.gather(
                *(self._await_end(ended[each.pid], began_s, number, seconds) for each in rest)
            )
        for each in ended.values():
            if each.by is None:
                each.state = self.pins[each.pid].state()
                self.tell(f"process {each.pid} is still there, in state {each.state or 'unknown'}")
        return None

    async def _send(self, action: str, number: Signals, victim: Victim) -> None:
        pinned = self.pins[victim.pid]
        stopped = number == SIGTERM and pinned.state() == "T"
        then = ", then SIGCONT: it is stopped" if stopped else ""
        await self._note(action, victim, reason=f"{number.name}{then}")
        self.tell(f"{number.name} to process {victim.pid}{then}")
        pinned.send(number)
        if stopped:
            pinned.send(SIGCONT)  # a stopped process handles no SIGTERM

    async def _await_end(self, ended: Ended, began_s: float, number: int, seconds: float) -> None:
        if not await self.pins[ended.pid].ended(seconds):
            return
        ended.by = "term" if number == SIGTERM else "kill"
        ended.after_seconds = time.monotonic() - began_s
        self.tell(f"process {ended.pid} ended after {ended.after_seconds:.1f} s")

    async def _note(
        self, action: str, victim: Victim, *, reason: str = "", before: str = "", after: str = ""
    ) -> None:
        if self.journal is None:
            return
        target = f"process {victim.pid}{_title(victim)}"
        await self.journal.note(
            Entry(
                t=time.time(), actor=self.actor, source="cli", action=action, target=target,
                reason=reason, before=before, after=after,
            )
        )  # fmt: skip


def why(victim: Victim) -> str:
    """Return why the process is stale."""
    judged = victim.holder.judged
    return f"{judged.reason}: {'; '.join(judged.evidence)}"


def held(victim: Victim) -> str:
    """Return the process's memory per GPU."""
    return ", ".join(
        f"{size(part.holder.process.used_bytes)} on GPU {part.gpu.index}" for part in victim.parts
    )


def said(outcome: Outcome) -> str:
    """Return the outcome as one line."""
    used = ", ".join(
        f"GPU {each.gpu.index} {size(each.gpu.memory_used_bytes)} → {size(each.after_bytes)} used"
        for each in outcome.release.gpus
    )
    if outcome.freed:
        return f"freed: {used}"
    causes = [outcome.trouble] if outcome.trouble else []
    causes += [f"process {each.pid} did not end" for each in outcome.ended if each.by is None]
    causes += outcome.release.still
    word = (
        "not freed"
        if outcome.release.released is False or not outcome.release.gpus
        else "not confirmed"
    )
    return f"{word}: {'; '.join(causes) or 'no reason known'} ({used})"


def _title(victim: Victim) -> str:
    """Return only the program's name or title, because arguments may hold secrets."""
    process = victim.holder.process
    title = process.cmdline[0] if process.cmdline else process.name
    return f" ({title.rpartition('/')[2][:TITLE_CHARACTERS]})" if title else ""
