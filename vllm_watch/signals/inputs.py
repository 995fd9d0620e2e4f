"""Finds which inputs of detectors a target's polls contain."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Observation, Reading

LOOKS_MIN = 6
"""An input is missing if this many polls in a row lack it. A server's first answers may lack
series."""

HEALTH_SECONDS = 300.0
"""A result of /health stays valid for this long. /health may be polled less often than /metrics."""

CANARY_SECONDS = 3600.0
"""A canary's result stays valid for this long. Only idle engines get canaries, and most engines are idle once an hour."""

_ENGINE, _SERVER, _LOOK = "engine", "server", "look"


@dataclass(frozen=True, slots=True)
class Input:
    """An input that a poll may contain."""

    label: str
    mend: str
    scope: str
    carried: Callable[..., object]
    lasts_seconds: float = 0.0


def _lengths(sample: EngineSample) -> object:
    return sample.request_prompt_tokens and sample.request_generation_tokens


def _prefix_cache(sample: EngineSample) -> object:
    """In vLLM V0, a hit rate of -1 means that prefix caching is off."""
    off = (sample.prefix_cache_hit_rate or 0.0) < 0.0
    return True if off else sample.prefix_cache_queries


_NEWER = "a later vLLM exports it"
_PROCESS = (
    "vLLM leaves it out with several API servers, and V0 with its multiprocess front end: run one API "
    "server for each address"
)

INPUTS: dict[str, Input] = {
    "running": Input("number of running requests", _NEWER, _ENGINE, attrgetter("requests_running")),
    "waiting": Input("number of waiting requests", _NEWER, _ENGINE, attrgetter("requests_waiting")),
    "kv_cache_usage": Input("usage of the KV cache", _NEWER, _ENGINE, attrgetter("kv_cache_usage")),
    "steps": Input("counter of steps", "vLLM counts them from 0.6.4 on", _ENGINE, attrgetter("iteration_tokens")),
    "generated": Input("counter of generated tokens", "vLLM has it from 0.3.0 on", _ENGINE, attrgetter("generation_tokens")),
    "prompted": Input("counter of prompt tokens", "vLLM has it from 0.3.0 on", _ENGINE, attrgetter("prompt_tokens")),
    "latency": Input("inter-token latency", "vLLM has it from 0.3.0 on", _ENGINE, attrgetter("inter_token_latency")),
    "finished": Input("counter of finished requests", "vLLM has it from 0.4.3 on", _ENGINE, attrgetter("request_success")),
    "http": Input("counter of HTTP responses", "vLLM has it from 0.8.3 on", _ENGINE, attrgetter("http_responses")),
    "lengths": Input("lengths of finished requests", "vLLM has them from 0.4.3 on", _ENGINE, _lengths),
    "preemptions": Input("counter of preemptions", "vLLM has it from 0.4.3 on, its V1 engine from 0.8.0", _ENGINE, attrgetter("preemptions")),
    "prefix_cache": Input("counter of prefix cache hits", "V1 engines count them", _ENGINE, _prefix_cache),
    "media_cache": Input("counter of multi-modal cache queries", "vLLM has it from 0.11.1 on", _ENGINE, attrgetter("mm_cache_queries")),
    "open_fds": Input("process_open_fds", _PROCESS, _SERVER, attrgetter("server.process_open_fds")),
    "resident_memory": Input("process_resident_memory_bytes", _PROCESS, _SERVER, attrgetter("server.process_resident_memory_bytes")),
    "process_start": Input("process_start_time_seconds", _PROCESS, _SERVER, attrgetter("server.process_start_time")),
    "health": Input("answer of /health", "let the watcher reach it", _LOOK, attrgetter("health"), HEALTH_SECONDS),
    "gpus": Input("view of the GPUs", "run vllm-watch on the engine's own host, with its driver visible", _LOOK, lambda seen: seen.gpus or None),
    "canary": Input("canary so far", "canaries go only to idle engines; if this one was idle, set `canary.enabled: true` or read the log", _LOOK, attrgetter("canary"), CANARY_SECONDS),
}  # fmt: skip

