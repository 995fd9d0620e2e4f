"""List the processes of this host once for all concurrent callers."""

import os
import threading
from itertools import islice
from pathlib import Path

from vllm_watch.sources.processes import ProcessFacts, ProcReader

LISTED_MAX = 65_536

FRESH_SECONDS = 1.0
"""A listing is cached for this many seconds. A server takes longer to start, so a server that answers is in the listing."""


class ProcessListing:
    """Lists one procfs tree; usable from any thread."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._reader = ProcReader(procfs)
        self._lock = threading.Lock()
        self._listed: dict[int, ProcessFacts] = {}
        self._listed_s = float("-inf")

    def processes(self, at_s: float) -> dict[int, ProcessFacts]:
        """Return PID → process; empty if /proc is unreadable. `at_s` is the monotonic time."""
        with self._lock:
            if at_s - self._listed_s > FRESH_SECONDS:
                self._listed, self._listed_s = self._list(), at_s
            return self._listed

    def _list(self) -> dict[int, ProcessFacts]:
        try:
            names = (name for name in os.listdir(self._reader.procfs) if name.isdigit())
        except OSError:
            return {}
        read = ((pid, self._reader.read(pid)) for pid in map(int, islice(names, LISTED_MAX)))
        found = {pid: facts for pid, facts in read if facts is not None}
        self._reader.forget_others(())  # keep no cache for such rare listings
        return found
