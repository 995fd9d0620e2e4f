"""Take stacks of a server's processes with py-spy. `--nonblocking` does not pause the processes,
but leaves out native frames."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_watch.sources import engine_processes
from vllm_watch.sources.processes import ProcessFacts, ProcessListing
from vllm_watch.support import threads
from vllm_watch.support.redaction import redacted

if TYPE_CHECKING:
    from vllm_watch.diagnosis.stacks import Stand

PROCESSES_MAX = 32
ONE_SECONDS = 2.0
ALL_SECONDS = 7.0
"""Time limit for all stacks of a server."""

BYTES_MAX = 256 << 10


class Stacks:
    """Dumps the stacks of one process at a time, for all callers."""

    def __init__(self, listing: ProcessListing, program: Callable[[], Path | None]) -> None:
        """`program` returns py-spy's path, or None if stacks are off."""
        self._listing = listing
        self._program = program
        self._one = asyncio.Lock()

    def of(
        self, started: float | None, port: int | None, engines: Collection[str]
    ) -> AsyncIterator[bytes] | None:
        """Return a summary per process, then the stacks; None if stacks are off."""
        program = self._program()
        return None if program is None else self._dump(program, started, port, engines)

    async def sentence(
        self, started: float | None, port: int | None, engines: Collection[str], engine: str | None
    ) -> str:
        """Return a summary, or "" without stacks. `engine` is the hung engine, or None for the whole server."""
        from vllm_watch.diagnosis import stacks  # noqa: PLC0415

        program = self._program()
        if program is None:
            return ""
        stands, _ = await self._taken(program, started, port, engines)
        return stacks.in_a_sentence(stands, engine)

    async def _dump(
        self, program: Path, started: float | None, port: int | None, engines: Collection[str]
    ) -> AsyncIterator[bytes]:
        from vllm_watch.diagnosis import stacks  # noqa: PLC0415

        stands, texts = await self._taken(program, started, port, engines)
        if not stands:
            yield b"No process of this server was found on this host.\n"
            return
        words = [f"{each.name}: {each.words}\n" for each in stands]
        yield "\n".join(["".join(words), stacks.waited_for(stands), *texts]).encode()

    async def _taken(
        self, program: Path, started: float | None, port: int | None, engines: Collection[str]
    ) -> "tuple[list[Stand], list[str]]":
        from vllm_watch.diagnosis import stacks  # noqa: PLC0415

        stands: list[stacks.Stand] = []
        texts: list[str] = []
        async with self._one:
            until_s = time.monotonic() + ALL_SECONDS
            try:
                all_ = await threads.run(
                    lambda: self._listing.processes(time.monotonic()), ALL_SECONDS
                )
            except (TimeoutError, MemoryError):
                return stands, texts
            found = engine_processes.of_server(all_, started, port, engines)[:PROCESSES_MAX]
            for facts in found:
                left_s = until_s - time.monotonic()
                text = await _dumped(program, facts.pid, min(ONE_SECONDS, left_s))
                name = f"{_name(facts, found[0])} (PID {facts.pid})"
                worker = "::Worker" in name
                stands.append(stacks.Stand(name, stacks.where(text, facts.state), worker))
                texts.append(f"===== {name}\n{text}\n")
        return stands, texts


def _name(facts: ProcessFacts, server: ProcessFacts) -> str:
    if facts is server:
        return "API server"
    title = facts.title.split(" ")[0]
    return title if "::" in title else facts.name or "process"


async def _dumped(program: Path, pid: int, seconds: float) -> str:
    if seconds <= 0:
        return "not dumped: time limit reached"
    try:
        process = await asyncio.create_subprocess_exec(
            program, "dump", "--nonblocking", "--pid", str(pid), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env={}, limit=BYTES_MAX,
        )  # fmt: skip
    except OSError as error:
        return f"{program} cannot be run: {error.strerror}"
    assert process.stdout is not None  # noqa: S101 - a pipe, as requested
    output = b""
    try:
        async with asyncio.timeout(seconds):
            while len(output) < BYTES_MAX and (piece := await process.stdout.read(65_536)):
                output += piece
            if len(output) < BYTES_MAX:
                await process.wait()
    except TimeoutError:
        output += b"\nstopped: timed out"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        # Read the rest of a longer output, so that the pipe is closed.
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while await process.stdout.read(65_536):
                    pass
                await process.wait()
    # The first line has the command line, which may hold a key.
    lines = output[:BYTES_MAX].decode(errors="replace").splitlines()
    return redacted("\n".join(line for line in lines if not line.startswith("Process ")))
