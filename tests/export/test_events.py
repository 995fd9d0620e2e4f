"""Server-sent events over a real socket: what an open page is told, and when."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from tests.export.small_board import SERVING, T, small_board
from tests.export.test_server import ask, serving
from tests.told import made, told
from vllm_watch.board.board import LISTENERS_MAX, Board
from vllm_watch.export import events
from vllm_watch.samples.gpu import GpuReading


class Stream:
    """The events of one open page."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self, *, beats: bool = False) -> tuple[str, dict]:
        """The next event's name and data; comments and retry hints are skipped, and beats unless asked for."""
        name = ""
        async with asyncio.timeout(60):
            while True:
                line = (await self.answer.content.readline()).decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: ") and (beats or name != "beat"):
                    return name, json.loads(line.removeprefix("data: "))
                elif not line and self.answer.content.at_eof():
                    raise EOFError


@asynccontextmanager
async def listening(board: Board) -> AsyncIterator[tuple[str, Stream]]:
    """A server's base URL, and the events of a page that is open on it."""
    async with (
        serving(board) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/api/v1/events") as answer,
    ):
        yield url, Stream(answer)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The paces are the server's; tests need not wait at them."""
    monkeypatch.setattr(events, "BATCH_SECONDS", 0.05)
    monkeypatch.setattr(events, "URGENT_SECONDS", 0.02)
    monkeypatch.setattr(events, "BEAT_SECONDS", 0.2)


async def test_page_is_told_what_changed():
    """Hello, then targets, removals and GPUs as they happen, each in the words of the status."""
    board = small_board()
    async with listening(board) as (url, stream):
        assert stream.answer.headers["Content-Type"] == "text/event-stream"
        name, watcher = await stream.next()
        assert name == "hello"
        assert watcher["window_seconds"] == 60
        board.publish(replace(SERVING, state="stalled"))
        name, target = await stream.next()
        assert (name, target["name"], target["state"]) == ("target", "chat", "stalled")
        status = json.loads((await ask("GET", f"{url}/api/v1/status"))[1])
        assert target == status["targets"][0]
        board.remove_target("gone")
        assert await stream.next() == ("gone", {"name": "gone"})
        board.publish_gpus(GpuReading(status="hung", t=T))
        name, reading = await stream.next()
        assert (name, reading["status"]) == ("gpus", "hung")


async def test_page_is_told_of_incidents():
    """When one opens, changes and ends: the incident as the API says it, and its target with it."""
    board = small_board()
    async with listening(board) as (url, stream):
        await stream.next()
        for event, state in ((told(), "open"), (told("resolved", T + 9), "resolved")):
            board.tell(made(event))
            name, incident = await stream.next()
            assert (name, incident["id"], incident["state"]) == ("incident", event["id"], state)
            _, text, _ = await ask("GET", f"{url}/api/v1/incidents/{event['id']}")
            assert json.loads(text) == incident
            name, target = await stream.next()
            assert (name, len(target["incidents"])) == ("target", int(state == "open"))
        board.tell(made(told(id="last")))
        await stream.next()
        await stream.next()
        board.tell(made(told("resolved", id="last", resolution="target_gone")))
        board.remove_target("chat")
        assert await stream.next() == ("gone", {"name": "chat"})
        name, incident = await stream.next()
        assert (name, incident["id"], incident["resolution"]) == ("incident", "last", "target_gone")


async def test_silence_is_broken_by_a_beat():
    """So a page can tell a watcher with nothing new from one that is gone."""
    async with listening(small_board()) as (_, stream):
        heard = [await stream.next(beats=True) for _ in range(3)]
        assert [name for name, _ in heard] == ["hello", "beat", "beat"]
        assert heard[1][1]["t"] < heard[2][1]["t"]


async def test_an_incident_does_not_wait_for_the_next_batch(monkeypatch):
    """Other news gather for a second; one that opens, changes or ends is told at once."""
    monkeypatch.setattr(events, "BATCH_SECONDS", 3600.0)
    monkeypatch.setattr(events, "URGENT_SECONDS", 0.02)
    board = small_board()
    async with listening(board) as (_, stream):
        await stream.next()
        board.publish(SERVING)
        assert (await stream.next())[0] == "target"
        for name in "ab":
            board.publish(SERVING)
            board.tell(made(told(id=name)))
            assert (await stream.next())[0] == "incident"
            assert (await stream.next())[0] == "target"


async def test_page_that_goes_away_is_forgotten():
    board = small_board()
    async with serving(board) as url:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/events") as page:
            await Stream(page).next()
            assert len(board.listeners) == 1
        async with asyncio.timeout(60):
            while len(board.listeners):
                await asyncio.sleep(0.01)


async def test_page_that_does_not_read_is_dropped(monkeypatch):
    """It costs one mark per target while it is slow, and nothing after."""
    monkeypatch.setattr(events, "WRITE_SECONDS", 0.2)
    board = small_board()
    wide = replace(SERVING, unknown_families=tuple("x" * 100 + str(i) for i in range(20_000)))
    async with serving(board) as url:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(url.rpartition(":")[2]), limit=1024
        )
        writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readline()
        async with asyncio.timeout(10):
            while len(board.listeners):
                board.publish(wide)
                await asyncio.sleep(0.02)
        writer.close()


async def test_one_page_too_many_is_refused_in_words():
    board = small_board()
    others = [board.listeners.add() for _ in range(LISTENERS_MAX)]
    async with serving(board) as url:
        status, text, _ = await ask("GET", f"{url}/api/v1/events")
        assert status == 503
        assert "64 pages already listen" in json.loads(text)["error"]
    assert all(updates.closed.is_set() for updates in others)
