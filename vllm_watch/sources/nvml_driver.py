"""Follow the NVIDIA driver's life cycle: absent, loaded, reloaded or replaced.

Use this module from one thread only. pynvml takes 5 MB, so it is imported only if there is a
library to load.
"""

import ctypes
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.sources.gpu_pids import GpuPids
from vllm_watch.sources.nvml_session import Inventory, Session
from vllm_watch.sources.processes import ProcReader

LIBRARY = "libnvidia-ml.so.1"
# A reset GPU answers only a new session. Each retry disturbs the other GPUs.
LOST_RETRY_SECONDS = 60.0

NO_LIBRARY = "no NVIDIA driver on this machine: libnvidia-ml.so.1 was not found"
NOT_LOADED = "the NVIDIA driver's library is here, but the driver is not loaded"


class Driver:
    """Polls the driver. Its errors are not raised, but reported in the reading's status."""

    def __init__(self, processes: ProcReader, monotonic: Callable[[], float]) -> None:
        self._processes = processes
        self._monotonic = monotonic
        self._inventory = Inventory()
        self._pids: GpuPids | None = None
        self._nvml: ModuleType | None = None
        self._session: Session | None = None
        self._opened_s = 0.0

    @property
    def calling(self) -> str:
        """Return the name of the NVML call in progress, or "". Usable from any thread."""
        session = self._session
        return session.ask.calling if session else ""

    def poll(self) -> GpuReading:
        begun_s, t = time.monotonic(), time.time()
        status, text, gpus = self._read()
        return GpuReading(
            status=status, text=text, t=t, duration_s=time.monotonic() - begun_s, gpus=gpus,
            driver_version=self._session.driver_version if self._session else None,
        )  # fmt: skip

    def close(self) -> None:
        if self._session:
            self._session.close()
            self._session = None

    def _read(self) -> tuple[str, str, tuple[GpuSample, ...] | None]:
        nvml = self._load()
        if nvml is None:
            return "no_driver", NO_LIBRARY, ()
        if self._session and self._inventory.lost and self._session_age_s() >= LOST_RETRY_SECONDS:
            self.close()
        try:
            return "ok", "", self._poll_session(nvml)
        except nvml.NVMLError_DriverNotLoaded:
            self.close()
            return "no_driver", NOT_LOADED, ()
        except nvml.NVMLError as error:
            self.close()
            return "error", explain(nvml, error), None

    def _poll_session(self, nvml: ModuleType) -> tuple[GpuSample, ...]:
        if self._session:
            try:
                return self._session.poll()
            except nvml.NVMLError:
                self.close()  # the driver was reloaded: try once more with a new session
        self._pids = self._pids or GpuPids(self._processes)
        self._session = Session(nvml, self._pids, self._inventory)
        self._opened_s = self._monotonic()
        self._session.open()
        return self._session.poll()

    def _session_age_s(self) -> float:
        return self._monotonic() - self._opened_s

    def _load(self) -> ModuleType | None:
        if self._nvml is None:
            try:
                ctypes.CDLL(LIBRARY)
            except OSError:
                return None
            import pynvml  # noqa: PLC0415  (see the module's docstring)

            self._nvml = pynvml
        return self._nvml


def explain(nvml: ModuleType, error: Any) -> str:
    """Return the error with its remedy, if known."""
    remedies = (
        (nvml.NVMLError_LibRmVersionMismatch,
         "the driver was replaced while its old library was loaded: restart vllm-watch, and reboot if nvidia-smi fails too"),
        (nvml.NVMLError_NoPermission,
         "this user may not open /dev/nvidia*: give the container its GPUs, or the user those files"),
        (nvml.NVMLError_Unknown,
         "in a container, a systemd reload probably removed its GPU devices: restart the container"),
    )  # fmt: skip
    remedy = next(
        (text for kind, text in remedies if isinstance(error, kind)),
        "see nvidia-smi and the kernel's log",
    )
    return f"NVML error: {error} ({remedy})"
