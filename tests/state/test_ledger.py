"""The table of what notifiers were told: what a write says of the file that it went to."""

import pytest

from vllm_watch.state import file
from vllm_watch.state.ledger import LedgerTable, Row
from vllm_watch.state.worker import Worker

KEY = ("pager", "i1", "opened")
ROW = Row(t=1.0, sent_t=2.0, message="m1", said={"id": "i1"})


@pytest.fixture
async def worker(tmp_path):
    one = Worker(tmp_path, lambda *_: None)
    yield one
    await one.close()


async def test_a_write_that_nothing_was_read_before_is_written(worker):
    table = LedgerTable(worker)
    assert await table.write({KEY: ROW}) is True
    assert await table.read() == [(KEY, ROW)]
    assert await table.write({KEY: None}) is True
    assert await table.read() == []


async def test_a_file_that_was_damaged_before_it_was_read_takes_the_first_write(worker, tmp_path):
    """Nobody has to write again what was never in it."""
    (tmp_path / file.NAME).write_bytes(b"no database " * 1000)
    table = LedgerTable(worker)
    assert await table.read() == []
    assert await table.write({KEY: ROW}) is True


async def test_a_file_that_takes_the_place_of_another_takes_the_second_write(worker, tmp_path):
    """The first says that all rows are missing, and writes none."""
    table = LedgerTable(worker)
    await table.write({KEY: ROW})
    file.move_aside(tmp_path, 1.0)
    assert await table.write({KEY: ROW}) is False
    assert await table.read() == []
    file.move_aside(tmp_path, 2.0)
    assert await table.write({KEY: ROW}) is False
    assert await table.write({KEY: ROW}) is True
