"""A watcher's state folder: one file, its worker, and the tables that are kept in it."""

from pathlib import Path

from vllm_watch.state.incidents import IncidentTable
from vllm_watch.state.journal import Journal
from vllm_watch.state.ledger import LedgerTable
from vllm_watch.state.worker import Tell, Worker


class StateFolder:
    """Held for this process from the first use until `close`."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        """`tell` is called in the event loop after each attempt to write."""
        self.worker = Worker(folder, tell)
        self.incidents = IncidentTable(self.worker)
        self.journal = Journal(self.worker)
        self.ledger = LedgerTable(self.worker)

    async def close(self) -> None:
        """Write what waits, if that takes no longer than a moment, and let the folder go."""
        await self.worker.close()
