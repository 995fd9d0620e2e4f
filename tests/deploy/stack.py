"""Runs the services of deploy/compose.yaml without containers: the same commands, files and names.

Started in namespaces of its own (`unshare --mount --net`), so that ports and paths are those of compose.yaml: each
service gets a root in which its volumes are mounted where it expects them, and finds the others by their names.
What an image brings comes from Debian's packages and from this Python. It prints what it saw, as JSON.
"""

import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.daemon_process import ROOT
from tests.deploy.blocks import Block, blocks
from tests.deploy.compose import FOLDER, Service, services

PATIENCE_SECONDS = 240.0  # it takes 100; a machine busy with other tests takes longer
FRESH = {"etc", "opt", "var"}  # of the host's, these are not shown: volumes are mounted below them
OF_ETC = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "localtime", "ssl", "alternatives")
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


def loopback_up() -> None:
    """A new network namespace has a loopback that is down (SIOCSIFFLAGS: up and running)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))


def bind(source: Path | str, target: Path) -> None:
    source = Path(source)
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    subprocess.run(["mount", "--rbind", source, target], check=True, timeout=600)


def make_host(root: Path, names: Iterable[str]) -> None:
    """The host's programs, seen from a root in which /etc, /opt and /var are its own, and these names are this host's."""
    root.mkdir(parents=True)
    for entry in Path("/").iterdir():
        if entry.is_symlink():
            (root / entry.name).symlink_to(entry.readlink())
        elif entry.is_dir() and entry.name not in FRESH:
            bind(entry, root / entry.name)
    for name in OF_ETC:
        if (Path("/etc") / name).exists():
            bind(Path("/etc") / name, root / "etc" / name)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {' '.join(sorted(names))}\n")


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
    for file in sorted((ROOT / "dashboards").glob("*.json")):
        board = json.loads(file.read_text())
        asked = [fill(each) for each in expressions(board)]
        found[file.name] = [re.sub(r"^label_values\((.+), *\w+\)$", r"\1", each) for each in asked]
    return found


def expressions(node: Any) -> list[str]:
    if isinstance(node, list):
        return [each for inner in node for each in expressions(inner)]
    if not isinstance(node, dict):
        return []
    own = [node["expr"]] if isinstance(node.get("expr"), str) and node["expr"] else []
    if node.get("type") == "query" and "datasource" in node:  # a variable
        query = node.get("query", "")
        own.append(query if isinstance(query, str) else query.get("query", ""))
    return own + [each for inner in node.values() for each in expressions(inner)]


def fill(expr: str) -> str:
    for name, value in {"__rate_interval": "1m", "__interval": "15s", "__range": "1h"}.items():
        expr = expr.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return re.sub(r"\$\{?\w+(:\w+)?\}?", ".*", expr)


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
