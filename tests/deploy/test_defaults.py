"""What is deployed has the program's port, and gives a restart hook that has begun the time to end."""

import re

import pytest

from tests.daemon_process import ROOT
from vllm_watch.cli import demo
from vllm_watch.cli.helpers import connection
from vllm_watch.config import Config
from vllm_watch.daemon import STOP_SECONDS
from vllm_watch.restart.hooks.command import Hook as CommandHook
from vllm_watch.settings import hooks
from vllm_watch.settings.restart import HOOK_GRACE_SECONDS
from vllm_watch.settings.target import KubernetesDiscovery
from vllm_watch.sources.engine_processes import PORT_DEFAULT

UNITS = ROOT / "deploy/systemd"
PORT = Config().listen_address[1]
ENGINE_PORT = KubernetesDiscovery.model_fields["port"].default
SERVICE = (UNITS / "vllm-watch.service").read_text()


def test_the_program_has_one_port() -> None:
    """The daemon's, its clients', the demo's and the image's; an engine's wherever it is found."""
    assert f"http://127.0.0.1:{PORT}" == connection.DEFAULT_URL
    assert f"127.0.0.1:{PORT}" == demo.DEFAULT_LISTEN
    assert f"EXPOSE {PORT}\n" in (ROOT / "Dockerfile").read_text()
    assert ENGINE_PORT == PORT_DEFAULT


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
    assert (
        float(found[1]) >= longest + CommandHook.ENDING_SECONDS + HOOK_GRACE_SECONDS + STOP_SECONDS
    )


def test_systemd_asks_only_the_watcher_to_end() -> None:
    """By default it sends SIGTERM to the hook, too."""
    assert re.search(r"^KillMode=mixed$", SERVICE, re.MULTILINE)
