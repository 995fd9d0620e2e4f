"""How much of each GPU the weights take: from the checkpoint's own sizes, or counted from the config."""

from dataclasses import dataclass

from vllm_watch.capacity.flags import Settings
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.model import Model
from vllm_watch.capacity.parameters import count_parameters
from vllm_watch.capacity.quantization import find_quantization
from vllm_watch.capacity.units import GIB, ceil_div


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes on the GPU that holds most, after offloading, and how that is known."""

    bytes_per_gpu: int
    source: str


def weights_on_gpu(
    model: Model, settings: Settings, *, given_gib: float | None, checkpoint_bytes: int | None
) -> Weights:
    """Weights of one GPU: as given, else of the checkpoint, else counted."""
    if given_gib is not None:
        return Weights(int(given_gib * GIB), f"{given_gib:g} GiB per GPU as given")
    flags = settings.flags
    ranks = flags.tensor_parallel_size * flags.pipeline_parallel_size
    if checkpoint_bytes is not None:
        share = ceil_div(checkpoint_bytes, ranks)
        what = f"{checkpoint_bytes / GIB:.2f} GiB in the checkpoint"
    else:
        share, what = _counted(model, settings, ranks)
    share += _lora_bytes(model, settings)
    drafted = flags.drafter.model if flags.drafter else None
    if drafted is not None:
        share += ceil_div(count_parameters(drafted).total * dtype_bytes(drafted.dtype), ranks)
    offloaded = min(share, flags.cpu_offload_bytes)
    return Weights(share - offloaded, f"{what}, over {ranks} GPUs" if ranks > 1 else what)


def _counted(model: Model, settings: Settings, ranks: int) -> tuple[int, str]:
    parameters = count_parameters(model)
    quantization = find_quantization(settings.flags.quantization, model.quantization)
    element = dtype_bytes(settings.dtype)
    size = quantization.bytes_per_weight
    quantized = parameters.experts if quantization.only_experts else parameters.matrices
    matrices = (parameters.matrices - quantized) * element + int(quantized * (size or element))
    stages = settings.flags.pipeline_parallel_size
    split = ceil_div(matrices, ranks) + ceil_div(
        parameters.embeddings * element * stages, ranks * stages
    )
    whole = parameters.small * element // stages
    how = f" as {quantization.name if size else settings.dtype}"
    if size is None and quantization.name != "none":
        how += f", since {quantization.name} does not say how small it makes them"
    return (
        split + whole,
        f"{parameters.total / 1e9:.2f} billion parameters counted from the config{how}",
    )


def _lora_bytes(model: Model, settings: Settings) -> int:
    """Room for adapters: two thin matrices beside each of attention's four and the MLP's three."""
    flags = settings.flags
    if not flags.enable_lora:
        return 0
    hidden, width = model.hidden_size, model.intermediate_size or 0
    queries = model.num_attention_heads * model.head_dim
    keys = model.num_key_value_heads * model.head_dim
    per_rank = 2 * (hidden + queries) + 2 * (hidden + keys) + 3 * (hidden + width)
    elements = model.num_layers * flags.max_lora_rank * per_rank * flags.max_loras
    return elements * dtype_bytes(settings.dtype) // flags.tensor_parallel_size
