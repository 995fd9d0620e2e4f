"""Turn one target's observations into signals and incidents. Used by the daemon and by replay."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from vllm_watch.advice.adviser import Adviser
from vllm_watch.detectors import throughput_collapse
from vllm_watch.detectors.base import Around, Detector, HostDetector, Verdict, View
from vllm_watch.detectors.needs import Sights
from vllm_watch.incidents.incident import Incident, IncidentEvent
from vllm_watch.incidents.lifecycle import Lifecycle, Moment
from vllm_watch.incidents.states import States
from vllm_watch.incidents.verdicts import NO_RESTART, OwnRestart, RestartNews, with_log, with_peers
from vllm_watch.samples.observation import Observation, Reading, ServerSample
from vllm_watch.samples.record import completed
from vllm_watch.settings.detectors import DetectorsSettings
from vllm_watch.settings.stages import SignalsSettings, SloSettings
from vllm_watch.signals import state, stored
from vllm_watch.signals.engine import EngineTracker
from vllm_watch.signals.life import AWAY_SECONDS_MAX
from vllm_watch.signals.loading import Loading
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.signals.sanitize import sanitized
from vllm_watch.signals.timeline import Timeline
from vllm_watch.support import plugins
from vllm_watch.watch import kept_state as watch_state

NOTHING_AROUND = Around()

_D = TypeVar("_D", Detector, HostDetector)


def all_detectors(settings: DetectorsSettings, kind: str = "Detector") -> dict[str, Any]:
    """Return an instance of every detector of one kind ("Detector" or "HostDetector") by slug."""
    modules = plugins.modules("vllm_watch.detectors", "Settings", kind)
    return {slug: getattr(module, kind)(settings.of(slug)) for slug, module in modules.items()}


class Judge(Generic[_D]):
    """Runs the detectors of one target or host, and follows its incidents."""

    def __init__(self, target: str, detectors: Mapping[str, _D]) -> None:
        self.target = target
        self.failures: dict[str, str] = {}  # detector slug → last exception
        self._reported_failures: dict[str, str] = {}
        self._detectors: dict[str, _D] = dict(detectors)
        self._timeline = Timeline()
        self._lifecycle = Lifecycle(target)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return self._lifecycle.incidents

    @property
    def opened(self) -> Mapping[str, int]:
        return self._lifecycle.opened

    def close(self, t: float) -> list[IncidentEvent]:
        return self._lifecycle.close(t)

    def new_failures(self) -> dict[str, str]:
        """Return the failures that are new since the last call."""
        before, self._reported_failures = self._reported_failures, dict(self.failures)
        return {slug: each for slug, each in self.failures.items() if before.get(slug) != each}

    def _verdicts(self, of: Callable[[str, _D], Sequence[Verdict]]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for slug, detector in self._detectors.items():
            try:
                verdicts += of(slug, detector)
            except Exception as error:  # noqa: BLE001 - the other detectors must run
                self.failures[slug] = f"{type(error).__name__}: {error}"
        return verdicts


class Watch(Judge[Detector]):
    """Judges one target's observations."""

    def __init__(
        self,
        target: str,
        signals: SignalsSettings | None = None,
        slo: SloSettings | None = None,
        detectors: Mapping[str, Detector] | None = None,
        thresholds: DetectorsSettings | None = None,
    ) -> None:
        """`detectors` (default: all) hold state of this target and must not be shared."""
        every = all_detectors(thresholds or DetectorsSettings()) if detectors is None else detectors
        super().__init__(target, every)
        self.address: str | None = None
        self.answered_t: float | None = None  # last successful scrape of an earlier run
        self.signals: TargetSignals | None = None
        self.reading: Reading | None = None
        self._signals = signals or SignalsSettings()
        self._slo = slo or SloSettings()
        self._engines: dict[str, EngineTracker] = {}
        self._misses = 0
        self._began_s: float | None = None
        self._loading = Loading()
        self._last_success_t: float | None = None
        self._health_status: int | None = None
        # None includes the host detectors, because a target's page lists all detectors.
        self._sights = Sights(None if detectors is None else self._detectors)
        self._own_restart = OwnRestart()
        self._states = States()
        self._adviser = Adviser()
        self._kept: dict[str, stored.Stored] = {}  # engine → state of an earlier run

    @property
    def canary_wanted(self) -> dict[str, bool]:
        """The engines that need a one-token request. An engine maps to True if a hang is suspected."""
        wanted: dict[str, bool] = {}
        for detector in self._detectors.values():
            wanted |= getattr(detector, "canary_wanted", {})
        return wanted

    def note_stacks(self, incident: str, sentence: str) -> None:
        self._lifecycle.note_stacks(incident, sentence)

    def export_state(self) -> dict[str, Any] | None:
        clock, signals = self._timeline.export_state(), self.signals
        if clock is None or signals is None:
            return None
        return {
            "version": watch_state.VERSION,
            "target": self.target,
            "address": self.address,
            **clock,
            "server": stored.export(signals, watch_state.SERVER),
            "loading": self._loading.export_state(),
            "engines": {**self._kept, **watch_state.of_engines(self._engines, self.reading)},
            "lifecycle": self._lifecycle.export_state(),
            "own_restart": self._own_restart.export_state(),
            "detectors": watch_state.of_detectors(self._detectors, clock["at_s"]),
        }

    def restore(self, state: stored.Stored, t: float) -> list[str]:
        """Restore the state, before the first observation. Return errors of lost parts."""
        try:
            away_s = watch_state.away_seconds(state, self.target, t)
            signals = watch_state.restored_signals(state, self.target)
            loading = watch_state.restored_loading(state, away_s)
            own_restart = OwnRestart.restored(state.get("own_restart"))
            self._timeline.restore(state)
        except stored.DAMAGE as error:
            return [f"all: {error!r}"]
        self._loading, self._own_restart = loading, own_restart
        self.answered_t = signals.last_success_timestamp_seconds
        if away_s > AWAY_SECONDS_MAX:
            completed(signals, last_success_timestamp_seconds=None)
        self.signals, self._kept = signals, dict(state["engines"])
        self._last_success_t = signals.last_success_timestamp_seconds
        try:
            self._lifecycle.restore(state["lifecycle"], self._detectors)
        except stored.DAMAGE as error:
            # Without the restored incident, a restored detector would open a second incident.
            return [f"lifecycle: {error!r}"]
        return watch_state.restore_detectors(self._detectors, state, away_s, self.address)

    def inherit(self, state: stored.Stored) -> list[str]:
        return watch_state.inherit(self._detectors, state)

    def observe(
        self,
        observation: Observation,
        *,
        beside: Iterable[Incident] = (),
        restart: RestartNews | None = NO_RESTART,
        around: Around = NOTHING_AROUND,
    ) -> list[IncidentEvent]:
        """Judge one observation and return its events. A late observation is ignored.

        `beside` contains the incidents of host and peers. `restart` is None until the journal has
        been read.
        """
        if self._is_late(observation):
            return []
        before, observation = self.signals, sanitized(observation)
        at_s, known = self._timeline.advance(observation.t, observation.monotonic_s)
        if self._began_s is None:
            self._began_s = at_s
        self._own_restart.follow(restart, before, at_s - self._began_s)
        if not known:
            for tracker in self._engines.values():
                tracker.forget_rates()
        self._sights.look(at_s, observation)
        if observation.health is not None:
            self._health_status = observation.health.status
        self._loading.look(at_s, observation)
        if observation.reading is None:
            self._misses += 1
            self.signals = self._failed_scrape(observation, at_s)
            windows, progress = {}, {}
        else:
            self._misses = 0
            self._last_success_t = observation.t
            self.signals = self._scraped(observation, observation.reading, at_s)
            self.reading = observation.reading
            windows = {name: tracker.window for name, tracker in self._engines.items()}
            progress = {name: tracker.progress for name, tracker in self._engines.items()}
        view = View(
            at_s=at_s, known=known, observation=observation, signals=self.signals, windows=windows,
            progress=progress, around=around,
        )  # fmt: skip
        verdicts = self._verdicts(lambda slug, e: self._sights.believed(slug, e.update(view)))
        verdicts = self._own_restart.judged(self.signals, verdicts)
        verdicts = with_peers(with_log(verdicts, observation.start_failure), around)
        events = self._lifecycle.update(
            _moment(at_s, self.signals, observation.reading), verdicts, beside
        )
        self._add_ratios(self.signals)
        self._states.show(self.signals, self._lifecycle.incidents, at_s)
        completed(self.signals, advice=self._adviser.look(at_s, observation, self.signals))
        return events

    def _add_ratios(self, signals: TargetSignals) -> None:
        collapse = self._detectors.get("throughput_collapse")
        if signals.up and isinstance(collapse, throughput_collapse.Detector):
            for name, engine in signals.engines.items():
                completed(engine, throughput_ratio=collapse.throughput_ratio(name))

    def _is_late(self, observation: Observation) -> bool:
        if not self._timeline.is_late(observation.t, observation.monotonic_s):
            return False
        if (
            observation.monotonic_s is not None
            and self.signals is not None
            and observation.t == self.signals.t
        ):
            return True
        return _behind(observation.reading, self.reading)

    def _scraped(self, observation: Observation, reading: Reading, at_s: float) -> TargetSignals:
        samples = reading.engines if reading.vllm else ()
        # A server that just started may export no series yet.
        if samples:
            for gone in self._engines.keys() - {sample.engine for sample in samples}:
                del self._engines[gone]
        cpu = {each.engine: each for each in observation.cpu or ()}
        engines: dict[str, EngineSignals] = {}
        for sample in samples:
            tracker = self._engines.get(sample.engine)
            if tracker is None:
                tracker = self._engines[sample.engine] = EngineTracker(
                    self._signals.window_seconds, self._slo, totals=self._signals.totals
                )
                before = self._kept.pop(sample.engine, None)
                if before is not None:
                    watch_state.resume(tracker, before, sample, reading.server)
            engines[sample.engine] = tracker.update(
                at_s, observation.t, sample, reading.server, len(samples), cpu.get(sample.engine)
            )
        if engines:
            self._kept.clear()
            word, text = state.of_all(list(engines.values()))
        else:
            word, text = "unknown", reading.why_not or "no engine was found in the metrics"
        return self._target_signals(observation, engines, word, text)

    def _failed_scrape(self, observation: Observation, at_s: float) -> TargetSignals:
        began_s = self._began_s if self._began_s is not None else at_s
        word, text = state.of_silence(
            observation.scrape, observation.health, self._misses, self._loading,
            waited_s=at_s - began_s, at_s=at_s,
        )  # fmt: skip
        # Without a scrape, all values but the counts are unknown.
        engines = {
            name: EngineSignals(
                engine=name,
                model_name=known.model_name,
                state=word,
                state_text=text,
                last_progress_timestamp_seconds=known.last_progress_timestamp_seconds,
                restarts=known.restarts,
                totals=known.totals,
            )
            for name, known in (self.signals.engines if self.signals else {}).items()
        }
        return self._target_signals(observation, engines, word, text)

    def _target_signals(
        self, observation: Observation, engines: dict[str, EngineSignals], word: str, text: str
    ) -> TargetSignals:
        reading, known = observation.reading, self.signals or TargetSignals(
            target=self.target, t=0, up=False, outcome="", state="", state_text=""
        )  # fmt: skip
        server = ServerSample() if reading is None else reading.server
        of = known if reading is None else reading
        return TargetSignals(
            target=known.target,
            version=server.version or known.version,
            engine_kind=of.engine_kind,
            models=server.models or known.models,
            process_start_time=(known if reading is None else server).process_start_time,
            process_open_fds=server.process_open_fds,
            unknown_families=of.unknown_families,
            advice=known.advice,
            t=observation.t,
            up=reading is not None,
            outcome=observation.scrape.outcome,
            state=word,
            state_text=text,
            why_not=observation.scrape.error if reading is None else reading.why_not,
            health_status=self._health_status,
            last_success_timestamp_seconds=self._last_success_t,
            engines=engines,
            detectors=self._sights.known,
            start_failure=observation.start_failure,
            startup_seconds=self._loading.longest_s,
        )


def _moment(at_s: float, signals: TargetSignals, reading: Reading | None) -> Moment:
    return Moment(
        t=signals.t,
        at_s=at_s,
        up=signals.up,
        process_start_time=signals.process_start_time,
        restarts={name: engine.restarts for name, engine in signals.engines.items()},
        samples=reading.engines if reading is not None and reading.vllm else (),
    )


def _behind(reading: Reading | None, known: Reading | None) -> bool:
    if reading is None or known is None:
        return False
    if reading.server.process_start_time != known.server.process_start_time:
        return False
    before = {engine.engine: engine for engine in known.engines}
    for engine in reading.engines:
        old = before.get(engine.engine)
        if old is None:
            continue
        for name in ("generation_tokens", "prompt_tokens"):
            now, then = getattr(engine, name), getattr(old, name)
            if now is not None and then is not None and now < then:
                return True
    return False
