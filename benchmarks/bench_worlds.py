"""Healthy worlds that look ill, ill ones that look healthy: what is said of them.

    python benchmarks/bench_worlds.py [--seed 0] [--seeds 1] [--only SLUG,...] [--jobs 2] [-v] [--page]

Virtual time: the whole table takes some minutes. Exit status 1 where a healthy world pages, a restart is
advised that does not help, or fewer than nine of ten ill worlds are found.
"""

import argparse
import sys
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.detection import bench, page
from benchmarks.detection.runs import EPOCH, play
from benchmarks.detection.worlds import WORLDS, run_of

DAY = 86_400.0
FOUND_SHARE_MIN = 0.9
GRACE_SECONDS = 300.0


class Told(NamedTuple):
    """What was said of one world and seed."""

    slug: str
    days: float
    pages: int  # where nothing was wrong
    advised: int  # where it does not help
    tickets: int  # where nothing was wrong
    found_s: float | None  # after the fault began; None: never
    paged_s: float | None
    last: str  # cause that was said last while it lasted
    lines: tuple[str, ...]


def tell(slug: str, seed: int) -> Told:
    """Let a world happen and be watched."""
    world = WORLDS[slug]
    run = run_of(world, seed)
    played = play(run, world.script(seed))
    events = bench.ours(played.observations)
    begin = EPOCH + (world.fault_at_s or run.first_look_s)
    end = begin + world.fault_seconds if world.kinds else 0.0
    pages, advised, outside = set(), set(), set()
    found = paged = None
    last, lines = "", []
    for event in events:
        t, name, page = float(event["t"]), event["id"], event["severity"] == "page"
        what = f"{event['kind']}/{event['cause']}"
        advice = " RESTART" if event["restart_advised"] else ""
        lines.append(
            f"{t - EPOCH:7.0f} {event['event']:<9}{event['severity']:<7}{what}{advice}: {event['summary']}"
        )
        if event["event"] == "resolved":
            continue
        if not (world.kinds and begin <= t <= end + GRACE_SECONDS):
            if event["kind"] != "overload":  # a queue is a queue
                (pages if page else outside).add(name)
            if advice:
                advised.add(name)
        elif event["kind"] in world.kinds:
            found = t - begin if found is None else found
            paged = t - begin if page and paged is None else paged
            last = event["cause"]
        if world.restart_helps is False and advice:
            advised.add(name)
    days = (run.seconds - run.first_look_s) / DAY
    return Told(
        slug, days, len(pages), len(advised), len(outside - pages), found, paged, last, tuple(lines)
    )


def _tell(job: tuple[str, int]) -> Told:
    return tell(*job)


def table(told: list[Told]) -> list[str]:
    """Both tables, as they stand on docs/detection.md."""
    healthy = [each for each in told if not WORLDS[each.slug].kinds]
    ill = [each for each in told if WORLDS[each.slug].kinds]
    lines = ["| healthy engine | false critical alerts a day | restarts advised | warnings a day |", "|---|---|---|---|"]  # fmt: skip
    quiet: list[str] = []
    for slug in dict.fromkeys(each.slug for each in healthy):
        mine = [each for each in healthy if each.slug == slug]
        days = sum(each.days for each in mine)
        pages, tickets = sum(each.pages for each in mine), sum(each.tickets for each in mine)
        advised = sum(each.advised for each in mine)
        if pages or tickets or advised:
            lines.append(
                f"| {WORLDS[slug].title} | {pages / days:.0f} | {advised} | {tickets / days:.0f} |"
            )
        else:
            quiet.append(slug)
    lines += ["", f"No false alert, restart advice or warning for: {', '.join(quiet)}.", ""]
    lines += ["| unhealthy engine | found after | critical after | cause |", "|---|---|---|---|"]
    for slug in dict.fromkeys(each.slug for each in ill):
        mine = [each for each in ill if each.slug == slug]
        causes = ", ".join(sorted({each.last for each in mine if each.last}))
        found = sum(each.found_s is not None for each in mine)
        share = "" if found == len(mine) else f" ({found} of {len(mine)} found)"
        after = f"{_seconds([each.found_s for each in mine])}{share} | {_seconds([each.paged_s for each in mine])}"
        lines.append(f"| {WORLDS[slug].title} | {after} | {causes} |")
    lines += ["", f"Wrong restart advice: {sum(each.advised for each in ill)}."]
    return lines


def is_well(told: list[Told]) -> bool:
    """No false page, no wrong advice, and nine of ten found?"""
    ill = [each for each in told if WORLDS[each.slug].kinds]
    share = sum(each.found_s is not None for each in ill) / (len(ill) or 1)
    wrong, pages = sum(each.advised for each in told), sum(each.pages for each in told)
    print(f"\n{pages} false pages, {share:.2f} of the ill found, wrong advice {wrong}")
    return not pages and not wrong and (not ill or share >= FOUND_SHARE_MIN)


def _seconds(values: list[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    return f"{known[len(known) // 2]:.0f} s" if known else ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="slugs, joined with commas")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", action="store_true", help="every incident event")
    parser.add_argument("--page", action="store_true", help="put the tables on docs/detection.md")
    asked = parser.parse_args()
    slugs = asked.only.split(",") if asked.only else list(WORLDS)
    jobs = [(slug, asked.seed + number) for slug in slugs for number in range(asked.seeds)]
    with Pool(asked.jobs) as pool:
        told = []
        for each in pool.imap(_tell, jobs):
            told.append(each)
            print(*each[:-1], file=sys.stderr, flush=True)
    for each in told if asked.v else []:
        print("==", each.slug, *each.lines, sep="\n  ")
    lines = table(told)
    print("\n".join(lines))
    if asked.page:
        page.store_worlds(lines)
    return 0 if is_well(told) else 1


if __name__ == "__main__":
    sys.exit(main())
