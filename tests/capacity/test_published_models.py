"""Parameters against their published counts."""

from typing import Any

import pytest

from tests.capacity import published_models as models
from tests.capacity.models import Config
from tests.capacity.planning import plan
from vllm_watch.capacity.read_config import read_config
from vllm_watch.capacity.weights import count_parameters

# Name, config, billions of parameters published, relative error.
PUBLISHED: tuple[tuple[str, Config, float, float], ...] = (
    ("Gemma 3n E4B: embeddings per layer", models.GEMMA_3N_E4B, 7.85, 0.005),
    ("Gemma 4 E4B: embeddings per layer", models.GEMMA_4_E4B, 8.0, 0.02),
    ("Gemma 4 26B-A4B: experts beside an MLP", models.GEMMA_4_26B, 25.2, 0.005),
    ("Llama 4 Scout: a shared expert", models.LLAMA_4_SCOUT, 108.64, 0.005),
    ("Llama 4 Maverick: every second layer", models.LLAMA_4_MAVERICK, 401.58, 0.005),
    ("MiMo-V2-Flash: lists of kinds", models.MIMO_V2_FLASH, 309.0, 0.005),
    ("Nemotron 3 Nano: a mixer or an MLP", models.NEMOTRON_3_NANO, 31.58, 0.005),
    ("Nemotron 3 Nano: its list of types", models.NEMOTRON_3_LISTED, 31.58, 0.005),
    ("Nemotron Nano 2: no gate", models.NEMOTRON_NANO_2, 8.89, 0.005),
    ("Granite 4.0 H Small: a shared width", models.GRANITE_4_H_SMALL, 32.2, 0.005),
    ("LFM2-8B-A1B: dense layers first", models.LFM2_8B, 8.34, 0.005),
    ("Step 3.5 Flash: a string of layers", models.STEP_35_FLASH, 196.8, 0.005),
    ("Hunyuan A13B: lists of one number", models.HUNYUAN_A13B, 80.4, 0.005),
    # 5.574 published, less its two adapters of 0.369 and 0.461, which vLLM does not load.
    ("Phi-4-multimodal: encoders", models.PHI_4_MULTIMODAL, 4.744, 0.02),
)  # fmt: skip


@pytest.mark.parametrize(("config", "billions", "error"), [row[1:] for row in PUBLISHED], ids=[row[0] for row in PUBLISHED])  # fmt: skip
def test_parameters_are_those_published(config: Config, billions: float, error: float) -> None:
    counted = count_parameters(read_config(config)).total
    assert counted / 1e9 == pytest.approx(billions, rel=error)


@pytest.mark.parametrize("name", ["GEMMA_3N_E4B", "GEMMA_4_E4B"])
def test_embeddings_per_layer_do_not_fit_a_small_card(name: str) -> None:
    assert not plan(getattr(models, name), gpu="RTX 4080", max_model_len=32768).fits


# Name, config, flags, bytes of a token in all full-attention layers of one GPU.
FULL_LAYERS: tuple[tuple[str, Config, dict[str, Any], int], ...] = (
    ("keys of 192, values of 128", models.MIMO_V2_FLASH, {"tensor_parallel_size": 4}, 9 * (192 + 128) * 2),
    ("eight groups", models.STEP_35_FLASH, {"tensor_parallel_size": 8}, 12 * (128 + 128) * 2),
)  # fmt: skip


@pytest.mark.parametrize(("config", "flags", "expected"), [row[1:] for row in FULL_LAYERS], ids=[row[0] for row in FULL_LAYERS])  # fmt: skip
def test_only_full_layers_grow_with_the_context(config: Config, flags: dict[str, Any], expected: int) -> None:  # fmt: skip
    pools = [plan(config, gpu="H200", max_model_len=each, **flags).pool for each in (1 << 16, 1 << 17)]  # fmt: skip
    short, long = (pool.blocks_per_request(1 << 16 + at) for at, pool in enumerate(pools))
    assert (long - short) * pools[0].bytes_per_block == (1 << 16) * expected


def test_an_encoder_of_unknown_size_is_noted() -> None:
    found = read_config(models.LLAMA_4_SCOUT | {"audio_config": {"name": "x"}})
    assert "the weights of audio_config are not counted: its sizes are unknown" in found.notes
