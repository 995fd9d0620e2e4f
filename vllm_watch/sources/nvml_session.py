"""Find and poll the GPUs between nvmlInit and nvmlShutdown.

Errors are raised only if the library fails. If one GPU fails, the others stay readable.
"""

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import structlog

from vllm_watch.samples.gpu import GpuSample
from vllm_watch.sources import nvml_device
from vllm_watch.sources.gpu_pids import GpuPids
from vllm_watch.sources.nvml_device import Ask

_XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError
# A failing GPU can repeat an Xid for every program on it.
EVENTS_PER_POLL_MAX = 100

log = structlog.get_logger()


class XidEvents:
    """Subscribes to the Xid events of the GPUs in one NVML session.

    By Xids the driver reports failures of a GPU, its memory, links or programs. Each poll takes the
    events that NVML has queued, without waiting. Errors from before the subscription are only in the
    kernel's log. Source: https://docs.nvidia.com/deploy/xid-errors/.
    """

    def __init__(self, nvml: ModuleType, ask: Ask, handles: dict[str, Any]) -> None:
        """`handles`: UUID → handle. The Xids of GPUs that do not support events stay unknown."""
        self._nvml = nvml
        self._ask = ask
        self._uuids: dict[int | None, str] = {}
        self._events = ask("nvmlEventSetCreate")
        for uuid, handle in handles.items() if self._events is not None else ():
            try:
                nvml.nvmlDeviceRegisterEvents(handle, _XID_EVENT, self._events)
            except nvml.NVMLError:
                continue
            self._uuids[_address(handle)] = uuid

    def take(self) -> dict[str, list[int]]:
        """Return UUID → Xid codes since the last call, oldest first."""
        taken: dict[str, list[int]] = {uuid: [] for uuid in self._uuids.values()}
        for _ in range(EVENTS_PER_POLL_MAX if taken else 0):
            try:
                event = self._ask("nvmlEventSetWait_v2", self._events, 0)
            except self._nvml.NVMLError_GpuIsLost:
                break  # the GPU's next reading reports the loss
            if event is None:
                break  # timed out: the queue is empty
            uuid = self._uuids.get(_address(event.device))
            if uuid is not None and event.eventType == _XID_EVENT:
                taken[uuid].append(int(event.eventData))
        return taken

    def close(self) -> None:
        """Unsubscribe; NVML must still be initialised."""
        if self._events is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._events)
        self._events = None
        self._uuids = {}


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


class Asker:
    """Calls pynvml functions by name. A failed call returns None, but raises NVMLError if a GPU is lost or the library fails."""

    def __init__(self, nvml: ModuleType) -> None:
        self.calling = ""
        self._nvml = nvml
        self.library_errors = (
            nvml.NVMLError_Uninitialized,
            nvml.NVMLError_DriverNotLoaded,
            nvml.NVMLError_LibRmVersionMismatch,
        )

    def __call__(self, name: str, *arguments: object) -> Any:
        if not hasattr(self._nvml, name):
            return None  # a version of pynvml without this function
        try:
            return self.must(name, *arguments)
        except (self._nvml.NVMLError_GpuIsLost, *self.library_errors):
            raise
        except (self._nvml.NVMLError, UnicodeDecodeError):
            return None

    def must(self, name: str, *arguments: object) -> Any:
        self.calling = name
        try:
            return getattr(self._nvml, name)(*arguments)
        finally:
            self.calling = ""


@dataclass(slots=True)
class _Gpu:
    identity: GpuSample  # without measurements
    handle: Any
    sm_clock_max_hz: float | None
    mig_devices_max: int  # 0 without MIG
    utilization: nvml_device.Utilization = field(default_factory=nvml_device.Utilization)


