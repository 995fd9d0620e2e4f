"""Check /dev/shm and the NVIDIA driver."""

from collections.abc import Iterator

from vllm_watch.capacity.units import MIB
from vllm_watch.preflight.command import is_whole
from vllm_watch.preflight.facts import Facts
from vllm_watch.preflight.findings import OK, PROBLEM, UNKNOWN, WARNING, Finding, Fix
from vllm_watch.preflight.visible_gpus import ranks_here

CHUNKS = 10  # in the ring of vLLM's MessageQueue
CHUNK_MIB = 16  # default of VLLM_MQ_MAX_CHUNK_BYTES_MB; 24 in releases without this variable
NCCL_BYTES_PER_RANK = 10 * MIB
"""Bytes of /dev/shm for one NCCL channel per rank. Without peer access, a channel takes 4 to 10 MiB."""

# CUDA major release → oldest driver that runs it. Source: NVIDIA's CUDA compatibility guide.
_DRIVERS = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
# (CUDA major, minor) → driver released with it. With older drivers, runtime compilation may fail.
_TOOLKIT_DRIVERS = {
    (11, 8): 520, (12, 0): 525, (12, 1): 530, (12, 2): 535, (12, 3): 545, (12, 4): 550, (12, 5): 555,
    (12, 6): 560, (12, 8): 570, (12, 9): 575, (13, 0): 580, (13, 1): 590,
}  # fmt: skip


def shared_memory_bytes(facts: Facts) -> int:
    """Return the bytes of /dev/shm that the ranks need, or 0 for one rank."""
    ranks = ranks_here(facts)
    if ranks <= 1:
        return 0
    chunk = facts.command.environment.get("VLLM_MQ_MAX_CHUNK_BYTES_MB", "")
    return CHUNKS * (int(chunk) if is_whole(chunk) else CHUNK_MIB) * MIB + ranks * NCCL_BYTES_PER_RANK  # fmt: skip


def check_shared_memory(facts: Facts) -> Iterator[Finding]:
    """Check the space in /dev/shm. Ranks communicate through it."""
    needed, room = shared_memory_bytes(facts), facts.shared_memory
    if not needed:
        return
    if room is None:
        yield Finding("shared memory", UNKNOWN, "how large /dev/shm is cannot be read")
    elif room.free_bytes < needed:
        yield Finding(
            "shared memory", PROBLEM, f"{room.free_bytes / MIB:.0f} of {room.total_bytes / MIB:.0f} MiB are free in {room.path}, {ranks_here(facts)} ranks need about {needed / MIB:.0f}: NCCL or vLLM's queue will fail",
            "shared_memory_small",
            (Fix("give the container more", "docker run --shm-size=8g …  (Kubernetes: an emptyDir with medium: Memory at /dev/shm)"),
             Fix("on a host, enlarge it", f"mount -o remount,size=8g {room.path}")),
        )  # fmt: skip
    else:
        yield Finding("shared memory", OK, f"{room.free_bytes / MIB:.0f} MiB free in {room.path}, about {needed / MIB:.0f} wanted")  # fmt: skip


def check_driver(facts: Facts) -> Iterator[Finding]:
    """Compare the driver with the CUDA of the installed PyTorch."""
    software = facts.software
    if software.device not in (None, "cuda") or not facts.gpus:
        return
    driver = _version(software.driver)
    if software.cuda is None or driver is None:
        what = "PyTorch's CUDA" if software.cuda is None else "the driver's version"
        yield Finding("driver", UNKNOWN, f"{what} cannot be read here, so the driver{f' ({software.driver})' if software.driver else ''} is not compared with it")  # fmt: skip
        return
    major, minor = software.cuda
    cuda, torch = f"CUDA {major}.{minor}", f"PyTorch {software.torch}"
    least = _DRIVERS.get(major)
    own = _TOOLKIT_DRIVERS.get((major, minor))
    fix = Fix(f"install driver {own or (least or driver)[0]} or later on the host, then reboot", f"apt-get install nvidia-driver-{own or (least or driver)[0]}")  # fmt: skip
    if least is None:
        yield Finding("driver", UNKNOWN, f"{torch} brings {cuda}, which is newer than this vllm-watch knows; the driver is {software.driver}")  # fmt: skip
    elif driver < least and software.forward_compatible:
        yield Finding("driver", UNKNOWN, f"driver {software.driver} is too old for {cuda} by itself; a cuda-compat library is installed, which helps on data centre GPUs only")  # fmt: skip
    elif driver < least:
        older = Fix(
            f"or install a vLLM built for CUDA {_newest_for(driver)}",
            "see docs.vllm.ai, installation, GPU",
        )
        yield Finding("driver", PROBLEM, f"{torch} brings {cuda}, which needs driver {least[0]}.{least[1]} or later; this one is {software.driver}", "driver_too_old", (fix, older))  # fmt: skip
    elif own is not None and driver[0] < own:
        yield Finding("driver", WARNING, f"driver {software.driver} is older than {cuda} of {torch} (which came with {own}): kernels that are compiled at start may fail (\"unsupported toolchain\")", "driver_older", (fix,))  # fmt: skip
    else:
        yield Finding("driver", OK, f"driver {software.driver} runs {cuda} of {torch}")


def _newest_for(driver: tuple[int, int]) -> str:
    fitting = [major for major, least in _DRIVERS.items() if driver >= least]
    return f"{max(fitting)}" if fitting else "10"


def _version(text: str | None) -> tuple[int, int] | None:
    parts = (text or "").split(".")
    if len(parts) < 2 or not all(is_whole(part) for part in parts[:2]):  # noqa: PLR2004 - major and minor
        return None
    return int(parts[0]), int(parts[1])
