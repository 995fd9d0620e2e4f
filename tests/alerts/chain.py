"""From looks to alerts without waiting: a Watch, the export, and the rules as Prometheus evaluates them.

The looks of a recording go through the judgement that the daemon runs, and into the board that it serves. Every
so many seconds of the recording's own time the board is rendered as a scrape would find it; what the rules ask
for is handed to promtool, which runs the shipped rules over it and says which alerts fire, and when.

Prometheus' time begins with the recording. Times of day that are exported are moved with it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from tests.alerts.stories import RULE_FILES, SCRAPED, answered, asked, rules, series
from tests.promql import NAME, recorded, selectors
from tests.told import said
from vllm_watch.board.board import Board
from vllm_watch.config import Config
from vllm_watch.export import text
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.target import Target
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.host_watch import SiteWatch

SCRAPE_SECONDS = 15  # of deploy/prometheus.yaml, as is the interval of its evaluations
HOST = "h"
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_FIRING = 'ALERTS{alertstate="firing"}'
_STALE, _NONE = "stale", "_"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert that fired: its labels, and from when to when, in seconds of the recording.

    `evaluations`: at how many it fired; fewer than fit in between, and it ended and began anew.
    """

    labels: Mapping[str, str]
    first_s: float
    last_s: float
    evaluations: int

    @property
    def name(self) -> str:
        return self.labels["alertname"]


