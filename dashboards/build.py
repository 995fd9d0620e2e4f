"""Writes dashboards/*.json from dashboards/boards/, one dashboard for each question.

python dashboards/build.py                                write them
python dashboards/build.py --check                        exit 1 when one of them is stale
python dashboards/build.py --out DIR [--runbooks URL/]    write them to DIR, with links to these pages under URL

Written in code so that units, colours, names and links agree between panels, and so that states, outcomes
and limits come from where they are defined.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

sys.path.insert(0, str(Path(__file__).parent))

from boards import engine, overview, restarts, runbooks, vram, watcher

FOLDER = Path(__file__).parent
BOARDS: dict[str, Callable[[], dashboard.Dashboard]] = {
    "overview.json": overview.board,
    "engine.json": engine.board,
    "vram.json": vram.board,
    "restarts.json": restarts.board,
    "watcher.json": watcher.board,
}


def text(build: Callable[[], dashboard.Dashboard], address: str = "") -> str:
    """What a dashboard's file has to say; `address` is where these pages are served."""
    made: Any = json.loads(json.dumps(build().build(), cls=JSONEncoder))
    return json.dumps(runbooks.filled(made, address), indent=2, sort_keys=True) + "\n"


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description="Builds the Grafana dashboards.")
    parser.add_argument("--check", action="store_true", help="say which file is stale")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where to write them")
    parser.add_argument(
        "--runbooks", default="", help="address of this repository's pages, with a / at its end"
    )
    arguments = parser.parse_args()
    made = {name: text(build, arguments.runbooks) for name, build in BOARDS.items()}
    if arguments.check:
        return _check(made)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, said in made.items():
        (arguments.out / name).write_text(said)
    return 0


def _check(made: dict[str, str]) -> int:
    there = {file.name for file in FOLDER.glob("*.json")}
    stale = [n for n, said in made.items() if n not in there or (FOLDER / n).read_text() != said]
    for name in sorted({*stale, *(there - made.keys())}):
        sys.stderr.write(f"dashboards/{name} is stale: run python dashboards/build.py\n")
    return bool(stale or there - made.keys())


if __name__ == "__main__":
    sys.exit(main())
