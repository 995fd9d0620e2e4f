"""Published shapes of well-known models, which complete a handwritten config.

Models that differ only in context length share one entry. Other models of equal shape are left out.
Source: each model's config.json.
"""

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]
# Layers, hidden size, attention heads, KV heads, vocabulary.
_Shape = tuple[int, int, int, int, int]

_TIED: Config = {"tie_word_embeddings": True}
_FP8: Config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
_QWEN_VISION = {
    "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "spatial_merge_size": 2,
}  # fmt: skip
_GEMMA_4_VISION = {
    "num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304, "pooling_kernel_size": 3,
    "default_output_length": 280,
}  # fmt: skip
_SIGLIP = {"mm_tokens_per_image": 256, "vision_config": {
    "num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304, "image_size": 896,
    "patch_size": 14,
}}  # fmt: skip
_MXFP4: Config = {"quantization_config": {"quant_method": "mxfp4"}}
_OPT: Config = {"model_type": "opt", "tie_word_embeddings": True, "max_position_embeddings": 2048}


def _dense(inner: int, context: int | None = None, **more: Any) -> Config:
    return {"intermediate_size": inner, **more} | _length(context)


def _mixture(
    experts: str, active: int, inner: int, context: int | None = None, **more: Any
) -> Config:
    key, count = experts.split("=")
    sizes = {key: int(count), "num_experts_per_tok": active, "moe_intermediate_size": inner}
    return {**sizes, **more} | _length(context)


def _deepseek(count: int, active: int, inner: int, dense: int, **more: Any) -> Config:
    more |= {"n_shared_experts": more.get("n_shared_experts", 1), "intermediate_size": dense}
    return _mixture(f"n_routed_experts={count}", active, inner, **more)


def _length(context: int | None) -> dict[str, Any]:
    return {} if context is None else {"max_position_embeddings": context}


def _gdn(value_heads: int, **more: Any) -> Config:
    return {
        "linear_num_key_heads": 16, "linear_num_value_heads": value_heads,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32", "full_attention_interval": 4, **more,
    }  # fmt: skip