@dataclass(slots=True)
class Exported:
    """What was scraped: series → its value at each scrape, None where it was absent; and the incidents' events."""

    series: dict[str, list[float | None]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    scrapes: int = 0
    began_t: float = 0.0  # Unix time of the first look

    def scrape(self, body: str) -> None:
        """Take one body of /metrics in."""
        for line in body.splitlines():
            sample = _SAMPLE.match(line)
            if sample is None or sample[1] not in _asked_for():
                continue
            value = float(sample[3])
            # Unix time of the recording; our own process began just now.
            if sample[1].endswith("_timestamp_seconds"):
                value -= self.began_t
            scraped = [f'{name}="{said}"' for name, said in SCRAPED.items()]
            labels = ",".join(filter(None, (sample[2], *scraped)))
            column = self.series.setdefault(f"{sample[1]}{{{labels}}}", [])
            column += [None] * (self.scrapes - len(column)) + [value]
        self.scrapes += 1


@cache
def _asked_for() -> frozenset[str]:
    """What the rules and their words ask of an exporter; the time its process began is not of the recording."""
    every = rules(RULE_FILES)
    asked = {selector.name or "" for rule in every for selector in selectors(rule["expr"])}
    asked |= {name for rule in every for name in NAME.findall(str(rule.get("annotations")))}
    return frozenset(asked - recorded(every).keys() - {"up", "process_start_time_seconds"})


def looks(file: Path, name: str) -> Iterator[Observation]:
    """The looks of a recording of one server, which is called by this name."""
    reader = Reader()
    for raw in recording.read(file):
        yield replace(recording.to_observation(raw, reader), target=name)


class Pipeline:
    """The daemon's way from a look to the board, all targets on one host, without its sockets and its clock."""

    def __init__(self, group: str, interval_seconds: float) -> None:
        config = Config()
        self.board = Board(window_seconds=config.signals.window_seconds, host=HOST)
        self._fleet = Fleet(config.fleet.share, config.fleet.targets_min)
        self._site = SiteWatch(host_of=lambda _: HOST)
        self._own = CollectorRegistry()
        self._group, self._interval_seconds = group, interval_seconds

    def look(self, seen: Observation) -> list[dict[str, Any]]:
        """Judge a look and show what came of it; the events, as they were told."""
        if seen.target not in self.board.targets:
            target = Target(name=seen.target, url=seen.target, group=self._group)
            self.board.add_target(target, self._interval_seconds)
        events = self._site.look(seen)
        watch = self._site.watches[seen.target]
        assert watch.signals is not None
        told = self._fleet.take(seen, seen.target, events, 0.0)
        self.board.publish(
            watch.signals, incidents=map(self._fleet.shown, watch.incidents), events=told,
            calls=[("metrics", seen.scrape)],
        )  # fmt: skip
        return said(told)

    def body(self) -> str:
        """What /metrics says now."""
        return text.render(self.board, self._own).decode()


def exported(seen: Iterable[Observation], group: str, interval_seconds: float) -> Exported:
    """Play the looks, and scrape at each SCRAPE_SECONDS of their own time."""
    pipeline, found = Pipeline(group, interval_seconds), Exported()
    for number, each in enumerate(seen):
        if number == 0:
            found.began_t = each.t
        while each.t - found.began_t > found.scrapes * SCRAPE_SECONDS:
            found.scrape(pipeline.body())
        found.events += pipeline.look(each)
    return found


def _values(column: list[float | None], scrapes: int) -> str:
    """The column as promtool reads it: runs of equal values in one word, an end told once, then nothing."""
    words: list[str] = []
    padded = column + [None] * (scrapes - len(column))
    before: float | None = None
    for value in padded:
        if value is None:
            words.append(_NONE if before is None else _STALE)
        else:
            words.append(f"{value:.9f}".rstrip("0").rstrip("."))
        before = value
    runs: list[list[Any]] = []
    for word in words:
        if runs and runs[-1][0] == word and word != _STALE:
            runs[-1][1] += 1
        else:
            runs.append([word, 1])
    return " ".join(
        word if count == 1 else f"_x{count}" if word == _NONE else f"{word}x{count - 1}"
        for word, count in runs
    )


def _asked(found: Exported, check: Mapping[str, Any], folder: Path) -> str:
    """Run the shipped rules over what was scraped; what promtool says of the check."""
    up = series("up", f"1x{found.scrapes - 1}")
    told = [(name, _values(column, found.scrapes)) for name, column in found.series.items()]
    return answered(folder, asked(RULE_FILES, [*told, up], f"{SCRAPE_SECONDS}s", **check))[1]


_GOT = re.compile(r"\{([^{}]*)\} ([-+.\deE]+)")
_REDUCED = ("min_over_time(timestamp", "max_over_time(timestamp", "count_over_time(")
_PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def alerts(found: Exported, folder: Path) -> list[Alert]:
    """Which alerts fire, in the order in which they begin. promtool is told to expect none, and says what it got."""
    end_s = (found.scrapes - 1) * SCRAPE_SECONDS
    span = f"[{end_s + 1}s:{SCRAPE_SECONDS}s]"
    expressions = [f"{reduced}({_FIRING}){span})" for reduced in _REDUCED]
    checks = [{"expr": each, "eval_time": f"{end_s}s", "exp_samples": []} for each in expressions]
    said = _asked(found, {"promql_expr_test": checks}, folder)
    parts = said.split("expr: ")[1:]
    assert len(parts) == len(_REDUCED) or "SUCCESS" in said, said
    times: dict[str, list[float]] = {}
    for part in parts:
        for labels, value in _GOT.findall(part.partition("got:")[2]):
            times.setdefault(labels.removeprefix('__name__="ALERTS", '), []).append(float(value))
    fired = [
        Alert(dict(_PAIR.findall(labels)), first_s, last_s, round(count))
        for labels, (first_s, last_s, count) in times.items()
    ]
    return sorted(fired, key=lambda each: (each.first_s, each.name))


def words(found: Exported, alert: Alert, folder: Path) -> dict[str, str]:
    """The annotations that it had when it began to fire."""
    check = {"eval_time": f"{alert.first_s:g}s", "alertname": alert.name, "exp_alerts": []}
    said = _asked(found, {"alert_rule_test": [check]}, folder).partition("got:")[2]
    of_labels = {name: text for name, text in alert.labels.items() if name != "alertstate"}
    for labels, notes in re.findall(r"Labels:\{(.*)\}\n\s*Annotations:\{(.*)\}", said):
        if dict(_PAIR.findall(labels)) == of_labels:
            return dict(_PAIR.findall(notes))
    raise AssertionError(f"{alert} is not among what fires at its time: {said}")