class Session:
    """All GPUs visible to this process."""

    def __init__(
        self, nvml: ModuleType, pids: GpuPids, seen: dict[int, GpuSample], lost: dict[str, GpuSample]
    ) -> None:  # fmt: skip
        """`seen` (by index) and `lost` (by UUID) outlive a session. They hold a GPU's index, UUID and name."""
        self._nvml = nvml
        self._pids = pids
        self._seen, self._lost = seen, lost
        self.ask = Asker(nvml)
        self._gpus: list[_Gpu] = []
        self._unreadable: list[GpuSample] = []  # present, but without a handle
        self._xids: XidEvents | None = None
        self._counted = 0
        self.driver_version: str | None = None

    def open(self) -> None:
        """Raises NVMLError."""
        self.ask.must("nvmlInitWithFlags", 0)
        self.driver_version = self.ask("nvmlSystemGetDriverVersion")
        self._pids.set_driver(self.driver_version)
        self._find()

    def poll(self) -> tuple[GpuSample, ...]:
        """Return GPUs by index, each followed by its MIG slices. Raises NVMLError if the library fails."""
        if self.ask.must("nvmlDeviceGetCount") != self._counted:
            self._find()
        xids = self._xids.take() if self._xids else {}
        samples = list(self._unreadable)
        for gpu in tuple(self._gpus):
            try:
                samples += list(self._read(gpu))  # all, or nothing if the GPU is lost meanwhile
            except self._nvml.NVMLError_GpuIsLost:
                self._lose(gpu)
        samples += (replace(gpu, lost=True) for gpu in self._lost.values())
        self._pids.forget_others(
            {process.pid for sample in samples for process in sample.processes or ()}
        )
        return tuple(sorted((_with_xids(sample, xids) for sample in samples), key=_order))

    def close(self) -> None:
        """Never raises, because the driver may be gone."""
        if self._xids:
            self._xids.close()
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _find(self) -> None:
        self._counted = self.ask.must("nvmlDeviceGetCount")
        self._gpus, failed_indices, lost_indices = [], [], []
        for index in range(self._counted):
            try:
                self._gpus.append(self._find_one(index))
            except self._nvml.NVMLError_GpuIsLost:
                lost_indices.append(index)
            except self._nvml.NVMLError_NoPermission:
                continue  # a GPU of the host that this container was not given
            except self.ask.library_errors:
                raise
            except self._nvml.NVMLError:
                failed_indices.append(index)
        self._remember_present()
        self._unreadable = [self._remembered(index) for index in failed_indices]
        for index in lost_indices:
            self._remember_lost(self._remembered(index))
        self._listen()

    def _find_one(self, index: int) -> _Gpu:
        handle = self.ask.must("nvmlDeviceGetHandleByIndex", index)
        return _Gpu(
            identity=GpuSample(
                index=index,
                uuid=self.ask("nvmlDeviceGetUUID", handle) or _unknown(index),
                name=self.ask("nvmlDeviceGetName", handle),
            ),
            handle=handle,
            sm_clock_max_hz=nvml_device.read_max_clock_hz(self.ask, handle),
            mig_devices_max=int(self.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)
            if self.ask("nvmlDeviceGetMigMode", handle) is not None
            else 0,
        )

    def _remember_present(self) -> None:
        for identity in (gpu.identity for gpu in self._gpus):
            self._seen[identity.index] = identity
            self._lost.pop(_unknown(identity.index), None)
            if self._lost.pop(identity.uuid, None):
                log.info("gpu_returned", gpu=identity.uuid, index=identity.index)

    def _remembered(self, index: int) -> GpuSample:
        known = self._seen.get(index)
        if known is None or any(gpu.identity.uuid == known.uuid for gpu in self._gpus):
            return GpuSample(index=index, uuid=_unknown(index))
        return known

    def _remember_lost(self, identity: GpuSample) -> None:
        if identity.uuid not in self._lost:
            log.warning("gpu_lost", gpu=identity.uuid, index=identity.index)
        self._lost[identity.uuid] = identity

    def _lose(self, gpu: _Gpu) -> None:
        self._remember_lost(gpu.identity)
        self._gpus.remove(gpu)
        self._listen()  # an event set with a lost GPU fails

    def _listen(self) -> None:
        if self._xids:
            self._xids.close()
        handles = {gpu.identity.uuid: gpu.handle for gpu in self._gpus}
        self._xids = XidEvents(self._nvml, self.ask, handles)

    def _read(self, gpu: _Gpu) -> Iterator[GpuSample]:
        known = gpu.identity
        yield GpuSample(
            index=known.index, uuid=known.uuid, name=known.name, lost=False,
            sm_clock_max_hz=gpu.sm_clock_max_hz, **self._memory(gpu.handle, gpu.utilization),
            **nvml_device.read_sensors(self.ask, gpu.handle),
        )  # fmt: skip
        mode = self.ask("nvmlDeviceGetMigMode", gpu.handle) if gpu.mig_devices_max else None
        for number in range(gpu.mig_devices_max if mode and mode[0] else 0):
            handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, number)
            uuid = None if handle is None else self.ask("nvmlDeviceGetUUID", handle)
            if uuid is None:
                continue  # an empty slot
            yield GpuSample(
                index=known.index, uuid=uuid, name=self.ask("nvmlDeviceGetName", handle),
                mig_parent_uuid=known.uuid, lost=False,
                gpu_instance_id=self.ask("nvmlDeviceGetGpuInstanceId", handle),
                compute_instance_id=self.ask("nvmlDeviceGetComputeInstanceId", handle),
                **self._memory(handle, None),
            )  # fmt: skip

    def _memory(self, handle: Any, utilization: nvml_device.Utilization | None) -> dict[str, Any]:
        memory = nvml_device.read_memory(self.ask, handle)
        processes = nvml_device.read_holders(
            self.ask, handle, self._pids, memory["memory_total_bytes"], utilization
        )
        complete = self._pids.all_are_listed
        return {**memory, "processes": processes, "processes_complete": complete}


def _unknown(index: int) -> str:
    return f"unknown-{index}"


def _with_xids(sample: GpuSample, xids: dict[str, list[int]]) -> GpuSample:
    codes = xids.get(sample.uuid)
    return sample if codes is None else replace(sample, xid_errors=tuple(codes))


def _order(sample: GpuSample) -> tuple[int, bool, int, int]:
    return (
        sample.index, sample.mig_parent_uuid is not None,
        sample.gpu_instance_id or 0, sample.compute_instance_id or 0,
    )  # fmt: skip
