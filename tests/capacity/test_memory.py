"""The parts of the memory beside the KV cache, against what real starts printed, and weights as given."""

from typing import Any

import pytest

from tests.capacity.models import (
    DEEPSEEK_V3,
    GEMMA_3_27B,
    LLAMA_31_8B,
    LLAMA_33_70B,
    QWEN3_06B,
    QWEN3_32B,
    QWEN35_27B,
    Config,
)
from tests.capacity.planning import named_rows, plan
from vllm_watch.capacity.assumptions import assumptions
from vllm_watch.capacity.read_config import read_encoder

GIB = 1 << 30
# Model, GPUs, GiB of weights per GPU, of activation, left for the KV cache: vLLM 0.11.0 on H100 at 0.9.
# Source: https://github.com/llm-d-incubation/llm-d-planner/blob/HEAD/docs/empirical-vllm-memory-results.md
H100_ROWS: tuple[tuple[Config, int, float, float, float], ...] = (
    (QWEN3_06B, 1, 1.12, 5.56, 64.45),
    (QWEN3_32B, 1, 61.03, 5.64, 4.45),
    (QWEN3_32B, 2, 30.59, 5.64, 34.49),
    (LLAMA_33_70B, 2, 33.88, 4.84, 32.00),
    (LLAMA_33_70B, 1, 67.72, 4.84, -1.44),
)


@pytest.mark.parametrize(("config", "gpus", "weights", "peak", "left"), H100_ROWS)
def test_starts_on_h100(
    config: Config, gpus: int, weights: float, peak: float, left: float
) -> None:
    """Activation and what is left for the KV cache are within 0.1 GiB of the log."""
    found = plan(
        config, version="0.11.0", tensor_parallel_size=gpus, gpu_memory_utilization=0.9,
        max_model_len=16000, block_size=128, weights_gib=weights,
    )  # fmt: skip
    assert found.activation.peak_bytes / GIB == pytest.approx(peak, abs=0.1)
    assert found.kv_bytes / GIB == pytest.approx(left, abs=0.1)


V2_LITE = {
    "num_hidden_layers": 27, "hidden_size": 2048, "num_attention_heads": 16,
    "num_key_value_heads": 16, "vocab_size": 102400, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "n_routed_experts": 64, "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408, "n_shared_experts": 2, "first_k_dense_replace": 1,
    "intermediate_size": 10944, "model_type": "deepseek_v2", "torch_dtype": "bfloat16",
}  # fmt: skip


# Story, config, flags, what a start on some card of 80 GB printed within so much. Sources: vllm-project/vllm,
# pull/12569; pull/4650 of 2024-06-28, profiled as by 0.6.3; issues/15196, which does not name the flag.
STARTS: tuple[tuple[str, Config, dict[str, Any], dict[str, tuple[float, float]]], ...] = (
    ("the first V1 profiled the logits of every token", LLAMA_33_70B,
     {"version": "0.7.0", "use_v0": False, "weights_gib": 67.7229, "max_model_len": 2048, "gpu_memory_utilization": 0.98},
     {"tokens": (22096, 0.1)}),
    ("MLA without its own cache pads every head", V2_LITE,
     {"version": "0.6.3", "weights_gib": 29.301, "max_model_len": 32000}, {"num_blocks": (5549, 0.04)}),
    ("a layer comes back from the host's memory", V2_LITE,
     {"gpu": "L40S", "gib": 44.31, "version": "0.7.2", "weights_gib": 0.8008, "max_model_len": 100000,
      "max_num_batched_tokens": 40000, "gpu_memory_utilization": 0.45, "enforce_eager": True},
     {"peak": (4.02 * GIB, 0.08), "kv_bytes": (14.96 * GIB, 0.03)}),
)  # fmt: skip


@named_rows("config, flags, printed", STARTS)
def test_starts_of_old_releases(
    config: Config, flags: dict[str, Any], printed: dict[str, tuple[float, float]]
) -> None:
    found = plan(config, **({"gpu": "?", "gib": 80} | flags))
    for name, (value, within) in printed.items():
        said = found.activation.peak_bytes if name == "peak" else getattr(found, name)
        assert said == pytest.approx(value, rel=within)


QWEN38_27B = {
    "model_type": "qwen3_5", "text_config": QWEN35_27B, "torch_dtype": "bfloat16",
    "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "spatial_merge_size": 2},
}  # fmt: skip


def test_sampler_and_encoder_of_today() -> None:
    """One RTX 5090 with 0.26: 0.54 GiB more for 8 sequences than 256, 0.6 GiB for no encoder's peak.

    Source: https://github.com/vllm-project/recipes/blob/HEAD/models/Qwen/Qwen3.8-27B.yaml, tokens of 32 KiB.
    """
    seen, blind, few = (
        plan(config, gpu="RTX 5090", version="0.26.1", max_model_len=32768, weights_gib=20,
             kv_cache_dtype="fp8", enforce_eager=True, max_num_seqs=sequences).kv_bytes / GIB
        for config, sequences in ((QWEN38_27B, 256), (QWEN35_27B, 256), (QWEN35_27B, 8))
    )  # fmt: skip
    assert few - blind == pytest.approx(0.54, abs=0.15)
    assert blind - seen == pytest.approx(0.6, abs=0.15)


