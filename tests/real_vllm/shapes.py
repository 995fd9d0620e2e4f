"""Ten kinds of KV cache as tiny models: each is one config that both vLLM and our arithmetic read."""

from pathlib import Path
from typing import Any

from tests.real_vllm.model import CONFIG

KV_BYTES = 64 << 20
FLAGS: dict[str, Any] = {
    "kv_cache_memory_bytes": KV_BYTES, "block_size": 32, "max_model_len": 4096,
    "max_num_seqs": 8, "max_num_batched_tokens": 512, "async_scheduling": False,
}  # fmt: skip


def llama(**changes: Any) -> dict[str, Any]:
    return CONFIG | changes


MLA = {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 8192,
    "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 64, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 1,
    "topk_group": 1, "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0,
    "scoring_func": "softmax", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1024, "max_position_embeddings": 8192,
    "sliding_window": 512, "sliding_window_pattern": 6, "query_pre_attn_scalar": 32,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_local_base_freq": 10000.0,
    "hidden_activation": "gelu_pytorch_tanh", "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1024, "max_position_embeddings": 8192,
    "full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": True, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "partial_rotary_factor": 0.25, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LFM2 = {
    "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 8192,
    "layer_types": ["conv", "conv", "full_attention"] * 2, "conv_L_cache": 3, "conv_bias": False,
    "conv_dim": 128, "block_dim": 128, "block_ff_dim": 256, "block_multiple_of": 32, "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False, "norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
GRANITE = {
    "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid",
    "hidden_size": 128, "intermediate_size": 256, "shared_intermediate_size": 256,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024,
    "max_position_embeddings": 8192, "layer_types": ["mamba", "mamba", "attention"] * 2,
    "mamba_n_heads": 4, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 64,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 64, "mamba_conv_bias": True,
    "mamba_proj_bias": False, "num_local_experts": 0, "num_experts_per_tok": 0,
    "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "logits_scaling": 1.0,
    "residual_multiplier": 1.0, "position_embedding_type": "nope", "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
MISTRAL = llama(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=1024)
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "multi-head": (llama(num_key_value_heads=4), {}),
    "grouped-query": (llama(), {}),
    "multi-query": (llama(num_key_value_heads=1, num_hidden_layers=5), {}),
    "fp8 cache": (llama(), {"kv_cache_dtype": "fp8"}),
    "float32": (llama(), {"dtype": "float32", "block_size": 64}),
    "latent (MLA)": (MLA, {}),
    "window in every layer": (MISTRAL, {}),
    "window in most layers": (GEMMA3, {}),
    "gated delta net hybrid": (QWEN3_NEXT, {}),
    "short convolution hybrid": (LFM2, {}),
    "Mamba 2 hybrid": (GRANITE, {}),
    "Mamba 2 hybrid, no prefix caching": (GRANITE, {"enable_prefix_caching": False}),
}


NEEDS_AVX512: dict[str, dict[str, Any]] = {
    "fp8 cache": {"num_gpu_blocks": 8192, "kv_cache_size_tokens": 262144, "block_size": 32},
}
"""What vLLM 0.32 refuses on a CPU without AVX-512 or AMX, and what it made of it on one with them (2026-11-22)."""


def cases() -> list[dict[str, Any]]:
    """As `sizing.py` reads them."""
    # With AVX-512 BF16 vLLM keeps recurrent states in float32 by itself; our arithmetic is that of such a CPU.
    bf16 = "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    needed: dict[str, Any] = {} if bf16 else {"mamba_ssm_cache_dtype": "float32"}
    return [
        {"name": name, "config": config, "flags": FLAGS | needed | flags}
        for name, (config, flags) in SHAPES.items()
    ]
