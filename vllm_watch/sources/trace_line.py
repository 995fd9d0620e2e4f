"""Convert an observation to a line of JSON and back. Other programs read the format; unknown keys are skipped.

The records of GPUs, their processes and CPU waits have one key per field, and leave out unknown
fields. Process types become nvidia-smi's letters (C, G, M).
"""

import json
from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.samples.observation import (
    CANARY_OUTCOMES,
    OUTCOMES,
    Call,
    CanaryCall,
    EngineCpu,
    Observation,
    ProcessState,
    ServerSample,
    StartFailure,
)
from vllm_watch.samples.record import record
from vllm_watch.support import json_text
from vllm_watch.support.redaction import redacted, safe_arguments

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


@record
class RawObservation(Observation):
    """A parsed line. A field that was null or missing is None, which means unknown."""

    metrics: str | None = None
    server: ServerSample = ServerSample()  # only SERVER_FIELDS


SERVER_FIELDS = ("version", "models", "max_model_len", "sleeping", "paused", "recovering")
"""Fields of ServerSample that do not come from /metrics."""

_SERVER_KINDS = {
    "version": str, "max_model_len": int, "sleeping": bool, "paused": bool, "recovering": str,
}  # fmt: skip
_UNIX_SECONDS_MAX = 1e11  # the year 5138; later times are beyond Python's calendar
_NUMBER_MAX = 1e18
_GPU_NUMBER_MAX = 1e21  # bytes, hertz or Unix seconds
_LETTERS = {"compute": "C", "graphics": "G", "mps": "M"}
_WORDS = {letter: word for word, letter in _LETTERS.items()}

Convert = Callable[[Any], Any]


