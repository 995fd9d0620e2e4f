"""One target's loop: scrape, judge, record and publish. Loops start, are replaced and end as targets come, change and go."""

import asyncio
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import structlog

from vllm_watch.board.board import Board, Looked
from vllm_watch.config import Config
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.record import completed
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.settings.target import TargetConfig
from vllm_watch.signals.records import TargetSignals
from vllm_watch.sources.canary import CanarySource
from vllm_watch.sources.cpu_waits import CpuWaits
from vllm_watch.sources.engine_log import EngineLog
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.host_servers import Neighbours
from vllm_watch.sources.http import Session
from vllm_watch.sources.processes import ProcessListing
from vllm_watch.sources.vllm import Look, VllmSource
from vllm_watch.watch.canary_rounds import CanaryRounds
from vllm_watch.watch.host_loop import HostLoop
from vllm_watch.watch.host_watch import ServerScrape
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.peers import Peers
from vllm_watch.watch.publishing import Publisher
from vllm_watch.watch.watch import Watch

_log = structlog.get_logger()

# Engines alternate between "serving", "idle" and "prefilling", so all three are logged as "up".
_LOGGED_STATES = {
    "serving": "up", "idle": "up", "prefilling": "up", "overloaded": "overloaded",
    "collapsed": "collapsed", "failing": "failing", "stalled": "stalled", "starting": "starting", "sleeping": "sleeping",
    "down": "down", "unknown": "unknown",
}  # fmt: skip

_LATENESS_KEPT = 120

BATCH_SECONDS = 0.5
"""Seconds between batches of scrapes. A batch costs less than separate wake-ups with cold caches."""


