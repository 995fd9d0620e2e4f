"""Explain an engine's failed start or death from its log."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

from vllm_watch.cli.helpers import exit_status
from vllm_watch.diagnosis.catalogue import FAILURES
from vllm_watch.diagnosis.explaining import as_sentence
from vllm_watch.diagnosis.reading import LogReader
from vllm_watch.diagnosis.report import NOT_VLLM, Check, Diagnosis, Fix, to_json
from vllm_watch.errors import WatchError
from vllm_watch.sources.engine_log import pieces
from vllm_watch.support.redaction import redacted
from vllm_watch.support.visible import visible_lines

HELP = """\
Reads a log of vLLM (of a failed start or a crash) and shows the failure, the line that shows it, the cause, and the
fixes. The log is a file (also gzip) or standard input, of any size. It may contain prefixes of journalctl, kubectl,
docker and Ray, colours, and lines of several workers.

examples:
  vllm-watch diagnose vllm.log
  kubectl logs --previous vllm-0 | vllm-watch diagnose -
  journalctl -u vllm --since -1h | vllm-watch diagnose - --json

A single line, or the kernel's log (dmesg), is accepted, too.

exit status: 0 no error found, 1 an error found (of a known class or not), 2 not a log, empty, or unreadable"""

_NOT_A_LOG = "give the output of vLLM from its start on: journalctl -u vllm, docker logs, kubectl logs --previous"
_OF_ANOTHER = "search the issues of that program for the error"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log", metavar="LOG", nargs="?", default="-", help="a file, or '-' (default) for stdin"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    reader = LogReader()
    for piece in pieces(arguments.log):
        reader.feed(piece)
        if reader.refused:
            break
    reader.end()
    diagnosis = reader.diagnosis()
    # Operators paste the output into tickets.
    line = diagnosis.root_cause_line and redacted(diagnosis.root_cause_line)
    explanation = redacted(diagnosis.explanation)
    diagnosis = replace(diagnosis, root_cause_line=line, explanation=explanation)
    if diagnosis.failure == NOT_VLLM and not arguments.json:
        name = "standard input" if arguments.log == "-" else arguments.log
        why = diagnosis.explanation[0].lower() + diagnosis.explanation[1:].rstrip(".")
        raise WatchError(f"{name}: {why}", _OF_ANOTHER if diagnosis.root_cause_line else _NOT_A_LOG)
    if arguments.json:
        print(json.dumps(to_json(diagnosis)))
    else:
        print(visible_lines("\n".join(_lines(diagnosis))))
    if diagnosis.failure == NOT_VLLM:
        return exit_status.WRONG_USAGE
    return exit_status.FOUND if diagnosis.found else exit_status.FINE


def _lines(diagnosis: Diagnosis) -> list[str]:
    sentence = as_sentence(diagnosis.sentence)
    said = [f"{sentence[:-1]} (confidence {diagnosis.confidence:g})"]
    if diagnosis.root_cause_line is not None:
        said += ["", f"  line {diagnosis.line_number}: {diagnosis.root_cause_line}"]
    # The explanation may repeat the sentence above.
    if explanation := diagnosis.explanation.removeprefix(sentence).strip():
        said += ["", explanation]
    checks = [fix for fix in diagnosis.fixes if isinstance(fix, Check)]
    changes = [fix for fix in diagnosis.fixes if not isinstance(fix, Check)]
    said += _steps("check first:" if changes else "what to check:", checks)
    said += _steps("then, if that confirms it:" if checks else "what to do, if this fits:", changes)
    if diagnosis.facts:
        said += ["", "facts about the engine from the log:"]
        said += [f"  {name:24}{value}" for name, value in sorted(diagnosis.facts.items())]
    known = FAILURES.get(diagnosis.failure)
    gloss = f" ({known.sentence})" if known and known.sentence != diagnosis.sentence else ""
    return [*said, "", f"class: {diagnosis.failure}{gloss}"]


def _steps(heading: str, fixes: Sequence[Fix]) -> list[str]:
    said = ["", heading] if fixes else []
    for fix in fixes:
        said.append(f"  - {fix.what}")
        said += [f"      {fix.command}"] if fix.command is not None else []
    return said
