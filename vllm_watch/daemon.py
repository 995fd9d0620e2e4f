"""THE wiring: builds every object once, starts the tasks, changes them on reload, stops them on SIGTERM.

Nothing is decided here. The flow: each target's loop looks, its Watch judges, the Publisher writes the board once, and
restarts and notifications read it. The host's GPUs are a loop of their own.
"""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from vllm_watch.board.board import Board
from vllm_watch.board.health import StoreHealth
from vllm_watch.config import Config
from vllm_watch.errors import WatchError
from vllm_watch.export.in_a_line import in_a_line
from vllm_watch.export.otlp import pushing
from vllm_watch.export.server import Server
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.notify.switch import NotifySwitch
from vllm_watch.restart import config_changes
from vllm_watch.settings.stages import GpuSettings, ScrapeSettings
from vllm_watch.settings.target import TargetConfig
from vllm_watch.sources import cpu_waits, http
from vllm_watch.sources.canary import CanarySource
from vllm_watch.sources.discovery_host import Neighbours
from vllm_watch.sources.engine_log import EngineLog
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.http_session import Session
from vllm_watch.sources.process_listing import ProcessListing
from vllm_watch.sources.targets import Discovery
from vllm_watch.sources.vllm import VllmSource
from vllm_watch.state.folder import StateFolder
from vllm_watch.support.service_manager import ServiceManager
from vllm_watch.watch.canary_rounds import CanaryRounds
from vllm_watch.watch.host_loop import GpuSource, HostLoop
from vllm_watch.watch.host_watch import HostWatch, ServerLook
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.peers import Peers
from vllm_watch.watch.publishing import Publisher
from vllm_watch.watch.target_loop import TargetLoop
from vllm_watch.watch.watch import Watch

if TYPE_CHECKING:  # what only some configurations need is loaded where one does
    from vllm_watch.restart.restarts import Restarts

_log = structlog.get_logger()

SPREAD_ABOVE = 16
"""With more targets than this their first looks are spread over the interval; else a full page is worth more."""

STOP_SECONDS = 5.0
"""How long stopping may take before what is left is abandoned; systemd's default patience is 90."""


@dataclass(slots=True)
class _Running:
    """A target's loop, and what it was made of."""

    made_of: tuple[object, ...]
    watch: Watch
    group: str
    loop: TargetLoop
    task: asyncio.Task[None]


