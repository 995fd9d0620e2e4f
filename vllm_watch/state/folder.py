"""A watcher's state folder: one file, its worker, and the tables that are kept in it."""

import asyncio
from pathlib import Path

from vllm_watch.state.charts import FOLDER, ChartTable
from vllm_watch.state.incidents import IncidentTable
from vllm_watch.state.journal import Journal
from vllm_watch.state.ledger import LedgerTable
from vllm_watch.state.worker import Tell, Worker


class StateFolder:
    """Held for this process from the first use until `close`."""

    def __init__(self, folder: Path, tell: Tell, tell_charts: Tell) -> None:
        """Both are called in the event loop after each attempt to write, `tell_charts` of the charts' own file."""
        self.worker = Worker(folder, tell)
        self.incidents = IncidentTable(self.worker)
        self.journal = Journal(self.worker)
        self.ledger = LedgerTable(self.worker)
        self.charts = ChartTable(Worker(folder / FOLDER, tell_charts))

    async def close(self) -> None:
        """Write what waits, if that takes no longer than a moment, and let the folder go."""
        await asyncio.gather(self.worker.close(), self.charts.worker.close())
