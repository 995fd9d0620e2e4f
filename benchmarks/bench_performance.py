"""What watching costs, in one table: CPU per scrape, a thousand targets on one core, start-up.

python benchmarks/bench_performance.py            print the table (five minutes)
python benchmarks/bench_performance.py --page     ... and write docs/performance.md
python benchmarks/bench_performance.py --long     growth over hours and what it costs a real vLLM (over an hour)
python benchmarks/bench_performance.py startup    one subject alone
python benchmarks/bench_performance.py share      a scrape beside Prometheus, and what its stages take (half a minute)
"""

import argparse
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.performance import growth, page, rendering, scale, scrape, share, startup
from benchmarks.performance.row import Row

SUBJECTS = {
    "scrape": scrape.rows,
    "share": share.rows,
    "scale": scale.rows,
    "rendering": rendering.rows,
    "startup": startup.rows,
}


def real_engine() -> list[Row]:
    """Imported where it is asked for: it needs vLLM's environment."""
    from benchmarks.performance import real_engine

    return real_engine.rows()


LONG = {"growth": growth.rows, "real_engine": real_engine}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", choices=[[], *SUBJECTS, *LONG])
    parser.add_argument("--long", action="store_true", help="the subjects that take over an hour")
    parser.add_argument(
        "--page", action="store_true", help="put the figures on docs/performance.md"
    )
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process is left behind
    rows: list[Row] = []
    chosen, title = (LONG, "Over hours") if asked.long else (SUBJECTS, "In minutes")
    for subject in asked.subjects or chosen:
        for row in (SUBJECTS | LONG)[subject]():
            rows.append(row)
            what, figure, limit, verdict, beside = row.cells()
            print(f"{what:62}{figure:>18}{limit:>16} {verdict:8}{beside}", flush=True)
    if asked.page:
        page.store(rows, title)


if __name__ == "__main__":
    main()
