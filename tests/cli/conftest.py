"""A daemon's real server over a board, a fake driver, and processes that end with their test."""

import pytest

from tests.cli.top_screen import add, engine
from tests.leftovers import Leftovers
from tests.nvml_stub import NvmlStub
from vllm_watch.board.board import Board
from vllm_watch.export.server import Server


@pytest.fixture
async def board():
    """A daemon's board with one engine that serves."""
    board = Board()
    add(board, "chat-0", engine("0", "serving"))
    return board


@pytest.fixture
async def server(board):
    """The daemon's real server over the board."""
    server = Server(board, host="127.0.0.1", port=0, ready=lambda: None)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The fake driver, compiled once."""
    folder = tmp_path_factory.mktemp("nvml")
    NvmlStub(folder).build()
    return folder


@pytest.fixture
def left():
    """Processes that end with the test."""
    with Leftovers() as leftovers:
        yield leftovers
