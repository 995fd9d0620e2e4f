"""Xid errors are told once; here they stand for as long as they matter.

A driver's event is seen by one poll only, while every target looks at a pace of its own: so a code
stands for a while in what all of them are shown. One that asks for a reset stands until the GPU has
been seen without a process, for that is what a reset needs; an engine that starts on it again fails
with a new code.
"""

from dataclasses import replace

from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.signals import xid

STANDS_SECONDS = 60.0
"""Longer than any target's interval: each sees it, and what follows from it comes within a minute."""

STANDS_SECONDS_MAX = 86_400.0
"""Where nobody can say whether the GPU was reset (its processes are hidden), a day is enough to be told."""

CODES_MAX = 64
"""Of one GPU; a broken one may tell any number."""


class RecentXids:
    """Follows the Xids of one host's GPUs."""

    def __init__(self) -> None:
        self._told: dict[str, dict[int, float]] = {}  # UUID → code → when it was last told

    def look(self, at_s: float, reading: GpuReading) -> GpuReading:
        """Take one poll; return it with all codes that stand."""
        if reading.gpus is None:
            return reading
        gpus = tuple(self._gpu(at_s, gpu) for gpu in reading.gpus)
        for uuid in self._told.keys() - {gpu.uuid for gpu in gpus}:
            del self._told[uuid]
        return replace(reading, gpus=gpus)

    def _gpu(self, at_s: float, gpu: GpuSample) -> GpuSample:
        told = self._told.setdefault(gpu.uuid, {})
        for code in gpu.xid_errors or ():
            if code in told or len(told) < CODES_MAX:
                told[code] = at_s
        for code, told_s in list(told.items()):
            if at_s - told_s > _stands_seconds(code, gpu):
                del told[code]
        if not told or tuple(told) == gpu.xid_errors:
            return gpu
        return replace(gpu, xid_errors=tuple(told))


def _stands_seconds(code: int, gpu: GpuSample) -> float:
    unused = gpu.processes == () and gpu.processes_complete is not False
    return STANDS_SECONDS if unused or not xid.needs_hands(code) else STANDS_SECONDS_MAX
