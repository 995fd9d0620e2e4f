"""Never cry wolf: `python benchmarks/bench_healthy.py [--hours 0.25] [--seed 1] [--only SLUG,...] [--jobs N]`.

Every healthy life of the lab is looked at by several watchers with habits of their own, in virtual time.
A page or the advice to restart is a failure (exit status 1), and so is more than a ticket in three days.
"""

import argparse
import os
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.lab.lives import LIVES
from benchmarks.lab.observer import any_observer, look
from benchmarks.lab.virtual import EPOCH
from vllm_watch.incidents.incident import OPENED, RESOLVED
from vllm_watch.watch.host_watch import SiteWatch

HOUR, DAY = 3600.0, 86_400.0
TICKET_DAYS = 3.0


class Told(NamedTuple):
    """What one watcher said of one life."""

    slug: str
    seed: int
    habits: str
    engine_s: float
    looks: int
    cpu_s: float
    opened: list[str]
    pages: int
    advised: int
    failures: dict[str, str]


def tell(slug: str, seed: int, seconds: float) -> Told:
    began_s = time.process_time()
    rng = Random(zlib.crc32(f"{slug} {seed}".encode()))
    scene = LIVES[slug].build(rng.randrange(2**31))
    scene.begin_at(EPOCH)
    observer = any_observer(rng)
    site, opened, pages, advised, looks = SiteWatch(), [], 0, 0, 0
    engine_s, before = 0.0, observer.begins_s
    for seen in look(scene, observer, rng, seconds):
        looks += 1
        engine_s += (scene.t - before) * max(1, len(scene["vllm"].engines))
        before = scene.t
        for event in site.look(seen):
            incident = event.incident
            if event.event == RESOLVED:
                continue
            pages += incident.severity == "page"
            advised += incident.restart_advised
            if event.event == OPENED or incident.severity == "page":
                what = f"{incident.severity} {incident.kind}/{incident.cause}"
                opened.append(f"{scene.t / HOUR:.2f} h {what}: {incident.summary}")
    habits = f"{observer.interval_s:g} s ±{observer.jitter_ratio / 2:.0%}"
    for name in ("gaps", "steps", "suspends"):
        habits += f" {name}" if getattr(observer, f"{name}_apart_s") else ""
    habits += "" if observer.monotonic else " Unix time"
    return Told(
        slug, seed, habits, engine_s, looks, time.process_time() - began_s, opened, pages, advised,
        site.failures,
    )  # fmt: skip


def rows(told: list[Told]) -> bool:
    """Print the table; return whether all is well."""
    print(f"{'life':<20} {'days':>6} {'looks':>9} {'pages':>6} {'advised':>8} {'tickets':>8}")
    days = pages = advised = tickets = 0.0
    for slug in LIVES:
        mine = [each for each in told if each.slug == slug]
        if not mine:
            continue
        sums = [sum(column) for column in zip(*[(e.engine_s / DAY, e.looks, e.pages, e.advised) for e in mine], strict=True)]  # fmt: skip
        opened = sum(len(each.opened) for each in mine)
        print(f"{slug:<20} {sums[0]:>6.2f} {sums[1]:>9,} {sums[2]:>6} {sums[3]:>8} {opened - sums[2]:>8}")  # fmt: skip
        days, pages, advised = days + sums[0], pages + sums[2], advised + sums[3]
        tickets += opened - sums[2]
    allowed = max(1.0, days / TICKET_DAYS)
    print(f"{'all':<20} {days:>6.2f} {'':>9} {pages:>6.0f} {advised:>8.0f} {tickets:>8.0f}")
    print(f"CPU {sum(e.cpu_s for e in told):.0f} s; tickets allowed: {allowed:.0f}")
    failures = [each for each in told if each.failures]
    for each in told:
        for line in each.opened:
            print(f"  {each.slug} seed {each.seed} ({each.habits}): {line}")
    for each in failures:
        print(f"  {each.slug} seed {each.seed}: a detector failed: {each.failures}")
    return not pages and not advised and tickets <= allowed and not failures


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=0.25, help="of each life and watcher")
    parser.add_argument("--watchers", type=int, default=2, help="of each life")
    parser.add_argument("--seed", type=int, default=1, help="of the first watcher")
    parser.add_argument("--only", default="", help="slugs, joined with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    said = parser.parse_args()
    slugs = said.only.split(",") if said.only else list(LIVES)
    with ProcessPoolExecutor(said.jobs) as pool:
        jobs = [
            pool.submit(tell, slug, said.seed + number, said.hours * HOUR)
            for slug in slugs
            for number in range(said.watchers)
        ]
        for number, job in enumerate(as_completed(jobs), 1):
            done = job.result()
            said_of = f"{done.slug} {done.seed}: {len(done.opened)} opened, {done.pages} pages"
            print(f"[{number}/{len(jobs)}] {said_of}", file=sys.stderr, flush=True)
    return 0 if rows([job.result() for job in jobs]) else 1


if __name__ == "__main__":
    sys.exit(main())
