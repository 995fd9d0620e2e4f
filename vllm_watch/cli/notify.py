"""Send a test message."""

import argparse
import asyncio
import json
import os
from dataclasses import asdict
from pathlib import Path

from vllm_watch.cli.helpers import exit_status
from vllm_watch.cli.hook import finding_lines
from vllm_watch.config import load
from vllm_watch.notify.kinds import named, send_test
from vllm_watch.support import logs
from vllm_watch.support.visible import visible_lines

HELP = """\
Send a test message through one notifier of the configuration, once, and report the result. The message is
marked as a test. No daemon is needed.

examples:
  vllm-watch notify test oncall --config /etc/vllm-watch/vllm-watch.yaml
  vllm-watch notify test oncall --config /etc/vllm-watch/vllm-watch.yaml --json

exit status: 0 accepted, 1 not accepted, 2 wrong usage"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="test", choices=["test"], help="send a test")
    parser.add_argument("name", metavar="NAME", help="the notifier's name in the configuration")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the configuration (YAML)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    logs.configure("warning")
    config = load(arguments.config, environ=os.environ)
    kind, settings = named(config.notifications, arguments.name)
    findings = asyncio.run(send_test(config.notifications_linked, settings))
    ok = all(each.ok for each in findings)
    if arguments.json:
        said = [*map(asdict, findings)]
        document = {"notifier": arguments.name, "kind": kind, "ok": ok, "findings": said}
        print(json.dumps(document, indent=2))
    else:
        head = f"notifier {arguments.name} ({kind})"
        print(visible_lines("\n".join([head, *finding_lines(findings)])))
    return exit_status.FINE if ok else exit_status.FOUND
