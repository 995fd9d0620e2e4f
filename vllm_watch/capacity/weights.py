"""Find the size of the weights per GPU, from the checkpoint or the parameters that the config implies."""

from collections import Counter
from dataclasses import dataclass

from vllm_watch.capacity.flags import Settings
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.model import FeedForward, LatentAttention, LayerKind, Model
from vllm_watch.capacity.quantization import NONE, ONLINE, Quantization, find_quantization
from vllm_watch.capacity.units import GIB, ceil_div


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


def infer_intermediate(model: Model, settings: Settings, bytes_per_gpu: int) -> int | None:
    """Return the MLP's width, which may follow from the weights, or None if that is implausible."""
    if model.intermediate_size is not None or model.experts is not None:
        return model.intermediate_size
    size = find_quantization(settings.flags.quantization, model.quantization).smallest
    element = size or dtype_bytes(settings.dtype)
    parameters = int(bytes_per_gpu * settings.flags.ranks / element)
    matrices = 3 if model.gated_mlp else 2
    alike = Counter(model.layer_kinds)
    attention = sum(layers * _mixer(model, kind) for kind, layers in alike.items())
    tables = (1 if model.tied_embeddings else 2) * model.vocab_size * model.hidden_size
    width = (parameters - tables - attention) // (matrices * model.hidden_size * model.num_layers)
    return width if model.hidden_size * 1.5 <= width <= model.hidden_size * 8 else None


def _mixer(model: Model, kind: LayerKind) -> int:
    if kind is LayerKind.NONE:
        return 0
    if kind in (LayerKind.STATE, LayerKind.STATE_AND_FULL):
        state = model.hidden_size * model.state.projected_channels if model.state else 0
        return state + (0 if kind is LayerKind.STATE else _attention(model, kind))
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


