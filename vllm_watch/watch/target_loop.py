"""One target's loop: look, judge, record, publish, wait for the next tick. Nothing here decides anything."""

import asyncio
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import ceil
from typing import Any

import structlog

from vllm_watch.export.incidents import Incident
from vllm_watch.incidents import incident as judged
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.record import changed
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.signals.records import TargetSignals
from vllm_watch.sources.cpu_waits import CpuWaits
from vllm_watch.sources.engine_log import EngineLog
from vllm_watch.sources.vllm import Look, VllmSource
from vllm_watch.watch.canary_rounds import CanaryRounds
from vllm_watch.watch.watch import Watch

_log = structlog.get_logger()

# Engines change between these at every look; only a change from one line to the next is news.
_NEWS = {
    "serving": "up", "idle": "up", "prefilling": "up", "overloaded": "overloaded",
    "collapsed": "collapsed", "stalled": "stalled", "starting": "starting", "sleeping": "sleeping",
    "down": "down", "unknown": "unknown",
}  # fmt: skip

_LATENESS_KEPT = 120

TOGETHER_SECONDS = 0.5
"""Looks that are spread begin together at multiples of this, not each for itself: who wakes for one look
finds cold caches, and that costs more than the look. At 1,000 targets every 5 s it is 100 at a time, in
which the event loop does little else for 0.1 s. Measured: docs/performance.md."""

Event = Mapping[str, Any]
"""What judgement tells of an incident: opened, updated or resolved."""

Gpus = Callable[[], tuple[GpuSample, ...] | None]
Publish = Callable[[Look, TargetSignals, Sequence[Event]], Sequence[Event]]
"""Shows a look; returns the events as they were shown: many targets' may be found to be one problem."""
Keep = Callable[[Watch, Sequence[Event]], Awaitable[None]]

_TOLD = ("id", "target", "engine", "kind", "cause", "severity", "summary")


