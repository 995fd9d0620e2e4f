"""Restarts, wired: every object built once, incidents and schedules become wishes, what is decided is shown.

Nothing is decided here: the guard does, and the dispatcher asks it.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web

from vllm_watch import __version__
from vllm_watch.board.board import Board
from vllm_watch.board.restarts import RestartCounts, RestartState
from vllm_watch.config import Config
from vllm_watch.errors import JournalError
from vllm_watch.export.auth import Auth
from vllm_watch.export.gate import GateApi
from vllm_watch.export.people_api import PeopleApi
from vllm_watch.incidents.incident import Incident, IncidentEvent
from vllm_watch.restart import plan
from vllm_watch.restart.attempt import Attempt
from vllm_watch.restart.daemon_world import DaemonWorld, LogTail, Recording, no_log
from vllm_watch.restart.dispatcher import HISTORY_SECONDS, Dispatcher
from vllm_watch.restart.equipment import Equipment
from vllm_watch.restart.gates import Gates
from vllm_watch.restart.journal import Journal
from vllm_watch.restart.journals import PassingJournal
from vllm_watch.restart.people import DaemonPeople
from vllm_watch.restart.request import RestartRequest
from vllm_watch.restart.schedule import Schedule, condition
from vllm_watch.restart.standing import Standing
from vllm_watch.samples.target import Target
from vllm_watch.settings.hooks import GateHook
from vllm_watch.settings.restart import RestartSettings, ScheduleSettings

_log = structlog.get_logger()

SHOW_SECONDS = 30.0
"""Budgets and pauses change by time alone: what is shown is made anew at least so often."""

SHOW_PAUSE_SECONDS = 0.2
"""Several changes at once are shown as one."""

LOOK_SECONDS = 10.0
"""From one look at what is open to the next."""

STOP_SECONDS = 4.0
"""How long stopping may wait for attempts to let go; what they did is in the journal."""


class Restarts:
    """One daemon's restarts, from `open` to `stop`."""

    def __init__(
        self, config: Config, board: Board, recording: Recording, journal: Journal | None,
        log_tail: LogTail = no_log,
    ) -> None:  # fmt: skip
        """`journal` is that of the state folder; None: there is none, and so nothing is ever done."""
        self._board = board
        self._config = config
        self.journal = journal or PassingJournal()
        self._passing = journal is None
        self._standing = Standing(self.journal, __version__)
        gates = Gates(self.journal.note, self._gate_folder)
        self._equipment = Equipment(config, gates)
        self.world = DaemonWorld(
            board=board, recording=recording, state_dir=config.state_dir, tell=self._changed,
            last_attempt=self._last_attempt, gates=gates, log_tail=log_tail,
        )  # fmt: skip
        self._gate_api = GateApi(gates, lambda name: name in board.targets)
        self.dispatcher = Dispatcher(
            self.world, self.journal, self._standing, self._equipment.means()
        )
        self._schedule = Schedule(self._due)
        people = DaemonPeople(
            board, self.world, self.dispatcher, self._standing, self.journal,
            lasting=journal is not None,
        )  # fmt: skip
        self.auth = Auth(config.api.tokens)
        self._people = PeopleApi(self.auth, people)
        self._dirty: set[str] = set()
        self._woken = asyncio.Event()
        self._attempts: tuple[Attempt, ...] | None = None  # of the last week; None: not known
        self._trouble: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False
        board.restarts = RestartState(people=bool(config.api.tokens))

    def routes(self) -> list[web.RouteDef]:
        """What people and Alertmanager may ask, none without a token; and the gates, for probes."""
        return [*self._people.routes(), *self._gate_api.routes()]

    # --- start and stop

    async def open(self) -> None:
        """Read what holds; before the first look, and after the state folder was taken."""
        await self.journal.open()
        await self._standing.load(time.time())
        await self._read_attempts()

    async def start(self) -> None:
        """Go on with what an earlier run left, and begin. The targets must be known."""
        await self.dispatcher.resume()
        self._schedule.start()
        self._started = True
        for name, work in (
            ("restarts", self.dispatcher.run()), ("restarts shown", self._show_on()),
            ("restarts wanted", self._look_on()),
        ):  # fmt: skip
            self._begin(name, work)

    async def stop(self) -> None:
        """End everything within STOP_SECONDS; attempts under way are verified by the next run."""
        self._schedule.stop()
        for task in self._tasks:
            task.cancel()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self.dispatcher.attempts.stop()
        except TimeoutError:
            _log.error("restarts_not_stopped", seconds=STOP_SECONDS)
        await self._equipment.close()
        if self._passing:
            await self.journal.close()

    def _begin(self, name: str, work: Any) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what the daemon tells

    def configure(self, config: Config) -> None:
        """Use these hooks from now on; what holds for targets comes with them."""
        self._config = config
        self._equipment.configure(config)

    def follow(self, targets: Iterable[tuple[Target, RestartSettings]]) -> None:
        """These are the targets from now on, and this is what holds for them."""
        self.world.follow(targets)
        self._schedule.set(
            (name, each.settings)
            for name, each in self.world.followed.items()
            if each.settings.mode != "off"
        )
        for name in self.world.followed:
            self._changed(name)
        if self._started:
            self.dispatcher.wake()

    def saw(self, name: str, events: Sequence[IncidentEvent]) -> None:
        """A look at a target has ended, and this was told of incidents."""
        for event in events:
            incident = event.incident
            if not incident.open:
                self.dispatcher.drop(incident.id)
            elif incident.restart_advised:
                self._want(incident)
        self.world.looked(name)

    def silenced(self, incident_id: str) -> bool:
        """Does a person want to hear no more of this incident?"""
        return self._standing.silenced(incident_id, time.time())

    # --- wishes

    def _want(self, incident: Incident) -> None:
        """An open incident whose restart is advised asks for it, once for each target."""
        for name in incident.restart_targets or (incident.target,):
            followed = self.world.followed.get(name)
            if followed is None or followed.restarting:
                continue
            mode = followed.settings.mode
            if mode == "off" or (mode == "observe" and self._was_said(incident.id)):
                continue
            self.dispatcher.ask(RestartRequest(
                target=name, group=followed.target.group, trigger="incident", reason=incident.summary,
                asked_t=time.time(), engine=incident.engine, incident_id=incident.id,
                kind=incident.kind, cause=incident.cause,
            ))  # fmt: skip

    def _was_said(self, incident_id: str) -> bool:
        """Has a dry run said already what would be done for this incident?"""
        known = self._attempts or ()
        return any(each.incident_id == incident_id and each.state == "dry_run" for each in known)

    def _due(self, name: str, schedule: ScheduleSettings) -> None:
        followed = self.world.followed.get(name)
        if followed is None:
            return
        against = condition(schedule, self.world.signals(name))
        if against is not None:
            _log.info("schedule_left_out", target=name, schedule=schedule.name, because=against)
            return
        now_t = time.time()
        self.dispatcher.ask(RestartRequest(
            target=name, group=followed.target.group, trigger="schedule",
            reason=f"the schedule {schedule.name} is due", schedule=schedule.name,
            asked_t=now_t, expires_t=now_t + schedule.misfire_seconds,
        ))  # fmt: skip

    async def _look_on(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        """What is open and was not asked for (found before a restart of ours, or asked in vain) asks again."""
        for entry in self._board.all_entries():
            for incident in list(entry.incidents.open.values()):
                if incident.restart_advised:
                    self._want(incident)
        if self.journal.trouble is not None:
            # Only a write mends it, and without a wish nobody writes: what is over would be told for ever.
            await self.journal.probe()

    # --- what is shown

    def _changed(self, name: str) -> None:
        self._dirty.add(name)
        self._woken.set()

    def _gate_folder(self, name: str) -> Path | None:
        """Where the target's probes look for files instead of asking."""
        hook = self._config.hooks.by_name().get(self.world.settings(name).hook, (None, None))[1]
        return hook.kill_dir if isinstance(hook, GateHook) else None

    def _last_attempt(self, name: str) -> Attempt | None:
        known = self.dispatcher.attempts.last(name)
        return None if known is None else known[0]

    async def _show_on(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SHOW_SECONDS):
                    await self._woken.wait()
                names, self._dirty = self._dirty, set()
            except TimeoutError:
                names = set(self.world.followed)
            self._woken.clear()
            try:
                await self._read_attempts()
                self._show(names)
            except Exception:  # noqa: BLE001 - what is shown must not cost what is done
                _log.exception("restarts_not_shown")
            await asyncio.sleep(SHOW_PAUSE_SECONDS)

    async def _read_attempts(self) -> None:
        try:
            kept = await self.journal.attempts(None, time.time() - HISTORY_SECONDS)
            self._attempts = self.dispatcher.attempts.newest(kept)
            trouble = self.journal.trouble or self._standing.history_lost
        except JournalError as error:
            self._attempts, trouble = None, error.cause
        if trouble != self._trouble:
            if trouble is not None:
                _log.error("restarts_blocked", because=trouble)
            self._trouble = trouble

    def _show(self, names: Iterable[str]) -> None:
        now_t = time.time()
        pause = self._standing.pause(now_t)
        self._board.restarts = RestartState(
            paused=plan.paused(pause), journal_trouble=self._trouble,
            people=bool(self._config.api.tokens),
        )  # fmt: skip
        for name in names:
            followed = self.world.followed.get(name)
            if followed is None:
                continue
            if followed.settings.mode == "off" and not self._was_touched(name):
                self._board.show_restart(name, None, RestartCounts())
                continue
            group = followed.target.group
            known = self._attempts
            shown = plan.shown(
                followed.target, policy=self._equipment.means().policy(followed.settings),
                hook=followed.settings.hook, dispatcher=self.dispatcher, now_t=now_t,
                attempts=None if known is None else [each for each in known if each.group == group],
                breaker_reset_t=self._standing.breaker_reset_t, pause=pause,
                journal_trouble=self._trouble, draining=followed.draining,
                next_t=self._schedule.next_t(name),
            )  # fmt: skip
            self._board.show_restart(name, shown, plan.counts(self.dispatcher, name))

    def _was_touched(self, name: str) -> bool:
        """Is there anything to show of a target that is not to be restarted (any more)?"""
        return self.dispatcher.attempts.last(name) is not None
