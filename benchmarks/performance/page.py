"""docs/performance.md: the figures that were measured last, on which machine.

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

_TOP = """# What it costs

Use these figures to size CPU and memory of a watcher. `make bench` prints them; `make bench-page` measures again and writes this page. Each target serves the complete
`/metrics` of a real vLLM 0.32 (430 series), and nearly all values change between scrapes. The watcher is `vllm-watch run` on one core."""

_MIDDLE = """
*In minutes* measures memory after half a minute; *Over hours* measures it when recordings and windows are full. A slower or busy machine needs two to
three times the CPU. Limits are met unless a line says NOT MET.

For the engine, the main cost of any scrape is rendering `/metrics`. Ten watchers at
once cost -0.37 ± 0.53 % of throughput.
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
    return [
        f"- {what}: **{figure}**{_bar(bar, met)}{f'; {beside}' if beside else ''}"
        for what, figure, bar, met, beside in rows
    ]


def _bar(bar: str, met: str) -> str:
    """Return the bar of a figure, and whether it was missed."""
    return f" (limit {bar}{'' if met == 'met' else f': {met}'})" if bar else ""
