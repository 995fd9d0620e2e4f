"""Runs the services of deploy/compose.yaml without containers: the same commands, files and names.

Started in namespaces of its own (`unshare --mount --net`), so that ports and paths are those of compose.yaml: each
service gets a root in which its volumes are mounted where it expects them, and finds the others by their names.
What an image brings comes from Debian's packages and from this Python. It prints what it saw, as JSON.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.daemon_process import ROOT
from tests.dashboards import grafana
from tests.deploy.alone import bind, loopback_up, make_host
from tests.deploy.reader import Block, blocks

PATIENCE_SECONDS = 240.0  # it takes 100; a machine busy with other tests takes longer
ALERTMANAGER = shutil.which("prometheus-alertmanager") or "alertmanager"
PROGRAMS = {
    "prom/prometheus": ("prometheus",),
    "prom/alertmanager": (ALERTMANAGER,),
    "vllm-watch": ("/opt/vllm-watch/bin/vllm-watch",),
}
IMAGE = {
    "vllm-watch": f'#!/bin/sh\nexport PYTHONPATH={ROOT}\nexec {sys.executable} -m vllm_watch "$@"\n',
    "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
}

FOLDER = ROOT / "deploy"
FILE = FOLDER / "compose.yaml"


@dataclass(frozen=True)
class Mount:
    """A volume of a service: `source` is a path of the host, or the name of a volume."""

    source: str
    target: str
    named: bool


@dataclass(frozen=True)
class Service:
    """One service, with variables filled in."""

    name: str
    image: str
    entrypoint: tuple[str, ...]  # empty: the image's own
    command: tuple[str, ...]
    health: tuple[str, ...]
    mounts: tuple[Mount, ...]
    names: frozenset[str]  # under which others reach it
    raw: dict[str, Any]


def environment() -> dict[str, str]:
    """What deploy/.env sets."""
    lines = (FOLDER / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def services(profile: str, file: Path = FILE) -> dict[str, Service]:
    """The services that a profile starts, by name."""
    text = re.sub(r"\$\{(\w+)[^}]*\}", lambda found: environment()[found[1]], file.read_text())
    data = yaml.safe_load(text)["services"]
    return {
        name: _service(name, raw)
        for name, raw in data.items() if profile in raw.get("profiles", [profile])
    }  # fmt: skip


def _service(name: str, raw: dict[str, Any]) -> Service:
    kind, *health = raw["healthcheck"]["test"]
    assert kind == "CMD", "without a shell"
    networks = raw.get("networks", {})
    aliases = [alias for network in networks.values() for alias in network.get("aliases", ())]
    return Service(
        name, raw["image"], tuple(raw.get("entrypoint", ())), tuple(raw.get("command", ())), tuple(health),
        tuple(_mount(text) for text in raw.get("volumes", ())), frozenset({name, *aliases}), raw,
    )  # fmt: skip


def _mount(text: str) -> Mount:
    source, target, *_ = text.split(":")
    if not source.startswith("."):
        return Mount(source, target, named=True)
    return Mount(os.path.normpath(FOLDER / source), target, named=False)


def make_root(service: Service, folder: Path, names: set[str]) -> Path:
    """What this service sees: the host's programs, its own volumes, and the names of the others."""
    root = folder / "roots" / service.name
    make_host(root, names)
    image = root / "opt/vllm-watch/bin"
    image.mkdir(parents=True)
    for name, text in IMAGE.items():
        (image / name).write_text(text)
        (image / name).chmod(0o755)
    for mount in service.mounts:
        volume = folder / "volumes" / mount.source
        if mount.named:
            volume.mkdir(parents=True, exist_ok=True)
        bind(volume if mount.named else mount.source, root / mount.target.lstrip("/"))
    return root


