"""Run a hook's command without a shell, with limited time and output.

At the timeout, reaper.py kills the command and all its descendants. The output goes to a memory
file of fixed size, which is rewound before it is full. A pipe is not used, because closing it would
kill processes that the command leaves running.
"""

import asyncio
import fcntl
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_watch.restart.hooks import reaper
from vllm_watch.support import json_text
from vllm_watch.support.redaction import redacted
from vllm_watch.support.visible import printable

OUTPUT_BYTES_MAX = 16 << 20
"""The output may grow by this many bytes between two polls. No restart command writes this much."""
TAIL_BYTES = 2000
_REWIND_BYTES = 1 << 20
_POLL_SECONDS = 0.05
_REPORT_BYTES_MAX = 4096
_REAPER = Path(reaper.__file__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The result of a command."""

    status: int | None = None  # exit status, or the negative signal number
    unable: str | None = None  # why the command did not start
    timed_out: bool = False
    left: int = 0  # processes that could not be ended
    tail: str = ""


async def run(argv: Sequence[str], environment: Mapping[str, str], timeout_seconds: float) -> Ended:
    """Run the command, and end it at the timeout or if cancelled."""
    with _Output() as output:
        return await _run(argv, environment, timeout_seconds, output)


async def _run(
    argv: Sequence[str], environment: Mapping[str, str], timeout_seconds: float, output: "_Output"
) -> Ended:
    reading, writing = os.pipe()
    try:
        spec = _spec(argv, environment)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(_REAPER), str(spec), str(writing),
                stdin=asyncio.subprocess.DEVNULL, stdout=output.descriptor, stderr=output.descriptor,
                env={}, cwd="/", pass_fds=(spec, writing), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return Ended(unable=error.strerror or str(error))
        finally:
            os.close(spec)
            os.close(writing)
        try:
            timed_out = not await _wait(process, timeout_seconds, output)
        finally:
            await _end(process)
        os.set_blocking(reading, False)
        return Ended(timed_out=timed_out, tail=output.tail(), **_report(reading))
    finally:
        os.close(reading)


async def _wait(
    process: asyncio.subprocess.Process, timeout_seconds: float, output: "_Output"
) -> bool:
    ended = asyncio.ensure_future(process.wait())
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    try:
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait((ended,), timeout=min(_POLL_SECONDS, left))
            if ended.done():
                return True
            output.rewind()
        return False
    finally:
        ended.cancel()


async def _end(process: asyncio.subprocess.Process) -> None:
    for number, seconds in ((signal.SIGTERM, reaper.KILL_SECONDS + 2), (signal.SIGKILL, 2)):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(number)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.wait()


def _spec(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    # The spec is not in the arguments, which other users can read, nor in the environment, which Python changes.
    descriptor = os.memfd_create("vllm-watch-spec")
    spec = {"argv": list(argv), "environment": dict(environment), "parent": os.getpid()}
    with os.fdopen(os.dup(descriptor), "w") as file:
        json.dump(spec, file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _report(descriptor: int) -> dict[str, Any]:
    try:
        report = json_text.read(os.read(descriptor, _REPORT_BYTES_MAX))
    except (BlockingIOError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


class _Output:
    """A memory file with one position for all writers."""

    def __enter__(self) -> "_Output":
        self.descriptor = os.memfd_create(
            "vllm-watch-output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        )
        os.ftruncate(self.descriptor, OUTPUT_BYTES_MAX)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        self._before = b""
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def rewind(self) -> None:
        if os.lseek(self.descriptor, 0, os.SEEK_CUR) >= _REWIND_BYTES:
            self._before = self._last()
            os.lseek(self.descriptor, 0, os.SEEK_SET)

    def tail(self) -> str:
        said = self._last().decode(errors="replace").replace("\0", "").strip()
        return printable(redacted(said))

    def _last(self) -> bytes:
        position = os.lseek(self.descriptor, 0, os.SEEK_CUR)
        begin = max(0, position - TAIL_BYTES)
        said = os.pread(self.descriptor, position - begin, begin)
        return (self._before + said)[-TAIL_BYTES:]
