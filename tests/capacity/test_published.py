"""Parameters against their published counts, also of a config that gives nothing but a shape."""

import pytest

from tests.capacity import published_models as models
from tests.capacity.models import (
    DEEPSEEK_V3,
    GPT_OSS_20B,
    LLAMA_31_8B,
    MIXTRAL_8X7B,
    QWEN3_06B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    QWEN35_27B,
    Config,
)
from tests.capacity.planning import named_rows
from vllm_watch.capacity.published import completed
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


@named_rows("config, billions, error", PUBLISHED)
def test_parameters_are_those_published(config: Config, billions: float, error: float) -> None:
    counted = count_parameters(read_config(config)).total
    assert counted / 1e9 == pytest.approx(billions, rel=error)


def test_an_encoder_of_unknown_size_is_noted() -> None:
    found = read_config(models.LLAMA_4_SCOUT | {"audio_config": {"name": "x"}})
    assert "the weights of audio_config are not counted: its sizes are unknown" in found.notes


SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size", "torch_dtype", "head_dim", "sliding_window", "full_attention_interval", "layer_types")  # fmt: skip
EXPERTS = ("num_local_experts", "num_experts")
LATENT = ("kv_lora_rank", "qk_rope_head_dim")
NAMED = {
    "Llama-3.1-8B": LLAMA_31_8B, "Mixtral-8x7B": MIXTRAL_8X7B, "Qwen3-0.6B": QWEN3_06B,
    "Qwen3-32B": QWEN3_32B, "Qwen3-30B-A3B": QWEN3_30B_A3B, "DeepSeek-V3": DEEPSEEK_V3,
    "gpt-oss-20b": GPT_OSS_20B,
}  # fmt: skip


def bare(config: Config) -> Config:
    return {key: config[key] for key in (*SHAPE, *EXPERTS, *LATENT) if key in config}


@pytest.mark.parametrize("name", NAMED)
def test_a_bare_shape_counts_as_the_published_model(name: str) -> None:
    """As many parameters as its own config has, and it is said that they were filled in."""
    whole, found = read_config(NAMED[name]), read_config(bare(NAMED[name]))
    assert count_parameters(found).total == count_parameters(whole).total
    assert (
        "the config gives only a shape: the rest is that of the model published with it"
        in found.notes
    )
    assert not any("only a shape" in note for note in whole.notes)


def test_a_model_that_sees_is_recognized() -> None:
    """Qwen3.5-27B: its recurrent state, the gate of its attention, and the encoder."""
    found = read_config(bare(QWEN35_27B))
    assert found.state is not None
    assert found.encoder is not None
    assert (found.state.state_heads, found.attention_gate, found.multimodal) == (48, True, True)
    assert count_parameters(found).total == pytest.approx(27.3e9, rel=0.01)


LATENT_SHAPE: Config = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
# Name, shape, what it says beside, billions of parameters on its card.
CARDS: tuple[tuple[str, tuple[int, int, int, int, int], Config, float], ...] = (
    ("Llama-3.1-405B", (126, 16384, 128, 8, 128256), {}, 405.9),
    ("Qwen2.5-72B", (80, 8192, 64, 8, 152064), {}, 72.7),
    ("Qwen3-Coder-480B", (62, 6144, 96, 8, 151936), {"head_dim": 128}, 480.2),
    ("Qwen3-Next-80B", (48, 2048, 16, 2, 151936), {"head_dim": 256, "full_attention_interval": 4}, 79.7),
    ("DeepSeek-V2", (60, 5120, 128, 128, 102400), LATENT_SHAPE, 235.7),
    ("Kimi-K2", (61, 7168, 64, 64, 163840), LATENT_SHAPE, 1026.0),
    ("GLM-4.5-Air", (46, 4096, 96, 8, 151552), {"head_dim": 128}, 106.9),
    ("gpt-oss-120b", (36, 2880, 64, 8, 201088), {"head_dim": 64}, 116.8),
    ("Gemma-3-12B", (48, 3840, 16, 8, 262208), {"head_dim": 256}, 12.2),
    ("Phi-4", (40, 5120, 40, 10, 100352), {}, 14.7),
    ("Command R", (40, 8192, 64, 64, 256000), {}, 35.0),
    ("OPT-13B", (40, 5120, 40, 40, 50272), {}, 12.9),
)  # fmt: skip


@named_rows("shape, more, billions", CARDS)
def test_shapes_count_to_what_their_cards_say(
    shape: tuple[int, int, int, int, int], more: Config, billions: float
) -> None:
    """Within 1 %, embeddings, experts, shared ones and encoder in."""
    config = dict(zip(SHAPE[:5], shape, strict=True)) | more
    counted = count_parameters(read_config(config)).total
    assert counted / 1e9 == pytest.approx(billions, rel=0.01)


def test_two_models_of_one_shape_are_not_told_apart() -> None:
    """Mistral Nemo 12B and Small 24B agree in all five numbers: neither is taken."""
    shape = dict(zip(SHAPE[:5], (40, 5120, 32, 8, 131072), strict=True))
    assert completed(shape) is shape


UNTOUCHED: tuple[tuple[str, Config], ...] = (
    ("a family is named", bare(LLAMA_31_8B) | {"model_type": "llama"}),
    ("the MLP is given", bare(LLAMA_31_8B) | {"intermediate_size": 4096}),
    ("no such shape was published", bare(LLAMA_31_8B) | {"vocab_size": 128257}),
    ("no shape at all", {"num_hidden_layers": 32, "hidden_size": 4096}),
    ("a list where a number is expected", bare(LLAMA_31_8B) | {"num_key_value_heads": [8] * 32}),
)


@pytest.mark.parametrize("config", [row[1] for row in UNTOUCHED], ids=[row[0] for row in UNTOUCHED])
def test_left_as_it_is(config: Config) -> None:
    """A real config says what it is; nothing is put over it."""
    assert completed(config) is config
