"""Weights as given: they stand, unless vLLM cannot have printed them."""

import pytest

from tests.capacity.models import (
    DEEPSEEK_V3,
    LLAMA_31_8B,
    LLAMA_33_70B,
    QWEN3_32B,
    QWEN35_27B,
    Config,
)
from tests.capacity.planning import plan

GIB = 1 << 30
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
# Story, config, GiB per GPU given, flags, GiB per GPU planned with. Checkpoints' own sizes are public.
IMPOSSIBLE: tuple[tuple[str, Config, float, dict[str, object], float], ...] = (
    ("R1 in 16 bits, published in fp8", DEEPSEEK_V3 | FP8, 78.11, {"tensor_parallel_size": 16}, 40.07),
    ("QwQ in 16 bits, loaded as GGUF of 4.85", QWEN3_32B, 61.0, {"quantization": "gguf"}, 18.5),
    ("fewer than four bits, embeddings in 16", QWEN35_27B, 7.0, {"tensor_parallel_size": 2}, 8.3),
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "given", "flags", "taken"),
    [row[1:] for row in IMPOSSIBLE],
    ids=[row[0] for row in IMPOSSIBLE],
)
def test_what_cannot_be_is_counted_instead(
    config: Config, given: float, flags: dict[str, object], taken: float
) -> None:
    """A size that no checkpoint of this model has: the answer says what was taken instead, and why."""
    found = plan(config, gpu="B200", weights_gib=given, **flags)  # type: ignore[arg-type]
    assert found.weights.bytes_per_gpu / GIB == pytest.approx(taken, rel=0.02)
    assert f"instead of {given:g} GiB per GPU as given: " in found.weights.source


# Story, config, GiB per GPU as vLLM printed them, flags.
PRINTED: tuple[tuple[str, Config, float, dict[str, object]], ...] = (
    ("Llama in 16 bits", LLAMA_31_8B, 14.9888, {}),
    ("70 billion in fp8", LLAMA_33_70B, 67.72, {"quantization": "fp8"}),
    ("the same over two", LLAMA_33_70B, 33.88, {"tensor_parallel_size": 2, "quantization": "fp8"}),
    ("a mixed checkpoint", QWEN35_27B, 12.02, {"tensor_parallel_size": 2}),
    ("another", QWEN35_27B, 10.64, {"tensor_parallel_size": 2}),
    ("70 billion at 4.5 bits", LLAMA_33_70B, 18.41, {"tensor_parallel_size": 2, "quantization": "awq"}),
    ("a little more than 8 bits", QWEN35_27B, 13.0, {"tensor_parallel_size": 2}),
    ("a config of fp8 whose experts have four bits", DEEPSEEK_V3 | FP8, 45.0, {"tensor_parallel_size": 8}),
    ("less than the format that the config names", DEEPSEEK_V3 | FP8, 60.0, {"tensor_parallel_size": 8}),
    ("6 bits", QWEN3_32B, 25.1, {}),
    ("most of it in the host's memory", LLAMA_33_70B, 1.2, {}),
    ("what --cpu-offload-gb leaves", LLAMA_33_70B, 18.41, {"tensor_parallel_size": 2, "cpu_offload_bytes": GIB}),
    ("with adapters", LLAMA_33_70B, 18.41, {"tensor_parallel_size": 2, "enable_lora": True}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "given", "flags"), [row[1:] for row in PRINTED], ids=[row[0] for row in PRINTED]
)
def test_printed_sizes_are_believed(config: Config, given: float, flags: dict[str, object]) -> None:
    """What a start may have said is taken as it is."""
    found = plan(config, gpu="B200", weights_gib=given, **flags)  # type: ignore[arg-type]
    assert found.weights.bytes_per_gpu == int(given * GIB)
    assert found.weights.source == f"{given:g} GiB per GPU as given"


def test_a_shape_that_can_not_be_counted_is_no_ground_for_doubt() -> None:
    """Without the MLP's width the given size is all there is."""
    blind = {key: value for key, value in LLAMA_33_70B.items() if key != "intermediate_size"}
    found = plan(blind | {"vocab_size": 128257}, weights_gib=36.8, quantization="awq")
    assert found.weights.bytes_per_gpu == int(36.8 * GIB)


def test_gguf_quantizes_its_tables_too() -> None:
    """4.85 bits for every parameter, embeddings and head as well: a file of 32.8 billion has 18.5 GiB."""
    found = plan(QWEN3_32B, gpu="H100", version="0.8.5", quantization="gguf")
    assert found.weights.bytes_per_gpu / GIB == pytest.approx(18.5, rel=0.01)
