"""Estimate the memory of CUDA context, NCCL and CUDA graphs."""

from vllm_watch.capacity import calibration
from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import Settings
from vllm_watch.capacity.units import GIB

_LARGEST_GRAPH, _COARSE_FROM, _FINE_STEP = 512, 256, 8  # sequences


def non_torch_bytes(settings: Settings) -> int:
    """Return the memory outside PyTorch that vLLM's profiling measures."""
    ranks = settings.flags.tensor_parallel_size * settings.flags.pipeline_parallel_size
    size = calibration.NON_TORCH_ONE_GPU_GIB.value
    if ranks > 1:  # NCCL keeps buffers for every peer
        size = calibration.NON_TORCH_PER_RANK_GIB.value * ranks
    if releases.PROFILES_CLEAN_DEVICE <= settings.release < releases.LEAVES_OUT_CONTEXT:
        size += calibration.LAZY_CONTEXT_GIB.value
    return int(size * GIB)


def graph_bytes(settings: Settings) -> int:
    """Return the memory of CUDA graphs. 0 if the budget does not include it."""
    if settings.flags.enforce_eager or settings.release < releases.GRAPHS_IN_BUDGET or settings.cpu:
        return 0
    size = calibration.GRAPHS_GIB.value + calibration.GRAPH_GIB.value * graph_count(
        settings.max_num_seqs
    )
    return int(size * GIB)


def graph_count(sequences: int) -> int:
    """Return the number of CUDA graphs for mixed batches and for decoding."""
    mixed = min(2 * sequences, _LARGEST_GRAPH)
    return _sizes(mixed) + _sizes(min(sequences, mixed))


def _sizes(most: int) -> int:
    """Count vLLM's default sizes: 1, 2, 4, multiples of 8 up to 256, and multiples of 16 above."""
    wide = range(_COARSE_FROM, most + 1, 2 * _FINE_STEP)
    return sum(
        size <= most for size in (1, 2, 4, *range(_FINE_STEP, _COARSE_FROM, _FINE_STEP), *wide)
    )
