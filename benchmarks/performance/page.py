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
this table; `make bench-page` measures anew and writes this page. Each target serves the whole `/metrics` of a real
vLLM 0.32 (430 series), from another process on the other core, nearly every value another at every look. The watcher
is what `vllm-watch run` starts, with all detectors, the flight recorder and export, kept on one core.
CPU is the operating system's figure for the whole process.
"""

_MIDDLE = """
Memory is that of the first half minute. A thousand targets hold 388 MB from five minutes on, when recordings and
windows are full (2026-11-22, looked at every half minute until the thirteenth).

A figure that does not keep its bar says so. CPU figures of a busy machine are up to twice those of a quiet one,
since cores share caches; that is why a peer of the same run stands beside them.

## Where the time goes

Of a look at the real capture, warm, on a quiet core: a GET 0.09 ms, reading the body 0.2 ms, judgement 0.2 ms, the
recorder 0.07 ms: half of what a look of fifty targets costs. The rest is cold caches: one target that is looked at
once a second, with nothing before or after it, costs four times the half.

## What paid

| idea | what it gave |
|---|---|
| a layout that is learnt once; a body is split, and what stands after each known head becomes a float | more than 15 times faster than prometheus_client's parser (`bench_parser.py`) |
| an HTTP client of our own in place of aiohttp's | 0.25 → 0.09 ms for a GET of the real capture, where plain asyncio without any HTTP takes 0.08 |
| its answers arrive in one piece of memory for all connections; asyncio makes 256 kB of room for each read | 62 → 11 µs a read, under a profiler (half of the line above) |
| one comparison of lengths in place of one `startswith` for each line | a fifth of the parser |
| the recorder takes the parser's tails instead of splitting both texts again | 0.23 → 0.03 ms a look, and 6 kB in place of 45 kB for each target |
| no thread for an engine whose processes are not on this host; one listing of processes for all targets | 0.2 ms a look, and a listing for each target and minute |
| the lines of a state or an outcome are written once, with room for whose they are | a fifth of rendering `/metrics` |
| the lines of a body, one by one, go with the look and are not kept until the next | 429 → 388 MB for 1,000 targets after ten minutes |
| of looks that are not the newest only what rates need is kept | 0.3 → 0.2 MB for each target |
| no collection of garbage while modules are loaded: they stay, and the collector goes through all of them again and again | a quarter of importing |
| the HTTP server, the page and `/metrics` are loaded after the first look; the address is taken before | 40 of 486 ms of importing, and the first scrape does not wait for it |
| looks of a fleet begin together, at halves of a second | 2.45 → 1.70 ms a look at 50 targets at quarters of a second, and 1.5 → 1.3 at halves, once all else was done: who wakes for one look finds cold caches |
| records that are made at each look are frozen for the type checker only | 15 → 4 µs for an engine's sample |
| counters of a restart within the window are added only where they do not cancel out | 0.03 ms of a look, once an engine has restarted |
| structlog without rich, which it takes along where the terminal view is installed | 49 of 486 ms of importing, there |
| Kubernetes, YAML, the journal, logs of engines: loaded where they are asked for | 40 of 185 of our modules |

## What lost

| idea | figure | so |
|---|---|---|
| uvloop | 0.171 against 0.178 ms for a GET through aiohttp's client: within noise | no further dependency |
| switching the garbage collector off, or larger generations | 1.28 to 1.38 ms a look at 50 targets, with and without: within noise; what is imported is frozen | Python's own settings |
| lines of a target kept from one `/metrics` to the next, made anew where a value differs | 145 → 205 ms for 1,000 targets, median on a busy machine: what is kept must be fetched from memory and compared | they are made anew |
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
