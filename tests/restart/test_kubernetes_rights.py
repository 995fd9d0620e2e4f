"""The rights of deploy/kubernetes/rights are those that the code uses, each of them, and no other.

Each feature is run against the API server's fake, which remembers what its callers would have had to be allowed.
"""

import asyncio

import pytest

from tests.deploy.rendered import of_kind, rendered
from tests.kubernetes_api import NAMESPACE, certified
from tests.restart.hooks import manifests
from tests.restart.hooks.calls import call
from tests.restart.hooks.fake_pods import FakePods, pod, workload
from tests.told import made, told
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.config import Config
from vllm_watch.discovery.targets import Discovery
from vllm_watch.notify import kubernetes_events
from vllm_watch.restart.hooks import kubernetes as kubernetes_hook
from vllm_watch.restart.hooks.base import Tools
from vllm_watch.restart.locks import lease
from vllm_watch.settings.hooks import KubernetesHook
from vllm_watch.settings.restart import LockSettings

EVERYBODYS = {("create", "authorization.k8s.io", "selfsubjectaccessreviews")}
"""What Kubernetes gives to all who are authenticated (system:basic-user)."""

CALL = call(pod="llama-0", namespace=NAMESPACE)
PAGES = {"rights/evict": "hooks/kubernetes.md", "rights/lease": "locks.md"}


def rights(roles):
    return {
        (verb, group, resource)
        for role in roles for rule in role["rules"]
        for verb in rule["verbs"] for group in rule["apiGroups"] for resource in rule["resources"]
    }  # fmt: skip


def allowed(folder):
    """By the Role, or the ClusterRole, of this folder."""
    return rights(of_kind(folder, "Role", "ClusterRole"))


@pytest.fixture
async def server(tmp_path, monkeypatch):
    folder = tmp_path / "pod"
    _, context = certified(folder)
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", folder)
    monkeypatch.setattr(kubernetes_hook, "POLL_SECONDS", 0.05)
    async with FakePods(notices_hang_ups=True).running(context) as server:
        server.environ = server.account(folder)
        server.add("pods", pod())
        yield server


async def discover(server, *namespaces):
    """Until the pods are followed."""
    entry = {"selector": "app=llama", "namespaces": [*namespaces]}
    config = Config.model_validate({"discovery": {"kubernetes": [entry]}})
    discovery = Discovery(config, environ=server.environ)
    await discovery.refresh(0)
    async with asyncio.timeout(30):
        while not server.streams:
            await asyncio.sleep(0.02)
    await discovery.close()


async def act(server, asked=CALL, **settings):
    """Rehearse and carry out a restart."""
    tools = Tools(environ=server.environ)
    hook = kubernetes_hook.Hook(KubernetesHook(name="a", timeout_seconds=60.0, **settings), tools)
    assert all(finding.ok for finding in await hook.rehearse(asked))
    restart = asyncio.create_task(hook.restart(asked))
    async with asyncio.timeout(30):
        while not (server.evicted or any("PATCH" in each for each in server.asked)):
            await asyncio.sleep(0.02)
    if asked.pod and not server.evicted:
        server.touched("pods", asked.pod, "DELETED")
        del server.objects["pods", NAMESPACE, asked.pod]
    assert (await restart).outcome == "done"


async def roll_out(server):
    """Every kind of workload."""
    status = {"desiredNumberScheduled": 1, "updatedNumberScheduled": 1}
    templates = {"leaderWorkerTemplate": {"size": 2, "workerTemplate": {}}}
    for kind in ("deployment", "statefulset", "daemonset", "leaderworkerset"):
        document = workload(**(templates if kind == "leaderworkerset" else {}))
        document["status"] |= status
        server.add(f"{kind}s", document, "llama")
        asked = CALL if kind == "deployment" else call(namespace=NAMESPACE)  # its pod is gone then
        await act(server, asked, action="rollout_restart", workload=f"{kind}/llama")


async def lock(server):
    """Take, keep and give back; the object is made and then replaced."""
    mine = lease.make(LockSettings(kind="lease"), Tools(environ=server.environ))
    assert (await mine.acquire("w1", "a1")).held is True
    assert (await mine.renew()).held is True
    await mine.release()


async def write_event(server):
    """Of the engine's pod."""
    api = kubernetes_api.in_cluster(server.environ)
    [event] = made(told())
    assert (await kubernetes_events.post(api, event, (NAMESPACE, "llama-0"))).ok


FEATURES = {
    "rights/discovery": discover,
    "rights/discovery-cluster": lambda server: discover(server, "*"),
    "rights/evict": act,
    "rights/rollout": roll_out,
    "rights/lease": lock,
    "rights/events": write_event,
}


@pytest.mark.parametrize("folder", FEATURES)
async def test_role_is_what_the_code_uses(server, folder):
    """Neither is refused what it asks for, nor given what nobody asks for."""
    await FEATURES[folder](server)
    assert server.used - EVERYBODYS == allowed(folder)


def test_ways_have_the_rights_of_their_features():
    """A Deployment finds pods; with restarts it evicts and locks; a DaemonSet finds pods everywhere."""
    finds = allowed("rights/discovery")
    assert allowed("fleet") == finds
    assert allowed("fleet-evict") == finds | allowed("rights/evict") | allowed("rights/lease")
    assert allowed("node") == allowed("node-host-pid") == allowed("rights/discovery-cluster")


def test_every_role_is_bound_to_the_watcher():
    """And to nobody else; no right on a Secret, no wildcard."""
    for folder in FEATURES:
        for role, binding in [rendered(folder)]:
            assert binding["roleRef"]["name"] == role["metadata"]["name"]
            assert binding["roleRef"]["kind"] == role["kind"]
            assert [each["name"] for each in binding["subjects"]] == ["vllm-watch"]
    said = {word for folder in FEATURES for right in allowed(folder) for word in right}
    assert not said & {"*", "secrets", "escalate", "impersonate", "bind"}


@pytest.mark.parametrize(("folder", "page"), PAGES.items())
def test_pages_say_the_same(folder, page):
    """docs/hooks/kubernetes.md and docs/locks.md show the Role of the folder."""
    [role, _] = rendered(folder)
    shown = [
        each for each in manifests.of_kind(f"../{page}", "Role")
        if each["metadata"]["name"] == role["metadata"]["name"]
    ]  # fmt: skip
    assert rights(shown) == allowed(folder)
