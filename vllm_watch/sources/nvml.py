"""Read all GPUs through NVML, one query at a time, with a deadline.

A driver call can block for minutes and cannot be cancelled, so all calls run in one daemon thread,
which is never replaced. The thread also shuts NVML down, because no other call may run during the
shutdown.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Protocol, TypeVar

import structlog

from vllm_watch.samples.gpu import GpuReading
from vllm_watch.sources.nvml_driver import Driver
from vllm_watch.sources.processes import ProcReader

# Seconds between searches for a driver, which may be loaded later.
NO_DRIVER_RECHECK_SECONDS = 60.0
# At the end, NVML gets this many seconds to shut down.
CLOSE_SECONDS = 5.0

log = structlog.get_logger()

_T = TypeVar("_T")

# NVML is process-wide, so after a configuration reload, a new source waits for the hung call of the old source.
_NVML = threading.Lock()


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
            self._log_status(reading)
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
        if self._absent is None:
            return None
        seen_s, reading = self._absent
        if self._monotonic() - seen_s >= NO_DRIVER_RECHECK_SECONDS:
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

    def _log_status(self, reading: GpuReading) -> None:
        if reading.status == "ok":
            log.info("gpus_read", gpus=len(reading.gpus or ()), driver=reading.driver_version)
        elif reading.status == "no_driver":
            log.info("no_gpu_driver", text=reading.text)
        else:
            log.warning("gpus_unreadable", status=reading.status, text=reading.text)


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
