"""The targets as this daemon sees them, for whoever decides about restarts and carries them out.

Everything is read from the board, that is from what was told to people: what is not known there is not
known here.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from vllm_watch.board.board import Board, TargetEntry
from vllm_watch.export.status import Status
from vllm_watch.incidents.own_restart import RestartNews
from vllm_watch.restart import evidence, guard
from vllm_watch.restart.attempt import Attempt
from vllm_watch.restart.facts import IncidentFact, Peers
from vllm_watch.restart.gates import Gates
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.signals.records import TargetSignals

HEALTHY = frozenset(("idle", "serving", "prefilling", "overloaded"))
"""States in which an engine serves; one that is overloaded serves as much as it can."""

FRESH_LOOKS, FRESH_SECONDS_MIN = 3.0, 30.0
"""What was seen of a peer longer ago than so many of its intervals, and than this, is not known any more."""

EVIDENCE_MINUTES = 10.0
"""Of the recording: what led to the incident, and the usual before it."""

Recording = Callable[[str, float], AsyncIterator[bytes]]  # target's name, minutes
LogTail = Callable[[str], AsyncIterator[bytes] | None]  # target's name; None: no log of it is read


def no_log(_: str) -> None:
    """Nothing is known of any engine's log."""


@dataclass(slots=True)
class Followed:
    """One target that is watched now."""

    target: Target
    settings: RestartSettings
    draining: bool = False
    restarting: bool = False


@dataclass(slots=True)
class _Ranks:
    """Engines that may serve."""

    healthy: int = 0
    total: int = 0
    unknown: int = 0


