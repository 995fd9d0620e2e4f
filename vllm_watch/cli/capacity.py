"""Compute whether a model fits."""

import argparse
import asyncio
import json
import math
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vllm_watch.capacity.assumptions import assumptions, tokens_spread
from vllm_watch.capacity.flags import ALLOW_LONG, Flags
from vllm_watch.capacity.gpus import cuda_memory_bytes, find_gpu, nearest, sizes_of
from vllm_watch.capacity.plan import Checkpoint, Machine, Plan, make_plan, with_flags
from vllm_watch.capacity.read_config import read_config
from vllm_watch.capacity.release import NEWEST, parse_release
from vllm_watch.capacity.suggestions import Suggestion, Way, other_ways, suggestions
from vllm_watch.capacity.units import GIB, GIB_MAX, NUMBER_MAX
from vllm_watch.cli.helpers import exit_status, terminal
from vllm_watch.cli.helpers.checkpoints import find_checkpoint
from vllm_watch.cli.helpers.engine_flags import AUTO_LENGTH, add_engine_flags, read_flags
from vllm_watch.cli.helpers.gpu_holders import gpu_source
from vllm_watch.diagnosis.reading import LogReader
from vllm_watch.errors import WatchError
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.sources.engine_log import pieces
from vllm_watch.support.redaction import redacted

HELP = """\
Checks whether a model fits on these GPUs under these engine flags, before vLLM is started: tokens of KV
cache, concurrency, the longest context, and the smallest change that makes it fit. Needs only
config.json; the size of the weights is read from the checkpoint next to it, else computed. The log of a real start on
this GPU, of any model, makes the results for other models exact. Exit status 0: fits, 3: does not.

examples:
  vllm-watch capacity ./Llama-3.1-8B-Instruct
  vllm-watch capacity Qwen/Qwen3-32B --gpu-name H100 --tensor-parallel-size 2 --max-model-len 32k
  vllm-watch capacity --model config.json --gpu-memory-gib 23.6 --kv-cache-dtype fp8 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="MODEL", nargs="?",
        help="a model's folder, its config.json, or a name in the local hub cache")  # fmt: skip
    add("--model", metavar="MODEL", help="the same, as vLLM spells it")
    add("--from-hub", action="store_true",
        help="fetch config.json from the hub if it is not here (HF_ENDPOINT)")  # fmt: skip
    add("--gpu-name", metavar="NAME",
        help="such as H100 or 'RTX 4090' (default: this machine's GPUs)")  # fmt: skip
    add("--gpu-memory-gib", metavar="X", type=float,
        help="memory per GPU; a named card's nominal size is converted to CUDA's")  # fmt: skip
    add("--gpus", metavar="N", type=int,
        help="number (default: this machine's, else as many as the flags need)")  # fmt: skip
    add("--weights-gib", metavar="X", type=float, help="weights per GPU, if known")
    add("--from-log", metavar="FILE", type=Path,
        help="the log of a real start of any model on this GPU, as calibration")  # fmt: skip
    add("--from-log-model", metavar="MODEL", help="that log's model, if not in the local hub cache")
    add_engine_flags(parser)
    add("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if the model fits, else 3."""
    try:
        return _run(arguments)
    except WatchError as error:
        if arguments.json:
            said = {"cause": redacted(error.cause), "remedy": redacted(error.remedy)}
            print(json.dumps({"fits": None, "error": said}))
        raise