@dataclass(slots=True, eq=False)
class TargetLoop:
    """Scrapes one target at its interval until it is stopped. `cpu` and `host` are used only if the target runs on this host."""

    target: Target
    scrape: ScrapeSettings
    source: VllmSource
    watch: Watch
    board: Board
    host: HostLoop
    publisher: Publisher
    peers: Peers
    canary: CanaryRounds | None = None
    log: EngineLog | None = None
    cpu: CpuWaits | None = None
    made_of: tuple[object, ...] = ()  # settings
    task: asyncio.Task[None] = field(init=False)
    lateness_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENESS_KEPT))
    _logged_state: str | None = None
    _restarts: int = 0
    _judgement_failed: bool = False
    _scrape_failed: bool = False
    _ended: bool = False

    def __post_init__(self) -> None:
        if not self.source.local:
            self.cpu = None
        self._restarts = _restarts(self.watch.signals)

    def on_host(self) -> ServerScrape | None:
        if not self.source.local:
            return None
        return ServerScrape.of(self.watch.signals, self.watch.incidents, self._pids)

    @property
    def _pids(self) -> frozenset[int]:
        return frozenset() if self.cpu is None else self.cpu.pids

    def end(self) -> None:
        """End the loop. The loop publishes nothing more, even if a library swallows the task's cancellation."""
        self._ended = True

    async def run(self, *, spread: bool) -> None:
        """Scrape until `end` is called. If `spread`, the first scrape waits for its batch."""
        try:
            await self._run(spread=spread)
        finally:
            if self.canary is not None:
                await self.canary.stop()
            if self.log is not None:
                self.log.close()
            if self.cpu is not None:
                self.cpu.close()

    async def _run(self, *, spread: bool) -> None:
        start_s = time.monotonic()
        if spread:
            start_s = first_scrape_s(self.target.name, start_s, self.scrape.interval_seconds)
        tick = 0
        while not self._ended:
            due_s = start_s + tick * self.scrape.interval_seconds
            late_s = time.monotonic() - due_s
            if late_s < 0:
                await asyncio.sleep(-late_s)
                late_s = time.monotonic() - due_s
            self.lateness_seconds.append(late_s)
            try:
                await self._scrape()
                self._scrape_failed = False
            except Exception:  # noqa: BLE001 - such as out of memory: the next scrape may succeed
                if not self._scrape_failed:
                    _log.exception("look_failed", target=self.target.name)
                self._scrape_failed = True

            passed = int((time.monotonic() - start_s) / self.scrape.interval_seconds)
            tick = max(tick + 1, passed)

    async def _scrape(self) -> None:
        looked = Looked.now()
        look = await self._with_local_data(await self.source.observe())
        if self._ended:
            return
        events: Sequence[IncidentEvent] = []
        try:
            name, host = self.target.name, self.host.watch
            entry = self.board.targets.get(name)
            events = self.watch.observe(
                look.observation,
                beside=(*host.concerning(name), *self.peers.beside(name)),
                around=self.peers.around(name, host.around(name)),
                **({} if entry is None else {"restart": entry.restart_news}),
            )
            signals = self.watch.signals
            self._judgement_failed = False
        except Exception:  # noqa: BLE001 - a bug must not stop the scrapes
            if not self._judgement_failed:
                _log.exception("judgement_failed", target=self.target.name)
            self._judgement_failed = True
            signals = _not_judged(look.observation)
        if signals is not None:
            late_s = self.lateness_seconds[-1]
            looked = looked.ended(
                self.scrape.interval_seconds, self.scrape.timeout_seconds, self._pids
            )
            self.publisher.look(self.target, self.watch, look, signals, events, looked, late_s)
            self._log_state(look.observation, signals)
        self._send_canary(look.observation)
        for slug, error in self.watch.new_failures().items():
            _log.error("detector_failed", target=self.target.name, detector=slug, error=error)

    async def _with_local_data(self, look: Look) -> Look:
        seen: dict[str, Any] = {}
        calls = look.calls
        if self.source.local:
            # Read after the scrape, so that judging and recording use the same data.
            seen["gpus"] = self.host.gpus
        if self.cpu is not None:
            seen["cpu"] = await self.cpu.observe(look.observation)
        if self.log is not None:
            seen["start_failure"] = self.log.start_failure
            seen["attention_backend"] = self.log.attention_backend
            self.log.read_on()
        if self.canary is not None and (asked := self.canary.take()) is not None:
            seen["canary"] = asked.canary
            calls = (*calls, ("canary", asked.call))
        if calls is look.calls and all(value is None for value in seen.values()):
            return look
        return look._replace(observation=completed(look.observation, **seen), calls=calls)

    def _send_canary(self, observation: Observation) -> None:
        reading = observation.reading
        if self.canary is None or reading is None or self._judgement_failed:
            return
        models, engines = reading.server.models, len(reading.engines)
        model = models[0] if models else None
        self.canary.send(self.watch.canary_wanted, model, engines, time.monotonic())

    def _log_state(self, observation: Observation, signals: TargetSignals) -> None:
        logged = _LOGGED_STATES[signals.state]
        if logged != self._logged_state:
            log = _log.info if logged in ("up", "sleeping", "starting") else _log.warning
            log(
                "target_" + logged,
                target=self.target.name,
                was=self._logged_state,
                state=signals.state,
                because=signals.state_text,
            )
            self._logged_state = logged
        restarts = _restarts(signals)
        if restarts > self._restarts:
            _log.info("counters_began_anew", target=self.target.name, t=observation.t)
        self._restarts = restarts


def _restarts(signals: TargetSignals | None) -> int:
    return sum(engine.restarts for engine in signals.engines.values()) if signals else 0


def first_scrape_s(name: str, now_s: float, interval_seconds: float) -> float:
    """Return the time of the first scrape. A hash of the name spreads targets over the interval."""
    share = zlib.crc32(name.encode()) / 2**32
    return ceil((now_s + share * interval_seconds) / BATCH_SECONDS) * BATCH_SECONDS


def _not_judged(observation: Observation) -> TargetSignals:
    return TargetSignals(
        target=observation.target,
        t=observation.t,
        up=observation.reading is not None,
        outcome=observation.scrape.outcome,
        state="unknown",
        state_text="vllm-watch failed to judge this target: see its log",
    )


SPREAD_ABOVE = 16
"""Above this number of targets, first scrapes are spread over the interval."""