_PUBLISHED: dict[_Shape, Config] = {
    # Llama and derivatives
    (32, 4096, 32, 32, 32000): _dense(11008, context=4096),  # Llama 2 7B, Vicuna
    (32, 4096, 32, 32, 32016): _dense(11008, context=16384),  # Code Llama 7B
    (40, 5120, 40, 40, 32000): _dense(13824, context=4096),
    (40, 5120, 40, 40, 32016): _dense(13824, context=16384),
    (48, 8192, 64, 8, 32000): _dense(22016, context=16384),
    (48, 8192, 64, 8, 32016): _dense(22016, context=16384),
    (80, 8192, 64, 8, 32000): _dense(28672, context=4096),
    (22, 2048, 32, 4, 32000): _dense(5632, context=2048),  # TinyLlama
    (32, 4096, 32, 8, 128256): _dense(14336),  # 3 and 3.1 8B
    (80, 8192, 64, 8, 128256): _dense(28672),
    (126, 16384, 128, 8, 128256): _dense(53248, context=131072),
    (16, 2048, 32, 8, 128256): _dense(8192, **_TIED, context=131072),  # 3.2 1B
    (28, 3072, 24, 8, 128256): _dense(8192, **_TIED, context=131072),
    (24, 2048, 16, 16, 32256): _dense(5504, context=16384),  # DeepSeek Coder 1.3B
    (32, 4096, 32, 32, 32256): _dense(11008, context=16384),
    (62, 7168, 56, 8, 32256): _dense(19200, context=16384),
    (60, 7168, 56, 8, 64000): _dense(20480),  # Yi 34B
    (32, 4096, 32, 32, 100278): _dense(11008, context=65536),  # OLMo 3 7B
    # Mistral
    (32, 4096, 32, 8, 32000): _dense(14336, context=32768),
    (32, 4096, 32, 8, 32768): _dense(14336, context=32768),
    (56, 6144, 48, 8, 32768): _dense(16384),  # Small 22B
    (88, 12288, 96, 8, 32768): _dense(28672, context=131072),  # Large 123B
    # Qwen 1.5, 2 and 2.5
    (32, 4096, 32, 32, 151936): _dense(11008, context=32768),
    (40, 5120, 40, 40, 152064): _dense(13696, context=32768),
    (80, 8192, 64, 64, 152064): _dense(24576, context=32768),
    (24, 896, 14, 2, 151936): _dense(4864, **_TIED, context=32768),
    (28, 1536, 12, 2, 151936): _dense(8960, **_TIED),
    (36, 2048, 16, 2, 151936): _dense(11008, **_TIED, context=32768),
    (28, 3584, 28, 4, 152064): _dense(18944),
    (48, 5120, 40, 8, 152064): _dense(13824),
    (64, 5120, 40, 8, 152064): _dense(27648),
    (80, 8192, 64, 8, 152064): _dense(29568),
    # Qwen 3
    (28, 1024, 16, 8, 151936): _dense(3072, **_TIED, context=40960),
    (28, 2048, 16, 8, 151936): _dense(6144, **_TIED, context=40960),
    (36, 2560, 32, 8, 151936): _dense(9728, **_TIED),
    (36, 4096, 32, 8, 151936): _dense(12288, context=40960),
    (40, 5120, 40, 8, 151936): _dense(17408, context=40960),
    (64, 5120, 64, 8, 151936): _dense(25600, context=40960),
    (48, 2048, 32, 4, 151936): _mixture("num_experts=128", 8, 768),
    (94, 4096, 64, 4, 151936): _mixture("num_experts=128", 8, 1536),
    (62, 6144, 96, 8, 151936): _mixture("num_experts=160", 8, 2560, context=262144),  # Coder
    (48, 2048, 16, 2, 151936): _mixture(
        "num_experts=512", 10, 512, shared_expert_intermediate_size=512, **_gdn(32), context=262144
    ),  # Next 80B, Coder Next
    # Qwen 3.5, 3.6 and 3.8, all multimodal
    (64, 5120, 24, 4, 248320): _dense(17408, vision_config=_QWEN_VISION, **_gdn(48), context=262144),
    (32, 4096, 16, 4, 248320): _dense(12288, vision_config=_QWEN_VISION, **_gdn(32), context=262144),
    (40, 2048, 16, 2, 248320): _mixture(
        "num_experts=256", 8, 512, shared_expert_intermediate_size=512, vision_config=_QWEN_VISION, **_gdn(32),
        context=262144,
    ),
    # DeepSeek and Kimi
    (27, 2048, 16, 16, 102400): _deepseek(64, 6, 1408, 10944, n_shared_experts=2, first_k_dense_replace=1, context=163840),
    (60, 5120, 128, 128, 102400): _deepseek(160, 6, 1536, 12288, n_shared_experts=2, first_k_dense_replace=1, q_lora_rank=1536, context=163840),
    (61, 7168, 128, 128, 129280): _deepseek(256, 8, 2048, 18432, first_k_dense_replace=3, q_lora_rank=1536, **_FP8, context=163840),
    (61, 7168, 64, 64, 163840): _deepseek(384, 8, 2048, 18432, first_k_dense_replace=1, q_lora_rank=1536, **_FP8),
    # Gemma
    (18, 2048, 8, 1, 256000): _dense(16384, **_TIED, context=8192),
    (28, 3072, 16, 16, 256000): _dense(24576, **_TIED, context=8192),
    (26, 2304, 8, 4, 256000): _dense(9216, **_TIED, context=8192),
    (42, 3584, 16, 8, 256000): _dense(14336, **_TIED, context=8192),
    (46, 4608, 32, 16, 256000): _dense(36864, **_TIED, context=8192),
    (34, 2560, 8, 4, 262208): _dense(10240, **_SIGLIP, **_TIED, context=131072),
    (48, 3840, 16, 8, 262208): _dense(15360, **_SIGLIP, **_TIED, context=131072),
    (62, 5376, 32, 16, 262208): _dense(21504, **_SIGLIP, **_TIED, context=131072),
    (60, 5376, 32, 16, 262144): _dense(
        21504, global_head_dim=512, num_global_key_value_heads=4, vision_config=_GEMMA_4_VISION, **_TIED,
        context=262144,
    ),  # Gemma 4 31B
    (30, 2816, 16, 8, 262144): _mixture(
        "num_experts=128", 8, 704, enable_moe_block=True, intermediate_size=2112, global_head_dim=512,
        num_global_key_value_heads=2, vision_config=_GEMMA_4_VISION, **_TIED, context=262144,
    ),  # Gemma 4 26B-A4B
    # OpenAI
    (24, 2880, 64, 8, 201088): _mixture("num_local_experts=32", 4, 2880, **_MXFP4, context=131072),
    (36, 2880, 64, 8, 201088): _mixture("num_local_experts=128", 4, 2880, **_MXFP4, context=131072),
    # Others
    (46, 4096, 96, 8, 151552): _deepseek(128, 8, 1408, 10944, first_k_dense_replace=1, context=131072),  # GLM 4.5 Air
    (92, 5120, 96, 8, 151552): _deepseek(160, 8, 1536, 12288, first_k_dense_replace=3, context=131072),
    (40, 4096, 32, 2, 151552): _dense(13696),  # GLM 4 9B
    (32, 3072, 32, 32, 32064): _dense(8192),  # Phi 3 mini
    (40, 5120, 40, 10, 100352): _dense(17920, context=16384),  # Phi 4
    (40, 8192, 64, 64, 256000): _dense(22528, **_TIED),  # Command R
    (64, 12288, 96, 8, 256000): _dense(33792, **_TIED, context=131072),
    (12, 768, 12, 12, 50272): _dense(3072, **_OPT),
    (24, 2048, 32, 32, 50272): _dense(8192, **_OPT),
    (32, 4096, 32, 32, 50272): _dense(16384, **_OPT),
    (40, 5120, 40, 40, 50272): _dense(20480, **_OPT),
    (32, 4096, 32, 32, 50432): _dense(16384, model_type="mpt", context=2048),
}  # fmt: skip
_MIXTRALS: dict[_Shape, Config] = {
    (32, 4096, 32, 8, 32000): _mixture("num_local_experts=8", 2, 14336, context=32768),
    (56, 6144, 48, 8, 32768): _mixture("num_local_experts=8", 2, 16384, context=65536),
}
_SHAPE_KEYS = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size",
)  # fmt: skip
_FAMILY_KEYS = ("model_type", "architectures", "text_config", "intermediate_size")
_EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")


def completed(config: Config) -> Config:
    """Return the config. If it has no family, the published values for its shape are added."""
    if any(key in config for key in _FAMILY_KEYS):
        return config
    shape = tuple(config.get(key) for key in _SHAPE_KEYS)
    if not all(isinstance(each, int) for each in shape):
        return config
    known: Mapping[Any, Config] = _PUBLISHED
    if any(key in config for key in _EXPERT_KEYS) and shape in _MIXTRALS:
        known = _MIXTRALS
    found = known.get(shape)
    return config if found is None else {**found, **config}
