"""`python -m benchmarks.soak [--seeds 30] [--first 1] [--hours 24] [--jobs N] [--keep DIR] [--again] [--sequences]`.

Each seed is a fleet of four for so many hours of virtual time. What is done lies in DIR, so that an
interrupted soak goes on where it was. Exits 1 where an invariant was broken.
"""

import argparse
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.soak.soak import kept

_COLUMNS = (
    ("seed", "seed"), ("hours", "hours"), ("looks", "looks"), ("watcher runs", "runs"),
    ("troubles", "troubles"), ("pages", "pages"), ("hook calls", "calls"),
    ("largest Watch, kB", "watch_bytes"), ("peak MB", "rss_mb"), ("CPU s", "cpu_s"), ("broken", "broken"),
)  # fmt: skip


def _cell(result: dict[str, Any], key: str) -> str:
    value = result[key]
    if key == "broken":
        return str(len(value))
    if key == "watch_bytes":
        return f"{value / 1000:.0f}"
    return f"{value:,.0f}" if key in ("cpu_s", "looks", "rss_mb") else f"{value:g}"


def _sums(results: list[dict[str, Any]], key: str) -> str:
    sums: dict[str, int] = {}
    for result in results:
        for name, count in result[key].items():
            sums[name] = sums.get(name, 0) + count
    return ", ".join(f"{name} {sums[name]}" for name in sorted(sums))


def table(results: list[dict[str, Any]]) -> None:
    """Print a row for each seed, what happened in all, and every breach."""
    print(" | ".join(name for name, _ in _COLUMNS))
    for result in sorted(results, key=lambda each: each["seed"]):
        print(" | ".join(_cell(result, key).rjust(len(name)) for name, key in _COLUMNS))
    hours = sum(each["hours"] for each in results)
    print(f"{len(results)} seeds, {hours:g} h, {4 * hours / 24:g} engine-days")
    for key in ("happened", "hooks", "outcomes"):
        print(f"{key}: {_sums(results, key)}")
    for result in results:
        for breach in result["broken"]:
            print(f"seed {result['seed']}: {breach}")


def main() -> int:
    """Run what is missing, print all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, default=Path("build/soak"))
    parser.add_argument("--again", action="store_true", help="also seeds that are done")
    parser.add_argument(
        "--sequences", action="store_true", help="every second trouble follows the one before soon"
    )
    said = parser.parse_args()
    said.keep.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    missing: dict[int, Path] = {}
    kind = "-sequences" if said.sequences else ""
    for seed in range(said.first, said.first + said.seeds):
        path = said.keep / f"{seed}-{said.hours:g}h{kind}.json"
        if path.exists() and not said.again:
            results.append(json.loads(path.read_text()))
        else:
            missing[seed] = path
    # Each in a process of its own: time is virtual for the whole process.
    os.environ.setdefault(
        "PYTHONHASHSEED", "0"
    )  # else a seed's life is another one in each process
    how = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(said.jobs, how, max_tasks_per_child=1) as pool:
        jobs = [
            pool.submit(kept, seed, said.hours, path, said.sequences)
            for seed, path in missing.items()
        ]
        for job in as_completed(jobs):
            result = job.result()
            results.append(result)
            print(
                f"[{len(results)}/{said.seeds}] seed {result['seed']}: {result['troubles']} troubles, "
                f"{result['calls']} hook calls, {len(result['broken'])} broken, {result['cpu_s']:.0f} s",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    table(results)
    return 1 if any(result["broken"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
