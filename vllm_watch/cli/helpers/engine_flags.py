"""Read engine flags, spelled as in vLLM."""

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_watch.capacity.flags import Drafter, Flags
from vllm_watch.capacity.kv_types import check_config_dtype, head_bytes
from vllm_watch.capacity.model import Model
from vllm_watch.capacity.read_config import read_config
from vllm_watch.capacity.release import parse_release
from vllm_watch.capacity.units import GIB, GIB_MAX, LAYERS_MAX, NUMBER_MAX, is_size, shown
from vllm_watch.cli.helpers.checkpoints import read_json
from vllm_watch.errors import WatchError
from vllm_watch.support import json_text

AUTO_LENGTH = -1  # the longest context that fits
_SUFFIXES = {
    "k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30,
}  # fmt: skip
_DIGITS_MAX = 20
_AS_GIVEN = (
    "quantization", "enforce_eager", "language_model_only", "enable_lora", "enable_prefix_caching", "async_scheduling",
)  # fmt: skip
_NO_LAYERS = ("ngram", "suffix")


def _tokens(text: str) -> int:
    """Parse an integer as vLLM does. "32k" is 32,000, and "8K" is 8,192."""
    if text in ("auto", "-1"):
        return AUTO_LENGTH
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", text)
    if not found or len(text) > _DIGITS_MAX:
        cause = (
            f"{shown(text)} is more than any model has" if found else f"'{text}' is not a number"
        )
        raise argparse.ArgumentTypeError(f"{cause}\n→ write 4096, 32k or 8K")
    return int(float(found[1]) * _SUFFIXES.get(found[2], 1))


FLAGS: tuple[tuple[str, str, Callable[[str], str | float], str], ...] = (
    ("--vllm-version", "V", str, "the release to plan for (default: the newest known)"),
    ("--max-model-len", "N", _tokens, "longest context, also as 32k or 1M; auto: the longest that fits"),
    ("--gpu-memory-utilization", "X", float, "share of the GPU that vLLM may fill"),
    ("--tensor-parallel-size, -tp", "N", int, "ranks that share each layer"),
    ("--pipeline-parallel-size, -pp", "N", int, "stages that share the layers"),
    ("--data-parallel-size, -dp", "N", int, "replicas, each with GPUs of its own"),
    ("--decode-context-parallel-size, -dcp", "N", int, "ranks that share each token's cache"),
    ("--max-num-seqs", "N", _tokens, "requests at once"),
    ("--max-num-batched-tokens", "N", _tokens, "maximum tokens per step"),
    ("--kv-cache-dtype", "TYPE", str, "auto, fp8, int8_per_token_head, nvfp4 and others"),
    ("--block-size", "N", int, "tokens per block"),
    ("--dtype", "TYPE", str, "auto, bfloat16, half, float32"),
    ("--quantization, -q", "NAME", str, "awq, gptq, fp8 and others; default: the checkpoint's own"),
    ("--kv-cache-memory-bytes", "N", _tokens, "size of the KV cache per GPU, instead of a share"),
    ("--num-gpu-blocks-override", "N", int, "override the number of KV blocks"),
    ("--max-loras", "N", int, "adapters at once"),
    ("--max-lora-rank", "N", int, "their largest rank"),
    ("--speculative-config", "JSON", str, "method, model and num_speculative_tokens"),
    ("--cpu-offload-gb", "X", float, "GiB of weights per GPU that stay in the host's memory"),
)  # fmt: skip


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    for names, metavar, kind, said in FLAGS:
        parser.add_argument(*names.split(", "), metavar=metavar, type=kind, help=said)
    parser.add_argument("--enforce-eager", action="store_true", help="no CUDA graphs")
    parser.add_argument("--language-model-only", action="store_true", help="without the encoder of images")  # fmt: skip
    parser.add_argument("--enable-lora", action="store_true", help="enable LoRA")
    for name, default, said in (
        ("--enable-prefix-caching", True, "keep recurrent states for prefixes, too"),
        ("--async-scheduling", None, "schedule the next step while one runs"),
    ):
        parser.add_argument(name, action=argparse.BooleanOptionalAction, default=default, help=said)


