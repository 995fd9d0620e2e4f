"""What hangs is looked into once, on this host alone, and never in the way of who watches."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.told import made, told
from vllm_watch.board.board import Board
from vllm_watch.incidents.incident import OPENED, UPDATED, IncidentEvent
from vllm_watch.incidents.lifecycle import Lifecycle
from vllm_watch.samples.target import Target
from vllm_watch.sources.sockets import local_v4
from vllm_watch.watch.hang_stacks import AT_ONCE_MAX, HangStacks

PROCFS = Path("/proc")


class Stacks:
    """Says one sentence, when it may."""

    def __init__(self):
        self.asked = []
        self.may = asyncio.Event()
        self.may.set()

    async def sentence(self, started, port, engines, engine):
        self.asked.append((port, engine))
        await self.may.wait()
        return "The other workers wait for one."


class Story:
    """A target at some address, and what was noted of it."""

    def __init__(self, url="http://127.0.0.1:8000"):
        self.board, self.stacks, self.noted = Board(), Stacks(), []
        self.board.add_target(Target(name="chat", url=url), 5.0)
        note = lambda *said: self.noted.append(said)  # noqa: E731
        self.hangs = HangStacks(self.board, self.stacks, note, PROCFS)

    async def saw(self, *events, ends=True):
        self.board.tell(events)
        self.hangs.saw("chat", events)
        if ends:
            await asyncio.gather(*self.hangs._tasks.values())


def opened(n=1, **more):
    """A stall opens."""
    (event,) = made(told(id=f"stall-{n}"))
    return IncidentEvent(OPENED, event.t, replace(event.incident, **more))


async def test_it_is_taken_once_for_an_incident():
    """However often the incident changes."""
    story = Story()
    await story.saw(opened())
    await story.saw(replace(opened(), event=UPDATED))
    assert story.noted == [("chat", "stall-1", "The other workers wait for one.")]
    assert story.stacks.asked == [(8000, "0")]


@pytest.mark.parametrize("more", [
    {"kind": "overload", "cause": "demand"}, {"resolved_t": 9.0}, {"stacks": "It stood there."},
    {"target": "other"},
])  # fmt: skip
async def test_what_needs_no_stacks(more):
    """No hang, over already, known before the watcher was restarted, or of another target."""
    story = Story()
    await story.saw(opened(**more))
    assert story.stacks.asked == []


@pytest.mark.parametrize(("url", "here"), [
    ("http://localhost:8000", True), ("http://192.0.2.7:8000", False), ("http://engine.example:8000", False),
])  # fmt: skip
async def test_only_on_this_host(url, here):
    """A process here with that port is not the server of another host."""
    story = Story(url)
    await story.saw(opened())
    assert bool(story.noted) is here


async def test_an_address_of_this_host_is_here():
    """Also one that is not loopback."""
    for address in local_v4(PROCFS / "self" / "net"):
        story = Story(f"http://{address}:8000")
        await story.saw(opened())
        assert story.noted


async def test_they_are_bounded_and_end_with_the_watcher():
    """More than these do not wait for their turn; none outlives the daemon."""
    story = Story()
    story.stacks.may.clear()
    for n in range(AT_ONCE_MAX + 5):
        await story.saw(opened(n, engine=str(n)), ends=False)
    tasks = story.hangs.stop()
    await asyncio.wait(tasks)
    assert len(tasks) == AT_ONCE_MAX
    assert story.noted == []


async def test_what_fails_is_the_incident_without():
    """Nothing breaks."""
    story = Story()
    story.stacks.sentence = None
    await story.saw(opened())
    assert story.noted == []


def test_a_note_of_what_is_over_is_dropped():
    """It may come late."""
    Lifecycle("chat").note_stacks("stall-1", "It stood there.")