@dataclass(eq=False)
class TargetLoops:
    """The loops of all targets. `host` and `session` must be set before the first loop starts."""

    host: HostLoop = field(init=False)
    session: Session = field(init=False)
    config: Config
    board: Board
    recorder: FlightRecorder
    memory: Memory
    publisher: Publisher
    running: dict[str, TargetLoop] = field(default_factory=dict)
    unseen: set[str] = field(default_factory=set)
    logs: dict[str, EngineLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.processes = ProcessListing(self.config.procfs)
        self._neighbours = Neighbours(self.processes, self.config.procfs)
        self._peers = Peers(self.board)

    def __len__(self) -> int:
        return len(self.running)

    def follow(self, config: Config, targets: tuple[TargetConfig, ...]) -> None:
        self.config = config
        wanted = {target.name: target for target in targets}
        self._peers.follow(targets)
        for name, loop in list(self.running.items()):
            if name not in wanted:
                self._halt(name)
                self.publisher.gone(loop.target, loop.watch)
                _log.info("target_gone", target=name)
            elif loop.made_of != self._made_of(wanted[name]):
                self._halt(name)
        new = [target for name, target in wanted.items() if name not in self.running]
        for target in new:
            self._begin(target, spread=len(wanted) > SPREAD_ABOVE)
        begun = {each.name: (each.identity(), self.running[each.name].watch) for each in new}
        self.publisher.take_up(begun)

    def on_host(self) -> Mapping[str, ServerScrape]:
        scrapes = ((name, loop.on_host()) for name, loop in self.running.items())
        return {name: scrape for name, scrape in scrapes if scrape is not None}

    def note_stacks(self, target: str, incident: str, sentence: str) -> None:
        if target in self.running:
            loop = self.running[target]
            loop.watch.note_stacks(incident, sentence)
            self.memory.save(loop.watch, loop.target.group)

    def stop(self) -> list[asyncio.Task[None]]:
        """End every loop, and return the tasks for the caller to cancel."""
        for loop in self.running.values():
            loop.end()
        return [loop.task for loop in self.running.values()]

    def close(self) -> None:
        for loop in self.running.values():
            self.memory.save(loop.watch, loop.target.group)
        self.running.clear()

    def _made_of(self, target: TargetConfig) -> tuple[object, ...]:
        config = self.config
        return (
            target.identity(), config.scrape_for(target), config.slo_for(target), config.signals,
            config.canary_for(target), config.engine_log_for(target), config.detectors_for(target),
        )  # fmt: skip

    def _begin(self, target: TargetConfig, *, spread: bool) -> None:
        identity, scrape = target.identity(), self.config.scrape_for(target)
        source = VllmSource(identity, scrape, self.session, self._neighbours)
        watch = Watch(
            identity.name, self.config.signals, self.config.slo_for(target),
            thresholds=self.config.detectors_for(target),
        )  # fmt: skip
        self.memory.recall(watch, identity)
        loop = TargetLoop(
            identity, scrape, source, watch, self.board, self.host, self.publisher, self._peers,
            log=self._engine_log(target), canary=self._canary_rounds(target, scrape),
            cpu=CpuWaits(identity.url, self.config.procfs, listing=self.processes), made_of=self._made_of(target),
        )  # fmt: skip
        self.board.add_target(identity, scrape.interval_seconds)
        self.recorder.name_url(identity.name, identity.url)
        self.unseen.add(identity.name)
        loop.task = asyncio.create_task(loop.run(spread=spread), name=f"target {identity.name}")
        self.running[identity.name] = loop
        _log.info("target_added", target=identity.name, url=identity.url)

    def _engine_log(self, target: TargetConfig) -> EngineLog | None:
        path = self.config.engine_log_for(target)
        if path is None:
            return None
        log = self.logs[target.name] = EngineLog(target.name, path)
        return log

    def _canary_rounds(self, target: TargetConfig, scrape: ScrapeSettings) -> CanaryRounds | None:
        settings = self.config.canary_for(target)
        # By default, servers with peers get no canaries, because prefill and decode need each other.
        if settings.enabled is False or (settings.enabled is None and target.peers):
            return None
        model, seconds = settings.model, settings.timeout_seconds
        source = CanarySource(target.identity(), model, seconds, scrape, self.session)
        return CanaryRounds(target.name, settings, source)

    def _halt(self, name: str) -> None:
        loop = self.running.pop(name)
        loop.end()
        loop.task.cancel()
        self.logs.pop(name, None)
        self.unseen.discard(name)
        self.memory.save(loop.watch, loop.target.group)
