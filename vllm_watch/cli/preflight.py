"""Check a launch before it starts."""

import argparse

from vllm_watch.cli.helpers.preflight import run as preflight_run
from vllm_watch.errors import WatchError

SECONDS_MAX = 86_400.0

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
    parser.add_argument(
        "--wait-for-vram", metavar="SECONDS", type=_seconds, default=0.0,
        help="wait up to this long until the GPU memory that the launch needs is free",
    )  # fmt: skip
    parser.add_argument("--no-ask-vllm", action="store_false", dest="ask_vllm", help="do not run the installed vLLM's own argument parser (up to 60 s)")  # fmt: skip
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="after --: the command that starts vLLM")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if vLLM can start, else 3."""
    words = list(arguments.command)
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise WatchError(
            "no command is given", "put it after --: vllm-watch preflight -- vllm serve MODEL"
        )
    order = preflight_run.Order(
        words=tuple(words),
        as_json=arguments.json,
        execute=arguments.exec,
        wait_seconds=arguments.wait_for_vram,
        ask_vllm=arguments.ask_vllm,
    )
    return preflight_run.preflight(order)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a time to wait\n→ write seconds from 0 to {SECONDS_MAX:g}"
        )
    return value
