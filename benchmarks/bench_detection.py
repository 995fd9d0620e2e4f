"""How well trouble is found: our detectors beside the rules that people use today, over labelled recordings.

    python benchmarks/bench_detection.py                 a third of the lab's runs, and how fast replay is
    python benchmarks/bench_detection.py --full --page   all of them; write docs/detection.md anew
    python benchmarks/bench_detection.py DIR...          recordings of your own: NAME.jsonl.gz + NAME.truth.json
    python benchmarks/bench_detection.py --page --as 'TITLE' DIR...     ... as a table of docs/detection.md
    python benchmarks/bench_detection.py --write DIR     write the lab's runs in that format

`--seed N` plays other runs than the published ones.
"""

import argparse
import sys
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.detection import bench, page, speed
from benchmarks.detection.scenarios import runs

QUICK_OF = 3  # every third run: about a minute on two cores


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dirs", metavar="DIR", nargs="*", type=Path)
    parser.add_argument("--full", action="store_true", help="all of the lab's runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", action="store_true", help="put the figures on docs/detection.md")
    parser.add_argument("--as", dest="title", help="the table's title there, with DIR")
    parser.add_argument("--write", type=Path, help="only write the lab's runs as recordings")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    made = runs(asked.seed)
    if not (asked.full or asked.page or asked.write):
        made = made[::QUICK_OF]
    with Pool(asked.jobs) as pool:
        if asked.write:
            asked.write.mkdir(parents=True, exist_ok=True)
            pool.starmap(bench.write_run, [(run, asked.write) for run in made])
            return
        if asked.dirs:
            results = pool.imap_unordered(bench.judge_file, bench.truth_files(asked.dirs))
        else:
            results = pool.imap_unordered(bench.judge_run, made)
        figures = bench.figures(list(results))
    title = asked.title or ", ".join(str(each) for each in asked.dirs) or page.LAB
    print("\n".join([*page.table(figures), "", *page.scenario_table(figures)]))
    print()
    replayed = speed.measure()
    print("\n".join(speed.lines(replayed)))
    if asked.page:
        page.store(title, figures)


if __name__ == "__main__":
    main()
