"""Facts about this machine, and the findings of the checks. In facts, None means unknown, never zero."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm_watch.capacity.flags import Flags
from vllm_watch.capacity.model import Model
from vllm_watch.capacity.plan import Checkpoint
from vllm_watch.capacity.release import Release
from vllm_watch.preflight.command import Command
from vllm_watch.signals.holders.records import GpuHolders


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The listener on a port."""

    address: str
    port: int
    pid: int | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Free space on the file system of a path."""

    path: str
    total_bytes: int
    free_bytes: int
    writable: bool = True


FOLDER, CACHE, ABSENT, REMOTE = "folder", "cache", "absent", "remote"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The model's location and files."""

    kind: str  # FOLDER, CACHE (of the hub), ABSENT, or REMOTE (not checked)
    path: str
    config: Mapping[str, Any] | None = None
    config_error: str | None = None
    weights: int = 0
    bytes_total: int | None = None  # size of the whole checkpoint
    bytes_here: int = 0
    missing: tuple[str, ...] = ()  # files that only the index lists
    damaged: tuple[str, ...] = ()  # a text for each damaged file
    tokenizer: bool = True
    repository: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Installed software, read without running it."""

    executable: str | None = None
    missing: str | None = None  # the command's program, if it does not exist
    vllm: str | None = None
    torch: str | None = None
    cuda: tuple[int, int] | None = None
    python: str | None = None  # the interpreter that runs the program
    plugins: bool = False  # vLLM has plugins, which may add flags
    device: str | None = None  # "cuda" | "cpu" | "rocm" | "xpu" | …; None if unknown
    driver: str | None = None
    forward_compatible: bool = False  # a cuda-compat library is installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The answer of vLLM's own argument parser."""

    seconds: float
    refusal: str | None = None
    failure: str | None = None  # why the parser did not answer
    no_accelerator: bool = False  # vLLM found none on this host


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts at one moment."""

    command: Command
    gpus: tuple[GpuHolders, ...] | None = None
    gpus_text: str = ""
    commands: Mapping[int, str] = field(default_factory=dict)  # PID → redacted command
    listeners: tuple[Listener, ...] | None = None
    free_port: int | None = None
    files: ModelFiles | None = None
    model: Model | None = None
    model_error: str | None = None
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    flags: Flags | None = None
    flags_error: tuple[str, str] | None = None
    release: Release | None = None  # if None, the newest is assumed
    shared_memory: Room | None = None
    download_room: Room | None = None
    software: Software = field(default_factory=Software)
    absent: Mapping[str, str] = field(default_factory=dict)  # flag → file that does not exist
    asked: Asked | None = None
    token: bool = False
    offline: bool = False


OK, WARNING, PROBLEM, UNKNOWN = "ok", "warning", "problem", "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """A remedy. `command` is None if no single command suffices."""

    what: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A result. Only a PROBLEM stops a launch."""

    check: str
    status: str
    text: str
    cause: str | None = None
    fixes: tuple[Fix, ...] = ()
