"""A small Kubernetes API server with one pod, as the kubernetes hook asks it."""

import asyncio
import json
import os
from contextlib import asynccontextmanager
from datetime import datetime

from tests.kubernetes_api import NAMESPACE, certified, status
from tests.restart.hooks.calls import call
from tests.restart.hooks.fake_pods import STARTED, FakePods, pod
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.restart.hooks import base
from vllm_watch.restart.hooks import kubernetes as kubernetes_hook
from vllm_watch.settings.hooks import KubernetesHook

CALL = call(pod="llama-0", namespace=NAMESPACE)
SERVED = datetime.fromisoformat(STARTED).timestamp()
ROLLOUT = {"action": "rollout_restart", "workload": "deployment/llama"}


class Cluster:
    """One API server and the pod from which it is asked."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.environ = server.account(folder) | {"HOSTNAME": "vllm-watch-0"}

    def hook(self, **settings):
        tools = base.Tools(environ=self.environ)
        return kubernetes_hook.Hook(KubernetesHook(name="a", **settings), tools)

    def impatient(self, seconds, **settings):
        return self.hook(timeout_seconds=seconds, **settings)

    def changes(self):
        """What was asked that may change something; dry runs and reviews are none."""
        return [
            each for each in self.server.asked
            if not each.startswith("GET") and "dryRun" not in each and "reviews" not in each
        ]  # fmt: skip

    async def kubectl(self, *arguments, said=None):
        """What kubectl says."""
        server = self.server
        process = await asyncio.create_subprocess_exec(
            "kubectl", f"--server={server.url}", f"--certificate-authority={self.folder}/ca.crt",
            f"--token={server.token}", f"--namespace={NAMESPACE}", f"--cache-dir={self.folder}/cache", *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env={"HOME": str(self.folder), "PATH": os.environ["PATH"]},
        )  # fmt: skip
        async with asyncio.timeout(60):
            return (await process.communicate(said))[0].decode()


def answered(text):
    """An answer of HTTP 200 with this body."""
    answer = status(200, "", "")
    answer.text = text
    return answer


def looked(cluster, resource, name):
    """What a look at this object brings, as it is at this moment."""
    return answered(json.dumps(cluster.server.objects[resource, NAMESPACE, name]))


@asynccontextmanager
async def asked_from_a_pod(tmp_path, monkeypatch):
    """An API server that knows one pod, and a service account to ask it."""
    folder = tmp_path / "pod"
    _, context = certified(folder)
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", folder)
    monkeypatch.setattr(kubernetes_hook, "POLL_SECONDS", 0.05)
    async with FakePods().running(context) as server:
        server.add("pods", pod())
        yield Cluster(server, folder)
