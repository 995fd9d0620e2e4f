"""Check a launch before it starts."""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

from vllm_watch.cli.helpers import exit_status, options, terminal
from vllm_watch.cli.helpers.gpu_holders import (
    BRIEF,
    LOOK_SECONDS,
    LOOKS,
    command_of,
    gpu_source,
)
from vllm_watch.cli.helpers.launch import gather
from vllm_watch.cli.helpers.launch_software import ask_vllm
from vllm_watch.errors import WatchError
from vllm_watch.preflight.check_gpus import memory_missing
from vllm_watch.preflight.facts import OK, PROBLEM, UNKNOWN, WARNING, Facts, Finding
from vllm_watch.preflight.judge import as_json, judge, problems
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.support.visible import visible, visible_lines

_TELL_AGAIN_SECONDS = 15.0
_COMMAND_CHARACTERS = 60
_seconds = options.number(
    lambda value: 0 <= value <= options.SECONDS_MAX,
    f"is not a time to wait\n→ write seconds from 0 to {options.SECONDS_MAX:g}",
)

HELP = """\
Checks a vLLM launch before it starts: flags, model files, GPUs and who holds their memory, whether the
model fits, driver, shared memory, port. Every problem is a line with numbers, its cause and the command that
fixes it. Facts that cannot be read here are shown as unknown and do not stop the launch. Write the command as you
would start it: `vllm serve` or `python -m vllm.entrypoints.openai.api_server`, with its configuration file
and environment. Exit status 0: go, 3: no-go.

With --exec it becomes vLLM if it finds no problem, so it can be a container's entrypoint: signals, output and exit
status are then those of vLLM, and the findings go to stderr.

examples:
  vllm-watch preflight -- vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 32k
  vllm-watch preflight --json -- vllm serve --config serve.yaml | jq '.findings[] | select(.status == "problem")'
  vllm-watch preflight --exec --wait-for-vram 120 -- vllm serve /models/llama"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--exec", action="store_true", help="become vLLM if no problem is found")  # fmt: skip
    parser.add_argument("--wait-for-vram", metavar="SECONDS", type=_seconds, default=0.0,
        help="wait up to this long until the GPU memory that the launch needs is free")  # fmt: skip
    parser.add_argument("--no-ask-vllm", action="store_false", dest="ask_vllm", help="do not run the installed vLLM's own argument parser (up to 60 s)")  # fmt: skip
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="after --: the command that starts vLLM")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if vLLM can start, else 3."""
    words = tuple(arguments.command[arguments.command[:1] == ["--"] :])
    if not words:
        remedy = "put it after --: vllm-watch preflight -- vllm serve MODEL"
        raise WatchError("no command is given", remedy)
    # PID 1 ignores SIGTERM without a handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    known = gather(words, dict(os.environ))
    if arguments.ask_vllm:
        with terminal.waiting("asking vLLM's own parser"):
            known = replace(known, asked=ask_vllm(known))
    told = terminal.waiting("looking at who uses the GPUs")
    # Waiting for memory prints its own progress.
    with contextlib.nullcontext() if arguments.wait_for_vram else told:
        facts = asyncio.run(_with_gpus(known, arguments.wait_for_vram))
    findings = judge(facts)
    _say(arguments, facts, findings)
    if problems(findings):
        return exit_status.NO_GO
    if arguments.exec:
        _become(words)
    return exit_status.FINE


async def _with_gpus(facts: Facts, wait_seconds: float) -> Facts:
    """Poll until the GPUs are judged. Wait up to `wait_seconds` for free memory."""
    judge, began_s = HolderJudge(BRIEF), time.monotonic()
    told, told_s, seen = "", began_s, 0
    async with gpu_source() as source:
        while True:
            facts = _looked(facts, await source.read(), judge)
            seen += 1
            waited_s = time.monotonic() - began_s
            waits_for = memory_missing(facts)
            waits = bool(waits_for) and waited_s < wait_seconds
            # Judging processes takes several polls. Free memory is known after one.
            if not waits and (not waits_for or seen >= LOOKS):
                if told:
                    _tell(f"{'waited in vain' if waits_for else 'the memory is free'} after {waited_s:.0f} s")  # fmt: skip
                return facts
            again = time.monotonic() - told_s >= _TELL_AGAIN_SECONDS
            if waits and (waits_for != told or again):
                _tell(f"waiting for GPU memory, {wait_seconds - waited_s:.0f} s more at most: {waits_for}")  # fmt: skip
                told, told_s = waits_for, time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)


def _looked(facts: Facts, reading: GpuReading, judge: HolderJudge) -> Facts:
    gpus = reading.known_gpus
    text = reading.text or ("" if gpus else "the driver lists none: none was given to this container")  # fmt: skip
    software = replace(facts.software, driver=reading.driver_version)
    facts = replace(facts, gpus=None, gpus_text=text, software=software)
    if gpus is None:
        return facts
    judged = judge.look(time.monotonic(), reading.t, gpus)
    said = {
        holder.process.pid: said[:_COMMAND_CHARACTERS]
        for gpu in judged
        for holder in gpu.holders or ()
        if (said := command_of(holder)) is not None
    }
    return replace(facts, gpus=judged, commands=said)


def _say(arguments: argparse.Namespace, facts: Facts, findings: tuple[Finding, ...]) -> None:
    out = sys.stderr if arguments.exec else sys.stdout
    if arguments.json:
        print(json.dumps(as_json(facts, findings)), file=out, flush=True)
        return
    paint = terminal.painter(out)
    found = [line for each in findings for line in _finding(each, paint)]
    launch = f"launch: {visible(facts.command.shown())}"
    print("\n".join([launch, "", *found, "", _end(findings, paint)]), file=out, flush=True)


_WORDS = {OK: "ok", WARNING: "warning", PROBLEM: "PROBLEM", UNKNOWN: "unknown"}
_STYLES = {OK: "32", WARNING: terminal.YELLOW, PROBLEM: terminal.RED, UNKNOWN: terminal.DIM}


def _finding(finding: Finding, paint: terminal.Paint) -> Iterator[str]:
    word = paint(_STYLES[finding.status], f"{_WORDS[finding.status]:8}")
    yield f"{word} {finding.check:13} {visible_lines(finding.text)}"
    for fix in finding.fixes:
        yield visible_lines(f"{'':9}→ {fix.what}" + (f":  {fix.command}" if fix.command else ""))


def _end(findings: tuple[Finding, ...], paint: terminal.Paint) -> str:
    count = problems(findings)
    unknown = sum(each.status == UNKNOWN for each in findings)
    text = "GO: no problem found"
    if count:
        text = f"NO-GO: {count} {'problem' if count == 1 else 'problems'}"
    text += f" ({unknown} unknown)" if unknown else ""
    return paint(_STYLES[PROBLEM if count else OK], text)


def _tell(text: str) -> None:
    print(f"vllm-watch: {text}", file=sys.stderr, flush=True)


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
        cause = f"'{words[0]}' cannot be started: {error.strerror}"
        raise WatchError(cause, "name the program that starts vLLM") from None
