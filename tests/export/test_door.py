"""The door: the address is taken at once, and served on after the first look."""

import asyncio
import socket

import aiohttp
import pytest

from tests.export.small_board import small_board
from vllm_watch.errors import ConfigError, ServeError
from vllm_watch.export import door
from vllm_watch.export.door import Door
from vllm_watch.export.server import Server

PATIENCE_SECONDS = 60.0
NEVER_SECONDS = 3600.0


async def answer(port):
    """(status, text) of what says that it is healthy."""
    patience = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    url = f"http://127.0.0.1:{port}/-/healthy"
    async with aiohttp.ClientSession(timeout=patience) as session, session.get(url) as response:
        return response.status, await response.text()


def behind(entrance):
    """What makes the server behind that door."""
    return lambda: Server(
        small_board(), host="127.0.0.1", port=0, ready=lambda: None, web_config=entrance.web
    )


@pytest.fixture
async def entrance():
    """A door whose address is taken, and which is closed in the end."""
    made = Door("127.0.0.1", 0, None)
    made.take()
    yield made
    await made.close()


async def test_who_comes_before_it_opens_waits_and_is_answered(entrance, monkeypatch):
    """A probe of the first moment is neither refused nor answered wrongly: it waits until it is served."""
    monkeypatch.setattr(door, "LOOKS_FIRST_SECONDS", NEVER_SECONDS)
    looked = asyncio.Event()
    opening = asyncio.create_task(entrance.open(behind(entrance), looked))
    reader, writer = await asyncio.open_connection("127.0.0.1", entrance.port)
    writer.write(b"GET /-/healthy HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    await writer.drain()
    assert not opening.done(), "it waits for the first look"
    looked.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await opening
        said = await reader.read()
    writer.close()
    assert said.startswith(b"HTTP/1.1 200 OK")


async def test_looks_that_do_not_end_keep_nobody_from_it(entrance):
    """An engine that says nothing must not keep people from the page that tells of it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await entrance.open(behind(entrance), asyncio.Event())
    assert await answer(entrance.port) == (200, "healthy\n")


async def test_a_taken_port_is_found_before_anything_is_looked_at(entrance):
    """Also where the other has only taken it, and serves nothing yet."""
    with pytest.raises(ServeError, match="already in use"):
        Door("127.0.0.1", entrance.port, None).take()


async def test_a_wrong_web_configuration_is_found_before_anything_is_looked_at(tmp_path):
    """It ends the start with cause and remedy; the address is not even taken."""
    file = tmp_path / "web.yaml"
    file.write_text("tls_server_config: {cert_file: none.pem, key_file: none.key}\n")
    wrong = Door("127.0.0.1", 0, file)
    with pytest.raises(ConfigError, match=r"none\.pem"):
        wrong.take()
    assert wrong.port == 0
    await wrong.close()


@pytest.mark.parametrize("opened", [False, True])
async def test_closing_frees_the_address(opened):
    """Before it was opened, too: whoever waits there is told at once."""
    one = Door("127.0.0.1", 0, None)
    one.take()
    looked = asyncio.Event()
    looked.set()
    if opened:
        await one.open(behind(one), looked)
    await one.close()
    with socket.socket() as again:
        again.bind(("127.0.0.1", one.port))


async def test_what_is_cut_short_while_it_opens_is_closed_all_the_same(entrance, monkeypatch):
    """A stop in the first moment frees the address like any other."""
    monkeypatch.setattr(door, "LOOKS_FIRST_SECONDS", NEVER_SECONDS)
    opening = asyncio.create_task(entrance.open(behind(entrance), asyncio.Event()))
    await asyncio.sleep(0)  # it has begun to wait
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await entrance.close()
    with socket.socket() as again:
        again.bind(("127.0.0.1", entrance.port))
