"""Replay recordings, keep every judgement made of them as text, and compare that with what was kept before.

    python benchmarks/golden.py [PATH...] [--stored .golden] [--save] [--jobs 2]

PATH: a recording, or a folder of them (default: the repository's own recordings). Of each are kept
its events, and the status as JSON and /metrics at a quarter, half and the end of it: a sorted line for each value.
The first run stores them; later ones print a table of the differences and exit with 1 if there is any.
`--save` stores the new text after that.
"""

import argparse
import difflib
import json
import sys
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from prometheus_client import CollectorRegistry

from vllm_watch.board.board import Board
from vllm_watch.errors import WatchError
from vllm_watch.export import text
from vllm_watch.export.status import Status
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.target import Target
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.host_watch import SiteWatch

OWN = Path(__file__).parents[1] / "tests" / "alerts" / "recordings"
MOMENTS = {"quarter": 0.25, "half": 0.5, "end": 1.0}
SHOWN_MAX = 12  # changed lines printed of one part of a recording
NOT_JUDGED = ("vllm_watch_build_info", "vllm_watch_start")  # of this installation


class Kept(NamedTuple):
    """What one recording gave, or why it could not be read."""

    name: str
    lines: list[str]


def main() -> int:
    """Replay, compare, store; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--stored", type=Path, default=Path(".golden"))
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    arguments.stored.mkdir(parents=True, exist_ok=True)
    found = list(_recordings(arguments.paths or [OWN]))
    differing = 0
    with Pool(arguments.jobs) as pool:
        for kept in pool.imap(_replayed, found):
            differing += _compared(kept, arguments.stored, save=arguments.save)
    print(f"{len(found)} recordings, {differing} differ from {arguments.stored}")
    return 1 if differing else 0


def _recordings(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (each for each in inside if each.name.endswith((".jsonl.gz", ".jsonl")))


def _replayed(path: Path) -> Kept:
    name = f"{path.resolve().parent.name}-{path.name}"  # the same in every worktree
    try:
        return Kept(name, _lines(path))
    except WatchError as error:
        return Kept(name, [f"events {error}"])


def _lines(path: Path) -> list[str]:
    total = sum(1 for _ in _observations(path, parse=False))
    due = {max(1, round(total * share)): word for word, share in MOMENTS.items()}
    site, board, lines, flips = SiteWatch(), Board(host="here"), list[str](), dict[str, list[str]]()
    for number, observation in enumerate(_observations(path), start=1):
        target = observation.target
        board.add_target(Target(name=target, url=target), 1.0)
        events = site.look(observation)
        watch = site.watches[target]
        if watch.signals is None:
            continue
        board.publish(watch.signals, incidents=watch.incidents, events=events)
        states = flips.setdefault(target, [])
        states += [watch.signals.state] if states[-1:] != [watch.signals.state] else []
        lines += [f"events {_event(each)}" for each in events]
        if number in due:
            lines += sorted(_moment(due[number], board))
    return lines + [f"events {name} states: {len(s)}, {' '.join(s[:40])}" for name, s in sorted(flips.items())]  # fmt: skip


def _observations(path: Path, *, parse: bool = True) -> Iterator[Observation | None]:
    readers: dict[str, Reader] = {}
    for raw in recording.read(path):
        reader = readers.setdefault(raw.target, Reader())
        yield recording.to_observation(raw, reader) if parse else None


def _event(event: IncidentEvent) -> str:
    one = event.incident
    advised = " RESTART" if one.restart_advised else ""
    where = f"{one.target}/{one.engine or ''}"
    return f"{event.t:.0f} {event.event} {one.severity} {where} {one.kind}/{one.cause}{advised}: {one.summary}"


def _moment(word: str, board: Board) -> Iterator[str]:
    status = Status(board)
    for name in board.targets:
        yield from _flat(f"status@{word} {name}", json.loads(status.target(name) or "null"))
    for line in text.render(board, CollectorRegistry()).decode().splitlines():
        if not line.startswith(("#", *NOT_JUDGED)):
            yield f"metrics@{word} {line}"


def _flat(path: str, value: Any) -> Iterator[str]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # fmt: skip
    for key, each in inside:
        yield from _flat(f"{path}.{key}", each)
    if not isinstance(value, dict | list):
        yield f"{path} = {value}"


def _compared(kept: Kept, stored: Path, *, save: bool) -> bool:
    """Print how it differs from what is stored; return True if it does."""
    file = stored / f"{kept.name}.txt"
    before = file.read_text().splitlines() if file.exists() else None
    if before is None or save:
        file.write_text("\n".join([*kept.lines, ""]))
    if before in (None, kept.lines):
        return False
    changed = [line for line in difflib.unified_diff(before, kept.lines, lineterm="", n=0) if line[0] in "-+"][2:]  # fmt: skip
    parts: dict[str, list[str]] = {}
    for line in changed:
        part, _, said = line[1:].partition(" ")
        parts.setdefault(part, []).append(f"{line[0]} {said}")
    print(f"\n{kept.name}: {', '.join(f'{part} {len(said)}' for part, said in parts.items())}")
    for part, said in parts.items():
        print("\n".join(f"  {part:<15} {line[:200]}" for line in said[:SHOWN_MAX]), flush=True)
        if len(said) > SHOWN_MAX:
            print(f"  {part:<15} … {len(said) - SHOWN_MAX} more")
    return True


if __name__ == "__main__":
    sys.exit(main())
