"""Answer the exec probes in the engines' containers: "ok", "kill" (liveness) or "no" (readiness).

The answer is "ok" if anything is unknown. "kill" and "no" contain the start time of the server that
must fail. The probes of other servers ignore these answers, so a late or repeated answer is
harmless.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from vllm_watch.board.restarts import Probes
from vllm_watch.errors import JournalError
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.journal import Entry, Journal

_log = structlog.get_logger()

LIVENESS, READINESS = "liveness", "readiness"
OK = "ok"
WORDS = {LIVENESS: "kill", READINESS: "no"}

ASKED_SECONDS = 60.0
"""After this many seconds without a request, a probe is considered gone. Kubernetes probes every 10 s by default."""

SAME_START_SECONDS = 2.0
"""Start times are equal if they differ by at most this, because each may be off by a second."""

NOTE_SECONDS = 1.5
"""A changed answer must be in the journal within this many seconds, because a probe times out after 2 s."""

_PROBES_MAX = 16


@dataclass(slots=True)
class Kill:
    """A server to be killed."""

    started_t: float
    until_s: float
    refused_before: bool  # if True, a refused connection does not prove the server's end
    answers: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Gate:
    kill: Kill | None = None
    drained_t: float | None = None  # start time of the server that is drained
    asked_s: dict[str, float] = field(default_factory=dict)
    starts: dict[float, float] = field(default_factory=dict)  # container's start → last request
    written: dict[str, str] = field(default_factory=dict)  # kind of probe → journaled answer
    writing: dict[str, tuple[str, asyncio.Task[bool]]] = field(default_factory=dict)
    scraped_start_t: float | None = None
    scraped_refused: bool = False


class Gates:
    """The gates of all targets."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._gates: defaultdict[str, _Gate] = defaultdict(_Gate)

    def forget(self, target: str) -> None:
        self.draining(target, on=False)
        self._gates.pop(target, None)

    def scraped(self, signals: TargetSignals) -> None:
        gate = self._gates[signals.target]
        before, gate.scraped_start_t = gate.scraped_start_t, signals.process_start_time
        gate.scraped_refused = signals.outcome == "refused"
        if gate.kill is None:
            return
        now = gate.scraped_start_t
        another = before is not None and now is not None and not _same(before, now)
        if another or (gate.scraped_refused and not gate.kill.refused_before):
            gate.kill.ended.set()

    def draining(self, target: str, *, on: bool) -> None:
        gate = self._gates[target]
        gate.drained_t = self._identity(gate) if on else None
        if on and gate.drained_t is None:
            _log.warning("drain_not_asked_for", target=target, because="when it started is unknown")

    @contextmanager
    def killing(self, target: str, started_t: float, seconds: float) -> Iterator[Kill]:
        """Fail the liveness probe of the server that started at `started_t`, for at most `seconds`."""
        gate = self._gates[target]
        kill = Kill(
            started_t=started_t, until_s=time.monotonic() + seconds,
            refused_before=gate.scraped_refused,
        )  # fmt: skip
        gate.kill = kill
        try:
            yield kill
        finally:
            gate.kill = None

    def probes(self, target: str) -> Probes:
        gate = self._gates[target]
        asked_s = gate.asked_s.get(LIVENESS)
        return Probes(
            liveness_asked_seconds=None if asked_s is None else time.monotonic() - asked_s,
            starts=_recent(gate),
            scraped_start_t=gate.scraped_start_t,
        )

    async def answer(
        self, target: str, which: str, started_t: float | None, source: str
    ) -> float | None:
        """Return the start time of the server that must fail, or None. `started_t` is when the container started."""
        gate = self._gates[target]
        gate.asked_s[which] = time.monotonic()
        if started_t is not None:
            _note_start(gate, started_t)
        failing_t = _failing_t(gate, which)
        if failing_t is not None and started_t is not None and _newer(started_t, failing_t):
            failing_t = None
        answer = OK if failing_t is None else f"{WORDS[which]} {failing_t:.0f}"
        written = await self._is_written(gate, target, which, answer, source)
        if not written or failing_t is None or _failing_t(gate, which) != failing_t:
            return None
        if which == LIVENESS and gate.kill is not None:
            gate.kill.answers += 1
        return failing_t

    async def _is_written(
        self, gate: _Gate, target: str, which: str, answer: str, source: str
    ) -> bool:
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
        _log.info("gate_answer", target=target, gate=which, answer=after, source=source)
        entry = Entry(
            t=time.time(), actor="gate", source=source, action=f"gate_{which}", target=target,
            before=before, after=after,
        )  # fmt: skip
        try:
            await self._journal.note(entry)
        except JournalError:
            return False
        return True

    def _identity(self, gate: _Gate) -> float | None:
        if gate.scraped_start_t is not None:
            return gate.scraped_start_t
        recent = _recent(gate)
        return recent[0] if len(recent) == 1 else None


def _recent(gate: _Gate) -> tuple[float, ...]:
    now_s = time.monotonic()
    return tuple(sorted(t for t, at_s in gate.starts.items() if now_s - at_s <= ASKED_SECONDS))


def _note_start(gate: _Gate, started_t: float) -> None:
    known = next((each for each in gate.starts if _same(each, started_t)), started_t)
    gate.starts[known] = time.monotonic()
    if len(gate.starts) > _PROBES_MAX:
        del gate.starts[min(gate.starts, key=lambda each: gate.starts[each])]


def _failing_t(gate: _Gate, which: str) -> float | None:
    if which == READINESS:
        return gate.drained_t
    kill = gate.kill
    return None if kill is None or time.monotonic() >= kill.until_s else kill.started_t


def _same(one_t: float, other_t: float) -> bool:
    return abs(one_t - other_t) <= SAME_START_SECONDS


def _newer(one_t: float, other_t: float) -> bool:
    return one_t > other_t + SAME_START_SECONDS
