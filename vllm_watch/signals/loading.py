"""Measures how long the starts of one server take, and detects a start in progress."""

from collections import deque
from typing import ClassVar

from vllm_watch.samples.observation import Observation, ProcessState
from vllm_watch.signals import stored
from vllm_watch.signals.scales import MINUTE_SECONDS, ODD_TIMES, PAST_KEPT

START_SECONDS = 1800.0
"""A start takes at most this long. The largest models take 10 to 20 minutes from network storage."""


SAME_START_SECONDS = 2.0
"""Start times count as equal if they differ by at most this. They are computed from the boot time and kernel ticks, and the clock may be adjusted by a second."""


class Loading(stored.Kept):
    """Follows the starts of one server."""

    KEPT: ClassVar[stored.Fields] = {
        "starts_s": stored.last(PAST_KEPT),
        "life_start": stored.number_or_none,
        "answered_t": stored.number_or_none,
        "silent_s": stored.number_or_none,
        "loads_s": stored.number_or_none,
        "refused": stored.flag,
        "is_gone": stored.flag,
        "by": stored.text,
        "pids": lambda pids: {stored.count(pid) for pid in pids},
    }

    def __init__(self) -> None:
        self.starts_s: deque[float] = deque(maxlen=PAST_KEPT)
        self._life_start: float | None = None  # of the process that answered last
        self.answered_t: float | None = None
        self._silent_s: float | None = None
        self._refused = False
        self._loads_s: float | None = None
        self._pids: set[int] = set()
        self.by = ""
        self.is_gone = False

    @property
    def longest_s(self) -> float | None:
        return max(self.starts_s) if self.starts_s else None

    @property
    def attempts(self) -> int:
        return len(self._pids)

    def patience_s(self, usual_s: float) -> float:
        longest_s = self.longest_s
        if longest_s is None:
            return usual_s
        # The page cache may be cold, or a disk slower.
        return max(usual_s, min(ODD_TIMES * longest_s, START_SECONDS))

    def for_s(self, at_s: float) -> float | None:
        return None if self._loads_s is None else max(0.0, at_s - self._loads_s)

    def in_time(self, at_s: float) -> bool:
        loads_s = self.for_s(at_s)
        usual_s = START_SECONDS if self.longest_s is None else MINUTE_SECONDS
        return loads_s is not None and loads_s < self.patience_s(usual_s)

    def is_ending(self, process: ProcessState | None) -> bool:
        return lives_on(process, self._life_start)

    def look(self, at_s: float, observation: Observation) -> None:
        if observation.reading is not None:
            self._answered(at_s, observation)
            return
        if self._silent_s is None:
            self._silent_s = at_s
        self._refused = self._refused or observation.scrape.outcome == "refused"
        process = observation.process
        self.is_gone = process is not None and process.alive is False
        if process is not None and process.alive and process.start_time is not None:
            if self._life_start is None or not same_start(process.start_time, self._life_start):
                if len(self._pids) < PAST_KEPT:
                    self._pids.add(process.pid)
                self._begins(at_s, observation.t - process.start_time, f"process {process.pid}")
        elif self.is_gone:
            self._loads_s = None
        else:
            self._look_at_gpus(at_s, observation)

    def _answered(self, at_s: float, observation: Observation) -> None:
        reading = observation.reading
        start = None if reading is None else reading.server.process_start_time
        if self._silent_s is not None and self._refused:
            self._learn(observation.t, at_s - self._silent_s, start)
        self.answered_t = observation.t
        if start is not None:
            self._life_start = start
        self._silent_s, self._refused, self._loads_s, self.by = None, False, None, ""
        self._pids.clear()

    def _learn(self, t: float, silent_s: float, start: float | None) -> None:
        if start is None:
            took_s = silent_s  # an upper bound, because the start may have begun later
        elif self._life_start is not None and same_start(start, self._life_start):
            return  # the same process was unreachable
        else:
            took_s = min(t - start, silent_s) if self.answered_t is not None else t - start
        if 0.0 < took_s <= START_SECONDS:
            self.starts_s.append(took_s)

    def _look_at_gpus(self, at_s: float, observation: Observation) -> None:
        if self.answered_t is None:
            return
        for gpu in observation.gpus or ():
            for process in gpu.processes or ():
                begun = process.create_time
                is_vllm = "vllm" in " ".join((process.name or "", *(process.cmdline or ()))).lower()
                if is_vllm and begun is not None and begun >= self.answered_t:
                    self._begins(
                        at_s, observation.t - begun, f"process {process.pid} on GPU {gpu.index}"
                    )
                    return
        self._loads_s = None

    def _begins(self, at_s: float, ago_s: float, by: str) -> None:
        self.by = by
        self._loads_s = at_s - max(0.0, ago_s)


def same_start(a: float, b: float) -> bool:
    """Return True if both times may belong to the same start."""
    return abs(a - b) <= SAME_START_SECONDS


def lives_on(process: ProcessState | None, life_start: float | None) -> bool:
    """Return True if the process that started at `life_start` is known to be alive."""
    if process is None or process.start_time is None or life_start is None:
        return False
    return process.alive is True and same_start(process.start_time, life_start)
