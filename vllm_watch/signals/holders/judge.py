"""Judges holders of GPU memory by rules in order of precedence, and memory that no process holds.

Without data, the verdict is `unknown`. Memory without a holder is stale if the host's processes are
visible, or if an ended process left it. From driver R535 on, a container sees only its own
processes. Source: sgl-project/sglang #30431, llm-d-fast-model-actuation #720.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.signals.holders import records, roles, rules
from vllm_watch.signals.holders.records import VLLM, GpuHolders, Holder, Judged, Limits
from vllm_watch.signals.holders.rules import Case
from vllm_watch.signals.holders.track import DEAD_STATES, Track, begin, follow, is_same
from vllm_watch.support.quantities import seconds, size

TRACKS_MAX = 4096
"""At most this many processes are followed, 256 on each of 16 GPUs. A larger number would be a driver error."""

ABSENT_SECONDS = 60.0
"""A process that is absent for this long is forgotten. A single poll may omit a process."""


class HolderJudge:
    """Follows the holders on one host's GPUs."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._tracks: dict[tuple[str, int, int | None], Track] = {}
        self._accounts: dict[str, Account] = {}

    def look(
        self,
        at_s: float,
        t: float,
        gpus: Sequence[GpuSample],
        *,
        answering: Sequence[frozenset[int]] | None = None,
    ) -> tuple[GpuHolders, ...]:
        """`t` is Unix time. `answering` lists the engine PIDs of each vLLM that answers on this host, or is None if unknown."""
        looked = [self._tracked(at_s, gpu) for gpu in gpus]
        tracks = [track for each in looked for track in each]
        vllms = [track.process for track in tracks if track.role in roles.VLLM_ROLES]
        served = None if answering is None else bool(answering)
        engines = {t.process.pid_here for t in tracks if t.role in (roles.CORE, roles.WORKER)}
        placed = all(pids & engines for pids in answering or ())
        host_seen = any(track.outside for track in tracks)
        parents = {gpu.mig_parent_uuid for gpu in gpus}
        judged = []
        for gpu, here in zip(gpus, looked, strict=True):
            borrowed = rules.borrows(track.process for track in here)
            cases = [
                Case(
                    t=t, at_s=at_s, track=track, served=served, placed=placed,
                    others=vllms, limits=self._limits, borrowed_here=borrowed,
                )
                for track in here
            ]  # fmt: skip
            holders = tuple(sorted(map(_holder, cases), key=_largest_first))
            account = self._accounts.setdefault(gpu.uuid, Account())
            rest = account.look(
                at_s, gpu, self._limits, host_seen=host_seen, sliced=gpu.uuid in parents
            )
            judged.append(
                GpuHolders(
                    gpu=gpu,
                    holders=None if gpu.processes is None else holders,
                    unaccounted_bytes=account.unaccounted_bytes,
                    unaccounted=rest,
                )
            )
        self._tracks = {
            key: track
            for key, track in self._tracks.items()
            if at_s - track.last_s <= ABSENT_SECONDS
        }
        for uuid in self._accounts.keys() - {gpu.uuid for gpu in gpus}:
            del self._accounts[uuid]
        return tuple(judged)

    def _tracked(self, at_s: float, gpu: GpuSample) -> list[Track]:
        processes = gpu.processes or ()
        computing = {
            p.pid for p in processes if p.type != "graphics" and p.state not in DEAD_STATES
        }
        return [
            self._follow(at_s, gpu, process, alone=computing == {process.pid})
            for process in processes
        ]

    def _follow(self, at_s: float, gpu: GpuSample, process: ProcessSample, *, alone: bool) -> Track:
        key = (gpu.uuid, process.pid, process.gpu_instance_id)
        track = self._tracks.get(key)
        if track is None or not is_same(track.process, process):
            track = begin(at_s, process)
            if len(self._tracks) < TRACKS_MAX:
                self._tracks[key] = track
        else:
            follow(track, at_s, process, gpu, alone=alone)
        return track


def _holder(case: Case) -> Holder:
    process = case.process
    age = None if process.create_time is None else case.t - process.create_time
    return Holder(
        process=process,
        judged=rules.judged(case),
        role=case.role,
        age_seconds=age if age is not None and age >= 0 else None,
        place=case.track.place,
    )


def _largest_first(holder: Holder) -> tuple[int, int]:
    used = holder.process.used_bytes
    return (1 if used is None else -used, holder.process.pid)


BASE_BYTES = 256 * 2**20
"""Memory of the driver itself, some hundred MiB on the largest GPUs."""

TOTAL_SHARE = 0.01
"""Share of the GPU's memory for page tables and similar data."""

HOLDER_BYTES = 64 * 2**20
"""Each process may use this much memory that the driver does not attribute to the process."""

LEFT_SHARE_MIN = 0.5
"""Memory without an owner is attributed to ended processes only if it is at least this share of the memory that these processes held."""


