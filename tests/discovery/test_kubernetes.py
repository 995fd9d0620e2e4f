"""Pods are found, followed, and kept while the API server is away; kubectl sees the same server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kubernetes_api import NAMESPACE, certified, status
from tests.restart.hooks.fake_pods import STARTED, FakePods, pod
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.config import Config, load
from vllm_watch.discovery import kubernetes
from vllm_watch.discovery.targets import Discovery
from vllm_watch.errors import ConfigError
from vllm_watch.settings.target import TargetConfig

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def engine(address: str, owner: str = "llama", **changed: Any) -> dict[str, Any]:
    """A pod of a StatefulSet; `changed` are of its metadata."""
    made: dict[str, Any] = pod()
    made["metadata"] |= {"labels": {"app": "vllm"}} | changed
    made["metadata"]["ownerReferences"][0]["name"] = owner
    made["spec"]["nodeName"] = changed.pop("node", "gpu-1")
    made["status"]["podIP"] = address
    return made


class Cluster:
    """An API server, and the pod of the watcher."""

    def __init__(self, server: FakePods, folder: Path) -> None:
        self.server, self.folder = server, folder
        host, _, port = server.url.removeprefix("https://").partition(":")
        self.environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        self.targets: tuple[TargetConfig, ...] = ()
        self.discovery = self.discover()

    def discover(self, **settings: Any) -> Discovery:
        self.discovery = Discovery(config(**settings), environ=self.environ)
        return self.discovery

    async def until(self, *wanted: str, problem: str | None = None) -> None:
        """Refresh until these are the targets, as NAME URL GROUP, and this is said; no time passes by our clock."""
        async with asyncio.timeout(30):
            while True:
                self.targets = await self.discovery.refresh(0) or self.targets
                found = [f"{each.name} {each.url} {each.group}" for each in self.targets]
                said = " ".join(self.discovery.problems.values())
                if found == list(wanted) and (problem in said if problem else not said):
                    return
                await asyncio.sleep(0.02)

    async def watched(self, streams: int = 1) -> None:
        async with asyncio.timeout(30):
            while len(self.server.streams) != streams:
                await asyncio.sleep(0.02)

    def put(self, name: str, document: dict[str, Any]) -> None:
        """Somebody changes a pod."""
        stored = self.server.objects["pods", NAMESPACE, name]
        stored["metadata"] |= document.get("metadata", {})
        stored["status"] |= document.get("status", {})
        self.server.touched("pods", name)

    def remove(self, name: str) -> None:
        self.server.touched("pods", name, "DELETED")
        del self.server.objects["pods", NAMESPACE, name]

    def lists(self) -> int:
        return sum(PODS in each and "watch=" not in each for each in self.server.asked)


def config(**settings: Any) -> Config:
    entry = {"selector": "app=vllm"} | settings
    return Config.model_validate({"discovery": {"kubernetes": [entry]}})


@pytest.fixture(scope="module")
def pod_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pod")
    return folder, certified(folder)[1]


@pytest.fixture
async def cluster(pod_folder: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    folder, context = pod_folder
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", folder)
    monkeypatch.setattr(kubernetes, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(kubernetes, "PAUSE_SECONDS_MAX", 0.2)
    async with FakePods(notices_hang_ups=True).running(context) as server:
        server.account(folder)
        here = Cluster(server, folder)
        yield here
        await here.discovery.close()


LLAMA_0 = "llama-0 http://10.0.0.1:8000 llama"
LLAMA_1 = "llama-1 http://10.0.0.2:8000 llama"


async def test_pods_come_and_go_without_a_look(cluster: Cluster) -> None:
    """A new one is watched, a moved one is found again, one that is being deleted ends, all by the watch alone."""
    server = cluster.server
    server.add("pods", engine("10.0.0.1"), "llama-0")
    server.add("pods", engine("10.9.9.9") | {"metadata": {"labels": {"app": "web"}}}, "web")
    await cluster.until(LLAMA_0)
    assert [cluster.targets[0].pod, cluster.targets[0].namespace, cluster.targets[0].node] == [
        "llama-0",
        NAMESPACE,
        "gpu-1",
    ]
    await cluster.watched()
    server.add("pods", engine("10.0.0.2"), "llama-1")
    await cluster.until(LLAMA_0, LLAMA_1)
    cluster.put("llama-0", {"metadata": {"deletionTimestamp": STARTED}})
    await cluster.until(LLAMA_1)
    cluster.remove("llama-0")
    server.add("pods", engine("10.0.0.7"), "llama-0")
    await cluster.until(LLAMA_1, "llama-0 http://10.0.0.7:8000 llama")
    cluster.put("llama-1", {"metadata": {"labels": {"app": "web"}}})
    await cluster.until("llama-0 http://10.0.0.7:8000 llama")
    assert cluster.lists() == 1


async def test_watch_that_is_cut_off_goes_on_where_it_was(cluster: Cluster) -> None:
    """Neither a new list nor a word: what came to pass meanwhile is told by the next watch."""
    cluster.server.add("pods", engine("10.0.0.1"), "llama-0")
    await cluster.until(LLAMA_0)
    await cluster.watched()
    with capture_logs() as told:
        cluster.server.cut()
        await cluster.watched(0)
        cluster.server.add("pods", engine("10.0.0.2"), "llama-1")
        await cluster.until(LLAMA_0, LLAMA_1)
    assert (cluster.lists(), told) == (1, [])


async def test_bookmark_is_where_a_watch_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a quiet namespace in a busy cluster: without it the version would be long gone."""
    monkeypatch.setattr(kubernetes, "WATCH_SECONDS", 1.0)
    cluster.server.bookmark = True
    cluster.server.add("pods", engine("10.0.0.1"), "llama-0")
    await cluster.until(LLAMA_0)
    await cluster.watched()
    line = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7001"}}}
    cluster.server._version = 7001
    cluster.server.bookmark = False
    await cluster.server.say(json.dumps(line).encode() + b"\n")
    async with asyncio.timeout(30):
        while "resourceVersion=7001" not in cluster.server.asked[-1]:
            await asyncio.sleep(0.02)


EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}


async def test_version_that_is_gone_is_listed_anew(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an event of the stream and as an answer; a pod that went unseen is gone too."""
    monkeypatch.setattr(kubernetes, "WATCH_SECONDS", 1.0)
    cluster.server.add("pods", engine("10.0.0.1"), "llama-0")
    cluster.server.add("pods", engine("10.0.0.2"), "llama-1")
    await cluster.until(LLAMA_0, LLAMA_1)
    await cluster.watched()
    del cluster.server.objects["pods", NAMESPACE, "llama-0"]
    await cluster.server.say(json.dumps(EXPIRED).encode() + b"\n")
    await cluster.until(LLAMA_1)
    assert cluster.lists() == 2
    await cluster.watched()
    cluster.server.instead.append(status(410, "Expired", "too old resource version"))
    async with asyncio.timeout(30):
        while cluster.lists() < 3:
            await asyncio.sleep(0.02)


AWAY = {
    "is busy": (503, "the server is currently unable to handle the request"),
    "does not know us any more": (401, "Unauthorized"),
    "allows it no more": (403, 'pods is forbidden: User "x" cannot list resource "pods"'),
}


@pytest.mark.parametrize(("code", "message"), AWAY.values(), ids=AWAY)
async def test_api_server_that_is_away_takes_nothing_along(
    cluster: Cluster, code: int, message: str
) -> None:
    """The pods are kept, it is said with what to do, and they are seen anew when it is back."""
    cluster.server.add("pods", engine("10.0.0.1"), "llama-0")
    await cluster.until(LLAMA_0)
    await cluster.watched()
    cluster.server.instead += [status(code, "No", message) for _ in range(5000)]
    cluster.server.cut()
    await cluster.until(LLAMA_0, problem=message)
    remedy = "docs/kubernetes.md" if code in (401, 403) else "whether the API server is healthy"
    said = " ".join(cluster.discovery.problems.values())
    assert "the last known pods (1) are kept" in said
    assert remedy in said
    del cluster.server.objects["pods", NAMESPACE, "llama-0"]
    cluster.server.add("pods", engine("10.0.0.2"), "llama-1")
    cluster.server.instead.clear()
    await cluster.until(LLAMA_1)


async def test_without_a_cluster_it_is_said(cluster: Cluster) -> None:
    """A watcher that is no pod, or whose API server never answers, watches what is written out."""
    cluster.environ.clear()
    cluster.discover()
    await cluster.until(problem="this is not a Kubernetes pod")


async def test_stream_that_is_no_stream_of_events(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that answers in the API server's place; and a pod that is none is left out alone."""
    monkeypatch.setattr(kubernetes, "WATCH_SECONDS", 1.0)
    cluster.server.add("pods", engine("10.0.0.1"), "llama-0")
    cluster.server.add("pods", engine("none"), "llama-1")
    await cluster.until(LLAMA_0, problem="invalid pods")
    await cluster.watched()
    cluster.remove("llama-1")
    await cluster.server.say(b"<html>\n")
    await cluster.until(LLAMA_0)
    for line in (b"7\n", b'{"type": "ADDED", "object": []}\n', b'{"type": "ADDED"}\n', b"{}\n"):
        await cluster.server.say(line)
    cluster.server.add("pods", engine("10.0.0.2"), "llama-1")
    await cluster.until(LLAMA_0, LLAMA_1)


async def test_long_list_comes_in_pages_and_is_bounded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer holds all, and what is too much is left out and said, until there is room."""
    monkeypatch.setattr(kubernetes, "PODS_MAX", 7)
    monkeypatch.setattr(kubernetes, "WATCH_SECONDS", 1.0)
    cluster.server.page_max = 3
    for number in range(1, 8):
        cluster.server.add("pods", engine(f"10.0.0.{number}"), f"llama-{number}")
    wanted = [f"llama-{each} http://10.0.0.{each}:8000 llama" for each in range(1, 9)]
    await cluster.until(*wanted[:7])
    await cluster.watched()
    cluster.server.add("pods", engine("10.0.0.8"), "llama-8")
    await cluster.until(*wanted[:7], problem="more than 7 pods match")
    cluster.remove("llama-1")
    await cluster.until(*wanted[1:])


async def test_names_stay_with_their_pods(cluster: Cluster) -> None:
    """Three pods of one template ask for one name: the oldest has it, and keeps it; nobody is renamed."""
    says = {"annotations": {"vllm-watch/name": "chat", "vllm-watch/port": "9000"}}
    for number in (3, 2):
        cluster.server.add("pods", engine(f"10.0.0.{number}", **says), f"llama-{number}")
    second, third = "chat http://10.0.0.2:9000 llama", "llama-3 http://10.0.0.3:9000 llama"
    cluster.put("llama-2", {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}})
    await cluster.until(second, third)
    cluster.server.add("pods", engine("10.0.0.1", **says), "llama-1")
    first = "llama-1 http://10.0.0.1:9000 llama"
    await cluster.until(first, second, third)
    cluster.remove("llama-2")
    await cluster.until(first, third)
    cluster.server.add("pods", engine("10.0.0.4", **says), "llama-4")
    await cluster.until(first, third, "chat http://10.0.0.4:9000 llama")


async def test_namespaces_keep_their_pods_apart(cluster: Cluster) -> None:
    """In several namespaces two Deployments may have one name, and share no budget."""
    cluster.discover(namespaces=["*"])
    for space, address in (("a", "10.0.0.1"), ("b", "fd00::2")):
        cluster.server.add("pods", engine(address, namespace=space), "llama-0")
        stored = cluster.server.objects.pop(("pods", NAMESPACE, "llama-0"))
        cluster.server.objects["pods", space, "llama-0"] = stored
    await cluster.until(
        "a.llama-0 http://10.0.0.1:8000 a/llama", "b.llama-0 http://[fd00::2]:8000 b/llama"
    )
    assert "GET /api/v1/pods?" in cluster.server.asked[0]


async def test_labels_of_llm_d_and_dynamo_make_pairs(cluster: Cluster) -> None:
    """A decode exchanges KV with the prefill pods of its own model or graph; of several at once, too."""
    llm_d = ("llm-d.ai/role", "llm-d.ai/model")
    dynamo = (
        "nvidia.com/dynamo-sub-component-type",
        "nvidia.com/dynamo-graph-deployment-name",
    )
    pods = [
        ("p1", llm_d, "prefill", "a"), ("p2", llm_d, "prefill", "a"), ("d1", llm_d, "decode", "a"),
        ("d2", llm_d, "decode", "b"), ("both", llm_d, "both", "a"), ("p3", dynamo, "prefill", "a"),
        ("d3", dynamo, "decode", "a"), ("d4", dynamo, "decode", "p1"),
    ]  # fmt: skip
    for number, (name, (role, within), *said) in enumerate(pods):
        labels = {"app": "vllm", role: said[0], within: said[1]}
        cluster.server.add("pods", engine(f"10.0.0.{number}", labels=labels), name)
    await cluster.until(*(f"{each[0]} http://10.0.0.{n}:8000 llama" for n, each in enumerate(pods)))
    assert {each.name: each.peers for each in cluster.targets if each.peers} == {
        "d1": ("p1", "p2"), "d3": ("p3",),
    }  # fmt: skip


async def test_daemonset_sees_its_node_alone(cluster: Cluster) -> None:
    """The node's name comes from the environment; without it nothing is watched, which is said."""
    for number in (1, 2):
        document = engine(f"10.0.0.{number}")
        document["spec"]["nodeName"] = f"gpu-{number}"
        cluster.server.add("pods", document, f"llama-{number}")
    cluster.discover(node_name="$NODE_NAME")
    await cluster.until(problem="the environment has no NODE_NAME; set it from spec.nodeName")
    await cluster.discovery.close()
    cluster.environ["NODE_NAME"] = "gpu-2"
    cluster.discover(node_name="$NODE_NAME")
    await cluster.until("llama-2 http://10.0.0.2:8000 llama")
    assert all("fieldSelector=spec.nodeName%3Dgpu-2" in each or "spec.nodeName=gpu-2" in each for each in cluster.server.asked)  # fmt: skip


async def test_key_goes_only_where_the_operator_allows(cluster: Cluster, tmp_path: Path) -> None:
    """Whoever may make a pod with the label would have the key of all engines."""
    (tmp_path / "key").write_text("k")
    cluster.server.add("pods", engine("10.0.0.1"), "llama-0")
    for allow, key in (([], None), (["10.0.0.0/8"], tmp_path / "key")):
        loaded = Config.model_validate(
            {"discovery": {"kubernetes": [{"selector": "app=vllm"}], "allow": allow},
             "scrape": {"api_key_file": str(tmp_path / "key")}}
        )  # fmt: skip
        cluster.discovery.reconfigure(loaded)
        await cluster.until(LLAMA_0)
        assert loaded.scrape_for(cluster.targets[0]).api_key_file == key
    refused = {"discovery": {"kubernetes": [{"selector": "app=vllm"}], "allow": ["192.168.0.0/16"]}}
    cluster.discovery.reconfigure(Config.model_validate(refused))
    assert await cluster.discovery.refresh(0) == ()


async def test_new_configuration_ends_the_old_watch(cluster: Cluster) -> None:
    """One connection for each namespace that is asked for, and none that is not."""
    cluster.server.add("pods", engine("10.0.0.1"), "llama-0")
    await cluster.until(LLAMA_0)
    await cluster.watched()
    cluster.discovery.reconfigure(config(port=9000))
    await cluster.until("llama-0 http://10.0.0.1:9000 llama")
    await cluster.discovery.close()
    await cluster.watched(0)


WRONG = {
    "no selector": ({"selector": ""}, "selector"),
    "a selector of two words": ({"selector": "app vllm"}, "is not part of a label selector"),
    "a namespace in capitals": ({"namespaces": ["LLM"]}, "'LLM' is not a namespace"),
    "all and one": ({"namespaces": ["*", "llm"]}, r"'\*' is combined with namespaces"),
    "a node that is a URL": ({"node_name": "http://x"}, "is not the name of a node"),
    "a scheme": ({"scheme": "ftp"}, "scheme"),
    **{
        f"nothing wrong: {each}": ({"selector": each}, None)
        for each in (
            "app=vllm",
            "a==b,c!=d",
            "app in (a, b),!canary,x.io/tier",
            "app notin (a)",
            "app=",
        )
    },
}


@pytest.mark.parametrize(("settings", "words"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_named(
    settings: dict[str, Any], words: str | None, tmp_path: Path
) -> None:
    """Before anything runs; and each form of a selector that the API has is taken."""
    entry = json.dumps({"selector": "app=vllm"} | settings)
    (tmp_path / "c.yaml").write_text(f"discovery: {{kubernetes: [{entry}]}}\n")
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        load(tmp_path / "c.yaml", environ={})
