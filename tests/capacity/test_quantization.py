"""Bytes per weight of each quantization, from a checkpoint's config or from the flag."""

from typing import Any

import pytest

from tests.capacity.models import QWEN3_30B_A3B, QWEN3_32B, Config
from tests.capacity.planning import named_rows, plan
from vllm_watch.capacity.quantization import Quantization, find_quantization, read_quantization
from vllm_watch.capacity.suggestions import suggestions

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
W4A16 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128, "symmetric": True, "type": "int"}}},
}  # fmt: skip
NVFP4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 16, "type": "float"}}},
}
W8A8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 8, "symmetric": True, "type": "int"}}},
}
# Story, flag, config of the checkpoint, bytes per weight.
TABLE = (
    ("none", None, None, None),
    ("fp8 by the flag", "fp8", None, 1.0),
    ("the checkpoint overrules the flag", "fp8", GPTQ, (4 + 16 / 128) / 8),
    ("AWQ: scales and zero points", None, AWQ, (4 + 20 / 128) / 8),
    ("W4A16", None, W4A16, (4 + 16 / 128) / 8),
    ("W8A8, a scale per channel", None, W8A8, 1.0),
    ("NVFP4: a byte of scale to 16", None, NVFP4, 0.5625),
    ("ModelOpt", None, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
    ("DeepSeek's blocks", None, {"quant_method": "fp8", "weight_block_size": [128, 128]}, 1.0),
    ("bitsandbytes", None, {"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.515625),
    ("GGUF", "gguf", None, 4.85 / 8),
    ("AWQ by the flag", "awq_marlin", None, (4 + 20 / 128) / 8),
    ("a name that says its format", "bnb-4bit", None, 0.53),
    ("a flag that is newer than the table", "q9", None, None),
    ("a method that is not known is no reduction", None, {"quant_method": "spqr"}, None),
)


def found(
    flag: str | None, config: dict[str, object] | None, experts: object = None
) -> Quantization:
    read = None if config is None else read_quantization(config, expert_dtype=experts, layers=4)
    return find_quantization(flag, read)


@named_rows("flag, config, size", TABLE)
def test_bytes_per_weight(
    flag: str | None, config: dict[str, object] | None, size: float | None
) -> None:
    assert found(flag, config).dense == size


_KEPT = ["lm_head", "re:.*mlp.gate$"]
_OF_EXPERTS = {"targets": ["re:.*mlp.experts.*"], "weights": {"num_bits": 4, "group_size": 16, "type": "float"}}  # fmt: skip
_OF_ATTENTION = {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}}
# Story, `quantization_config`, bytes per weight of MLP, attention, experts. The shapes are those of public checkpoints.
PARTS: tuple[tuple[str, dict[str, object], tuple[float | None, float | None, float | None]], ...] = (
    ("attention is left out by a pattern", NVFP4 | {"ignore": [*_KEPT, "re:.*self_attn.*"]}, (0.5625, None, 0.5625)),
    ("layer by layer", NVFP4 | {"ignore": [f"model.layers.{n}.self_attn.q_proj" for n in range(4)]}, (0.5625, None, 0.5625)),
    ("of the first layer alone", NVFP4 | {"ignore": ["model.layers.0.self_attn.q_proj"]}, (0.5625, 0.5625, 0.5625)),
    ("norms are no matrices", NVFP4 | {"ignore": [f"model.layers.{n}.post_attention_layernorm" for n in range(4)]}, (0.5625, 0.5625, 0.5625)),
    ("experts and attention have groups of their own", {"quant_method": "compressed-tensors", "config_groups": {"a": _OF_EXPERTS, "b": _OF_ATTENTION}}, (None, 1.0, 0.5625)),
    ("ModelOpt leaves attention out", {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.*.self_attn*"]}, (0.5625, None, 0.5625)),
    ("ModelOpt mixes", {"quant_method": "modelopt", "quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {
        "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"}, "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}}}}, (None, 1.0, 0.5625)),
    ("MXFP4 of gpt-oss, which keeps its attention", {"quant_method": "mxfp4"}, (None, None, 0.53125)),
    ("MXFP4 in compressed-tensors", {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32, "type": "float"}}}}, (0.53125, 0.53125, 0.53125)),
    ("Quark's MXFP4", {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, (0.53125, 0.53125, 0.53125)),
)  # fmt: skip


@named_rows("config, sizes", PARTS)
def test_each_part_has_its_format(
    config: dict[str, object], sizes: tuple[float | None, ...]
) -> None:
    """What is left out stays in 16 bits, and experts may be smaller than the rest."""
    read = found(None, config)
    assert (read.dense, read.attention, read.experts) == sizes


@pytest.mark.parametrize(("word", "size"), [("fp4", 0.53125), ("fp8", 1.0), ("bf16", None), (None, 1.0)])  # fmt: skip
def test_experts_of_deepseek_v4(word: str | None, size: float | None) -> None:
    """`expert_dtype` stands beside the quantization_config, and counts for the experts alone."""
    read = found(None, {"quant_method": "fp8", "weight_block_size": [128, 128]}, word)
    assert (read.dense, read.attention, read.experts) == (1.0, 1.0, size)


_BLOCKS = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
_EXPERTS_OF_1536 = QWEN3_30B_A3B | _BLOCKS | {"moe_intermediate_size": 1536}
# Story, config, flags, what each GPU has if vLLM refuses it.
SPLITS: tuple[tuple[str, Config, dict[str, Any], str | None], ...] = (
    ("whole blocks", _EXPERTS_OF_1536, {"tensor_parallel_size": 4, "version": "0.11.0"}, None),
    ("half a block of an expert", _EXPERTS_OF_1536, {"tensor_parallel_size": 8, "version": "0.11.0"}, "192 columns of an expert"),
    ("which newer releases refine", _EXPERTS_OF_1536, {"tensor_parallel_size": 8}, None),
    ("but not below 32", _EXPERTS_OF_1536 | {"moe_intermediate_size": 320}, {"tensor_parallel_size": 4}, "80 columns of an expert"),
    ("half a block of an MLP, in any release", QWEN3_32B | _BLOCKS, {"tensor_parallel_size": 16}, "1600 columns of an MLP"),
    ("no blocks", QWEN3_32B, {"tensor_parallel_size": 16}, None),
    ("one GPU", QWEN3_32B | _BLOCKS | {"intermediate_size": 25664}, {}, None),
)  # fmt: skip


@named_rows("config, flags, part", SPLITS)
def test_ranks_hold_whole_fp8_blocks(config: Config, flags: dict[str, Any], part: str | None) -> None:  # fmt: skip
    found = plan(config, max_model_len=8192, **flags)
    if part is None:
        assert found.obstacle is None
        return
    ranks = flags["tensor_parallel_size"]
    assert (
        found.obstacle
        == f"--tensor-parallel-size {ranks} gives each GPU {part}, not a multiple of the checkpoint's fp8 block of 128"
    )
    assert all(each.value != str(ranks) for each in suggestions(found))
