"""Estimate the memory of a multimodal model's encoder.

vLLM profiles the encoder first, with as many of the largest images as fit into one step, and keeps
the output. Source: profile_run and MultiModalBudget of vLLM's V1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LARGEST_ITEM_TOKENS = 16384
"""Tokens of the largest image, if an encoder has no limit. Source: max_pixels of Qwen2-VL (28² per
token) to Qwen3.8 (32²)."""

# Three tensors have the hidden size: image, residual and a norm's output. Two are as wide as the
# MLP: before and after its activation. Measured: 1.4 to 1.5 GiB for 16,384 tokens of Qwen3.8-27B on
# one RTX 5090 (vLLM 0.26), 1.3 to 1.6 on two cards.
_STREAMS, _WIDEST = 3, 2


@dataclass(frozen=True, slots=True)
class Encoder:
    """A vision tower, with sizes in elements."""

    parameters: int
    hidden_size: int
    intermediate_size: int
    patches_per_token: int
    item_tokens: int
    """Tokens of the largest image."""


def read_encoder(config: Mapping[str, Any]) -> Encoder | None:
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


def peak_bytes(encoder: Encoder, tokens: int, element: int) -> int:
    """Return the peak for images of this many tokens.

    Two ranks do not lower the peak, because exchange buffers need the memory that splitting
    the MLP saves.
    """
    width = _STREAMS * encoder.hidden_size + _WIDEST * encoder.intermediate_size
    return tokens * encoder.patches_per_token * width * element


def profiled_items(encoder: Encoder, batched_tokens: int) -> int:
    """Return the number of whole images in one step."""
    return max(1, batched_tokens // encoder.item_tokens)


def _patches_per_token(config: Mapping[str, Any], vision: Mapping[str, Any]) -> int:
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


def _item_tokens(config: Mapping[str, Any], vision: Mapping[str, Any], ratio: int) -> int:
    stated, patches = _stated_tokens(config, vision), _image_patches(vision)
    if stated:
        return stated
    return max(1, patches // ratio) if patches else _LARGEST_ITEM_TOKENS


def _stated_tokens(config: Mapping[str, Any], vision: Mapping[str, Any]) -> int | None:
    stated = config.get("mm_tokens_per_image") or vision.get("default_output_length")
    return stated if isinstance(stated, int) and stated > 0 else None


def _image_patches(vision: Mapping[str, Any]) -> int | None:
    size, patch = vision.get("image_size"), vision.get("patch_size")
    if isinstance(size, int) and isinstance(patch, int) and 0 < patch <= size:
        return (size // patch) ** 2
    return None
