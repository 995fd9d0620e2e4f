"""Bytes per weight of each quantization, from a checkpoint's config or from the flag."""

import pytest

from vllm_watch.capacity.quantization import find_quantization

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
    ("GPTQ with 8 bits", None, GPTQ | {"bits": 8}, (8 + 16 / 128) / 8),
    ("W4A16", None, W4A16, (4 + 16 / 128) / 8),
    ("W8A8, a scale per channel", None, W8A8, 1.0),
    ("NVFP4: a byte of scale to 16", None, NVFP4, 0.5625),
    ("ModelOpt", None, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
    ("ModelOpt fp8", None, {"quant_method": "modelopt", "quant_algo": "FP8"}, 1.0),
    ("DeepSeek's blocks", None, {"quant_method": "fp8", "weight_block_size": [128, 128]}, 1.0),
    ("bitsandbytes", None, {"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.515625),
    ("bitsandbytes 8 bit", None, {"quant_method": "bitsandbytes", "load_in_4bit": False}, 1.0),
    ("GGUF", "gguf", None, 4.85 / 8),
    ("AWQ by the flag", "awq_marlin", None, (4 + 20 / 128) / 8),
    ("a name that says its format", "bnb-4bit", None, 0.53),
    ("a flag that is newer than the table", "q9", None, None),
    ("a method that is not known is no reduction", None, {"quant_method": "spqr"}, None),
)


@pytest.mark.parametrize(
    ("flag", "config", "size"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_bytes_per_weight(
    flag: str | None, config: dict[str, object] | None, size: float | None
) -> None:
    """With scales and zero points."""
    assert find_quantization(flag, config).bytes_per_weight == size


def test_mxfp4_shrinks_experts_alone() -> None:
    """gpt-oss keeps its attention in bfloat16."""
    assert find_quantization(None, {"quant_method": "mxfp4"}).only_experts
