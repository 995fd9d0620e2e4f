"""Configs of newer models."""

from tests.capacity.models import Config, dense

_MIMO = [0] + [1] * 4 + [0] + ([1] * 5 + [0]) * 7
_NANO_3 = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"

GEMMA_3N_E4B: Config = {
    "model_type": "gemma3n",
    "text_config": {
        "model_type": "gemma3n_text", "num_hidden_layers": 35, "hidden_size": 2048,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "intermediate_size": [16384] * 35, "vocab_size": 262400, "vocab_size_per_layer_input": 262144,
        "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 15, "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7, "altup_num_inputs": 4,
        "laurel_rank": 64, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
    },
    "vision_config": {"architecture": "mobilenetv5_300m_enc", "hidden_size": 2048},
    "audio_config": {"hidden_size": 1536, "conf_num_hidden_layers": 12, "conf_conv_kernel_size": 5},
}  # fmt: skip
GEMMA_4_E4B: Config = {
    "model_type": "gemma4", "dtype": "bfloat16", "tie_word_embeddings": True,
    "text_config": {
        "model_type": "gemma4_text", "num_hidden_layers": 42, "hidden_size": 2560,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512,
        "intermediate_size": 10240, "vocab_size": 262144, "vocab_size_per_layer_input": 262144,
        "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 18, "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7,
        "max_position_embeddings": 131072, "enable_moe_block": False,
    },
    "vision_config": {
        "model_type": "gemma4_vision", "num_hidden_layers": 16, "hidden_size": 768,
        "intermediate_size": 3072, "pooling_kernel_size": 3, "default_output_length": 280,
    },
    "audio_config": {
        "model_type": "gemma4_audio", "num_hidden_layers": 12, "hidden_size": 1024,
        "conv_kernel_size": 5,
    },
}  # fmt: skip
GEMMA_4_26B = dense(
    30, 2816, 16, 8, 2112, 262144, model_type="gemma4_text", head_dim=256, global_head_dim=512,
    num_global_key_value_heads=2, moe_intermediate_size=704, num_experts=128, top_k_experts=8,
    enable_moe_block=True, sliding_window=1024, max_position_embeddings=262144,
    layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 5, tie_word_embeddings=True,
)  # fmt: skip
LLAMA_4_SCOUT: Config = {
    "model_type": "llama4",
    "text_config": dense(
        48, 5120, 40, 8, 8192, 202048, model_type="llama4_text", head_dim=128,
        intermediate_size_mlp=16384, num_local_experts=16, num_experts_per_tok=1,
        interleave_moe_layer_step=1, attention_chunk_size=8192, no_rope_layers=[],
        max_position_embeddings=10485760, tie_word_embeddings=False,
    ),
    "vision_config": {
        "num_hidden_layers": 34, "hidden_size": 1408, "intermediate_size": 5632, "image_size": 336,
        "patch_size": 14, "pixel_shuffle_ratio": 0.5,
    },
}  # fmt: skip
MIMO_V2_FLASH = dense(
    48, 4096, 64, 4, 16384, 152576, model_type="mimo_v2_flash", head_dim=192, v_head_dim=128,
    swa_num_attention_heads=64, swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128,
    hybrid_layer_pattern=_MIMO, sliding_window_size=128, n_routed_experts=256,
    num_experts_per_tok=8, moe_intermediate_size=2048, moe_layer_freq=[0] + [1] * 47,
    n_shared_experts=None, max_position_embeddings=262144, tie_word_embeddings=False,
)  # fmt: skip
NEMOTRON_3_NANO = dense(
    52, 2688, 32, 2, 1856, 131072, model_type="nemotron_h", hybrid_override_pattern=_NANO_3,
    head_dim=128, n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=6,
    moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712, mamba_num_heads=64,
    mamba_head_dim=64, n_groups=8, ssm_state_size=128, conv_kernel=4, mlp_hidden_act="relu2",
    max_position_embeddings=262144, tie_word_embeddings=False,
)  # fmt: skip
GRANITE_4_H_SMALL = dense(
    40, 4096, 32, 8, 768, 100352, model_type="granitemoehybrid", shared_intermediate_size=1536,
    layer_types=["attention" if index % 10 == 5 else "mamba" for index in range(40)],
    num_local_experts=72, num_experts_per_tok=10, mamba_n_heads=128, mamba_d_head=64,
    mamba_d_state=128, mamba_n_groups=1, mamba_expand=2, mamba_d_conv=4,
    max_position_embeddings=131072, tie_word_embeddings=True,
)  # fmt: skip
LFM2_8B = dense(
    24, 2048, 32, 8, 7168, 65536, model_type="lfm2_moe", num_experts=32, num_experts_per_tok=4,
    layer_types=["full_attention" if index in (2, 6, 10, 14, 18, 21) else "conv" for index in range(24)],
    num_dense_layers=2, moe_intermediate_size=1792, conv_L_cache=3, max_position_embeddings=128000,
    tie_embedding=True,
)  # fmt: skip
STEP_35_FLASH: Config = {
    "model_type": "step3p5", "num_hidden_layers": 45, "hidden_size": 4096, "vocab_size": 128896,
    "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128,
    "intermediate_size": 11264, "moe_num_experts": 288, "moe_top_k": 8,
    "moe_intermediate_size": 1280, "share_expert_dim": 1280,
    "moe_layers_enum": ",".join(map(str, range(3, 45))), "sliding_window": 512,
    "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 12,
    "attention_other_setting": {
        "attention_type": "sliding_attention", "num_attention_heads": 96,
        "num_attention_groups": 8, "head_dim": 128,
    },
    "max_position_embeddings": 262144, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
PHI_4_MULTIMODAL = dense(
    32, 3072, 24, 8, 8192, 200064, model_type="phi4mm", max_position_embeddings=131072,
    tie_word_embeddings=True, embd_layer={"image_embd_layer": {}, "audio_embd_layer": {}},
    audio_processor={
        "name": "cascades",
        "config": {"attention_dim": 1024, "attention_heads": 16, "linear_units": 1536, "num_blocks": 24},
    },
)  # fmt: skip
NEW_MODELS: dict[str, Config] = {
    "Gemma-3n-E4B": GEMMA_3N_E4B, "Gemma-4-E4B": GEMMA_4_E4B, "Gemma-4-26B-A4B": GEMMA_4_26B,
    "Llama-4-Scout": LLAMA_4_SCOUT, "MiMo-V2-Flash": MIMO_V2_FLASH,
    "Nemotron-3-Nano": NEMOTRON_3_NANO, "Granite-4.0-H-Small": GRANITE_4_H_SMALL,
    "LFM2-8B-A1B": LFM2_8B, "Step-3.5-Flash": STEP_35_FLASH,
    "Phi-4-multimodal": PHI_4_MULTIMODAL,
}  # fmt: skip
