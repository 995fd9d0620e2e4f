"""Configs of well-known models, as they are published: what of them decides memory."""

from typing import Any

Config = dict[str, Any]


def dense(
    layers: int, hidden: int, heads: int, kv: int, inner: int, vocab: int, **more: Any
) -> Config:
    return {
        "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": inner, "vocab_size": vocab,
        "torch_dtype": "bfloat16",
    } | more  # fmt: skip


LLAMA_2_7B = dense(32, 4096, 32, 32, 11008, 32000, max_position_embeddings=4096)
LLAMA_31_8B = dense(
    32, 4096, 32, 8, 14336, 128256, model_type="llama", max_position_embeddings=131072
)
LLAMA_33_70B = dense(80, 8192, 64, 8, 28672, 128256, max_position_embeddings=131072)
QWEN3_06B = dense(
    28, 1024, 16, 8, 3072, 151936, head_dim=128, max_position_embeddings=40960,
    tie_word_embeddings=True,
)  # fmt: skip
QWEN3_4B = dense(
    36, 2560, 32, 8, 9728, 151936, head_dim=128, max_position_embeddings=40960,
    tie_word_embeddings=True,
)  # fmt: skip
QWEN3_32B = dense(64, 5120, 64, 8, 25600, 151936, head_dim=128, max_position_embeddings=40960)
MISTRAL_01_7B = dense(
    32, 4096, 32, 8, 14336, 32000, sliding_window=4096, max_position_embeddings=32768
)
MIXTRAL_8X7B = dense(
    32, 4096, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2,
    max_position_embeddings=32768,
)  # fmt: skip
QWEN3_30B_A3B = dense(
    48, 2048, 32, 4, 6144, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
    moe_intermediate_size=768, decoder_sparse_step=1, max_position_embeddings=40960,
)  # fmt: skip
DEEPSEEK_V3 = dense(
    61, 7168, 128, 128, 18432, 129280, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128,
    v_head_dim=128, q_lora_rank=1536, n_routed_experts=256, num_experts_per_tok=8,
    n_shared_experts=1, moe_intermediate_size=2048, first_k_dense_replace=3, moe_layer_freq=1,
    max_position_embeddings=163840, num_nextn_predict_layers=1,
)  # fmt: skip
GEMMA_3_27B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
        "intermediate_size": 21504, "vocab_size": 262208, "sliding_window": 1024,
        "max_position_embeddings": 131072, "tie_word_embeddings": True,
    },
    "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304, "image_size": 896, "patch_size": 14},
    "mm_tokens_per_image": 256,
    "torch_dtype": "bfloat16", "tie_word_embeddings": True,
}  # fmt: skip
GPT_OSS_20B = dense(
    24, 2880, 64, 8, 2880, 201088, head_dim=64, sliding_window=128, model_type="gpt_oss",
    num_local_experts=32, num_experts_per_tok=4, max_position_embeddings=131072,
    layer_types=["sliding_attention", "full_attention"] * 12,
    quantization_config={"quant_method": "mxfp4"},
)  # fmt: skip
QWEN35_27B = dense(
    64, 5120, 24, 4, 17408, 248320, model_type="qwen3_5_text", head_dim=256,
    full_attention_interval=4, linear_num_key_heads=16, linear_num_value_heads=48,
    linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
    mamba_ssm_dtype="float32", max_position_embeddings=262144, mtp_num_hidden_layers=1,
)  # fmt: skip
FALCON_7B = {
    "model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71,
    "multi_query": True, "new_decoder_architecture": False, "vocab_size": 65024,
    "torch_dtype": "bfloat16", "num_kv_heads": 71,
}  # fmt: skip
MPT_7B = {
    "model_type": "mpt", "n_layers": 32, "d_model": 4096, "n_heads": 32, "vocab_size": 50432,
    "max_seq_len": 2048, "expansion_ratio": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
MODELS: dict[str, Config] = {
    "Llama-2-7B": LLAMA_2_7B, "Llama-3.1-8B": LLAMA_31_8B, "Llama-3.3-70B": LLAMA_33_70B,
    "Qwen3-0.6B": QWEN3_06B, "Qwen3-4B": QWEN3_4B, "Qwen3-32B": QWEN3_32B,
    "Mistral-7B-v0.1": MISTRAL_01_7B, "Mixtral-8x7B": MIXTRAL_8X7B, "Qwen3-30B-A3B": QWEN3_30B_A3B,
    "DeepSeek-V3": DEEPSEEK_V3, "Gemma-3-27B": GEMMA_3_27B, "gpt-oss-20b": GPT_OSS_20B,
    "Qwen3.5-27B": QWEN35_27B, "Falcon-7B": FALCON_7B, "MPT-7B": MPT_7B,
}  # fmt: skip
