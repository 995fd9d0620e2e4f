"""Explain a configuration, or list all of its errors."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from vllm_watch.cli.helpers import exit_status
from vllm_watch.config import Config, load
from vllm_watch.errors import ConfigError, WatchError
from vllm_watch.export.web_config import check
from vllm_watch.notify import base, kinds
from vllm_watch.restart.schedule import next_due
from vllm_watch.settings import restart_times
from vllm_watch.settings.errors import InvalidConfigError
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.settings.target import TargetConfig
from vllm_watch.settings.tls import TlsConfig
from vllm_watch.sources import http
from vllm_watch.sources.host_servers import Neighbours
from vllm_watch.sources.processes import ProcessListing
from vllm_watch.sources.vllm import VllmSource
from vllm_watch.support import logs
from vllm_watch.support.redaction import redacted
from vllm_watch.support.visible import visible, visible_lines

HELP = """\
Prints each target with its settings, and every setting that differs from its default. Reads the file and
VLLM_WATCH_* variables as `run` does; scrapes no server unless --ask is given. Also checks that each notifier's files,
variables and libraries exist.

examples:
  vllm-watch check-config /etc/vllm-watch/vllm-watch.yaml
  vllm-watch check-config vllm-watch.yaml --ask
  vllm-watch check-config vllm-watch.yaml --json | jq '.targets[].url'
  vllm-watch check-config --schema > vllm-watch.schema.json

