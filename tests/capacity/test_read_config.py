"""Configs of many families: which layer is of which kind, and what is refused."""

import pytest

from tests.capacity.models import LLAMA_31_8B, Config
from tests.capacity.planning import named_rows, plan
from vllm_watch.capacity.model import LayerKind
from vllm_watch.capacity.read_config import read_config
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
    """One kind per layer."""
    assert "".join(_LETTERS[kind] for kind in read_config(config).layer_kinds) == expected


# Story, config, heads that are cached.
HEADS = (
    ("as many as there are", of(1), 4),
    ("grouped", of(1, num_key_value_heads=2), 2),
    ("one", of(1, multi_query=True), 1),
    ("ChatGLM", of(1, multi_query_group_num=2), 2),
    ("MPT", of(1, attn_config={"kv_n_heads": 2}), 2),
    ("Falcon 40B", of(1, model_type="falcon", new_decoder_architecture=True, multi_query=True, num_kv_heads=2), 2),
    ("a list, one per layer", of(2, num_key_value_heads=[1, 2]), 2),
)  # fmt: skip


@named_rows("config, heads", HEADS)
def test_key_value_heads(config: Config, heads: int) -> None:
    """Every family's word for them."""
    assert read_config(config).num_key_value_heads == heads


REFUSED: tuple[tuple[Config, str], ...] = (
    ({}, "the config has no num_hidden_layers"),
    ({"num_hidden_layers": 2}, "the config has no hidden_size"),
    (of(0), "num_hidden_layers: 0 is not possible"),
    (of(-3), "num_hidden_layers: -3 is not possible"),
    (of(4, hybrid_override_pattern="M*"), "the config names 2 layer kinds for 4 layers"),
    (of("32"), "num_hidden_layers: '32' is not a whole number"),  # type: ignore[arg-type]
    (of(2, num_key_value_heads=-8), "num_key_value_heads: -8 is not possible"),
    (of(2) | {"num_attention_heads": [4, 4]}, "num_attention_heads: [4, 4] is not a whole number"),
    (of(2, vocab_size=float("inf")), "vocab_size: inf is not a whole number"),
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


def test_a_short_list_of_types_is_repeated() -> None:
    found = read_config(LLAMA_31_8B | {"layer_types": ["full_attention"] * 10})
    assert found.notes == ("layer_types has 10 entries for 32 layers: it is repeated",)


def test_a_dtype_of_the_config_is_not_blamed_on_a_flag() -> None:
    odd = LLAMA_31_8B | {"torch_dtype": "banana"}
    with pytest.raises(WatchError, match="torch_dtype: banana in the config is not known here"):
        plan(odd)
    assert plan(odd, dtype="half").fits


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


def test_layers_of_an_unknown_type_are_noted() -> None:
    """They are taken as full attention, and the answer says so."""
    config = of(4, layer_types=["lunar_attention", "full_attention"] * 2)
    assert "layers of type lunar_attention are taken as full attention" in read_config(config).notes
