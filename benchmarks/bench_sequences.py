"""Troubles that follow each other: `python benchmarks/bench_sequences.py [--hours 6] [--seeds 4] [--jobs N]`.

Prints a row for each interval of looks, and one for the demo's own script. Exit status 1 where a page or an advice
to restart began while the engine was well.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.detection import page
from benchmarks.detection.sequences import Told, demo_day, play, random_day

INTERVALS = (1.0, 5.0, 15.0, 30.0)


def day(seed: int, interval_s: float, hours: float) -> Told:
    name = f"seed {seed}"
    return play(Told(name, interval_s), random_day(seed, hours), hours * 3600.0)


def demo(interval_s: float) -> Told:
    return play(Told("demo", interval_s), demo_day, 7200.0, target="batch")


def row(name: str, days: list[Told]) -> str:
    judged = sum(len(each.judged) for each in days)
    missed = sum(len(each.missed) for each in days)
    healthy_s = sum(each.healthy_s for each in days) or 1.0
    open_ratio = sum(each.healthy_page_s for each in days) / healthy_s
    late = sum(len(each.late_pages) for each in days)
    advised = sum(len(each.advised_when_healthy) for each in days)
    found = (judged - missed) / judged if judged else 1.0
    return f"| {name} | {judged} | {found:.1%} | {late} | {advised} | {open_ratio:.2%} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="name what was missed or told late")
    parser.add_argument("--page", action="store_true", help="put the table on docs/detection.md")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        runs = {
            s: [pool.submit(day, seed, s, arguments.hours) for seed in seeds] for s in INTERVALS
        }
        demos = {s: pool.submit(demo, s) for s in INTERVALS}
        days = {s: [each.result() for each in run] for s, run in runs.items()}
        shown = {s: each.result() for s, each in demos.items()}
    lines = [
        "| looks | troubles | found while they last | pages after the end | advice while well | well, with a page open |",
        "|---|---|---|---|---|---|",
        *(row(f"every {s:g} s", days[s]) for s in INTERVALS),
        *(row(f"the demo, every {s:g} s", [shown[s]]) for s in INTERVALS),
    ]
    print("\n".join(lines))
    if arguments.page:
        page.store_sequences(lines)
    every = [each for run in days.values() for each in run] + list(shown.values())
    if arguments.verbose:
        for each in every:
            for text in (*each.late_pages, *each.advised_when_healthy):
                print(f"{each.name} at {each.interval_s:g} s: {text}")
            for trouble in each.missed:
                print(f"{each.name} at {each.interval_s:g} s: missed {trouble}")
    return 1 if any(each.late_pages or each.advised_when_healthy for each in every) else 0


if __name__ == "__main__":
    sys.exit(main())
