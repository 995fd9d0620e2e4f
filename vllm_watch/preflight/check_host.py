"""Check the model's files, /dev/shm, the NVIDIA driver and the server's port."""

import shlex
from collections.abc import Iterator

from vllm_watch.capacity.units import GIB, MIB
from vllm_watch.preflight.command import is_whole
from vllm_watch.preflight.facts import (
    ABSENT,
    CACHE,
    OK,
    PROBLEM,
    REMOTE,
    UNKNOWN,
    WARNING,
    Facts,
    Finding,
    Fix,
    Listener,
    ModelFiles,
)
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
        newest = max((each for each, needed in _DRIVERS.items() if driver >= needed), default=10)
        older = Fix(f"or install a vLLM built for CUDA {newest}", "see docs.vllm.ai, installation, GPU")  # fmt: skip
        yield Finding("driver", PROBLEM, f"{torch} brings {cuda}, which needs driver {least[0]}.{least[1]} or later; this one is {software.driver}", "driver_too_old", (fix, older))  # fmt: skip
    elif own is not None and driver[0] < own:
        yield Finding("driver", WARNING, f"driver {software.driver} is older than {cuda} of {torch} (which came with {own}): kernels that are compiled at start may fail (\"unsupported toolchain\")", "driver_older", (fix,))  # fmt: skip
    else:
        yield Finding("driver", OK, f"driver {software.driver} runs {cuda} of {torch}")


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
    address = f"[{listener.address}]" if ":" in listener.address else listener.address
    text = f"port {listener.port} is taken: {who} listens on {address}:{listener.port}"
    if listener.command and "vllm" in listener.command:
        text += "; a second vLLM may start all the same and get every other request"
    return Finding("port", PROBLEM, text, "port_in_use", tuple(fixes))


def _collides(listener: Listener, facts: Facts, port: int) -> bool:
    # Listeners on different addresses can share a port.
    host = facts.command.text("host")
    everywhere = host in (None, "", *_EVERYWHERE)
    named = {"localhost": "127.0.0.1"}.get(host or "", host)
    return listener.port == port and (everywhere or listener.address in (named, *_EVERYWHERE))


_FILES_NAMED = 3
_NO_WEIGHTS = ("dummy", "tensorizer", "runai_streamer", "runai_streamer_sharded", "sharded_state", "fastsafetensors")  # fmt: skip
"""Load formats that do not read the checkpoint's files."""


def check_files(facts: Facts) -> Iterator[Finding]:
    """Check config, weights and tokenizer."""
    files, command = facts.files, facts.command
    if files is None:
        yield Finding("files", UNKNOWN, "no model is named: vLLM takes the default of its release")
    elif files.kind == REMOTE:
        yield Finding("files", UNKNOWN, f"{command.model} is not loaded from files or the hub's cache: it is not checked")  # fmt: skip
    elif files.kind == ABSENT:
        yield _absent(facts, files)
    elif files.config_error is not None:
        yield Finding("files", PROBLEM, files.config_error, "config_missing", (_fetch(files),))
    elif files.damaged:
        more = f" and {len(files.damaged) - 1} more" if len(files.damaged) > 1 else ""
        yield Finding("files", PROBLEM, f"{files.path}: {files.damaged[0]}{more}", "files_damaged", (_fetch(files, again=True),))  # fmt: skip
    elif files.missing:
        yield _incomplete(facts, files)
    elif not files.weights and command.text("load-format") not in _NO_WEIGHTS:
        yield Finding("files", PROBLEM, f"{files.path} has a config.json and no weights (*.safetensors, *.bin, *.pt, *.gguf)", "weights_missing", (_fetch(files),))  # fmt: skip
    elif not files.tokenizer and not command.switch("skip-tokenizer-init") and command.text("tokenizer") is None:  # fmt: skip
        yield Finding("files", PROBLEM, f"{files.path} has no tokenizer (tokenizer.json, tokenizer.model, vocab.json or tekken.json)", "tokenizer_missing", (_fetch(files), Fix("name another", command.shown(tokenizer="MODEL"))))  # fmt: skip
    else:
        size = "" if not files.bytes_here else f", {files.bytes_here / GIB:.1f} GiB"
        yield Finding("files", OK, f"{files.weights} {'file' if files.weights == 1 else 'files'} of weights{size}, in {files.path}")  # fmt: skip


