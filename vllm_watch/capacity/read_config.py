"""Read a Hugging Face config.json into a `Model`.

A missing value gets the default of vLLM or transformers, and is noted.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_watch.capacity.model import Encoder, LatentAttention, LayerKind, Model
from vllm_watch.capacity.published import completed
from vllm_watch.capacity.quantization import (
    Quantization,
    checkpoint_cache_dtype,
    read_quantization,
    weight_block,
)
from vllm_watch.capacity.read_layers import (
    Config,
    feed_forwards,
    layer_kinds,
    number,
    read_experts,
    read_state,
    unknown_kinds,
    with_layer_sizes,
)
from vllm_watch.capacity.units import (
    AS_PUBLISHED,
    LAYERS_MAX,
    NUMBER_MAX,
    check_numbers,
    is_size,
    shown,
)
from vllm_watch.errors import WatchError

_LARGEST_ITEM_TOKENS = 16384
"""Tokens of the largest image, if an encoder has no limit. Source: max_pixels of Qwen2-VL (28² per
token) to Qwen3.8 (32²)."""


def read_encoder(config: Config) -> Encoder | None:
    """Read `vision_config`; return None if it lacks the layers' sizes."""
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return None
    layers = vision.get("num_hidden_layers") or vision.get("depth") or 0
    width = vision.get("embed_dim") or vision.get("hidden_size") or 0
    inner = vision.get("intermediate_size") or 4 * width
    if not all(isinstance(each, int) and each > 0 for each in (layers, width, inner)):
        return None
    size, patch = vision.get("image_size"), vision.get("patch_size")
    patches = None
    if isinstance(size, int) and isinstance(patch, int) and 0 < patch <= size:
        patches = (size // patch) ** 2
    tokens = _optional(config.get("mm_tokens_per_image") or vision.get("default_output_length"))
    ratio = _patches_per_token(config, vision, patches, tokens)
    if tokens is None:
        tokens = max(1, patches // ratio) if patches else _LARGEST_ITEM_TOKENS
    return Encoder(
        parameters=layers * (4 * width * width + 2 * width * inner),
        hidden_size=width,
        intermediate_size=inner,
        patches_per_token=ratio,
        item_tokens=tokens,
    )


def _patches_per_token(
    config: Config, vision: Config, patches: int | None, tokens: int | None
) -> int:
    for each in (vision, config):
        for key in ("spatial_merge_size", "pooling_kernel_size"):
            side = _optional(each.get(key))
            if side is not None:
                return side * side
    if tokens and patches:
        return max(1, patches // tokens)
    shuffle = config.get("downsample_ratio") or vision.get("pixel_shuffle_ratio")
    if isinstance(shuffle, float) and 0 < shuffle < 1:
        return round(1 / (shuffle * shuffle))
    return 1


_ENCODER_KEYS = ("vision_config", "audio_config")
_LAYERS = ("num_hidden_layers", "depth", "encoder_layers", "conf_num_hidden_layers", "vt_num_hidden_layers", "num_blocks")  # fmt: skip
_WIDTHS = ("embed_dim", "hidden_size", "d_model", "vt_hidden_size", "attention_dim")
_INNER = ("intermediate_size", "encoder_ffn_dim", "vt_intermediate_size", "linear_units")
_NAMED = re.compile(r"_(\d{2,4})m(_|$)")  # mobilenetv5_300m_enc
# Phi-4-multimodal's code fixes the encoder of images: SigLIP without its last layer.
_SIGLIP = {"num_hidden_layers": 26, "hidden_size": 1152, "intermediate_size": 4304}


def count_towers(config: Config, *, vision_known: bool) -> tuple[int, tuple[str, ...]]:
    """Also return keys of unknown size."""
    total, unknown = 0, []
    thinker = config.get("thinker_config")
    places = [config, *([thinker] if isinstance(thinker, Mapping) else [])]
    for key in _ENCODER_KEYS:
        part = next((each[key] for each in places if isinstance(each.get(key), Mapping)), None)
        if part is None or (vision_known and key == "vision_config"):
            continue
        found = _count(part)
        total += found or 0
        if found is None:
            unknown.append(key)
    return total + _phi_4(config), tuple(unknown)


def _count(part: Config) -> int | None:
    layers, width = number(part, *_LAYERS), number(part, *_WIDTHS)
    if layers is None or width is None:
        named = _NAMED.search(str(part.get("architecture") or ""))
        return int(named[1]) * 1_000_000 if named else None
    inner = number(part, *_INNER) or 4 * width
    if any(str(key).startswith("conf_") or key == "conv_kernel_size" for key in part):
        return layers * _conformer(width, inner, gated=False)
    return layers * (4 * width * width + 2 * width * inner)


def _conformer(width: int, inner: int, *, gated: bool) -> int:
    # two MLPs; attention, relative positions and a convolution
    mlp = (3 if gated else 2) * width * inner
    return 2 * mlp + 8 * width * width


def _phi_4(config: Config) -> int:
    layer, audio = config.get("embd_layer"), config.get("audio_processor")
    total = 0
    if isinstance(layer, Mapping) and isinstance(layer.get("image_embd_layer"), Mapping):
        total += _count(_SIGLIP) or 0
    inner = audio.get("config") if isinstance(audio, Mapping) else None
    if isinstance(inner, Mapping):
        layers, width = number(inner, *_LAYERS) or 0, number(inner, *_WIDTHS) or 0
        total += layers * _conformer(width, number(inner, *_INNER) or 0, gated=True)
    return total


# Multimodal configs keep the language model under one of these keys.
_TEXT_CONFIGS = (
    "text_config", "llm_config", "language_config", "thinker_config", "language_model_config",
)  # fmt: skip
_KEYS: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "intermediate": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff"),
    "draft": ("num_nextn_predict_layers", "mtp_num_hidden_layers"),
}  # fmt: skip
# Families with an output head tied by default, and without a gated MLP.
_TIED = ("falcon", "mpt", "gpt2", "bloom", "opt", "gpt_bigcode")
# Families without a gated MLP.
_PLAIN_MLPS = (*_TIED, "gpt_neox", "phi", "starcoder2")
# DeepSeek V4 and later compress the cache and keep further states, so its size is unknown.
_COMPRESSED = re.compile(r"(kv_)?compress_(ratio|rate)s?")


def read_config(config: Config) -> Model:
    """Return the model. Raises WatchError if a size is missing or impossible."""
    try:
        model = _read(config)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:  # fmt: skip
        # A value of a wrong type is an error of the config.
        raise WatchError(
            f"the config cannot be understood: {type(error).__name__}: {shown(error)}", AS_PUBLISHED
        ) from None
    check_numbers(model)
    return model


def _read(config: Config) -> Model:
    shape, config = config, completed(config)
    text, encoder = _text_config(config), read_encoder(config)
    _refuse_wrong_values(text)
    count = _positive(text, "layers", most=LAYERS_MAX)
    cached = _key_value_heads(text, 1)
    heads = _positive(text, "heads", default=cached)
    stated = _optional(text.get("head_dim"))
    hidden = _positive(text, "hidden", default=heads * stated if stated else None)
    kinds = _kinds(text, count)
    head_dim, experts = _head_dim(text, hidden, heads), read_experts(text)
    towers, uncounted = count_towers(config, vision_known=encoder is not None)
    dtype = _stated_dtype(config, text)
    notes = [] if dtype is not None else ["bfloat16: the config names no torch_dtype"]
    notes += _size_notes(text)
    notes += [f"the weights of {key} are not counted: its sizes are unknown" for key in uncounted]
    state = None
    if config is not shape:
        notes.append("the config gives only a shape: the rest is that of the model published with it")  # fmt: skip
    if any(kind in (LayerKind.STATE, LayerKind.STATE_AND_FULL) for kind in kinds):
        state = read_state(text, hidden, heads, head_dim)
        if state.assumed:
            notes.append("recurrent state sized as in Qwen3-Next: the config does not give it")
    model = Model(
        model_type=str(text.get("model_type") or config.get("model_type") or "") or None,
        layer_kinds=kinds,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=_key_value_heads(text, heads),
        head_dim=head_dim,
        vocab_size=_positive(text, "vocab", default=32000),
        intermediate_size=_intermediate(text, hidden),
        max_position_embeddings=_positions(text),
        length_limit=length_limit(text),
        dtype="bfloat16" if dtype is None else dtype.removeprefix("torch."),
        tied_embeddings=_tied(config, text),
        gated_mlp=_gated(text),
        sliding_window=number(text, "sliding_window", "sliding_window_size"),
        chunk_size=_optional(text.get("attention_chunk_size")),
        full_head_dim=_optional(text.get("global_head_dim")),
        full_key_value_heads=_optional(text.get("num_global_key_value_heads")),
        shared_layers=_optional(text.get("num_kv_shared_layers")) or 0,
        latent=_latent(text),
        state=state,
        experts=experts,
        feeds=feed_forwards(text, kinds, mixture=experts is not None),
        attention_gate=bool(text.get("attn_output_gate", "linear_num_value_heads" in text)),
        draft_layers=min(_optional(_first(text, "draft")) or 0, LAYERS_MAX),
        multimodal=text is not config or encoder is not None or towers > 0,
        encoder=encoder,
        tower_parameters=towers,
        quantization=_quantization(config, text, count),
        weight_block=weight_block(_quantization_config(config, text) or {}),
        kv_cache_dtype=checkpoint_cache_dtype(_quantization_config(config, text) or {}),
        unread_cache=next(_unread_caches(text), None),
        notes=tuple(notes),
    )
    return with_layer_sizes(model, text)


def _kinds(text: Config, count: int) -> tuple[LayerKind, ...]:
    kinds = layer_kinds(text, count)
    if len(kinds) != count:
        raise WatchError(
            f"the config names {len(kinds)} layer kinds for {count} layers",
            "take the config.json that belongs to the checkpoint",
        )
    return kinds


def _tied(config: Config, text: Config) -> bool:
    family = str(text.get("model_type") or "")
    if family.startswith("lfm2"):  # vLLM ignores its `tie_embedding`
        return True
    usual = family in _TIED or family.startswith("gemma")
    return bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", usual)))


def _gated(text: Config) -> bool:
    # squared ReLU has no gate
    act = text.get("mlp_hidden_act") or text.get("hidden_act")
    return text.get("model_type") not in _PLAIN_MLPS and act != "relu2"


def _unread_caches(config: Config) -> Iterator[str]:
    for key, value in config.items():
        ratios = value if isinstance(value, list | tuple) else [value]
        if _COMPRESSED.fullmatch(str(key)) and any(ratios):
            yield str(key)
    for kind in unknown_kinds(config):
        if "compress" in kind:
            yield f"layer_types: {shown(kind)}"


def _text_config(config: Config) -> Config:
    for key in _TEXT_CONFIGS:
        inner = config.get(key)
        found = _text_config(inner) if isinstance(inner, Mapping) else {}
        if any(name in found for name in _KEYS["layers"]):
            return found
    return config


def _first(config: Config, field: str) -> int | None:
    for key in _KEYS[field]:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _positive(
    config: Config, field: str, default: int | None = None, most: int = NUMBER_MAX
) -> int:
    value = _first(config, field)
    if value is None:
        value = default
    if value is None:
        raise WatchError(
            f"the config has no {_KEYS[field][0]}",
            "give the config.json of a text model (of a multimodal one, with its text_config)",
        )
    if not is_size(value, most):
        raise WatchError(
            f"{_KEYS[field][0]}: {shown(value)} is not possible",
            f"take the config.json of the checkpoint: from 1 to {most:,}",
        )
    return value


def _optional(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _head_dim(config: Config, hidden: int, heads: int) -> int:
    given = config.get("head_dim") or config.get("kv_channels") or config.get("attention_head_dim")
    return _optional(given) or max(1, hidden // heads)


def _key_value_heads(config: Config, heads: int) -> int:
    for key in ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num",
                "num_query_groups", "num_kv_attention_heads", "num_attention_groups"):  # fmt: skip
        value = config.get(key)
        if isinstance(value, list | tuple) and value:
            value = max(int(each) for each in value)
            if not is_size(value):
                raise ValueError(f"{key}: {shown(value)}")
            return value
        # Falcon's old configs set multi_query and a meaningless num_kv_heads.
        if isinstance(value, int) and value > 0 and not _old_multi_query(config):
            return value
    attention = config.get("attn_config")  # MPT, DBRX
    if isinstance(attention, Mapping) and _optional(attention.get("kv_n_heads")):
        return int(attention["kv_n_heads"])
    return 1 if config.get("multi_query") else heads


def _old_multi_query(config: Config) -> bool:
    return bool(config.get("multi_query")) and not config.get(
        "new_decoder_architecture", config.get("model_type") != "falcon"
    )


def _intermediate(config: Config, hidden: int) -> int | None:
    value = config.get("intermediate_size")
    if isinstance(value, list | tuple) and value:
        return max(int(each) for each in value)
    if config.get("model_type") in ("mpt", "gpt2", "bloom", "falcon", "gpt_bigcode"):
        return _first(config, "intermediate") or int(
            float(config.get("expansion_ratio", 4)) * hidden
        )
    return _first(config, "intermediate")


def _stated_dtype(config: Config, text: Config) -> str | None:
    said = (each.get(key) for each in (text, config) for key in ("torch_dtype", "dtype"))
    return next((each for each in said if isinstance(each, str)), None)


def _size_notes(text: Config) -> Iterator[str]:
    for key in _OPTIONAL:  # these can be left out
        value = text.get(key)
        if not _is_number(value) and not isinstance(value, list | tuple):
            yield f"{key}: {_said(value)} is ignored: it is not a whole number from 0 on"
    kinds, layers = text.get("layer_types"), _first(text, "layers") or 0
    if isinstance(kinds, list | tuple) and 0 < len(kinds) < layers:
        yield f"layer_types has {len(kinds)} entries for {layers} layers: it is repeated"
    for field in ("hidden", "heads", "vocab"):
        if _first(text, field) is None:
            yield f"the config has no {_KEYS[field][0]}: values that depend on it are guessed"
    for kind in unknown_kinds(text)[:3]:
        yield f"layers of type {shown(kind)} are taken as full attention"


def _latent(config: Config) -> LatentAttention | None:
    rank, rope = _optional(config.get("kv_lora_rank")), _optional(config.get("qk_rope_head_dim"))
    if rank is None or rope is None:
        return None
    return LatentAttention(
        lora_rank=rank,
        rope_dim=rope,
        nope_dim=_optional(config.get("qk_nope_head_dim")) or 128,
        value_dim=_optional(config.get("v_head_dim")) or 128,
        query_rank=_optional(config.get("q_lora_rank")),
        indexer_dim=_optional(config.get("index_head_dim")) if config.get("index_topk") else None,
    )


def _quantization_config(config: Config, text: Config) -> Config | None:
    for each in (config, text):
        found = each.get("quantization_config") or each.get("compression_config")
        if isinstance(found, Mapping):
            _refuse_unless(found.get("quant_method"), str, "quant_method", "a name")
            return found
        _refuse_unless(found, Mapping, "quantization_config", "an object")
    return None


def _quantization(config: Config, text: Config, layers: int) -> Quantization | None:
    found = _quantization_config(config, text)
    if found is None:
        return None
    experts = text.get("expert_dtype") or config.get("expert_dtype") or found.get("expert_dtype")
    if experts is None and str(text.get("model_type")).startswith("deepseek_v4"):
        experts = "fp4"  # vLLM's default
    return read_quantization(found, expert_dtype=experts, layers=layers)


# Source: vLLM's _get_and_verify_max_len.
LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length",
    "max_seq_length", "seq_len",
)  # fmt: skip
UNSCALED = ("default", "mrope", "su", "longrope", "llama3")
_YARN = ("yarn", "deepseek_yarn")


def _positions(config: Config) -> int | None:
    """Return the longest context before rope scaling, in tokens."""
    said = config.get("model_max_length")
    if is_size(said):
        return int(said or 0)
    return min((config[key] for key in LENGTH_KEYS if is_size(config.get(key))), default=None)


def length_limit(config: Config) -> int | None:
    """Return the longest context that vLLM accepts, in tokens."""
    named = _positions(config)
    if named is None or "gemma3" in str(config.get("model_type")):
        return named
    return max((_scaled(each, named) for each in _ropes(config)), default=named)


def _ropes(config: Config) -> Iterator[Config]:
    for key in ("rope_scaling", "rope_parameters"):
        found = config.get(key)
        if isinstance(found, Mapping):
            yield found
            yield from (each for each in found.values() if isinstance(each, Mapping))


def _scaled(rope: Config, named: int) -> int:
    kind, factor = rope.get("rope_type") or rope.get("type") or "default", rope.get("factor")
    if kind in UNSCALED or not isinstance(factor, int | float) or not 1 <= factor <= NUMBER_MAX:
        return named
    if kind in _YARN:  # releases differ in whether the positions are scaled already
        original = rope.get("original_max_position_embeddings", named)
        if not is_size(original):
            original = named
        return min(max(named, int(original * factor)), NUMBER_MAX)
    return min(int(named * factor), NUMBER_MAX)


_NUMBERS = (
    *_KEYS["layers"], *_KEYS["hidden"], *_KEYS["heads"], *_KEYS["vocab"],
    "head_dim", "kv_lora_rank", "qk_rope_head_dim",
)  # fmt: skip
_NUMBERS_OR_LISTS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num",
    "num_attention_groups", "intermediate_size", "moe_intermediate_size", "num_local_experts",
    "num_experts", "n_routed_experts", "moe_num_experts",
)  # fmt: skip
_OPTIONAL = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "sliding_window",
    "attention_chunk_size", "num_kv_shared_layers", "first_k_dense_replace", "n_shared_experts",
    "num_experts_per_tok",
)  # fmt: skip


def _refuse_wrong_values(config: Config) -> None:
    for key in (*_NUMBERS, *_NUMBERS_OR_LISTS):
        value = config.get(key)
        each_layer = isinstance(value, list | tuple) and key in _NUMBERS_OR_LISTS
        for each in value if each_layer and value else (value,):
            if not _is_number(each):
                negative = isinstance(each, int) and each < 0
                raise WatchError(
                    f"{key}: {_said(each)} is not {'possible' if negative else 'a whole number'}",
                    AS_PUBLISHED,
                )


def _refuse_unless(value: Any, kind: type, key: str, named: str) -> None:
    if value and not isinstance(value, kind):
        raise WatchError(f"{key}: {_said(value)} is not {named}", AS_PUBLISHED)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _said(value: Any) -> str:
    return shown(f"'{value}'" if isinstance(value, str) else value)
