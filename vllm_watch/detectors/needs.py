"""Matches the inputs that detectors declare in `NEEDS` with those of a target.

A detector is blind without an input in `must`, and sees less without one in `sharpens`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter

from vllm_watch.detectors.base import CLEAR, UNKNOWN, Verdict
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Observation, Reading
from vllm_watch.signals.records import Sight
from vllm_watch.signals.scales import FIVE_MINUTES_SECONDS, HOUR_SECONDS, MANY
from vllm_watch.support import plugins


@dataclass(frozen=True, slots=True)
class Input:
    """An input that a poll may contain."""

    label: str
    mend: str
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

_OF_ENGINE: dict[str, Input] = {
    "running": Input("number of running requests", _NEWER, attrgetter("requests_running")),
    "waiting": Input("number of waiting requests", _NEWER, attrgetter("requests_waiting")),
    "kv_cache_usage": Input("usage of the KV cache", _NEWER, attrgetter("kv_cache_usage")),
    "steps": Input("counter of steps", "vLLM counts them from 0.6.4 on", attrgetter("iteration_tokens")),
    "generated": Input("counter of generated tokens", "vLLM has it from 0.3.0 on", attrgetter("generation_tokens")),
    "prompted": Input("counter of prompt tokens", "vLLM has it from 0.3.0 on", attrgetter("prompt_tokens")),
    "latency": Input("inter-token latency", "vLLM has it from 0.3.0 on", attrgetter("inter_token_latency")),
    "finished": Input("counter of finished requests", "vLLM has it from 0.4.3 on", attrgetter("request_success")),
    "http": Input("counter of HTTP responses", "vLLM has it from 0.8.3 on", attrgetter("http_responses")),
    "lengths": Input("lengths of finished requests", "vLLM has them from 0.4.3 on", _lengths),
    "preemptions": Input("counter of preemptions", "vLLM has it from 0.4.3 on, its V1 engine from 0.8.0", attrgetter("preemptions")),
    "prefix_cache": Input("counter of prefix cache hits", "V1 engines count them", _prefix_cache),
    "media_cache": Input("counter of multi-modal cache queries", "vLLM has it from 0.11.1 on", attrgetter("mm_cache_queries")),
}  # fmt: skip
_OF_SERVER: dict[str, Input] = {
    "open_fds": Input("process_open_fds", _PROCESS, attrgetter("server.process_open_fds")),
    "resident_memory": Input("process_resident_memory_bytes", _PROCESS, attrgetter("server.process_resident_memory_bytes")),
    "process_start": Input("process_start_time_seconds", _PROCESS, attrgetter("server.process_start_time")),
}  # fmt: skip
_OF_LOOK: dict[str, Input] = {
    "health": Input("answer of /health", "let the watcher reach it", attrgetter("health"), FIVE_MINUTES_SECONDS),
    "gpus": Input("view of the GPUs", "run vllm-watch on the engine's own host, with its driver visible", lambda seen: seen.gpus or None),
    "canary": Input("canary so far", "canaries go only to idle engines; if this one was idle, set `canary.enabled: true` or read the log", attrgetter("canary"), HOUR_SECONDS),
}  # fmt: skip
INPUTS = {**_OF_ENGINE, **_OF_SERVER, **_OF_LOOK}

_ENGINE_HAS, _SERVER_HAS, _LOOK_HAS = (
    [each.carried for each in of.values()] for of in (_OF_ENGINE, _OF_SERVER, _OF_LOOK)
)
_LASTING = [
    (at, name, each.lasts_seconds)
    for at, (name, each) in enumerate(_OF_LOOK.items()) if each.lasts_seconds
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
        # A server's first answers may lack series.
        if pattern == self._pattern and self._same > MANY:
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
        if name not in _OF_ENGINE:
            return (None,)
        return self.engines if engine is None else (engine,)

    def _of(self, name: str, engine: str | None) -> _Seen:
        return self._seen.get((name, engine)) or _Seen()


def _missing(seen: _Seen) -> bool | None:
    if seen.without >= MANY:
        return True
    return False if seen.ever else None


def _has_worked(sample: EngineSample) -> bool:
    """Before the first request, old releases lack most series."""
    told = (sample.requests_running, sample.generation_tokens, sample.prompt_tokens)
    return any(told) or all(value is None for value in told)


@dataclass(frozen=True, slots=True)
class Need:
    """Alternative inputs, and the consequence if all of them are missing."""

    any_of: tuple[str, ...]
    without: str

    def lost(self, inputs: Inputs) -> bool | None:
        said = [inputs.missing(name, None) for name in self.any_of]
        if False in said:
            return False
        return None if None in said else True

    def where(self, inputs: Inputs) -> str:
        engines = inputs.engines
        without = [e for e in engines if all(inputs.missing(name, e) for name in self.any_of)]
        if 0 < len(without) < len(engines):
            return f" of engine {', '.join(without)}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The needs of one detector."""

    must: tuple[Need, ...] = ()
    sharpens: tuple[Need, ...] = ()

    def sight(self, inputs: Inputs) -> Sight:
        """Return how well a detector sees with these inputs."""
        lost = [need for need in self.must if need.lost(inputs)]
        if lost and inputs.why_not is not None:
            return Sight("blind", inputs.why_not)
        if lost:
            return Sight("blind", _text(lost, inputs))
        if any(need.lost(inputs) is None for need in self.must):
            return Sight("unknown", "too few scrapes yet to know this server's metrics")
        dull = [need for need in self.sharpens if need.lost(inputs)]
        return Sight("partly", _text(dull, inputs)) if dull else Sight("sees", "")


