"""Metric families of this host's GPUs and of the processes that hold their memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from vllm_watch.export.family import Family, Series, by_label, flag, optional, rows
from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.signals.holders.records import UNKNOWN, GpuHolders

_row = rows("vllm_watch_gpu_", "gpu")
_info = rows("vllm_watch_gpu_", "gpu", "info")
_counter = rows("vllm_watch_gpu_", "gpu", "counter")
_SENSOR = (
    "Absent if the driver does not report it (MIG slices have few sensors), and on a lost GPU."
)
HOLDERS_MAX = 20  # others are summed

# Names as in NVML. An inactive reason is exported as 0.
THROTTLE_REASONS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
    "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """A GPU, with the board's data about it."""

    gpu: GpuSample
    host: str = ""
    driver_version: str = ""
    xid_errors: Mapping[int, int]  # code → count
    judged: GpuHolders | None = None


def _gauge(name: str, attribute: str, help_: str, absent: str = _SENSOR) -> Family:
    return _row(name, help_, absent, value=attrgetter(f"gpu.{attribute}"))


def _identity(row: GpuRow) -> Series:
    gpu = row.gpu
    driver, parent = row.driver_version, gpu.mig_parent_uuid or ""
    return (((str(gpu.index), gpu.name or "", row.host, driver, parent), 1),)


def _throttle_reasons(row: GpuRow) -> Series | None:
    # Newer drivers add reasons.
    holds = row.gpu.throttle_reasons
    if holds is None:
        return None
    words = dict.fromkeys((*THROTTLE_REASONS, *holds))
    return [((word,), 1 if word in holds else 0) for word in words]


def distinct_holders(processes: tuple[ProcessSample, ...]) -> list[ProcessSample]:
    """Return each process once, largest first."""
    by_pid: dict[int, ProcessSample] = {}
    for process in processes:
        known = by_pid.get(process.pid)
        if known is None or (process.used_bytes or -1) > (known.used_bytes or -1):
            by_pid[process.pid] = process
    return sorted(by_pid.values(), key=lambda p: (-1 if p.used_bytes is None else p.used_bytes, -p.pid), reverse=True)  # fmt: skip


def _holders(row: GpuRow) -> Series | None:
    if row.gpu.processes is None:
        return None
    holders = [p for p in distinct_holders(row.gpu.processes) if p.used_bytes is not None]
    judged = row.judged.holders if row.judged is not None else None
    verdicts = {each.process.pid: each.judged.verdict for each in judged or ()}
    series: list[tuple[tuple[str, ...], float | None]] = []
    for p in holders[:HOLDERS_MAX]:
        verdict, uid = verdicts.get(p.pid, UNKNOWN), "" if p.uid is None else str(p.uid)
        series.append(((str(p.pid), verdict, uid, p.name or ""), p.used_bytes))
    if rest := holders[HOLDERS_MAX:]:
        series.append((("other", "unknown", "", ""), sum(p.used_bytes or 0 for p in rest)))
    return series


GPU_FAMILIES: tuple[Family, ...] = (
    _info("info", "Identity of the GPU; `gpu` is its UUID, as in every other series.",
          "Unknown or inapplicable values are empty.",
          labels=("index", "name", "host", "driver_version", "mig_parent"), series=_identity),
    _gauge("memory_total_bytes", "memory_total_bytes", "Bytes of GPU memory in total."),
    _gauge("memory_used_bytes", "memory_used_bytes",
           "Bytes of GPU memory in use, without the driver's own reserve."),
    _gauge("memory_reserved_bytes", "memory_reserved_bytes",
           "Bytes of GPU memory that driver and firmware reserve.",
           "Absent with drivers older than 510, where it is part of used."),
    _row("memory_stale_bytes",
         "Bytes of GPU memory held by processes that are judged stale: left behind, dead or forgotten.",
         "Absent if the driver does not report the holders of the memory.", value=optional("judged.stale_bytes")),
    _row("memory_unaccounted_bytes",
         "Bytes of GPU memory in use that no listed process holds. A few hundred MiB are the driver's own.",
         "Absent if the driver hides the memory of processes, and on a GPU with MIG slices.",
         value=optional("judged.unaccounted_bytes")),
    _gauge("utilization_ratio", "utilization_ratio",
           "Share of time in which any kernel ran, 0 to 1; not how much of the GPU it filled."),
    _gauge("temperature_celsius", "temperature_celsius", "Core temperature in degrees Celsius."),
    _gauge("fan_ratio", "fan_ratio", "Share of the fan's full speed.", "Absent without a fan, as on data-centre GPUs."),
    _gauge("power_watts", "power_watts", "Power drawn, in watts."),
    _gauge("power_limit_watts", "power_limit_watts", "Enforced power limit, in watts."),
    _gauge("sm_clock_hertz", "sm_clock_hz", "Clock of the streaming multiprocessors, in hertz."),
    _gauge("sm_clock_max_hertz", "sm_clock_max_hz",
           "Highest clock of the streaming multiprocessors, in hertz."),
    _row("throttle_reason", "1 for each reason that now sets the GPU's clocks (NVML's clock event reasons), else 0.",
         _SENSOR, labels=("reason",), series=_throttle_reasons),
    _counter("xid_errors_total", "Xid errors that the driver reported while the watcher ran, by code.",
             "A code that never occurred is absent.", labels=("xid",), series=by_label("xid_errors")),
    _counter("ecc_uncorrected_errors_total", "Uncorrectable ECC errors since the driver was loaded.",
             "Absent without ECC.", value=attrgetter("gpu.ecc_uncorrected")),
    _row("remapped_rows_pending",
         "1 if memory rows wait to be remapped, which happens at the next reset of the GPU, else 0.",
         "Absent before the Ampere generation.", value=optional("gpu.remapped_rows_pending", flag)),
    _row("remapped_rows_failed", "1 if a memory row could not be remapped: the GPU should be replaced. Else 0.",
         "Absent before the Ampere generation.", value=optional("gpu.remapped_rows_failed", flag)),
    _row("lost", "1 if the GPU fell off the bus; its other series are then absent. Else 0.",
         "Absent if the driver was not asked.", value=optional("gpu.lost", flag)),
    _row("holder_memory_bytes",
         f"Bytes of GPU memory that a process holds: the {HOLDERS_MAX} largest by pid, "
         "the rest summed as pid=\"other\". `verdict`: vllm, active, stale or unknown. `command` is the process title.",
         "Absent if the driver hides it (some containers, MIG): that is unknown, not 0.",
         labels=("pid", "verdict", "uid", "command"), series=_holders),
)  # fmt: skip
