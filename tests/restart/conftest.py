"""A server of its own for each test that asks for one; nothing of it outlives the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.restart.world import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that hangs."""
    server = Server(tmp_path)
    server.start()
    server.hang()
    yield server
    server.end_all()
