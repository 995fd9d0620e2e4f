"""What `vllm-watch advise` does: takes the advice of a daemon, of a recording, or of an engine's log."""

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from vllm_watch.advice.engine_log import attention_of
from vllm_watch.advice.hardware_rules import attention_fallback
from vllm_watch.advice.records import Evidence
from vllm_watch.cli.helpers import exit_status
from vllm_watch.cli.helpers.connection import Connection
from vllm_watch.cli.helpers.top.status import Daemon
from vllm_watch.errors import WatchError
from vllm_watch.signals.records import Advice
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.support import regular_file
from vllm_watch.support.visible import visible_lines
from vllm_watch.watch.watch import Watch

_LINE_CHARACTERS_MAX = 10_000  # of a log; a longer line is cut
Advised = dict[str, tuple[Advice, ...]]  # by target


def advise(*, daemon: Connection, trace: Path | None, engine_log: str | None, as_json: bool) -> int:
    """Find it and print it.

    Raises: WatchError, where the daemon or the file cannot be read.
    """
    if trace is not None and engine_log is not None:
        raise WatchError("--trace with --engine-log", "judge one after the other: leave one out")
    if trace is not None:
        found = _of_recording(trace)
    elif engine_log is not None:
        found = _of_log(engine_log)
    else:
        found = asyncio.run(_of_daemon(daemon))
    if as_json:
        print(json.dumps({"targets": [{"target": name, "advice": [asdict(each) for each in advice]} for name, advice in found.items()]}))  # fmt: skip
    else:
        print(visible_lines("\n".join(_lines(found))))
    return exit_status.FINE


async def _of_daemon(connection: Connection) -> Advised:
    daemon = Daemon.at(connection)
    try:
        status = await daemon.status()
    finally:
        await daemon.close()
    return {target.name: target.advice for target in status.targets}


def _of_recording(trace: Path) -> Advised:
    watches: dict[str, Watch] = {}
    readers: dict[str, Reader] = {}
    for raw in recording.read(trace):
        watch = watches.setdefault(raw.target, Watch(raw.target, detectors={}))
        reader = readers.setdefault(raw.target, Reader())
        watch.observe(recording.to_observation(raw, reader))
    return {name: watch.signals.advice if watch.signals else () for name, watch in watches.items()}


def _of_log(name: str) -> Advised:
    try:
        if name == "-":
            found = attention_of(_cut(sys.stdin))
        else:
            with io.TextIOWrapper(
                regular_file.opened(Path(name), pipes=True), errors="replace"
            ) as file:
                found = attention_of(_cut(file))
    except OSError as error:
        raise WatchError(
            f"{name} cannot be read: {error.strerror}", "name the engine's log, or - for standard input"
        ) from None  # fmt: skip
    if found is None:
        raise WatchError(
            f"{name} names no attention kernels",
            "give the log of an engine's start, from its first line on",
        )
    return {name: tuple(attention_fallback(Evidence(engine="", attention=found)))}


def _cut(file: TextIO) -> Iterator[str]:
    while line := file.readline(_LINE_CHARACTERS_MAX):
        yield line


def _lines(found: Advised) -> Iterator[str]:
    for target, advice in found.items():
        several = len({each.engine for each in advice}) > 1
        for each in advice:
            which = f"{target}, engine {each.engine}" if several else target
            yield f"{which}: {each.text}"
            flag = each.flag if each.value is None else f"{each.flag} {each.value}"
            yield f"  → {flag}: {each.why}"
    if not any(found.values()):
        yield "no advice: nothing seen contradicts the settings (it takes ten minutes of scrapes at least)"
