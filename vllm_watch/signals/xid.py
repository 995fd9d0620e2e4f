"""Repeats Xid errors until every target has seen them, and gives NVIDIA's advice for each code.

The codes are those of data centre GPUs from Ampere on. Source:
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (October 2025).
"""

from dataclasses import dataclass, replace
from itertools import chain

from vllm_watch.samples.gpu import GpuReading, GpuSample

APPLICATION, RESET, REBOOT, LINK, SUPPORT, NOTE = (
    "application", "reset", "reboot", "link", "support", "note",
)  # fmt: skip

ADVICE = {
    APPLICATION: "start the program that caused this error again (its supervisor normally does); the GPU is healthy",
    RESET: "drain the GPU, end all processes on it and reset it (nvidia-smi --gpu-reset -i INDEX); if it recurs, have it replaced",
    REBOOT: "drain the host and reboot it; check seat, power and risers; if it recurs, have the GPU replaced",
    LINK: "drain the host, check NVLink (nvidia-smi nvlink -s) and the fabric manager, reset all GPUs together; if it recurs, have it replaced",
    SUPPORT: "drain the GPU when you can and ask NVIDIA's or the vendor's support",
    NOTE: "nothing now: act on the codes reported with it; watch whether it recurs",
}
"""Advice for the on-call engineer on each of NVIDIA's immediate actions."""

SEVERITY = {
    APPLICATION: "ticket",  # the failed engine has its own incident
    RESET: "page",  # the fault stays until a reset
    REBOOT: "page",
    LINK: "ticket",
    SUPPORT: "ticket",
    NOTE: "info",
}


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid code and its meaning."""

    code: int
    text: str
    action: str


_NAMED = (
    Xid(8, "GPU stopped processing", APPLICATION),
    Xid(11, "invalid push buffer stream", APPLICATION),
    Xid(13, "graphics engine exception", APPLICATION),
    Xid(25, "invalid push buffer stream", APPLICATION),
    Xid(31, "GPU memory page fault", APPLICATION),
    Xid(32, "corrupted push buffer stream", APPLICATION),
    Xid(37, "driver firmware error", NOTE),
    Xid(38, "driver firmware error", NOTE),
    Xid(43, "GPU stopped processing: a channel was reset", NOTE),
    Xid(44, "fault during a context switch", NOTE),
    Xid(45, "clean-up after an earlier error", NOTE),
    Xid(46, "GPU stopped processing", RESET),
    Xid(48, "double bit ECC error", RESET),
    Xid(54, "auxiliary power is not connected", SUPPORT),
    Xid(60, "video processor exception", APPLICATION),
    Xid(61, "internal micro-controller breakpoint", SUPPORT),
    Xid(62, "internal micro-controller halt", RESET),
    Xid(63, "memory row remapped; takes effect at the next reset", NOTE),
    Xid(64, "memory row could not be remapped", RESET),
    Xid(66, "illegal access by the driver", NOTE),
    Xid(67, "illegal access by the driver", NOTE),
    Xid(69, "graphics engine class error", APPLICATION),
    Xid(74, "NVLink error", LINK),
    Xid(78, "vGPU could not start", SUPPORT),
    Xid(79, "GPU has fallen off the bus", REBOOT),
    Xid(80, "corrupted data sent to the GPU", APPLICATION),
    Xid(92, "high rate of corrected memory errors", NOTE),
    Xid(93, "InfoROM wear limit", NOTE),
    Xid(94, "contained memory error", APPLICATION),
    Xid(95, "uncontained memory error", RESET),
    Xid(109, "context switch timeout", RESET),
    Xid(110, "security fault", RESET),
    Xid(119, "the GPU's system processor (GSP) does not answer", RESET),
    Xid(120, "error of the GPU's system processor (GSP)", RESET),
    Xid(121, "corrected error of the link to the CPU", NOTE),
    Xid(136, "NVLink training failed", RESET),
    Xid(137, "NVLink privilege error", NOTE),
    Xid(140, "memory error that was not recovered", RESET),
    Xid(141, "CUDA fast path error", NOTE),
    Xid(142, "video encoder error", SUPPORT),
    Xid(143, "GPU initialisation error", RESET),
    Xid(151, "key rotation error", REBOOT),
    Xid(154, "the recovery action has changed (see nvidia-smi -q)", NOTE),
    Xid(155, "NVLink error raised by software", RESET),
    Xid(156, "resource retired; takes effect at the next reset", RESET),
    Xid(157, "resource could not be retired", NOTE),
    Xid(158, "fatal timeout", RESET),
    Xid(160, "memory channel retired", NOTE),
    Xid(161, "memory channel could not be retired", NOTE),
    Xid(167, "fatal PCIe timeout", SUPPORT),
    Xid(168, "memory capacity reduced", SUPPORT),
    Xid(169, "internal micro-controller halt", SUPPORT),
    Xid(171, "uncorrectable DRAM error, details of Xid 48", NOTE),
    Xid(172, "uncorrectable SRAM error, details of Xid 48", NOTE),
)
_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_VIDEO_ENGINES = (68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139)
_LINKS = range(144, 151)

TABLE: dict[int, Xid] = {
    each.code: each
    for each in chain(
        _NAMED,
        (Xid(code, "copy engine exception", APPLICATION) for code in _COPY_ENGINES),
        (Xid(code, "video engine exception", APPLICATION) for code in _VIDEO_ENGINES),
        (Xid(code, "NVLink error", LINK) for code in _LINKS),
    )
}


def lookup(code: int) -> Xid:
    """Return a code's entry. The entry of an unknown code advises to contact support."""
    return TABLE.get(code) or Xid(code, "not in our table of codes", SUPPORT)


def needs_hands(code: int) -> bool:
    """Return True if the code needs more than a process restart."""
    return lookup(code).action in (RESET, REBOOT, LINK)


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
    return STANDS_SECONDS if unused or not needs_hands(code) else STANDS_SECONDS_MAX
