"""Every figure that no formula gives: measured in public start-up logs, with its spread.

Version of the calibration: raise it with every change of a figure.
"""

from dataclasses import dataclass

VERSION = "2026-11-21"


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, the range in which it was seen, and where."""

    value: float
    low: float
    high: float
    unit: str
    source: str


SAMPLER_COPIES = Figure(
    9.57, 8.4, 9.9, "float32 copies of the logits",
    "V1 0.11 on H100: 5.56 GiB for 1024 sequences and a vocabulary of 151,936; V0 0.8: 1.4 GiB for 256 and "
    "152,064; V1 0.10 on B200: 9.96 GiB for 1024 and 262,144",
)  # fmt: skip
NON_TORCH_ONE_GPU_GIB = Figure(
    0.14, 0.07, 0.35, "GiB", "0.6 to 0.11 on RTX 3090, A100, L40S, H100, B200"
)
NON_TORCH_PARALLEL_GIB = Figure(
    0.55, 0.14, 1.2, "GiB",
    "0.7 to 0.11 with 2 to 4 GPUs on RTX 4090, A100, H100: NCCL and custom all-reduce",
)  # fmt: skip
GRAPHS_GIB = Figure(
    0.36,
    0.17,
    0.65,
    "GiB",
    '"Estimated CUDA graph memory" of 0.21 to 0.27 on RTX 3090, and 0.10 on B200',
)
FIGURES = {
    "the sampler's copies of the logits": SAMPLER_COPIES,
    "CUDA context and libraries, one GPU": NON_TORCH_ONE_GPU_GIB,
    "CUDA context, libraries and NCCL, several GPUs": NON_TORCH_PARALLEL_GIB,
    "CUDA graphs": GRAPHS_GIB,
}
