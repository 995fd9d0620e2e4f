"""Convert an observation to a line of JSON and back. Other programs read the format; unknown keys are skipped."""

import json
from dataclasses import dataclass
from typing import Any

from vllm_watch.samples.cpu import EngineCpu
from vllm_watch.samples.engine_log import StartFailure
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import (
    CANARY_OUTCOMES,
    OUTCOMES,
    Call,
    CanaryCall,
    Observation,
    ProcessState,
)
from vllm_watch.sources import trace_cpu, trace_gpus
from vllm_watch.support import json_text
from vllm_watch.support.redaction import redacted

_encode = json.JSONEncoder(separators=(",", ":")).encode
_HTTP_OK = range(200, 300)
# The first match wins. "ssl" does not mean TLS: aiohttp writes "ssl:default" into all connection errors.
_OUTCOME_OF_ERROR = (
    ("connect_timeout", ("connect timeout", "connection timeout", "connecttimeout", "connectiontimeout")),
    ("read_timeout", ("timeout", "timed out")),
    ("tls", ("certificate", "sslerror", "clientconnectorssl", "[ssl", "tls")),
    ("dns", ("dns", "name or service not known", "name resolution", "getaddrinfo", "nodename nor")),
    ("refused", ("refused", "connect call failed", "cannot connect", "unreachable", "no route")),
    ("too_large", ("too large",)),
    ("garbled", ("garbled", "not the prometheus text format")),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RawObservation:
    """A parsed line. A field that was null or missing is None, which means unknown."""

    t: float  # Unix seconds
    target: str  # URL; "" if the line has none
    scrape: Call
    monotonic_s: float | None = None
    health: Call | None = None
    metrics: str | None = None
    gpus: tuple[GpuSample, ...] | None = None
    process: ProcessState | None = None
    cpu: tuple[EngineCpu, ...] | None = None
    canary: CanaryCall | None = None
    start_failure: StartFailure | None = None
    version: str | None = None
    models: tuple[str, ...] | None = None
    max_model_len: int | None = None
    sleeping: bool | None = None
    paused: bool | None = None
    recovering: str | None = None


SERVER_FIELDS = ("version", "models", "max_model_len", "sleeping", "paused", "recovering")
"""Fields that do not come from /metrics."""

_UNIX_SECONDS_MAX = 1e11  # the year 5138; later times are beyond Python's calendar


_NUMBER_MAX = 1e18


def from_line(line: bytes) -> RawObservation:
    """Parse one line of a trace. Raises ValueError, which names the damaged field."""
    entry = json_text.read(line)
    if not isinstance(entry, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one kind of error for damaged lines
    t = _typed(entry, "t", (int, float))
    if t is None or not 0 <= t < _UNIX_SECONDS_MAX:
        raise ValueError("t: not a Unix time")
    metrics = _typed(entry, "metrics", str)
    gpus, models = entry.get("gpus"), _typed(entry, "models", list)
    return RawObservation(
        t=float(t),
        target=_typed(entry, "target", str) or "",
        monotonic_s=_typed(entry, "monotonic_s", (int, float)),
        scrape=_scrape(entry, metrics),
        health=_health(entry),
        metrics=metrics,
        gpus=None if gpus is None else trace_gpus.from_json(gpus),
        process=_process(entry),
        cpu=trace_cpu.from_json(entry.get("cpu")),
        canary=_canary(entry),
        start_failure=_start_failure(entry),
        version=_typed(entry, "version", str),
        models=None if models is None else tuple(map(str, models)),
        max_model_len=_typed(entry, "max_model_len", int),
        sleeping=_typed(entry, "sleeping", bool),
        paused=_typed(entry, "paused", bool),
        recovering=_typed(entry, "recovering", str),
    )


def _typed(entry: dict[str, Any], name: str, kinds: type | tuple[type, ...]) -> Any:
    value = entry.get(name)
    if value is None:
        return None
    if not isinstance(value, kinds) or (value.__class__ is bool and kinds is not bool):
        raise ValueError(f"{name}: {str(value)[:40]!r} has the wrong type")
    if isinstance(value, int | float) and not abs(value) < _NUMBER_MAX:  # also infinities and NaN
        raise ValueError(f"{name}: {str(value)[:40]!r} is out of range")
    return value


def _scrape(entry: dict[str, Any], metrics: str | None) -> Call:
    status, error = _typed(entry, "status", int), _typed(entry, "error", str)
    ok, outcome = _typed(entry, "ok", bool), entry.get("outcome")
    if outcome not in OUTCOMES:
        fine = error is None and (metrics is not None or ok is True)
        outcome = _outcome(fine, status, error)
    latency_s = _typed(entry, "latency_s", (int, float)) or 0.0
    kept = bool(_typed(entry, "kept", bool))
    return Call(outcome=outcome, status=status, error=error, latency_s=latency_s, kept=kept)


def _outcome(fine: bool, status: int | None, error: str | None) -> str:
    if status is not None and status not in _HTTP_OK:
        return "http"
    if fine:
        return "ok"
    text = (error or "").lower()
    for outcome, words in _OUTCOME_OF_ERROR:
        if any(word in text for word in words):
            return outcome
    return "disconnected"  # no answer, and no known error text


def _health(entry: dict[str, Any]) -> Call | None:
    status, error = _typed(entry, "health", int), _typed(entry, "health_error", str)
    outcome = entry.get("health_outcome")
    if status is None and error is None and outcome is None:
        return None
    if outcome not in OUTCOMES:
        outcome = _outcome(status is not None and error is None, status, error)
    latency_s = _typed(entry, "health_latency_s", (int, float)) or 0.0
    kept = bool(_typed(entry, "health_kept", bool))
    return Call(outcome=outcome, status=status, error=error, latency_s=latency_s, kept=kept)


def _process(line: dict[str, Any]) -> ProcessState | None:
    entry = _typed(line, "process", dict) or {}
    pid = _typed(entry, "pid", int)
    if pid is None:
        return None
    start_time = _typed(entry, "start_time", (int, float))
    return ProcessState(pid=pid, start_time=start_time, alive=_typed(entry, "alive", bool))


def _canary(line: dict[str, Any]) -> CanaryCall | None:
    entry = _typed(line, "canary", dict) or {}
    ok = _typed(entry, "ok", bool)
    if ok is None:
        return None
    latency_s = _typed(entry, "latency_s", (int, float)) or 0.0
    outcome = entry.get("outcome")
    return CanaryCall(
        ok=ok, latency_s=latency_s, error=_typed(entry, "error", str),
        outcome=outcome if outcome in CANARY_OUTCOMES else None,
        engine=_typed(entry, "engine", str),
    )  # fmt: skip


def _start_failure(line: dict[str, Any]) -> StartFailure | None:
    entry = _typed(line, "start_failure", dict) or {}
    failure, deterministic = _typed(entry, "class", str), _typed(entry, "deterministic", bool)
    if failure is None or deterministic is None:
        return None
    return StartFailure(
        failure=failure, deterministic=deterministic,
        root_cause_line=_typed(entry, "root_cause_line", str),
        explanation=_typed(entry, "explanation", str) or "",
        sentence=_typed(entry, "sentence", str) or failure,
    )  # fmt: skip


def to_line(observation: Observation, body: str | None, *, target: str | None = None) -> bytes:
    """`target` replaces the observation's target. Credentials in URLs and error texts are redacted."""
    gpus = "null" if observation.gpus is None else _encode(trace_gpus.to_json(observation.gpus))
    target = observation.target if target is None else target
    return assemble(observation.t, target, remainder(observation), body, gpus)


def assemble(t: float, target: str, rest: str, body: str | None, gpus: str) -> bytes:
    """Return the line. `gpus` is already JSON."""
    metrics = "null" if body is None else _encode(body)
    head = f'{{"t":{t!r},"target":{_encode(redacted(target))},{rest}'
    return f'{head},"metrics":{metrics},"gpus":{gpus}}}\n'.encode()


def _kept(**calls: Call | None) -> dict[str, bool]:
    return {key: True for key, call in calls.items() if call is not None and call.kept}


def remainder(observation: Observation) -> str:
    """Return the JSON members except time, target, metrics text and GPUs, without braces."""
    scrape, health = observation.scrape, observation.health
    entry: dict[str, Any] = {
        "ok": scrape.outcome == "ok",
        "status": scrape.status,
        "error": scrape.error and redacted(scrape.error),
        "latency_s": scrape.latency_s,
        "outcome": scrape.outcome,
        "health": health and health.status,
        **_kept(kept=scrape, health_kept=health),
    }
    if health is not None:
        entry["health_outcome"], entry["health_latency_s"] = health.outcome, health.latency_s
        if health.error is not None:
            entry["health_error"] = redacted(health.error)
    if observation.monotonic_s is not None:
        entry["monotonic_s"] = observation.monotonic_s
    if (process := observation.process) is not None:
        entry["process"] = {
            "pid": process.pid, "start_time": process.start_time, "alive": process.alive,
        }  # fmt: skip
    entry |= trace_cpu.to_json(observation.cpu)
    if observation.canary is not None:
        entry["canary"] = _canary_to_json(observation.canary)
    if (failed := observation.start_failure) is not None:
        entry["start_failure"] = {**failed.published(), "sentence": failed.sentence}
    if observation.reading is not None:
        server = observation.reading.server
        for name in SERVER_FIELDS:
            if (value := getattr(server, name)) is not None:
                entry[name] = value
    return _encode(entry)[1:-1]


def _canary_to_json(canary: CanaryCall) -> dict[str, Any]:
    error = canary.error and redacted(canary.error)
    entry = {"ok": canary.ok, "latency_s": canary.latency_s, "error": error}
    more = {"outcome": canary.outcome, "engine": canary.engine}
    return entry | {name: value for name, value in more.items() if value is not None}
