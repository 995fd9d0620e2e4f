"""The journals of a daemon: one in its state folder, as long as that is its own, or one that is not kept."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from vllm_watch.errors import StateError
from vllm_watch.state import schema
from vllm_watch.state.journal import Journal

_T = TypeVar("_T")


class OwnJournal(Journal):
    """The journal of a state folder that several vllm-watch might be told to use: only its holder writes."""

    def __init__(self, folder: Path, is_ours: Callable[[], bool]) -> None:
        super().__init__(folder)
        self._is_ours = is_ours

    def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        if not self._is_ours():
            raise StateError(
                f"this vllm-watch does not hold its state folder {self._folder}",
                "Give each vllm-watch a --state-dir of its own; the log says what is wrong with this one",
            )
        return super()._run(work)


class PassingJournal(Journal):
    """For mode observe without a state folder: it ends with the process. Nothing may be done on it."""

    def __init__(self) -> None:
        super().__init__(Path())

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                ":memory:", isolation_level=None, check_same_thread=False
            )
            schema.migrate(self._connection)
            said = f'{{"t": {time.time()}}}'
            self._connection.execute("INSERT INTO standing VALUES ('begun', ?)", (said,))
        return self._connection
