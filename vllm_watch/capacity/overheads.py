"""What else is taken from the budget: CUDA context and NCCL as far as vLLM sees them, and CUDA graphs."""

from vllm_watch.capacity import calibration
from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import Settings
from vllm_watch.capacity.units import GIB


def non_torch_bytes(settings: Settings) -> int:
    """Memory that vLLM's profiling sees and PyTorch did not allocate."""
    ranks = settings.flags.tensor_parallel_size * settings.flags.pipeline_parallel_size
    if settings.release < releases.PROFILES_DEVICE:
        return 0  # these releases look at PyTorch's peak alone
    figure = calibration.NON_TORCH_PARALLEL_GIB if ranks > 1 else calibration.NON_TORCH_ONE_GPU_GIB
    return int(figure.value * GIB)


def graph_bytes(settings: Settings) -> int:
    """CUDA graphs, as far as they are taken from the KV cache's budget."""
    if settings.flags.enforce_eager or settings.release < releases.GRAPHS_IN_BUDGET or settings.cpu:
        return 0
    return int(calibration.GRAPHS_GIB.value * GIB)
