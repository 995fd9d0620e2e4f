"""Finds GPU memory that no process holds.

Such memory is stale if the host's processes are visible, or if an ended process left it. From
driver R535 on, a container sees only its own processes. Source: sgl-project/sglang #30431,
llm-d-fast-model-actuation #720.
"""

from dataclasses import dataclass, field

from vllm_watch.samples.gpu import GpuSample
from vllm_watch.signals.holders.records import ACTIVE, STALE, UNACCOUNTED, UNKNOWN, Judged, Limits
from vllm_watch.signals.holders.words import seconds, size

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
            return Judged(verdict=UNKNOWN, evidence=(summed,))
        extra, held = summed
        self.unaccounted_bytes = extra
        if extra <= allowance_bytes(gpu):
            self._over_s, self._left, self._held = None, (), held
            return Judged(verdict=ACTIVE)
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
        if not self._left and not complete:
            why = "other containers may hold it: they are not shown to this one"
            return Judged(verdict=UNKNOWN, evidence=(text, why))
        if any(p.type == "mps" or p.mps for p in gpu.processes or ()):
            return Judged(
                verdict=UNKNOWN, evidence=(text, "MPS clients share memory through their server")
            )
        if lasted_s < limits.unaccounted_seconds:
            return Judged(verdict=UNKNOWN, evidence=(text, "the driver may be freeing it"))
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
            verdict=STALE, reason=UNACCOUNTED, evidence=tuple(evidence), remedy=remedy, since_s=self._over_s
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
