"""`vllm-watch top` as a process in a pipe: for people and for programs."""

import asyncio
import json
import os
import subprocess
import sys
import time

import pytest

from tests.cli.top_screen import add, engine
from tests.told import made
from vllm_watch.export.server import Server

PATIENCE_SECONDS = 60.0


def url_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


async def top(*arguments: str, **environ: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_watch", "top", *arguments,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | environ,
    )  # fmt: skip
    out, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


@pytest.mark.parametrize("arguments", [(), ("--once",)], ids=["no terminal", "--once"])
async def test_in_a_pipe_it_is_told_once_as_plain_text(server, board, arguments):
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
