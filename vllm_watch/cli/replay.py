"""Judge a recording, or metrics stored in Prometheus, as the daemon would."""

import argparse
import time
from functools import partial
from pathlib import Path

from vllm_watch.cli.helpers import connection, exit_status, moments
from vllm_watch.cli.helpers.replaying import replay
from vllm_watch.errors import WatchError

HELP = """\
Judge a recording as if it were live, at full speed, and report its incidents. The exit status is 0
whatever it finds; an empty or unreadable recording is an error (2).

For a log of vLLM use `vllm-watch diagnose vllm.log`.

With --prometheus it judges the stored history of every vLLM that a Prometheus (Thanos, Mimir, VictoriaMetrics)
scrapes: the incidents, the alerts that fired during them and at healthy times, and the faults that are too short
for the scrape interval. --report writes the same as one HTML file.

examples:
  vllm-watch replay incident.jsonl.gz                  # a summary for people
  vllm-watch replay incident.jsonl.gz --json           # its incidents, one JSON object per line
  vllm-watch replay incident.jsonl.gz --state --json   # the state at its end, one object per target
  vllm-watch replay --prometheus http://prometheus:9090 --since 7d
  vllm-watch replay --prometheus https://mimir/prometheus --header 'X-Scope-OrgID: llm' --match '{namespace="chat"}' --report week.html"""

_ONLY_PROMETHEUS = ("since", "until", "match", "report", "ca_file", "cert_file", "credentials_file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("trace", metavar="TRACE", type=Path, nargs="?", help="a .jsonl.gz or .jsonl recording")
    add(
        "--config", metavar="FILE", type=Path, help="windows, objectives and thresholds to judge by"
    )
    add("--json", action="store_true", help="print only incidents, as JSON lines")
    add("--state", action="store_true", help="print the state at the end, always as JSON")
    group = parser.add_argument_group("the history of a Prometheus")
    add = group.add_argument
    add("--prometheus", metavar="URL", help="its address, with its path if it has one")
    moment = partial(moments.moment, now_t=time.time())
    parser.set_defaults(moment=moment)
    add("--since", metavar="T", type=moment, help="start: 12h or 7d ago, a date (local time), or Unix seconds (default: 7d)")  # fmt: skip
    add("--until", metavar="T", type=moment, help="end (default: now)")
    add("--match", metavar="SELECTOR", help="only servers with these labels, such as '{namespace=\"chat\"}'")  # fmt: skip
    add("--report", metavar="FILE", type=Path, help="write one HTML file")
    add("--header", metavar="NAME: VALUE", action="append", default=[], help="send this header; repeatable")  # fmt: skip
    add("--ca-file", metavar="FILE", type=Path, help="CAs that sign its certificate, in PEM")
    add("--cert-file", metavar="FILE", type=Path, help="your certificate with its key, in PEM")
    add("--credentials-file", metavar="FILE", type=Path, help="file with USER:PASSWORD")


def run(arguments: argparse.Namespace) -> int:
    if arguments.prometheus is not None:
        _of_prometheus(arguments)
        return exit_status.FINE
    given = next((name for name in _ONLY_PROMETHEUS if getattr(arguments, name) is not None), None)
    if given is not None:
        option = f"--{given.replace('_', '-')}"
        raise WatchError(f"{option} without --prometheus", "add --prometheus URL")
    if arguments.trace is None:
        raise WatchError("no recording given", "give a recording or --prometheus URL")
    prints = "incidents" if arguments.json else "summary"
    replay(arguments.trace, arguments.config, "state" if arguments.state else prints)
    return exit_status.FINE


def _of_prometheus(arguments: argparse.Namespace) -> None:
    from vllm_watch.cli.helpers.history.judging import Order, judge  # noqa: PLC0415 - brings aiohttp

    if arguments.trace is not None or arguments.state:
        raise WatchError("--prometheus with a recording or --state", "use one or the other")
    if "://" not in arguments.prometheus:
        arguments.prometheus = f"http://{arguments.prometheus}"
    arguments.url = arguments.prometheus
    there = connection.of(arguments, option="--prometheus")
    until_t = arguments.moment("0s") if arguments.until is None else arguments.until
    since_t = arguments.moment("7d") if arguments.since is None else arguments.since
    if since_t >= until_t:
        raise WatchError("--since is not before --until", "write an earlier moment: --since 7d")
    headers = dict(map(_header, arguments.header))
    judge(Order(
        url=there.url, since_t=since_t, until_t=until_t, match=arguments.match or "", headers=headers | there.headers(),
        tls=there.tls(), config_file=arguments.config, as_json=arguments.json, report=arguments.report,
    ))  # fmt: skip


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not value.strip().isprintable():
        raise WatchError("--header: the value (not shown) is not a header", "write 'NAME: VALUE'")
    return name.strip(), value.strip()
