"""Finds the role of a process by its title and command line.

The kernel keeps 15 bytes of a title. Source: vllm/utils/system_utils.py; vllm/v1/engine/core.py;
vllm/v1/executor/multiproc_executor.py.
"""

import re
from functools import lru_cache

from vllm_watch.samples.gpu import ProcessSample

SERVER = "vllm_server"
CORE = "vllm_core"
WORKER = "vllm_worker"
VLLM_ROLES = (SERVER, CORE, WORKER)
LENDER = "lender"
POOL_WORKER = "pool_worker"  # of an unknown program
NOTEBOOK = "notebook"
DISPLAY = "display"
MPS = "mps"

_TITLES = (
    (re.compile(r"^VLLM::(Engine_?Cor)", re.IGNORECASE), CORE),
    (re.compile(r"^VLLM::Worker|^VllmWorker|^ray::\S*RayWorker|^RayWorkerWrap", re.IGNORECASE), WORKER),
    (re.compile(r"^VLLM::", re.IGNORECASE), SERVER),  # APIServer, DPCoordinator
)  # fmt: skip
_COMMANDS = (
    (re.compile(r"(^|[/\s])vllm\s+(preload|weight-cache-daemon)\b|\bweight_cache[./]daemon\b"), LENDER),
    (re.compile(r"\bgpu[_-]memory[_-]service\b|\blmcache[_.]?(v1[./]multiprocess[./])?\s?server\b"), LENDER),
    (re.compile(r"\bmooncake[_-](master|client|store_service)\b"), LENDER),
    (re.compile(r"multiproc_worker|VllmWorkerProcess|RayWorkerWrapper"), WORKER),
    (re.compile(r"(^|[/\s])vllm\s+(serve|bench|run-batch|complete|chat)\b|\bvllm[./]entrypoints\b"), SERVER),
    (re.compile(r"\bdynamo[./]vllm\b"), SERVER),
    (re.compile(r"ipykernel|\bcolab_kernel|jupyter|\bIJulia\b|\bxeus|marimo"), NOTEBOOK),
    (re.compile(r"multiprocessing[./](spawn|forkserver)\b|--multiprocessing-fork"), POOL_WORKER),
    (re.compile(r"nvidia-cuda-mps"), MPS),
)  # fmt: skip
_DISPLAYS = re.compile(
    r"^(Xorg|X|Xwayland|gnome-shell|gnome-remote-de.*|kwin\S*|plasmashell|mutter|sddm.*|gdm.*|lightdm|cinnamon|xfwm4|"
    r"weston|sway|hyprland|Xvnc|x11vnc|nxagent\S*|nxnode\S*|nvidia-persiste.*|nv-hostengine)$",
    re.IGNORECASE,
)
_SERVES = re.compile(
    r"(^|[/\s_.:-])(serve[rd]?|serving|uvicorn|gunicorn|hypercorn|tritonserver|ollama|llama-server|text-generation\S*|"
    r"sglang|lmdeploy|torchserve|api|app|http|grpc|flask|fastapi|streamlit|gradio|daemon)\b|serve_|_serve|_server|--port|--listen",
    re.IGNORECASE,
)

# Programs that launch others or adopt orphans, but never start an engine core.
_REAPERS = re.compile(
    r"^\(?(systemd|init|s6-\S*|runit|runsv\S*|tini(-static)?|dumb-init|docker-init|catatonit|pause|"
    r"containerd-shim\S*|conmon|sh|bash|dash|zsh|fish|tmux\S*|screen|SCREEN|sshd\S*|login|sudo|su|supervisord|"
    r"slurmstepd\S*|launchd|openrc\S*|busybox|podman|nohup|setsid)\)?:?$"
)

COMMANDS_KEPT = 1024
"""The roles of at most this many commands are cached."""


def role(process: ProcessSample) -> str | None:
    """Return a role, or None."""
    command = process.cmdline or ()
    titles = [title for title in ((command[0] if command else None), process.name) if title]
    for pattern, word in _TITLES:
        if any(pattern.search(title) for title in titles):
            return word
    text = " ".join(command)
    for pattern, word in _COMMANDS:
        if pattern.search(text):
            return word
    names = [title.rpartition("/")[2] for title in titles]
    if any(_DISPLAYS.match(name) for name in names):
        return DISPLAY
    if process.mps and not command:
        return MPS
    return None


@lru_cache(COMMANDS_KEPT)
def of_command(command: str) -> str | None:
    """Return the role of an ancestor, from its command."""
    return role(ProcessSample(pid=0, cmdline=tuple(command.split(" "))))


def is_vllm_command(command: str) -> bool:
    """Return True for a vLLM server's command."""
    return of_command(command) == SERVER


def of_process(process: ProcessSample) -> str | None:
    """Return a process's role. A weight daemon's rank is a lender, even with a worker's title."""
    own = role(process)
    if own not in (None, POOL_WORKER, WORKER):
        return own
    above = (of_command(each) for each in process.ancestors or () if not is_reaper(each))
    starter = next((each for each in above if each not in (None, POOL_WORKER)), None)
    return LENDER if starter == LENDER else own


@lru_cache(COMMANDS_KEPT)
def is_reaper(command: str) -> bool:
    """Return True if the command never starts an engine core. A core with such a parent has lost its original parent."""
    first, _, _ = command.partition(" ")
    return bool(_REAPERS.match(first.rpartition("/")[2].lstrip("-")))


def may_serve(process: ProcessSample) -> bool:
    """Return True if the process may be a server. A server may wait days for a request."""
    return bool(_SERVES.search(" ".join(process.cmdline or (process.name or "",))))
