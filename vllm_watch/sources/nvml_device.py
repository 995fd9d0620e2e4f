"""Read one GPU or MIG slice and its holders of memory from NVML, in base units; missing or absurd values are None.

Some drivers answer with all ones, with 65535 °C, or with more used memory than the GPU has. Source:
nvml.h.

NVML has a list for each kind of process (compute, graphics, MPS client). Several lists may contain
a process with the same memory, so the lists are merged and not summed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vllm_watch.samples.gpu import ProcessSample
from vllm_watch.sources.gpu_pids import GpuPids
from vllm_watch.sources.processes import ProcessFacts

Ask = Callable[..., Any]  # ask(pynvml function's name, *arguments): its result, or None

# Values outside these ranges are a driver's error values.
TEMPERATURE_CELSIUS = range(-40, 151)
FAN_PERCENT_MAX = 200  # percent of the intended speed, which a fan may exceed
POWER_MILLIWATTS_MAX = 10_000_000  # 10 kW; the largest GPU takes 1.4 kW
CLOCK_MEGAHERTZ_MAX = 10_000
COUNT_MAX = 2**62  # counters in error are all ones

MEMORY_V2 = 0x02000028  # nvmlMemory_v2: the size of the struct and its version
_GPU_TEMPERATURE = 0  # NVML_TEMPERATURE_GPU
_SM_CLOCK = 1  # NVML_CLOCK_SM
_UNCORRECTED, _VOLATILE = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
_ALL_ONES = 2**64 - 1
_PERCENT_MAX = 100

# Bits of nvmlClocksEventReasons, as slugs.
CLOCK_EVENT_REASONS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
    "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
    "board_limit", "reliability",
)  # fmt: skip

# The first list with the process decides its `type`.
LISTS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses_v3"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses_v3"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses_v3"),
)
_FACTS = tuple(
    fact for fact in ProcessFacts.__annotations__ if fact in ProcessSample.__annotations__
)
_MEMORY = ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes")
_NO_INSTANCE = 0xFFFFFFFF
# The driver keeps old samples. The first poll skips samples older than this.
_FIRST_SAMPLE_AGE_MICROSECONDS = 10_000_000


def read_memory(ask: Ask, handle: Any) -> dict[str, int | None]:
    """Return the memory fields of a GpuSample. Before R510, the used memory includes the reserved part."""
    memory = ask("nvmlDeviceGetMemoryInfo", handle, MEMORY_V2)
    reserved = None if memory is None else int(memory.reserved)
    if memory is None:
        memory = ask("nvmlDeviceGetMemoryInfo", handle)
    total = 0 if memory is None else int(memory.total)
    if not 0 < total < COUNT_MAX:
        return dict.fromkeys(_MEMORY)
    used = _at_most(int(memory.used), total)
    return dict(zip(_MEMORY, (total, used, _at_most(reserved, total)), strict=True))


def read_sensors(ask: Ask, handle: Any) -> dict[str, Any]:
    """Return the changing fields of a GpuSample."""
    utilization = ask("nvmlDeviceGetUtilizationRates", handle)
    remapped = ask("nvmlDeviceGetRemappedRows", handle)
    return {
        "utilization_ratio": ratio(None if utilization is None else utilization.gpu),
        "temperature_celsius": _temperature(ask, handle),
        "fan_ratio": _scaled(ask("nvmlDeviceGetFanSpeed", handle), FAN_PERCENT_MAX, 1e-2),
        "power_watts": _scaled(ask("nvmlDeviceGetPowerUsage", handle), POWER_MILLIWATTS_MAX, 1e-3),
        "power_limit_watts": _scaled(
            ask("nvmlDeviceGetEnforcedPowerLimit", handle), POWER_MILLIWATTS_MAX, 1e-3
        ),
        "sm_clock_hz": _scaled(
            ask("nvmlDeviceGetClockInfo", handle, _SM_CLOCK), CLOCK_MEGAHERTZ_MAX, 1e6
        ),
        "throttle_reasons": _reasons(ask, handle),
        "ecc_uncorrected": _at_most(
            ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE), COUNT_MAX
        ),
        "remapped_rows_pending": None if remapped is None else bool(remapped[2]),
        "remapped_rows_failed": None if remapped is None else bool(remapped[3]),
    }


def read_max_clock_hz(ask: Ask, handle: Any) -> float | None:
    """Return the highest SM clock, which is constant while the driver is loaded."""
    return _scaled(ask("nvmlDeviceGetMaxClockInfo", handle, _SM_CLOCK), CLOCK_MEGAHERTZ_MAX, 1e6)


def ratio(percent: int | None) -> float | None:
    """Return a number from 0 to 1, or None for an invalid percentage."""
    return percent / 100 if percent is not None and 0 <= percent <= _PERCENT_MAX else None


def _temperature(ask: Ask, handle: Any) -> float | None:
    # The first function is removed in CUDA 14's drivers; the second exists since R565.
    celsius = ask("nvmlDeviceGetTemperature", handle, _GPU_TEMPERATURE)
    if celsius is None:
        celsius = ask("nvmlDeviceGetTemperatureV", handle, _GPU_TEMPERATURE)
    return float(celsius) if celsius in TEMPERATURE_CELSIUS else None


def _reasons(ask: Ask, handle: Any) -> tuple[str, ...] | None:
    # Renamed in R535; the old name is removed in CUDA 14.
    bits = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:
        bits = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    if bits is None or bits == _ALL_ONES:
        return None
    names = dict(enumerate(CLOCK_EVENT_REASONS))
    return tuple(names.get(bit, f"bit_{bit}") for bit in range(64) if bits >> bit & 1)


def _scaled(value: int | None, value_max: int, factor: float) -> float | None:
    return value * factor if value is not None and 0 <= value <= value_max else None


def _at_most(value: int | None, value_max: int) -> int | None:
    return value if value is not None and 0 <= value <= value_max else None


@dataclass(slots=True)
class _Holder:
    pid: int
    gpu_instance: int
    compute_instance: int
    used_bytes: int | None = None
    kinds: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Utilization:
    """Keeps the newest SM utilization sample of each PID since the last poll."""

    last_seen_microseconds: int = 0

    def read(self, ask: Ask, handle: Any) -> dict[int, float | None]:
        now = time.time_ns() // 1000
        if self.last_seen_microseconds > now:
            self.last_seen_microseconds = 0  # the clock was set back
        first = self.last_seen_microseconds == 0
        after = now - _FIRST_SAMPLE_AGE_MICROSECONDS if first else self.last_seen_microseconds
        samples = ask("nvmlDeviceGetProcessUtilization", handle, self.last_seen_microseconds) or ()
        newest: dict[int, tuple[int, int]] = {}
        for sample in samples:
            stamp, pid = int(sample.timeStamp), int(sample.pid)
            if stamp > after and stamp >= newest.get(pid, (0, 0))[0]:
                newest[pid] = (stamp, int(sample.smUtil))
            self.last_seen_microseconds = max(self.last_seen_microseconds, stamp)
        return {pid: ratio(percent) for pid, (_, percent) in newest.items()}


def read_holders(
    ask: Ask,
    handle: Any,
    pids: GpuPids,
    memory_total_bytes: int | None,
    utilization: Utilization | None,
) -> tuple[ProcessSample, ...] | None:
    """Return the holders by ascending PID, or None if NVML supports none of the lists."""
    answers = {kind: ask(function, handle) for kind, function in LISTS}
    if all(answer is None for answer in answers.values()):
        return None
    used_bytes_max = memory_total_bytes if pids.memory_is_theirs else -1
    holders = _merge(answers, used_bytes_max)
    if not holders:
        return ()
    ratios = utilization.read(ask, handle) if utilization and pids.utilization_is_theirs else {}
    mps_known = answers["mps"] is not None
    return tuple(
        _sample(holder, pids.facts(holder.pid), ratios.get(holder.pid), mps_known)
        for holder in holders
    )


def _merge(answers: dict[str, Any], used_bytes_max: int | None) -> list[_Holder]:
    holders: dict[tuple[int, int, int], _Holder] = {}
    for kind, answer in answers.items():
        for info in answer or ():
            key = (int(info.pid), int(info.gpuInstanceId), int(info.computeInstanceId))
            holder = holders.setdefault(key, _Holder(*key))
            holder.kinds.add(kind)
            used = info.usedGpuMemory
            if used is not None and (used_bytes_max is None or used <= used_bytes_max):
                holder.used_bytes = max(used, holder.used_bytes or 0)
    return [holders[key] for key in sorted(holders)]


def _sample(
    holder: _Holder, facts: ProcessFacts | None, sm_ratio: float | None, mps_known: bool
) -> ProcessSample:
    known = facts or ProcessFacts(pid=holder.pid)
    return ProcessSample(
        used_bytes=holder.used_bytes,
        type=next(kind for kind, _ in LISTS if kind in holder.kinds),
        sm_utilization_ratio=sm_ratio,
        gpu_instance_id=_instance(holder.gpu_instance),
        compute_instance_id=_instance(holder.compute_instance),
        mps="mps" in holder.kinds if mps_known else None,
        **{name: getattr(known, name) for name in _FACTS},
    )


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number
