"""Read the encoders of a multimodal model: vision with its largest image, and the parameters of all others."""

import re
from collections.abc import Mapping

from vllm_watch.capacity.model import Encoder
from vllm_watch.capacity.read_layers import Config, number

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
    ratio = _patches_per_token(config, vision)
    return Encoder(
        parameters=layers * (4 * width * width + 2 * width * inner),
        hidden_size=width,
        intermediate_size=inner,
        patches_per_token=ratio,
        item_tokens=_item_tokens(config, vision, ratio),
    )


def _patches_per_token(config: Config, vision: Config) -> int:
    for each in (vision, config):
        for key in ("spatial_merge_size", "pooling_kernel_size"):
            side = each.get(key)
            if isinstance(side, int) and side > 0:
                return side * side
    fixed, patches = _stated_tokens(config, vision), _image_patches(vision)
    if fixed and patches:
        return max(1, patches // fixed)
    shuffle = config.get("downsample_ratio") or vision.get("pixel_shuffle_ratio")
    if isinstance(shuffle, float) and 0 < shuffle < 1:
        return round(1 / (shuffle * shuffle))
    return 1


def _item_tokens(config: Config, vision: Config, ratio: int) -> int:
    stated, patches = _stated_tokens(config, vision), _image_patches(vision)
    if stated:
        return stated
    return max(1, patches // ratio) if patches else _LARGEST_ITEM_TOKENS


def _stated_tokens(config: Config, vision: Config) -> int | None:
    stated = config.get("mm_tokens_per_image") or vision.get("default_output_length")
    return stated if isinstance(stated, int) and stated > 0 else None


def _image_patches(vision: Config) -> int | None:
    size, patch = vision.get("image_size"), vision.get("patch_size")
    if isinstance(size, int) and isinstance(patch, int) and 0 < patch <= size:
        return (size // patch) ** 2
    return None


_KEYS = ("vision_config", "audio_config")
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
    for key in _KEYS:
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
