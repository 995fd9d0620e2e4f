"""Watchers in processes of their own (watcher.py), and what they leave on the disk."""

import asyncio
import json
import subprocess
from pathlib import Path

from tests.restart.world import ROOT, Server, python
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

END_SECONDS = 60.0


class Watchers:
    """A program that forks one watcher after the other, which saves each of them the import."""

    def __init__(self, **environ: str) -> None:
        self._process = python(
            "-m", "tests.restart.watcher", stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
            env=environ,
        )  # fmt: skip

    def run(
        self, server: Server, point: str, fault: str | None = None, *, dies: bool = False
    ) -> int:
        """Run one to its end; return its exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"folder": str(server.folder), "point": point, "fault": fault, "dies": dies}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=END_SECONDS)


def on_disk(folder: Path) -> tuple[Attempt, ...]:
    """The attempts that a next watcher would find."""
    return asyncio.run(_attempts(folder / "state"))


async def _attempts(folder: Path) -> tuple[Attempt, ...]:
    folder.mkdir(exist_ok=True)
    journal = Journal(folder)
    try:
        return await journal.attempts()
    finally:
        await journal.close()
