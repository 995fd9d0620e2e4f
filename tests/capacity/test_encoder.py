"""The encoder of a multimodal model, from the words of each family."""

from typing import Any

import pytest

from tests.capacity.models import GEMMA_3_27B, LLAMA_31_8B
from tests.capacity.planning import named_rows, plan
from vllm_watch.capacity.assumptions import assumptions
from vllm_watch.capacity.read_encoders import read_encoder

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
