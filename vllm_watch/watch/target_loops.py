"""Start, replace and end target loops as targets come, change and go."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from vllm_watch.board.board import Board
from vllm_watch.config import Config
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.settings.target import TargetConfig
from vllm_watch.sources.canary import CanarySource
from vllm_watch.sources.cpu_waits import CpuWaits
from vllm_watch.sources.engine_log import EngineLog
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.host_servers import Neighbours
from vllm_watch.sources.http import Session
from vllm_watch.sources.processes import ProcessListing
from vllm_watch.sources.vllm import VllmSource
from vllm_watch.watch.canary_rounds import CanaryRounds
from vllm_watch.watch.host_loop import HostLoop
from vllm_watch.watch.host_watch import ServerScrape
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.peers import Peers
from vllm_watch.watch.publishing import Publisher
from vllm_watch.watch.target_loop import TargetLoop
from vllm_watch.watch.watch import Watch

_log = structlog.get_logger()

SPREAD_ABOVE = 16
"""Above this number of targets, first scrapes are spread over the interval."""


@dataclass(slots=True)
class Running:
    """A target's loop, and the settings that it was made of."""

    made_of: tuple[object, ...]
    watch: Watch
    group: str
    loop: TargetLoop
    task: asyncio.Task[None]


class TargetLoops:
    """The loops of all targets. `host` must be set before the first loop starts."""

    host: HostLoop

    def __init__(
        self,
        config: Config,
        board: Board,
        recorder: FlightRecorder,
        memory: Memory,
        publisher: Publisher,
    ) -> None:
        self._config = config
        self._board, self._recorder = board, recorder
        self._memory, self._publisher = memory, publisher
        self._session: Session | None = None
        self.processes = ProcessListing(config.procfs)
        self._neighbours = Neighbours(self.processes, config.procfs)
        self._peers = Peers(board)
        self.running: dict[str, Running] = {}
        self.unseen: set[str] = set()
        self.logs: dict[str, EngineLog] = {}

    def __len__(self) -> int:
        return len(self.running)

    def open(self, session: Session) -> None:
        self._session = session

    def follow(self, config: Config, targets: tuple[TargetConfig, ...]) -> None:
        self._config = config
        wanted = {target.name: target for target in targets}
        self._peers.follow(targets)
        for name, running in list(self.running.items()):
            if name not in wanted:
                self._end(name)
                _log.info("target_gone", target=name)
            elif running.made_of != self._made_of(wanted[name]):
                self._halt(name)
        new = [target for name, target in wanted.items() if name not in self.running]
        for target in new:
            self._begin(target, spread=len(wanted) > SPREAD_ABOVE)
        begun = {each.name: (each.identity(), self.running[each.name].watch) for each in new}
        self._publisher.take_up(begun)

    def on_host(self) -> Mapping[str, ServerScrape]:
        scrapes = ((name, running.loop.on_host()) for name, running in self.running.items())
        return {name: scrape for name, scrape in scrapes if scrape is not None}

    def note_stacks(self, target: str, incident: str, sentence: str) -> None:
        if target in self.running:
            watch, group = self.running[target].watch, self.running[target].group
            watch.note_stacks(incident, sentence)
            self._memory.save(watch, group)

    def stop(self) -> list[asyncio.Task[None]]:
        """End every loop, and return the tasks for the caller to cancel."""
        for running in self.running.values():
            running.loop.end()
        return [running.task for running in self.running.values()]

    def close(self) -> None:
        for running in self.running.values():
            self._memory.save(running.watch, running.group)
        self.running.clear()

    def _made_of(self, target: TargetConfig) -> tuple[object, ...]:
        config = self._config
        return (
            target.identity(), config.scrape_for(target), config.slo_for(target), config.signals,
            config.canary_for(target), config.engine_log_for(target), config.detectors_for(target),
        )  # fmt: skip

    def _begin(self, target: TargetConfig, *, spread: bool) -> None:
        session = self._open_session()
        identity, scrape = target.identity(), self._config.scrape_for(target)
        source = VllmSource(identity, scrape, session, self._neighbours)
        watch = Watch(
            identity.name, self._config.signals, self._config.slo_for(target),
            thresholds=self._config.detectors_for(target),
        )  # fmt: skip
        self._memory.recall(watch, identity)
        loop = TargetLoop(
            identity, scrape, source, watch, self._board, self.host, self._publisher, log=self._engine_log(target),
            peers=self._peers, canary=self._canary_rounds(target, scrape, session),
            cpu=CpuWaits(identity.url, self._config.procfs, listing=self.processes),
        )  # fmt: skip
        self._board.add_target(identity, scrape.interval_seconds)
        self._recorder.name_url(identity.name, identity.url)
        self.unseen.add(identity.name)
        task = asyncio.create_task(loop.run(spread=spread), name=f"target {identity.name}")
        made_of, group = self._made_of(target), identity.group
        self.running[identity.name] = Running(made_of, watch, group, loop, task)
        _log.info("target_added", target=identity.name, url=identity.url)

    def _open_session(self) -> Session:
        assert self._session is not None  # noqa: S101 - opened before any target is followed
        return self._session

    def _engine_log(self, target: TargetConfig) -> EngineLog | None:
        path = self._config.engine_log_for(target)
        if path is None:
            return None
        log = self.logs[target.name] = EngineLog(target.name, path)
        return log

    def _canary_rounds(
        self, target: TargetConfig, scrape: ScrapeSettings, session: Session
    ) -> CanaryRounds | None:
        settings = self._config.canary_for(target)
        # By default, servers with peers get no canaries, because prefill and decode need each other.
        if settings.enabled is False or (settings.enabled is None and target.peers):
            return None
        source = CanarySource(target.identity(), settings, scrape, session)
        return CanaryRounds(target.name, settings, source)

    def _halt(self, name: str) -> None:
        running = self.running.pop(name)
        running.loop.end()
        running.task.cancel()
        self.logs.pop(name, None)
        self.unseen.discard(name)
        self._memory.save(running.watch, running.group)

    def _end(self, name: str) -> None:
        watch, group = self.running[name].watch, self.running[name].group
        self._halt(name)
        self._publisher.gone(name, group, watch)
