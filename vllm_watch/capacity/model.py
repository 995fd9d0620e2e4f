"""The properties of a model that determine how much memory it needs."""

from dataclasses import dataclass
from enum import Enum

from vllm_watch.capacity.quantization import Quantization


class LayerKind(Enum):
    """How a layer caches context."""

    FULL = "full attention"
    SLIDING = "sliding window"
    CHUNKED = "chunked attention"
    STATE = "recurrent state"
    STATE_AND_FULL = "recurrent state beside full attention"
    NONE = "nothing"


class FeedForward(Enum):
    """A layer's MLP."""

    NONE = "none"
    DENSE = "dense"
    MIXTURE = "experts"


@dataclass(frozen=True, slots=True)
class Attention:
    """Heads of one kind of layer."""

    heads: int
    key_value_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """DeepSeek's MLA: one vector per token for all heads."""

    lora_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_rank: int | None = None
    indexer_dim: int | None = None
    """Elements per token of the sparse-attention indexer's key, as in DeepSeek V3.2."""


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """The state that a recurrent or convolution layer keeps per sequence, before tensor parallelism."""

    conv_channels: int
    conv_kernel: int
    state_heads: int
    state_elements_per_head: int
    state_dtype: str | None
    """None if it is the model's dtype."""
    projected_channels: int
    checkpoints: int = 0
    """Additional states that prefix caching keeps in some releases."""
    grouped_channels: int = 0
    """The part of `conv_channels` for Mamba's B and C. Their groups are not split."""
    groups: int = 0
    assumed: bool = False
    """True if sizes were derived from the attention layers."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts."""

    count: int
    active: int
    intermediate_size: int
    shared_intermediate_size: int
    latent_size: int | None = None  # the experts' input, as in Nemotron 3 Super


@dataclass(frozen=True, slots=True)
class Encoder:
    """A vision tower, with sizes in elements."""

    parameters: int
    hidden_size: int
    intermediate_size: int
    patches_per_token: int
    item_tokens: int
    """Tokens of the largest image."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model's shape. Sizes are in elements, before the model is split over GPUs."""

    model_type: str | None
    layer_kinds: tuple[LayerKind, ...]
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    intermediate_size: int | None
    max_position_embeddings: int | None
    dtype: str
    tied_embeddings: bool
    gated_mlp: bool
    length_limit: int | None = None  # tokens that vLLM accepts
    sliding_window: int | None = None
    chunk_size: int | None = None
    full_head_dim: int | None = None
    """Head size of the full-attention layers, if it differs from that of sliding layers (Gemma 4)."""
    full_key_value_heads: int | None = None
    value_dim: int | None = None  # if it differs from that of keys
    window_attention: Attention | None = None  # of sliding layers, if given separately
    feeds: tuple[FeedForward, ...] = ()
    mlp_widths: tuple[int, ...] | None = None  # if they differ
    per_layer_vocab: int = 0
    per_layer_size: int = 0  # Gemma 3n and 4: another embedding for each layer
    small_matrices: int = 0
    shared_layers: int = 0
    """This many layers at the end have no cache of their own. They read an earlier layer's cache."""
    latent: LatentAttention | None = None
    state: RecurrentState | None = None
    experts: Experts | None = None
    attention_gate: bool = False
    """Full attention has a gate as wide as its queries (Qwen3-Next and after)."""
    draft_layers: int = 0
    multimodal: bool = False
    encoder: Encoder | None = None
    tower_parameters: int = 0  # of other encoders, such as that of audio
    quantization: Quantization | None = None
    weight_block: int | None = None  # side of the checkpoint's fp8 blocks
    kv_cache_dtype: str | None = None  # that the checkpoint names
    unread_cache: str | None = None
    """The config key that shows a KV cache of unknown size."""
    notes: tuple[str, ...] = ()

    @property
    def num_layers(self) -> int:
        return len(self.layer_kinds)

    @property
    def sized(self) -> bool:
        """Return True if the config suffices to count the parameters."""
        if self.state is not None and self.state.assumed:
            return False
        if self.experts is not None:
            return self.experts.intermediate_size > 0
        return self.intermediate_size is not None

    def attention(self, kind: LayerKind) -> Attention:
        heads, shared, dim = self.num_attention_heads, self.num_key_value_heads, self.head_dim
        if kind is LayerKind.FULL:
            shared, dim = self.full_key_value_heads or shared, self.full_head_dim or dim
        elif kind is LayerKind.SLIDING and self.window_attention is not None:
            return self.window_attention
        return Attention(heads, shared, dim, self.value_dim or dim)
