"""The encoder of a multimodal model, from the words of each family."""

from typing import Any

import pytest

from tests.capacity.models import GEMMA_3_27B, LLAMA_31_8B
from tests.capacity.planning import named_rows, plan
from vllm_watch.capacity.assumptions import assumptions
from vllm_watch.capacity.read_encoders import Encoder, read_encoder

GIB = 1 << 30
BLOCKS = {"hidden_size": 1152, "intermediate_size": 4304}
# Story, config, patches to a token, tokens of the largest image.
FAMILIES: tuple[tuple[str, dict[str, Any], int, int], ...] = (
    ("Qwen3-VL takes images of any size", {"vision_config": BLOCKS | {"depth": 27, "spatial_merge_size": 2}}, 4, 16384),
    ("Mistral says it outside", {"spatial_merge_size": 2, "vision_config": BLOCKS | {"num_hidden_layers": 24, "image_size": 1540, "patch_size": 14}}, 4, 3025),
    ("Gemma 3 scales them all", {"mm_tokens_per_image": 256, "vision_config": BLOCKS | {"num_hidden_layers": 27, "image_size": 896, "patch_size": 14}}, 16, 256),
    ("Gemma 4 pools", {"vision_config": BLOCKS | {"num_hidden_layers": 27, "pooling_kernel_size": 3, "default_output_length": 280}}, 9, 280),
    ("InternVL shuffles pixels", {"downsample_ratio": 0.5, "vision_config": BLOCKS | {"num_hidden_layers": 24, "image_size": 448, "patch_size": 14}}, 4, 256),
    ("LLaVA keeps every patch", {"vision_config": BLOCKS | {"num_hidden_layers": 24, "image_size": 336, "patch_size": 14}}, 1, 576),
)  # fmt: skip


@named_rows("config, ratio, tokens", FAMILIES)
def test_families(config: dict[str, Any], ratio: int, tokens: int) -> None:
    """How many patches become a token, and how many tokens the largest image has."""
    found = read_encoder(config)
    assert found is not None
    assert (found.patches_per_token, found.item_tokens) == (ratio, tokens)


NONE = ({}, {"vision_config": None}, {"vision_config": {"depth": 27}}, {"vision_config": {"depth": [8], "embed_dim": 64}})  # fmt: skip


@pytest.mark.parametrize("config", NONE)
def test_no_encoder_of_blocks(config: dict[str, Any]) -> None:
    """What has none, or none that can be counted, is not guessed at."""
    assert read_encoder(config) is None


def test_old_engine_profiles_fewer_sequences_of_a_model_that_sees() -> None:
    """V0 fills its batch of 5,120 tokens with 20 prompts of an image each, so the encoder is the peak.

    Source: https://github.com/vllm-project/vllm/issues/16199: 3,584 tokens are 1.70 GiB, 17.61 are weights.
    """
    found = plan(
        GEMMA_3_27B, gpu="?", gib=21.99, version="0.8.3", use_v0=True, weights_gib=17.611,
        max_model_len=4096, gpu_memory_utilization=0.98, dtype="float16",
    )  # fmt: skip
    assert found.activation.peak_bytes == found.activation.encoder_bytes
    assert found.tokens == pytest.approx(3584, rel=0.17)


def test_what_the_encoder_made_stays() -> None:
    """The language model runs beside the images' tokens; without an encoder it runs alone."""
    blind = plan(GEMMA_3_27B | {"vision_config": None}, gpu="H200", max_num_seqs=1024)
    seen = plan(GEMMA_3_27B, gpu="H200", max_num_seqs=1024)
    assert seen.activation.peak_bytes - blind.activation.peak_bytes == 8192 * 5376 * 2
    assert plan(LLAMA_31_8B).activation.encoder_bytes == 0


def test_language_model_only() -> None:
    """Neither loaded nor profiled, and nothing is said of images."""
    found = plan(GEMMA_3_27B, gpu="H200", language_model_only=True)
    blind = plan(GEMMA_3_27B | {"vision_config": None}, gpu="H200")
    assert (found.weights, found.activation) == (blind.weights, blind.activation)
    assert not any("image" in each for each in assumptions(found))
    assert any("image" in each for each in assumptions(plan(GEMMA_3_27B, gpu="H200")))


def test_encoder_is_split_over_the_ranks() -> None:
    """0.41 billion parameters of 16 bits on one GPU, half of them on each of two."""
    for ranks in (1, 2):
        seen, blind = (
            plan(config, gpu="H200", tensor_parallel_size=ranks).weights.bytes_per_gpu
            for config in (GEMMA_3_27B, GEMMA_3_27B | {"vision_config": None})
        )
        assert seen - blind == pytest.approx(0.41e9 * 2 / ranks, rel=0.01)


def test_sizes() -> None:
    """Attention's four matrices and the MLP's two in every block."""
    found = read_encoder({"vision_config": {"depth": 2, "embed_dim": 8, "intermediate_size": 32}})
    assert found == Encoder(2 * (4 * 64 + 2 * 8 * 32), 8, 32, 1, 16384)
