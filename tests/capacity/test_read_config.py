"""Configs of many families: which layer is of which kind, what is refused, and bare shapes that a published model fills in."""

import pytest

from tests.capacity.models import (
    DEEPSEEK_V3,
    GPT_OSS_20B,
    LLAMA_31_8B,
    MIXTRAL_8X7B,
    MODELS,
    QWEN3_06B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    Config,
)
from tests.capacity.planning import named_rows, plan
from vllm_watch.capacity.model import LayerKind
from vllm_watch.capacity.published import completed
from vllm_watch.capacity.read_config import read_config
from vllm_watch.capacity.weights import count_parameters
from vllm_watch.errors import WatchError

_LETTERS = {
    LayerKind.FULL: "F", LayerKind.SLIDING: "w", LayerKind.CHUNKED: "c", LayerKind.STATE: "s",
    LayerKind.STATE_AND_FULL: "b", LayerKind.NONE: "-",
}  # fmt: skip


def of(layers: int, **more: object) -> Config:
    return {"num_hidden_layers": layers, "hidden_size": 64, "num_attention_heads": 4} | more


# Story, config, one letter per layer: F full, w window, c chunked, s state, b both, - none.
PATTERNS = (
    ("nothing said", of(3), "FFF"),
    ("a list of types", of(4, layer_types=["sliding_attention", "full_attention"] * 2), "wFwF"),
    ("Gemma 2 by its name", of(4, model_type="gemma2", sliding_window=64), "wFwF"),
    ("Gemma 3 before lists", of(12, model_type="gemma3_text", sliding_window=64, sliding_window_pattern=6), "wwwwwFwwwwwF"),
    ("Mistral: every layer", of(2, sliding_window=64), "ww"),
    ("Mistral without a window", of(2, sliding_window=None), "FF"),
    ("Qwen2 carries a window and does not use it", of(2, sliding_window=64, use_sliding_window=False), "FF"),
    ("Qwen2 that does, in its last layers", of(3, sliding_window=64, use_sliding_window=True, max_window_layers=2), "FFw"),
    ("Qwen3-Next", of(4, model_type="qwen3_next", full_attention_interval=4), "sssF"),
    ("Jamba", of(8, model_type="jamba", attn_layer_period=8, attn_layer_offset=4), "ssssFsss"),
    ("Bamba", of(4, model_type="bamba", attn_layer_indices=[2]), "ssFs"),
    ("Nemotron-H", of(5, model_type="nemotron_h", hybrid_override_pattern="M-M*-"), "s-sF-"),
    ("MiniMax", of(3, attn_type_list=[0, 0, 1]), "ssF"),
    ("Kimi Linear counts from 1", of(4, linear_attn_config={"full_attn_layers": [4], "num_heads": 4, "head_dim": 16}), "sssF"),
    ("Falcon-H1: both in each", of(2, model_type="falcon_h1"), "bb"),
    ("Llama 4", of(4, attention_chunk_size=64, no_rope_layers=[1, 1, 1, 0]), "cccF"),
    ("Llama 4 without its list", of(4, attention_chunk_size=64), "cccF"),
    ("Mamba", of(2, model_type="mamba", state_size=16), "ss"),
)  # fmt: skip


@named_rows("config, expected", PATTERNS)
def test_layer_kinds(config: Config, expected: str) -> None:
    assert "".join(_LETTERS[kind] for kind in read_config(config).layer_kinds) == expected


# Story, config, heads that are cached.
HEADS = (
    ("as many as there are", of(1), 4),
    ("ChatGLM", of(1, multi_query_group_num=2), 2),
    ("MPT", of(1, attn_config={"kv_n_heads": 2}), 2),
    ("Falcon 40B", of(1, model_type="falcon", new_decoder_architecture=True, multi_query=True, num_kv_heads=2), 2),
    ("a list, one per layer", of(2, num_key_value_heads=[1, 2]), 2),
)  # fmt: skip


@named_rows("config, heads", HEADS)
def test_key_value_heads(config: Config, heads: int) -> None:
    assert read_config(config).num_key_value_heads == heads


