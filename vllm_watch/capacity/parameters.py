"""Count a model's parameters from its shape, without a checkpoint."""

from collections import Counter
from dataclasses import dataclass

from vllm_watch.capacity.model import FeedForward, LatentAttention, LayerKind, Model


@dataclass(frozen=True, slots=True)
class Parameters:
    """Elements of the whole model."""

    matrices: int
    """Matrices of the layers. They are quantized, and split by tensor parallelism."""
    attention: int
    """Attention and recurrent layers, part of `matrices`."""
    experts: int
    """Routed experts, part of `matrices`."""
    embeddings: int
    """Input embeddings, and the output head if not tied."""
    small: int
    """Norms, biases and convolutions. They are neither split nor quantized."""
    encoder: int = 0
    """The encoders. They are split, but seldom quantized."""
    replicated: int = 0
    """Part of `matrices` that each rank keeps whole: MLA's down-projections and the routers."""

    @property
    def total(self) -> int:
        return self.matrices + self.embeddings + self.small + self.encoder


def count_parameters(model: Model) -> Parameters:
    """Count all parameters of the language model and its encoder."""
    attention = dense = experts = replicated = 0
    small = model.hidden_size
    for (kind, feed, width, owns), layers in _alike(model).items():
        fed, routed = _feed_forward(model, feed, width)
        attention += layers * (_mixer(model, kind) - (0 if owns else _key_value(model, kind)))
        dense += layers * fed
        experts += layers * routed
        small += layers * 2 * model.hidden_size
        replicated += layers * _replicated(model, kind, mixture=feed is FeedForward.MIXTURE)
    wide = model.num_layers * model.per_layer_size
    gates = 2 * model.hidden_size * wide
    dense += model.small_matrices + gates + model.hidden_size * wide
    tables = 1 if model.tied_embeddings else 2
    return Parameters(
        matrices=attention + dense + experts,
        attention=attention,
        experts=experts,
        embeddings=tables * model.vocab_size * model.hidden_size + model.per_layer_vocab * wide,
        small=small,
        encoder=model.tower_parameters + (model.encoder.parameters if model.encoder else 0),
        replicated=replicated + gates,
    )


def _alike(model: Model) -> Counter[tuple[LayerKind, FeedForward, int | None, bool]]:
    widths = model.mlp_widths or (model.intermediate_size,) * model.num_layers
    first_shared = model.num_layers
    if str(model.model_type).startswith("gemma4"):  # these have no key and value projections
        first_shared -= model.shared_layers
    owns = (index < first_shared for index in range(model.num_layers))
    return Counter(zip(model.layer_kinds, model.feeds, widths, owns, strict=True))


def _key_value(model: Model, kind: LayerKind) -> int:
    shape = model.attention(kind)
    return model.hidden_size * shape.key_value_heads * (shape.key_dim + shape.value_dim)


def _replicated(model: Model, kind: LayerKind, *, mixture: bool) -> int:
    """Count the ReplicatedLinear layers of vLLM's deepseek_v2.py."""
    columns = model.experts.count if model.experts and mixture else 0
    if model.latent is not None and kind is LayerKind.FULL:
        columns += model.latent.lora_rank + model.latent.rope_dim + (model.latent.query_rank or 0)
    return model.hidden_size * columns


def infer_intermediate(model: Model, parameters: int) -> int | None:
    """Return the MLP's width that fits this parameter count, or None if it is implausible."""
    matrices = 3 if model.gated_mlp else 2
    alike = Counter(model.layer_kinds)
    attention = sum(layers * _mixer(model, kind) for kind, layers in alike.items())
    tables = (1 if model.tied_embeddings else 2) * model.vocab_size * model.hidden_size
    width = (parameters - tables - attention) // (matrices * model.hidden_size * model.num_layers)
    return width if model.hidden_size * 1.5 <= width <= model.hidden_size * 8 else None


def _mixer(model: Model, kind: LayerKind) -> int:
    if kind is LayerKind.NONE:
        return 0
    if kind is LayerKind.STATE:
        return _state(model)
    if kind is LayerKind.STATE_AND_FULL:
        return _state(model) + _attention(model, kind)
    if model.latent is not None:
        return _latent(model, model.latent)
    return _attention(model, kind)


def _attention(model: Model, kind: LayerKind) -> int:
    shape = model.attention(kind)
    queries = (2 if model.attention_gate else 1) * shape.key_dim + shape.value_dim
    return model.hidden_size * shape.heads * queries + _key_value(model, kind)


def _latent(model: Model, latent: LatentAttention) -> int:
    hidden, heads = model.hidden_size, model.num_attention_heads
    query = heads * (latent.nope_dim + latent.rope_dim)
    down = (
        hidden * latent.query_rank + latent.query_rank * query
        if latent.query_rank
        else hidden * query
    )
    return (
        down
        + hidden * (latent.lora_rank + latent.rope_dim)
        + latent.lora_rank * heads * (latent.nope_dim + latent.value_dim)
        + heads * latent.value_dim * hidden
    )


def _state(model: Model) -> int:
    return model.hidden_size * model.state.projected_channels if model.state else 0


def _feed_forward(model: Model, feed: FeedForward, width: int | None) -> tuple[int, int]:
    hidden, experts = model.hidden_size, model.experts
    matrices = 3 if model.gated_mlp else 2
    if feed is FeedForward.NONE:
        return 0, 0
    if experts is not None and feed is FeedForward.MIXTURE:
        size, inner = experts.intermediate_size or width or 0, experts.latent_size or hidden
        beside = hidden * experts.count + 2 * hidden * (experts.latent_size or 0)
        shared = matrices * hidden * experts.shared_intermediate_size
        return shared + beside, matrices * inner * size * experts.count
    if width is None and experts is None:
        width = 4 * hidden if not model.gated_mlp else hidden * 8 // 3
    return matrices * hidden * (width or 0), 0
