"""Read all GPUs through NVML, one query at a time, with a deadline.

A driver call can block for minutes and cannot be cancelled, so all calls run in one daemon thread,
which is never replaced. The thread also shuts NVML down, because no other call may run during the
shutdown. pynvml takes 5 MB, so it is imported only if there is a library to load.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Protocol, TypeVar

import structlog

from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.sources.gpu_pids import GpuPids
from vllm_watch.sources.nvml_session import Session
from vllm_watch.sources.processes import ProcReader

LIBRARY = "libnvidia-ml.so.1"
# A reset GPU answers only a new session. Each retry disturbs the other GPUs.
LOST_RETRY_SECONDS = 60.0

NO_LIBRARY = "no NVIDIA driver on this machine: libnvidia-ml.so.1 was not found"
NOT_LOADED = "the NVIDIA driver's library is here, but the driver is not loaded"

# Seconds between searches for a driver, which may be loaded later.
NO_DRIVER_RECHECK_SECONDS = 60.0
# At the end, NVML gets this many seconds to shut down.
CLOSE_SECONDS = 5.0

log = structlog.get_logger()
_T = TypeVar("_T")

# NVML is process-wide, so after a configuration reload, a new source waits for the hung call of the old source.
_NVML = threading.Lock()


class Driver:
    """Polls the driver, which may be absent, loaded, reloaded or replaced.

    Its errors are not raised, but reported in the reading's status. Use it from one thread only.
    """

    def __init__(self, processes: ProcReader, monotonic: Callable[[], float]) -> None:
        self._processes = processes
        self._monotonic = monotonic
        self._seen: dict[int, GpuSample] = {}
        self._lost: dict[str, GpuSample] = {}
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
        age_s = self._monotonic() - self._opened_s
        if self._session and self._lost and age_s >= LOST_RETRY_SECONDS:
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
        self._session = Session(nvml, self._pids, self._seen, self._lost)
        self._opened_s = self._monotonic()
        self._session.open()
        return self._session.poll()

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


@dataclass(slots=True, eq=False)
class _Job:
    answer: "asyncio.Future[GpuReading]"
    begun_s: float
    late: GpuReading | None = None  # result of the previous poll, if that hung
    hung: bool = False


class GpuLimits(Protocol):
    """The `gpu` settings that a source reads."""

    @property
    def enabled(self) -> str: ...
    @property
    def deadline_seconds(self) -> float: ...


class NvmlSource:
    """Use an instance from one event loop at a time."""

    def __init__(
        self,
        settings: GpuLimits,
        processes: ProcReader,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._driver = Driver(processes, monotonic)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()  # at most one job, and None to end
        self._thread: threading.Thread | None = None
        self._job: _Job | None = None
        self._queued = False  # another source's call hangs
        self._absent: tuple[float, GpuReading] | None = None  # when no driver was seen
        self._status = ""
        self._closed = False

    async def read(self) -> GpuReading:
        """Concurrent calls share one poll."""
        if self._closed or self._settings.enabled == "off":
            return GpuReading(
                status="no_driver", text="reading GPUs is switched off", t=time.time()
            )
        reading = self._still_absent() or await self._poll()
        if reading.status == "no_driver" and self._settings.enabled == "on":
            text = (
                f"{reading.text}, though gpu.enabled is on: install the driver, or set it to auto"
            )
            reading = replace(reading, status="error", text=text, gpus=None)
        if reading.status != self._status:
            self._status = reading.status
            if reading.status == "ok":
                log.info("gpus_read", gpus=len(reading.gpus or ()), driver=reading.driver_version)
            elif reading.status == "no_driver":
                log.info("no_gpu_driver", text=reading.text)
            else:
                log.warning("gpus_unreadable", status=reading.status, text=reading.text)
        return reading

    async def close(self) -> None:
        self._closed = True
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        self._jobs.put(None)
        if self._job and self._job.hung and not self._job.answer.done():
            return
        await asyncio.to_thread(thread.join, CLOSE_SECONDS)

    def _still_absent(self) -> GpuReading | None:
        seen_s, reading = self._absent or (float("-inf"), None)
        if reading is None or self._monotonic() - seen_s >= NO_DRIVER_RECHECK_SECONDS:
            return None
        return replace(reading, t=time.time(), duration_s=0.0)

    async def _poll(self) -> GpuReading:
        job = self._job
        if job is None or job.answer.done():
            job = self._job = self._start(job)
        remaining_s = self._settings.deadline_seconds - (time.monotonic() - job.begun_s)
        if not job.hung and remaining_s > 0:
            await asyncio.wait((job.answer,), timeout=remaining_s)
        if not job.answer.done():
            job.hung = True
            return self._hung_reading(job)
        reading = job.answer.result()
        self._absent = (self._monotonic(), reading) if reading.status == "no_driver" else None
        return _with_late_xids(reading, job.late)

    def _start(self, before: _Job | None) -> _Job:
        late = before.answer.result() if before and before.hung else None
        job = _Job(asyncio.get_running_loop().create_future(), time.monotonic(), late)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return job

    def _serve(self) -> None:
        while job := self._jobs.get():
            self._queued = True
            with _NVML:
                self._queued = False
                try:
                    reading = self._driver.poll()
                except BaseException as error:
                    _from_thread(job.answer, job.answer.set_exception, error)
                    raise
            _from_thread(job.answer, job.answer.set_result, reading)
        with _NVML:
            self._driver.close()

    def _hung_reading(self, job: _Job) -> GpuReading:
        seconds = time.monotonic() - job.begun_s
        call = self._driver.calling
        # Reading /proc between NVML calls may block, too.
        cause = f"the NVIDIA driver has not answered {call}" if call else "/proc has not answered"
        if self._queued:
            cause = "the NVIDIA driver has not answered a call from before"
        text = f"{cause} for {seconds:.0f} s: see nvidia-smi and the kernel's log"
        return GpuReading(status="hung", text=text, t=time.time(), duration_s=seconds)


def _from_thread(
    answer: "asyncio.Future[GpuReading]", resolve: Callable[[_T], None], result: _T
) -> None:
    with suppress(RuntimeError):
        answer.get_loop().call_soon_threadsafe(resolve, result)


def _with_late_xids(reading: GpuReading, late: GpuReading | None) -> GpuReading:
    """Add the Xids of a late poll, because NVML reports each Xid only once."""
    codes = {
        gpu.uuid: gpu.xid_errors for gpu in (late.gpus or () if late else ()) if gpu.xid_errors
    }
    if not codes or reading.gpus is None:
        return reading
    gpus = tuple(
        replace(gpu, xid_errors=codes[gpu.uuid] + (gpu.xid_errors or ()))
        if gpu.uuid in codes
        else gpu
        for gpu in reading.gpus
    )
    return replace(reading, gpus=gpus)
