"""Calibrate memory plans with the log of a real start."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm_watch.capacity.bounds import NUMBER_MAX
from vllm_watch.capacity.flags import Flags
from vllm_watch.capacity.plan import Checkpoint, Machine, make_plan
from vllm_watch.capacity.read_config import read_config
from vllm_watch.capacity.release import NEWEST, parse_release
from vllm_watch.capacity.units import GIB
from vllm_watch.cli.helpers.capacity.model import find_checkpoint
from vllm_watch.diagnosis.reading import LogReader
from vllm_watch.errors import WatchError
from vllm_watch.sources.engine_log import pieces

BEYOND_GIB_MAX = 8.0
"""The logged KV cache may differ by at most this from the planned cache. Larger differences come from another GPU or from unlogged flags."""

_WHOLE = ("max_model_len", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_num_seqs", "max_num_batched_tokens", "block_size")  # fmt: skip
_WORDS = ("kv_cache_dtype", "dtype", "quantization")


def calibrated(machine: Machine, log: Path, model: str | None, environment: Mapping[str, str]) -> Machine:  # fmt: skip
    """Return the machine with `beyond_bytes`, the memory that the logged start needed beyond the plan. Raises WatchError."""
    reader = LogReader()
    for piece in pieces(str(log)):
        reader.feed(piece)
    reader.end()
    said = reader.diagnosis().facts
    facts: dict[str, str | float | int] = {
        name: value
        for name, value in said.items()
        if isinstance(value, str) or 0 < value <= NUMBER_MAX
    }
    kv_gib, blocks, weights_gib = map(facts.get, ("kv_cache_gib", "num_gpu_blocks", "weights_gib"))
    if not isinstance(weights_gib, float) or (not isinstance(kv_gib, float) and not blocks):
        cause = f"--from-log: {log} does not state the memory of the weights and the KV cache"
        raise WatchError(cause, "give the log of a whole start ('Model loading took', 'Available KV cache memory')")  # fmt: skip
    named = model or facts.get("model")
    if not isinstance(named, str):
        raise WatchError(f"--from-log: {log} does not name its model", "name it with --from-log-model")  # fmt: skip
    try:
        found = find_checkpoint(named, environment, from_hub=False, weights_gib=weights_gib)
    except WatchError as error:
        raise WatchError(f"--from-log: {error.cause}", "name the config.json of the model of that log with --from-log-model") from None  # fmt: skip
    flags = _flags(facts)
    total_gib = facts.get("gpu_memory_total_gib")
    if isinstance(total_gib, float):  # as CUDA reports it
        machine = replace(machine, memory_bytes=int(total_gib * GIB), memory_source=f"{total_gib:g} GiB by {log.name}")  # fmt: skip
    started = replace(machine, count=None, beyond_bytes=0)
    plan = make_plan(read_config(found.config), flags, started, Checkpoint(weights_gib))
    if not isinstance(kv_gib, float):  # vLLM before 0.6.4 logs only blocks
        kv_gib = int(blocks or 0) * plan.pool.bytes_per_block / GIB
    beyond = int(plan.kv_bytes - kv_gib * GIB)
    if abs(beyond) > BEYOND_GIB_MAX * GIB:
        cause = f"--from-log: its KV cache of {kv_gib:g} GiB is {abs(beyond) / GIB:.1f} GiB off the size from its flags on this GPU"
        raise WatchError(cause, "give a log of a start on this kind of GPU")
    return replace(machine, beyond_bytes=beyond, beyond_source=f"the start of {Path(named).name} in {log.name}")  # fmt: skip


def _flags(facts: Mapping[str, str | float | int]) -> Flags:
    version, share = facts.get("vllm_version"), facts.get("gpu_memory_utilization")
    flags = Flags(
        release=parse_release(version) if isinstance(version, str) else NEWEST,
        gpu_memory_utilization=float(share) if isinstance(share, int | float) else None,
        use_v0=True if facts.get("engine") == "V0" else None,
    )
    known: dict[str, Any] = {name: value for name in _WHOLE if isinstance(value := facts.get(name), int)}  # fmt: skip
    known |= {name: value for name in _WORDS if isinstance(value := facts.get(name), str)}
    return replace(flags, **known)
