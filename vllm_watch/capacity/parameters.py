"""Count a model's parameters from its shape, without a checkpoint."""

from collections import Counter
from dataclasses import dataclass

from vllm_watch.capacity.model import LatentAttention, LayerKind, Model


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
    """The vision tower. It is split, but seldom quantized."""
    replicated: int = 0
    """Part of `matrices` that each rank keeps whole: MLA's down-projections and the routers."""

    @property
    def total(self) -> int:
        return self.matrices + self.embeddings + self.small + self.encoder


def count_parameters(model: Model) -> Parameters:
    """Count all parameters of the language model and its encoder."""
    attention = dense = experts = replicated = 0
    small = model.hidden_size
    alike = Counter((kind, _is_mixture(model, n)) for n, kind in enumerate(model.layer_kinds))
    for (kind, mixture), layers in alike.items():
        fed, routed = _feed_forward(model, kind, mixture=mixture)
        attention += layers * _mixer(model, kind)
        dense += layers * fed
        experts += layers * routed
        small += layers * 2 * model.hidden_size
        replicated += layers * _replicated(model, kind, mixture=mixture)
    tables = 1 if model.tied_embeddings else 2
    return Parameters(
        matrices=attention + dense + experts,
        attention=attention,
        experts=experts,
        embeddings=tables * model.vocab_size * model.hidden_size,
        small=small,
        encoder=model.encoder.parameters if model.encoder else 0,
        replicated=replicated,
    )


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
        return _state(model) + _attention(model, model.num_key_value_heads, model.head_dim)
    if model.latent is not None:
        return _latent(model, model.latent)
    if kind is LayerKind.FULL:
        return _attention(model, model.kv_heads_of_full, model.kv_head_dim_of_full)
    return _attention(model, model.num_key_value_heads, model.head_dim)


def _attention(model: Model, kv_heads: int, head_dim: int) -> int:
    queries = model.num_attention_heads * head_dim
    wide = 3 if model.attention_gate else 2
    return model.hidden_size * (wide * queries + 2 * kv_heads * head_dim)


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


def _is_mixture(model: Model, index: int) -> bool:
    experts = model.experts
    if experts is None or index < experts.first_dense_layers:
        return False
    return (index + 1) % experts.layer_step == 0


def _feed_forward(model: Model, kind: LayerKind, *, mixture: bool) -> tuple[int, int]:
    if model.intermediate_size is None and model.experts is None:
        width = 4 * model.hidden_size if not model.gated_mlp else model.hidden_size * 8 // 3
    else:
        width = model.intermediate_size or 0
    hidden, experts = model.hidden_size, model.experts
    per_expert = 3 if model.gated_mlp else 2
    if experts is not None and mixture:
        size = experts.intermediate_size or width
        router = hidden * experts.count
        shared = per_expert * hidden * experts.shared_intermediate_size
        return shared + router, per_expert * hidden * size * experts.count
    if kind is LayerKind.STATE and model.model_type in (
        "mamba",
        "mamba2",
        "falcon_mamba",
        "nemotron_h",
    ):
        return 0, 0  # the mixer is the whole layer
    return per_expert * hidden * width, 0