REFUSED: tuple[tuple[Config, str], ...] = (
    ({}, "the config has no num_hidden_layers"),
    ({"num_hidden_layers": 2}, "the config has no hidden_size"),
    (of(0), "num_hidden_layers: 0 is not possible"),
    (of(-3), "num_hidden_layers: -3 is not possible"),
    (of(4, hybrid_override_pattern="M*"), "the config names 2 layer kinds for 4 layers"),
    (of("32"), "num_hidden_layers: '32' is not a whole number"),  # type: ignore[arg-type]
    (of(2, num_key_value_heads=-8), "num_key_value_heads: -8 is not possible"),
    (of(2, quantization_config="fp8"), "quantization_config: 'fp8' is not an object"),
    (
        of(2, quantization_config={"quant_method": ["fp8"]}),
        "quant_method: ['fp8'] is not a name",
    ),
)


@pytest.mark.parametrize(("config", "cause"), REFUSED)
def test_refused(config: Config, cause: str) -> None:
    """What decides memory has to be there and possible."""
    with pytest.raises(WatchError) as refused:
        read_config(config)
    assert refused.value.cause == cause


def test_what_is_not_said_is_noted() -> None:
    """A default that was taken stands among the assumptions."""
    assert read_config(of(1)).notes == (
        "bfloat16: the config names no torch_dtype",
        "the config has no vocab_size: values that depend on it are guessed",
    )
    assert read_config(LLAMA_31_8B).notes == ()
    odd = LLAMA_31_8B | {"max_position_embeddings": "128k"}
    assert read_config(odd).notes == (
        "max_position_embeddings: '128k' is ignored: it is not a whole number from 0 on",
    )


# Story, what is added to the config, what makes its cache one that is not known here.
COMPRESSED: tuple[tuple[str, Config, str | None], ...] = (
    ("DeepSeek V4", {"compress_ratios": [0, 4, 128, 4]}, "compress_ratios"),
    ("one ratio for all", {"kv_compress_rate": 4}, "kv_compress_rate"),
    ("ratios that change nothing", {"compress_ratios": [0, 0, 0, 0]}, None),
    ("layers that say it", {"layer_types": ["heavily_compressed_attention", "full_attention"] * 2}, "layer_types: heavily_compressed… (28 characters)"),
    ("a format of weights", {"compression_config": {"quant_method": "compressed-tensors"}}, None),
)  # fmt: skip


@named_rows("more, key", COMPRESSED)
def test_a_cache_that_is_not_known_is_not_sized(more: Config, key: str | None) -> None:
    """The plan says what is known, and no tokens; without a word of compression it plans."""
    config = LLAMA_31_8B | {"num_hidden_layers": 4} | more
    assert read_config(config).unread_cache == key
    if key is None:
        assert plan(config).fits
        return
    with pytest.raises(
        WatchError, match=r"how many tokens fit is unknown. Weights of 3.\d\d GiB per GPU leave"
    ):
        plan(config)


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


LATENT_SHAPE: Config = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
# Name, shape, what it says beside, billions of parameters on its card.
CARDS: tuple[tuple[str, tuple[int, int, int, int, int], Config, float], ...] = (
    ("Qwen3-Coder-480B", (62, 6144, 96, 8, 151936), {"head_dim": 128}, 480.2),
    ("Qwen3-Next-80B", (48, 2048, 16, 2, 151936), {"head_dim": 256, "full_attention_interval": 4}, 79.7),
    ("DeepSeek-V2", (60, 5120, 128, 128, 102400), LATENT_SHAPE, 235.7),
    ("Kimi-K2", (61, 7168, 64, 64, 163840), LATENT_SHAPE, 1026.0),
    ("GLM-4.5-Air", (46, 4096, 96, 8, 151552), {"head_dim": 128}, 106.9),
    ("gpt-oss-120b", (36, 2880, 64, 8, 201088), {"head_dim": 64}, 116.8),
    ("Gemma-3-12B", (48, 3840, 16, 8, 262208), {"head_dim": 256}, 12.2),
    ("Phi-4", (40, 5120, 40, 10, 100352), {}, 14.7),
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


WRECKS = ("x", [None], {"a": 1}, -1, 1.5, None)


@pytest.mark.parametrize("name", MODELS)
def test_damaged_values_are_refused_or_survived(name: str) -> None:
    """Any value of any key may be of another kind: there is a plan or a WatchError, never another error."""
    outcomes = set()
    for key in MODELS[name]:
        for wreck in WRECKS:
            try:
                plan(MODELS[name] | {key: wreck}, max_model_len=4096)
                outcomes.add("planned")
            except WatchError:
                outcomes.add("refused")
    assert outcomes == {"planned", "refused"}
