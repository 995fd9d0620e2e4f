"""Splits that fp8 blocks rule out."""

import math
from collections.abc import Mapping
from typing import Any

from vllm_watch.capacity import release as releases
from vllm_watch.capacity.bounds import is_size
from vllm_watch.capacity.model import FeedForward, Model
from vllm_watch.capacity.release import Release

# Source: vLLM's fp8_utils.py and fused_moe/oracle/fp8.py.
_REFINED_LEAST = 32


def weight_block(quantization: Mapping[str, Any]) -> int | None:
    """Return the block's side."""
    sides = quantization.get("weight_block_size")
    if quantization.get("quant_method") != "fp8" or not isinstance(sides, list | tuple):
        return None
    return math.lcm(*sides) if sides and all(is_size(each, 1 << 20) for each in sides) else None


def block_obstacle(model: Model, ranks: int, release: Release) -> str | None:
    """Return why vLLM refuses."""
    block = model.weight_block
    if block is None or ranks == 1:
        return None
    experts = model.experts
    if experts is not None and not experts.intermediate_size % ranks:
        size = experts.intermediate_size // ranks
        refined = math.gcd(block, size, model.hidden_size) >= _REFINED_LEAST
        if size % block and not (refined and release >= releases.FP8_BLOCKS_REFINED):
            return _said(ranks, "an expert", size, block)
    width = model.intermediate_size or 0
    if FeedForward.DENSE in model.feeds and not width % ranks and width // ranks % block:
        return _said(ranks, "an MLP", width // ranks, block)
    return None


def _said(ranks: int, part: str, size: int, block: int) -> str:
    return f"--tensor-parallel-size {ranks} gives each GPU {size} columns of {part}, not a multiple of the checkpoint's fp8 block of {block}"
