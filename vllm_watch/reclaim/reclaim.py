"""Reclaim GPU memory from stale processes on a person's request.

Each step is journaled before it is done.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from signal import SIGCONT, SIGKILL, SIGTERM, Signals

from vllm_watch.errors import JournalError, WatchError
from vllm_watch.reclaim import vram_release
from vllm_watch.reclaim.ending import Pinned
from vllm_watch.reclaim.plan import Plan, Victim
from vllm_watch.reclaim.vram_release import Release
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.signals.holders.words import size
from vllm_watch.state.journal import Entry, Journal

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
        if pinned.send(number) and stopped:
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
        f"{size(part.holder.process.used_bytes)} on GPU {part.gpu_index}" for part in victim.parts
    )


def said(outcome: Outcome) -> str:
    """Return the outcome as one line."""
    used = ", ".join(
        f"GPU {gpu.index} {size(gpu.before_bytes)} → {size(gpu.after_bytes)} used"
        for gpu in outcome.release.gpus
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
