"""Ports, paths and names of units stand in the program and in deploy/systemd; what is deployed or shown has the same.

Whoever stops the watcher gives a restart hook that has begun the time to end.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon_process import ROOT
from vllm_watch.cli import demo
from vllm_watch.cli.helpers import connection
from vllm_watch.config import Config
from vllm_watch.daemon import STOP_SECONDS
from vllm_watch.restart.hooks.command import ENDING_SECONDS
from vllm_watch.settings import hooks
from vllm_watch.settings.restart import HOOK_GRACE_SECONDS
from vllm_watch.settings.target import KubernetesDiscovery
from vllm_watch.sources.engine_processes import PORT_DEFAULT

UNITS = ROOT / "deploy/systemd"
PORT = Config().listen_address[1]
ENGINE_PORT = KubernetesDiscovery.model_fields["port"].default
SERVICE = (UNITS / "vllm-watch.service").read_text()
[[PROGRAM, CONFIG, STATE]] = re.findall(r"^ExecStart=(\S+) run --config (\S+) --state-dir (\S+)$", SERVICE, re.MULTILINE)  # fmt: skip
INSTALLED = f"{Path(PROGRAM).parents[1]}"
BESIDE_CONFIG = re.compile(rf"{Path(CONFIG).parent}/[\w.-]+\.(token|urls)|{Path(CONFIG).parent}-secret(/[\w.]+)?")  # fmt: skip
TEXTS = {".md", ".yaml", ".yml", ".tpl", ".txt", ".sh", ".conf", ".example", ".service", ".rules", ".py", ".json", ".sysusers"}  # fmt: skip


def files() -> Iterator[Path]:
    """What is deployed, shown and said: the repository's but for tests and what is measured."""
    yield from (ROOT / "README.md", ROOT / "Dockerfile", ROOT / ".ci/container")
    for folder in ("deploy", "docs", "vllm_watch", "alerts"):
        yield from (
            file for file in (ROOT / folder).rglob("*") if file.suffix in TEXTS and file.is_file()
        )


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """By path."""
    return {str(file.relative_to(ROOT)): file.read_text() for file in files()}


def elsewhere(texts: dict[str, str], pattern: str, allowed: str) -> list[str]:
    """Where something like it stands that is not the one."""
    return [
        f"{name}: {found[0]}"
        for name, text in texts.items() for found in re.finditer(pattern, text)
        if not re.fullmatch(allowed, found[0])
    ]  # fmt: skip


def test_the_program_has_one_port() -> None:
    """The daemon's, its clients', the demo's and the image's; an engine's wherever it is found."""
    assert f"http://127.0.0.1:{PORT}" == connection.DEFAULT_URL
    assert f"127.0.0.1:{PORT}" == demo.DEFAULT_LISTEN
    assert f"EXPOSE {PORT}\n" in (ROOT / "Dockerfile").read_text()
    assert ENGINE_PORT == PORT_DEFAULT


def test_every_port_of_the_watcher_is_that_one(texts: dict[str, str]) -> None:
    """What listens, is scraped, is let in or asked under our name; another one only as the example of another one."""
    others = rf"listen: \S+:(?!{PORT}\b)\d+|containerPort: (?!{PORT}\b|8000\b|8080\b)\d+|(?:^|[/@ ])vllm-watch:(?!{PORT}\b)\d{{4}}"
    assert [f"{name}: {found}" for name, text in texts.items() for found in re.findall(others, text)] == []  # fmt: skip


PLACES = {
    "the configuration's folder": (r"/etc/vllm-watch[\w./-]*\w", rf"{CONFIG}|{Path(CONFIG).parent}|{BESIDE_CONFIG.pattern}"),
    "the state's folder": (r"/var/lib/vllm-watch\b[\w/-]*", rf"{STATE}(-locks|/\S+)?"),
    "where it is installed": (r"/opt/vllm-watch\b[\w/.-]*\w", rf"{INSTALLED}(/bin(/(vllm-watch|pip|python))?|/lib)?"),
    "an engine's unit": (r"\bvllm(@[\w{}%]*)?\.service\b(?!\.d)", r"vllm@(8000|8001|PORT|\{port\}|)\.service"),
    "the watcher's unit": (r"\bvllm-watch[\w@-]*\.service\b", r"vllm-watch\.service"),
    "an engine's environment": (r"/etc/vllm/\S+\.env", r"/etc/vllm/(8000|8001|%i)\.env"),
    "an engine's program": (r"/opt/vllm/[\w/]+", r"/opt/vllm/bin/vllm"),
}  # fmt: skip


@pytest.mark.parametrize(("pattern", "allowed"), PLACES.values(), ids=PLACES)
def test_every_path_and_unit_is_the_same(texts: dict[str, str], pattern: str, allowed: str) -> None:
    """On hosts, in containers, in Kubernetes and on every page; and it is found at all."""
    assert elsewhere(texts, pattern, allowed) == []
    assert any(re.search(pattern, text) for name, text in texts.items() if name.startswith("docs/"))


def test_units_that_are_named_are_there() -> None:
    """The template and the service are files; the configuration is the one that is shipped for it."""
    assert {file.name for file in UNITS.glob("*.service")} == {
        "vllm-watch.service",
        "vllm@.service",
    }
    assert (UNITS / Path(CONFIG).name).exists()
    assert all((file / Path(CONFIG).name).exists() for file in (ROOT / "deploy/kubernetes").glob("fleet*"))  # fmt: skip


GRANTED = {
    "systemd/vllm-watch.service": r"^TimeoutStopSec=(\d+)$",
    "kubernetes/node/daemonset.yaml": r"terminationGracePeriodSeconds: (\d+)",
    "kubernetes/fleet/deployment.yaml": r"terminationGracePeriodSeconds: (\d+)",
    "helm/vllm-watch/templates/workload.yaml": r"terminationGracePeriodSeconds: (\d+)",
    "compose.yaml": r"&vllm-watch\n(?:  .*\n)*?  stop_grace_period: (\d+)s",
}
KINDS = (hooks.CommandHook, hooks.WebhookHook, hooks.GateHook, hooks.SystemdHook, hooks.DockerHook, hooks.KubernetesHook)  # fmt: skip


@pytest.mark.parametrize("file", GRANTED)
def test_the_longest_hook_by_default_may_end(file: str) -> None:
    """And the watcher after it."""
    found = re.search(GRANTED[file], (ROOT / "deploy" / file).read_text(), re.MULTILINE)
    assert found is not None
    longest = max(kind.model_fields["timeout_seconds"].default for kind in KINDS)
    assert float(found[1]) >= longest + ENDING_SECONDS + HOOK_GRACE_SECONDS + STOP_SECONDS


def test_systemd_asks_only_the_watcher_to_end() -> None:
    """By default it sends SIGTERM to the hook, too."""
    assert re.search(r"^KillMode=mixed$", SERVICE, re.MULTILINE)
