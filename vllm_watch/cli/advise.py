"""Suggest better settings, from a daemon, a recording, or an engine's log."""

import argparse
import contextlib
import io
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO

from vllm_watch.advice.rules import MINUTES_SECONDS, Evidence, attention_fallback, attention_of
from vllm_watch.cli.helpers import connection, exit_status
from vllm_watch.cli.helpers.connection import Connection
from vllm_watch.cli.helpers.top.status import Daemon, asked
from vllm_watch.errors import WatchError
from vllm_watch.signals.records import Advice
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.support import regular_file
from vllm_watch.support.visible import visible_lines
from vllm_watch.watch.watch import Watch

HELP = """\
Finds vLLM's settings that do not suit the observed work: a KV cache starved by a low utilization,
preemptions that a limit would cure, GPUs that lie idle, prefix caching that is off, a context that no request
uses, slow attention kernels. Asks a running vllm-watch, or judges a recording. Each suggestion
names the flag to set, the numbers and the reason. At least ten minutes of scrapes are required; unknown values are
left out. The exit status is 0 even if something is suggested.

examples:
  vllm-watch advise
  vllm-watch advise --url http://gpu-7:9470 --json | jq '.targets[].advice[].flag'
  vllm-watch advise --trace yesterday.jsonl.gz
  journalctl -u vllm | vllm-watch advise --engine-log -"""


_LINE_CHARACTERS_MAX = 10_000


class Advised(NamedTuple):
    """Advice for one target, or the reason why it is missing."""

    advice: tuple[Advice, ...]
    too_early: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    connection.add_daemon(parser)
    parser.add_argument("--trace", metavar="FILE", type=Path, help="judge a recording instead")
    parser.add_argument(
        "--engine-log", metavar="FILE",
        help="only check the attention kernels in the log of an engine's start (-: standard input)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    daemon, trace, engine_log = connection.of(arguments), arguments.trace, arguments.engine_log
    if trace is not None and engine_log is not None:
        raise WatchError("--trace with --engine-log", "use --trace or --engine-log, not both")
    if trace is not None:
        found = _of_recording(trace)
    elif engine_log is not None:
        found = _of_log(engine_log)
    else:
        found = _of_daemon(daemon)
    if arguments.json:
        print(json.dumps({"targets": [{"target": name, "advice": [asdict(each) for each in advised.advice], "too_early": advised.too_early or None} for name, advised in found.items()]}))  # fmt: skip
    else:
        print(visible_lines("\n".join(_lines(found))))
    return exit_status.FINE


def _of_daemon(daemon: Connection) -> dict[str, Advised]:
    status, found = asked(daemon, Daemon.status), {}
    for target in status.targets:
        too_early = f"its metrics cannot be read now: {target.state_text or target.state}"
        if target.signals is not None and target.signals.up:
            too_early = _too_early(status.uptime_seconds)
        found[target.name] = Advised(target.advice, too_early)
    return found


def _too_early(seconds: float | None) -> str:
    if seconds is None or seconds >= MINUTES_SECONDS:
        return ""
    return f"{seconds / 60:.0f} of {MINUTES_SECONDS / 60:.0f} minutes observed: ask again later"


def _of_recording(trace: Path) -> dict[str, Advised]:
    watches: dict[str, Watch] = {}
    readers: defaultdict[str, Reader] = defaultdict(Reader)
    first_t: dict[str, float] = {}
    too_early: dict[str, str] = {}
    for raw in recording.read(trace):
        watch = watches.setdefault(raw.target, Watch(raw.target, detectors={}))
        watch.observe(recording.to_observation(raw, readers[raw.target]))
        if watch.signals is not None and watch.signals.up:
            too_early[raw.target] = _too_early(raw.t - first_t.setdefault(raw.target, raw.t))
    if not watches:
        cause = f"{trace} contains no complete observation"
        raise WatchError(cause, "give a recording of ten minutes or more")
    none = "the recording has none of its metrics"
    return {
        name: Advised(watch.signals.advice if watch.signals else (), too_early.get(name, none))
        for name, watch in watches.items()
    }


def _of_log(name: str) -> dict[str, Advised]:
    try:
        with contextlib.nullcontext(sys.stdin) if name == "-" else _opened(name) as file:
            found = attention_of(iter(partial(file.readline, _LINE_CHARACTERS_MAX), ""))
    except OSError as error:
        cause = f"{name} cannot be read: {error.strerror}"
        raise WatchError(cause, "name the engine's log, or - for standard input") from None
    if found is None:
        cause = f"{'standard input' if name == '-' else name} names no attention kernels"
        raise WatchError(cause, "give the log of an engine's start, from its first line on")
    return {name: Advised(tuple(attention_fallback(Evidence(engine="", attention=found))))}


def _opened(name: str) -> TextIO:
    return io.TextIOWrapper(regular_file.opened(Path(name), pipes=True), errors="replace")


def _lines(found: Mapping[str, Advised]) -> Iterator[str]:
    if not found:
        yield "no advice: no target is watched"
    for target, (advice, too_early) in found.items():
        several = len({each.engine for each in advice}) > 1
        for each in advice:
            which = f"{target}, engine {each.engine}" if several else target
            yield f"{which}: {each.text}"
            flag = each.flag if each.value is None else f"{each.flag} {each.value}"
            yield f"  → {flag}: {each.why}"
        if not advice:
            yield f"{target}: no advice{' yet' * bool(too_early)}: {too_early or 'the settings suit the observed load'}"