class Stack:
    """The services that run; a block ends them."""

    def __init__(self, folder: Path, profile: str, leave_out: set[str]) -> None:
        self.folder = folder
        self.services = {n: s for n, s in services(profile).items() if n not in leave_out}
        self.names = {name for service in self.services.values() for name in service.names}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.roots = {n: make_root(s, folder, self.names) for n, s in self.services.items()}

    def start(self, name: str) -> None:
        service = self.services[name]
        program = service.entrypoint or PROGRAMS[service.image.partition(":")[0]]
        with self.log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                ["chroot", self.roots[name], *program, *service.command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def healthy(self, name: str) -> bool:
        """Does its own health check say so?"""
        assert self.processes[name].poll() is None, f"{name}: {self.log(name).read_text()[-2000:]}"
        done = subprocess.run(
            ["chroot", self.roots[name], *self.services[name].health],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600, check=False,
        )  # fmt: skip
        return done.returncode == 0

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def end(self) -> dict[str, int]:
        """SIGTERM to all; their exit statuses."""
        for process in self.processes.values():
            process.terminate()
        return {name: process.wait(timeout=30) for name, process in self.processes.items()}


def until(what: str, found: Callable[[], Any]) -> Any:
    """What is found, once it is something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (result := found()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.5)
    return result


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        body = answer.read().decode()
    return json.loads(body) if body[:1] in "[{" else body


def queries() -> dict[str, list[str]]:
    """Every expression of every dashboard: panels, annotations and variables, with variables filled in."""
    found = {}
    for file in grafana.FILES:
        board = grafana.load(file)
        asked = [each.expr for each in grafana.queries(board)]
        asked += [grafana.asked(each)[0] for each in grafana.variables(board)]
        names = dict.fromkeys((each["name"] for each in board["templating"]["list"]), ".*")
        found[file.name] = [grafana.fill(each, interval_s=15, range_s=3600, **names) for each in asked]  # fmt: skip
    return found


def refused(url: str) -> dict[str, list[str]]:
    """The queries that this Prometheus does not take, by dashboard."""
    wrong: dict[str, list[str]] = {}
    for board, asked in queries().items():
        wrong[board] = []
        for expr in asked:
            query = urllib.parse.urlencode({"query": expr})
            try:
                get(f"{url}/api/v1/query?{query}")
            except urllib.error.HTTPError as error:
                wrong[board].append(f"{expr}: {error.read().decode()[:200]}")
    return wrong


def see(stack: Stack) -> dict[str, Any]:
    """What a new user would look at, in the order of docs/install/compose.md."""
    began = time.monotonic()
    seen: dict[str, Any] = {"services": sorted(stack.services)}
    for name in stack.services:
        stack.start(name)
    for name in stack.services:
        until(f"{name} is healthy", lambda name=name: stack.healthy(name))  # type: ignore[misc]
    seen["healthy_seconds"] = time.monotonic() - began
    seen["page"] = get("http://127.0.0.1:9470/")[:500]
    incidents = until("an incident", lambda: _open("http://127.0.0.1:9470/api/v1/incidents"))
    seen["incident"] = incidents[0]["summary"]
    seen["incident_seconds"] = time.monotonic() - began
    alerts = until("an alert", lambda: get("http://127.0.0.1:9093/api/v2/alerts"))
    seen["alerts"] = [alert["labels"]["alertname"] for alert in alerts]
    seen["alert_seconds"] = time.monotonic() - began
    lines = until("a page", lambda: _told(stack.log("pager")))
    seen["pager"], seen["page_seconds"] = lines, time.monotonic() - began
    seen["docs"] = [
        _shown(block)
        for block in blocks(ROOT / "docs/install/compose.md")
        if block.how == "run in the stack"
    ]
    source = yaml.safe_load(
        (FOLDER / "grafana/provisioning/datasources/prometheus.yaml").read_text()
    )
    (url,) = (each["url"] for each in source["datasources"])
    seen["refused"] = refused(url)
    seen["queries"] = {board: len(asked) for board, asked in queries().items()}
    rules = get(f"{url}/api/v1/rules")["data"]["groups"]
    seen["rules"] = sum(len(group["rules"]) for group in rules)
    seen["unhealthy_rules"] = [r["name"] for g in rules for r in g["rules"] if r["health"] == "err"]
    return seen


def _shown(block: Block) -> str:
    """What a command of the docs shows, once it is what they say."""

    def shown() -> str:
        done = subprocess.run(
            ["bash", "-c", block.text], capture_output=True, text=True, timeout=600, check=True
        )
        return done.stdout if re.search(block.shows, done.stdout) else ""

    return str(until(block.text, shown))


def _open(url: str) -> list[dict[str, Any]]:
    return [
        each for each in get(url)["incidents"] if each.get("resolved_timestamp_seconds") is None
    ]


def _told(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if " firing: " in line]


def main() -> None:
    folder = Path(sys.argv[1])
    loopback_up()
    stack = Stack(folder, "demo", leave_out={"grafana"})
    hosts = folder / "hosts"  # for what this process itself asks
    hosts.write_text(f"127.0.0.1 localhost {' '.join(sorted(stack.names))}\n")
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True, timeout=600)
    seen: dict[str, Any] = {}
    try:
        seen = see(stack)
    finally:
        seen["ended"] = stack.end()
    print(json.dumps(seen))


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
