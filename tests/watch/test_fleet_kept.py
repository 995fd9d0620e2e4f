"""One record of an incident: on disk, on the board and for who is told; also of the next run of the watcher."""

import json
import sqlite3
import time
from contextlib import asynccontextmanager, closing
from dataclasses import replace

from tests.detectors.looks import engine, seen, silent
from vllm_watch.board.board import Board, Looked
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.samples.target import WATCHER, Target
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.vllm import Look
from vllm_watch.state import file
from vllm_watch.state.folder import StateFolder
from vllm_watch.watch.host_watch import HostWatch
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.publishing import Publisher
from vllm_watch.watch.watch import Watch

NAMES = ("a", "b", "c", "d")
TARGETS = {name: Target(name=name, url=f"http://{name}:8000", group=name) for name in NAMES}


class Desk:
    """One run of the watcher: all that stands between a scrape and who acts."""

    def __init__(self, folder):
        self.state = StateFolder(folder, lambda *_: None, lambda *_: None)
        self.board, self.fleet = Board(), Fleet()
        self.memory = Memory(self.state.incidents, self.board)
        self.publisher = Publisher(self.board, self.fleet, FlightRecorder(), self.memory, (self,))
        self.watches = {name: Watch(name) for name in NAMES}
        self.told = []

    async def begin(self, names=NAMES):
        await self.memory.open()
        self.publisher.open(HostWatch("localhost"))
        for name in names:
            self.memory.recall(self.watches[name], TARGETS[name])
            self.board.add_target(TARGETS[name], 5.0)
        self.publisher.take_up({name: (TARGETS[name], self.watches[name]) for name in names})

    def saw(self, target, events):
        self.told += [(each.event, each.incident.target, each.incident.severity) for each in events]

    def scrape(self, second, way=None):
        for name in NAMES:
            look = seen(second, engine(1000 + second)) if way is None else silent(second, way)
            look = replace(look, target=name, t=BEGAN_T + second, monotonic_s=None)
            events = self.watches[name].observe(look)
            self.publisher.look(
                TARGETS[name], self.watches[name], Look(look, None, ()), self.watches[name].signals,
                events, Looked.now().ended(5.0, 4.0), 0.0,
            )  # fmt: skip

    @property
    def shown(self):
        return {
            each.id: (each.target, each.severity, each.restart_advised, each.related)
            for entry in self.board.all_entries() for each in entry.incidents.open.values()
        }  # fmt: skip


BEGAN_T = time.time() - 300.0


@asynccontextmanager
async def run(folder):
    desk = Desk(folder)
    await desk.begin()
    try:
        yield desk
    finally:
        await desk.state.close()


def kept(folder):
    """What is open on the disk."""
    with closing(sqlite3.connect(folder / file.NAME)) as connection:
        rows = connection.execute("SELECT event FROM incident WHERE resolved_t IS NULL")
        found = [json.loads(event) for (event,) in rows]
    return {
        each["id"]: (each["target"], each["severity"], each["restart_advised"], tuple(each.get("related", ())))
        for each in found
    }  # fmt: skip


async def outage(folder):
    """All fall silent; returns what everybody was shown of it at the end of the run."""
    async with run(folder) as desk:
        for second in range(0, 100, 5):
            desk.scrape(second)
        for second in range(100, 200, 5):
            desk.scrape(second, "read_timeout")
        shown = desk.shown
    assert {(target, severity) for target, severity, *_ in shown.values()} == {
        (WATCHER, "page"), *((name, "ticket") for name in NAMES),
    }  # fmt: skip
    return shown


async def test_what_is_kept_is_what_is_shown(tmp_path):
    """Milder, without advice, and linked: as the fleet has made it."""
    assert await outage(tmp_path) == kept(tmp_path)


async def test_the_next_run_shows_the_same_before_it_scrapes_anything(tmp_path):
    """Nothing is told anew, nothing ends; the same is on the disk after it."""
    shown = await outage(tmp_path)
    async with run(tmp_path) as desk:
        assert (desk.shown, desk.told) == (shown, [])
        for second in range(205, 300, 5):
            desk.scrape(second, "read_timeout")
        assert (desk.shown, desk.told) == (shown, [])
    assert kept(tmp_path) == shown


async def test_what_a_previous_release_has_left_is_held_before_anybody_is_told(tmp_path):
    """Pages and advice of many that fell together, and nothing of the fleet: tickets, and one page once they are scraped."""
    shown = await outage(tmp_path)
    with closing(sqlite3.connect(tmp_path / file.NAME)) as connection, connection:
        connection.execute("DELETE FROM watch WHERE target = ?", (WATCHER,))
        connection.execute("DELETE FROM incident WHERE target = ?", (WATCHER,))
        connection.execute("UPDATE incident SET event = replace(event, 'ticket', 'page')")
    async with run(tmp_path) as desk:
        assert {severity for _, severity, *_ in desk.shown.values()} == {"ticket"}
        assert {advised for *_, advised, _ in desk.shown.values()} == {False}
        assert desk.shown.keys() == {
            name for name, (target, *_) in shown.items() if target != WATCHER
        }
        for second in range(205, 300, 5):
            desk.scrape(second, "read_timeout")
        assert ("opened", WATCHER, "page") in desk.told
        assert {target for _, target, severity in desk.told if severity == "page"} == {WATCHER}
    assert kept(tmp_path) == desk.shown
