"""What hangs is looked into once, on this host alone, and never in the way of who watches.

Only the list of processes is made up, and py-spy is a script: neither hangs when asked to.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.demo_board import signals
from tests.sources.test_engine_processes import CORE, INIT, SERVER, STARTED, WORKERS
from tests.sources.test_stacks import ALL, PRINTS, Listing
from tests.told import made, told
from vllm_watch.board.board import Board
from vllm_watch.incidents.incident import OPENED, UPDATED, IncidentEvent
from vllm_watch.samples.target import Target
from vllm_watch.sources import stacks
from vllm_watch.sources.stacks import Stacks
from vllm_watch.watch.hang_stacks import AT_ONCE_MAX, HangStacks

PROCFS = Path("/proc")
WAITS = "The other workers wait for VLLM::Worker_TP1 (PID 22): stopped (state T), waits in a collective: all_reduce"
WELL = {each.pid: each for each in (INIT, SERVER, CORE, *WORKERS)}


class Broken:
    """A /proc that cannot be read in a way that nobody thought of."""

    def processes(self, at_s):
        raise RuntimeError("no such luck")


@pytest.fixture
def story(tmp_path, monkeypatch):
    """Makes a target at some address, whose processes are those of `listing`; `noted` is what was said of it."""
    monkeypatch.setattr(stacks, "ONE_SECONDS", 60.0)
    monkeypatch.setattr(stacks, "ALL_SECONDS", 240.0)

    def told_of(url="http://127.0.0.1:8000", listing=None, script=PRINTS):
        return Story(tmp_path, url, listing or Listing(), script)

    return told_of


class Story:
    """A target that serves on engine 0, and what was noted of it."""

    def __init__(self, folder, url, listing, script):
        self.asked = folder / "asked"
        path = folder / "py-spy"
        path.write_text(f'#!/bin/sh\necho "$4 $$" >> {self.asked}\n{script}')
        path.chmod(0o700)
        self.board, self.noted = Board(), []
        self.board.add_target(Target(name="chat", url=url), 5.0)
        seen = signals("chat", "stalled", "It hangs.", STARTED + 900.0)
        self.board.publish(replace(seen, process_start_time=STARTED))
        note = lambda *said: self.noted.append(said)  # noqa: E731
        self.hangs = HangStacks(self.board, Stacks(listing, lambda: path), note, PROCFS)

    def runs(self):
        """[PID asked about, PID of the script] of each run."""
        if not self.asked.exists():
            return []
        return [line.split() for line in self.asked.read_text().splitlines()]

    async def saw(self, *events, ends=True):
        self.board.tell(events)
        self.hangs.saw("chat", events)
        if ends:
            await asyncio.gather(*self.hangs._tasks.values())


def opened(n=1, **more):
    """A stall opens."""
    (event,) = made(told(id=f"stall-{n}"))
    return IncidentEvent(OPENED, event.t, replace(event.incident, **more))


async def test_it_is_taken_once_for_an_incident(story):
    """However often the incident changes: the worker that the others wait for, by its PID."""
    one = story()
    await one.saw(opened())
    await one.saw(replace(opened(), event=UPDATED))
    ((target, name, said),) = one.noted
    assert (target, name) == ("chat", "stall-1")
    assert said.startswith(WAITS)
    assert [pid for pid, _ in one.runs()] == [str(pid) for pid in sorted(ALL) if pid > 1]


@pytest.mark.parametrize("more", [
    {"kind": "overload", "cause": "demand"}, {"resolved_t": 9.0}, {"stacks": "It stood there."},
    {"target": "other"},
])  # fmt: skip
async def test_what_needs_no_stacks(story, more):
    """No hang, over already, known before the watcher was restarted, or of another target."""
    one = story()
    await one.saw(opened(**more))
    assert one.runs() == []


@pytest.mark.parametrize(("url", "here"), [
    ("http://localhost:8000", True), ("http://192.0.2.7:8000", False), ("http://engine.example:8000", False),
])  # fmt: skip
async def test_only_on_this_host(story, url, here):
    """A process here with that port is not the server of another host."""
    one = story(url)
    await one.saw(opened())
    assert bool(one.noted) is here


async def test_they_are_bounded_and_end_with_the_watcher(story):
    """More than these do not wait for their turn; neither a task nor py-spy outlives the daemon."""
    one = story(script="exec sleep 1000")
    for n in range(AT_ONCE_MAX + 5):
        await one.saw(opened(n, engine=str(n)), ends=False)
    async with asyncio.timeout(60):
        while not one.runs():
            await asyncio.sleep(0.01)
    tasks = one.hangs.stop()
    await asyncio.wait(tasks)
    assert len(tasks) == AT_ONCE_MAX
    assert one.noted == []
    ((_, script),) = one.runs()
    async with asyncio.timeout(60):
        while Path(f"/proc/{script}").exists():
            await asyncio.sleep(0.05)


async def test_what_fails_is_the_incident_without(story):
    """Nothing breaks, whatever goes wrong on the way."""
    one = story(listing=Broken())
    await one.saw(opened())
    assert one.noted == []