_OF_ENGINE, _OF_SERVER, _OF_LOOK = (
    [name for name, each in INPUTS.items() if each.scope == scope]
    for scope in (_ENGINE, _SERVER, _LOOK)
)
_ENGINE_HAS, _SERVER_HAS, _LOOK_HAS = (
    [INPUTS[name].carried for name in of] for of in (_OF_ENGINE, _OF_SERVER, _OF_LOOK)
)
_LASTING = [
    (at, name, INPUTS[name].lasts_seconds)
    for at, name in enumerate(_OF_LOOK) if INPUTS[name].lasts_seconds
]  # fmt: skip


@dataclass(slots=True)
class _Seen:
    now: bool = False
    ever: bool = False
    without: int = 0


class Inputs:
    """Follows the inputs of one target."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str | None], _Seen] = {}
        self.engines: tuple[str, ...] = ()
        self._last_s: dict[str, float] = {}
        self._pattern: object = None
        self._same = 0
        self.revision = 0  # increases if `now` or `missing` may have changed
        self.why_not: str | None = None

    def look(self, at_s: float, observation: Observation) -> None:
        looked = [has(observation) is not None for has in _LOOK_HAS]
        for at, name, seconds in _LASTING:
            if looked[at]:
                self._last_s[name] = at_s
            elif name in self._last_s:
                looked[at] = at_s - self._last_s[name] <= seconds
        reading = observation.reading
        served = [] if reading is None else [has(reading) is not None for has in _SERVER_HAS]
        told = [
            (sample.engine, _has_worked(sample), [has(sample) is not None for has in _ENGINE_HAS])
            for sample in (() if reading is None else reading.engines)
        ]
        why_not = None if reading is None else reading.why_not
        pattern = (looked, served, told, why_not)
        if pattern == self._pattern and self._same > LOOKS_MIN:
            return
        self._same = self._same + 1 if pattern == self._pattern else 0
        self._pattern = pattern
        self.revision += 1
        for name, there in zip(_OF_LOOK, looked, strict=True):
            self._note(name, None, there=there, counts=True)
        if reading is not None:
            self._read(reading, served, told)

    def _read(
        self, reading: Reading, served: list[bool], told: list[tuple[str, bool, list[bool]]]
    ) -> None:
        self.why_not = None if reading.vllm else reading.why_not
        engines = tuple(engine for engine, _, _ in told)
        if engines != self.engines:
            self._seen = {k: v for k, v in self._seen.items() if k[1] is None or k[1] in engines}
            self.engines = engines
        any_worked = not reading.vllm or any(worked for _, worked, _ in told)
        for name, there in zip(_OF_SERVER, served, strict=True):
            self._note(name, None, there=there, counts=any_worked)
        for engine, worked, carried in told:
            for name, there in zip(_OF_ENGINE, carried, strict=True):
                self._note(name, engine, there=there, counts=worked or not reading.vllm)

    def _note(self, name: str, engine: str | None, *, there: bool, counts: bool) -> None:
        seen = self._seen.get((name, engine))
        if seen is None:
            seen = self._seen[(name, engine)] = _Seen()
        seen.now = there
        if there:
            seen.ever, seen.without = True, 0
        elif counts:
            seen.without += 1

    def now(self, name: str, engine: str | None) -> bool:
        return any(self._of(name, engine).now for engine in self._scope(name, engine))

    def missing(self, name: str, engine: str | None) -> bool | None:
        """Return True if the input is unavailable, or None if not known yet. If `engine` is None, return True if at least one engine lacks it."""
        said = [_missing(self._of(name, one)) for one in self._scope(name, engine)]
        if not said:
            return None
        if True in said:
            return True
        return None if None in said else False

    def _scope(self, name: str, engine: str | None) -> tuple[str | None, ...]:
        if INPUTS[name].scope != _ENGINE:
            return (None,)
        return self.engines if engine is None else (engine,)

    def _of(self, name: str, engine: str | None) -> _Seen:
        return self._seen.get((name, engine)) or _Seen()


def _missing(seen: _Seen) -> bool | None:
    if seen.without >= LOOKS_MIN:
        return True
    return False if seen.ever else None


def _has_worked(sample: EngineSample) -> bool:
    """Before the first request, old releases lack most series."""
    told = (sample.requests_running, sample.generation_tokens, sample.prompt_tokens)
    return any(told) or all(value is None for value in told)
