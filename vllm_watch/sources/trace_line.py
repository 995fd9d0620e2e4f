"""One line of a trace (recording): an observation as JSON, with the raw metrics text in it.

The format is a contract that other programs read and write too. Keys of our own go beyond it
(`monotonic_s`, `health_outcome`, `health_latency_s`, `models`, `max_model_len`, `start_failure`): a replay then sees
what the daemon saw. Readers skip keys they do not know, and so do we.
"""

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
# What a client's error text says, first match wins. aiohttp writes "ssl:default" into each of its
# connection errors, so TLS is told by what only its failures say.
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
    """What one line says; `metrics` is still text. `None`: null or absent, so unknown."""

    t: float  # Unix seconds
    target: str  # URL; "" where the line names none
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
"""What is known of a server from other paths than /metrics."""

_UNIX_SECONDS_MAX = 1e11  # the year 5138; beyond, no calendar of Python's can name the time


_NUMBER_MAX = 1e18


def from_line(line: bytes) -> RawObservation:
    """Read one line.

    Raises:
        ValueError: not a JSON object, without a time, or with a field that holds what cannot be its
            value; the text says which.
    """
    said = json_text.read(line)
    if not isinstance(said, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one kind of error for damaged lines
    t = _typed(said, "t", (int, float))
    if t is None or not 0 <= t < _UNIX_SECONDS_MAX:
        raise ValueError("t: no Unix time")
    metrics = _typed(said, "metrics", str)
    gpus, models = said.get("gpus"), _typed(said, "models", list)
    return RawObservation(
        t=float(t),
        target=_typed(said, "target", str) or "",
        monotonic_s=_typed(said, "monotonic_s", (int, float)),
        scrape=_scrape(said, metrics),
        health=_health(said),
        metrics=metrics,
        gpus=None if gpus is None else trace_gpus.from_json(gpus),
        process=_process(said),
        cpu=trace_cpu.from_json(said.get("cpu")),
        canary=_canary(said),
        start_failure=_start_failure(said),
        version=_typed(said, "version", str),
        models=None if models is None else tuple(map(str, models)),
        max_model_len=_typed(said, "max_model_len", int),
        sleeping=_typed(said, "sleeping", bool),
        paused=_typed(said, "paused", bool),
        recovering=_typed(said, "recovering", str),
    )


def _typed(said: dict[str, Any], name: str, kinds: type | tuple[type, ...]) -> Any:
    value = said.get(name)
    if value is None:
        return None
    if not isinstance(value, kinds) or (value.__class__ is bool and kinds is not bool):
        raise ValueError(f"{name}: {str(value)[:40]!r} is not its kind of value")
    if isinstance(value, int | float) and not abs(value) < _NUMBER_MAX:  # infinities and NaN, too
        raise ValueError(f"{name}: {str(value)[:40]!r} is beyond all numbers of an observation")
    return value


def _scrape(said: dict[str, Any], metrics: str | None) -> Call:
    status, error = _typed(said, "status", int), _typed(said, "error", str)
    ok, outcome = _typed(said, "ok", bool), said.get("outcome")
    if outcome not in OUTCOMES:
        fine = error is None and (metrics is not None or ok is True)
        outcome = _outcome(fine, status, error)
    latency_s = _typed(said, "latency_s", (int, float)) or 0.0
    kept = bool(_typed(said, "kept", bool))
    return Call(outcome=outcome, status=status, error=error, latency_s=latency_s, kept=kept)


def _outcome(fine: bool, status: int | None, error: str | None) -> str:
    """Work out how a call ended from what a recording without `outcome` says of it."""
    if status is not None and status not in _HTTP_OK:
        return "http"
    if fine:
        return "ok"
    text = (error or "").lower()
    for outcome, words in _OUTCOME_OF_ERROR:
        if any(word in text for word in words):
            return outcome
    return "disconnected"  # it ended without an answer, and the text does not say how


def _health(said: dict[str, Any]) -> Call | None:
    status, error = _typed(said, "health", int), _typed(said, "health_error", str)
    outcome = said.get("health_outcome")
    if status is None and error is None and outcome is None:
        return None
    if outcome not in OUTCOMES:
        outcome = _outcome(status is not None and error is None, status, error)
    latency_s = _typed(said, "health_latency_s", (int, float)) or 0.0
    kept = bool(_typed(said, "health_kept", bool))
    return Call(outcome=outcome, status=status, error=error, latency_s=latency_s, kept=kept)


def _process(said: dict[str, Any]) -> ProcessState | None:
    entry = _typed(said, "process", dict) or {}
    pid = _typed(entry, "pid", int)
    if pid is None:
        return None
    start_time = _typed(entry, "start_time", (int, float))
    return ProcessState(pid=pid, start_time=start_time, alive=_typed(entry, "alive", bool))


def _canary(said: dict[str, Any]) -> CanaryCall | None:
    entry = _typed(said, "canary", dict) or {}
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


def _start_failure(said: dict[str, Any]) -> StartFailure | None:
    entry = _typed(said, "start_failure", dict) or {}
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
    """Write an observation and the text it was read from as one line, newline included.

    `target` stands for the observation's own where that is a name and not a URL. Credentials in
    URLs and error texts are left out.
    """
    gpus = "null" if observation.gpus is None else _encode(trace_gpus.to_json(observation.gpus))
    target = observation.target if target is None else target
    return assemble(observation.t, target, remainder(observation), body, gpus)


def assemble(t: float, target: str, rest: str, body: str | None, gpus: str) -> bytes:
    """Put a line together from `remainder`'s text and from `gpus`, which is JSON already."""
    metrics = "null" if body is None else _encode(body)
    head = f'{{"t":{t!r},"target":{_encode(redacted(target))},{rest}'
    return f'{head},"metrics":{metrics},"gpus":{gpus}}}\n'.encode()


def _kept(**calls: Call | None) -> dict[str, bool]:
    """Return those made on a connection that had answered before."""
    return {key: True for key, call in calls.items() if call is not None and call.kept}


def remainder(observation: Observation) -> str:
    """Write all but time, target, metrics text and GPUs, as the inside of a JSON object."""
    scrape, health = observation.scrape, observation.health
    told: dict[str, Any] = {
        "ok": scrape.outcome == "ok",
        "status": scrape.status,
        "error": scrape.error and redacted(scrape.error),
        "latency_s": scrape.latency_s,
        "outcome": scrape.outcome,
        "health": health and health.status,
        **_kept(kept=scrape, health_kept=health),
    }
    if health is not None:
        told["health_outcome"], told["health_latency_s"] = health.outcome, health.latency_s
        if health.error is not None:
            told["health_error"] = redacted(health.error)
    if observation.monotonic_s is not None:
        told["monotonic_s"] = observation.monotonic_s
    if (process := observation.process) is not None:
        told["process"] = {
            "pid": process.pid, "start_time": process.start_time, "alive": process.alive,
        }  # fmt: skip
    told |= trace_cpu.told(observation.cpu)
    if observation.canary is not None:
        told["canary"] = _canary_to_json(observation.canary)
    if (failed := observation.start_failure) is not None:
        told["start_failure"] = {**failed.published(), "sentence": failed.sentence}
    if observation.reading is not None:
        server = observation.reading.server
        for name in SERVER_FIELDS:
            if (value := getattr(server, name)) is not None:
                told[name] = value
    return _encode(told)[1:-1]


def _canary_to_json(canary: CanaryCall) -> dict[str, Any]:
    error = canary.error and redacted(canary.error)
    said = {"ok": canary.ok, "latency_s": canary.latency_s, "error": error}
    more = {"outcome": canary.outcome, "engine": canary.engine}  # beyond the published keys
    return said | {name: value for name, value in more.items() if value is not None}
