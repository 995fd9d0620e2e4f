"""Convert GpuSample to JSON objects and back. Process types become nvidia-smi's letters (C, G, M)."""

from collections.abc import Callable, Mapping
from typing import Any

from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.samples.process import ProcessSample
from vllm_watch.support.redaction import safe_arguments

_LETTERS = {"compute": "C", "graphics": "G", "mps": "M"}
_WORDS = {letter: word for word, letter in _LETTERS.items()}

Convert = Callable[[Any], Any]
_NUMBER_MAX = 1e21  # bytes, hertz or Unix seconds


def known(reading: GpuReading) -> tuple[GpuSample, ...] | None:
    """Return the GPUs: () without a driver, None if unknown."""
    return () if reading.status == "no_driver" else reading.gpus


def _number(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    if not abs(value) < _NUMBER_MAX:  # also infinities and NaN
        raise ValueError("out of range")
    return value


def _whole(value: Any) -> int:
    return int(_number(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def _each(convert: Convert) -> Convert:
    def convert_all(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list):
            raise TypeError("not a list")
        return tuple([convert(value) for value in values])

    return convert_all


def _process_type(value: Any) -> str:
    letter = _text(value)
    return _WORDS.get(letter, letter)


_PROCESS: Mapping[str, Convert] = {
    "pid": _whole, "used_bytes": _whole, "type": _process_type, "name": _text, "cmdline": _each(_text),
    "ppid": _whole, "state": _text, "create_time": _number, "cpu_seconds": _number,
    "sm_utilization_ratio": _number, "cgroup": _text, "uid": _whole, "gpu_instance_id": _whole,
    "compute_instance_id": _whole, "mps": _truth, "pid_local": _whole,
    "ancestors": _each(_text), "left_behind": _truth,
}  # fmt: skip


def _process(value: Any) -> ProcessSample:
    fields = _fields(value, _PROCESS)
    fields.setdefault("pid", 0)  # NVML's value for a hidden process
    return ProcessSample(**fields)


_GPU: Mapping[str, Convert] = {
    "index": _whole, "uuid": _text, "name": _text, "memory_total_bytes": _whole,
    "memory_used_bytes": _whole, "memory_reserved_bytes": _whole, "utilization_ratio": _number,
    "temperature_celsius": _number, "fan_ratio": _number, "power_watts": _number, "power_limit_watts": _number,
    "sm_clock_hz": _number, "sm_clock_max_hz": _number, "throttle_reasons": _each(_text),
    "xid_errors": _each(_whole), "ecc_uncorrected": _whole, "remapped_rows_pending": _truth,
    "remapped_rows_failed": _truth, "mig_parent_uuid": _text, "gpu_instance_id": _whole,
    "compute_instance_id": _whole, "lost": _truth, "processes": _each(_process),
    "processes_complete": _truth,
}  # fmt: skip


def _fields(value: Any, known: Mapping[str, Convert]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    fields = {}
    for name, given in value.items():
        convert = known.get(name)
        if convert is None or given is None:
            continue
        try:
            fields[name] = convert(given)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from error
    return fields


def from_json(value: Any) -> tuple[GpuSample, ...]:
    """Raises ValueError for an invalid value; the text begins with the field's path."""
    if not isinstance(value, list):
        raise ValueError("gpus: not a list")  # noqa: TRY004 - one kind of error for damaged lines
    gpus = []
    for position, entry in enumerate(value):
        try:
            fields = _fields(entry, _GPU)
        except (TypeError, ValueError) as error:
            raise ValueError(f"gpus: {error}") from error
        index = fields.setdefault("index", position)
        fields.setdefault("uuid", f"index:{index}")  # unique, unlike ""
        gpus.append(GpuSample(**fields))
    return tuple(gpus)


def _known(sample: GpuSample | ProcessSample, names: Mapping[str, Convert]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(sample, name)) is not None}


def to_json(gpus: tuple[GpuSample, ...]) -> list[dict[str, Any]]:
    """Return JSON objects without unknown fields."""
    entries = []
    for gpu in gpus:
        entry = _known(gpu, _GPU)
        if gpu.processes is not None:
            entry["processes"] = [_known(process, _PROCESS) for process in gpu.processes]
            for process in entry["processes"]:
                if "cmdline" in process:  # recordings are shared, and command lines may hold keys
                    process["cmdline"] = safe_arguments(tuple(process["cmdline"]))
                if "type" in process:
                    process["type"] = _LETTERS.get(process["type"], process["type"])
        entries.append(entry)
    return entries
