"""A thousand engines under two hundred watchers: do the limits on restarts hold? `bench_fleet.py [--seed N]`.

The guard and the Kubernetes lock of the product, in virtual time, while hosts pause, crash and are cut off
and clocks differ. Inside the bounds that docs/locks.md states more restarts than allowed are a failure
(exit status 1); outside of them the excess is printed.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.fleet.fleet import Fleet, World

INSIDE = (
    World("inside the bounds"),
    World("one slot, ten per hour", limits=replace(World.limits, slots=1, per_hour=10)),
    World("an hour without the API server", cut_s=3600.0),
)
OUTSIDE = (
    World("pauses up to 5 TTL", pause_s=300.0),
    World("hooks up to 5 TTL", hook_s=300.0),
    World("both", pause_s=300.0, hook_s=300.0),
    World("clocks an hour apart", skew_s=7200.0),
)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument(
        "--seeds", type=int, default=1, help="runs of each, one seed after another"
    )
    given = arguments.parse_args()
    print("1000 engines, 200 watchers, 3 hours, a third of the fleet falls ill at once; TTL 60 s")
    print(
        f"{'':32}{'hooks at once':>15}{'in an hour':>14}{'away':>6}{'restarts':>10}{'twice':>7}"
        f"{'stopped':>9}{'ghosts':>8}{'conflicts':>11}{'s':>6}"
    )
    failed = False
    for world in (*INSIDE, *OUTSIDE):
        for seed in range(given.seed, given.seed + given.seeds):
            failed |= run(world, seed) and world in INSIDE
    print("away: servers restarted and not back yet. In an hour: the worst sixty minutes.")
    return int(failed)


def run(world: World, seed: int) -> bool:
    """Print one row; return whether a limit was passed."""
    began_s = time.process_time()
    fleet = Fleet(world, seed)
    seen = fleet.run()
    hour, limits = seen.hour_worst(), world.limits
    assert limits.per_hour is not None
    over = max(0, seen.acting_worst - limits.slots), max(0, hour - limits.per_hour)
    excess = f"   {over[0]} and {over[1]} too many" if any(over) else ""
    print(
        f"{world.name:32}{f'{seen.acting_worst} of {limits.slots}':>15}{f'{hour} of {limits.per_hour}':>14}"
        f"{seen.away_worst:>6}{len(seen.began):>10}{seen.twice:>7}{seen.stopped:>9}{seen.ghosts:>8}"
        f"{fleet.store.conflicts:>11}{time.process_time() - began_s:>6.1f}{excess}",
        flush=True,
    )  # fmt: skip
    return any(over)


if __name__ == "__main__":
    sys.exit(main())