def _text(lost: Sequence[Need], inputs: Inputs) -> str:
    said, fixes = [], []
    for need in lost:
        what = " and no ".join(INPUTS[name].label for name in need.any_of)
        said.append(f"no {what}{need.where(inputs)}: {need.without}")
        fixes += [INPUTS[name].mend for name in need.any_of]
    return "; ".join(said) + ". To fix: " + "; ".join(dict.fromkeys(fixes)) + "."


@cache
def needs_of_all() -> Mapping[str, Needs]:
    """Return the needs of all detectors, keyed by slug."""
    return {
        slug: getattr(module, "NEEDS", Needs())
        for kind in ("Detector", "HostDetector")
        for slug, module in plugins.modules("vllm_watch.detectors", "Settings", kind).items()
    }


class Sights:
    """How well each detector of one target sees."""

    def __init__(self, slugs: Iterable[str] | None = None) -> None:
        known = needs_of_all()
        self._needs = {
            each: known.get(each, Needs()) for each in (known if slugs is None else slugs)
        }
        self._inputs = Inputs()
        self._revision = -1
        self.known: dict[str, Sight] = {}
        self._clear: dict[str, dict[str | None, bool]] = defaultdict(dict)

    def look(self, at_s: float, observation: Observation) -> None:
        self._inputs.look(at_s, observation)
        if self._inputs.revision != self._revision:
            self._revision = self._inputs.revision
            self.known = {slug: needs.sight(self._inputs) for slug, needs in self._needs.items()}
            self._clear.clear()

    def believed(self, slug: str, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
        clear, needs = self._clear[slug], self._needs[slug]
        if not needs.must:
            return verdicts
        believed = []
        for verdict in verdicts:
            engine = verdict.engine
            if engine not in clear:
                now = self._inputs.now
                clear[engine] = all(
                    any(now(name, engine) for name in need.any_of) for need in needs.must
                )
            # A missing input, such as a lost GPU, may itself be the finding.
            finding = verdict.state != CLEAR and engine is None
            sure = clear[engine] or finding or verdict.state == UNKNOWN
            believed.append(verdict if sure else replace(verdict, state=UNKNOWN))
        return believed
