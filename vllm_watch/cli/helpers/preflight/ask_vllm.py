"""Ask the installed vLLM whether its argument parser accepts the command line."""

import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from importlib.resources import files
from typing import Any

from vllm_watch.preflight.command import SERVE, Command
from vllm_watch.preflight.facts import Asked, Facts
from vllm_watch.support import json_text
from vllm_watch.support.redaction import HIDDEN, excerpt, is_secret_name, safe_arguments

SECONDS_MAX = 60.0  # importing vLLM takes 5 to 30 s
_CHARACTERS_MAX = 600
_SECRET_CHARACTERS_MIN = 4
# The parser needs neither network nor GPU. Logs are not read.
_SETTINGS = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip


def ask_vllm(facts: Facts, seconds_max: float = SECONDS_MAX) -> Asked | None:
    """Return vLLM's answer, or None if the command's program has no Python with vLLM."""
    python, command = facts.software.python, facts.command
    if python is None:
        return None
    began = time.monotonic()
    request = json.dumps({"serve": command.program == SERVE, "words": list(command.arguments)})
    try:
        text = _run(python, request, command, seconds_max)
    except OSError:
        return None
    seconds = time.monotonic() - began
    if text is None:
        return Asked(seconds=seconds, failure=f"no answer within {seconds_max:g} s")
    answer = _read(text)
    if answer is None:
        return Asked(seconds=seconds, failure="it ended without an answer")
    if "refusal" not in answer:
        failure = answer.get("failure")
        return None if failure is None else Asked(seconds=seconds, failure=_plain(str(failure), command))  # fmt: skip
    refusal = answer["refusal"]
    return Asked(
        seconds=seconds,
        refusal=None if refusal is None else _plain(str(refusal), command),
        no_accelerator=bool(answer.get("unspecified", True)),
    )


def _run(python: str, request: str, command: Command, seconds_max: float) -> str | None:
    """Return the output, or None after `seconds_max`. The process and its children end with this call."""
    script = (files(__package__) / "vllm_parser.py").read_text()
    with subprocess.Popen(  # noqa: S603 - the interpreter that the command runs
        [python, "-c", script], env={**command.environment, **_SETTINGS}, start_new_session=True,
        encoding="utf-8", errors="replace", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as child:  # fmt: skip
        try:
            return child.communicate(request, timeout=seconds_max)[0]
        except BaseException as error:  # also SIGTERM's SystemExit
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def _read(text: str) -> dict[str, Any] | None:
    try:
        answer = json_text.read(text.rstrip().rpartition("\n")[2])
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _plain(text: str, command: Command) -> str:
    """Return one line without secrets, addresses of functions and pydantic's notes."""
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    text = re.sub(r"\[type=[^\n]*|For further information visit \S+", "", text)
    for word, shown in zip(command.argv, safe_arguments(command.argv), strict=True):
        if word != shown:
            text = text.replace(word, shown)
    named = [*command.flags.items(), *command.environment.items()]
    for value in {value for name, value in named if is_secret_name(name)}:
        for part in (value, *value.split()):
            if len(part) >= _SECRET_CHARACTERS_MIN:
                text = text.replace(part, HIDDEN)
    return excerpt(" ".join(text.split()), _CHARACTERS_MAX)
