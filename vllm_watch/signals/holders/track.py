"""Keeps the history of one holder of GPU memory: its work, its role, and its pod, container, unit or session.

Source of the control groups: Kubernetes' cgroup drivers, runc, containerd, CRI-O, podman, Docker; systemd.special(7).
"""

import re
from dataclasses import dataclass, replace
from operator import attrgetter

from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.signals.holders import roles
from vllm_watch.signals.loading import same_start

CPU_SHARE_MIN = 0.02
"""A process counts as working if it uses at least this many CPU cores. A notebook kernel's
heartbeat and runtime threads use 0.1 to 1 % of a core. Preparing data or launching kernels uses at
least 5 %."""

GAP_SECONDS_MAX = 300.0
"""If polls are further apart than this, a process without a known CPU time counts as working."""

DEAD_STATES = frozenset("ZX")


@dataclass(slots=True)
class Track:
    """One process on one GPU."""

    last_s: float
    process: ProcessSample
    ppid: int | None
    idle_s: float  # time of the last sign of work
    gpu_idle_s: float  # time of the last sign of GPU work
    state_s: float
    role: str | None
    place: str | None
    outside: bool  # in no container
    worked: bool = False
    work_known: bool = False
    reparented_s: float | None = None
    orphaned_s: float | None = None
    cpu_share: float | None = None  # CPU cores in use

    def idle_for_s(self) -> float:
        return self.last_s - self.idle_s

    def gpu_idle_for_s(self) -> float:
        return self.last_s - self.gpu_idle_s


def begin(at_s: float, process: ProcessSample) -> Track:
    """Start tracking a process."""
    return Track(
        last_s=at_s, process=process, ppid=process.ppid,
        idle_s=at_s, gpu_idle_s=at_s, state_s=at_s,
        role=roles.of_process(process), place=place_of(process.cgroup),
        outside=is_outside(process.cgroup),
    )  # fmt: skip


def is_same(before: ProcessSample, now: ProcessSample) -> bool:
    """Return True if the PID still belongs to the same process."""
    if before.create_time is not None and now.create_time is not None:
        return same_start(before.create_time, now.create_time)
    if (before.uid, before.cgroup) != (now.uid, now.cgroup) and None not in (now.uid, now.cgroup):
        return None in (before.uid, before.cgroup)
    cpu_fell = (
        before.cpu_seconds is not None
        and now.cpu_seconds is not None
        and now.cpu_seconds < before.cpu_seconds
    )
    return not cpu_fell


def follow(
    track: Track, at_s: float, process: ProcessSample, gpu: GpuSample, *, alone: bool
) -> None:
    """Update the track with one poll. `alone` is True if this process causes the GPU's whole load."""
    before, passed_s = track.process, at_s - track.last_s
    dead = process.state in DEAD_STATES
    gpu_works = _gpu_works(process, gpu, alone=alone)
    track.cpu_share = _cpu_share(before, process, passed_s)
    used = before.used_bytes, process.used_bytes
    grew = None not in used and used[0] != used[1]
    cpu_works = track.cpu_share is not None and track.cpu_share >= CPU_SHARE_MIN
    unseen = passed_s > GAP_SECONDS_MAX and track.cpu_share is None
    track.work_known |= gpu_works is not None or track.cpu_share is not None
    if gpu_works or unseen:
        track.gpu_idle_s = at_s
    if gpu_works or cpu_works or grew or unseen:
        track.idle_s = at_s
        track.worked |= not unseen
    if process.state is not None and before.state is not None and process.state != before.state:
        track.state_s = at_s
    # A process gets a new parent only when its parent dies.
    if not dead and None not in (before.ppid, process.ppid) and before.ppid != process.ppid:
        track.reparented_s = at_s
    if _named(before) != _named(process):
        _name(track, process)
    track.process, track.last_s = process, at_s


_named = attrgetter("name", "cmdline", "cgroup")


def _name(track: Track, process: ProcessSample) -> None:
    """Titles are set after the start, and the last title of a dead process is kept."""
    before = track.process
    if process.cmdline or process.name:
        name, cmdline = process.name or before.name, process.cmdline or before.cmdline
        track.role = roles.of_process(replace(process, name=name, cmdline=cmdline))
    if process.cgroup is not None:
        track.place, track.outside = place_of(process.cgroup), is_outside(process.cgroup)


def _gpu_works(process: ProcessSample, gpu: GpuSample, *, alone: bool) -> bool | None:
    if process.sm_utilization_ratio is not None:
        return process.sm_utilization_ratio > 0
    if alone and gpu.utilization_ratio is not None:
        return gpu.utilization_ratio > 0
    return None


def _cpu_share(before: ProcessSample, now: ProcessSample, passed_s: float) -> float | None:
    if before.cpu_seconds is None or now.cpu_seconds is None or passed_s <= 0:
        return None
    return max(0.0, now.cpu_seconds - before.cpu_seconds) / passed_s


_DELETED = " (deleted)"  # kernel's suffix for a removed group
_ID = r"[0-9a-f]{4,64}"
_POD = re.compile(rf"pod({_ID}(?:[-_]{_ID})*)", re.IGNORECASE)
_CONTAINER = re.compile(
    rf"(?:docker|cri-containerd|crio|libpod|containerd|nerdctl)[-/:]({_ID})(?:\.scope)?(?:/|$)|/({_ID})(?:\.scope)?(?:/|$)"
)
_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")
_USER = re.compile(r"/user-(\d+)\.slice")
_SHOWN = 12
_POD_SHOWN = 36


def is_deleted(cgroup: str | None) -> bool:
    """Return True if the group was removed while in use."""
    return cgroup is not None and cgroup.endswith(_DELETED)


def container_of(cgroup: str | None) -> tuple[str | None, str | None]:
    """Return the IDs of pod and container."""
    if not cgroup:
        return None, None
    path = cgroup.removesuffix(_DELETED)
    pod = _POD.search(path) if "kubepods" in path else None
    rest = path[pod.end() :] if pod else path
    container = _CONTAINER.search(rest) if pod or "user.slice" not in path else None
    if container is None and "libpod" in path:
        container = _CONTAINER.search(path)
    name = (container[1] or container[2]) if container else None
    return (pod[1].replace("_", "-") if pod else None), name


def in_user_session(cgroup: str | None) -> bool:
    """Return True if a person started the process."""
    if not cgroup or "user.slice" not in cgroup or container_of(cgroup)[1]:
        return False
    unit = _UNIT.findall(cgroup)
    return not [name for name in unit if not name.startswith("user@")]


def is_outside(cgroup: str | None) -> bool:
    """Return True if the process is outside containers. All processes of the host are then visible."""
    if not cgroup or container_of(cgroup) != (None, None):
        return False
    return any(
        part in cgroup for part in ("system.slice", "user.slice", "init.scope", "machine.slice")
    )


def place_of(cgroup: str | None) -> str | None:
    """Return the pod, container, unit or session, or None."""
    if not cgroup:
        return None
    pod, container = container_of(cgroup)
    if pod:
        text = f"pod {pod[:_POD_SHOWN]}"
        return f"{text}, container {container[:_SHOWN]}" if container else text
    if container:
        return f"container {container[:_SHOWN]}"
    units = [name for name in _UNIT.findall(cgroup) if not name.startswith("user@")]
    if units:
        return str(units[-1])
    user = _USER.search(cgroup)
    if user:
        return f"session of user {user[1]}"
    return "a user's session" if "user.slice" in cgroup else None
