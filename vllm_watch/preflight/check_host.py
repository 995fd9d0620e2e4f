"""Check /dev/shm, the NVIDIA driver and the server's port."""

from collections.abc import Iterator

from vllm_watch.capacity.units import MIB
from vllm_watch.preflight.command import is_whole
from vllm_watch.preflight.facts import OK, PROBLEM, UNKNOWN, WARNING, Facts, Finding, Fix, Listener
from vllm_watch.preflight.sizing import ranks_here

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


DEFAULT_PORT = 8000
_PORT_MAX = 65535
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


def port_of(text: str | None) -> int | None:
    """Return the requested port, or None if invalid."""
    if text is None:
        return DEFAULT_PORT
    return int(text) if is_whole(text) and 0 < int(text) <= _PORT_MAX else None


def check_port(facts: Facts) -> Iterator[Finding]:
    """Check that the port is free, or name its holder."""
    command = facts.command
    if command.switch("headless") or command.text("uds"):
        return
    port = port_of(command.text("port"))
    if port is None:
        yield Finding("port", PROBLEM, f"--port {command.text('port')} is not a port from 1 to {_PORT_MAX}", "wrong_flag", (Fix("use vLLM's default", command.shown(port=str(DEFAULT_PORT))),))  # fmt: skip
    elif facts.listeners is None:
        yield Finding("port", UNKNOWN, f"who listens on port {port} cannot be read from /proc/net")
    elif in_the_way := [each for each in facts.listeners if _collides(each, facts, port)]:
        yield _taken(facts, in_the_way[0])
    else:
        yield Finding("port", OK, f"port {port} is free")


def _taken(facts: Facts, listener: Listener) -> Finding:
    who = "a process that is not visible here"
    fixes = []
    if facts.free_port is not None:
        fixes.append(Fix("use a free port", facts.command.shown(port=str(facts.free_port))))  # fmt: skip
    if listener.pid is not None:
        who = f"process {listener.pid} ({listener.command or 'name unknown'})"
        fixes.append(
            Fix("end the process that has it, if it is not needed", f"kill {listener.pid}")
        )
    text = f"port {listener.port} is taken: {who} listens on {_address(listener)}"
    if listener.command and "vllm" in listener.command:
        text += "; a second vLLM may start all the same and get every other request"
    return Finding("port", PROBLEM, text, "port_in_use", tuple(fixes))


def _collides(listener: Listener, facts: Facts, port: int) -> bool:
    # Listeners on different addresses can share a port.
    host = facts.command.text("host")
    everywhere = host in (None, "", *_EVERYWHERE)
    named = {"localhost": "127.0.0.1"}.get(host or "", host)
    return listener.port == port and (everywhere or listener.address in (named, *_EVERYWHERE))


def _address(listener: Listener) -> str:
    inside = f"[{listener.address}]" if ":" in listener.address else listener.address
    return f"{inside}:{listener.port}"
