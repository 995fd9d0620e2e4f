"""Build all objects. Start, reload and stop the tasks."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from vllm_watch.board.board import Board
from vllm_watch.board.health import StoreHealth
from vllm_watch.config import Config
from vllm_watch.discovery.targets import Discovery
from vllm_watch.errors import WatchError
from vllm_watch.export.otlp import pushing
from vllm_watch.export.server import Server
from vllm_watch.export.status import in_a_line
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.notify.switch import NotifySwitch
from vllm_watch.restart import operators
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.settings.target import TargetConfig
from vllm_watch.sources import http
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.http import Session
from vllm_watch.sources.stacks import Stacks
from vllm_watch.state.folder import StateFolder
from vllm_watch.support import descriptors
from vllm_watch.support.service_manager import ServiceManager
from vllm_watch.watch.hang_stacks import HangStacks
from vllm_watch.watch.host_loop import GpuSource, HostLoop
from vllm_watch.watch.host_watch import HostWatch
from vllm_watch.watch.memory import ChartMemory, Memory
from vllm_watch.watch.publishing import Publisher
from vllm_watch.watch.target_loop import TargetLoop, TargetLoops

if TYPE_CHECKING:  # imported late: only some configurations need it
    from vllm_watch.restart.restarts import Restarts

_log = structlog.get_logger()

STOP_SECONDS = 5.0
"""Seconds to wait for tasks at exit. Hooks have already ended."""


class Daemon:
    """The whole watcher. On reload, `load_config` returns the new configuration."""

    def __init__(
        self,
        config: Config,
        make_gpu_source: Callable[[GpuSettings, Config], GpuSource],
        load_config: Callable[[], Config] | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        self._config = config
        self._manager = manager or ServiceManager({})
        self._load_config = load_config
        self._targets: tuple[TargetConfig, ...] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reloading = asyncio.Lock()
        self._reload_pending = False
        self._session: Session | None = None
        self._discovery = Discovery(config)
        self.board = Board(window_seconds=config.signals.window_seconds, host=socket.gethostname())
        self.board.external_url, self.board.links = config.external_url, config.templates
        state = self._state = self._state_folder()
        charts = ChartMemory(state.charts, self.board) if state else None
        self._memory = Memory(state.incidents if state else None, self.board, charts)
        self._journal = state.journal if state else None
        self.recorder = FlightRecorder(
            seconds=config.recorder.minutes * 60, bytes_max_per_target=config.recorder.bytes_max,
            spool_dir=config.state_dir and config.state_dir / "recordings",
        )  # fmt: skip
        ledger = state.ledger if state else None
        self._notify = NotifySwitch(config, self.board, self._silenced, ledger)
        self._publisher = Publisher(
            self.board, Fleet(config.fleet.share, config.fleet.targets_min), self.recorder,
            self._memory, (self, self._notify),
        )  # fmt: skip
        self._loops = TargetLoops(config, self.board, self.recorder, self._memory, self._publisher)
        self._host = self._loops.host = HostLoop(
            config, make_gpu_source, HostWatch(socket.gethostname(), config.detectors), self.board, self.recorder,
            self._publisher, self._loops.on_host,
        )  # fmt: skip
        self._stacks = Stacks(self._loops.processes, lambda: self._config.py_spy)
        self._hangs = HangStacks(self.board, self._stacks, self._loops.note_stacks, config.procfs)
        self._restarts: Restarts | None = None
        self._configure_restarts()
        self._server = self._new_server()

    def _state_folder(self) -> StateFolder | None:
        if self._config.state_dir is None:
            return None
        store = self.board.store = StoreHealth(str(self._config.state_dir))
        return StateFolder(self._config.state_dir, store.count, store.count_charts)

    def _configure_restarts(self) -> None:
        if self._restarts is not None:
            self._restarts.configure(self._config)
        elif self._config.wants_restarts:
            from vllm_watch.export.evidence import Evidence  # noqa: PLC0415
            from vllm_watch.restart.restarts import Restarts  # noqa: PLC0415 - imports a scheduler

            evidence = Evidence(self.board, self.recorder, self._loops.logs, self._stacks)
            self._restarts = Restarts(self._config, self.board, evidence, self._journal)

    def _silenced(self, incident_id: str) -> bool:
        return self._restarts is not None and self._restarts.silenced(incident_id)

    def _new_server(self) -> Server:
        host, port = self._config.listen_address
        return Server(
            self.board, host=host, port=port, ready=self._not_ready,
            reload=self.reload if self._load_config else None,
            recording=lambda target, minutes: self.recorder.dump(target, minutes * 60),
            journal=None if self._journal is None else self._journal.told,
            operators=None if self._restarts is None else self._restarts.operators,
            gatekeeper=None if self._restarts is None else self._restarts.gates, test_notifier=self._notify.test,
            tokens=self._config.api.tokens, names=self._config.api.hosts, web_config=self._config.web_config,
            public=self._config.api.public,
        )  # fmt: skip

    @property
    def loops(self) -> list[TargetLoop]:
        return list(self._loops.running.values())

    async def run(self, started: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT. Raises ServeError if the address cannot be bound."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload_on_signal)
        try:
            await self.start()
            self._manager.ready(lambda: in_a_line(self.board, self.url))
            if started is not None:
                started()
            await stopping.wait()
            _log.info("stopping")
            restarts = self._restarts
            await self._manager.stopping(0.0 if restarts is None else restarts.hook_seconds)
            if restarts is not None:
                await restarts.let_hooks_end()  # the daemon still serves and scrapes
        finally:
            await self.stop()

    async def start(self) -> None:
        """Bind the port and start every task. Raises ServeError."""
        self._server.take()
        serving = asyncio.create_task(self._serve(), name="serving")
        self._tasks = [serving]
        self._session = self._loops.session = http.Session()
        async with self._reloading:  # the API is already served, so its reloads must wait
            await self._memory.open()
            self._publisher.open(self._host.watch)
            if self._restarts is not None:
                await self._restarts.open()
            await self._notify.start()
            await self._discover()
            if self._restarts is not None:
                await self._restarts.start()
        self._tasks += [
            asyncio.create_task(self._discover_on(), name="discovery"),
            asyncio.create_task(self._host.run(), name="gpus"),
            asyncio.create_task(pushing(self.board, self._config.otlp), name="otlp"),
        ]
        await serving

    async def _serve(self) -> None:
        await self._server.start()
        _log.info("serving", url=self.url)

    @property
    def url(self) -> str:
        return self._config.url_here(self._server.port, self._server.scheme)

    async def stop(self) -> None:
        """May be called at any time."""
        tasks = [*self._tasks, *self._loops.stop(), *self._hangs.stop()]
        for task in tasks:
            task.cancel()
        ending = [self._discovery.close(), self._notify.stop()]
        if self._restarts is not None:
            # Stop the loops first. Without Restarts, they would treat a restart in progress as a fault.
            ending.append(self._restarts.stop())
        tasks += map(asyncio.create_task, ending)
        await asyncio.wait(tasks, timeout=STOP_SECONDS)
        self._loops.close()
        self._memory.save(self._host.watch, self._host.watch.target)
        self._memory.close()
        if self._state is not None:
            await self._state.close()
        await self._server.stop()
        if self._session is not None:
            await self._session.close()
        await self._host.close()
        await self.recorder.close()

    async def reload(self, actor: str, source: str) -> None:
        """Reread and apply the configuration. If it is invalid, raises WatchError and changes nothing."""
        if self._load_config is None:
            return
        async with self._reloading, self._manager.reloading():
            try:
                config = await asyncio.to_thread(self._load_config)
            except WatchError as error:
                _log.error("reload_refused", cause=error.cause, remedy=error.remedy)
                raise
            old = self._config
            await self._change_to(config)
            _log.info("reloaded", targets=len(self._loops))
            if self._journal is not None:
                await operators.note_reload(self._journal, actor, source, old, config)

    def _reload_on_signal(self) -> None:
        if self._reload_pending:
            return  # the pending reload will read the newest file
        self._reload_pending = True

        async def quietly() -> None:
            try:
                async with self._reloading:
                    self._reload_pending = False
                await self.reload("a local user", "SIGHUP")
            except WatchError:
                return  # already logged

        self._tasks.append(asyncio.create_task(quietly(), name="reload"))
        self._tasks = [task for task in self._tasks if not task.done()]

    async def _change_to(self, config: Config) -> None:
        fixed = self._config.needs_restart(config)
        if fixed:
            because = "these take effect when vllm-watch is restarted"
            _log.warning("needs_a_restart", changed=fixed, because=because)
        self._config = config
        await self._host.configure(config)
        self.board.window_seconds = config.signals.window_seconds
        self.board.external_url, self.board.links = config.external_url, config.templates
        self._discovery.reconfigure(config)
        self._configure_restarts()
        await self._notify.configure(config)
        await self._discover(even_if_unchanged=True)
        if self._restarts is not None:
            await self._restarts.start()

    async def _discover_on(self) -> None:
        while True:
            await self._discovery.wait(min(1.0, self._config.discovery.refresh_seconds))
            try:
                await self._discover()
                if not self._discovery.problems:
                    here = (self._host.watch.target, *self._loops.running)
                    self._publisher.end_orphans(here)
            except Exception:  # noqa: BLE001 - known targets must still be watched
                _log.exception("discovery_failed")

    async def _discover(self, *, even_if_unchanged: bool = False) -> None:
        found = await self._discovery.refresh(time.monotonic())
        self.board.nothing_watched = self._discovery.nothing_found
        if found is not None:
            self._targets = found
            descriptors.warn_if_few(len(found))
        elif not even_if_unchanged:
            return
        if self._targets is None:
            return
        self._loops.follow(self._config, self._targets)
        if self._restarts is not None:
            self._restarts.follow(
                (t.identity(), self._config.restart_for(t)) for t in self._targets
            )

    def saw(self, target: str, events: Sequence[IncidentEvent]) -> None:
        if self._restarts is not None:
            self._restarts.saw(target, events)
        self._loops.unseen.discard(target)
        if self._config.py_spy is not None:
            self._hangs.saw(target, events)

    def _not_ready(self) -> str | None:
        if self._targets is None:
            return "target discovery has not finished"
        if not self._loops.unseen:
            return None
        waiting, all_ = len(self._loops.unseen), len(self._loops)
        return f"{waiting} of {all_} targets have not been scraped yet"
