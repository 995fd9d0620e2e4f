"""Show the rules and evidence behind an incident."""

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import datetime

from vllm_watch.cli.helpers import connection, exit_status, terminal
from vllm_watch.cli.helpers.top.status import Explained, asked
from vllm_watch.incidents.way import Step
from vllm_watch.notify.words import ENDED
from vllm_watch.story.base import CURES, severity_word
from vllm_watch.support.quantities import in_words
from vllm_watch.support.visible import visible

HELP = """\
Explains an incident: first why it is critical or not and why no restart is advised, then each of its changes with the
rule that applied, the next rule, the evidence, and any later change (another incident that pages for it, a rank,
a restart, a recurrence). Works for incidents that have ended, too.

examples:
  vllm-watch explain engine_stalled-1764633600-1a2b3c4d
  vllm-watch explain engine_stalled-1764633600-1a2b3c4d --json
  vllm-watch explain engine_stalled-1764633600-1a2b3c4d --url http://gpu-7:9470"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("incident", metavar="INCIDENT", help="the incident's id, from the page, the log or /api/v1/incidents")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the daemon's answer as JSON")
    connection.add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    found = asked(connection.of(arguments), lambda daemon: daemon.explained(arguments.incident))
    print(json.dumps(found.model_dump()) if arguments.json else _text(found))
    return exit_status.FINE


def _text(one: Explained) -> str:
    columns = terminal.columns() - 1
    paint = terminal.painter(sys.stdout)
    where = one.target if one.engine is None else f"{one.target}, engine {one.engine}"
    began_t, ended_t = one.began_timestamp_seconds, one.ended_timestamp_seconds
    why = one.explanation
    now = f"{severity_word(one.severity)}, {one.phase}, since {_clock(began_t)}"
    if one.resolution and ended_t is not None:
        how = ENDED.get(one.resolution, one.resolution)
        now = f"was {severity_word(one.severity)} for {in_words(ended_t - began_t)}, ended {_clock(ended_t)}: {how}"
    head = [
        f"{paint(terminal.BOLD, visible(one.title))} on {visible(where)}: {now}",
        *_wrapped("  ", one.summary, columns),
        *_wrapped("  Severity: ", why.severity, columns),
        *_wrapped("  Restart:  ", why.no_restart or CURES, columns),
    ]  # fmt: skip
    steps = [line for step in why.way for line in _step(step, columns, paint)]
    return "\n".join([*head, *(steps or ["", "Its history was not kept."])])


def _step(step: Step, columns: int, paint: terminal.Paint) -> Iterator[str]:
    advised = ", restart advised" if step.restart_advised else ""
    yield ""
    yield f"{_clock(step.t)}  {paint(terminal.BOLD, step.event)}: {severity_word(step.severity)}, {visible(step.cause)}{advised}"
    lines = [
        ("rule:    ", step.rule), ("", "" if step.rule else step.summary), ("next:    ", step.next_rule),
        *(("for:     ", each) for each in step.evidence), *(("against: ", each) for each in step.against),
        *(("changed: ", each) for each in step.changes),
    ]  # fmt: skip
    for name, text in lines:
        if text:
            yield from _wrapped(f"  {name}", text, columns)


def _wrapped(name: str, text: str, columns: int) -> list[str]:
    return terminal.wrapped(visible(text), columns, name, " " * max(len(name), 4))


def _clock(t: float) -> str:
    return datetime.fromtimestamp(t).astimezone().strftime("%d %b %H:%M:%S")
