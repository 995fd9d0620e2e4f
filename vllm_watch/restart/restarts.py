"""Connect the restart objects, and turn incidents and schedules into requests."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

import structlog

from vllm_watch import __version__
from vllm_watch.board.board import Board
from vllm_watch.board.restarts import RestartState
from vllm_watch.config import Config
from vllm_watch.errors import JournalError
from vllm_watch.incidents.incident import ACTIVE, Incident, IncidentEvent
from vllm_watch.restart.backends import Backends
from vllm_watch.restart.checks import clock
from vllm_watch.restart.controls import Controls
from vllm_watch.restart.dispatcher import Dispatcher
from vllm_watch.restart.evidence import EvidenceSource, EvidenceStore
from vllm_watch.restart.facts import RestartRequest
from vllm_watch.restart.gates import Gates
from vllm_watch.restart.operators import Operators
from vllm_watch.restart.plan import PlanPublisher
from vllm_watch.restart.schedule import Schedule, condition, reason
from vllm_watch.restart.targets import Targets
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.settings.restart_times import ScheduleSettings
from vllm_watch.state.journal import Entry, Journal
from vllm_watch.support.token_file import TokenFile

_log = structlog.get_logger()

CHECK_SECONDS = 10.0

LATE_SECONDS = 60.0
"""A due time counts as missed after this many seconds. In that case the watcher was down or suspended, or the clock was set."""

STOP_SECONDS = 4.0
"""A stop takes at most this many seconds. The next run verifies attempts that are still under way."""


class Restarts:
    """Runs the daemon's restarts."""

    def __init__(
        self, config: Config, board: Board, evidence: EvidenceSource, journal: Journal | None
    ) -> None:
        """`journal` is None without a state folder. In that case nothing is restarted."""
        self.journal = journal or Journal(None)
        self.gates = Gates(self.journal)
        self.targets = Targets(board, self.gates)
        self._config = config
        self._passing = journal is None
        self._controls = Controls(self.journal, __version__)
        self._backends = Backends(config, self.gates)
        folder = None if config.state_dir is None else config.state_dir / "evidence"
        self.dispatcher = Dispatcher(
            self.targets, self.journal, self._controls, self._backends,
            EvidenceStore(folder, evidence),
        )  # fmt: skip
        self._schedule = Schedule(self._due, self._since)
        self._plan = PlanPublisher(
            board, self.targets, self.dispatcher, self._controls, self.journal, self._schedule
        )
        self.operators = Operators(
            self.targets, self.dispatcher, self._controls, self.journal, lasting=not self._passing
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened = self._started = False
        self.configure(config)
        board.restarts = RestartState(people=self._plan.people)

    async def open(self) -> None:
        """Read the stored state. Call this before the first scrape, with the state folder locked."""
        if self._opened:
            return
        self._opened = True
        await self.journal.probe()
        await self._controls.load(time.time())
        await self._plan.read_attempts()

    async def start(self) -> None:
        """Resume attempts and start the loops. Call this when the targets are known."""
        if self._started:
            return
        self._started = True  # first, because a reload may call this method during the reads
        await self.open()
        await self.dispatcher.resume()
        self._schedule.start()
        self._spawn(self.targets.tick(), "suspension noticed")
        self._spawn(self.dispatcher.run(), "restarts")
        self._spawn(self._plan.run(), "restarts shown")
        self._spawn(self._check_loop(), "restarts wanted")

    @property
    def hook_seconds(self) -> float:
        return self.dispatcher.attempts.hook_seconds

    async def let_hooks_end(self) -> None:
        self._schedule.stop()
        await self.dispatcher.attempts.let_hooks_end()

    async def stop(self) -> None:
        self._schedule.stop()
        for task in self._tasks:
            task.cancel()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self.dispatcher.attempts.stop()
        except TimeoutError:
            _log.error("restarts_not_stopped", seconds=STOP_SECONDS)
        await self._backends.close()
        if self._passing:
            await self.journal.close()

    def configure(self, config: Config) -> None:
        self._config = config
        self._plan.people = bool(config.api.tokens)
        self._controls.tokens = {
            each.name: TokenFile(each.name, each.file, each.may) for each in config.api.tokens
        }
        self._backends.configure(config)

    def follow(self, targets: Iterable[tuple[Target, RestartSettings]]) -> None:
        self.targets.follow(targets)
        settings = {name: each.settings for name, each in self.targets.managed.items()}
        self._schedule.set(each for each in settings.items() if each[1].mode != "off")
        self.dispatcher.wake()

    def saw(self, name: str, events: Sequence[IncidentEvent]) -> None:
        for event in events:
            if event.incident.phase == ACTIVE and event.incident.open:
                self._ask_for(event.incident)
            else:
                self.dispatcher.trouble_over(event.incident.id)
        self.targets.scraped(name)

    def silenced(self, incident_id: str) -> bool:
        return self._controls.silenced(incident_id, time.time())

    def _ask_for(self, incident: Incident) -> None:
        for name in incident.restart_targets or (incident.target,):
            managed = self.targets.managed.get(name)
            if name in self.targets.gang(incident.target):
                continue  # the target of the incident requests the restart of the gang
            if managed is None or managed.restarting or not incident.advises_restart_of(name):
                continue
            mode = managed.settings.mode
            if mode == "off" or (mode == "observe" and self._was_dry_run(incident.id)):
                continue
            self.dispatcher.submit(RestartRequest(
                target=name, group=managed.target.group, trigger="incident", reason=incident.summary,
                asked_t=time.time(), engine=incident.engine, incident_id=incident.id,
                kind=incident.kind, cause=incident.cause,
                approved_by=self._controls.approved_by(incident.id, name),
            ))  # fmt: skip

    def _was_dry_run(self, incident_id: str) -> bool:
        known = self._plan.attempts or ()
        return any(each.incident_id == incident_id and each.state == "dry_run" for each in known)

    def _due(self, name: str, schedule: ScheduleSettings) -> None:
        managed = self.targets.managed.get(name)
        if managed is None:
            return
        now_t = time.time()
        due_t = self._schedule.fell_due.get((name, schedule.name), now_t)
        self._spawn(self._note_due(name, schedule, due_t, now_t))
        if now_t - due_t > schedule.misfire_seconds:
            return
        against = condition(schedule, self.targets.signals(name))
        if against is not None:
            _log.info("schedule_left_out", target=name, schedule=schedule.name, because=against)
            return
        self.dispatcher.submit(RestartRequest(
            target=name, group=managed.target.group, trigger="schedule",
            reason=reason(schedule), schedule=schedule.name, process=self.targets.process(name),
            asked_t=now_t, expires_t=due_t + schedule.misfire_seconds,
        ))  # fmt: skip

    def _since(self, name: str, schedule: ScheduleSettings) -> float:
        """Return the Unix time after which to search for due times.

        If the last request was not carried out before the watcher ended, its due time is found again.
        """
        now_t, last_t = time.time(), self._controls.scheduled_t(name, schedule.name)
        if self._controls.known and last_t is None:
            self._spawn(self._note_due(name, schedule, now_t, now_t))
        if last_t is None or last_t > now_t:
            return now_t
        made = any(
            each.helped_since(name, last_t)
            or (each.made_for(name, reason(schedule)) and each.began_t >= last_t)
            for each in self._plan.attempts or ()
        )
        waits = not made and now_t - last_t <= schedule.misfire_seconds
        return last_t - 1.0 if waits else last_t

    async def _note_due(
        self, name: str, schedule: ScheduleSettings, due_t: float, now_t: float
    ) -> None:
        late_s = now_t - due_t
        with contextlib.suppress(JournalError):
            await self._controls.set_scheduled(name, schedule.name, due_t)
            if late_s <= LATE_SECONDS:
                return
            kept = late_s <= schedule.misfire_seconds
            after = (
                "requested now" if kept else f"skipped: later than {schedule.misfire_seconds:g} s"
            )
            missed = f"{reason(schedule)} since {clock(due_t)}, {late_s / 60:.0f} min late"
            _log.warning("schedule_missed", target=name, because=missed, after=after)
            await self.journal.note(Entry(
                t=now_t, actor="vllm-watch", source="schedule", action="missed", target=name, reason=missed,
                after=after,
            ))  # fmt: skip

    def _spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check_loop(self) -> None:
        while True:
            await self._check_incidents()
            await asyncio.sleep(CHECK_SECONDS)

    async def _check_incidents(self) -> None:
        """Submit the requests of open incidents again, because an earlier request may have been refused."""
        # Another program may have changed the state file.
        await self._controls.load(time.time())
        for incident in self.targets.incidents():
            self._ask_for(incident)
        if self.journal.trouble is not None:
            # Only a write clears the error, and without requests nothing is written.
            await self.journal.probe()
