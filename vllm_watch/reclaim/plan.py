"""Plan which processes to end.

A process is ended only if it was stale on all its GPUs in several samples. This command never ends
itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_watch.errors import WatchError
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.signals.holders.records import (
    ACTIVE,
    IDLE_NOTEBOOK,
    IDLE_PROCESS,
    STALE,
    UNKNOWN,
    VLLM,
    ZOMBIE_CONTEXT,
    GpuHolders,
    Holder,
)
from vllm_watch.support.quantities import size

CONFIRM_SECONDS = 2.0
"""A plan must stay the same for this long, because a single sample may be wrong."""

TREE_MAX = 4096
"""Beyond this number, descendants of a process are ignored."""

_IDLE = (IDLE_NOTEBOOK, IDLE_PROCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A process's memory on one GPU or MIG slice."""

    gpu: GpuSample
    holder: Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A process that holds GPU memory, with all its GPUs."""

    pid: int  # as shown by `gpus`
    parts: tuple[Part, ...]  # largest first

    @property
    def holder(self) -> Holder:
        return self.parts[0].holder

    @property
    def reasons(self) -> tuple[str | None, ...]:
        return tuple(part.holder.judged.reason for part in self.parts)

    @property
    def verdicts(self) -> frozenset[str]:
        return frozenset(part.holder.judged.verdict for part in self.parts)

    @property
    def bytes(self) -> int | None:
        held = [part.holder.process.used_bytes for part in self.parts]
        return None if None in held else sum(filter(None, held))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The processes to end, beginning with the requested one.

    `left`: descendants that hold GPU memory but are not stale. `others`: unrelated stale processes.
    """

    victims: tuple[Victim, ...]
    left: tuple[Victim, ...] = ()
    others: tuple[Victim, ...] = ()

    @property
    def key(self) -> frozenset[tuple[object, ...]]:
        return frozenset(
            (victim.pid, victim.holder.process.create_time, victim.reasons)
            for victim in self.victims
        )


class RefusalError(WatchError):
    """No process may be ended."""

    def __init__(self, cause: str, remedy: str, *, final: bool = False) -> None:
        super().__init__(cause, remedy)
        self.final = final  # further samples would not change the answer


class Sightings:
    """Confirms that a plan stays the same."""

    def __init__(self) -> None:
        self._seen: tuple[frozenset[tuple[object, ...]], float] | None = None  # key, since

    def take(self, at_s: float, found: Plan | None) -> bool:
        """Return True if the plan is confirmed. `found` is None after a refusal."""
        if found is None:
            self._seen = None
            return False
        if self._seen is None or self._seen[0] != found.key:
            self._seen = found.key, at_s
        return at_s - self._seen[1] >= CONFIRM_SECONDS


def plan(pid: int, gpus: Sequence[GpuHolders], parents: Mapping[int, int], own_pid: int) -> Plan:
    """Return the plan for `pid` in this sample. `parents` maps each PID of our namespace to its parent's, and `own_pid` is this command's. Raises RefusalError."""
    found = victims(gpus)
    victim = found.get(pid)
    _refuse_ours(pid, victim, parents, own_pid)
    if victim is None:
        raise _no_holder(pid, gpus, found, parents)
    _refuse_unless_stale(victim)
    process = victim.holder.process
    if process.pid_local is None or process.create_time is None:
        raise RefusalError(
            f"process {pid} cannot be identified from here: it runs in another PID namespace",
            "run vllm-watch on its host, or with hostPID",
        )
    tree = descendants(process.pid_local, parents)
    below = [each for each in found.values() if each.holder.process.pid_local in tree]
    stale = tuple(each for each in below if each.verdicts == {STALE} and _can_end(each))
    left = tuple(each for each in below if each not in stale)
    working = [each for each in left if each.verdicts & {ACTIVE, VLLM}]
    if working and victim.holder.judged.reason in _IDLE:
        raise RefusalError(
            f"process {pid} is idle, but process {working[0].pid}, which it started, works",
            "that one would lose its parent: ask its user",
        )
    ours = {victim.pid, *(each.pid for each in below)}
    others = [each for each in found.values() if each.pid not in ours]
    return Plan(
        victims=(victim, *stale),
        left=left,
        others=tuple(each for each in others if each.verdicts == {STALE} and _can_end(each)),
    )