class TargetLoop:
    """Looks at one target at its interval until it is stopped."""

    def __init__(
        self,
        target: Target,
        scrape: ScrapeSettings,
        source: VllmSource,
        watch: Watch,
        publish: Publish,
        gpus: Gpus,
        keep: Keep | None = None,
        canary: CanaryRounds | None = None,
        log: EngineLog | None = None,
        cpu: CpuWaits | None = None,
    ) -> None:
        """`keep` is shown each look's events before they are published; it must neither raise nor wait long.
        `cpu` is asked only of a target on this host."""
        self.target = target
        self._interval_seconds = scrape.interval_seconds
        self._source = source
        self._watch = watch
        self._publish = publish
        self._gpus = gpus
        self._keep = keep
        self._canary = canary
        self.log = log
        self._cpu = cpu if source.local else None
        self._news: str | None = None
        known = watch.signals.engines if watch.signals is not None else {}
        self._restarts = sum(engine.restarts for engine in known.values())
        self._failing = False
        self._broken = False
        self._failures: dict[str, str] = {}
        # How much later than planned the last looks began.
        self.lateness_seconds: deque[float] = deque(maxlen=_LATENESS_KEPT)

    @property
    def incidents(self) -> tuple[judged.Incident, ...]:
        """The open ones, as the last look found them."""
        return self._watch.incidents

    @property
    def local(self) -> bool:
        """Does it run on this host, whose GPUs we see?"""
        return self._source.local

    @property
    def up(self) -> bool:
        """Did it answer the last look?"""
        return self._watch.signals is not None and self._watch.signals.up

    async def run(self, *, spread: bool) -> None:
        """Look for ever. With `spread` the first look waits for one of a few moments in the interval, chosen by
        the target's name, so that many targets do not all fall on the same one."""
        try:
            await self._run(spread=spread)
        finally:
            if self._canary is not None:
                await self._canary.stop()
            if self.log is not None:
                self.log.close()
            if self._cpu is not None:
                self._cpu.close()

    async def _run(self, *, spread: bool) -> None:
        start_s = time.monotonic()
        if spread:
            start_s = first_look_s(self.target.name, start_s, self._interval_seconds)
        tick = 0
        while True:
            due_s = start_s + tick * self._interval_seconds
            late_s = time.monotonic() - due_s
            if late_s < 0:
                await asyncio.sleep(-late_s)
                late_s = time.monotonic() - due_s
            self.lateness_seconds.append(late_s)
            try:
                await self._look()
                self._broken = False
            except Exception:  # noqa: BLE001 - out of memory, say: the next look may go well again
                if not self._broken:
                    _log.exception("look_failed", target=self.target.name)
                self._broken = True
            # Ticks that passed while the look was under way are left out, not made up for.
            passed = int((time.monotonic() - start_s) / self._interval_seconds)
            tick = max(tick + 1, passed)

    async def _look(self) -> None:
        look = await self._all_seen(await self._source.observe())
        try:
            events: Sequence[Event] = self._watch.observe(look.observation)
            signals = self._watch.signals
            self._failing = False
        except Exception:  # noqa: BLE001 - one target's bug must not blind us to the others
            if not self._failing:
                _log.exception("judgement_failed", target=self.target.name)
            self._failing = True
            signals, events = _not_judged(look.observation), []
        try:
            if self._keep is not None:
                await self._keep(self._watch, events)
        finally:  # stopped while it waited for the disk: what happened has happened
            self._show(look, signals, events)

    async def _all_seen(self, look: Look) -> Look:
        """The look, with what was seen of the target beside what it answered."""
        seen: dict[str, Any] = {}
        calls = look.calls
        if self._source.local:
            # Here and not before the look: what is judged is then what the recorder keeps with it.
            seen["gpus"] = self._gpus()
        if self._cpu is not None:
            seen["cpu"] = await self._cpu.observe(look.observation)
        if self.log is not None:
            seen["start_failure"] = self.log.start_failure
            seen["attention_backend"] = self.log.attention_backend
            self.log.read_on()
        if self._canary is not None and (asked := self._canary.take()) is not None:
            seen["canary"] = asked.canary
            calls = (*calls, ("canary", asked.call))
        if calls is look.calls and all(value is None for value in seen.values()):
            return look
        return look._replace(observation=changed(look.observation, **seen), calls=calls)

    def _show(self, look: Look, signals: TargetSignals | None, events: Sequence[Event]) -> None:
        if signals is not None:
            events = self._publish(look, signals, events)
            self._tell(look.observation, signals)
        self._send_canary(look.observation)
        for event in events:
            tell_incident(event)
        self._tell_failures()

    def _send_canary(self, observation: Observation) -> None:
        reading = observation.reading
        if self._canary is None or reading is None or self._failing:
            return
        models, engines = reading.server.models, len(reading.engines)
        model = models[0] if models else None
        self._canary.send(self._watch.canary_wanted, model, engines, time.monotonic())

    def _tell_failures(self) -> None:
        for slug, error in self._watch.failures.items():
            if self._failures.get(slug) != error:
                _log.error("detector_failed", target=self.target.name, detector=slug, error=error)
        self._failures = dict(self._watch.failures)

    def _tell(self, observation: Observation, signals: TargetSignals) -> None:
        news = _NEWS[signals.state]
        if news != self._news:
            log = _log.info if news in ("up", "sleeping", "starting") else _log.warning
            log(
                "target_" + news,
                target=self.target.name,
                was=self._news,
                state=signals.state,
                because=signals.state_text,
            )
            self._news = news
        restarts = sum(engine.restarts for engine in signals.engines.values())
        if restarts > self._restarts:
            _log.info("counters_began_anew", target=self.target.name, t=observation.t)
        self._restarts = restarts


def first_look_s(name: str, now_s: float, interval_seconds: float) -> float:
    """When to look at a target first, so that many are spread over the interval and some begin together."""
    share = zlib.crc32(name.encode()) / 2**32
    return ceil((now_s + share * interval_seconds) / TOGETHER_SECONDS) * TOGETHER_SECONDS


def tell_incident(event: Event) -> None:
    """Log that an incident was opened or has ended; what it is called meanwhile is shown, not logged."""
    told = {name: event[name] for name in _TOLD}
    if event["event"] == "opened":
        log = _log.warning if event["severity"] == "page" else _log.info
        log("incident_opened", **told)
    elif event["event"] == "resolved":
        _log.info("incident_resolved", **told, resolution=event.get("resolution"))


def tell_ended(incident: Incident) -> None:
    """Log that an incident has ended with its target, which no look will tell of any more."""
    told = {name: getattr(incident, name) for name in _TOLD}
    _log.info("incident_resolved", **told, resolution=incident.resolution)


def _not_judged(observation: Observation) -> TargetSignals:
    """What is shown of a look that our own judgement failed on: nothing of the one before."""
    return TargetSignals(
        target=observation.target,
        t=observation.t,
        up=observation.reading is not None,
        outcome=observation.scrape.outcome,
        state="unknown",
        state_text="vllm-watch itself failed to judge this; its log says how",
    )
