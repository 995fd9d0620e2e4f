"""docs/performance.md: the figures that were measured last, on which machine, and the ideas that lost.

The figures lie in figures.json, written by `bench_performance.py --page`; the page is made of them and of this file.
"""

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from benchmarks.performance.row import Row

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
FIGURES = Path(__file__).parent / "figures.json"
_HEADS = ("what", "figure", "bar", "", "beside it, in the same run")

_TOP = """# What it costs

One `vllm-watch` beside every engine, or one for a fleet: its cost is multiplied, so it is measured. `make bench` prints
this table; `make bench-page` measures again and writes this page. Each target serves the whole `/metrics` of a real
vLLM 0.32 (430 series), from another process on the other core, nearly every value another at every look, in whole
numbers where something is counted. The watcher is what `vllm-watch run` starts, with all detectors, the flight recorder
and export, kept on one core. CPU is the operating system's figure for the whole process."""

_MIDDLE = """
Memory in minutes is that of the first half minute; what it is when recordings and windows are full stands under
"Over hours".

What a scrape costs the engine is for the most part vLLM's own writing of `/metrics`, in the API server's process: the
same for whoever asks. The machine has two cores for engine, load and watcher, and from one turn of seconds to the next
its speed scatters by 7 to 15 %; a loss of throughput is known no better than the standard error beside it says. So ten
watchers at once are measured, too. The runs of that day, in per cent of the engine's throughput:

| run | lost to one watcher at 1 s | lost to ten at once |
|---|---|---|
| 100 and 60 pairs | 2.08 ± 1.50 | 1.86 ± 1.21 |
| 240 and 100 pairs | 0.59 ± 0.84 | -1.10 ± 0.74 |
| 120 and 120 pairs, above | 1.46 ± 0.78 | -0.55 ± 1.0 |
| all, weighted by their errors | 1.19 ± 0.53 | -0.37 ± 0.53 |

One watcher by itself stands two standard errors above nothing, and above the bar of 0.5 %; ten, of which each asks the
same, cost nothing that can be told. What ten tell of one, -0.04 ± 0.05 %, is known ten times better: the bar is held to
that, and one watcher by itself has not been shown to keep it.

A figure that does not keep its bar says so. CPU figures of a busy machine are up to twice those of a quiet one,
since cores share caches; that is why a peer of the same run stands beside them. So are those of a slower machine, and
this one was the fastest of three of the same kind on that day:

| prometheus_client's parser | CPU per scrape | ÷ Prometheus' | `/metrics` of 1,000 targets, rendered | import (its libraries alone) |
|---|---|---|---|---|
| 6.3 to 6.9 ms | 0.55 to 1.00 ms, in 17 windows of 12 s | 0.48 to 0.91 | 44 to 48 ms | 217 to 258 ms (128 to 157) |
| 10.5 ms | 0.95 ms | 0.71 | 77 ms | 304 ms (176) |
| 17 and 19 ms | 1.27 and 1.35 ms | 0.87 and 0.68 | 91 ms | 440 ms (272) |

## Where the time goes

Of a look at 50 targets, as a sampling profile of the whole process has it (one sample for each millisecond of CPU
time, 2026-11-22): judgement 44 % (detectors 24, signals 16), reading the body 20 %, the recorder 11 %, what is shown 5 %;
the rest is HTTP and the event loop.

## What paid

| idea | what it gave |
|---|---|
| a layout that is learnt once; a body is split, and what stands after each known head becomes a float | more than 15 times faster than prometheus_client's parser (`bench_parser.py`) |
| a client over asyncio in place of aiohttp's | 0.25 → 0.09 ms for a GET of the real capture, where plain asyncio without any HTTP takes 0.08 |
| its answers arrive in one piece of memory for all connections; asyncio makes 256 kB of room for each read | 62 → 11 µs a read, under a profiler (half of the line above) |
| one comparison of lengths in place of one `startswith` for each line | a fifth of the parser |
| the recorder takes the parser's tails instead of splitting both texts again | 0.23 → 0.03 ms a look, and 6 kB in place of 45 kB for each target |
| no thread for an engine whose processes are not on this host; one listing of processes for all targets | 0.2 ms a look, and a listing for each target and minute |
| the lines of a state or an outcome are written once, with room for whose they are | a fifth of rendering `/metrics` |
| the lines of a body, one by one, go with the look and are not kept until the next | 429 → 388 MB for 1,000 targets after ten minutes |
| of looks that are not the newest only what rates need is kept | 0.3 → 0.2 MB for each target |
| no collection of garbage while modules are loaded: they stay, and the collector goes through all of them again and again | a quarter of importing |
| looks of a fleet begin together, at halves of a second | 2.45 → 1.70 ms a look at 50 targets at quarters of a second, and 1.5 → 1.3 at halves, once all else was done: who wakes for one look finds cold caches |
| records that are made at each look are frozen for the type checker only | 15 → 4 µs for a whole engine's sample |
| of a watched engine only what is judged is read (the recording has all): half of a sample were histograms that nobody looks at, made, kept and dropped again | 1.38 → 1.17 ms a look at 50 targets, with cheaper records of few fields and fewer questions by name; 388 → 313 MB for 1,000 targets, of which a part is that the bodies of this benchmark have whole counts since the same day |
| numbers that are not judged are not converted, only looked at for characters that no number has | 0.05 ms: `float()` takes 0.2 µs |
| Python looks for garbage after 20,000 new objects instead of 700: the looks of one moment hold as many, and leave hardly any | 0.05 ms a look |
| of a busy engine, of which most values change, the recorder keeps all and does not look which did not | 0.03 ms a look; the record is a seventh longer |
| counters of a restart within the window are added only where they do not cancel out | 0.03 ms of a look, once an engine has restarted |
| restarts, notifiers and the doctor of logs are loaded where a configuration asks for them | 580 → 407 ms of CPU to import, busy machine |

## What lost

| idea | figure | so |
|---|---|---|
| aiohttp's client to ask engines, with a broken body told to its reader | in half of the turns above Prometheus; 100 ms more to import; 128 headers of status 1xx, extensions of chunks or chunks of a byte without end are `read_timeout` after 2.4 to 3.9 s of CPU, an answer that nobody asked for is taken for the next one | an answer that is none must not be evidence for an engine that hangs, for which a restart is advised |
| a parser of HTTP of our own in Python, in place of llhttp | the whole path is the same, within noise; a body of chunks of a byte each 1.9 s of CPU, in place of 0.05 s | 370 lines less |
| uvloop | 0.171 against 0.178 ms for a GET through aiohttp's client: within noise | no further dependency |
| no collector of garbage at all, instead of a patient one | 1.12 to 1.18 against 1.05 to 1.18 ms: within noise | what makes a cycle must not fill the memory |
| the HTTP server loaded after the first look, SQLite, YAML and NVML where they are used, structlog without the rich that the terminal view brings | 267 against 407 ms of CPU to import, 458 with rich, busy machine | a start is once, and what is loaded when was hard to see |
| huge pages for what is on the heap (`madvise`, after the start) | 0.87 to 1.07 against 0.90 to 1.08 ms: within noise | no further care for what kernels offer |
| lines of a target kept from one `/metrics` to the next, made again where a value differs | 145 → 205 ms for 1,000 targets, median on a busy machine: what is kept must be fetched from memory and compared | they are made again |
| looks that begin together once a second | 1.4 against 1.25 ms: within noise | halves: the event loop is free again sooner |
| all answers of a moment read before any is judged | 1.34 to 1.85 against 1.40 to 1.82 ms: within noise | one target after another |
| pydantic's `defer_build` for the models of the configuration | 95 → 97 ms of CPU to import and load it, busy machine: each section's default builds its model all the same | models are built at import |
| the same, with each default validated by the whole model instead of made | 99 → 91 ms: 4 % of importing, for defaults that are written in an odd way | defaults are values |
| no plugins of pydantic, by its environment variable | 95 → 86 ms: they are searched in all that is installed | a vLLM that `preflight --exec` starts would inherit it |
"""


def store(rows: list[Row], title: str) -> None:
    """Put the figures of this run in place of those of the run before, and write the page."""
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    figures[title] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "rows": [row.cells() for row in rows],
    }
    FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(text(figures))


def machine() -> str:
    """What it ran on, in words."""
    info = Path("/proc/cpuinfo").read_text()
    models = [line.partition(": ")[2] for line in info.split("\n") if line.startswith("model name")]
    busy = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores of {models[0] if models else 'unknown'}, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}; load {busy:.1f} at the end"
    )


def text(figures: dict[str, Any]) -> str:
    """The page."""
    parts = [_TOP]
    for title, run in figures.items():
        parts += [f"\n## {title}\n\nMeasured {run['date']} on {run['machine']}.\n", *_lines(run["rows"])]  # fmt: skip
    return "\n".join(parts) + "\n" + _MIDDLE


def _lines(rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (_HEADS, ["---"] * len(_HEADS), *rows)]
