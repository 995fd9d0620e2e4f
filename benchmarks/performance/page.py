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

`make bench` prints this table; `make bench-page` measures again and writes this page. Each target serves the whole `/metrics` of a real vLLM 0.32 (430 series) from
another process, nearly every value another at every scrape. The watcher is what `vllm-watch run` starts, on one core."""

_MIDDLE = """
Memory in minutes is that of the first half minute; what it is when recordings and windows are full stands under
"Over hours".

What a scrape costs the engine is mostly vLLM's own writing of `/metrics`, the same for whoever asks. Over three runs that day one watcher cost
1.19 ± 0.53 % of throughput, ten at once -0.37 ± 0.53 %: the bar of 0.5 % is held by the ten, whose figure is ten times better known; one by itself
has not been shown to keep it.

A figure that does not keep its bar says so. CPU figures of a busy or slower machine are two to three times these; so a peer of the same run stands beside
them.

## What lost

aiohttp's client to ask engines (answers that are none became `read_timeout` after seconds of CPU), an HTTP parser of our own, uvloop, no garbage
collector, huge pages, lines of `/metrics` kept from one scrape to the next, looks once a second, pydantic's `defer_build`: none was faster beyond noise,
or each cost more than it gave. What paid: a parser that learns a body's layout once, our own client over asyncio, looks that begin together.
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