def _run(arguments: argparse.Namespace) -> int:
    if (arguments.source is None) == (arguments.model is None):
        raise WatchError(
            "no model is named" if arguments.source is None else "two models are named",
            "name a model's folder or its config.json, once",
        )
    found = find_checkpoint(
        arguments.source or arguments.model,
        os.environ,
        from_hub=arguments.from_hub,
        weights_gib=_positive(arguments.weights_gib, "--weights-gib"),
    )
    model = read_config(found.config)
    allowed = os.environ.get(ALLOW_LONG) in ("1", "true")
    flags = replace(read_flags(arguments, model), allow_long=allowed)
    memory_gib = _positive(arguments.gpu_memory_gib, "--gpu-memory-gib")
    machine = _find_machine(arguments.gpu_name, memory_gib, arguments.gpus)
    if arguments.from_log is not None:
        machine = _calibrated(machine, arguments.from_log, arguments.from_log_model)
    plan = make_plan(model, flags, machine, found.checkpoint)
    if arguments.max_model_len == AUTO_LENGTH and not plan.fits and plan.longest:
        plan = with_flags(plan, replace(flags, max_model_len=plan.longest))
    if arguments.json:
        print(json.dumps(report(plan)))
    else:
        found_flags = suggestions(plan)
        ways: list[Suggestion | Way] = [*found_flags, *other_ways(plan, found_flags)]
        print("\n".join(_lines(plan, found.name, ways)))
    return exit_status.FINE if plan.fits else exit_status.NO_GO


def _positive(value: float | None, flag: str) -> float | None:
    if value is not None and not 0 < value <= GIB_MAX:
        raise WatchError(f"{flag} {value:g} is not above 0 and up to {GIB_MAX:,}", "give GiB, such as 79.2")  # fmt: skip
    return value


def report(plan: Plan) -> dict[str, Any]:
    settings, found = plan.settings, suggestions(plan)
    concurrency = plan.concurrency if plan.num_blocks else 0.0
    return {
        "fits": plan.fits,
        "obstacle": plan.refusal,
        "kv_cache_tokens": plan.tokens,
        "kv_cache_tokens_range": list(tokens_spread(plan)),
        "kv_cache_bytes_per_gpu": max(0, plan.num_blocks * plan.pool.bytes_per_block),
        "kv_bytes_per_token_per_gpu": plan.bytes_per_token,
        "weights_bytes_per_gpu": plan.weights.bytes_per_gpu,
        "num_gpu_blocks": plan.num_blocks,
        "block_size": plan.pool.block_size,
        "max_concurrency": round(concurrency, 2) if math.isfinite(concurrency) else None,
        "max_model_len": settings.max_model_len,
        "max_model_len_that_fits": plan.longest,
        "gpus_needed": plan.gpus_needed,
        "vllm_version": str(settings.release),
        "engine": settings.engine,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "memory_bytes_per_gpu": {
            "total": plan.machine.memory_bytes,
            "budget": plan.budget_bytes,
            "weights": plan.weights.bytes_per_gpu,
            "activation": plan.activation.peak_bytes,
            "cuda_graphs": plan.graph_bytes,
            "non_torch": plan.non_torch_bytes,
            "kv_cache": plan.kv_bytes,
        },
        "assumptions": list(assumptions(plan)),
        "suggestions": [asdict(each) for each in found],
        "other_ways": [asdict(each) for each in other_ways(plan, found)],
    }


def _find_machine(name: str | None, memory_gib: float | None, count: int | None) -> Machine:
    """Return the named GPUs, or those of this machine. Raises WatchError."""
    if count is not None and count < 1:
        raise WatchError(f"--gpus {count} is not above 0", "give the number of GPUs")
    if name is None and memory_gib is None:
        return _this_machine(count)
    gpu = find_gpu(name, memory_gib)
    if memory_gib is None and name is not None and len(sizes := sizes_of(name)) > 1:
        told, last = " or ".join(f"{size:g}" for size in sizes), f"{sizes[-1]:g}"
        remedy = f"choose one: --gpu-name '{name} {last}GB', or --gpu-memory-gib {last}"
        raise WatchError(f"--gpu-name '{name}': this card has {told} GiB", remedy)
    if memory_gib is None and gpu is None:
        close = nearest(name or "")
        meant = f"did you mean '{close}'? Else " if close else ""
        remedy = f"{meant}give its memory: --gpu-memory-gib 80"
        raise WatchError(f"--gpu-name '{name}' is not a known GPU", remedy)
    size = memory_gib if memory_gib is not None else gpu.catalogue_gib if gpu else 0.0
    memory, source = cuda_memory_bytes(size, gpu)
    return Machine(memory, source, gpu, name, count)


