"""Repeats Xid errors until every target has seen them, and gives NVIDIA's advice for each code.

The codes are those of data centre GPUs from Ampere on. Source:
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (October 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.signals.scales import DAY_SECONDS, KEPT_MAX, MINUTE_SECONDS

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
    """The meaning of an Xid code."""

    text: str
    action: str


_ROWS: tuple[tuple[Sequence[int], str, str], ...] = (
    ((8,), "GPU stopped processing", APPLICATION),
    ((11, 25), "invalid push buffer stream", APPLICATION),
    ((13,), "graphics engine exception", APPLICATION),
    ((31,), "GPU memory page fault", APPLICATION),
    ((32,), "corrupted push buffer stream", APPLICATION),
    ((37, 38), "driver firmware error", NOTE),
    ((43,), "GPU stopped processing: a channel was reset", NOTE),
    ((44,), "fault during a context switch", NOTE),
    ((45,), "clean-up after an earlier error", NOTE),
    ((46,), "GPU stopped processing", RESET),
    ((48,), "double bit ECC error", RESET),
    ((54,), "auxiliary power is not connected", SUPPORT),
    ((60,), "video processor exception", APPLICATION),
    ((61,), "internal micro-controller breakpoint", SUPPORT),
    ((62,), "internal micro-controller halt", RESET),
    ((63,), "memory row remapped; takes effect at the next reset", NOTE),
    ((64,), "memory row could not be remapped", RESET),
    ((66, 67), "illegal access by the driver", NOTE),
    ((69,), "graphics engine class error", APPLICATION),
    ((78,), "vGPU could not start", SUPPORT),
    ((79,), "GPU has fallen off the bus", REBOOT),
    ((80,), "corrupted data sent to the GPU", APPLICATION),
    ((92,), "high rate of corrected memory errors", NOTE),
    ((93,), "InfoROM wear limit", NOTE),
    ((94,), "contained memory error", APPLICATION),
    ((95,), "uncontained memory error", RESET),
    ((109,), "context switch timeout", RESET),
    ((110,), "security fault", RESET),
    ((119,), "the GPU's system processor (GSP) does not answer", RESET),
    ((120,), "error of the GPU's system processor (GSP)", RESET),
    ((121,), "corrected error of the link to the CPU", NOTE),
    ((136,), "NVLink training failed", RESET),
    ((137,), "NVLink privilege error", NOTE),
    ((140,), "memory error that was not recovered", RESET),
    ((141,), "CUDA fast path error", NOTE),
    ((142,), "video encoder error", SUPPORT),
    ((143,), "GPU initialisation error", RESET),
    ((151,), "key rotation error", REBOOT),
    ((154,), "the recovery action has changed (see nvidia-smi -q)", NOTE),
    ((155,), "NVLink error raised by software", RESET),
    ((156,), "resource retired; takes effect at the next reset", RESET),
    ((157,), "resource could not be retired", NOTE),
    ((158,), "fatal timeout", RESET),
    ((160,), "memory channel retired", NOTE),
    ((161,), "memory channel could not be retired", NOTE),
    ((167,), "fatal PCIe timeout", SUPPORT),
    ((168,), "memory capacity reduced", SUPPORT),
    ((169,), "internal micro-controller halt", SUPPORT),
    ((171,), "uncorrectable DRAM error, details of Xid 48", NOTE),
    ((172,), "uncorrectable SRAM error, details of Xid 48", NOTE),
    (
        (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
        "copy engine exception",
        APPLICATION,
    ),
    ((68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139), "video engine exception", APPLICATION),
    ((74, *range(144, 151)), "NVLink error", LINK),
)
TABLE = {code: Xid(text, action) for codes, text, action in _ROWS for code in codes}


def lookup(code: int) -> Xid:
    """Return a code's entry. The entry of an unknown code advises to contact support."""
    return TABLE.get(code) or Xid("not in our table of codes", SUPPORT)


def needs_hands(code: int) -> bool:
    """Return True if the code needs more than a process restart."""
    return lookup(code).action in (RESET, REBOOT, LINK)


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
            if code in told or len(told) < KEPT_MAX:
                told[code] = at_s
        unused = gpu.processes == () and gpu.processes_complete is not False
        for code, told_s in list(told.items()):
            hidden = needs_hands(code) and not unused
            # Hidden processes may conceal the reset.
            if at_s - told_s > (DAY_SECONDS if hidden else MINUTE_SECONDS):
                del told[code]
        if not told or tuple(told) == gpu.xid_errors:
            return gpu
        return replace(gpu, xid_errors=tuple(told))
