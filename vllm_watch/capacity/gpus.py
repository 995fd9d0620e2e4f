"""Known GPUs, and the memory that CUDA reports for them. Source: `total_memory` in public start-up
logs."""

import re
from dataclasses import dataclass
from difflib import get_close_matches

from vllm_watch.capacity.units import GIB


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of card."""

    name: str
    catalogue_gib: float
    cuda_gib: float


# The first pattern that a name contains wins.
_GPUS = (
    (r"gb300|b300", Gpu("B300", 288, 268.6)),
    (r"gb200|b200", Gpu("B200", 180, 178.35)),
    (r"gh200", Gpu("GH200", 96, 94.5)),
    (r"h200", Gpu("H200", 141, 139.8)),
    (r"h100.*nvl|h100.*94", Gpu("H100 NVL", 94, 93.1)),
    (r"h100|h800", Gpu("H100", 80, 79.18)),
    (r"h20\b", Gpu("H20", 96, 95.08)),
    (r"a100|a800", Gpu("A100", 80, 79.15)),
    (r"a100|a800", Gpu("A100 40GB", 40, 39.39)),
    (r"l40s", Gpu("L40S", 48, 44.4)),
    (r"l40", Gpu("L40", 48, 44.4)),
    (r"\bl20\b", Gpu("L20", 48, 44.4)),
    (r"\bl4\b", Gpu("L4", 24, 22.03)),
    (r"\ba10g\b", Gpu("A10G", 24, 22.04)),
    (r"\ba10\b", Gpu("A10", 24, 22.04)),
    (r"\ba30\b", Gpu("A30", 24, 23.6)),
    (r"\ba40\b", Gpu("A40", 48, 44.4)),
    (r"pro 6000", Gpu("RTX PRO 6000", 96, 94.97)),
    (r"6000 ada", Gpu("RTX 6000 Ada", 48, 47.4)),
    (r"a6000", Gpu("RTX A6000", 48, 47.4)),
    (r"a5000", Gpu("RTX A5000", 24, 23.6)),
    (r"5090", Gpu("RTX 5090", 32, 31.36)),
    (r"5080", Gpu("RTX 5080", 16, 15.47)),
    (r"5070 ti", Gpu("RTX 5070 Ti", 16, 15.47)),
    (r"5060 ti", Gpu("RTX 5060 Ti", 16, 15.48)),
    (r"4090", Gpu("RTX 4090", 24, 23.6)),
    (r"4080", Gpu("RTX 4080", 16, 15.6)),
    (r"4060 ti", Gpu("RTX 4060 Ti", 16, 15.6)),
    (r"3090", Gpu("RTX 3090", 24, 23.64)),
    (r"3060", Gpu("RTX 3060", 12, 11.76)),
    (r"\bt4\b", Gpu("T4", 16, 14.6)),
    (r"v100", Gpu("V100 32GB", 32, 31.73)),
    (r"v100", Gpu("V100", 16, 15.77)),
    (r"p100", Gpu("P100", 16, 15.9)),
    (r"mi300x", Gpu("MI300X", 192, 191.98)),
    (r"mi325x", Gpu("MI325X", 256, 255.98)),
    (r"910b", Gpu("Ascend 910B", 64, 61.0)),
    (r"gb10|spark", Gpu("GB10", 128, 119.7)),
)
# Share of the nominal memory that CUDA reports for other cards. Most cards above lose 1 to 3 %.
_UNKNOWN_SHARE = 0.985
_CATALOGUE_SPREAD = 1.08  # people write 98 for 96, and GB for GiB
CATALOGUE_SIZES = frozenset((8, 10, 11, 20, *(gpu.catalogue_gib for _, gpu in _GPUS)))


_SIZE = re.compile(r"(\d{2,3}) ?gi?b?\b")  # as in "A100-SXM4-80GB"


def sizes_of(name: str) -> tuple[float, ...]:
    """Return the nominal sizes (GiB) of cards of this name. Empty if the name contains a size."""
    text = name.lower()
    first = next((pattern for pattern, _ in _GPUS if re.search(pattern, text)), None)
    if _SIZE.search(text):
        return ()
    return tuple(sorted(gpu.catalogue_gib for pattern, gpu in _GPUS if pattern == first))


def find_gpu(name: str | None, memory_gib: float | None = None) -> Gpu | None:
    """Return the card of this name with the nearest size, or None."""
    if not name:
        return None
    named = [gpu for pattern, gpu in _GPUS if re.search(pattern, name.lower())]
    if memory_gib is None and (said := _SIZE.search(name.lower())):
        memory_gib = float(said[1])
    if memory_gib is not None:
        named.sort(key=lambda gpu: abs(gpu.catalogue_gib - memory_gib))
    return named[0] if named else None


def nearest(name: str) -> str | None:
    """Return the known card with the most similar name, or None."""
    names = {gpu.name.lower().removeprefix("rtx "): gpu.name for _, gpu in _GPUS}
    words = re.sub(r"nvidia|geforce|rtx|tesla|\d+ ?gi?b|[-_]", " ", name.lower()).split()
    alike = get_close_matches(" ".join(words), names, 1) or get_close_matches(
        "".join(words), names, 1
    )
    return names[alike[0]] if alike else None


def cuda_memory_bytes(memory_gib: float, gpu: Gpu | None) -> tuple[int, str]:
    """Return the memory that CUDA reports, and its source. A nominal size (24, 80) stands for the
    memory of such a card. Other sizes are used unchanged."""
    if gpu is not None and gpu.cuda_gib < memory_gib < gpu.catalogue_gib * _CATALOGUE_SPREAD:
        what = "" if memory_gib == gpu.catalogue_gib else f" ({memory_gib:g} given)"
        return int(gpu.cuda_gib * GIB), f"{gpu.name}: {gpu.cuda_gib:g} GiB as CUDA reports it{what}"
    if gpu is None and memory_gib in CATALOGUE_SIZES:
        taken = memory_gib * _UNKNOWN_SHARE
        return int(taken * GIB), f"{taken:.2f} of {memory_gib:g} GiB: no card of that size is named"
    return int(memory_gib * GIB), f"{memory_gib:g} GiB as given"
