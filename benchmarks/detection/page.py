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
    ("recall", "recall", ".2f"),
    ("precision", "precision", ".2f"),
    ("false_alarms_per_day", "false alarms a day", ".1f"),
    ("delay_median_s", "seconds to detection, median", ".0f"),
    ("cause_right", "cause right", ".2f"),
    ("advice_right", "restart advice right", ".2f"),
    ("resolved_in_time", "ended within 5 min", ".2f"),
)
_SCENARIO_COLUMNS = (
    ("recall", "recall", ".2f"),
    ("delay_median_s", "seconds to detection", ".0f"),
    ("cause_right", "cause right", ".2f"),
    ("advice_right", "restart advice right", ".2f"),
    ("false_alarms_per_day", "false alarms a day", ".1f"),
    ("recall_other", "recall of overload", ".2f"),
    ("other_false_alarms_per_day", "false overloads a day", ".1f"),
    ("pages_outside", "critical alerts outside of any event", ".0f"),
)
_NO_ADVICE = frozenset(("advice_right",))  # the rules say nothing of restarts

_HEAD = """\
# How well faults are detected

<!-- Made by benchmarks/bench_detection.py --page from benchmarks/detection/. Do not edit. -->

This page compares our detectors with common alert rules, on the same labelled recordings and with the same scoring. `make bench-detection` writes this page.
`python benchmarks/bench_detection.py DIR` scores your own recordings
(`NAME.jsonl.gz` from `vllm-watch record`, with its `NAME.truth.json`); `--write DIR` writes examples.

## What the figures mean

"""

_RULES = """\
- **Event**: one fault; overload is counted separately.
- **Found**: an incident of that kind was open on that engine during the event, and opened at most two scrapes before it.
- **False alarm**: an incident that opened neither during an event nor in the five minutes after one.
- **Seconds to detection** count from when users are affected.
- **Restart advice right**: a restart was advised if it cures the fault, and only then.

Each rule except ours also gets two more conditions: no answer for 60 s, and no token for five minutes while requests run.

## Limits

The lab's recordings come from our own simulated engines ([lab](real-vllm.md#the-lab)), with which the detectors were developed. They do **not**
show how many pages a real fleet would raise: step costs are linear, faults come one at a time, and all runs together last {days:.1f} days.
"""


_SEQUENCES = """\
## Faults in sequence

`python benchmarks/bench_sequences.py` plays days of hangs, crashes, silent API servers, dead engine cores and slowdowns (20 s to 5 min
long, 10 s to 10 min apart), and two hours of `vllm-watch demo`, whose leaks are missed because its load decreases. A fault of at least 45 s and four scrapes counts
as found if an incident of its kind was active during it. By scrape interval:

"""

_WORLDS = """\
## Hard cases

`python benchmarks/bench_worlds.py` simulates healthy engines that look unhealthy, and the reverse; their step times are noisy, and
depend on the batch. The figures are medians of three runs of two or three hours (leaks: seven), scraped every 5 s (ranks: 15 s).

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
    shared = {len(BASELINES): "all other rules"}
    rows = [_line([shared.get(len(who), " · ".join(who)), *cells]) for cells, who in alike.items()]
    return [*_titles("", _COLUMNS), *rows]


def scenario_table(figures: dict[str, Any]) -> list[str]:
    """Return our figures by scenario, one line each; a figure that is the same in all is named once."""
    known = list(SCRIPTS)
    order = sorted(figures["scenarios"], key=lambda s: (known.index(s) if s in known else 0, s))
    quiet = [name for name in order if _quiet(figures["scenarios"][name])]
    shown = {name: figures["scenarios"][name] for name in order if name not in quiet}
    alike: list[str] = []
    lines: list[str] = []
    for key, title, form in _SCENARIO_COLUMNS:
        values = {name: f"{of[key]:{form}}" for name, of in shown.items() if of[key] is not None}
        if len(different := set(values.values())) > 1:
            lines.append(f"- {title}: {', '.join(map(' '.join, values.items()))}")
        else:
            alike += [f"{title} {value}" for value in different]
    lines += [f"- in all: {', '.join(alike)}"]
    return [
        *lines,
        *([f"- without faults and without alarms: {', '.join(quiet)}"] if quiet else []),
    ]


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
