"""docs/detection.md: the figures that were measured last, with what they mean and what they cannot show.

The figures lie in figures.json, written by `bench_detection.py --page`; the page is made of them and of the code.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.detection import bench
from benchmarks.detection.baselines import BASELINES
from benchmarks.detection.scenarios import SCRIPTS

LAB = "The lab's recordings"
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "detection.md"
FIGURES = Path(__file__).parent / "figures.json"
SEQUENCES = Path(__file__).parent / "sequences.md"
WORLDS = Path(__file__).parent / "worlds.md"

_COLUMNS = (
    ("recall_collapse", "recall of collapse", ".2f"),
    ("recall", "recall of collapse, stall, down", ".2f"),
    ("precision", "precision", ".2f"),
    ("false_alarms_per_day", "false alarms a day", ".1f"),
    ("delay_median_s", "seconds to detection, median", ".0f"),
    ("delay_p95_s", "95 %", ".0f"),
    ("cause_right", "cause right", ".2f"),
    ("advice_right", "restart advice right", ".2f"),
    ("duplicates", "duplicates", ".0f"),
    ("resolved_in_time", "ended within 5 min", ".2f"),
)
_SCENARIO_COLUMNS = (
    ("recordings", "recordings", ".0f"),
    ("events", "events", ".0f"),
    ("recall", "recall", ".2f"),
    ("delay_median_s", "seconds to detection", ".0f"),
    ("cause_right", "cause right", ".2f"),
    ("advice_right", "restart advice right", ".2f"),
    ("false_alarms_per_day", "false alarms a day", ".1f"),
    ("recall_other", "recall of overload", ".2f"),
    ("other_false_alarms_per_day", "false overloads a day", ".1f"),
    ("pages_outside", "pages outside", ".0f"),
)
_NO_ADVICE = frozenset(("advice_right",))  # the rules say nothing of restarts

_HEAD = """\
# How well trouble is found

<!-- Made by benchmarks/bench_detection.py --page from benchmarks/detection/. Do not edit. -->

Our detectors beside the rules that people use today, over labelled recordings, all by the same scorer.
`make bench` plays a third of the runs and prints the tables; `make bench-detection` plays all of them and writes
this page. Recordings of your own (`NAME.jsonl.gz` as `vllm-watch record` writes them, with a `NAME.truth.json`)
are judged by `python benchmarks/bench_detection.py DIR`; `--write DIR` shows the format by example.

## What the figures are

"""

_RULES = """\
- **Scenarios**: `benchmarks/detection/scenarios.py`, each over engines, mixes, loads and intervals.
- **Event**: one fault. Recall, delay, cause and precision are of collapse, stall and down; overload is counted apart.
- **Found**: an incident of the event's kind was open during it, on its engine, and was not open long before.
- **False alarm**: an incident of these three kinds where there was no such event, up to five minutes after its end.
- **Seconds to detection** count from the moment users felt it, for events that were found.
- **Restart advice right**: some incident advised a restart where one cures, and none did where it does not.
- **Duplicates**: further incidents of the same kind for the same event.

Each rule of today is played together with two more: no answer for 60 s; no token for five minutes while requests run.

## What they cannot show

The lab's recordings are made by our own simulated engines ([lab](real-vllm.md#the-lab)), beside which the detectors were developed. They
do **not** show how often a real fleet would be paged:

- step costs are linear and noise-free: real steps scatter from half to several times the mean;
- one request mix per run (but for the confusers that change it), Poisson arrivals, no multi-turn sessions;
- faults are clean: one at a time, on at once or along a straight ramp, and they end;
- a run has an hour, and all have {days:.1f} days: no false alarm in these is not none in a year.
"""


_SEQUENCES = """\
## Troubles that follow each other

`python benchmarks/bench_sequences.py` plays days on which hangs, crashes, silent API servers, dead engine cores and slowdowns of 20 s to
5 min follow each other 10 s to 10 min apart, and two hours of `vllm-watch demo`. Found: an incident of its kind was active while it lasted
(troubles of 45 s and four looks or more). Late, or while well: from 10 s (two looks) after the end. The demo's leaks are missed: its load wanes.

"""

_WORLDS = """\
## Worlds that try judgement

