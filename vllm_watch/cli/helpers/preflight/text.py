"""A verdict for people: a line for each finding, with what mends it below, and the end in one line."""

from collections.abc import Iterator

from vllm_watch.preflight.facts import Facts
from vllm_watch.preflight.findings import OK, PROBLEM, UNKNOWN, WARNING, Finding
from vllm_watch.preflight.judge import Verdict
from vllm_watch.support.visible import visible, visible_lines

_WORDS = {OK: "ok", WARNING: "warning", PROBLEM: "PROBLEM", UNKNOWN: "unknown"}
_COLOURS = {OK: "\033[32m", WARNING: "\033[33m", PROBLEM: "\033[1;31m", UNKNOWN: "\033[2m"}
_END = "\033[0m"


def lines(facts: Facts, verdict: Verdict, *, colours: bool) -> list[str]:
    """All of it."""
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
        text, status = "GO: nothing that is known stands in the way", OK
    text += f" ({unknown} unknown)" if unknown else ""
    return f"{_COLOURS[status]}{text}{_END}" if colours else text
