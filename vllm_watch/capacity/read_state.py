"""The recurrent state of Mamba, GDN, KDA and convolution layers, from a config.

Source: vLLM's MambaStateShapeCalculator and the get_mamba_state_shape of each family.
"""

from dataclasses import fields

from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.layer_pattern import Config
from vllm_watch.capacity.model import RecurrentState

# Qwen3-Next's, which Qwen3.5 and later kept; the width of the values is that of the attention's queries.
_GDN_HEAD_DIM, _GDN_KEY_HEADS, _CONV_KERNEL = 128, 16, 4


def read_state(config: Config, hidden: int, heads: int, head_dim: int) -> RecurrentState:
    """What one such layer keeps per sequence.

    Raises: ValueError, where a size is none.
    """
    state = _of_family(config, hidden, heads, head_dim)
    for field in fields(RecurrentState):
        value = getattr(state, field.name)
        if field.name != "state_dtype" and (not isinstance(value, int) or value < 0):
            raise ValueError(f"{value!r} as {field.name} of the recurrent state")
    if state.state_dtype is not None:
        dtype_bytes(state.state_dtype)
    return state


def _of_family(config: Config, hidden: int, heads: int, head_dim: int) -> RecurrentState:
    family = str(config.get("model_type") or "")
    if "linear_num_value_heads" in config:
        return _gated_delta_net(config)
    if isinstance(config.get("linear_attn_config"), dict):
        return _kimi(config)
    if "conv_L_cache" in config:  # LFM2
        width = int(config.get("conv_dim") or hidden)
        return RecurrentState(width, int(config["conv_L_cache"]), 0, 0, None, 4 * width)
    if family in ("jamba", "mamba", "falcon_mamba"):
        return _mamba1(config, hidden)
    if any(
        key in config for key in ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    ):
        return _mamba2(config, hidden)
    if "attn_type_list" in config:  # MiniMax's lightning attention
        return RecurrentState(0, 1, heads, head_dim * head_dim, "float32", 5 * heads * head_dim)
    width = heads * head_dim
    value_heads = max(1, width // _GDN_HEAD_DIM)
    key_width = min(_GDN_KEY_HEADS, value_heads) * _GDN_HEAD_DIM
    return RecurrentState(
        conv_channels=2 * key_width + value_heads * _GDN_HEAD_DIM,
        conv_kernel=_CONV_KERNEL,
        state_heads=value_heads,
        state_elements_per_head=_GDN_HEAD_DIM * _GDN_HEAD_DIM,
        state_dtype="float32",
        projected_channels=2 * key_width + 3 * value_heads * _GDN_HEAD_DIM,
        assumed=True,
    )


def _gated_delta_net(config: Config) -> RecurrentState:
    value_heads, key_heads = config["linear_num_value_heads"], config["linear_num_key_heads"]
    value_dim, key_dim = config["linear_value_head_dim"], config["linear_key_head_dim"]
    return RecurrentState(
        conv_channels=2 * key_heads * key_dim + value_heads * value_dim,
        conv_kernel=config.get("linear_conv_kernel_dim", _CONV_KERNEL),
        state_heads=value_heads,
        state_elements_per_head=value_dim * key_dim,
        state_dtype=config.get("mamba_ssm_dtype"),
        projected_channels=2 * key_heads * key_dim + 3 * value_heads * value_dim,
    )


def _kimi(config: Config) -> RecurrentState:
    linear = config["linear_attn_config"]
    width = linear["num_heads"] * linear["head_dim"]
    return RecurrentState(
        conv_channels=3 * width,
        conv_kernel=linear.get("short_conv_kernel_size", _CONV_KERNEL),
        state_heads=linear["num_heads"],
        state_elements_per_head=linear["head_dim"] ** 2,
        state_dtype="float32",
        projected_channels=4 * width,
        checkpoints=1,
    )


def _mamba1(config: Config, hidden: int) -> RecurrentState:
    inner = int(config.get("intermediate_size") or 0)
    if config.get("model_type") == "jamba" or not inner:
        inner = int(config.get("mamba_expand", config.get("expand", 2)) * hidden)
    size = config.get("mamba_d_state") or config.get("state_size") or 16
    kernel = config.get("mamba_d_conv") or config.get("conv_kernel") or _CONV_KERNEL
    return RecurrentState(inner, kernel, inner, size, None, 3 * inner)


def _mamba2(config: Config, hidden: int) -> RecurrentState:
    heads = next(
        int(config[key])
        for key in ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
        if key in config
    )
    head_dim = (
        config.get("mamba_d_head") or config.get("mamba_head_dim") or config.get("mamba_headdim")
    )
    if not isinstance(head_dim, int):  # "auto"
        head_dim = int(config.get("mamba_expand", 2) * hidden) // heads
    size = (
        config.get("mamba_d_state")
        or config.get("ssm_state_size")
        or config.get("state_size")
        or 128
    )
    groups = (
        config.get("mamba_n_groups") or config.get("n_groups") or config.get("mamba_ngroups") or 1
    )
    kernel = config.get("mamba_d_conv") or config.get("conv_kernel") or _CONV_KERNEL
    return RecurrentState(
        conv_channels=heads * head_dim + 2 * groups * size,
        conv_kernel=kernel,
        state_heads=heads,
        state_elements_per_head=head_dim * size,
        state_dtype=config.get("mamba_ssm_cache_dtype")
        or config.get("mamba_ssm_dtype")
        or ("float32" if config.get("model_type") == "nemotron_h" else None),
        projected_channels=3 * heads * head_dim + 2 * groups * size,
        checkpoints=1,
        grouped_channels=2 * groups * size,
        groups=groups,
    )