exit status: 0 usable, 1 usable, but a target did not answer as vLLM (--ask), 2 not usable (every error is on stderr)
"""

_ASKED_AT_ONCE = 50
_SCHEMA = Path(restart_times.__file__).with_name("vllm-watch.schema.json")
_COLUMNS = ("TARGET", "GROUP", "URL", "INTERVAL", "TIMEOUT", "API KEY", "TLS", "OBJECTIVES")
_OBJECTIVES = {
    "time_to_first_token_seconds": "TTFT",
    "inter_token_latency_seconds": "ITL",
    "e2e_latency_seconds": "E2E",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, nargs="?", help="the configuration (YAML)")
    add("--ask", action="store_true",
        help="scrape each configured target once and print the result")  # fmt: skip
    add("--json", action="store_true", help="print all effective settings as JSON")
    add("--schema", action="store_true",
        help="print the JSON schema of the configuration, for editors and CI")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    logs.configure("warning")
    if arguments.schema:
        print(_SCHEMA.read_text(), end="")
        return exit_status.FINE
    if arguments.file is None:
        raise WatchError("no FILE given", "name the configuration, or use --schema")
    config = load(arguments.file, environ=os.environ)
    if config.web_config is not None:
        check(config.web_config)
    notifiers = _notifiers(arguments.file, config)
    # A webhook's URL may contain a token.
    if arguments.json:
        document = config.model_dump(mode="json")
        for shown, target in zip(document["targets"], config.targets, strict=True):
            for name in ("scrape", "canary", "slo"):
                effective = getattr(config, f"{name}_for")(target)
                shown[name] = effective.model_dump(mode="json")
        print(json.dumps(_redacted(document), indent=2))
    else:
        told = filter(None, (*_in_words(arguments.file, config), notifiers))
        print(visible_lines(redacted("\n\n".join(told))))
    if arguments.ask and not asyncio.run(_answers(config)):
        return exit_status.FOUND
    return exit_status.FINE


async def _answers(config: Config) -> bool:
    neighbours = Neighbours(ProcessListing(config.procfs), config.procfs)
    once = asyncio.Semaphore(_ASKED_AT_ONCE)
    async with http.Session() as session:

        async def ask(target: TargetConfig) -> bool:
            source = VllmSource(target.identity(), config.scrape_for(target), session, neighbours)
            async with once:
                look = (await source.observe()).observation
            why_not = look.scrape.error if look.reading is None else look.reading.why_not
            print(visible(redacted(f"{target.name}: {why_not or 'vLLM answers'}")), file=sys.stderr)
            return why_not is None

        return all(await asyncio.gather(*map(ask, config.targets)))


def _notifiers(file: Path, config: Config) -> str:
    if not config.notifications.each():
        return ""
    lines, wrong = ["notifiers:"], []
    for kind, name, settings in config.notifications.each():
        for finding in kinds.check(settings, base.Tools()):
            if finding.ok:
                lines.append(f"  {name} ({kind}): {finding.text}")
            else:
                cause = f"{file}: notifications.{kind} {name}: {finding.text}"
                wrong.append(ConfigError(cause, finding.remedy or "see docs/notifications.md"))
    if wrong:
        raise InvalidConfigError(wrong)
    return "\n".join(lines)


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_redacted(inner) for inner in value]
    return redacted(value) if isinstance(value, str) else value


def _in_words(file: Path, config: Config) -> Iterator[str]:
    yield f"{file} is usable."
    yield _targets(config)
    found = [f"  file_sd  {pattern}" for pattern in config.discovery.file_sd]
    found += [
        f"  pods     {each.selector}, in {', '.join(each.namespaces) or 'our own namespace'}, port {each.port}"
        for each in config.discovery.kubernetes
    ]
    if found:
        every = f"searched every {config.discovery.refresh_seconds:g} s"
        yield "\n".join([f"discovered targets, {every}:", *found])
    yield _schedules(config)
    yield _set(config)


def _schedules(config: Config) -> str:
    lines, now_t = [], time.time()
    for target in config.targets:
        restart = config.restart_for(target)
        for each in restart.schedules if restart.mode != "off" else ():
            due_t = next_due(each, restart.time_zone, now_t)
            if due_t is None:
                lines.append(f"  {target.name}: {each.name} never falls due")
                continue
            zone = "whatever the zone"
            if each.cron:
                zone = f"the hours are those of {restart.time_zone}"
            due = f"falls due {_moment(due_t, restart)}, {zone}{_opens(due_t, restart)}"
            lines.append(f"  {target.name}: {each.name} {due}")
    return "\n".join(["restarts at set times:", *lines]) if lines else ""


def _opens(due_t: float, restart: RestartSettings) -> str:
    allowed = tuple(map(restart_times.parse_window, restart.windows))
    opens_t = restart_times.next_open(allowed, restart.zone, due_t) if allowed else due_t
    if opens_t is None:
        return "; no window ever opens: it never happens"
    return "" if opens_t == due_t else f"; its window opens {_moment(opens_t, restart)}"


def _moment(t: float, restart: RestartSettings) -> str:
    return datetime.fromtimestamp(t, restart.zone).isoformat(" ", "minutes")


def _targets(config: Config) -> str:
    if not config.targets:
        ways = ("host", "file_sd", "kubernetes")
        found = [f"discovery.{key}" for key in ways if getattr(config.discovery, key)]
        here = "will look for vLLM servers on this host"
        if found:
            here = f"finds them by {', '.join(found)}"
        return f"No targets configured: `run` {here}"
    rows = [_COLUMNS, *(_row(config, target) for target in config.targets)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(config: Config, target: TargetConfig) -> tuple[str, ...]:
    scrape, slo = config.scrape_for(target), config.slo_for(target)
    limits = {short: getattr(slo, key) for key, short in _OBJECTIVES.items()}
    objectives = [f"{short} {limit:g} s" for short, limit in limits.items() if limit is not None]
    return (
        target.name,
        target.group,
        target.url,
        f"{scrape.interval_seconds:g} s",
        f"{scrape.timeout_seconds:g} s",
        "none" if scrape.api_key_file is None else scrape.api_key_file.name,
        _tls(scrape.tls_config) if target.url.startswith("https:") else "none",
        ", ".join(objectives) or "none",
    )


def _tls(tls: TlsConfig) -> str:
    trusted = "this host's authorities" if tls.ca_file is None else tls.ca_file.name
    words = ["any certificate" if tls.insecure_skip_verify else trusted]
    words += [f"for {tls.server_name}"] if tls.server_name else []
    words += [f"as {tls.cert_file.name}"] if tls.cert_file else []
    return ", ".join(words)


def _set(config: Config) -> str:
    left_out = {"targets", "discovery"}
    usual, ours = (
        _leaves(each.model_dump(mode="json", exclude=left_out), "") for each in (Config(), config)
    )
    lines = [line for line in ours if line not in usual]
    return "\n".join(["Changed from the defaults:", *lines]) if lines else ""


def _leaves(document: dict[str, Any], above: str) -> list[str]:
    lines: list[str] = []
    for key, value in document.items():
        if isinstance(value, dict):
            lines += _leaves(value, f"{above}{key}.")
        else:
            shown = f"{value:g}" if isinstance(value, float) else _redacted(value)
            lines.append(f"  {above}{key}: {shown}")
    return lines