@dataclass(slots=True)
class DaemonWorld:
    """Fulfils restart.world.World. `tell` is called with the name of a target of which something changed."""

    board: Board
    recording: Recording
    state_dir: Path | None
    tell: Callable[[str], None]
    last_attempt: Callable[[str], Attempt | None]
    gates: Gates
    log_tail: LogTail = no_log
    followed: dict[str, Followed] = field(default_factory=dict)
    _looked: dict[str, asyncio.Event] = field(default_factory=dict)
    _status: Status | None = None

    def follow(self, targets: Iterable[tuple[Target, RestartSettings]]) -> None:
        """These, and no others, are watched from now on."""
        before, self.followed = self.followed, {}
        for target, settings in targets:
            known = before.get(target.name) or Followed(target, settings)
            known.target, known.settings = target, settings
            self.followed[target.name] = known
        for gone in before.keys() - self.followed.keys():
            self.gates.forget(gone)

    def looked(self, name: str) -> None:
        """A look at the target has ended."""
        signals = self.signals(name)
        if signals is not None:
            self.gates.looked(signals)
        event = self._looked.pop(name, None)
        if event is not None:
            event.set()

    # --- what restart.world.World asks

    def target(self, name: str) -> Target | None:
        found = self.followed.get(name)
        return None if found is None else found.target

    def settings(self, name: str) -> RestartSettings:
        found = self.followed.get(name)
        return RestartSettings() if found is None else found.settings

    def signals(self, name: str) -> TargetSignals | None:
        entry = self.board.targets.get(name)
        return None if entry is None else entry.signals

    def open_kinds(self, name: str) -> frozenset[str]:
        """Those that the last look still found: an incident stays open for a while after its end."""
        entry = self.board.targets.get(name)
        open_ = entry.incidents.open.values() if entry else ()
        return frozenset(each.kind for each in open_ if each.firing)

    def incident(self, incident_id: str) -> IncidentFact | None:
        found = self.board.incidents.find(incident_id)
        if found is None:
            return None
        return IncidentFact(
            open=found.open, restart_advised=found.restart_advised, outlived=found.outlived
        )

    def peers(self, name: str) -> Peers | None:
        """In engines: all data-parallel engines of a server go with it, and those that are well are lost."""
        own = self.followed.get(name)
        if own is None:
            return None
        lost = self._ranks(name).healthy
        left = _Ranks()
        for other, followed in self.followed.items():
            if other == name or followed.target.group != own.target.group:
                continue
            ranks = self._ranks(other)
            left.healthy += 0 if followed.restarting or followed.draining else ranks.healthy
            left.total += ranks.total
            left.unknown += ranks.unknown
        return Peers(
            healthy=left.healthy, total=left.total + max(1, lost), unknown=left.unknown
        )  # fmt: skip

    def _ranks(self, name: str) -> _Ranks:
        entry = self.board.targets.get(name)
        if entry is None or not _is_fresh(entry):
            return _Ranks(total=1, unknown=1)
        signals = entry.signals
        assert signals is not None  # noqa: S101 - fresh
        states = [engine.state for engine in signals.engines.values()] or [signals.state]
        serves = signals.up and signals.health_status in (None, 200)
        return _Ranks(
            healthy=sum(state in HEALTHY for state in states) if serves else 0,
            total=len(states),
            unknown=states.count("unknown"),
        )

    def load_seconds(self, name: str) -> float | None:
        """Of the target itself, else the longest of its group's."""
        own = self.followed.get(name)
        if own is None:
            return None
        known = self._startup_seconds(name)
        if known is not None:
            return known
        kin = (
            self._startup_seconds(other)
            for other, each in self.followed.items()
            if each.target.group == own.target.group
        )
        return max((seconds for seconds in kin if seconds is not None), default=None)

    def _startup_seconds(self, name: str) -> float | None:
        signals = self.signals(name)
        return None if signals is None else signals.startup_seconds

    def start_failure(self, name: str) -> str | None:
        signals = self.signals(name)
        found = None if signals is None else signals.start_failure
        if found is not None and found.deterministic:
            return found.sentence or found.explanation or found.failure
        entry = self.board.targets.get(name)
        for incident in entry.incidents.open.values() if entry else ():
            if incident.cause == "crash_loop":
                return incident.summary
        return None

    async def next_look(self, name: str, timeout_seconds: float) -> bool:
        event = self._looked.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(timeout_seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def evidence(self, attempt: Attempt) -> str | None:
        if self.state_dir is None:
            return None
        name = attempt.target
        if self._status is None:
            self._status = Status(self.board)
        parts = {
            "recording.jsonl.gz": self.recording(name, EVIDENCE_MINUTES),
            "target.json": _once(self._status.target(name) or "null"),
            "incidents.json": _once(self._status.incidents(name)),
            "gpus.json": _once(self._status.gpus()),
        }
        tail = self.log_tail(name)
        if tail is not None:
            parts["engine.log"] = tail
        path = await evidence.keep(self.state_dir / "evidence", f"{name}-{attempt.id}", parts)
        return str(path)

    def restarting(self, name: str, *, on: bool) -> None:
        found = self.followed.get(name)
        if found is None:
            return
        found.restarting = on
        entry = self.board.targets.get(name)
        if entry is not None:
            missing = None if on else _missing(self.last_attempt(name))
            entry.restart_news = RestartNews(under_way=on, missing=missing)
        self.tell(name)

    def draining(self, name: str, *, on: bool) -> None:
        found = self.followed.get(name)
        if found is not None and found.draining != on:
            found.draining = on
            self.gates.draining(name, on=on)
            self.tell(name)

    def changed(self, name: str) -> None:
        self.tell(name)


def _is_fresh(entry: TargetEntry) -> bool:
    if entry.signals is None:
        return False
    age_s = time.time() - entry.signals.t
    return age_s <= max(FRESH_SECONDS_MIN, FRESH_LOOKS * entry.interval_seconds)


def _missing(attempt: Attempt | None) -> str | None:
    """Why the server should be back by now, after an attempt that ended like this."""
    if attempt is None or attempt.state != "did_not_help":
        return None
    called_t = attempt.called_t or attempt.began_t
    return f"vllm-watch restarted it {guard.clock(called_t)}, and it did not come back"


async def _once(text: str) -> AsyncIterator[bytes]:
    yield text.encode()
