"""A watcher's state folder: one file, its worker and its tables."""

import asyncio
from pathlib import Path

from vllm_watch.state.charts import FOLDER, ChartTable
from vllm_watch.state.incidents import IncidentTable
from vllm_watch.state.journal import Journal
from vllm_watch.state.ledger import LedgerTable
from vllm_watch.state.worker import Tell, Worker


class StateFolder:
    """Locked for this process from first use until `close`."""

    def __init__(self, folder: Path, tell: Tell, tell_charts: Tell) -> None:
        """Both are called in the event loop after each write, `tell_charts` for the charts' file."""
        self.worker = Worker(folder, tell)
        self.incidents = IncidentTable(self.worker)
        self.journal = Journal(self.worker)
        self.ledger = LedgerTable(self.worker)
        self.charts = ChartTable(Worker(folder / FOLDER, tell_charts))

    async def close(self) -> None:
        """Write pending rows if that takes only a moment, and release the folder."""
        await asyncio.gather(self.worker.close(), self.charts.worker.close())
