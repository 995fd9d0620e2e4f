"""How long this server's starts take, and whether one is under way.

vLLM refuses connections while it loads its weights, for seconds or for twenty minutes: a refused
connection alone does not tell a server that starts from one that is gone. What tells is its process,
where this host's can be seen, a new vLLM process on the GPUs, and how long its starts took before.
"""

from collections import deque
from typing import Any

from vllm_watch.samples.observation import Observation, ProcessState
from vllm_watch.signals import stored

START_SECONDS = 1800.0
"""How long a start may take of which nothing is known: loading the weights of the largest models from
network storage takes 10 to 20 minutes."""

PATIENCE_FACTOR = 1.5
"""A start may take longer than the longest seen by half: cold page cache, a slower disk."""

PATIENCE_SECONDS_MIN = 60.0
"""Below this half as much again is a few seconds, which is no surprise."""

STARTS_KEPT = 8

SAME_START_SECONDS = 2.0
"""Two clocks tell the start of one process: the kernel's ticks since boot, and Unix time of that boot."""

_TIMES = ("life_start", "answered_t", "silent_s", "loads_s")


class Loading:
    """Follows the starts of one server. All it knows are bounded numbers that may be kept and given back."""

    def __init__(self) -> None:
        self.starts_s: deque[float] = deque(maxlen=STARTS_KEPT)  # how long each took, oldest first
        self._life_start: float | None = None  # Unix time at which the process that answered began
        self._answered_t: float | None = None  # Unix time of the last answer
        self._silent_s: float | None = None  # since when it does not answer
        self._refused = False
        self._loads_s: float | None = None  # since when it is known to load
        self._pids: set[int] = set()  # processes seen to load in this silence
        self.by = ""  # what shows that it loads
        self.is_gone = False  # its process is known not to be there

    def export_state(self) -> dict[str, Any]:
        """Return all as plain values."""
        return {
            "starts_s": list(self.starts_s),
            **{name: getattr(self, "_" + name) for name in _TIMES},
            "refused": self._refused,
            "is_gone": self.is_gone,
            "by": self.by,
            "pids": sorted(self._pids),
        }

    @classmethod
    def restored(cls, state: stored.Stored) -> "Loading":
        """Go on as it was kept. Raises one of stored.DAMAGE."""
        loading = cls()
        loading.starts_s.extend(stored.numbers(state["starts_s"]))
        for name in _TIMES:
            setattr(loading, "_" + name, stored.number_or_none(state[name]))
        loading._refused, loading.is_gone = (
            stored.flag(state["refused"]),
            stored.flag(state["is_gone"]),
        )
        loading.by, loading._pids = (
            stored.text(state["by"]),
            {stored.count(pid) for pid in state["pids"]},
        )
        return loading

    @property
    def ever_up(self) -> bool:
        """Was it ever seen to answer?"""
        return self._answered_t is not None

    @property
    def longest_s(self) -> float | None:
        """The longest start seen of this server; None: none was."""
        return max(self.starts_s) if self.starts_s else None

    @property
    def attempts(self) -> int:
        """Processes that were started in this silence, none of which has answered yet."""
        return len(self._pids)

    def patience_s(self, usual_s: float) -> float:
        """How long a start may take: `usual_s`, or what this server was seen to need."""
        longest_s = self.longest_s
        if longest_s is None:
            return usual_s
        return max(usual_s, min(PATIENCE_FACTOR * longest_s, START_SECONDS))

    def for_s(self, at_s: float) -> float | None:
        """For how long it has been known to load; None: nothing shows that it does."""
        return None if self._loads_s is None else max(0.0, at_s - self._loads_s)

    def in_time(self, at_s: float) -> bool:
        """Is it known to load, for no longer than its starts take?"""
        loads_s = self.for_s(at_s)
        usual_s = START_SECONDS if self.longest_s is None else PATIENCE_SECONDS_MIN
        return loads_s is not None and loads_s < self.patience_s(usual_s)

    def is_ending(self, process: ProcessState | None) -> bool:
        """Does the very process that answered before live on, though its port is closed?"""
        return lives_on(process, self._life_start)

    def look(self, at_s: float, observation: Observation) -> None:
        """Take one look in."""
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
                if len(self._pids) < STARTS_KEPT:
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
        self._answered_t = observation.t
        if start is not None:  # else: who answers is not told, and was told before
            self._life_start = start
        self._silent_s, self._refused, self._loads_s, self.by = None, False, None, ""
        self._pids.clear()

    def _learn(self, t: float, silent_s: float, start: float | None) -> None:
        """It answers again after it refused: how long did it load?"""
        if start is None:
            took_s = silent_s  # at most: it may have been away before
        elif self._life_start is not None and same_start(start, self._life_start):
            return  # the same process: the way to it was broken
        else:
            took_s = min(t - start, silent_s) if self._answered_t is not None else t - start
        if 0.0 < took_s <= START_SECONDS:
            self.starts_s.append(took_s)

    def _look_at_gpus(self, at_s: float, observation: Observation) -> None:
        """A vLLM process on this host's GPUs that began after the last answer is one that loads."""
        if self._answered_t is None:
            return
        for gpu in observation.gpus or ():
            for process in gpu.processes or ():
                begun = process.create_time
                is_vllm = "vllm" in " ".join((process.name or "", *(process.cmdline or ()))).lower()
                if is_vllm and begun is not None and begun >= self._answered_t:
                    self._begins(
                        at_s, observation.t - begun, f"process {process.pid} on GPU {gpu.index}"
                    )
                    return
        self._loads_s = None

    def _begins(self, at_s: float, ago_s: float, by: str) -> None:
        self.by = by
        self._loads_s = at_s - max(0.0, ago_s)


def same_start(a: float, b: float) -> bool:
    """Are these two Unix times at which one process began?"""
    return abs(a - b) <= SAME_START_SECONDS


def lives_on(process: ProcessState | None, life_start: float | None) -> bool:
    """Is this the process that began at Unix time `life_start`, and alive? False where either is not known."""
    return (
        process is not None
        and process.alive is True
        and process.start_time is not None
        and life_start is not None
        and same_start(process.start_time, life_start)
    )
