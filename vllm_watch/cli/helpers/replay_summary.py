"""Summarize the replay of one target."""

import time
from collections import Counter
from collections.abc import Iterable

from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.samples.observation import Observation
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.story.base import severity_word

_CHANGES_SHOWN = 8
_GAP_INTERVALS = 3


class Summary:
    """Collects numbers during a replay."""

    def __init__(self, target: str) -> None:
        self._target = target or "(no target named)"
        self._times: list[float] = []
        self._outcomes: Counter[str] = Counter()
        self._seconds_in: dict[str, float] = {}  # by state
        self._changes: list[tuple[float, str, str]] = []  # Unix seconds, state, reason
        self._events: list[IncidentEvent] = []
        self._gpus: int | None = None

    def add(
        self,
        observation: Observation,
        signals: TargetSignals | None,
        events: Iterable[IncidentEvent],
    ) -> None:
        self._outcomes[observation.scrape.outcome] += 1
        self._events += events
        if observation.gpus is not None:
            self._gpus = max(self._gpus or 0, len(observation.gpus))
        if self._changes and self._times:
            state, passed = self._changes[-1][1], max(0.0, observation.t - self._times[-1])
            self._seconds_in[state] = self._seconds_in.get(state, 0.0) + passed
        self._times.append(observation.t)
        if signals and (not self._changes or self._changes[-1][1] != signals.state):
            self._changes.append((observation.t, signals.state, signals.state_text))

    def text(self, signals: TargetSignals | None) -> str:
        rows = [("span", self._span()), ("scrapes", self._scrapes())]
        if signals is not None:
            rows += [("vLLM", _server(signals)), ("GPUs", self._gpu_count())]
            rows += [(f"engine {name}", _engine(each)) for name, each in signals.engines.items()]
            rows += [("states", self._shares()), *self._newest_changes()]
            rows.append(("at the end", f"{signals.state}: {signals.state_text}"))
        rows += [("incident", f"{_clock(event.t)} {_event(event)}") for event in self._events]
        return "\n".join([self._target, *(f"  {name:<11} {said}" for name, said in rows)])

    def _span(self) -> str:
        first, last = min(self._times), max(self._times)
        day = time.strftime("%Y-%m-%d", time.gmtime(first))
        return f"{day} {_clock(first)} to {_clock(last)} UTC, {_duration(last - first)}"

    def _scrapes(self) -> str:
        outcomes = ", ".join(
            f"{number} {outcome}" for outcome, number in self._outcomes.most_common()
        )
        gaps = sorted(
            later - earlier for earlier, later in zip(self._times, self._times[1:], strict=False)
        )
        if not gaps:
            return outcomes
        median = gaps[len(gaps) // 2]
        missed = sum(gap > _GAP_INTERVALS * median for gap in gaps)
        said = f"{outcomes}; every {median:.3g} s"
        if not missed:
            return said
        return f"{said}, {missed} hole{'s' * (missed > 1)} of up to {_duration(gaps[-1])}"

    def _gpu_count(self) -> str:
        return "not recorded" if self._gpus is None else str(self._gpus)

    def _shares(self) -> str:
        whole = sum(self._seconds_in.values())
        if not whole:
            return ", ".join(dict.fromkeys(state for _, state, _ in self._changes))
        longest_first = sorted(self._seconds_in.items(), key=lambda each: -each[1])
        return ", ".join(f"{state} {seconds / whole:.1%}" for state, seconds in longest_first)

    def _newest_changes(self) -> list[tuple[str, str]]:
        shown = self._changes[-_CHANGES_SHOWN:]
        rows = [("", f"{_clock(t)} {state}: {text}") for t, state, text in shown]
        before = len(self._changes) - len(shown)
        return [("", f"… {before} changes before these"), *rows] if before else rows


def _event(event: IncidentEvent) -> str:
    incident = event.incident
    severity = severity_word(incident.severity)
    return f"{event.event}: {severity}, {incident.kind} {incident.cause}: {incident.summary}"


def _server(signals: TargetSignals) -> str:
    if signals.engine_kind is None and signals.why_not:
        return signals.why_not
    engine = f"{signals.engine_kind} engine" if signals.engine_kind else None
    known = (signals.version, engine, *signals.models)
    return ", ".join(each for each in known if each) or "unknown"


def _engine(engine: EngineSignals) -> str:
    numbers = (
        ("running", engine.requests_running, ".0f"),
        ("waiting", engine.requests_waiting, ".0f"),
        ("KV cache", engine.kv_cache_usage_ratio, ".0%"),
        ("tokens/s", engine.generation_tokens_per_second, ".1f"),
    )
    said = [f"{name} {value:{form}}" for name, value, form in numbers if value is not None]
    if engine.restarts:
        said.append(f"{engine.restarts} restart{'s' * (engine.restarts != 1)} seen")
    return ", ".join([engine.model_name, *said] if engine.model_name else said)


def _clock(t: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(t))


def _duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
