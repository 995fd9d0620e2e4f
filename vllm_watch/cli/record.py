"""Record a server's scrapes."""

import argparse
from pathlib import Path

from vllm_watch.cli.helpers import engine_tls, exit_status
from vllm_watch.cli.helpers.recording_loop import record

HELP = """\
Record a server's answers and this host's GPUs to a trace file, until Ctrl-C or for a given time. A
server that does not answer is recorded too. The file grows to 256 MiB (about ten hours at one scrape
per second); from then on the older half is dropped whenever it is full.

examples:
  vllm-watch record --target http://127.0.0.1:8000 --out today.jsonl.gz
  vllm-watch record --target http://10.0.0.7:8000 --out slow.jsonl.gz --interval 5 --duration 600
  vllm-watch replay today.jsonl.gz"""

_INTERVAL_SECONDS = 1.0
_INTERVAL_SECONDS_MIN = 0.1  # shorter intervals would load the server
_FILE_BYTES_MAX = 256 << 20


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of seconds\n→ write seconds, 0.1 or more: 5"
        ) from None
    if not _INTERVAL_SECONDS_MIN <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(
            f"{text} is out of range\n→ write seconds, {_INTERVAL_SECONDS_MIN} or more: 5"
        )
    return seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--target", metavar="URL", required=True, help="base URL of the vLLM server")
    add("--out", metavar="FILE", type=Path, required=True, help="a new .jsonl.gz file")
    add("--interval", metavar="S", type=_seconds, default=_INTERVAL_SECONDS,
        help="seconds between scrapes (default 1)")  # fmt: skip
    add("--duration", metavar="S", type=_seconds, help="seconds until it ends (default: at Ctrl-C)")
    engine_tls.add(parser)


def run(arguments: argparse.Namespace) -> int:
    record(
        arguments.target,
        arguments.out,
        interval_seconds=arguments.interval,
        duration_seconds=arguments.duration,
        bytes_max=_FILE_BYTES_MAX,
        tls=engine_tls.said(arguments),
    )
    return exit_status.FINE
