"""Which GPUs a vLLM server of this host runs on, so that what is stale there can be said to hurt it.

A server does not tell its GPUs. Its workers do: they are the living vLLM processes that were started
by it. Where several servers share a host, the one whose start fits is taken; where that is not clear,
none is, and nothing is claimed.
"""

from collections.abc import Iterable, Sequence

from vllm_watch.signals.holders import roles
from vllm_watch.signals.holders.records import VLLM, GpuHolders, Holder

Group = tuple[str | None, int | None]  # control group and parent: the workers of one server
UUIDS_MAX = 64


class OwnGpus:
    """Remembers the GPUs of one server, also while it is down."""

    def __init__(self) -> None:
        self._own: frozenset[str] = frozenset()
        self._foreign: frozenset[str] = frozenset()  # where only others' engines run
        self._workers: dict[str, tuple[str, ...]] = {}  # UUID → its workers there, in words

    def look(self, gpus: Sequence[GpuHolders], server_start: float | None) -> None:
        """Take one look. `server_start`: Unix time of the server's start; None while it does not answer."""
        groups = _groups(gpus)
        own = _own_group(groups, server_start)
        if own is not None:
            self._own = frozenset(uuid for uuid, _ in groups[own])
            self._workers = {}
            for uuid, holder in groups[own]:
                self._workers[uuid] = (*self._workers.get(uuid, ()), _text(holder))
        everywhere = {uuid for members in groups.values() for uuid, _ in members}
        self._foreign = frozenset(everywhere - self._own) if self._own else frozenset()

    def concerns(self, uuid: str) -> bool:
        """Is what is stale on this GPU this server's affair? On a GPU of its own or of nobody's it is."""
        return uuid in self._own or uuid not in self._foreign

    def hurts(self, uuid: str) -> str:
        """In words, with a comma before it: what of this server runs on that GPU; "" where nothing is known to."""
        workers = self._workers.get(uuid)
        return f", where this engine runs ({', '.join(workers[:2])})" if workers else ""


def _groups(gpus: Iterable[GpuHolders]) -> dict[Group, list[tuple[str, Holder]]]:
    groups: dict[Group, list[tuple[str, Holder]]] = {}
    for gpu in gpus:
        for holder in gpu.holders or ():
            if holder.judged.verdict == VLLM and len(groups) < UUIDS_MAX:
                process = holder.process
                parent = process.pid if holder.role == roles.SERVER else process.ppid
                groups.setdefault((process.cgroup, parent), []).append((gpu.gpu.uuid, holder))
    return groups


def _own_group(
    groups: dict[Group, list[tuple[str, Holder]]], server_start: float | None
) -> Group | None:
    """The only one; or the one that started soonest after the server did."""
    if server_start is None:
        return None
    if len(groups) == 1:
        return next(iter(groups))
    after = {}
    for group, members in groups.items():
        starts = [h.process.create_time for _, h in members if h.process.create_time is not None]
        if starts and min(starts) >= server_start - 1.0:
            after[group] = min(starts) - server_start
    return min(after, key=lambda group: after[group]) if after else None


def _text(holder: Holder) -> str:
    title = (holder.process.cmdline[0] if holder.process.cmdline else holder.process.name) or "vLLM"
    return f"{title.rpartition('/')[2]}, process {holder.process.pid}"
