"""Rehearse a restart hook without changes."""

import argparse
import asyncio
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from vllm_watch.cli.helpers import connection, exit_status
from vllm_watch.cli.helpers.connection import Connection
from vllm_watch.config import Config, load
from vllm_watch.errors import Finding, WatchError
from vllm_watch.restart.hooks.base import HookCall, Tools, make
from vllm_watch.settings import web
from vllm_watch.settings.target import TargetConfig
from vllm_watch.sources import http
from vllm_watch.sources.vllm import VllmSource
from vllm_watch.support import logs
from vllm_watch.support.visible import visible_lines

HELP = """\
Rehearse a restart hook: run every step that changes nothing, and report whether it would work, and whether
anything would start the server again after it exits by itself. Without --target it is rehearsed for
every target that uses it.

examples:
  vllm-watch hook test restart-vllm --config /etc/vllm-watch/vllm-watch.yaml
  vllm-watch hook test restart-vllm --config /etc/vllm-watch/vllm-watch.yaml --target llama --json

exit status: 0 it would work, 1 it would not, or something is to be fixed first, 2 wrong usage"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="test", choices=["test"], help="rehearse the hook")
    parser.add_argument("name", metavar="NAME", help="the hook's name in the configuration")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the configuration (YAML)")
    parser.add_argument("--target", metavar="NAME", help="the target to rehearse it for")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    connection.add_daemon(parser, default_url="where the configuration listens")


def run(arguments: argparse.Namespace) -> int:
    logs.configure("warning")
    config = load(arguments.config, environ=os.environ)
    targets = _targets(config, arguments.name, arguments.target)
    encrypted = config.web_config is not None and web.read(config.web_config).tls_server_config.on
    here = config.url_here(config.listen_address[1], "https" if encrypted else "http")
    daemon = connection.of(arguments, here)
    results = asyncio.run(_rehearse(config, arguments.name, targets, daemon))
    kind = config.hooks.by_name()[arguments.name][0]
    ok = all(finding.ok for findings in results.values() for finding in findings)
    if arguments.json:
        told = [
            {"target": target, "ok": all(each.ok for each in findings), "findings": [*map(asdict, findings)]}
            for target, findings in results.items()
        ]  # fmt: skip
        document = {"hook": arguments.name, "kind": kind, "ok": ok, "targets": told}
        print(json.dumps(document, indent=2))
    else:
        for target, findings in results.items():
            head = f"hook {arguments.name} ({kind}) for target {target}: nothing was restarted"
            print(visible_lines("\n".join([head, *finding_lines(findings)])))
    return exit_status.FINE if ok else exit_status.FOUND


def _targets(config: Config, name: str, wanted: str | None) -> list[TargetConfig]:
    hooks = config.hooks.by_name()
    if name not in hooks:
        known = f"write the name of one: {', '.join(hooks)}" if hooks else "configure one in hooks"
        raise WatchError(f"there is no hook '{name}'", known)
    known = ", ".join(target.name for target in config.targets) or "no target is listed"
    cause, remedy = f"there is no target '{wanted}'", f"write the name of one: {known}"
    found = [target for target in config.targets if target.name == wanted]
    if wanted is None:
        cause = f"no target has restart.hook: {name}"
        remedy = "name the target to rehearse it for with --target"
        found = [target for target in config.targets if config.restart_for(target).hook == name]
        found = found or list(config.targets if len(config.targets) == 1 else ())
    if not found:
        raise WatchError(cause, remedy)
    return found


async def _rehearse(
    config: Config, name: str, targets: list[TargetConfig], daemon: Connection
) -> dict[str, list[Finding]]:
    kind, settings = config.hooks.by_name()[name]
    tools = Tools(
        procfs=config.procfs, watcher_url=daemon.url, watcher_headers=daemon.headers(), watcher_tls=daemon.tls()
    )  # fmt: skip
    hook = make(kind, settings, tools)
    results: dict[str, list[Finding]] = {}
    for target in targets:
        started, first = await _observed(target, config)
        results[target.name] = [first, *await hook.rehearse(_call(target, started))]
    return results


def _call(target: TargetConfig, process_start_time: float | None) -> HookCall:
    identity = target.identity()
    return HookCall(
        attempt_id="rehearsal",
        target=identity.name,
        url=identity.url,
        group=identity.group,
        trigger="manual",
        reason="rehearsal: nothing is to be restarted",
        namespace=identity.namespace or None,
        pod=identity.pod or None,
        node=identity.node or None,
        process_start_time=process_start_time,
    )


async def _observed(target: TargetConfig, config: Config) -> tuple[float | None, Finding]:
    async with http.Session() as session:
        source = VllmSource(target.identity(), config.scrape_for(target), session)
        observation = (await source.observe()).observation
    if observation.reading is None:
        text = f"{target.url} does not answer: {observation.scrape.error}"
        return None, Finding(ok=False, text=text, remedy="rehearse it while the server runs")
    started = observation.reading.server.process_start_time
    if started is None:
        text = f"{target.url} answers, but without its start time: fewer mistakes are noticed"
        return None, Finding(ok=True, text=text)
    since = datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds")
    return started, Finding(ok=True, text=f"{target.url} answers; it started at {since}")


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield each finding and its remedy."""
    for finding in findings:
        mark = "WRONG" if not finding.ok else "note" if finding.remedy else "ok"
        yield f"  {mark:7}{finding.text}"
        if finding.remedy:
            yield f"         → {finding.remedy}"
