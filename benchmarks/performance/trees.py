"""The whole path of several source trees, and of Prometheus, in turns: what a change costs, on a machine that others use too."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import sleep

from benchmarks.performance import processes
from benchmarks.performance.row import Row
from benchmarks.performance.scrape import INTERVAL_SECONDS, TARGETS, WARM_SECONDS

ROUNDS, SECONDS = 9, 15.0


def rows(trees: Mapping[str, Path]) -> list[Row]:
    """One row for each tree, by its name: its CPU per scrape ÷ Prometheus' of the same round, the median of all rounds."""
    spent: dict[str, list[float]] = {name: [] for name in (*trees, "Prometheus")}
    with processes.engines() as url:
        for number in range(ROUNDS):
            names = list(spent)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                spent[name].append(_ms(url, trees.get(name)))
    theirs = spent.pop("Prometheus")
    return [_row(name, each, theirs) for name, each in spent.items()]


def _row(name: str, ours: list[float], theirs: list[float]) -> Row:
    shares = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    above = sum(share > 1 for share in shares)
    beside = (
        f"{_span(ours)}, Prometheus {_span(theirs)}; above it in {above} of {len(shares)} turns"
    )
    return Row(f"whole path, {name}, ÷ Prometheus', median", median(shares), "", 1.0, beside)


def _ms(url: str, tree: Path | None) -> float:
    """CPU per scrape of the watcher of `tree`; None: of Prometheus."""
    if tree is None:
        with processes.prometheus(url, TARGETS, INTERVAL_SECONDS) as pid:
            return _warm_ms(pid)
    with processes.watcher(url, TARGETS, INTERVAL_SECONDS, tree=tree) as watcher:
        return _warm_ms(watcher.pid)


def _warm_ms(pid: int) -> float:
    sleep(WARM_SECONDS)
    return 1000 * processes.spent(pid, SECONDS) / (TARGETS / INTERVAL_SECONDS * SECONDS)


def _span(figures: list[float]) -> str:
    return f"{min(figures):.2f} to {max(figures):.2f} ms"
