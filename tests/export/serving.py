"""The daemon's real server over a board, for the time of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vllm_watch.board.board import Board
from vllm_watch.export.server import Server


@asynccontextmanager
async def serving(
    board: Board, port: int = 0, host: str = "127.0.0.1", **server: object
) -> AsyncIterator[Server]:
    """A server for a board, until it is left; on a port of its own unless one is named."""
    one = Server(board, host=host, port=port, **({"ready": lambda: None} | server))  # type: ignore[arg-type]
    await one.start()
    try:
        yield one
    finally:
        await one.stop()
