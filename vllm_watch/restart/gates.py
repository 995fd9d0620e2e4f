"""What the probes in the engines' containers are told: nothing, "this one is to end", or "let no more in".

A probe fails only where it is told so of the very server that it stands beside: every such answer names
when that server started, and the probe looks whether a process of its own container did. So an answer that
comes late, or twice, finds nobody: what it spoke of has ended. Whatever is not known here is an "ok".
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.journal import Entry, Journal

_log = structlog.get_logger()

LIVENESS, READINESS = "liveness", "readiness"
OK = "ok"
WORDS = {LIVENESS: "kill", READINESS: "no"}
"""What each gate says in place of "ok"."""

ASKED_SECONDS = 60.0
"""A probe that has not asked for so long is not there: Kubernetes asks every 10 s unless told otherwise."""

SAME_START_SECONDS = 2.0
"""Two readers may take the boot, and so a start, for up to a second apart each."""

NOTE_SECONDS = 1.5
"""An answer waits so long for the journal, since a probe waits for 2 s; a word that is not on disk yet is
not said. The next probe asks again."""

_PROBES_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What was heard of the probes that stand beside a server."""

    liveness_asked_seconds: float | None  # since the last one asked; None: none ever did
    starts: tuple[float, ...] = ()  # Unix seconds: when the containers that asked lately began
    looked_start_t: float | None = None  # when the server started, by the last look


@dataclass(slots=True)
class Kill:
    """One server that is to end."""

    started_t: float  # Unix seconds; what the probe compares
    until_s: float
    refused_before: bool  # nothing listened when it was begun, so that this says nothing
    told: int = 0  # how often a probe was told
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Gate:
    """What holds for one target."""

    kill: Kill | None = None
    drained_t: float | None = None  # when the server that is to get no more requests started
    asked_s: dict[str, float] = field(default_factory=dict)  # by gate
    starts: dict[float, float] = field(default_factory=dict)  # container's start → last asked
    written: dict[str, str] = field(default_factory=dict)  # by gate: the last answer in the journal
    writing: dict[str, tuple[str, asyncio.Task[bool]]] = field(default_factory=dict)
    looked_start_t: float | None = None
    looked_refused: bool = False


class Gates:
    """All gates of one watcher."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._gates: dict[str, _Gate] = {}

    def forget(self, target: str) -> None:
        """The target is not watched any more."""
        self.draining(target, on=False)
        self._gates.pop(target, None)

    # --- what the watcher sees and wants

    def looked(self, signals: TargetSignals) -> None:
        """Take in how the target looks: whether another process serves, or none."""
        gate = self._gate(signals.target)
        before, gate.looked_start_t = gate.looked_start_t, signals.process_start_time
        gate.looked_refused = signals.outcome == "refused"
        if gate.kill is None:
            return
        now = gate.looked_start_t
        another = before is not None and now is not None and not _same(before, now)
        if another or (gate.looked_refused and not gate.kill.refused_before):
            gate.kill.ended.set()

    def draining(self, target: str, *, on: bool) -> None:
        """From now on the readiness gate of this server says no, or no more."""
        gate = self._gate(target)
        gate.drained_t = self._identity(gate) if on else None
        if on and gate.drained_t is None:
            _log.warning("drain_not_asked_for", target=target, because="when it started is unknown")

    @contextmanager
    def killing(self, target: str, started_t: float, seconds: float) -> Iterator[Kill]:
        """Within, the liveness gate fails for the server that started then, for this long at most."""
        gate = self._gate(target)
        kill = Kill(
            started_t=started_t, until_s=time.monotonic() + seconds,
            refused_before=gate.looked_refused,
        )  # fmt: skip
        gate.kill = kill
        try:
            yield kill
        finally:
            gate.kill = None

    # --- probes

    def probes(self, target: str) -> Probes:
        """What was heard of them."""
        gate = self._gate(target)
        asked_s = gate.asked_s.get(LIVENESS)
        return Probes(
            liveness_asked_seconds=None if asked_s is None else time.monotonic() - asked_s,
            starts=_recent(gate),
            looked_start_t=gate.looked_start_t,
        )

    async def answer(
        self, target: str, which: str, started_t: float | None, source: str
    ) -> float | None:
        """Return the start of the server that the gate's word is about; None: all is healthy.

        `started_t` is when the container of the probe that asks began, where it says so.
        """
        gate = self._gate(target)
        gate.asked_s[which] = time.monotonic()
        if started_t is not None:
            _heard(gate, started_t)
        meant_t = _meant(gate, which)
        if meant_t is not None and started_t is not None and _newer(started_t, meant_t):
            meant_t = None  # it stands beside a server that began later
        answer = OK if meant_t is None else f"{WORDS[which]} {meant_t:.0f}"
        written = await self._is_written(gate, target, which, answer, source)
        if not written or meant_t is None or _meant(gate, which) != meant_t:
            return None  # not on disk, or too late by now
        if which == LIVENESS and gate.kill is not None:
            gate.kill.told += 1
        return meant_t

    async def _is_written(
        self, gate: _Gate, target: str, which: str, answer: str, source: str
    ) -> bool:
        """Is this answer on disk? The last one already is."""
        before = gate.written.get(which, OK)
        if answer == before:
            return True
        under_way = gate.writing.get(which)
        if under_way is None or under_way[0] != answer:
            task = asyncio.create_task(self._write_change(target, which, before, answer, source))
            under_way = gate.writing[which] = (answer, task)
        _, task = under_way
        await asyncio.wait((task,), timeout=NOTE_SECONDS)
        if not task.done():
            return False
        if gate.writing.get(which) is under_way:
            del gate.writing[which]
        if not task.result():
            return False
        gate.written[which] = answer
        return True

    async def _write_change(
        self, target: str, which: str, before: str, after: str, source: str
    ) -> bool:
        """Write a change of a gate down; False where that cannot be."""
        _log.info("gate_answer", target=target, gate=which, answer=after, source=source)
        entry = Entry(
            t=time.time(), actor="gate", source=source, action=f"gate_{which}", target=target,
            before=before, after=after,
        )  # fmt: skip
        try:
            await self._journal.note(entry)
        except JournalError:
            return False  # the journal has said it in the log
        return True

    def _gate(self, target: str) -> _Gate:
        return self._gates.setdefault(target, _Gate())

    def _identity(self, gate: _Gate) -> float | None:
        """When the server started: as vLLM says, else as the one container says that asks."""
        if gate.looked_start_t is not None:
            return gate.looked_start_t
        recent = _recent(gate)
        return recent[0] if len(recent) == 1 else None


def _recent(gate: _Gate) -> tuple[float, ...]:
    now_s = time.monotonic()
    return tuple(sorted(t for t, at_s in gate.starts.items() if now_s - at_s <= ASKED_SECONDS))


def _heard(gate: _Gate, started_t: float) -> None:
    known = next((each for each in gate.starts if _same(each, started_t)), started_t)
    gate.starts[known] = time.monotonic()
    if len(gate.starts) > _PROBES_MAX:
        del gate.starts[min(gate.starts, key=lambda each: gate.starts[each])]


def _meant(gate: _Gate, which: str) -> float | None:
    if which == READINESS:
        return gate.drained_t
    kill = gate.kill
    return None if kill is None or time.monotonic() >= kill.until_s else kill.started_t


def _same(one_t: float, other_t: float) -> bool:
    return abs(one_t - other_t) <= SAME_START_SECONDS


def _newer(one_t: float, other_t: float) -> bool:
    return one_t > other_t + SAME_START_SECONDS
