"""KV cache bytes per token: each kind of attention, cache type, parallel split and release."""

from typing import Any

import pytest

from tests.capacity.models import (
    DEEPSEEK_V3,
    FALCON_7B,
    GEMMA_3_27B,
    GPT_OSS_20B,
    LLAMA_2_7B,
    LLAMA_31_8B,
    LLAMA_33_70B,
    Config,
)
from tests.capacity.planning import named_rows, plan
from tests.real_vllm.shapes import FLAGS, SHAPES
from vllm_watch.capacity.assumptions import assumptions
from vllm_watch.capacity.suggestions import suggestions

# Blocks, tokens and block size, as that vLLM said them for 64 MiB.
REAL = {
    "multi-head": (2048, 65536, 32),
    "grouped-query": (4096, 131072, 32),
    "multi-query": (3276, 104832, 32),
    "fp8 cache": (8192, 262144, 32),
    "float32": (1024, 65536, 64),
    "latent (MLA)": (1213, 19408, 16),
    "window in every layer": (4096, 342392, 32),
    "window in most layers": (4096, 57260, 32),
    "gated delta net hybrid": (409, 52352, 160),
    "short convolution hybrid": (4096, 127100, 32),
    "Mamba 2 hybrid": (455, 88746, 288),
    "Mamba 2 hybrid, no prefix caching": (455, 109628, 288),
}
# Story, config, flags, bytes per token and GPU.
PER_TOKEN: tuple[tuple[str, Config, dict[str, object], int], ...] = (
    ("every head has its own cache", LLAMA_2_7B, {}, 524288),
    ("one head for all, whatever num_kv_heads says", FALCON_7B, {}, 32 * 2 * 64 * 2),
    ("an fp8 cache is half", LLAMA_31_8B, {"kv_cache_dtype": "fp8"}, 65536),
    ("float32 is double", LLAMA_31_8B, {"dtype": "float32"}, 262144),
    ("int8 with a scale per token and head", LLAMA_31_8B,
     {"kv_cache_dtype": "int8_per_token_head"}, 32 * 8 * 2 * (128 + 4)),
    ("nvfp4: half a byte and a scale to 16", LLAMA_31_8B, {"kv_cache_dtype": "nvfp4"},
     32 * 8 * 2 * (64 + 8)),
    ("TurboQuant, but for two layers at either end", LLAMA_31_8B,
     {"kv_cache_dtype": "turboquant_4bit_nc"}, 28 * 8 * (64 + 2 + 64 + 4) + 4 * 8 * 2 * 128 * 2),
    ("more ranks than heads hold copies", LLAMA_31_8B, {"tensor_parallel_size": 16}, 32 * 2 * 128 * 2),
    ("stages share the layers", LLAMA_33_70B, {"pipeline_parallel_size": 2}, 163840),
    ("the stage with most layers decides", LLAMA_31_8B, {"pipeline_parallel_size": 3}, 11 * 4096),
    ("latent attention is one vector", DEEPSEEK_V3, {}, 61 * 576 * 2),
    ("which no tensor parallelism splits", DEEPSEEK_V3, {"tensor_parallel_size": 8}, 61 * 576 * 2),
    ("0.7.2 padded it to 640", DEEPSEEK_V3, {"version": "0.7.2"}, 61 * 640 * 2),
    ("0.6 knew no latent cache", DEEPSEEK_V3, {"version": "0.6.6", "tensor_parallel_size": 8},
     61 * 16 * 2 * 256 * 2),
    ("V0 kept what a window forgets", GEMMA_3_27B, {"version": "0.8.3", "use_v0": True},
     62 * 2 * 16 * 128 * 2),
    ("sparse attention: a row of 656 bytes and an index of 132", DEEPSEEK_V3 | {"index_topk": 2048, "index_head_dim": 128},
     {"kv_cache_dtype": "fp8"}, 61 * (656 + 132)),
    ("0.11 printed tokens as if it did too", GPT_OSS_20B, {"version": "0.11.0"}, 24 * 2 * 8 * 64 * 2),
)  # fmt: skip


@named_rows("config, flags, expected", PER_TOKEN)
def test_bytes_per_token(config: Config, flags: dict[str, object], expected: int) -> None:
    assert plan(config, max_model_len=4096, **flags).bytes_per_token == pytest.approx(
        expected, rel=1e-4
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SHAPES)
def test_as_a_real_vllm_had_it(name: str) -> None:
    """What vLLM 0.32 made of twelve tiny models; tests/real_vllm asks it anew."""
    config, flags = SHAPES[name]
    found = plan(config, gpu="cpu", gib=8, **(FLAGS | flags))
    assert (found.num_blocks, found.tokens, found.pool.block_size) == REAL[name]


_FLOAT_8 = {"type": "float", "num_bits": 8, "dynamic": False}
_COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized", "kv_cache_scheme": _FLOAT_8}  # fmt: skip
_MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
# Story, quantization config, flags, bytes per token of Llama 3.1 8B.
NAMED: tuple[tuple[str, Config, dict[str, Any], int], ...] = (
    ("compressed-tensors", _COMPRESSED, {}, 65536),
    ("which older releases do not follow", _COMPRESSED, {"version": "0.11.0"}, 131072),
    ("a flag wins", _COMPRESSED, {"kv_cache_dtype": "bfloat16"}, 131072),
    ("ModelOpt's scheme", _MODELOPT | {"kv_cache_scheme": _FLOAT_8}, {}, 65536),
    ("ModelOpt's name", _MODELOPT | {"kv_cache_quant_algo": "FP8"}, {}, 65536),
    ("in its own file", {"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}, {}, 65536),
    ("a scheme that vLLM does not know", _MODELOPT | {"kv_cache_scheme": _FLOAT_8 | {"dynamic": True}}, {}, 131072),
    ("none named", _MODELOPT | {"kv_cache_quant_algo": None}, {}, 131072),
)  # fmt: skip


@named_rows("quantization, flags, expected", NAMED)
def test_the_checkpoint_names_its_cache(quantization: Config, flags: dict[str, Any], expected: int) -> None:  # fmt: skip
    found = plan(LLAMA_31_8B | {"quantization_config": quantization}, **flags)
    assert found.bytes_per_token == expected
    said = any("as the checkpoint's quantization names it" in each for each in assumptions(found))
    assert said == (expected == 65536)
    full = plan(LLAMA_31_8B | {"quantization_config": quantization}, gpu="RTX 3060", gpus=1, **flags)  # fmt: skip
    assert not (said and "--kv-cache-dtype" in {each.flag for each in suggestions(full)})
