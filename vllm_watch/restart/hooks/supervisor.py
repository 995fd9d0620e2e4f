"""Find a server's supervisor, and find out whether it restarts the server after exit status 0.

vLLM exits with status 0 when its engine dies. A supervisor notices only the end of the main process
of the unit or container. Source: systemd.service(5) Restart=; docs.docker.com, restart policies;
kubernetes.io, pod lifecycle.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from vllm_watch.errors import Finding, HookError
from vllm_watch.restart.hooks import base, docker, server_process, systemd
from vllm_watch.restart.hooks.server_process import Server
from vllm_watch.sources import gpu_pids
from vllm_watch.sources.processes import ProcessFacts

_CONTAINER = re.compile(
    r"(?:docker|libpod|libpod_parent|containers?)[-/](?:libpod-)?([0-9a-f]{64})"
)
_UNIT = re.compile(r"/([^/]+\.service)(?=/|$)")
_USER_MANAGER = re.compile(r"user@(\d+)\.service")
_SESSION = re.compile(r"/session-[^/]+\.scope")
SOCKETS = (Path("/var/run/docker.sock"), Path("/run/podman/podman.sock"))

_INITS = frozenset(("tini", "dumb-init", "docker-init", "podman-init", "catatonit"))
_CONFIRM = "set relaunches: true once you have seen something restart it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """Whether a supervisor restarts a server."""

    relaunches: bool | None
    text: str
    remedy: str = _CONFIRM


async def finding(tools: base.Tools, call: base.HookCall) -> Finding:
    """Return a finding about the target's supervisor."""
    try:
        server = await server_process.find(tools, call)
    except HookError as error:
        return Finding(ok=False, text=error.cause, remedy=error.remedy)
    found = await of(tools, server)
    if found.relaunches:
        return Finding(ok=True, text=found.text)
    return Finding(ok=False, text=f"it may stay down: {found.text}", remedy=found.remedy)


async def of(tools: base.Tools, server: Server, sockets: tuple[Path, ...] = SOCKETS) -> Supervision:
    """Find the supervisor by the server's cgroup."""
    cgroup = server.facts.cgroup or ""
    container = _CONTAINER.search(cgroup)
    if "kubepods" in cgroup or _in_our_pod(tools):
        text = "Kubernetes restarts the container if the pod's restartPolicy is Always"
        return _if_main(server, Supervision(relaunches=True, text=text))
    if container is not None:
        return _if_main(server, await _container(tools, container[1], sockets))
    units = [unit for unit in _UNIT.findall(cgroup) if not _USER_MANAGER.fullmatch(unit)]
    if units:
        return await _unit(tools, server, units[-1], user="/user@" in cgroup)
    if _SESSION.search(cgroup):
        text = "it was started in a login session, which does not restart it"
        remedy = "run it as a systemd unit with Restart=always, or in a container that restarts"
        return Supervision(relaunches=False, text=text, remedy=remedy)
    return Supervision(
        relaunches=None, text=f"no supervisor was found (its cgroup is {cgroup or 'not known'})"
    )  # fmt: skip


async def _unit(tools: base.Tools, server: Server, name: str, user: bool) -> Supervision:
    try:
        unit = await systemd.show(tools, name, user=user)
    except HookError as error:
        return Supervision(relaunches=None, text=f"it belongs to {name}, but {error.cause}")
    if unit.main_pid != server.facts.pid:
        text = f"it is not the main process of {name}, so systemd may not see it end"
        remedy = "end the unit's script with exec vllm serve …, or " + _CONFIRM
        return Supervision(relaunches=None, text=text, remedy=remedy)
    if unit.restart != "always":
        text = f"{name} has Restart={unit.restart}: vLLM ends with status 0, so systemd would leave it dead"
        return Supervision(relaunches=False, text=text, remedy="set Restart=always in the unit")
    return Supervision(relaunches=True, text=f"systemd restarts {name}: Restart=always")


async def _container(tools: base.Tools, id_: str, sockets: tuple[Path, ...]) -> Supervision:
    why = "no Engine API socket here"
    for socket in sockets:
        if not socket.exists():
            continue
        try:
            found = await docker.inspect(tools, socket, id_)
        except HookError as error:
            why = error.cause
            continue
        text = f"container {found.name} has restart policy {found.restart_policy}"
        remedy = f"docker update --restart unless-stopped {found.name}"
        return Supervision(relaunches=found.relaunched, text=text, remedy=remedy)
    text = f"it runs in container {id_[:12]}; its restart policy is unknown: {why}"
    return Supervision(relaunches=None, text=text)


def _in_our_pod(tools: base.Tools) -> bool:
    # Inside a container the cgroup path may be empty. In a pod, every visible process belongs to the pod.
    tree = gpu_pids.of_tree(tools.procfs)
    return "KUBERNETES_SERVICE_HOST" in tools.environ and not tree.initial


def _if_main(server: Server, supervision: Supervision) -> Supervision:
    if not supervision.relaunches:
        return supervision
    for above in _above(server):
        if above.name not in _INITS:
            text = f"{supervision.text}; but its ancestor {above.name} ({above.pid}) may keep running without it"
            remedy = "end the script with exec vllm serve …, or " + _CONFIRM
            return Supervision(relaunches=None, text=text, remedy=remedy)
    return supervision


def _above(server: Server) -> list[ProcessFacts]:
    found: list[ProcessFacts] = []
    here = server.facts
    while here.pids is None or here.pids[-1] != 1:
        parent = server.all.get(here.ppid or 0)
        if parent is None or parent.cgroup != here.cgroup or parent in found:
            break
        found.append(parent)
        here = parent
    return found
