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
from benchmarks.detection.baselines import BASELINES
from benchmarks.detection.sequences import Told, demo_day, play, random_day

INTERVALS = (1.0, 5.0, 15.0, 30.0)


def day(seed: int, interval_s: float, hours: float) -> Told:
    name = f"seed {seed}"
    return play(Told(name, interval_s), random_day(seed, hours), hours * 3600.0, rules=True)


def demo(interval_s: float) -> Told:
    return play(Told("demo", interval_s), demo_day, 7200.0, target="batch")


def found(days: list[Told]) -> float:
    judged = sum(len(each.judged) for each in days)
    missed = sum(len(each.missed) for each in days)
    return (judged - missed) / judged if judged else 1.0


def late(days: list[Told]) -> int:
    return sum(len(each.late_pages) for each in days)


def open_ratio(days: list[Told]) -> float:
    return sum(each.healthy_page_s for each in days) / (sum(each.healthy_s for each in days) or 1.0)


def row(name: str, days: list[Told]) -> str:
    judged = sum(len(each.judged) for each in days)
    advised = sum(len(each.advised_when_healthy) for each in days)
    wrong = f"; late pages {late(days)}, advice while healthy {advised}, healthy with a page open {open_ratio(days):.2%}"
    return f"- {name}: {found(days):.1%} of {judged}{wrong if late(days) + advised + open_ratio(days) else ''}"


def rules_of_today(days: dict[float, list[Told]]) -> str:
    """The best and the worst of all rules and intervals, as a sentence."""
    by_name = [by_rule(days, name) for name in BASELINES]
    shares = [found(run) for each in by_name for run in each.values()]
    every = [[told for run in each.values() for told in run] for each in by_name]
    return (
        f"found {min(shares):.0%} to {max(shares):.0%}, with up to {max(map(late, every))} late pages "
        f"and a page open for up to {max(map(open_ratio, every)):.0%} of the healthy time"
    )


def by_rule(days: dict[float, list[Told]], rule: str) -> dict[float, list[Told]]:
    return {s: [each.by_rules[rule] for each in run] for s, run in days.items()}


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
        *(row(f"every {s:g} s", days[s]) for s in INTERVALS),
        *(row(f"the demo, every {s:g} s", [shown[s]]) for s in INTERVALS),
        "",
        "There were no late pages (more than 10 s and two scrapes after a fault's end), and no restart advice or open pages while healthy; the lines above would list them.",
        f"On the same days the other rules {rules_of_today(days)}.",
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
