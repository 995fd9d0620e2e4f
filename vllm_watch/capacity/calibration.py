"""These figures were measured in public start-up logs, because no formula gives them.

Increase VERSION with every change of a figure.
"""

from dataclasses import dataclass

VERSION = "2026-11-27.2"


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, its observed range and its source."""

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
SAMPLER_COPIES_UNSORTED = Figure(
    3.5, 2.0, 5.0, "float32 copies of the logits",
    "0.26 on RTX 5090: 0.54 GiB between 8 and 256 sequences and a vocabulary of 248,320; of the code of 0.32: "
    "logits in two widths, probabilities and noise",
)  # fmt: skip
NON_TORCH_ONE_GPU_GIB = Figure(
    0.13, 0.04, 0.35, "GiB",
    "0.6 to 0.11 on T4, RTX 3090, L40S, A100, H100: the middle of eleven starts",
)  # fmt: skip
NON_TORCH_PER_RANK_GIB = Figure(
    0.27, 0.07, 0.5, "GiB",
    "0.7 to 0.13: 0.54 with 2 H100 and 2.10 with 8 A100 over NVLink; less over PCIe (0.25 with 2 RTX 4090), "
    "more with symmetric memory (B200)",
)  # fmt: skip
GRAPHS_GIB = Figure(
    0.25, 0.07, 0.5, "GiB", "0.18 to 0.22 with 2 to 18 graphs: 0.08 to 0.61, in the middle 0.30"
)
LAZY_CONTEXT_GIB = Figure(
    0.31,
    0.1,
    0.4,
    "GiB",
    "0.6.4 on RTX A6000 (issue 10360): 0.44 outside PyTorch, less the 0.13 above",
)
GRAPH_GIB = Figure(
    0.0058, 0.003, 0.015, "GiB",
    "the same with 86 to 102 graphs, from Qwen2.5-7B on RTX 4090 to B200: 0.53 to 1.58, in the middle 0.76",
)  # fmt: skip
