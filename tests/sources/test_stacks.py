"""py-spy is run for each process of a server: bounded in time and size, one at a time, and its failures are told."""

import asyncio
from pathlib import Path

import pytest

from tests.sources.test_engine_processes import CORE, INIT, SERVER, STARTED, WORKERS, process
from vllm_watch.sources import stacks
from vllm_watch.sources.stacks import Stacks

STOPPED = process(22, 20, "VLLM::Worker_TP1", state="T")
ALL = {each.pid: each for each in (INIT, SERVER, CORE, WORKERS[0], STOPPED)}
PRINTS = """
echo "Process $4: vllm serve m --api-key sk-1234567890abcdef"
echo "Thread $4 (idle): \\"MainThread\\""
echo "    all_reduce (torch/distributed/distributed_c10d.py:$4)"
"""


class Listing:
    """Of these processes."""

    def __init__(self, all_=ALL):
        self.all = all_

    def processes(self, at_s):
        return self.all


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a py-spy of a script, which has its time on a busy machine."""
    monkeypatch.setattr(stacks, "ONE_SECONDS", 60.0)
    monkeypatch.setattr(stacks, "ALL_SECONDS", 240.0)

    def made(script):
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o700)
        return path

    return made


async def dumped(path, listing=None):
    chunks = Stacks(listing or Listing(), lambda: path).of(STARTED, None, ("0",))
    return b"".join([each async for each in chunks]).decode()


async def test_each_process_in_words_and_then_its_stacks(program):
    """Server, core and workers; who is waited for; and no command line, which may hold a key."""
    said = await dumped(program(PRINTS))
    words, _, rest = said.partition("\n\n")
    place = "waits in a collective: all_reduce (torch/distributed/distributed_c10d.py:{})"
    assert words.splitlines() == [
        f"API server (PID 10): {place.format(10)}", f"VLLM::EngineCore (PID 20): {place.format(20)}",
        f"VLLM::Worker_TP0 (PID 21): {place.format(21)}",
        f"VLLM::Worker_TP1 (PID 22): stopped (state T), {place.format(22)}",
    ]  # fmt: skip
    assert rest.startswith("The other workers wait for VLLM::Worker_TP1 (PID 22): stopped")
    assert rest.count('Thread 22 (idle): "MainThread"') == 1
    assert "api-key" not in said


async def test_it_never_pauses_a_process(program):
    assert "dump --nonblocking --pid 20" in await dumped(program('echo "$*"'))


async def test_one_that_hangs_is_ended(program, monkeypatch):
    """The others are dumped as long as there is time, and nothing is left running."""
    monkeypatch.setattr(stacks, "ONE_SECONDS", 0.2)
    monkeypatch.setattr(stacks, "ALL_SECONDS", 0.5)
    said = await dumped(program("echo $$; exec sleep 1000"))
    assert "stopped: timed out" in said
    assert "not dumped: time limit reached" in said
    async with asyncio.timeout(60):
        while any(Path(f"/proc/{word}").exists() for word in said.split() if word.isdigit()):
            await asyncio.sleep(0.05)


async def test_what_it_prints_is_bounded(program, monkeypatch):
    monkeypatch.setattr(stacks, "BYTES_MAX", 10_000)
    assert len(await dumped(program("exec yes"))) < 5 * 10_000


@pytest.mark.parametrize("script", ["echo 'Error: Permission Denied' >&2; exit 1", None])
async def test_why_it_failed_is_told(program, tmp_path, script):
    """By itself, or because it is not there."""
    path = tmp_path / "none" if script is None else program(script)
    said = await dumped(path)
    assert "VLLM::EngineCore (PID 20): no stack could be read" in said
    assert ("cannot be run" if script is None else "Permission Denied") in said


async def test_one_at_a_time(program):
    path = program('[ -e "$0.busy" ] && echo clash; touch "$0.busy"; sleep 0.05; rm "$0.busy"')
    one = Stacks(Listing(), lambda: path)

    async def ask():
        return b"".join([each async for each in one.of(STARTED, None, ("0",))])

    for said in await asyncio.gather(ask(), ask()):
        assert b"clash" not in said


async def test_nobody_asked(program):
    """Without a program in the configuration nothing is run; without a process nothing is guessed."""
    assert Stacks(Listing(), lambda: None).of(STARTED, None, ("0",)) is None
    assert "No process" in await dumped(program(PRINTS), Listing({1: INIT}))
