"""`vllm-watch top` as a process: in a terminal of its own (a pty), in a pipe, with colours and without."""

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.top_screen import add, engine
from tests.told import made
from vllm_watch.export.server import Server

PATIENCE_SECONDS = 60.0
ESCAPES = re.compile(rb"\x1b(?:\[[0-9;?<>=:$ ]*[a-zA-Z]|[()][A-Z0-9]|[=>]|[P_\]][^\x1b]*\x1b\\)")
LEFT = b"\x1b[?1049l"  # the screen that was there before is back


class Terminal:
    """A program in a terminal of this size; `seen` is every byte that it wrote."""

    def __init__(self, url: str, columns: int, lines: int, **environ: str) -> None:
        self._main, other = pty.openpty()
        self.resize(columns, lines, tell=False)
        usual = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vllm_watch", "top", "--url", url],
            stdin=other, stdout=other, stderr=other, start_new_session=True, close_fds=True,
            env=usual | {"TERM": "xterm-256color"} | environ,
        )  # fmt: skip
        os.close(other)
        os.set_blocking(self._main, False)
        self.seen = b""

    def resize(self, columns: int, lines: int, *, tell: bool = True) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: bytes) -> None:
        os.write(self._main, keys)

    def _read(self) -> None:
        try:
            while chunk := os.read(self._main, 1 << 16):
                self.seen += chunk
        except (BlockingIOError, OSError):  # nothing now, or nobody writes any more
            return

    async def shows(self, words: str, after: int = 0) -> int:
        """Wait until it has written this beyond `after` bytes; how many there are then."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                self._read()
                if words.encode() in ESCAPES.sub(b"", self.seen[after:]):
                    return len(self.seen)
                assert self.process.poll() is None, self.seen.decode(errors="replace")
                await asyncio.sleep(0.05)

    async def ends(self) -> int:
        """Its exit status."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (status := self.process.poll()) is None:
                self._read()
                await asyncio.sleep(0.05)
        self._read()
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self._main)


@contextmanager
def terminal(url: str, columns: int = 80, lines: int = 24, **environ: str) -> Iterator[Terminal]:
    opened = Terminal(url, columns, lines, **environ)
    try:
        yield opened
    finally:
        opened.close()


def url_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize("keys", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
async def test_it_ends_at_once_and_leaves_the_screen_as_it_was(server, keys):
    """Both ways out end it well, and give the terminal back."""
    with terminal(url_of(server)) as screen:
        await screen.shows("chat-0")
        screen.press(keys)
        assert await screen.ends() == 0
        assert LEFT in screen.seen


async def top(*arguments: str, **environ: str) -> tuple[int, str, str]:
    """The command in a pipe: exit status, output, errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_watch", "top", *arguments,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | environ,
    )  # fmt: skip
    out, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


@pytest.mark.parametrize("arguments", [(), ("--once",)], ids=["no terminal", "--once"])
async def test_in_a_pipe_it_is_told_once_as_plain_text(server, board, arguments):
    """The same story in lines without escapes, as wide as COLUMNS says."""
    add(board, "sick", engine("0", "stalled", state_text="no step for 20 s"))
    board.tell(made({"event": "opened", "t": time.time(), "id": "i", "target": "sick", "engine": "0", "kind": "engine_stalled",
         "cause": "hang", "severity": "page", "summary": "It does nothing.", "restart_advised": True,
         "evidence": {"for": [{"name": "n", "value": 1, "unit": "s", "expected": None, "text": "no step"}], "against": []}},))  # fmt: skip
    status, out, errors = await top("--url", url_of(server), *arguments, COLUMNS="90")
    assert (status, errors) == (0, "")
    assert "\x1b" not in out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 90
    assert lines[1].startswith(" critical  sick/0  Stalled: hang")
    assert "  restart  A restart is advised: it usually fixes this." in lines
    assert lines[-1].startswith("watcher 2 of 2 targets answer")


async def test_for_a_program_it_is_one_object(server, board):
    """What is wrong, the engines, stale memory, restarts, the watcher: null is unknown."""
    add(board, "sick", engine("0", "stalled"))
    status, out, _ = await top("--url", url_of(server), "--json")
    said = json.loads(out)
    assert status == 0
    assert set(said) == {"t", "version", "wrong", "engines", "stale", "restarts", "watcher"}
    assert [each["target"] for each in said["engines"]] == ["sick", "chat-0"]
    assert said["engines"][0]["throughput_ratio"] == 0.43
    assert (said["wrong"], said["stale"], said["watcher"]["troubles"]) == ([], [], [])