def read_flags(arguments: argparse.Namespace, model: Model) -> Flags:
    """Return the checked flags. Raises WatchError."""
    names = (
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_loras",
        "decode_context_parallel_size", "max_num_seqs", "max_num_batched_tokens", "block_size",
        "kv_cache_memory_bytes", "num_gpu_blocks_override", "max_lora_rank", "max_model_len",
    )  # fmt: skip
    given: dict[str, Any] = {}
    for name in names:
        value = getattr(arguments, name)
        if value is None or (name == "max_model_len" and value == AUTO_LENGTH):
            continue
        flag = f"--{name.replace('_', '-')}"
        if value < 1:
            cause = f"{flag} {shown(value)} is not above 0"
            raise WatchError(cause, "give a whole number from 1 on")
        if value > NUMBER_MAX:
            raise WatchError(f"{flag} {shown(value)} is not above 0 and up to {NUMBER_MAX:,}", "give a value that vLLM accepts")  # fmt: skip
        given[name] = value
    share = arguments.gpu_memory_utilization
    if share is not None and not 0 < share <= 1:
        cause = f"--gpu-memory-utilization {share:g} is not above 0 and up to 1"
        raise WatchError(cause, "give a share such as 0.9")
    dtype = arguments.dtype or "auto"
    kv_dtype = arguments.kv_cache_dtype or "auto"
    if dtype == "auto":
        check_config_dtype(model.dtype)
    head_bytes(128, kv_dtype, model.dtype if dtype == "auto" else dtype)
    offload = arguments.cpu_offload_gb or 0.0
    if not 0 <= offload <= GIB_MAX:
        bound = "below 0" if offload < 0 else f"above {GIB_MAX:,}"
        cause = f"--cpu-offload-gb {offload:g} is {bound}"
        raise WatchError(cause, "give GiB per GPU, or leave it out")
    return Flags(
        **given,
        **{name: getattr(arguments, name) for name in _AS_GIVEN},
        release=parse_release(arguments.vllm_version),
        gpu_memory_utilization=share,
        dtype=dtype,
        kv_cache_dtype=kv_dtype,
        cpu_offload_bytes=int(offload * GIB),
        drafter=_drafter(arguments.speculative_config, model),
    )


def _drafter(text: str | None, model: Model) -> Drafter | None:
    if text is None:
        return None
    try:
        given = json_text.read(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        remedy = 'write it as vLLM takes it: {"method": "mtp", "num_speculative_tokens": 2}'
        raise WatchError(f"--speculative-config '{shown(text)}' is not a JSON object", remedy)
    method = str(given.get("method") or "draft_model")
    tokens = given.get("num_speculative_tokens", 1)
    if not is_size(tokens, LAYERS_MAX):
        cause = f"{shown(tokens)} is not a whole number above 0 and up to {LAYERS_MAX:,}"
        remedy = "give the number of tokens drafted at once"
        raise WatchError(f"num_speculative_tokens: {cause}", remedy)
    if method in _NO_LAYERS:
        return Drafter(method, tokens, 0)
    drafted = _drafter_model(given.get("model"))
    if drafted is not None:
        return Drafter(method, tokens, drafted.num_layers, drafted)
    layers = model.draft_layers if model.draft_layers and method not in ("eagle", "eagle3") else 1
    return Drafter(method, tokens, layers)


def _drafter_model(name: Any) -> Model | None:
    path = Path(str(name or "")) / "config.json"
    if not name or not os.path.lexists(path):
        return None
    try:
        return read_config(read_json(path))
    except WatchError as error:
        raise WatchError(f"the drafter's {error.cause}", error.remedy) from None
