"""Maps each vLLM server of a host to the GPUs of its processes.

If these processes are hidden, vLLM processes that started after the server are used instead.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.holders import roles
from vllm_watch.signals.holders.records import VLLM, GpuHolders, Holder

Group = tuple[str | None, int | None]  # control group and parent
GROUPS_MAX = 64
WORKERS_SHOWN = 2


@record
class Server:
    """Identity of a server on this host."""

    start_time: float | None = None  # None while the server does not answer
    pids: frozenset[int] = frozenset()  # empty if not visible


Place = Mapping[str, str]
"""The last known GPUs of a server: UUID → process names."""


class GpuUsers:
    """Keeps each server's GPUs, even while the server is down."""

    def __init__(self) -> None:
        self._known: dict[str, Place] = {}
        self._claims: dict[str, Group] = {}

    def look(
        self, gpus: Sequence[GpuHolders], servers: Mapping[str, Server]
    ) -> Mapping[str, Place]:
        seen = frozenset[int]().union(*(server.pids for server in servers.values()))
        groups = _groups(gpus, without=seen)
        for name, server in servers.items():
            group = None if server.pids else _claim(groups, server)
            if group is not None:
                self._claims[name] = group
            elif server.pids or server.start_time is not None:
                self._claims.pop(name, None)
        for known in (self._known, self._claims):
            for gone in known.keys() - servers.keys():
                del known[gone]
        # A hung server still claims its processes.
        wanted = Counter(self._claims.values())
        for name, server in servers.items():
            group = self._claims.get(name) if server.start_time is not None else None
            mine = _below(gpus, server.pids)
            if not mine and group is not None and wanted[group] == 1:
                mine = groups[group]
            if mine:
                self._known[name] = _place(mine)
        return {name: self._known.get(name, {}) for name in servers}

    def export_state(self) -> dict[str, dict[str, str]]:
        return {name: dict(place) for name, place in self._known.items()}

    def restore(self, state: stored.Stored) -> None:
        self._known = {
            name: {uuid: stored.text(text) for uuid, text in stored.mapping(workers).items()}
            for name, workers in stored.mapping(state).items()
        }


def _below(gpus: Iterable[GpuHolders], pids: frozenset[int]) -> list[tuple[str, Holder]]:
    return [
        (gpu.gpu.uuid, holder)
        for gpu in gpus if pids
        for holder in gpu.holders or ()
        if holder.process.pid_here in pids
    ]  # fmt: skip


def _groups(
    gpus: Iterable[GpuHolders], without: frozenset[int]
) -> dict[Group, list[tuple[str, Holder]]]:
    groups: dict[Group, list[tuple[str, Holder]]] = {}
    for gpu in gpus:
        for holder in gpu.holders or ():
            if holder.process.pid_here in without:
                continue
            if holder.judged.verdict == VLLM and len(groups) < GROUPS_MAX:
                process = holder.process
                parent = process.pid if holder.role == roles.SERVER else process.ppid
                groups.setdefault((process.cgroup, parent), []).append((gpu.gpu.uuid, holder))
    return groups


def _claim(groups: dict[Group, list[tuple[str, Holder]]], server: Server) -> Group | None:
    if server.start_time is None:
        return None
    if len(groups) == 1:
        return next(iter(groups))
    after = {}
    for group, members in groups.items():
        starts = [h.process.create_time for _, h in members if h.process.create_time is not None]
        if starts and min(starts) >= server.start_time - 1.0:
            after[group] = min(starts) - server.start_time
    return min(after, key=lambda group: after[group]) if after else None


def _place(members: Iterable[tuple[str, Holder]]) -> Place:
    workers: dict[str, list[str]] = {}
    for uuid, holder in members:
        workers.setdefault(uuid, []).append(_text(holder))
    return {uuid: ", ".join(names[:WORKERS_SHOWN]) for uuid, names in workers.items()}


def _text(holder: Holder) -> str:
    title = (holder.process.cmdline[0] if holder.process.cmdline else holder.process.name) or "vLLM"
    return f"{title.rpartition('/')[2]}, process {holder.process.pid}"
