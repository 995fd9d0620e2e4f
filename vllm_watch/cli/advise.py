"""Suggest better settings."""

import argparse
from pathlib import Path

from vllm_watch.cli.helpers import advising, connection

HELP = """\
Finds vLLM's settings that do not suit the observed work: a KV cache starved by a low utilization,
preemptions that a limit would cure, GPUs that lie idle, prefix caching that is off, a context that no request
uses, slow attention kernels. Asks a running vllm-watch, or judges a recording. Each suggestion
names the flag to set, the numbers and the reason. At least ten minutes of scrapes are required; unknown values are
left out. The exit status is 0 even if something is suggested.

examples:
  vllm-watch advise
  vllm-watch advise --url http://gpu-7:9470 --json | jq '.targets[].advice[].flag'
  vllm-watch advise --trace yesterday.jsonl.gz
  journalctl -u vllm | vllm-watch advise --engine-log -"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    connection.add_daemon(parser)
    parser.add_argument("--trace", metavar="FILE", type=Path, help="judge a recording instead")
    parser.add_argument(
        "--engine-log", metavar="FILE",
        help="only check the attention kernels in the log of an engine's start (-: standard input)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    return advising.advise(
        daemon=connection.of(arguments),
        trace=arguments.trace,
        engine_log=arguments.engine_log,
        as_json=arguments.json,
    )
