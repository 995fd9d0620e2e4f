"""How long an engine's threads waited for a CPU: /proc/PID/task/TID/schedstat and its cgroup's cpu.stat.

An engine core is one busy loop on the host, and every step waits for the slowest of its threads and workers.
So what counts is the thread that waited longest between two looks: a step lost at least that. The sum over
threads would count the same moment many times, the main thread alone would not see what it waits for at a
barrier. Waiting because a cgroup's CPU limit is used up is in it, too; cpu.stat tells the two apart.

A process is held by its open folder in /proc, so a successor with the same PID cannot answer for it.
Source: proc(5), Documentation/scheduler/sched-stats.rst (second number: nanoseconds on a run queue),
Documentation/admin-guide/cgroup-v2.rst (cpu.stat).
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

from vllm_watch.samples.cpu import EngineCpu
from vllm_watch.samples.observation import Observation, Reading
from vllm_watch.sources import engine_processes
from vllm_watch.sources.process_listing import ProcessListing
from vllm_watch.sources.processes import ProcessFacts, ProcReader
from vllm_watch.support import threads

THREADS_MAX = 512
"""Of one engine, shared evenly by its processes, the main thread of each first: a core has some hundreds of
threads, most of which sleep. Reading one costs 7 µs."""

PROCESSES_MAX = 64
"""Of one engine: a core and its workers on this host; the largest have 16 GPUs."""

SEARCH_SECONDS = 60.0
"""How often an engine that was not found is looked for again, and one that was found is made sure of."""

LOST_SECONDS = 5.0
"""An engine whose processes have ended is looked for again so soon: a supervisor may have started it anew."""

LOOK_SECONDS_MAX = 1.0
"""A look takes milliseconds; one that lasts longer is left to end by itself, and says nothing."""

CGROUP_LEVELS_MAX = 8
"""Upwards from the engine's cgroup to one that has a limit: a container, its pod, its slice."""

TITLE_CHARACTERS_MAX = 60
"""Of a process's title; it is put into sentences."""

_FILE_BYTES_MAX = 4096
_PORT_OF_SCHEME = {"http": 80, "https": 443}


@dataclass(slots=True)
class _Process:
    """One that is read: its open folder, and what each thread had waited for by the last look."""

    pid: int
    name: str
    folder: int
    waited_ns: dict[str, int] | None = None  # None: not read yet

    @property
    def said(self) -> str:
        """Its title, with its PID."""
        return f"{self.name} (PID {self.pid})"

    def look(self, threads_max: int) -> int:
        """By how much the waits of the thread that waited longest have grown (ns). Raises OSError."""
        now = dict(thread_waits(self.folder, threads_max))
        if not now:
            raise ProcessLookupError(self.pid)
        before, self.waited_ns = self.waited_ns or {}, now
        return max(
            (ns - before[thread] for thread, ns in now.items() if thread in before), default=0
        )

    def is_stopped(self) -> bool:
        """By a signal, or by a debugger; False where it cannot be read."""
        with suppress(OSError, IndexError):
            return _read("stat", self.folder).rpartition(b")")[2].split()[0] in b"Tt"
        return False


@dataclass(slots=True)
class _Engine:
    processes: list[_Process]
    identity: tuple[object, ...]
    cgroup: Path | None = None  # the nearest one with a CPU limit
    waited_seconds: float = 0.0
    longest: _Process | None = None

    def look(self) -> float | None:
        """Read every process; None where one has ended, or where the kernel does not count waits."""
        if not self.processes:
            return None
        longest_ns, threads_max = 0, THREADS_MAX // len(self.processes)
        for each in self.processes:
            try:
                grown_ns = each.look(threads_max)
            except (OSError, ValueError, IndexError):
                return None
            if grown_ns > longest_ns:
                longest_ns, self.longest = grown_ns, each
        self.waited_seconds += longest_ns / 1e9
        return self.waited_seconds

    def core(self) -> str | None:
        """The process that schedules, with its PID; before vLLM 0.10.2 none has a title that says so."""
        return next(
            (each.said for each in self.processes if engine_processes.is_core(each.name)), None
        )

    def stopped(self) -> str | None:
        """The first process that is stopped (state T, or t in a debugger), with its PID."""
        return next((each.said for each in self.processes if each.is_stopped()), None)

    def has_ended(self) -> bool:
        """Is one of its processes no more?"""
        return any(not os.access("task", os.F_OK, dir_fd=each.folder) for each in self.processes)

    def close(self) -> None:
        for each in self.processes:
            os.close(each.folder)