def from_line(line: bytes) -> RawObservation:
    """Parse one line of a trace. Raises ValueError, which names the damaged field."""
    entry = json_text.read(line)
    if not isinstance(entry, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one kind of error for damaged lines
    t = _typed(entry, "t", (int, float))
    if t is None or not 0 <= t < _UNIX_SECONDS_MAX:
        raise ValueError("t: not a Unix time")
    metrics = _typed(entry, "metrics", str)
    gpus, cpu, models = entry.get("gpus"), entry.get("cpu"), _typed(entry, "models", list)
    ok = _typed(entry, "ok", bool)
    health = [entry.get(key) for key in ("health", "health_error", "health_outcome")]
    return RawObservation(
        t=float(t),
        target=_typed(entry, "target", str) or "",
        monotonic_s=_typed(entry, "monotonic_s", (int, float)),
        scrape=_call(entry, "", "status", answered=metrics is not None or ok is True),
        health=_call(entry, "health_", "health", answered=health[0] is not None)
        if health != [None, None, None]
        else None,
        metrics=metrics,
        gpus=None if gpus is None else _gpus(gpus),
        process=_process(entry),
        cpu=None if cpu is None else _cpu(cpu),
        canary=_canary(entry),
        start_failure=_start_failure(entry),
        server=ServerSample(
            models=None if models is None else tuple(map(str, models)),
            **{name: _typed(entry, name, kind) for name, kind in _SERVER_KINDS.items()},
        ),
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


def _call(entry: dict[str, Any], prefix: str, status_key: str, *, answered: bool) -> Call:
    status, error = _typed(entry, status_key, int), _typed(entry, f"{prefix}error", str)
    outcome = entry.get(f"{prefix}outcome")
    if outcome not in OUTCOMES:
        outcome = _outcome(answered and error is None, status, error)
    latency_s = _typed(entry, f"{prefix}latency_s", (int, float)) or 0.0
    kept = bool(_typed(entry, f"{prefix}kept", bool))
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


def _number(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    if not abs(value) < _GPU_NUMBER_MAX:  # also infinities and NaN
        raise ValueError("out of range")
    return value


def _is(kind: type, otherwise: str) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(otherwise)
        return value

    return convert


def _count(value: Any) -> float | int:
    number = _number(value)
    if not 0 <= number < _NUMBER_MAX:
        raise ValueError("not a count")
    return number


def _each(convert: Convert) -> Convert:
    def convert_all(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list):
            raise TypeError("not a list")
        return tuple([convert(value) for value in values])

    return convert_all


def _whole(value: Any) -> int:
    return int(_number(value))


_text = _is(str, "not a text")
_OF_TYPE: Mapping[Any, Convert] = {
    int: _whole, float: _number, str: _text, bool: _is(bool, "neither true nor false"),
    tuple[int, ...]: _each(_whole), tuple[str, ...]: _each(_text),
}  # fmt: skip


def _converts(
    cls: type[Any], of_type: Mapping[Any, Convert], **special: Convert
) -> Mapping[str, Convert]:
    """Return each field's converter: a special one, or that of the field's type."""
    converts = {}
    for name, hint in get_type_hints(cls).items():
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kind = next(each for each in kinds if each is not NoneType)
        converts[name] = special[name] if name in special else of_type[kind]
    return converts


_PROCESS = _converts(
    ProcessSample, _OF_TYPE, type=lambda value: _WORDS.get(text := _text(value), text)
)


def _gpu_process(value: Any) -> ProcessSample:
    fields = _fields(value, _PROCESS)
    fields.setdefault("pid", 0)  # NVML's value for a hidden process
    return ProcessSample(**fields)


_GPU = _converts(GpuSample, _OF_TYPE, processes=_each(_gpu_process))
_CPU = _converts(
    EngineCpu,
    {
        int: lambda value: int(_count(value)),
        float: _count,
        str: lambda value: value if isinstance(value, str) else None,
    },
)


def _fields(value: Any, converts: Mapping[str, Convert]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    fields = {}
    for name, given in value.items():
        convert = converts.get(name)
        if convert is None or given is None:
            continue
        try:
            fields[name] = convert(given)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from error
    return fields


def _records(key: str, value: Any, converts: Mapping[str, Convert]) -> tuple[dict[str, Any], ...]:
    try:
        found: tuple[dict[str, Any], ...] = _each(lambda entry: _fields(entry, converts))(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key}: {error}") from error
    return found


def _gpus(value: Any) -> tuple[GpuSample, ...]:
    gpus = []
    for position, fields in enumerate(_records("gpus", value, _GPU)):
        index = fields.setdefault("index", position)
        fields.setdefault("uuid", f"index:{index}")  # unique, unlike ""
        gpus.append(GpuSample(**fields))
    return tuple(gpus)


def _cpu(value: Any) -> tuple[EngineCpu, ...]:
    entries = _records("cpu", value, _CPU)
    if any(each.get("engine") is None or "waited_seconds" not in each for each in entries):
        raise ValueError("cpu: an entry without engine or waited_seconds")
    return tuple([EngineCpu(**fields) for fields in entries])


def to_line(observation: Observation, body: str | None, *, target: str | None = None) -> bytes:
    """`target` replaces the observation's target. Credentials in URLs and error texts are redacted."""
    gpus = "null" if observation.gpus is None else _encode(gpus_to_json(observation.gpus))
    target = observation.target if target is None else target
    return assemble(observation.t, target, remainder(observation), body, gpus)


def assemble(t: float, target: str, rest: str, body: str | None, gpus: str) -> bytes:
    """Return the line. `gpus` is already JSON."""
    metrics = "null" if body is None else _encode(body)
    head = f'{{"t":{t!r},"target":{_encode(redacted(target))},{rest}'
    return f'{head},"metrics":{metrics},"gpus":{gpus}}}\n'.encode()


def known_fields(sample: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return those fields that are not None."""
    return {name: value for name in names if (value := getattr(sample, name)) is not None}


def gpus_to_json(gpus: tuple[GpuSample, ...]) -> list[dict[str, Any]]:
    """Return JSON objects without unknown fields."""
    entries = []
    for gpu in gpus:
        entry = known_fields(gpu, _GPU)
        if gpu.processes is not None:
            entry["processes"] = [known_fields(process, _PROCESS) for process in gpu.processes]
            for process in entry["processes"]:
                if "cmdline" in process:  # recordings are shared, and command lines may hold keys
                    process["cmdline"] = safe_arguments(tuple(process["cmdline"]))
                if "type" in process:
                    process["type"] = _LETTERS.get(process["type"], process["type"])
        entries.append(entry)
    return entries


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
    }
    if scrape.kept:
        entry["kept"] = True
    if health is not None:
        if health.kept:
            entry["health_kept"] = True
        entry["health_outcome"], entry["health_latency_s"] = health.outcome, health.latency_s
        if health.error is not None:
            entry["health_error"] = redacted(health.error)
    process, canary, failed = observation.process, observation.canary, observation.start_failure
    known = {
        "monotonic_s": observation.monotonic_s,
        "process": process
        and {"pid": process.pid, "start_time": process.start_time, "alive": process.alive},
        "cpu": None
        if observation.cpu is None
        else [known_fields(each, _CPU) for each in observation.cpu],
        "canary": canary
        and {
            "ok": canary.ok,
            "latency_s": canary.latency_s,
            "error": canary.error and redacted(canary.error),
        }
        | known_fields(canary, ("outcome", "engine")),
        "start_failure": failed and {**failed.published(), "sentence": failed.sentence},
    }
    if observation.reading is not None:
        known |= known_fields(observation.reading.server, SERVER_FIELDS)
    entry |= {name: value for name, value in known.items() if value is not None}
    return _encode(entry)[1:-1]
