"""Read Xid errors, by which the driver reports failures of a GPU, its memory, links or programs.

Each poll takes the events that NVML has queued, without waiting. Errors from before the
subscription are only in the kernel's log. Source: https://docs.nvidia.com/deploy/xid-errors/.
"""

import ctypes
from contextlib import suppress
from types import ModuleType
from typing import Any

from vllm_watch.sources.nvml_device import Ask

_XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError
# A failing GPU can repeat an Xid for every program on it.
EVENTS_PER_POLL_MAX = 100


class XidEvents:
    """Subscribes to the Xid events of the GPUs in one NVML session."""

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