def check_token(facts: Facts) -> Iterator[Finding]:
    """Check for a Hugging Face token. Only the hub knows whether the model needs it."""
    if facts.files is None or not _fetches(facts):
        return
    if facts.token:
        yield Finding("token", OK, "a Hugging Face token is here; only the hub knows whether it may read this model")  # fmt: skip
    else:
        yield Finding("token", UNKNOWN, f"no Hugging Face token is here: should {facts.files.repository or facts.command.model} be gated, set HF_TOKEN (hf auth login)")  # fmt: skip


def check_disk(facts: Facts) -> Iterator[Finding]:
    """Check the space for the download."""
    room, files = facts.download_room, facts.files
    if files is None or not _fetches(facts):
        return
    if room is None:
        yield Finding("disk", UNKNOWN, "the free space for the download cannot be read")
        return
    move = Fix("fetch to a larger disk", f"HF_HOME=/DISK {facts.command.shown()}")
    if not room.writable:
        yield Finding("disk", PROBLEM, f"the model must be fetched, and {room.path} cannot be written by this user", "disk_not_writable", (move,))  # fmt: skip
        return
    needed = None if files.bytes_total is None else max(0, files.bytes_total - files.bytes_here)
    free = f"{room.free_bytes / GIB:.1f} GiB are free in {room.path}"
    if needed is None:
        yield Finding("disk", UNKNOWN, f"{free}; only the hub knows the size of the download")  # fmt: skip
    elif needed > room.free_bytes:
        yield Finding("disk", PROBLEM, f"{needed / GIB:.1f} GiB are to be fetched, {free}", "disk_full", (move, Fix("see the size of the cache", "hf cache ls || huggingface-cli scan-cache")))  # fmt: skip
    else:
        yield Finding("disk", OK, f"{needed / GIB:.1f} GiB are to be fetched, {free}")


def _fetches(facts: Facts) -> bool:
    files = facts.files
    if files is None or facts.offline:
        return False
    from_hub = files.kind == ABSENT and files.repository is not None
    return from_hub or (files.kind == CACHE and bool(files.missing or not files.weights))


def _absent(facts: Facts, files: ModelFiles) -> Finding:
    if files.repository is None:
        return Finding("files", PROBLEM, f"there is no folder {files.path}, and it is not a name of the hub (ORGANISATION/MODEL)", "model_not_found", (Fix("check the folder; in a container, mount it", f"ls -l {shlex.quote(files.path.rstrip('/').rpartition('/')[0] or '.')}"),))  # fmt: skip
    if facts.offline:
        return Finding("files", PROBLEM, f"{files.repository} is not in the hub's cache ({files.path}), and HF_HUB_OFFLINE forbids the download", "model_offline", (_fetch(files), Fix("allow it", f"HF_HUB_OFFLINE=0 {facts.command.shown()}")))  # fmt: skip
    return Finding("files", UNKNOWN, f"{files.repository} is not in the hub's cache ({files.path}): vLLM will fetch it")  # fmt: skip


def _incomplete(facts: Facts, files: ModelFiles) -> Finding:
    named = ", ".join(files.missing[:_FILES_NAMED])
    more = len(files.missing) - _FILES_NAMED
    every = files.weights + len(files.missing)
    text = f"{len(files.missing)} of {every} files of weights are missing in {files.path}: {named}{f' and {more} more' if more > 0 else ''}"
    if files.kind == CACHE and not facts.offline:
        return Finding("files", UNKNOWN, f"{text}; vLLM will fetch them")
    return Finding("files", PROBLEM, text, "weights_missing", (_fetch(files),))


def _fetch(files: ModelFiles, *, again: bool = False) -> Fix:
    if files.repository is None:
        return Fix("copy the whole model again from its source")
    words = ["HF_HUB_OFFLINE=0", "hf", "download", files.repository]
    if files.kind not in (CACHE, ABSENT):
        words += ["--local-dir", shlex.quote(files.path)]
    if again:
        words.append("--force-download")
    return Fix("fetch the missing files" if not again else "fetch it again", " ".join(words))