def victims(gpus: Sequence[GpuHolders]) -> dict[int, Victim]:
    """Return all processes with GPU memory, by PID. Memory on a MIG slice is not counted again for the parent GPU."""
    parts: dict[int, list[Part]] = {}
    for gpu in gpus:
        for holder in gpu.holders or ():
            part = Part(gpu=gpu.gpu, holder=holder)
            parts.setdefault(holder.process.pid, []).append(part)
    return {pid: Victim(pid=pid, parts=_on_slices(found)) for pid, found in parts.items()}


def descendants(pid: int, parents: Mapping[int, int]) -> tuple[int, ...]:
    """Return the descendants, nearest first."""
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    found = [pid]
    for each in found:  # grows during the loop
        if len(found) > TREE_MAX:
            break
        found += [child for child in sorted(children.get(each, ())) if child not in found]
    return tuple(found[1:])


def ancestors(pid: int, parents: Mapping[int, int]) -> tuple[int, ...]:
    """Return the ancestors, nearest first."""
    found: list[int] = []
    above = parents.get(pid)
    while above and above not in found:
        found.append(above)
        above = parents.get(above)
    return tuple(found)


def _on_slices(parts: list[Part]) -> tuple[Part, ...]:
    sliced = {part.gpu.mig_parent_uuid for part in parts}
    kept = [part for part in parts if part.gpu.uuid not in sliced]
    return tuple(sorted(kept, key=lambda part: -(part.holder.process.used_bytes or 0)))


def _refuse_ours(pid: int, victim: Victim | None, parents: Mapping[int, int], own_pid: int) -> None:
    local = pid if victim is None else victim.holder.process.pid_local
    if 1 in (pid, local):
        cause = "process 1 keeps this host or container up"
        raise RefusalError(cause, "stop the container itself", final=True)
    if own_pid == local:
        raise RefusalError(f"process {pid} is this command itself", "name another PID", final=True)
    if local in ancestors(own_pid, parents):
        cause = f"process {pid} is a parent of this command"
        raise RefusalError(cause, "run it from elsewhere", final=True)


def _refuse_unless_stale(victim: Victim) -> None:
    pid = victim.pid
    for part in victim.parts:
        judged = part.holder.judged
        why = "; ".join(judged.evidence)
        where = f" on GPU {part.gpu.index}" if len(victim.parts) > 1 else ""
        if judged.reason == ZOMBIE_CONTEXT:
            remedy = judged.remedy or "reset the GPU, or reboot"
            raise RefusalError(f"process {pid} cannot be ended: {why}", remedy)
        if judged.verdict != STALE:
            remedy = _INSTEAD[judged.verdict] if judged.remedy is None else judged.remedy
            raise RefusalError(
                f"process {pid} is not stale but {judged.verdict}{where}: {why}", remedy
            )


_INSTEAD = {
    VLLM: "stop that engine where it was started, if it is not wanted",
    ACTIVE: "it is in use: ask its user",
    UNKNOWN: "sample for longer (--look SECONDS), or ask its user",
}


def _can_end(victim: Victim) -> bool:
    process = victim.holder.process
    known = process.pid_local is not None and process.create_time is not None
    return known and ZOMBIE_CONTEXT not in victim.reasons


def _no_holder(
    pid: int, gpus: Sequence[GpuHolders], found: Mapping[int, Victim], parents: Mapping[int, int]
) -> RefusalError:
    there = pid in parents
    cause = f"process {pid} holds no GPU memory" if there else f"there is no process {pid} here"
    locals_ = {each.holder.process.pid_local: each for each in found.values()}
    below = [locals_[each].pid for each in descendants(pid, parents) if each in locals_]
    if there and below:
        named = " ".join(map(str, below))
        remedy = f"reclaim those, if they are stale: vllm-watch gpus --reclaim {below[0]}"
        return RefusalError(f"{cause}; its children do: {named}", remedy)
    for gpu in gpus:
        if gpu.unaccounted.verdict == STALE:
            text = f"{size(gpu.unaccounted_bytes)} on GPU {gpu.gpu.index} belong to no process"
            return RefusalError(f"{cause}, and {text}", gpu.unaccounted.remedy or "reboot")
    return RefusalError(cause, "vllm-watch gpus shows the holders of GPU memory", final=not there)