def test_a_checkpoint_is_quantized_while_it_is_loaded() -> None:
    """--quantization fp8 on 16 bits: embeddings and head stay, 14.96 GiB become 8.46; a checkpoint of fp8 is one."""
    files = 8030261248 * 2
    plain, small, bits = (
        plan(LLAMA_31_8B, checkpoint_bytes=files, quantization=each).weights
        for each in (None, "fp8", "bitsandbytes")
    )
    assert plain.bytes_per_gpu == files
    assert small.bytes_per_gpu / GIB == pytest.approx(8.46, abs=0.02)
    assert small.source == "14.96 GiB in the checkpoint, made fp8 while it is loaded"
    assert bits.bytes_per_gpu / GIB == pytest.approx(5.3, abs=0.1)
    own = LLAMA_31_8B | {"quantization_config": {"quant_method": "fp8"}}
    found = plan(own, checkpoint_bytes=files // 2, quantization="fp8").weights
    assert found.bytes_per_gpu == files // 2


def test_adapters_take_room() -> None:
    """LoRA of rank 16 beside all seven matrices of Llama-3.1-8B has 42 million parameters."""
    plain, adapted = plan(LLAMA_31_8B), plan(LLAMA_31_8B, enable_lora=True)
    more = adapted.weights.bytes_per_gpu - plain.weights.bytes_per_gpu
    assert more / 2 == pytest.approx(41.9e6, rel=0.03)


def test_graphs_are_taken_from_the_budget_since_they_are_profiled() -> None:
    """0.21 and later count CUDA graphs; before, and with --enforce-eager, they do not."""
    now, before, eager = (
        plan(LLAMA_31_8B, version="0.21.0"),
        plan(LLAMA_31_8B, version="0.19.0"),
        plan(LLAMA_31_8B, version="0.21.0", enforce_eager=True),
    )
    assert (now.graph_bytes > 0, before.graph_bytes, eager.graph_bytes) == (True, 0, 0)


FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
# Story, config, GiB per GPU given, flags, GiB per GPU planned with. Checkpoints' own sizes are public.
GIVEN: tuple[tuple[str, Config, float, dict[str, object], float], ...] = (
    ("R1 in 16 bits, published in fp8", DEEPSEEK_V3 | FP8, 78.11, {"tensor_parallel_size": 16}, 40.07),
    ("QwQ in 16 bits, loaded as GGUF of 4.85", QWEN3_32B, 61.0, {"quantization": "gguf"}, 18.5),
    ("fewer than four bits, embeddings in 16", QWEN35_27B, 7.0, {"tensor_parallel_size": 2}, 8.3),
    ("Llama in 16 bits", LLAMA_31_8B, 14.9888, {}, 14.9888),
    ("a config of fp8 whose experts have four bits", DEEPSEEK_V3 | FP8, 45.0, {"tensor_parallel_size": 8}, 45.0),
    ("most of it in the host's memory", LLAMA_33_70B, 1.2, {}, 1.2),
    ("with adapters", LLAMA_33_70B, 18.41, {"tensor_parallel_size": 2, "enable_lora": True}, 18.41),
)  # fmt: skip


@named_rows("config, given, flags, taken", GIVEN)
def test_what_cannot_be_is_counted_instead(
    config: Config, given: float, flags: dict[str, object], taken: float
) -> None:
    """A size that a start may have printed is believed; of one that no checkpoint has, what was taken instead is said."""
    found = plan(config, gpu="B200", weights_gib=given, **flags)  # type: ignore[arg-type]
    assert found.weights.bytes_per_gpu / GIB == pytest.approx(taken, rel=0.02)
    if given == taken:
        assert found.weights.bytes_per_gpu == int(given * GIB)
        assert found.weights.source == f"{given:g} GiB per GPU as given"
    else:
        assert f"instead of {given:g} GiB per GPU as given: " in found.weights.source


BLOCKS = {"hidden_size": 1152, "intermediate_size": 4304}
# Story, config, patches to a token, tokens of the largest image.
FAMILIES: tuple[tuple[str, dict[str, Any], tuple[int, int] | None], ...] = (
    ("Qwen3-VL takes images of any size", {"vision_config": BLOCKS | {"depth": 27, "spatial_merge_size": 2}}, (4, 16384)),
    ("Mistral says it outside", {"spatial_merge_size": 2, "vision_config": BLOCKS | {"num_hidden_layers": 24, "image_size": 1540, "patch_size": 14}}, (4, 3025)),
    ("Gemma 3 scales them all", {"mm_tokens_per_image": 256, "vision_config": BLOCKS | {"num_hidden_layers": 27, "image_size": 896, "patch_size": 14}}, (16, 256)),
    ("Gemma 4 pools", {"vision_config": BLOCKS | {"num_hidden_layers": 27, "pooling_kernel_size": 3, "default_output_length": 280}}, (9, 280)),
    ("InternVL shuffles pixels", {"downsample_ratio": 0.5, "vision_config": BLOCKS | {"num_hidden_layers": 24, "image_size": 448, "patch_size": 14}}, (4, 256)),
    ("none", {"vision_config": None}, None),
    ("one without its size is not guessed at", {"vision_config": {"depth": 27}}, None),
    ("nor one of several depths", {"vision_config": {"depth": [8], "embed_dim": 64}}, None),
    ("LLaVA keeps every patch", {"vision_config": BLOCKS | {"num_hidden_layers": 24, "image_size": 336, "patch_size": 14}}, (1, 576)),
)  # fmt: skip


@named_rows("config, sizes", FAMILIES)
def test_families(config: dict[str, Any], sizes: tuple[int, int] | None) -> None:
    """How many patches become a token, and how many tokens the largest image has."""
    found = read_encoder(config)
    assert (found and (found.patches_per_token, found.item_tokens)) == sizes


def test_language_model_only() -> None:
    found = plan(GEMMA_3_27B, gpu="H200", language_model_only=True)
    blind = plan(GEMMA_3_27B | {"vision_config": None}, gpu="H200")
    assert (found.weights, found.activation) == (blind.weights, blind.activation)
    assert not any("image" in each for each in assumptions(found))
    assert any("image" in each for each in assumptions(plan(GEMMA_3_27B, gpu="H200")))
