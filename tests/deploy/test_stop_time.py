"""Whoever stops the watcher gives a restart hook that has begun the time to end."""

import re
from pathlib import Path

import pytest

from vllm_watch.daemon import STOP_SECONDS
from vllm_watch.restart.hooks.command import ENDING_SECONDS
from vllm_watch.settings import hooks
from vllm_watch.settings.restart import HOOK_GRACE_SECONDS

DEPLOY = Path(__file__).parents[2] / "deploy"
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
    found = re.search(GRANTED[file], (DEPLOY / file).read_text(), re.MULTILINE)
    assert found is not None
    longest = max(kind.model_fields["timeout_seconds"].default for kind in KINDS)
    assert float(found[1]) >= longest + ENDING_SECONDS + HOOK_GRACE_SECONDS + STOP_SECONDS


def test_systemd_asks_only_the_watcher_to_end() -> None:
    """By default it sends SIGTERM to the hook, too."""
    unit = (DEPLOY / "systemd/vllm-watch.service").read_text()
    assert re.search(r"^KillMode=mixed$", unit, re.MULTILINE)
