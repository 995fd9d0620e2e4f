"""Compute whether a model fits."""

import argparse
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm_watch.capacity.assumptions import assumptions, tokens_spread
from vllm_watch.capacity.bounds import GIB_MAX
from vllm_watch.capacity.flags import ALLOW_LONG
from vllm_watch.capacity.plan import Plan, make_plan, with_flags
from vllm_watch.capacity.read_config import read_config
from vllm_watch.capacity.suggestions import as_json, other_ways, suggestions
from vllm_watch.cli.helpers import exit_status, terminal
from vllm_watch.cli.helpers.capacity import text as capacity_text
from vllm_watch.cli.helpers.capacity.anchor import calibrated
from vllm_watch.cli.helpers.capacity.flags import AUTO_LENGTH, add_engine_flags, read_flags
from vllm_watch.cli.helpers.capacity.machine import find_machine
from vllm_watch.cli.helpers.capacity.model import find_checkpoint
from vllm_watch.errors import WatchError
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
    parser.add_argument(
        "source",
        metavar="MODEL",
        nargs="?",
        help="a model's folder, its config.json, or a name in the local hub cache",
    )
    parser.add_argument("--model", metavar="MODEL", help="the same, as vLLM spells it")
    parser.add_argument(
        "--from-hub",
        action="store_true",
        help="fetch config.json from the hub if it is not here (HF_ENDPOINT)",
    )
    parser.add_argument(
        "--gpu-name",
        metavar="NAME",
        help="such as H100 or 'RTX 4090' (default: this machine's GPUs)",
    )
    parser.add_argument(
        "--gpu-memory-gib",
        metavar="X",
        type=float,
        help="memory per GPU; a named card's nominal size is converted to CUDA's",
    )
    parser.add_argument(
        "--gpus",
        metavar="N",
        type=int,
        help="number (default: this machine's, else as many as the flags need)",
    )
    parser.add_argument("--weights-gib", metavar="X", type=float, help="weights per GPU, if known")
    parser.add_argument("--from-log", metavar="FILE", type=Path, help="the log of a real start of any model on this GPU, as calibration")  # fmt: skip
    parser.add_argument("--from-log-model", metavar="MODEL", help="that log's model, if not in the local hub cache")  # fmt: skip
    add_engine_flags(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


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
        dict(os.environ),
        from_hub=arguments.from_hub,
        weights_gib=_positive(arguments.weights_gib, "--weights-gib"),
    )
    model = read_config(found.config)
    allowed = os.environ.get(ALLOW_LONG) in ("1", "true")
    flags = replace(read_flags(arguments, model), allow_long=allowed)
    machine = find_machine(
        name=arguments.gpu_name,
        memory_gib=_positive(arguments.gpu_memory_gib, "--gpu-memory-gib"),
        count=arguments.gpus,
        procfs=Path("/proc"),
    )
    if arguments.from_log is not None:
        machine = calibrated(machine, arguments.from_log, arguments.from_log_model, os.environ)
    plan = make_plan(model, flags, machine, found.checkpoint)
    if arguments.max_model_len == AUTO_LENGTH and not plan.fits and plan.longest:
        plan = with_flags(plan, replace(flags, max_model_len=plan.longest))
    if arguments.json:
        print(json.dumps(report(plan)))
    else:
        found_flags = suggestions(plan)
        lines = capacity_text.lines(
            plan, found.name, (*found_flags, *other_ways(plan, found_flags)), assumptions(plan),
            columns=terminal.columns(60, 120), colours=terminal.takes_colours(sys.stdout),
        )  # fmt: skip
        print("\n".join(lines))
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
        "suggestions": as_json(found),
        "other_ways": [
            {"change": each.change, "why": each.why} for each in other_ways(plan, found)
        ],
    }