def _this_machine(count: int | None) -> Machine:
    reading = asyncio.run(_read_gpus())
    sized = [gpu for gpu in reading.gpus or () if gpu.memory_total_bytes]
    if not sized:
        cause = f"this machine's GPUs cannot be asked: {reading.text or 'there is none'}"
        raise WatchError(cause, "name one with --gpu-name, or its size with --gpu-memory-gib")
    least = min(sized, key=_offered)
    source = f"{least.name or 'this GPU'}: {_offered(least) / GIB:.2f} GiB as NVML reports it"
    gpu = find_gpu(least.name, (least.memory_total_bytes or 0) / GIB)
    return Machine(_offered(least), source, gpu, least.name, count or len(sized))


def _offered(gpu: GpuSample) -> int:
    return (gpu.memory_total_bytes or 0) - (gpu.memory_reserved_bytes or 0)


async def _read_gpus() -> GpuReading:
    async with gpu_source() as source:
        return await source.read()


BEYOND_GIB_MAX = 8.0
"""The logged KV cache may differ by at most this from the planned cache. Larger differences come from another GPU or from unlogged flags."""

_WHOLE = ("max_model_len", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_num_seqs", "max_num_batched_tokens", "block_size")  # fmt: skip
_WORDS = ("kv_cache_dtype", "dtype", "quantization")


def _calibrated(machine: Machine, log: Path, model: str | None) -> Machine:
    """Return the machine with `beyond_bytes`, the memory that the logged start needed beyond the plan. Raises WatchError."""
    reader = LogReader()
    for piece in pieces(str(log)):
        reader.feed(piece)
    reader.end()
    said = reader.diagnosis().facts.items()
    facts = {name: value for name, value in said if isinstance(value, str) or 0 < value <= NUMBER_MAX}  # fmt: skip
    kv_gib, blocks, weights_gib = map(facts.get, ("kv_cache_gib", "num_gpu_blocks", "weights_gib"))
    if not isinstance(weights_gib, float) or (not isinstance(kv_gib, float) and not blocks):
        cause = f"--from-log: {log} does not state the memory of the weights and the KV cache"
        raise WatchError(cause, "give the log of a whole start ('Model loading took', 'Available KV cache memory')")  # fmt: skip
    named = model or facts.get("model")
    if not isinstance(named, str):
        raise WatchError(f"--from-log: {log} does not name its model", "name it with --from-log-model")  # fmt: skip
    try:
        found = find_checkpoint(named, os.environ, from_hub=False, weights_gib=weights_gib)
    except WatchError as error:
        raise WatchError(f"--from-log: {error.cause}", "name the config.json of the model of that log with --from-log-model") from None  # fmt: skip
    flags = _logged_flags(facts)
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


def _logged_flags(facts: Mapping[str, str | float | int]) -> Flags:
    version, share = facts.get("vllm_version"), facts.get("gpu_memory_utilization")
    flags = Flags(
        release=parse_release(version) if isinstance(version, str) else NEWEST,
        gpu_memory_utilization=float(share) if isinstance(share, int | float) else None,
        use_v0=True if facts.get("engine") == "V0" else None,
    )
    known: dict[str, Any] = {name: value for name in _WHOLE if isinstance(value := facts.get(name), int)}  # fmt: skip
    known |= {name: value for name in _WORDS if isinstance(value := facts.get(name), str)}
    return replace(flags, **known)


_BAR_CELLS = 32


def _lines(plan: Plan, name: str, found: Sequence[Suggestion | Way]) -> list[str]:
    columns, paint = terminal.columns(), terminal.painter(sys.stdout)
    head = paint("1;32" if plan.fits else terminal.RED, _verdict(plan, name))
    out = [head, "", *_memory(plan), "", *_worth(plan)]
    if found:
        title = "It fits with room to spare" if plan.fits else "To make it fit, best first"
        out += ["", title, *_suggested(found, columns)]
    told = textwrap.wrap("Assumed: " + "; ".join(assumptions(plan)) + ".", columns)
    return [*out, "", *(paint(terminal.DIM, line) for line in told)]


def _verdict(plan: Plan, name: str) -> str:
    settings = plan.settings
    asked = f"{name} at {settings.max_model_len:,} tokens"
    if plan.fits:
        return f"FITS: {asked}, {plan.concurrency:.2f} requests of that length at once"
    if plan.refusal is not None:
        return f"DOES NOT START: {plan.refusal}"
    if plan.lacks_gpus:
        return f"DOES NOT FIT: {name} wants {plan.gpus_needed} GPUs, there are {plan.machine.count}"
    if plan.kv_bytes <= 0:
        return f"DOES NOT FIT: {asked}; short by {-plan.kv_bytes / GIB:.2f} GiB before any KV cache"
    if plan.over_bytes > 0:
        return f"DOES NOT FIT: {asked}; the KV cache that is named is {plan.over_bytes / GIB:.2f} GiB too large"
    blocks = plan.pool.blocks_per_request(settings.max_model_len)
    need = f"{blocks * plan.pool.bytes_per_block / GIB:.2f} GiB of KV cache"
    return f"DOES NOT FIT: {asked} need {need}, {plan.kv_bytes / GIB:.2f} are left"


def _memory(plan: Plan) -> list[str]:
    total = plan.machine.memory_bytes
    share = plan.settings.gpu_memory_utilization
    rows = [
        ("weights", plan.weights.bytes_per_gpu, ""),
        ("activation peak", plan.activation.peak_bytes, ""),
        ("CUDA graphs", plan.graph_bytes, ""),
        ("context, libraries", plan.non_torch_bytes, ""),
    ]
    if plan.machine.beyond_source:
        rows.append(("beyond, as measured", plan.machine.beyond_bytes, "--from-log"))
    if plan.kv_bytes < 0:
        rows.append(("short by", -plan.kv_bytes, "before any KV cache"))
    else:
        blocks = f"{plan.num_blocks:,} blocks of {plan.pool.block_size:,} tokens"
        rows.append(("KV cache", plan.kv_bytes, blocks))
    rows.append(("not vLLM's", total - plan.budget_bytes, f"--gpu-memory-utilization {share:g}"))
    gpus = f"each of {plan.gpus_needed} GPUs" if plan.gpus_needed > 1 else "the GPU"
    out = [f"{'memory of ' + gpus:22}{total / GIB:9.2f} GiB"]
    for label, size, said in rows:
        bar = "█" * max(0, min(_BAR_CELLS, round(_BAR_CELLS * size / total)))
        out.append(f"  {label:20}{size / GIB:9.2f} GiB  {bar:{_BAR_CELLS}} {said}".rstrip())
    return out


def _worth(plan: Plan) -> list[str]:
    concurrency = f"{plan.concurrency:9.2f}" if math.isfinite(plan.concurrency) else "unbounded"
    fewest, most = tokens_spread(plan)
    may_be = f" ({fewest:,} to {most:,} is possible)" if most > fewest else ""
    return [
        f"{'KV cache per token':22}{plan.bytes_per_token / 1024:9.1f} KiB per GPU",
        f"{'KV cache':22}{plan.tokens:9,} tokens, as vLLM will print{may_be}",
        f"{'concurrency':22}{concurrency} × {plan.settings.max_model_len:,} tokens",
        f"{'longest that fits':22}{plan.longest:9,} tokens",
    ]


def _suggested(found: Sequence[Suggestion | Way], columns: int) -> list[str]:
    flags = [
        each.change if isinstance(each, Way) else f"{each.flag} {each.value}".rstrip()
        for each in found
    ]
    width = min(max(map(len, flags)) + 2, columns // 2)
    out = []
    for flag, each in zip(flags, found, strict=True):
        if len(flag) + 2 > width:
            out.append(f"  {flag}")
            out += [f"      {line}" for line in textwrap.wrap(each.why, columns - 6)]
            continue
        wrapped = textwrap.wrap(each.why, max(30, columns - width - 2))
        out.append(f"  {flag:{width}}{wrapped[0]}")
        out += [f"  {'':{width}}{line}" for line in wrapped[1:]]
    return out