class Daemon:
    """The whole watcher. `load_config` is asked for the new configuration on reload (None: no reload)."""

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
        self._running: dict[str, _Running] = {}
        self._waiting_for: set[str] = set()
        self._targets: tuple[TargetConfig, ...] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reloading = asyncio.Lock()
        self._signalled = False  # does a reload that a signal asked for still wait for its turn?
        self._session: Session | None = None
        self._discovery = Discovery(config)
        self._processes = ProcessListing(config.procfs)
        self._neighbours = Neighbours(self._processes, config.procfs)
        self.board = Board(window_seconds=config.signals.window_seconds, host=socket.gethostname())
        self.board.external_url, self.board.links = config.external_url, config.templates
        state = self._state = self._state_folder()
        self._memory = Memory(state.incidents if state else None, self.board)
        self._journal = state.journal if state else None
        self.recorder = FlightRecorder(
            seconds=config.recorder.minutes * 60, bytes_max_per_target=config.recorder.bytes_max,
            spool_dir=config.state_dir and config.state_dir / "recordings",
        )  # fmt: skip
        self._logs: dict[str, EngineLog] = {}  # by target
        told = state.ledger if state else None
        self._notify = NotifySwitch(config, self.board, self._silenced, told)
        self._publisher = Publisher(
            self.board, Fleet(config.fleet.share, config.fleet.targets_min), self.recorder,
            self._memory, (self, self._notify),
        )  # fmt: skip
        self._restarts: Restarts | None = None
        self._configure_restarts()
        self._peers = Peers(self.board)
        self._host = HostLoop(
            config, make_gpu_source, HostWatch(socket.gethostname(), config.detectors), self.board, self.recorder,
            self._publisher, self._on_host,
        )  # fmt: skip
        self._server = self._new_server()

    def _state_folder(self) -> StateFolder | None:
        if self._config.state_dir is None:
            return None
        self.board.store = StoreHealth(str(self._config.state_dir))
        return StateFolder(self._config.state_dir, self.board.store.count)

    def _configure_restarts(self) -> None:
        """Restarts are loaded once a configuration asks for them, and stay from then on."""
        if self._restarts is not None:
            self._restarts.configure(self._config)
        elif self._config.wants_restarts:
            from vllm_watch.export.evidence import Evidence  # noqa: PLC0415
            from vllm_watch.restart.restarts import Restarts  # noqa: PLC0415 - brings a scheduler

            evidence = Evidence(self.board, self.recorder, self._logs)
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
            gatekeeper=None if self._restarts is None else self._restarts.gates,
            tokens=self._config.api.tokens, names=self._config.api.hosts, web_config=self._config.web_config,
        )  # fmt: skip

    @property
    def loops(self) -> list[TargetLoop]:
        """The loops that run now; benchmarks ask them how late they were."""
        return [running.loop for running in self._running.values()]

    async def run(self, started: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT. Raises ServeError where the address cannot be had."""
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
            await self._manager.stopping()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Take the port, serve, and begin to look. Raises ServeError."""
        self._server.take()
        serving = asyncio.create_task(self._serve(), name="serving")
        self._tasks = [serving]
        self._session = http.new_session()
        async with self._reloading:  # it is served already: who reloads now waits
            await self._memory.open()
            self._memory.recall_host(self._host.watch)
            self._publisher.over(self._memory.show(self._host.watch))
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
        """Where a person on this host finds the page."""
        return self._config.url_here(self._server.port, self._server.scheme)

    async def stop(self) -> None:
        """End everything; safe to call at any time."""
        tasks = [*self._tasks, *(running.task for running in self._running.values())]
        for task in tasks:
            task.cancel()
        ending = [self._discovery.close(), self._notify.stop()]
        if self._restarts is not None:
            # After the looks: nothing that a restart does may be judged once it is not known any more.
            ending.append(self._restarts.stop())
        tasks += map(asyncio.create_task, ending)
        await asyncio.wait(tasks, timeout=STOP_SECONDS)
        for running in self._running.values():
            self._memory.save(running.watch, running.group)
        self._memory.save(self._host.watch, self._host.watch.target)
        self._running.clear()
        if self._state is not None:
            await self._state.close()
        await self._server.stop()
        if self._session is not None:
            await self._session.close()
        await self._host.close()
        await self.recorder.close()

    async def reload(self, actor: str, source: str) -> None:
        """Read the configuration again and change to it; a wrong one raises WatchError and changes nothing.

        `actor` and `source` say in the journal who wanted it, and from where.
        """
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
            _log.info("reloaded", targets=len(self._running))
            if self._journal is not None:
                await config_changes.note(self._journal, actor, source, old, config)

    def _reload_on_signal(self) -> None:
        if self._signalled:
            return  # the one that waits reads the configuration after this signal, too
        self._signalled = True

        async def quietly() -> None:
            try:
                async with self._reloading:  # until the one before it has ended
                    self._signalled = False
                await self.reload("whoever may signal the process", "SIGHUP")
            except WatchError:
                return  # said in the log; the old configuration goes on

        self._tasks.append(asyncio.create_task(quietly(), name="reload"))
        self._tasks = [task for task in self._tasks if not task.done()]

    async def _change_to(self, config: Config) -> None:
        fixed = self._config.needs_a_start(config)
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

    # --- targets

    async def _discover_on(self) -> None:
        while True:
            await self._discovery.wait(min(1.0, self._config.discovery.refresh_seconds))
            try:
                await self._discover()
                if not self._discovery.problems:
                    here = (self._host.watch.target, *self._running)
                    self._publisher.over(self._memory.end_orphans(here))
            except Exception:  # noqa: BLE001 - the targets that are known go on
                _log.exception("discovery_failed")

    async def _discover(self, *, even_if_unchanged: bool = False) -> None:
        found = await self._discovery.refresh(time.monotonic())
        self.board.nothing_watched = self._discovery.nothing_found
        if found is not None:
            self._targets = found
        elif not even_if_unchanged:
            return
        if self._targets is not None:
            self._reconcile(self._targets)

    def _reconcile(self, targets: tuple[TargetConfig, ...]) -> None:
        wanted = {target.name: target for target in targets}
        self._peers.follow(targets)
        for name, running in list(self._running.items()):
            if name not in wanted:
                self._end(name)
                _log.info("target_gone", target=name)
            elif running.made_of != self._made_of(wanted[name]):
                self._halt(name)
        for name, target in wanted.items():
            if name not in self._running:
                self._begin(target, spread=len(wanted) > SPREAD_ABOVE)
        if self._restarts is not None:
            self._restarts.follow((t.identity(), self._config.restart_for(t)) for t in targets)

    def _made_of(self, target: TargetConfig) -> tuple[object, ...]:
        config = self._config
        return (
            target.identity(), config.scrape_for(target), config.slo_for(target), config.signals,
            config.canary_for(target), config.engine_log_for(target), config.detectors_for(target),
        )  # fmt: skip

    def _begin(self, target: TargetConfig, *, spread: bool) -> None:
        assert self._session is not None  # noqa: S101 - begun in start()
        identity, scrape = target.identity(), self._config.scrape_for(target)
        source = VllmSource(identity, scrape, self._session, self._neighbours)
        watch = Watch(
            identity.name, self._config.signals, self._config.slo_for(target),
            thresholds=self._config.detectors_for(target),
        )  # fmt: skip
        self._memory.recall(watch, identity)
        loop = TargetLoop(
            identity, scrape, source, watch, self.board, self._host, self._publisher, log=self._engine_log(target), peers=self._peers,
            canary=self._canary_rounds(target, scrape), cpu=cpu_waits.CpuWaits(identity.url, self._config.procfs, listing=self._processes),
        )  # fmt: skip
        self.board.add_target(identity, scrape.interval_seconds)
        self._publisher.over(self._memory.show(watch))
        self.recorder.name_url(identity.name, identity.url)
        self._waiting_for.add(identity.name)
        task = asyncio.create_task(loop.run(spread=spread), name=f"target {identity.name}")
        made_of, group = self._made_of(target), identity.group
        self._running[identity.name] = _Running(made_of, watch, group, loop, task)
        _log.info("target_added", target=identity.name, url=identity.url)

    def _engine_log(self, target: TargetConfig) -> EngineLog | None:
        path = self._config.engine_log_for(target)
        if path is None:
            return None
        log = self._logs[target.name] = EngineLog(target.name, path)
        return log

    def _canary_rounds(self, target: TargetConfig, scrape: ScrapeSettings) -> CanaryRounds | None:
        assert self._session is not None  # noqa: S101 - begun in start()
        settings = self._config.canary_for(target)
        if not settings.enabled:
            return None
        source = CanarySource(target.identity(), settings, scrape, self._session)
        return CanaryRounds(target.name, settings, source)

    def _halt(self, name: str) -> None:
        """Stop a loop, and keep what it knows for the one that takes its place."""
        running = self._running.pop(name)
        running.task.cancel()
        self._logs.pop(name, None)
        self._waiting_for.discard(name)
        self._memory.save(running.watch, running.group)

    def _end(self, name: str) -> None:
        """Stop watching a target: it is gone, and its incidents with it."""
        watch, group = self._running[name].watch, self._running[name].group
        self._halt(name)
        last_t = watch.signals.t if watch.signals is not None else time.time()
        self._memory.save(watch, group, watch.close(last_t))
        self._memory.forget_pace(name)
        self._publisher.gone(name)

    def saw(self, target: str, events: Sequence[IncidentEvent]) -> None:
        """A look at a target has ended."""
        if self._restarts is not None:
            self._restarts.saw(target, events)
        self._waiting_for.discard(target)

    def _on_host(self) -> Mapping[str, ServerLook]:
        """The servers of this host, by target."""
        looks = ((name, running.loop.on_host()) for name, running in self._running.items())
        return {name: look for name, look in looks if look is not None}

    # --- what the server asks

    def _not_ready(self) -> str | None:
        if self._targets is None:
            return "targets are still being looked for"
        if not self._waiting_for:
            return None
        waiting, all_ = len(self._waiting_for), len(self._running)
        return f"{waiting} of {all_} targets have not been scraped yet"
