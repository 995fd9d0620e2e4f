"""Measure the CPU waits of an engine's threads.

Each step of the engine waits for the slowest thread, so each poll counts only the longest wait of
any thread. cpu.stat shows if a CPU limit caused the wait. Source: proc(5),
Documentation/scheduler/sched-stats.rst, Documentation/admin-guide/cgroup-v2.rst.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from vllm_watch.samples.observation import EngineCpu, Observation, Reading
from vllm_watch.samples.target import PORT_OF_SCHEME
from vllm_watch.sources import engine_processes
from vllm_watch.sources.processes import ProcessFacts, ProcessListing, ProcReader, read_file
from vllm_watch.support import threads

THREADS_MAX = 512
"""At most this many threads are read per engine, divided evenly among its processes. A core has
some hundred threads. Reading one thread takes 7 µs."""

PROCESSES_MAX = 64
"""At most this many processes are read per engine. The largest hosts have 16 GPUs, with one worker each."""

SEARCH_SECONDS = 60.0
"""Seconds between searches for a missing engine, and between checks of a known one."""

LOST_SECONDS = 5.0
"""If processes end, the next search begins after this many seconds, because a supervisor may restart them."""

READ_SECONDS_MAX = 1.0
"""A poll that takes longer than this is dropped."""

CGROUP_LEVELS_MAX = 8
"""At most this many cgroups are searched for a CPU limit. A container, its pod and its slice may each have one."""

TITLE_CHARACTERS_MAX = 60


@dataclass(slots=True)
class _Process:
    pid: int
    name: str
    folder: int
    waited_ns: dict[str, int] | None = None

    @property
    def label(self) -> str:
        return f"{self.name} (PID {self.pid})"

    def read(self, threads_max: int) -> int:
        """Return the longest wait of a thread since the last read, in nanoseconds. Raises OSError."""
        now = dict(thread_waits(self.folder, threads_max))
        if not now:
            raise ProcessLookupError(self.pid)
        before, self.waited_ns = self.waited_ns or {}, now
        return max(
            (ns - before[thread] for thread, ns in now.items() if thread in before), default=0
        )

    def is_stopped(self) -> bool:
        with suppress(OSError, IndexError):
            return read_file("stat", self.folder).rpartition(b")")[2].split()[0] in b"Tt"
        return False


@dataclass(slots=True)
class _Engine:
    processes: list[_Process]
    identity: tuple[object, ...]
    cgroup: Path | None = None
    waited_seconds: float = 0.0
    longest: _Process | None = None

    def read(self) -> float | None:
        if not self.processes:
            return None
        longest_ns, threads_max = 0, THREADS_MAX // len(self.processes)
        for each in self.processes:
            try:
                grown_ns = each.read(threads_max)
            except (OSError, ValueError, IndexError):
                return None
            if grown_ns > longest_ns:
                longest_ns, self.longest = grown_ns, each
        self.waited_seconds += longest_ns / 1e9
        return self.waited_seconds

    def core(self) -> str | None:
        """Return the core's title and PID. Before vLLM 0.10.2 the result is None, because cores have no title."""
        return next(
            (each.label for each in self.processes if engine_processes.is_core(each.name)), None
        )

    def stopped(self) -> str | None:
        return next((each.label for each in self.processes if each.is_stopped()), None)

    def has_ended(self) -> bool:
        return any(not os.access("task", os.F_OK, dir_fd=each.folder) for each in self.processes)

    def close(self) -> None:
        for each in self.processes:
            os.close(each.folder)


