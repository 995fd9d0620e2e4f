"""What outlives the watcher's process: through a real state folder, of a host as of a target."""

import sqlite3
import time
from contextlib import asynccontextmanager, closing

from tests.detectors.looks import engine, seen
from tests.watch.hosted import core, gpu
from vllm_watch.board.board import Board
from vllm_watch.board.health import StoreHealth
from vllm_watch.samples.target import Target
from vllm_watch.state import file
from vllm_watch.state.folder import StateFolder
from vllm_watch.watch.host_watch import HostWatch, ServerScrape
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.watch import Watch

HOST = "host:gpu-7"
NOW = time.time()
LOST = (gpu(0, core(11, 10), lost=True),)
SERVES = {"a": ServerScrape(up=True, serves=True, pids=frozenset({10, 11}))}


@asynccontextmanager
async def run(folder):
    """One run of the watcher: (its memory, its board, its watch of the host)."""
    board, host = Board(host="gpu-7"), HostWatch("gpu-7")
    state = None
    if folder is not None:
        board.store = StoreHealth(str(folder))
        state = StateFolder(folder, board.store.count, board.store.count_charts)
    memory = Memory(state.incidents if state else None, board)
    await memory.open()
    memory.recall_whole(host)
    try:
        yield memory, board, host
    finally:
        if state is not None:
            await state.close()


async def test_what_is_wrong_with_a_host_goes_on_under_its_id(tmp_path):
    """Shown at once by the next run, counted once, and still the concern of the server that ran there."""
    async with run(tmp_path) as (memory, board, host):
        (event,) = host.look(NOW, None, LOST, SERVES)
        memory.keep(host, HOST, [event])
    async with run(tmp_path) as (memory, board, host):
        assert memory.show(host) == []
        (shown,) = board.host.incidents.open.values()
        assert (shown.id, shown.opened_t, shown.concerns) == (event.incident.id, NOW, ("a",))
        assert board.host.incidents.opened["gpu_fault"] == 1
        assert host.look(NOW + 60, None, LOST, {"a": ServerScrape()}) == []
        assert [each.id for each in host.concerning("a")] == [event.incident.id]


async def test_what_nobody_follows_any_more_has_ended(tmp_path):
    """What was kept of the host is damaged: its incident ends, is told of, and the rest goes on."""
    async with run(tmp_path) as (memory, board, host):
        (event,) = host.look(NOW, None, LOST, SERVES)
        memory.keep(host, HOST, [event])
    with closing(sqlite3.connect(tmp_path / file.NAME)) as connection, connection:
        connection.execute("UPDATE watch SET state = replace(state, 'users', 'losers')")
    async with run(tmp_path) as (memory, board, host):
        assert board.store.errors == {"entry": 1}
        (end,) = memory.show(host)
        assert (end.event, end.incident.id) == ("resolved", event.incident.id)
        assert end.incident.resolution == "superseded"
        assert board.host.incidents.open == {}
        assert board.incidents.find(event.incident.id).resolution == "superseded"


async def test_a_host_and_a_target_are_kept_side_by_side(tmp_path):
    """Neither is taken for the other, nor does a target inherit from a host."""
    target = Target(name="a", url="http://a:8000", group="g")
    async with run(tmp_path) as (memory, _, host):
        host.look(NOW, None, LOST, SERVES)
        watch = Watch("a")
        watch.observe(seen(0, engine(1000)))
        memory.save(host, HOST)
        memory.save(watch, "g")
    async with run(tmp_path) as (memory, board, host):
        assert len(host.incidents) == 1
        watch = Watch("a")
        memory.recall(watch, target)
        assert watch.signals.target == "a"
        memory.recall(Watch("b"), Target(name="b", url="http://b:8000", group=""))
        assert board.store.errors == {}


async def test_without_a_state_folder_nothing_is_remembered_of_a_host():
    """And nothing breaks."""
    async with run(None) as (memory, board, host):
        memory.keep(host, HOST, host.look(NOW, None, LOST, SERVES))
        assert (board.store, memory.show(host)) == (None, [])