class CpuWaits:
    """Follows the engines of one server on this host. `observe` is to be used from the event loop."""

    def __init__(
        self,
        url: str,
        procfs: Path = Path("/proc"),
        cgroupfs: Path = Path("/sys/fs/cgroup"),
        listing: ProcessListing | None = None,
    ) -> None:
        """`listing`, of the same `procfs`, may serve many targets."""
        parts = urlsplit(url)
        self._port = parts.port or _PORT_OF_SCHEME.get(parts.scheme)
        self._reader = ProcReader(procfs)
        self._listing = listing or ProcessListing(procfs)
        self._cgroupfs = cgroupfs
        self._engines: dict[str, _Engine] = {}
        self._sought: tuple[object, ...] = ()  # what was looked for last
        self._search_due_s = float("-inf")
        self._busy = self._closed = False
        self.pids: frozenset[int] = frozenset()
        """Of all processes of its engines, as last found."""

    async def observe(self, observation: Observation) -> tuple[EngineCpu, ...] | None:
        """How long they have waited by now; None where that cannot be told in time."""
        if self._busy or self._closed or observation.reading is None:
            return None
        if not self._engines and not self._is_search_due(observation.reading, time.monotonic()):
            return None  # no thread for nothing: most servers are not on this host
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
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(end, found)

        # A daemon thread: a process that is stuck in the kernel may block whoever asks for its command line.
        if not threads.begin(work):
            self._busy = False
            return None
        try:
            async with asyncio.timeout(LOOK_SECONDS_MAX):
                return await done
        except TimeoutError:
            return None

    def read(self, observation: Observation, at_s: float) -> tuple[EngineCpu, ...] | None:
        """Look, in this thread. `at_s`: monotonic."""
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
        """Let go of the processes: now, or when the look that is under way has ended."""
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
        """Those that are still the ones that were found."""
        opened = []
        for facts in islice(processes, PROCESSES_MAX):
            try:
                where = self._reader.procfs / str(facts.pid)
                folder = os.open(where, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                continue
            again = self._reader.read(facts.pid)
            if again is None or again.start_ticks != facts.start_ticks:
                os.close(folder)
                continue
            title = (facts.cmdline or (facts.name or "",))[0]
            opened.append(_Process(facts.pid, title[:TITLE_CHARACTERS_MAX], folder))
        return opened

    def _sample(self, name: str, engine: _Engine, at_s: float) -> EngineCpu | None:
        if engine.look() is None:
            if engine.has_ended():  # and not only uncounted: it may be back soon
                self._search_due_s = min(self._search_due_s, at_s + LOST_SECONDS)
            self._engines.pop(name).close()
            return None
        who, (periods, throttled) = engine.longest, _quota(engine.cgroup)
        return EngineCpu(
            engine=name, waited_seconds=engine.waited_seconds,
            pid=None if who is None else who.pid, name=None if who is None else who.name,
            core=engine.core(), stopped=engine.stopped(), quota_periods=periods, throttled_periods=throttled,
        )  # fmt: skip


def _sought(reading: Reading) -> tuple[float | None, tuple[str, ...]]:
    """Which server it is, and of which engines."""
    return reading.server.process_start_time, tuple(each.engine for each in reading.engines)


def thread_waits(folder: int, threads_max: int) -> Iterator[tuple[str, int]]:
    """(thread, nanoseconds that it has waited since its birth), the main thread first. Raises OSError."""
    tasks = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        for thread in islice(os.listdir(tasks), threads_max):
            with suppress(FileNotFoundError, ProcessLookupError):  # one that has just ended
                yield thread, int(_read(f"{thread}/schedstat", tasks).split()[1])
    finally:
        os.close(tasks)


def _limited_cgroup(root: Path, path: str | None) -> Path | None:
    """The nearest one upwards with a CPU limit. One outside what we see ("/../..") is not known."""
    parts = [] if path is None else path.strip("/").split("/")
    if ".." in parts:
        return None
    for level in range(len(parts), max(0, len(parts) - CGROUP_LEVELS_MAX), -1):
        folder = root.joinpath(*parts[:level])
        with suppress(OSError):
            if not _read(folder / "cpu.max").startswith(b"max"):
                return folder
    return None


def _quota(cgroup: Path | None) -> tuple[float | None, float | None]:
    """(periods of its CPU limit, those in which it was used up) so far."""
    if cgroup is None:
        return None, None
    try:
        words = _read(cgroup / "cpu.stat").split()
        said = dict(zip(words[::2], map(float, words[1::2]), strict=True))
        return said[b"nr_periods"], said[b"nr_throttled"]
    except (OSError, ValueError, KeyError):
        return None, None


def _read(path: str | Path, folder: int | None = None) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(descriptor, _FILE_BYTES_MAX)
    finally:
        os.close(descriptor)
