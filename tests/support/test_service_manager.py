"""What systemd is told, by a real daemon on a real socket: ready, status, alive, reloading, stopping."""

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from contextlib import contextmanager

import pytest

from tests.daemon_process import ROOT, daemon
from tests.told import made
from vllm_watch.board.board import Board
from vllm_watch.export.status import in_a_line
from vllm_watch.samples.target import Target

PATIENCE_SECONDS = 30.0
WATCHDOG = {"WATCHDOG_USEC": "400000"}
UNANSWERED = ("--target", "http://127.0.0.1:1")
# SIGUSR1 holds the event loop's thread, and only it, as a call that blocks would; a line on stdout says
# when it begins and ends to.
HANGS_WHEN_ASKED = """
import os, signal, sys, time
from vllm_watch.__main__ import main
def hang(*_):
    os.write(1, b"hangs\\n"); time.sleep(2.5); os.write(1, b"turns\\n")
signal.signal(signal.SIGUSR1, hang)
sys.exit(main(sys.argv[1:]))
"""


class Systemd:
    """The socket of a service manager, and what came to it."""

    def __init__(self, address):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)
        self._lines = deque()

    async def told(self):
        """The next line; several of them may be one message."""
        if not self._lines:
            loop = asyncio.get_running_loop()
            data = await asyncio.wait_for(loop.sock_recv(self._socket, 1 << 16), PATIENCE_SECONDS)
            self._lines += data.decode().splitlines()
        return self._lines.popleft()

    async def until(self, begins):
        """The next line that begins so, and all lines before it."""
        before = []
        while not (line := await self.told()).startswith(begins):
            before.append(line)
        return line, before

    def waiting(self):
        """The lines that are there already."""
        lines = list(self._lines)
        self._lines.clear()
        try:
            while True:
                lines += self._socket.recv(1 << 16).decode().splitlines()
        except BlockingIOError:
            return lines

    def close(self):
        self._socket.close()


@contextmanager
def systemd(folder, kind="path"):
    """(the socket, its name in the environment), of one of the kinds that systemd uses."""
    name = str(folder / "notify") if kind == "path" else f"@vllm-watch-test-{os.getpid()}"
    bound = Systemd(name.replace("@", "\0"))
    try:
        yield bound, {"NOTIFY_SOCKET": name}
    finally:
        bound.close()


@pytest.mark.parametrize("kind", ["path", "abstract"])
async def test_ready_is_told_when_it_serves(tmp_path, kind):
    """Not before: what is ordered after the unit may ask it at once."""
    with systemd(tmp_path, kind) as (bound, environ):
        async with daemon("--target", "a=http://127.0.0.1:1", environ=environ) as process:
            ready, before = await bound.until("READY=")
            status, _ = await process.get("/-/healthy")
    assert (ready, before, status) == ("READY=1", [], 200)


async def test_status_follows_what_is_seen(tmp_path):
    """`systemctl status` says in a line how many answer, and where the page is."""
    with systemd(tmp_path) as (bound, environ):
        async with daemon("--target", "a=http://127.0.0.1:1", environ=environ) as process:
            while True:
                line, _ = await bound.until("STATUS=")
                if "not scraped yet" not in line and "Stopping" not in line:
                    break
            assert line.endswith(f"; {process.url}/")
    assert line.startswith("STATUS=0 of 1 target answer, ")


async def test_a_reload_is_told_at_its_beginning_and_end(tmp_path):
    """RELOADING with the time that systemd compares, then READY; also where the new file is wrong."""
    config = tmp_path / "w.yaml"
    config.write_text("targets: [{name: a, url: 'http://127.0.0.1:1'}]\n")
    with systemd(tmp_path) as (bound, environ):
        async with daemon("--config", config, environ=environ) as process:
            await bound.until("READY=1")
            for text in ("targets: []\n", "targetz: []\n"):
                config.write_text(text)
                process.process.send_signal(signal.SIGHUP)
                await bound.until("RELOADING=1")
                time, _ = await bound.until("MONOTONIC_USEC=")
                assert int(time.partition("=")[2]) > 0
                await bound.until("READY=1")
            assert process.events("reload_refused")


async def test_stopping_is_told_and_is_the_last(tmp_path):
    with systemd(tmp_path) as (bound, environ):
        async with daemon(environ=environ | WATCHDOG) as process:
            await bound.until("WATCHDOG=1")
            assert await process.end(signal.SIGTERM) == 0
        assert bound.waiting()[-2:] == ["STOPPING=1", "STATUS=Stopping"]


async def test_no_beat_while_the_loop_hangs(tmp_path):
    """The beats stop with the event loop, though other threads go on, and come again with it."""
    with systemd(tmp_path) as (bound, environ):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HANGS_WHEN_ASKED, "run", "--listen", "127.0.0.1:0", cwd=ROOT,
            env=os.environ | environ | WATCHDOG,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            for _ in range(3):
                await bound.until("WATCHDOG=1")
            process.send_signal(signal.SIGUSR1)
            assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS) == b"hangs\n"
            bound.waiting()  # sent before
            assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS) == b"turns\n"
            assert len([line for line in bound.waiting() if line == "WATCHDOG=1"]) <= 1
            await bound.until("WATCHDOG=1")
        finally:
            process.terminate()
            assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == 0


FOREIGN = {
    "no watchdog is set": {},
    "the watchdog is another process's": WATCHDOG | {"WATCHDOG_PID": "1"},
    "its time is not a number": {"WATCHDOG_USEC": "soon"},
}


@pytest.mark.parametrize("more", FOREIGN.values(), ids=FOREIGN)
async def test_no_beat_where_none_is_asked_for(tmp_path, more):
    with systemd(tmp_path) as (bound, environ):
        async with daemon(*UNANSWERED, environ=environ | more) as process:
            _, before = await bound.until("READY=1")
            await process.until(lambda status: status["targets"][0]["signals"])
            await process.end()
        assert "WATCHDOG=1" not in before + bound.waiting()


async def test_a_socket_that_is_gone_is_said_once(tmp_path):
    """It goes on watching: systemd will judge it by the silence."""
    address = str(tmp_path / "nobody")
    async with daemon(*UNANSWERED, environ={"NOTIFY_SOCKET": address} | WATCHDOG) as process:
        await process.until(lambda status: status["targets"][0]["signals"])
        await process.until(lambda status: status["targets"][0]["sources"]["metrics"]["calls"] > 5)
        assert await process.end() == 0
    assert len(process.events("service_manager_not_told")) == 1


def test_a_board_in_a_line():
    """Words for the cases that there are; one is one target, two are two targets."""
    board = Board()
    assert in_a_line(board, "http://x") == "0 of 0 targets answer, nothing is wrong; http://x/"

    board.add_target(Target(name="a", url="http://a"), 5.0)
    told = in_a_line(board, "http://x")
    assert told == "0 of 1 target answer, 1 not scraped yet, nothing is wrong; http://x/"

    event = {"t": 1.0, "event": "opened", "id": "x", "target": "a", "engine": None, "kind": "engine_down",
             "cause": "crash", "severity": "page", "summary": "", "restart_advised": False}  # fmt: skip
    board.tell(made(event))
    assert "not scraped yet, 1 incident open (1 page); " in in_a_line(board, "http://x")