`python benchmarks/bench_worlds.py` lets healthy engines happen that look unhealthy, and unhealthy ones that look healthy: steps
scatter from second to second, and what a step costs depends on who is in the batch, which no counter tells. Three seeds
each, two hours or three (leaks: seven), looks every 5 s (ranks: 15 s); times are medians.

"""


def load() -> dict[str, Any]:
    """The figures that were measured last, by title."""
    found: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return found


def store(title: str, figures: dict[str, Any]) -> None:
    """Keep new figures and write the page anew."""
    kept = load() | {title: figures}
    FIGURES.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(text(kept))


def store_sequences(lines: list[str]) -> None:
    """Keep the table of bench_sequences.py and write the page anew."""
    SEQUENCES.write_text("\n".join([*lines, ""]))
    PAGE.write_text(text(load()))


def store_worlds(lines: list[str]) -> None:
    """Keep the tables of bench_worlds.py and write the page anew."""
    WORLDS.write_text("\n".join([*lines, ""]))
    PAGE.write_text(text(load()))


def text(kept: dict[str, Any]) -> str:
    """The whole page."""
    days = kept[LAB]["whose"][bench.OURS]["days"] if LAB in kept else 0.0
    parts = [_HEAD + _RULES.replace("{days:.1f}", f"{days:.1f}")]
    titles = [LAB] * (LAB in kept) + sorted(set(kept) - {LAB})
    parts += [_section(title, kept[title]) for title in titles]
    parts += [_SEQUENCES + SEQUENCES.read_text(), _WORLDS + WORLDS.read_text()]
    return "\n".join(parts)


def _section(title: str, figures: dict[str, Any]) -> str:
    ours = figures["whose"][bench.OURS]
    about = (
        f"{ours['recordings']} recordings, {ours['days']:.1f} days, {ours['events']} collapses, "
        "stalls and downs."
    )
    return "\n".join(
        [f"## {title}\n", about + "\n", *table(figures), "\nOurs, by scenario:\n", *scenario_table(figures), ""]
    )  # fmt: skip


def table(figures: dict[str, Any]) -> list[str]:
    """Everybody's figures, ours first."""
    names = [bench.OURS, *BASELINES]
    alike: dict[tuple[str, ...], list[str]] = {}  # rules whose figures are the same share a row
    for name in names:
        leave = frozenset[str]() if name == bench.OURS else _NO_ADVICE
        shown = f"**{name}**" if name == bench.OURS else name
        alike.setdefault(_cells(figures["whose"][name], _COLUMNS, leave), []).append(shown)
    rows = [_line([" · ".join(who), *cells]) for cells, who in alike.items()]
    return [*_titles("", _COLUMNS), *rows]


def scenario_table(figures: dict[str, Any]) -> list[str]:
    """Our figures by scenario."""
    known = list(SCRIPTS)
    order = sorted(figures["scenarios"], key=lambda s: (known.index(s) if s in known else 0, s))
    quiet = [name for name in order if _quiet(figures["scenarios"][name])]
    shown = {name: figures["scenarios"][name] for name in order if name not in quiet}
    columns = tuple(each for each in _SCENARIO_COLUMNS if any(of[each[0]] for of in shown.values()))
    rows = [_line([name, *_cells(of, columns)]) for name, of in shown.items()]
    none = ", ".join(
        title for _, title, _ in _SCENARIO_COLUMNS if title not in {c[1] for c in columns}
    )
    nothing = f"Nothing happened and nothing was told: {', '.join(quiet)}." if quiet else ""
    return [*_titles("scenario", columns), *rows, "", f"None in any of them: {none}. {nothing}"]


def _quiet(figures: dict[str, float | None]) -> bool:
    """Did nothing happen that was to be found, and was nothing told?"""
    told = ("events", "false_alarms_per_day", "other_false_alarms_per_day", "pages_outside")
    return figures["recall_other"] is None and not any(figures[key] for key in told)


def _titles(first: str, columns: tuple[tuple[str, str, str], ...]) -> list[str]:
    titles = [first, *(title for _, title, _ in columns)]
    return [_line(titles), "|" + "---|" * len(titles)]


def _cells(
    figures: dict[str, float | None],
    columns: tuple[tuple[str, str, str], ...],
    leave: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    values = [(None if key in leave else figures[key], form) for key, _, form in columns]
    return tuple("" if value is None else f"{value:{form}}" for value, form in values)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
