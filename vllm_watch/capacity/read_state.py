"""Read the recurrent state of Mamba, GDN, KDA and convolution layers. Source: vLLM's
MambaStateShapeCalculator and each family's get_mamba_state_shape."""

from vllm_watch.capacity.bounds import is_size, shown
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.layer_pattern import Config
from vllm_watch.capacity.model import RecurrentState

_MAMBA2_HEADS = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
_MAMBA2_HEAD_DIMS = ("mamba_d_head", "mamba_head_dim", "mamba_headdim")
# Qwen3-Next and later. Values are as wide as the queries of attention.
_GDN_HEAD_DIM, _GDN_KEY_HEADS, _CONV_KERNEL = 128, 16, 4


def read_state(config: Config, hidden: int, heads: int, head_dim: int) -> RecurrentState:
    """Return the state of one recurrent layer per sequence. Raises ValueError if a size is invalid."""
    state = _of_family(config, hidden, heads, head_dim)
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
        width = _size(config, "conv_dim", default=hidden)
        return RecurrentState(width, _size(config, "conv_L_cache"), 0, 0, None, 4 * width)
    if family in ("jamba", "mamba", "falcon_mamba"):
        return _mamba1(config, hidden)
    if any(key in config for key in _MAMBA2_HEADS):
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


def _size(config: Config, *keys: str, default: int | None = None) -> int:
    found = next((config[key] for key in keys if config.get(key)), default)
    if not is_size(found):
        raise ValueError(f"{keys[0]}: {shown(found)}")
    return int(found or 0)


def _expanded(config: Config, hidden: int, *keys: str) -> int:
    found = next((config[key] for key in keys if key in config), 2)
    return int(float(found) * hidden)


def _gated_delta_net(config: Config) -> RecurrentState:
    value_heads = _size(config, "linear_num_value_heads")
    values = value_heads * _size(config, "linear_value_head_dim")
    key_dim = _size(config, "linear_key_head_dim")
    keys = _size(config, "linear_num_key_heads") * key_dim
    return RecurrentState(
        conv_channels=2 * keys + values,
        conv_kernel=_size(config, "linear_conv_kernel_dim", default=_CONV_KERNEL),
        state_heads=value_heads,
        state_elements_per_head=values // value_heads * key_dim,
        state_dtype=config.get("mamba_ssm_dtype"),
        projected_channels=2 * keys + 3 * values,
    )


def _kimi(config: Config) -> RecurrentState:
    linear = config["linear_attn_config"]
    heads, head_dim = _size(linear, "num_heads"), _size(linear, "head_dim")
    return RecurrentState(
        conv_channels=3 * heads * head_dim,
        conv_kernel=_size(linear, "short_conv_kernel_size", default=_CONV_KERNEL),
        state_heads=heads,
        state_elements_per_head=head_dim**2,
        state_dtype="float32",
        projected_channels=4 * heads * head_dim,
        checkpoints=1,
    )


def _mamba1(config: Config, hidden: int) -> RecurrentState:
    inner = config.get("intermediate_size")
    if config.get("model_type") == "jamba" or not inner:
        inner = _expanded(config, hidden, "mamba_expand", "expand")
    else:
        inner = _size(config, "intermediate_size")
    size = _size(config, "mamba_d_state", "state_size", default=16)
    kernel = _size(config, "mamba_d_conv", "conv_kernel", default=_CONV_KERNEL)
    return RecurrentState(inner, kernel, inner, size, None, 3 * inner)


def _mamba2(config: Config, hidden: int) -> RecurrentState:
    heads = _size(config, *_MAMBA2_HEADS)
    said = next((config[key] for key in _MAMBA2_HEAD_DIMS if config.get(key)), None)
    expanded = _expanded(config, hidden, "mamba_expand") // heads
    head_dim = int(said) if said is not None and is_size(said) else expanded  # "auto"
    size = _size(config, "mamba_d_state", "ssm_state_size", "state_size", default=128)
    groups = _size(config, "mamba_n_groups", "n_groups", "mamba_ngroups", default=1)
    return RecurrentState(
        conv_channels=heads * head_dim + 2 * groups * size,
        conv_kernel=_size(config, "mamba_d_conv", "conv_kernel", default=_CONV_KERNEL),
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