_SAME = 0.03  # relative error of rounded sizes on model cards
_LEAST_BYTES = 0.2  # per parameter; vLLM serves no format below 2 bits
_FEWEST_OF_ALL = 0.45  # bytes per parameter; with less, some weights are elsewhere
_LEAST = Quantization("4 bits", 0.5, 0.5, 0.5)  # without any scales
FOUR_BITS = Quantization("4 bits", 0.53125, 0.53125, 0.53125)
_BELOW_FOUR_BITS = ("gguf", "aqlm", "hqq")  # formats with two or three bits, too


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of the weights on the fullest GPU, after offloading, and the source of this number."""

    bytes_per_gpu: int
    source: str
    offloaded: bool = False


def weights_on_gpu(
    model: Model, settings: Settings, *, given_gib: float | None, checkpoint_bytes: int | None
) -> Weights:
    """Return the weights of one GPU."""
    flags = settings.flags
    if given_gib is not None:
        said = f"{given_gib:g} GiB per GPU as given"
        given = int(given_gib * GIB)
        least = count_parameters(model).total * _LEAST_BYTES if model.sized else 0.0
        rest = flags.cpu_offload_bytes > 0 or given * flags.ranks < least
        better = None if rest else impossible(model, settings, given)
        if better is None:
            return Weights(given, said, offloaded=rest)
        return Weights(
            better[0], f"{better[0] / GIB:.2f} GiB per GPU instead of {said}: {better[1]}"
        )
    ranks = flags.ranks
    if checkpoint_bytes is not None:
        what = f"{checkpoint_bytes / GIB:.2f} GiB in the checkpoint"
        checkpoint_bytes, how = _loaded(model, settings, checkpoint_bytes)
        share, what = ceil_div(checkpoint_bytes, ranks) + _copies(model, settings), what + how
    else:
        quantization = find_quantization(flags.quantization, model.quantization)
        share, what = counted_bytes(model, settings, quantization)
    share += _lora_bytes(model, settings)
    drafted = flags.drafter.model if flags.drafter else None
    if drafted is not None:
        share += ceil_div(count_parameters(drafted).total * dtype_bytes(drafted.dtype), ranks)
    offloaded = min(share, flags.cpu_offload_bytes)
    told = f"{what}, over {ranks} GPUs" if ranks > 1 else what
    return Weights(share - offloaded, told, offloaded=offloaded > 0)


def _loaded(model: Model, settings: Settings, checkpoint_bytes: int) -> tuple[int, str]:
    flag = settings.flags.quantization
    if model.quantization is not None or flag not in ONLINE or not model.sized:
        return checkpoint_bytes, ""
    small, large = (
        counted_bytes(model, settings, each)[0] for each in (find_quantization(flag, None), NONE)
    )
    return int(checkpoint_bytes * small / large), f", made {flag} while it is loaded"


def impossible(model: Model, settings: Settings, given: int) -> tuple[int, str] | None:
    """If vLLM cannot have printed the given size, return the counted size and a reason.

    A quantized checkpoint has more than four bits per parameter, because embeddings, output head
    and encoder keep 16 bits.
    """
    flags = settings.flags
    if flags.drafter or flags.enable_lora or not model.sized:
        return None
    ranks = flags.ranks
    quantization = find_quantization(flags.quantization, model.quantization)
    quantized = quantization.smallest is not None
    whole, _ = counted_bytes(model, settings, NONE)
    if quantized and abs(given / whole - 1) <= _SAME:
        counted, _ = counted_bytes(model, settings, quantization)
        return counted, f"that is the model in {settings.dtype}, and it is loaded as {quantization.name}"  # fmt: skip
    least, _ = counted_bytes(model, settings, _LEAST)
    if not _FEWEST_OF_ALL * count_parameters(model).total <= given * ranks < least * ranks:
        return None
    if quantization.name.startswith(_BELOW_FOUR_BITS):
        return None
    counted, _ = counted_bytes(model, settings, quantization if quantized else FOUR_BITS)
    return counted, f"four bits of each matrix, and embeddings, head and encoder in {settings.dtype}, take {least / GIB:.2f}"  # fmt: skip


def _copies(model: Model, settings: Settings, quantization: Quantization | None = None) -> int:
    ranks, stages = settings.tensor_parallel_size, settings.flags.pipeline_parallel_size
    how = quantization or find_quantization(settings.flags.quantization, model.quantization)
    size = how.attention or dtype_bytes(settings.dtype)
    whole = count_parameters(model).replicated * size if model.sized else 0
    return int(whole * (ranks - 1) / (ranks * stages))


def counted_bytes(model: Model, settings: Settings, quantization: Quantization) -> tuple[int, str]:
    """Return the parameters' bytes on one GPU, and how they were counted."""
    parameters = count_parameters(model)
    element = dtype_bytes(settings.dtype)
    ranks, stages = settings.tensor_parallel_size, settings.flags.pipeline_parallel_size
    sizes = (quantization.attention, quantization.dense, quantization.experts)
    dense = parameters.matrices - parameters.attention - parameters.experts
    counts = (parameters.attention, dense, parameters.experts)
    matrices = sum(
        int(count * (size or element)) for count, size in zip(counts, sizes, strict=True)
    )
    tables = int(parameters.embeddings * (quantization.tables or element))
    # Embeddings and encoder are on the first stage, the output head is on the last.
    apart = 2 if stages > 1 and not model.tied_embeddings else 1
    split = ceil_div(matrices, ranks * stages)
    split += ceil_div(tables // apart + parameters.encoder * element, ranks)
    split += _copies(model, settings, quantization)
    whole = parameters.small * element // stages
    shrinks = quantization.smallest is not None
    how = f" as {quantization.name if shrinks else settings.dtype}"
    if not shrinks and quantization.name != "none":
        how += f", since {quantization.name} does not state how small it makes them"
    return (
        split + whole,
        f"{parameters.total / 1e9:.2f} billion parameters counted from the config{how}",
    )


def _lora_bytes(model: Model, settings: Settings) -> int:
    """For each matrix of attention and MLP, an adapter has two thin matrices."""
    flags = settings.flags
    if not flags.enable_lora:
        return 0
    hidden, width = model.hidden_size, model.intermediate_size or 0
    queries = model.num_attention_heads * model.head_dim
    keys = model.num_key_value_heads * model.head_dim
    per_rank = 2 * (hidden + queries) + 2 * (hidden + keys) + 3 * (hidden + width)
    elements = model.num_layers * flags.max_lora_rank * per_rank * flags.max_loras
    return elements * dtype_bytes(settings.dtype) // flags.tensor_parallel_size
