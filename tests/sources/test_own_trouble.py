"""What of a failed call is this host's doing, and a time-out that nobody was there to see."""

import asyncio
import errno
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.daemon_process import ROOT
from tests.sources.wire import black_hole, wire
from vllm_watch.sources import http, http_caches, own_trouble
from vllm_watch.sources.http import Session
from vllm_watch.support import threads

LIMITS = http.Limits(1.0, 1.0, 100_000)

ERRORS = {
    "no descriptor in this process": (OSError(errno.EMFILE, "x"), "LimitNOFILE"),
    "none on this host": (OSError(errno.ENFILE, "x"), "fs.file-max"),
    "no memory for a socket": (OSError(errno.ENOBUFS, "x"), "memory"),
    "no port left to connect from": (OSError(errno.EADDRNOTAVAIL, "x"), "port"),
    "no memory at all": (MemoryError(), "memory"),
    "refused": (OSError(errno.ECONNREFUSED, "x"), None),
    "no route": (OSError(errno.EHOSTUNREACH, "x"), None),
    "a name that does not resolve": (socket.gaierror(socket.EAI_NONAME, "x"), None),
    "nonsense": (ValueError("x"), None),
}


@pytest.mark.parametrize(("error", "words"), ERRORS.values(), ids=ERRORS)
def test_whose_trouble_it_is(error, words):
    """Ours with what to do about it, or None."""
    said = own_trouble.of_error(error)
    assert (said is None) == (words is None)
    assert words is None or words in said


async def both(host, port):
    """A name with an address that TCP never reaches (of many hosts), before one that it does."""
    tcp = socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
    return [
        (socket.AF_INET6, *tcp, ("ff02::1", port, 0, 0)), (socket.AF_INET, *tcp, ("127.0.0.1", port)),
    ]  # fmt: skip


async def test_one_of_two_addresses_refuses():
    """A dead engine behind a name that has an address to which there is no way, too: refused, as it is alone."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    async with Session(http_caches.Names(both)) as session:
        answer = await http.get(session, f"http://engine:{port}/metrics", LIMITS, {})
    assert answer.call.outcome == "refused"


async def held_up(seconds, call):
    """Make the call, and hold the event loop up for so long once it is under way."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0.2)
    time.sleep(seconds)
    return await task


async def test_a_time_out_that_was_slept_through_is_asked_again():
    """The server answers late, and well; the time-out fell into the time in which we did not run."""
    asked = 0

    async def answer(request):
        nonlocal asked
        asked += 1
        if asked == 1:
            await request.reader.read()
        await request.answer("well")

    async with wire(metrics=answer) as server, http.Session() as session:
        answer_ = await held_up(2.5, http.get(session, f"{server.url}/metrics", LIMITS, {}))
    assert (answer_.call.outcome, answer_.body, asked) == ("ok", b"well", 2)


async def test_a_canary_that_was_slept_through_tells_nothing():
    """A POST is not made twice: that it was not answered is then our doing."""

    async def silence(request):
        await request.reader.read()

    async with wire(metrics=silence) as server, http.Session() as session:
        call = http.post(session, f"{server.url}/metrics", LIMITS, {}, b"{}")
        answer = await held_up(2.5, call)
    assert answer.call.outcome == "watcher"
    assert "did not run for" in answer.call.error
    assert len(server.requests) == 1


async def test_who_is_never_reached_is_not_taken_for_one_that_hangs():
    """Also where a connection may take as long as the whole call, as it may at short intervals."""
    limits = http.Limits(2.0, 2.0, 1000)
    with black_hole() as port:
        async with http.Session() as session:
            answer = await http.get(session, f"http://127.0.0.1:{port}/metrics", limits, {})
    assert answer.call.outcome == "connect_timeout"


def test_a_thread_is_not_waited_for():
    """It has not run at all yet when we go on: one that never comes to run holds nobody up."""
    done, before = threading.Event(), sys.getswitchinterval()
    sys.setswitchinterval(600)  # only who waits lets it run
    try:
        assert threads.begin(done.set)
        assert not done.is_set()
    finally:
        sys.setswitchinterval(before)
    assert done.wait(30)


NO_THREAD = """
import asyncio, os, resource
from vllm_watch.sources import http

async def main():
    session = http.Session()
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 20),) * 2)
    url, limits = "http://engine.invalid/metrics", http.Limits(5.0, 10.0, 1000)
    os._exit(0 if (await http.get(session, url, limits, {})).call.outcome == "watcher" else 1)

asyncio.run(main())
"""


def test_a_name_that_nobody_could_ask_for_is_our_trouble():
    """The resolver needs a thread; in a process that has no room for its stack the name may be as good as ever."""
    done = subprocess.run([sys.executable, "-c", NO_THREAD], cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0
