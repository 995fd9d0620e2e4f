"""How fast `vllm-watch replay` is, beside what unpacking the recording and reading its JSON cost alone."""

import contextlib
import gzip
import io
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.detection import bench
from benchmarks.detection.runs import RUN_SECONDS
from benchmarks.detection.scenarios import runs
from vllm_watch.cli import replay
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.host_watch import SiteWatch

BAR = 5000.0
"""Times real time for one target at 5 s; below it a day of a fleet's recordings takes too long to look at."""

BEST_OF = 3
SCENARIO = "slow"


def measure() -> dict[str, float]:
    """CPU seconds for an hour of one busy target at 5 s: the floor, the whole path, the judgement in it."""
    run = next(each for each in runs() if each.scenario == SCENARIO)
    run = replace(run, interval_s=5.0, old=False)
    with tempfile.TemporaryDirectory() as folder:
        trace = bench.write_run(run, Path(folder))
        raw = list(recording.read(trace))
        reader = Reader()
        seen = [recording.to_observation(each, reader) for each in raw]
        return {
            "looks": float(len(raw)),
            "floor": _best(lambda: _floor(trace)),
            "replay": _best(lambda: _replay(trace)),
            "judgement": _best(lambda: _judge(seen)),
        }


def _best(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(BEST_OF):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent)


def _floor(trace: Path) -> None:
    with gzip.open(trace) as file:
        for line in file:
            json.loads(line)


def _replay(trace: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        replay.replay(trace, None, "incidents")


def _judge(seen: list) -> None:  # type: ignore[type-arg]
    site = SiteWatch()
    for each in seen:
        site.look(each)


def lines(spent: dict[str, float]) -> list[str]:
    """For people."""
    looks = spent["looks"]
    said = [
        f"replay of an hour of one target at 5 s, {looks:.0f} looks, CPU time, best of {BEST_OF}"
    ]
    for name, text in (
        ("floor", "unpack and read the JSON, nothing else"),
        ("replay", f"vllm-watch replay, whole path (bar {BAR:,.0f})"),
        ("judgement", "the judgement in it"),
    ):
        seconds = spent[name]
        said.append(
            f"{RUN_SECONDS / seconds:>9,.0f} x real time  {1000.0 * seconds / looks:5.2f} ms a look"
            f"  {seconds / spent['replay']:4.0%}  {text}"
        )
    return said
