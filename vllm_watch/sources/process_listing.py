"""All processes of this host, listed once for everyone who asks at about the same time.

Each target on this host looks for its engine's processes when it is first seen and once a minute. A listing
reads some files of every process, so a thousand targets must not each make their own.
"""

import os
import threading
from itertools import islice
from pathlib import Path

from vllm_watch.sources.processes import ProcessFacts, ProcReader

LISTED_MAX = 65_536
"""Processes that are looked through; more are left out."""

FRESH_SECONDS = 1.0
"""A listing serves so long. A server answers long after its processes began, so none that is asked for is missed."""


class ProcessListing:
    """Lists one procfs tree; for use from any thread."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._reader = ProcReader(procfs)
        self._lock = threading.Lock()
        self._listed: dict[int, ProcessFacts] = {}
        self._listed_s = float("-inf")

    def processes(self, at_s: float) -> dict[int, ProcessFacts]:
        """By PID, not older than FRESH_SECONDS at `at_s` (monotonic); empty where the tree cannot be read."""
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
        self._reader.forget_others(())  # looked through now and then, not worth the memory
        return found
