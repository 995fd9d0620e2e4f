"""The whole path of several checkouts and of Prometheus, at the same time: what a change costs, on a machine that others use too."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import sleep

from benchmarks.performance import processes
from benchmarks.performance.row import Row
from benchmarks.performance.scrape import INTERVAL_SECONDS, TARGETS

WARM_SECONDS = 20.0  # all of them start at once
WINDOWS, SECONDS = 20, 12.0


def rows(trees: Mapping[str, Path]) -> list[Row]:
    """One row for each tree, by its name: its CPU per scrape ÷ Prometheus' of the same window, the median of all."""
    with ExitStack() as running:
        pids = {name: running.enter_context(_watching(tree)) for name, tree in trees.items()}
        theirs = running.enter_context(_watching(None))
        sleep(WARM_SECONDS)
        windows = [_window([*pids.values(), theirs]) for _ in range(WINDOWS)]
    return [
        _row(name, [(window[number], window[-1]) for window in windows])
        for number, name in enumerate(pids)
    ]


@contextmanager
def _watching(tree: Path | None) -> Iterator[int]:
    """The PID of the watcher of `tree`, with engines of its own; None: of Prometheus."""
    with processes.engines() as url:
        if tree is None:
            with processes.prometheus(url, TARGETS, INTERVAL_SECONDS) as pid:
                yield pid
        else:
            with processes.watcher(url, TARGETS, INTERVAL_SECONDS, tree=tree) as watcher:
                yield watcher.pid


def _window(pids: list[int]) -> list[float]:
    """Milliseconds of CPU per scrape, of each."""
    before = [processes.cpu_seconds(pid) for pid in pids]
    sleep(SECONDS)
    scrapes = TARGETS / INTERVAL_SECONDS * SECONDS
    after = [processes.cpu_seconds(pid) for pid in pids]
    return [1000 * (end - begin) / scrapes for begin, end in zip(before, after, strict=True)]


def _row(name: str, windows: list[tuple[float, float]]) -> Row:
    shares = [ours / theirs for ours, theirs in windows]
    spans = [f"{min(each):.2f} to {max(each):.2f} ms" for each in zip(*windows, strict=True)]
    above = sum(share > 1 for share in shares)
    beside = f"{spans[0]}, Prometheus {spans[1]}; above it in {above} of {len(shares)} windows"
    return Row(f"whole path, {name}, ÷ Prometheus', median", median(shares), "", 1.0, beside)
