"""Repeats Xid errors until every target has seen them, because NVML reports them once.

Errors that need a reset are repeated until the GPU is unused.
"""

from dataclasses import replace

from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.signals import xid

STANDS_SECONDS = 60.0
"""A code is repeated for this long, which exceeds any scrape interval."""

STANDS_SECONDS_MAX = 86_400.0
"""A code that needs a reset is repeated for at most this long, because hidden processes may conceal
the reset."""

CODES_MAX = 64
"""At most this many codes are kept per GPU. A broken GPU may report any number of codes."""


class RecentXids:
    """Follows the Xids of one host's GPUs."""

    def __init__(self) -> None:
        self._reported: dict[str, dict[int, float]] = {}  # UUID → code → last report

    def look(self, at_s: float, reading: GpuReading) -> GpuReading:
        if reading.gpus is None:
            return reading
        gpus = tuple(self._gpu(at_s, gpu) for gpu in reading.gpus)
        for uuid in self._reported.keys() - {gpu.uuid for gpu in gpus}:
            del self._reported[uuid]
        return replace(reading, gpus=gpus)

    def _gpu(self, at_s: float, gpu: GpuSample) -> GpuSample:
        told = self._reported.setdefault(gpu.uuid, {})
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
