"""Show a running vllm-watch live in the terminal, or one snapshot as text or JSON."""

import argparse
import importlib.util
import json
import sys
from dataclasses import asdict
from typing import Any

from vllm_watch.cli.helpers import connection, exit_status, terminal
from vllm_watch.cli.helpers.top import panels as top_panels
from vllm_watch.cli.helpers.top import rows as top_rows
from vllm_watch.cli.helpers.top import story as top_story
from vllm_watch.cli.helpers.top.status import Daemon, Status, asked
from vllm_watch.cli.helpers.top.text import Text
from vllm_watch.signals.holders.records import STALE

HELP = """\
Shows a running vllm-watch in the terminal: what is wrong first, with its evidence and what to do; the
engines, GPUs and who holds them, why nothing is restarted now, and the state of the watcher itself. It needs a
daemon: start one with `vllm-watch run` or `vllm-watch demo`. The live view needs the extra `top`
(pip install 'vllm-watch[top]'). --once, --json and output to a pipe print once and exit, without it. NO_COLOR=1
turns colours off.

examples:
  vllm-watch top
  vllm-watch top --url http://gpu-7:9470
  vllm-watch top --once | mail -s 'engines' oncall@example.org
  vllm-watch top --json | jq '.wrong[] | [.severity, .target, .title]'
  vllm-watch top --url https://gpu-7:9470 --ca-file ca.pem --credentials-file ~/.config/vllm-watch.user

keys: arrows select, Enter opens, s sorts, / filters, ? lists all keys, q quits
"""

_PIPE_COLUMNS = 2000  # wide enough for every line
_HEADER_COLUMNS = 160
_HEIGHT = 200
_ENGINES_MAX = 40
# Details of these states are shown, because the target's address may be wrong.
_UNSEEN = ("unknown", "starting")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    connection.add_daemon(parser)
    parser.add_argument("--once", action="store_true", help="print once as text and exit")
    parser.add_argument("--json", action="store_true", help="print one JSON object and exit")


def run(arguments: argparse.Namespace) -> int:
    daemon = connection.of(arguments)
    once = arguments.once or arguments.json or not sys.stdout.isatty()
    if not once and importlib.util.find_spec("textual") is None:
        needs = "the live view needs textual (pip install 'vllm-watch[top]')"
        print(f"vllm-watch: {needs}; this is printed once", file=sys.stderr)
        once = True
    if once:
        _show(daemon, as_json=arguments.json)
    else:
        from vllm_watch.cli.helpers.top.app import TopApp  # noqa: PLC0415 - textual is an extra

        TopApp(Daemon.at(daemon)).run()
    return exit_status.FINE


def _show(daemon: connection.Connection, *, as_json: bool) -> None:
    status = asked(daemon, Daemon.status)
    if as_json:
        print(json.dumps(as_data(status), separators=(",", ":")))
        return
    width = terminal.columns(10_000, low=1, elsewhere=_PIPE_COLUMNS)
    console = _console(width) if terminal.takes_colours(sys.stdout) else None
    for part in _parts(daemon.url, status, width):
        # Trailing blanks clutter a log.
        for line in part.split("\n"):
            line.rstrip()
            if line.plain.endswith("───"):
                line.truncate(_HEADER_COLUMNS)
            if console is None:
                line.truncate(width)
                print(line.plain)
            else:
                console.print(line, no_wrap=True, overflow="crop", crop=True)


def _console(width: int) -> Any:
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return Console(width=width, force_terminal=True, highlight=False)


def _parts(url: str, status: Status, width: int) -> list[Text]:
    rows = top_rows.arranged(top_rows.Curves().rows(status), "urgency", "")
    ill = sum(bool(row.target.incidents) for row in rows)
    shown = rows[: max(ill, _ENGINES_MAX)]
    # Omit the curve, the only column without a title. It needs several scrapes.
    columns = [each for each in top_rows.columns_for(width, shown) if each.title]
    engines = [top_rows.titles(columns, width)]
    engines += [top_rows.line(row, columns, selected=False) for row in shown]
    engines += [top_rows.folded(rows[len(shown) :])] if len(rows) > len(shown) else []
    told = [row for row in rows if row.target.incidents or row.state in _UNSEEN] or rows[:1]
    found = [
        top_panels.header(url, status, None, 0.0, min(width, _HEADER_COLUMNS)),
        top_story.wrong(status, width, _HEIGHT),
        Text("\n", no_wrap=True).join(engines),
        top_panels.gpus(status.gpus, width, _HEIGHT),
        *(top_story.detail(row, status, width, _HEIGHT) for row in told[:_ENGINES_MAX]),
        top_story.watcher(status, width),
    ]
    return [part for part in found if part.plain]


def as_data(status: Status) -> dict[str, Any]:
    """Return the snapshot as JSON."""
    rows = top_rows.arranged(top_rows.Curves().rows(status), "urgency", "")
    return {
        "t": status.t,
        "version": status.version,
        "wrong": [
            asdict(each) | {"do": each.to_do, "restart": each.restart_outcome}
            for each in top_story.open_incidents(status)
        ],
        "engines": [_engine(row) for row in rows],
        "stale": [
            {"gpu": gpu.uuid, "index": gpu.index, "stale_bytes": gpu.lost_bytes,
             "holders": [_holder(each) for each in gpu.processes or () if each.verdict == STALE]}
            for gpu in (status.gpus.gpus if status.gpus else None) or () if gpu.lost_bytes
        ],
        "restarts": [
            {"target": target.name, "mode": target.restart.mode,
             "told": top_story.restart_lines(target.restart, status.t)}
            for target in status.targets if target.restart is not None
        ],
        "watcher": {
            "troubles": [*top_story.watcher_troubles(status)],
            "targets": len(status.targets), "uptime_seconds": status.uptime_seconds,
        },
    }  # fmt: skip


_NUMBERS = (
    "throughput_ratio", "requests_running", "requests_waiting", "kv_cache_usage_ratio",
    "current_generation_tokens_per_second", "generation_tokens_per_second",
)  # fmt: skip


def _engine(row: top_rows.Row) -> dict[str, Any]:
    engine = row.engine
    numbers = {name: engine and getattr(engine, name) for name in _NUMBERS}
    for name in ("time_to_first_token", "inter_token_latency"):
        quantiles = engine and getattr(engine, f"{name}_seconds")
        numbers[f"{name}_p95_seconds"] = quantiles and quantiles.p95
    who = {"target": row.target.name, "group": row.target.group, "engine": engine and engine.engine}
    said = engine.state_text if engine else row.target.state_text
    return {**who, "state": row.state, "state_text": said, "age_seconds": row.age_seconds, **numbers}  # fmt: skip


def _holder(process: Any) -> dict[str, Any]:
    return {name: getattr(process, name) for name in ("pid", "name", "used_bytes", "reason", "remedy")}  # fmt: skip
