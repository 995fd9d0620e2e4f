"""Format a plan as one screen of text, verdict first."""

import math
import textwrap
from collections.abc import Sequence

from vllm_watch.capacity.assumptions import tokens_spread
from vllm_watch.capacity.plan import Plan
from vllm_watch.capacity.suggestions import Suggestion, Way
from vllm_watch.capacity.units import GIB

_GOOD, _BAD, _DIM, _END = "\033[1;32m", "\033[1;31m", "\033[2m", "\033[0m"
_BAR_CELLS = 32


def lines(
    plan: Plan,
    name: str,
    found: Sequence[Suggestion | Way],
    assumed: Sequence[str],
    *,
    columns: int,
    colours: bool,
) -> list[str]:
    """Return the lines."""
    head = _verdict(plan, name)
    if colours:
        head = f"{_GOOD if plan.fits else _BAD}{head}{_END}"
    out = [head, "", *_memory(plan), "", *_worth(plan)]
    if found:
        title = "It fits with room to spare" if plan.fits else "To make it fit, best first"
        out += ["", title, *_suggested(found, columns)]
    told = textwrap.wrap("Assumed: " + "; ".join(assumed) + ".", columns)
    return [*out, "", *([f"{_DIM}{line}{_END}" for line in told] if colours else told)]


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
    need = blocks * plan.pool.bytes_per_block / GIB
    return (
        f"DOES NOT FIT: {asked} need {need:.2f} GiB of KV cache, {plan.kv_bytes / GIB:.2f} are left"
    )


def _memory(plan: Plan) -> list[str]:
    total = plan.machine.memory_bytes
    beyond = total - plan.budget_bytes
    share = plan.settings.gpu_memory_utilization
    rows = [
        ("weights", plan.weights.bytes_per_gpu, ""),
        ("activation peak", plan.activation.peak_bytes, ""),
        ("CUDA graphs", plan.graph_bytes, ""),
        ("context, libraries", plan.non_torch_bytes, ""),
        *(
            [("beyond, as measured", plan.machine.beyond_bytes, "--from-log")]
            if plan.machine.beyond_source
            else []
        ),
        ("short by", -plan.kv_bytes, "before any KV cache")
        if plan.kv_bytes < 0
        else (
            "KV cache",
            plan.kv_bytes,
            f"{plan.num_blocks:,} blocks of {plan.pool.block_size:,} tokens",
        ),
        ("not vLLM's", beyond, f"--gpu-memory-utilization {share:g}"),
    ]
    gpus = f"each of {plan.gpus_needed} GPUs" if plan.gpus_needed > 1 else "the GPU"
    out = [f"{'memory of ' + gpus:22}{total / GIB:9.2f} GiB"]
    for label, size, said in rows:
        bar = "█" * max(0, min(_BAR_CELLS, round(_BAR_CELLS * size / total)))
        out.append(f"  {label:20}{size / GIB:9.2f} GiB  {bar:{_BAR_CELLS}} {said}".rstrip())
    return out


def _worth(plan: Plan) -> list[str]:
    per_token = plan.bytes_per_token
    concurrency = f"{plan.concurrency:9.2f}" if math.isfinite(plan.concurrency) else "unbounded"
    fewest, most = tokens_spread(plan)
    may_be = f" ({fewest:,} to {most:,} is possible)" if most > fewest else ""
    rows = [
        ("KV cache per token", f"{per_token / 1024:9.1f} KiB per GPU"),
        ("KV cache", f"{plan.tokens:9,} tokens, as vLLM will print{may_be}"),
        ("concurrency", f"{concurrency} × {plan.settings.max_model_len:,} tokens"),
        ("longest that fits", f"{plan.longest:9,} tokens"),
    ]
    return [f"{label:22}{said}" for label, said in rows]


def _suggested(found: Sequence[Suggestion | Way], columns: int) -> list[str]:
    flags = [
        each.change if isinstance(each, Way) else f"{each.flag} {each.value}".rstrip()
        for each in found
    ]
    width = min(max(map(len, flags)) + 2, columns // 2)
    out = []
    for flag, each in zip(flags, found, strict=True):
        if len(flag) + 2 > width:
            out += [
                f"  {flag}",
                *(f"      {line}" for line in textwrap.wrap(each.why, columns - 6)),
            ]
            continue
        wrapped = textwrap.wrap(each.why, max(30, columns - width - 2))
        out.append(f"  {flag:{width}}{wrapped[0]}")
        out += [f"  {'':{width}}{line}" for line in wrapped[1:]]
    return out