@dataclass(slots=True)
class Account:
    """Follows one GPU."""

    unaccounted_bytes: int | None = None
    _over_s: float | None = None
    _least: int = 0
    _held: dict[int, int] = field(default_factory=dict)  # PID → bytes
    _left: tuple[int, ...] = ()  # PIDs that ended

    def look(
        self, at_s: float, gpu: GpuSample, limits: Limits, *, host_seen: bool, sliced: bool
    ) -> Judged:
        """`host_seen` is True if processes outside containers are visible, and `sliced` if MIG slices hold the memory."""
        summed = _summed(gpu, sliced=sliced)
        if isinstance(summed, str):
            self.unaccounted_bytes = self._over_s = None
            return Judged(verdict=records.UNKNOWN, evidence=(summed,))
        extra, held = summed
        self.unaccounted_bytes = extra
        if extra <= allowance_bytes(gpu):
            self._over_s, self._left, self._held = None, (), held
            return Judged(verdict=records.ACTIVE)
        if self._over_s is None:
            self._over_s, self._least = at_s, extra
            gone = {pid: bytes_ for pid, bytes_ in self._held.items() if pid not in held}
            if extra >= LEFT_SHARE_MIN * sum(gone.values()):
                self._left = tuple(sorted(gone))
        self._least = min(self._least, extra)
        return self._judge(at_s - self._over_s, gpu, limits, host_seen=host_seen)

    def _judge(self, lasted_s: float, gpu: GpuSample, limits: Limits, *, host_seen: bool) -> Judged:
        text = f"{size(self._least)} in use for {seconds(lasted_s)}, held by no process"
        complete = host_seen if gpu.processes_complete is None else gpu.processes_complete
        why = ""
        if not self._left and not complete:
            why = "other containers may hold it: they are not shown to this one"
        elif any(p.type == "mps" or p.mps for p in gpu.processes or ()):
            why = "MPS clients share memory through their server"
        elif lasted_s < limits.unaccounted_seconds:
            why = "the driver may be freeing it"
        if why:
            return Judged(verdict=records.UNKNOWN, evidence=(text, why))
        evidence = [text]
        if self._left:
            evidence.append(
                f"it stayed in use after process {', '.join(map(str, self._left))} ended"
            )
        remedy = (
            f"see which other process has the GPU open (fuser -v /dev/nvidia{gpu.index}); if none, stop its known processes, then "
            f"reset it (nvidia-smi --gpu-reset -i {gpu.index}) or reboot"
        )
        return Judged(
            verdict=records.STALE, reason=records.UNACCOUNTED, evidence=tuple(evidence), remedy=remedy, since_s=self._over_s
        )  # fmt: skip


def _summed(gpu: GpuSample, *, sliced: bool) -> tuple[int, dict[int, int]] | str:
    used, processes = gpu.memory_used_bytes, gpu.processes
    if gpu.lost or used is None or processes is None:
        return "the used memory, or its holders, are unknown"
    if sliced:
        return "its memory belongs to its MIG slices"
    held: dict[int, int] = {}
    for p in processes:
        if p.used_bytes is None:
            return "the driver does not report every holder's memory"
        held[p.pid] = max(held.get(p.pid, 0), p.used_bytes)
    return max(0, used - sum(held.values())), held


def allowance_bytes(gpu: GpuSample) -> int:
    """Return the memory that may lack an owner. Old drivers include reserved memory in `used`."""
    share = int(TOTAL_SHARE * gpu.memory_total_bytes) if gpu.memory_total_bytes else 0
    reserved = gpu.memory_reserved_bytes or share
    holders = len(gpu.processes or ())
    return reserved + BASE_BYTES + share + HOLDER_BYTES * holders


UNEVEN_BYTES_MIN = 2 * 2**30
UNEVEN_SHARE_MIN = 0.1
"""Ranks are uneven if their memory differs by at least this many bytes and at least this share.
Rank 0 gathers the logits, so differences of some hundred MiB are usual."""

BUSY_RATIO_MIN = 0.5
"""If all other ranks have at least this GPU load, a rank with load 0 takes no part in the steps."""

Member = tuple[GpuHolders, Holder]


def remarks(gpus: Sequence[GpuHolders]) -> tuple[str, ...]:
    """Return a sentence for each difference between tensor-parallel ranks, which hold equal memory and compute the same steps."""
    return tuple(text for each in _groups(gpus) for text in (*_uneven(each), *_idle(each)))


def _groups(gpus: Sequence[GpuHolders]) -> list[list[Member]]:
    """Data-parallel cores are not grouped, because they do not compute the same steps."""
    groups: dict[tuple[int, str | None], list[Member]] = {}
    for gpu in gpus:
        for holder in gpu.holders or ():
            process = holder.process
            alike = holder.role == roles.WORKER and holder.judged.verdict == VLLM
            if alike and process.ppid is not None and gpu.gpu.mig_parent_uuid is None:
                groups.setdefault((process.ppid, process.cgroup), []).append((gpu, holder))
    return [
        members
        for members in groups.values()
        if len(members) > 1 and len({gpu.gpu.uuid for gpu, _ in members}) == len(members)
    ]


def _uneven(members: Sequence[Member]) -> list[str]:
    held = [(holder.process.used_bytes, gpu.gpu.index) for gpu, holder in members]
    known = [(used, index) for used, index in held if used is not None]
    if len(known) < len(members):
        return []
    (least, where), (most, _) = min(known), max(known)
    if most - least < max(UNEVEN_BYTES_MIN, UNEVEN_SHARE_MIN * most):
        return []
    return [
        f"GPU {where} holds {size(least)} of its group, another {size(most)}: "
        "the ranks load at different speeds, or got unequal shares"
    ]


def _idle(members: Sequence[Member]) -> list[str]:
    loads = [(gpu.gpu.utilization_ratio, gpu.gpu.index) for gpu, _ in members]
    known = sorted((ratio, index) for ratio, index in loads if ratio is not None)
    if len(known) < len(members) or known[0][0] > 0 or known[1][0] < BUSY_RATIO_MIN:
        return []
    return [
        f"GPU {known[0][1]} is at 0 % while the {len(known) - 1} others of its group compute: "
        "its rank does not take part"
    ]
