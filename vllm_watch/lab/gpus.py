"""Simulated GPUs and their processes, consistent with the simulated servers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample

DRIVER_VERSION = "570.124.06"
# An NVIDIA L40S.
_TOTAL_BYTES = 48_305_799_168
_RESERVED_BYTES = 607_322_112
_POWER_LIMIT_WATTS = 350.0
_CLOCK_MAX_HZ = 2.52e9
_COMM_BYTES = 15  # the kernel truncates names
_WEIGHTS_BYTES = 16_060_522_496  # 8B parameters in 16 bits
_KV_BYTES_PER_TOKEN = 131_072  # 32 layers, 8 KV heads of 128, keys and values, 16 bits
_OVERHEAD_BYTES = 2_600_000_000  # CUDA context, graphs and activations
_ASLEEP_BYTES = 1_700_000_000
# Shares of the power limit, measured on an H100 (700 W, driver 580.159). It took 70 W when idle, 117 W with a CUDA
# context, and 140 W while tiny kernels ran, as in a collective.
_IDLE_WATTS_SHARE = 0.10
_HELD_WATTS_SHARE = 0.17
_BUSY_WATTS_SHARE = 0.9
_SPIN_SHARE = 0.04  # of the difference between _BUSY_WATTS_SHARE and _HELD_WATTS_SHARE
_MIN_WINDOW_SECONDS = 0.2  # shorter windows are noisy


class _Placement:
    def __init__(self, vllm: SimulatedVllm, indices: tuple[int, ...], first_pid: int) -> None:
        self.vllm = vllm
        self.indices = indices
        self.first_pid = first_pid
        self._seen: dict[int, tuple[float, float, float]] = {}  # engine → t, busy seconds, share

    def pid(self, engine: int) -> int:
        return self.first_pid + 1000 * self.vllm.incarnation + 1 + engine

    def used_bytes(self) -> int:
        vllm = self.vllm
        if vllm.sleep_level:
            return _ASLEEP_BYTES
        if not vllm.serving:
            return int(_WEIGHTS_BYTES * vllm.loaded_ratio)
        tokens = vllm.config.num_gpu_blocks * vllm.config.block_size
        return _WEIGHTS_BYTES + tokens * _KV_BYTES_PER_TOKEN + _OVERHEAD_BYTES

    def busy_ratio(self, engine: int) -> float:
        vllm = self.vllm
        if engine >= len(vllm.engines):
            return 0.0
        core = vllm.engines[engine]
        if core.frozen and not vllm.sleep_level:
            return 1.0 if core.num_running else 0.0
        t, busy_seconds, ratio = self._seen.get(engine, (vllm.t, core.busy_seconds, 0.0))
        elapsed = vllm.t - t
        if elapsed >= _MIN_WINDOW_SECONDS:
            ratio = min(1.0, max(0.0, (core.busy_seconds - busy_seconds) / elapsed))
        elif engine in self._seen:
            return ratio
        self._seen[engine] = (vllm.t, core.busy_seconds, ratio)
        return ratio


class GpuRack:
    """The GPUs of one simulated host."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._placements: list[_Placement] = []
        self._other_processes: dict[int, list[ProcessSample]] = {}
        self._overrides: dict[int, dict[str, Any]] = {}

    def break_gpu(self, index: int, **fields: Any) -> None:
        """Report fields such as `xid_errors=(48,)` from now on."""
        self._overrides[index] = fields

    def place(self, vllm: SimulatedVllm, *indices: int) -> None:
        first_pid = 40_000 + 10_000 * len(self._placements)
        self._placements.append(_Placement(vllm, indices, first_pid))

    def add_process(self, index: int, process: ProcessSample) -> None:
        self._other_processes.setdefault(index, []).append(process)

    def orphan(self, vllm: SimulatedVllm) -> None:
        """Keep the engine cores and their VRAM after the API server's death."""
        for placement in self._placements:
            if placement.vllm is vllm:
                for index in placement.indices:
                    for process, _ in self._processes(placement, index):
                        left = replace(process, ppid=1, state="S", sm_utilization_ratio=0.0)
                        self.add_process(index, left)

    def sample(self) -> tuple[GpuSample, ...]:
        gpus = (self._gpu(index) for index in range(self.count))
        return tuple(replace(gpu, **self._overrides.get(gpu.index, {})) for gpu in gpus)

    def _gpu(self, index: int) -> GpuSample:
        processes = list(self._other_processes.get(index, []))
        busy = watts_share = 0.0
        for placement in self._placements:
            for process, ratio in self._processes(placement, index):
                processes.append(process)
                busy = min(1.0, busy + ratio)
                frozen = any(e.frozen for e in placement.vllm.engines)
                watts_share = max(watts_share, _SPIN_SHARE * ratio if frozen else ratio)
        used = sum(p.used_bytes or 0 for p in processes)
        rest = _HELD_WATTS_SHARE if processes else _IDLE_WATTS_SHARE
        watts = _POWER_LIMIT_WATTS * (rest + (_BUSY_WATTS_SHARE - rest) * watts_share)
        return GpuSample(
            index=index,
            uuid=f"GPU-1ab00000-0000-4000-8000-{index:012x}",
            name="NVIDIA L40S",
            memory_total_bytes=_TOTAL_BYTES,
            memory_used_bytes=min(used, _TOTAL_BYTES - _RESERVED_BYTES),
            memory_reserved_bytes=_RESERVED_BYTES,
            utilization_ratio=round(busy, 2),  # NVML reports whole percents
            temperature_celsius=round(32.0 + 40.0 * watts_share),
            power_watts=round(watts, 1),
            power_limit_watts=_POWER_LIMIT_WATTS,
            sm_clock_hz=_CLOCK_MAX_HZ if processes else _CLOCK_MAX_HZ / 6,
            sm_clock_max_hz=_CLOCK_MAX_HZ,
            throttle_reasons=() if processes else ("gpu_idle",),
            xid_errors=(),
            ecc_uncorrected=0,
            remapped_rows_pending=False,
            remapped_rows_failed=False,
            lost=False,
            processes=tuple(processes),
        )

    def _processes(self, placement: _Placement, index: int) -> list[tuple[ProcessSample, float]]:
        vllm = placement.vllm
        used = placement.used_bytes()
        found = []
        # A dead core has freed its GPU, a hung core has not.
        count = (len(vllm.engines) or vllm.num_engines) if used and not vllm.dead else 0
        for engine in range(count):
            if placement.indices[engine % len(placement.indices)] != index:
                continue
            ratio = placement.busy_ratio(engine)
            seconds = vllm.engines[engine].busy_seconds if engine < len(vllm.engines) else 0.0
            process = ProcessSample(
                pid=placement.pid(engine),
                used_bytes=used,
                type="compute",
                name="VLLM::EngineCore"[:_COMM_BYTES],
                cmdline=("VLLM::EngineCore",),
                ppid=placement.pid(0) - 1,
                state="R" if ratio else "S",
                create_time=vllm.epoch + vllm.process_start_t,
                cpu_seconds=round(seconds, 2),
                sm_utilization_ratio=round(ratio, 2),
                cgroup=f"/system.slice/vllm-{vllm.name}.service",
                uid=1001,
            )
            found.append((process, ratio))
        return found


def idle_notebook(create_time: float) -> ProcessSample:
    """Return a notebook kernel that was left open for days."""
    return ProcessSample(
        pid=18_231,
        used_bytes=2_400_000_000,
        type="compute",
        name="python3",
        cmdline=("/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "kernel-4711.json"),
        ppid=18_012,
        state="S",
        create_time=create_time,
        cpu_seconds=311.4,
        sm_utilization_ratio=0.0,
        cgroup="/user.slice/user-1004.slice/session-12.scope",
        uid=1004,
    )


class SimulatedGpuSource:
    """Reads a rack as the NVML source reads the driver."""

    def __init__(self, rack: GpuRack | None, unix_time: Callable[[], float]) -> None:
        self._rack = rack
        self._unix_time = unix_time

    async def read(self) -> GpuReading:
        t = self._unix_time()
        if self._rack is None:
            return GpuReading(status="no_driver", text="this lab has no GPUs", t=t)
        gpus = self._rack.sample()
        return GpuReading(status="ok", t=t, driver_version=DRIVER_VERSION, gpus=gpus)

    async def close(self) -> None:
        """Do nothing."""
