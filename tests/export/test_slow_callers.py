"""200 slow connections at once, and far too many idle ones: the next scrape is answered all the same."""

import asyncio
import contextlib
import socket

import aiohttp

from tests.export.demo_board import fill
from tests.export.raw_http import request, send
from tests.export.serving import serving
from tests.export.slow_callers import scrape_seconds, slow_callers
from tests.export.small_board import small_board
from vllm_watch.export import listener
from vllm_watch.export.server import HEAD_FIELDS_MAX, HEAD_LINE_BYTES_MAX


async def test_slow_callers_do_not_keep_a_scrape_waiting(monkeypatch):
    """Heads that drip, bodies that drip, answers that nobody reads, and silence: fifty of each."""
    # On a machine busy with other tests, ours too may wait long until its head is read.
    monkeypatch.setattr(listener, "FIRST_REQUEST_SECONDS", 60.0)
    board = small_board()
    fill(board, extra=60, now=1_763_700_000.0, back_seconds=5)
    async with serving(board) as server, slow_callers(server.port, 50):
        async with asyncio.timeout(30):
            while server.connections < listener.CONNECTIONS_PER_CALLER_MAX // 2:
                await asyncio.sleep(0.01)
        for _ in range(20):
            await asyncio.to_thread(scrape_seconds, server.port)  # or raises
        assert server.connections <= listener.CONNECTIONS_PER_CALLER_MAX


async def test_idle_connections_make_room_for_newcomers():
    """However many are opened by one address, it holds no more than its share, and is still answered."""
    async with serving(small_board()) as server:
        with contextlib.ExitStack() as held:
            for _ in range(listener.CONNECTIONS_PER_CALLER_MAX + 100):
                one = held.enter_context(socket.socket())
                one.setblocking(False)
                await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", server.port))
            await asyncio.to_thread(scrape_seconds, server.port)
            assert server.connections <= listener.CONNECTIONS_PER_CALLER_MAX


async def test_connections_that_have_asked_make_room_too():
    """One request does not buy a connection for ever: those that idle longest go first."""
    async with serving(small_board()) as server, contextlib.AsyncExitStack() as held:
        url = f"http://127.0.0.1:{server.port}/-/healthy"
        for _ in range(listener.CONNECTIONS_PER_CALLER_MAX + 20):
            session = await held.enter_async_context(aiohttp.ClientSession())
            async with session.get(url) as answer:
                assert await answer.read() == b"healthy\n"
        assert server.connections <= listener.CONNECTIONS_PER_CALLER_MAX
        await asyncio.to_thread(scrape_seconds, server.port)


async def test_pages_that_are_watched_are_not_thrown_out(monkeypatch):
    """A stream of live updates is an answer under way: idle ones go before it."""
    monkeypatch.setattr(listener, "CONNECTIONS_PER_CALLER_MAX", 20)
    async with serving(small_board()) as server, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}"
        async with session.get(f"{url}/api/v1/events") as page:
            assert (await page.content.readline()).startswith(b"retry")
            with contextlib.ExitStack() as held:
                for _ in range(60):
                    one = held.enter_context(socket.socket())
                    one.setblocking(False)
                    await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", server.port))
                await asyncio.to_thread(scrape_seconds, server.port)
            server._board.publish_gpus(server._board.gpus)
            async with asyncio.timeout(10):
                while b"event: gpus" not in await page.content.readline():
                    pass


async def test_the_system_without_a_descriptor_left_is_outlasted(monkeypatch, caplog):
    """Accepting fails, is said once, and goes on as soon as there is room."""
    async with serving(small_board()) as server:
        loop = asyncio.get_running_loop()
        real, failing = loop.sock_accept, [3]

        async def full(bound):
            if failing[0]:
                failing[0] -= 1
                raise OSError(24, "Too many open files")
            return await real(bound)

        monkeypatch.setattr(loop, "sock_accept", full)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(scrape_seconds, server.port)  # wakes the accept that waits
        await asyncio.to_thread(scrape_seconds, server.port)
        assert failing == [0]


async def test_a_connection_that_is_thrown_out_before_it_began_is_closed():
    """Taken and ended within one turn of the loop: its descriptor is given back."""
    async with serving(small_board()) as server:
        ours, theirs = socket.socketpair()
        with theirs:
            server._listener._take(ours, "somebody")
            (one,) = [each for each in server._listener._all if each.caller == "somebody"]
            server._listener._end(one)
            await asyncio.sleep(0.01)
            assert ours.fileno() == -1
            theirs.settimeout(5)
            assert await asyncio.to_thread(theirs.recv, 1) == b""


async def test_a_head_has_so_many_fields_of_so_many_bytes():
    """They are kept until the head is whole, before any password: 250 of a megabyte took 500 MB."""
    async with serving(small_board()) as server:
        for lines in (
            [f"X-{i}: {'y' * 100}" for i in range(HEAD_FIELDS_MAX + 1)],
            [f"X: {'y' * (HEAD_LINE_BYTES_MAX + 1)}"],
        ):
            half = request("GET", "/-/healthy", *lines)[:-2]  # its end never comes
            said = await send(server.port, half, quiet_s=8.0)
            assert (said.statuses, said.closed) == ([400], True)
        usual = [f"X-{i}: {'y' * 100}" for i in range(HEAD_FIELDS_MAX - 5)]
        said = await send(server.port, request("GET", "/-/healthy", *usual, "Connection: close"))
        assert said.statuses == [200]


async def test_a_head_that_does_not_end_is_bounded_as_a_whole():
    """Each field is within its bound and so is their number; a long body is no head, however it comes."""
    async with serving(small_board()) as server:
        half = request("GET", "/-/healthy", *[f"X-{i}: {'y' * 4000}" for i in range(60)])[:-2]
        said = await send(server.port, half[:20_000], half[20_000:40_000], pause_s=0.1, quiet_s=8.0)
        assert (said.statuses, said.closed) == ([], True)
        whole = request("GET", "/-/healthy")
        said = await send(server.port, *[whole] * 3, half[:30_000], pause_s=0.1, quiet_s=1.0)
        assert said.statuses == [200] * 3
        post = request("POST", "/-/reload", "Content-Length: 90000", "Connection: close")
        said = await send(server.port, post + b"x" * 45_000, b"x" * 45_000, pause_s=0.1)
        assert said.statuses == [413]


async def test_one_request_buys_no_half_sent_one(monkeypatch):
    """A head that does not end is ended on a connection that has asked before, too."""
    monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.1)
    async with serving(small_board()) as server, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        whole = request("GET", "/-/healthy")
        writer.write(whole)
        assert b" 200 OK" in await reader.readuntil(b"healthy\n")
        monkeypatch.setattr(listener, "IDLE_SECONDS", 0.5)
        writer.write(whole[:-2])
        with contextlib.suppress(ConnectionError):  # it may be ended before it has read the half
            assert await reader.read() == b""
        writer.close()
