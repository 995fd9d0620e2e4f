"""A plan as the published JSON."""

import math
from typing import Any

from vllm_watch.capacity.assumptions import assumptions
from vllm_watch.capacity.other_ways import other_ways
from vllm_watch.capacity.plan import Plan
from vllm_watch.capacity.spread import tokens_spread
from vllm_watch.capacity.suggestions import as_json, suggestions


def report(plan: Plan) -> dict[str, Any]:
    """Every key of the contract, and the parts of the memory."""
    settings, found = plan.settings, suggestions(plan)
    concurrency = plan.concurrency if plan.num_blocks else 0.0
    return {
        "fits": plan.fits,
        "obstacle": plan.obstacle,
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
