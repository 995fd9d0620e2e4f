"""A watcher's state folder: one file, its worker and its tables."""

import asyncio
from pathlib import Path

from vllm_watch.state.charts import FOLDER, ChartTable
from vllm_watch.state.incidents import IncidentTable
from vllm_watch.state.journal import Journal
from vllm_watch.state.ledger import LedgerTable
from vllm_watch.state.worker import OnWrite, Worker


class StateFolder:
    """The folder, locked for this process from first use until `close`."""

    def __init__(self, folder: Path, on_write: OnWrite, on_chart_write: OnWrite) -> None:
        self.worker = Worker(folder, on_write)
        self.incidents = IncidentTable(self.worker)
        self.journal = Journal(self.worker)
        self.ledger = LedgerTable(self.worker)
        self.charts = ChartTable(Worker(folder / FOLDER, on_chart_write))

    async def close(self) -> None:
        await asyncio.gather(self.worker.close(), self.charts.worker.close())