class CpuWaits:
    """Measures CPU waits; call `observe` from the event loop."""

    def __init__(
        self,
        url: str,
        procfs: Path = Path("/proc"),
        cgroupfs: Path = Path("/sys/fs/cgroup"),
        listing: ProcessListing | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._port = parts.port or PORT_OF_SCHEME.get(parts.scheme)
        self._reader = ProcReader(procfs)
        self._listing = listing or ProcessListing(procfs)
        self._cgroupfs = cgroupfs
        self._engines: dict[str, _Engine] = {}
        self._sought: tuple[object, ...] = ()
        self._search_due_s = float("-inf")
        self._busy = self._closed = False
        self.pids: frozenset[int] = frozenset()

    async def observe(self, observation: Observation) -> tuple[EngineCpu, ...] | None:
        if self._busy or self._closed or observation.reading is None:
            return None
        if not self._engines and not self._is_search_due(observation.reading, time.monotonic()):
            return None  # most servers are not on this host: start no thread
        self._busy = True
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[EngineCpu, ...] | None] = loop.create_future()

        def end(found: tuple[EngineCpu, ...] | None) -> None:
            self._busy = False
            if self._closed:
                self.close()
            if not done.done():
                done.set_result(found)

        def work() -> None:
            found = None
            try:
                found = self.read(observation, time.monotonic())
            finally:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(end, found)

        # Read in a daemon thread, because a process that is stuck in the kernel may block the reader of its command line.
        if not threads.begin(work):
            self._busy = False
            return None
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                return await done
        except TimeoutError:
            return None

    def read(self, observation: Observation, at_s: float) -> tuple[EngineCpu, ...] | None:
        reading = observation.reading
        if reading is None or not reading.engines:
            return None
        if self._is_search_due(reading, at_s):
            self._search_due_s = at_s + SEARCH_SECONDS
            self._sought = sought = _sought(reading)
            self._search(*sought, at_s)
        samples = [self._sample(name, engine, at_s) for name, engine in list(self._engines.items())]
        known = tuple(each for each in samples if each is not None)
        return known or None

    def close(self) -> None:
        self._closed = True
        if not self._busy:
            for name in list(self._engines):
                self._engines.pop(name).close()

    def _is_search_due(self, reading: Reading, at_s: float) -> bool:
        return at_s >= self._search_due_s or _sought(reading) != self._sought

    def _search(self, started: float | None, names: tuple[str, ...], at_s: float) -> None:
        found = engine_processes.find(self._listing.processes(at_s), started, self._port, names)
        self.pids = frozenset(each.pid for processes in found.values() for each in processes)
        for name in self._engines.keys() - found.keys():
            self._engines.pop(name).close()
        for name, processes in found.items():
            identity = tuple((each.pid, each.start_ticks) for each in processes)
            known = self._engines.get(name)
            if known is None or known.identity != identity:
                if known is not None:
                    known.close()
                self._engines[name] = _Engine(self._open(processes), identity)
            self._engines[name].cgroup = _limited_cgroup(self._cgroupfs, processes[0].cgroup)

    def _open(self, processes: Iterable[ProcessFacts]) -> list[_Process]:
        opened = []
        for facts in islice(processes, PROCESSES_MAX):
            try:
                path = self._reader.procfs / str(facts.pid)
                folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                continue
            again = self._reader.read(facts.pid)
            if again is None or again.start_ticks != facts.start_ticks:
                os.close(folder)
                continue
            opened.append(_Process(facts.pid, facts.title[:TITLE_CHARACTERS_MAX], folder))
        return opened

    def _sample(self, name: str, engine: _Engine, at_s: float) -> EngineCpu | None:
        if engine.read() is None:
            if engine.has_ended():
                self._search_due_s = min(self._search_due_s, at_s + LOST_SECONDS)
            self._engines.pop(name).close()
            return None
        longest, (periods, throttled) = engine.longest, _quota(engine.cgroup)
        return EngineCpu(
            engine=name, waited_seconds=engine.waited_seconds,
            pid=None if longest is None else longest.pid, name=None if longest is None else longest.name,
            core=engine.core(), stopped=engine.stopped(), quota_periods=periods, throttled_periods=throttled,
        )  # fmt: skip


def _sought(reading: Reading) -> tuple[float | None, tuple[str, ...]]:
    return reading.server.process_start_time, tuple(each.engine for each in reading.engines)


def thread_waits(folder: int, threads_max: int) -> Iterator[tuple[str, int]]:
    """Yield each thread and the nanoseconds it has waited, the main thread first. Raises OSError."""
    tasks = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        for thread in islice(os.listdir(tasks), threads_max):
            with suppress(FileNotFoundError, ProcessLookupError):
                yield thread, int(read_file(f"{thread}/schedstat", tasks).split()[1])
    finally:
        os.close(tasks)


def _limited_cgroup(root: Path, path: str | None) -> Path | None:
    parts = [] if path is None else path.strip("/").split("/")
    if ".." in parts:
        return None
    for level in range(len(parts), max(0, len(parts) - CGROUP_LEVELS_MAX), -1):
        folder = root.joinpath(*parts[:level])
        with suppress(OSError):
            if not read_file(folder / "cpu.max").startswith(b"max"):
                return folder
    return None


def _quota(cgroup: Path | None) -> tuple[float | None, float | None]:
    if cgroup is None:
        return None, None
    try:
        words = read_file(cgroup / "cpu.stat").split()
        stat = dict(zip(words[::2], map(float, words[1::2]), strict=True))
        return stat[b"nr_periods"], stat[b"nr_throttled"]
    except (OSError, ValueError, KeyError):
        return None, None
