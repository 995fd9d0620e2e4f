"""Gather facts, judge, print, and exec vLLM."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from vllm_watch.cli.helpers import exit_status, progress, terminal
from vllm_watch.cli.helpers.preflight.ask_vllm import ask_vllm
from vllm_watch.cli.helpers.preflight.facts import gather
from vllm_watch.cli.helpers.preflight.gpus import GpuLooks, with_gpus
from vllm_watch.errors import WatchError
from vllm_watch.preflight.facts import OK, PROBLEM, UNKNOWN, WARNING, Facts, Finding
from vllm_watch.preflight.judge import Verdict, as_json, judge
from vllm_watch.support.visible import visible, visible_lines

_TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Order:
    """The command line's arguments."""

    words: tuple[str, ...]
    as_json: bool
    execute: bool
    wait_seconds: float
    ask_vllm: bool


def preflight(order: Order) -> int:
    """Return the exit status, or exec vLLM."""
    # PID 1 ignores SIGTERM without a handler.
    signal.signal(signal.SIGTERM, _ended)
    known = gather(order.words, dict(os.environ))
    if order.ask_vllm:
        with progress.waiting("asking vLLM's own parser"):
            known = replace(known, asked=ask_vllm(known))
    if order.wait_seconds:  # waiting prints its own progress
        facts = asyncio.run(_with_gpus(known, order.wait_seconds))
    else:
        with progress.waiting("looking at who uses the GPUs"):
            facts = asyncio.run(_with_gpus(known, 0.0))
    verdict = judge(facts)
    _say(order, facts, verdict)
    if not verdict.go:
        return exit_status.NO_GO
    if order.execute:
        _become(order.words)
    return exit_status.FINE


async def _with_gpus(known: Facts, wait_seconds: float) -> Facts:
    looks = GpuLooks()
    try:
        return await with_gpus(looks, known, wait_seconds, _tell)
    finally:
        await looks.close()


def _say(order: Order, facts: Facts, verdict: Verdict) -> None:
    out = sys.stderr if order.execute else sys.stdout
    if order.as_json:
        print(json.dumps(as_json(facts, verdict)), file=out, flush=True)
        return
    colours = terminal.takes_colours(out)
    print("\n".join(_lines(facts, verdict, colours=colours)), file=out, flush=True)


_WORDS = {OK: "ok", WARNING: "warning", PROBLEM: "PROBLEM", UNKNOWN: "unknown"}
_COLOURS = {OK: "\033[32m", WARNING: "\033[33m", PROBLEM: "\033[1;31m", UNKNOWN: "\033[2m"}
_END = "\033[0m"


def _lines(facts: Facts, verdict: Verdict, *, colours: bool) -> list[str]:
    found = [line for each in verdict.findings for line in _finding(each, colours=colours)]
    return [
        f"launch: {visible(facts.command.shown())}",
        "",
        *found,
        "",
        _end(verdict, colours=colours),
    ]


def _finding(finding: Finding, *, colours: bool) -> Iterator[str]:
    word = f"{_WORDS[finding.status]:8}"
    if colours:
        word = f"{_COLOURS[finding.status]}{word}{_END}"
    yield f"{word} {finding.check:13} {visible_lines(finding.text)}"
    for fix in finding.fixes:
        yield visible_lines(f"{'':9}→ {fix.what}" + (f":  {fix.command}" if fix.command else ""))


def _end(verdict: Verdict, *, colours: bool) -> str:
    count = len(verdict.problems)
    unknown = sum(each.status == UNKNOWN for each in verdict.findings)
    if count:
        text, status = f"NO-GO: {count} {'problem' if count == 1 else 'problems'}", PROBLEM
    else:
        text, status = "GO: no problem found", OK
    text += f" ({unknown} unknown)" if unknown else ""
    return f"{_COLOURS[status]}{text}{_END}" if colours else text


def _tell(text: str) -> None:
    print(f"vllm-watch: {text}", file=sys.stderr, flush=True)


def _ended(number: int, frame: object) -> NoReturn:
    raise SystemExit(_TERMINATED)


def _become(words: tuple[str, ...]) -> NoReturn:
    # vLLM would inherit the signals that Python ignores.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(words[0], words)  # noqa: S606 - deliberately without a shell
    except OSError as error:
        raise WatchError(
            f"'{words[0]}' cannot be started: {error.strerror}", "name the program that starts vLLM"
        ) from None
