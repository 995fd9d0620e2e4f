"""What a pod says of itself: which are targets, what outlives them, and what an annotation may not say."""

from typing import Any

import pytest

from vllm_watch.discovery.kubernetes import pod_of

HASHED = {"pod-template-hash": "5d4f8c7b9d"}


def document(status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A pod that runs and is not ready."""
    about = {"name": "llama-0", "namespace": "llm", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
    conditions = [{"type": "Ready", "status": "False"}]
    running = {"phase": "Running", "podIP": "10.1.2.3", "conditions": conditions}
    return {
        "metadata": about | metadata,
        "spec": {"nodeName": "gpu-1"},
        "status": running | (status or {}),
    }


WATCHED = {
    "not ready": (document(), True),
    "its image is being pulled, and it has an address": (document({"phase": "Pending"}), True),
    "has no address yet": (document({"phase": "Pending", "podIP": None}), False),
    "is being deleted": (document(deletionTimestamp="2026-01-01T00:00:00Z"), False),
    "has done its work": (document({"phase": "Succeeded"}), False),
    "leads several nodes": (document(labels={"leaderworkerset.sigs.k8s.io/worker-index": "0"}), True),
    "works for a leader": (document(labels={"leaderworkerset.sigs.k8s.io/worker-index": "2"}), False),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "watched"), WATCHED.values(), ids=WATCHED)
def test_which_pods_are_targets(pod: dict[str, Any], watched: bool) -> None:
    """All that may serve, ready or not; none that ends as planned or answers nobody."""
    found = pod_of(pod)
    assert (found is not None) == watched
    if found is not None:
        assert (found.name, found.namespace, found.node, found.address) == ("llama-0", "llm", "gpu-1", "10.1.2.3")  # fmt: skip


def owned(kind: str, name: str, labels: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:  # fmt: skip
    owner = {"kind": kind, "name": name, "controller": True}
    return document(ownerReferences=[owner], labels=labels or {}, **metadata)


GROUPS = {
    "nobody's": (document(), "llama-0"),
    "an owner that is no controller": (
        document(ownerReferences=[{"kind": "ConfigMap", "name": "x"}]),
        "llama-0",
    ),
    "a Deployment's": (owned("ReplicaSet", "llama-5d4f8c7b9d", HASHED), "llama"),
    "a Deployment's, whose name looks like a hash": (
        owned("ReplicaSet", "llama-bcdfg-5d4f8c7b9d", HASHED),
        "llama-bcdfg",
    ),
    "an Argo Rollout's": (
        owned("ReplicaSet", "llama-77", {"rollouts-pod-template-hash": "77"}),
        "llama",
    ),
    "a bare ReplicaSet's": (owned("ReplicaSet", "llama-5d4f8c7b9d"), "llama-5d4f8c7b9d"),
    "a StatefulSet's": (owned("StatefulSet", "llama"), "llama"),
    "a LeaderWorkerSet's": (
        owned("StatefulSet", "big-0", {"leaderworkerset.sigs.k8s.io/name": "big"}),
        "big",
    ),
    "an InferenceService's": (
        owned(
            "ReplicaSet",
            "chat-predictor-5d4f8c7b9d",
            HASHED | {"serving.kserve.io/inferenceservice": "chat"},
        ),
        "chat",
    ),
    "one that says so": (
        owned("StatefulSet", "llama", annotations={"vllm-watch/group": "all"}),
        "all",
    ),
}


@pytest.mark.parametrize(("pod", "group"), GROUPS.values(), ids=GROUPS)
def test_what_outlives_a_pod(pod: dict[str, Any], group: str) -> None:
    """Budgets and baselines belong to what makes the next pod."""
    found = pod_of(pod)
    assert found is not None
    assert found.group == group


SAID = {
    "its port": ("port", "8080", "8080"),
    "a prefix": ("path", "/llm/", "/llm/"),
    "https": ("scheme", "https", "https"),
    "a name": ("name", "Chat Big", "chat-big"),
    "no port": ("port", "0", None),
    "a port with more behind it": ("port", "80@evil.net", None),
    "a port too many": ("port", "65536", None),
    "digits of another script": ("port", "٨٠", None),
    "a path that is a host": ("path", "@evil.net/", None),
    "a path without a slash": ("path", ".evil.net", None),
    "a path that climbs": ("path", "/a/../../admin", None),
    "a path with a query": ("path", "/?key=x", None),
    "the OpenAI API": ("path", "/v1", None),
    "another scheme": ("scheme", "file", None),
    "a name of nothing": ("name", "…", None),
    "a group in two lines": ("group", "a\nb", None),
    "another host": ("host", "evil.net", None),
    "a whole URL": ("url", "http://evil.net", None),
    "a credential": ("api-key-file", "/etc/shadow", None),
    "what a rollout leaves behind": ("restart-attempt", "a1", None),
}


@pytest.mark.parametrize(("key", "text", "taken"), SAID.values(), ids=SAID)
def test_what_an_annotation_may_say(key: str, text: str, taken: str | None) -> None:
    """How its own server is asked, and what it is called; all else is said to be wrong, and the pod is watched on."""
    found = pod_of(document(annotations={f"vllm-watch/{key}": text, "other/port": "1"}))
    assert found is not None
    assert found.annotations.get(key) == taken
    assert bool(found.invalid) == (taken is None and key != "restart-attempt")
    assert "\n" not in "".join(found.invalid)


@pytest.mark.parametrize("address", ["evil.net", "10.0.0.1:80", "fe80::1%eth0/../x", "1"])
def test_what_is_no_address_is_no_pod(address: str) -> None:
    """What is put into a URL is an address, whatever the API server says."""
    with pytest.raises(ValueError, match="address"):
        pod_of(document({"podIP": address}))


def disaggregated(role: str, **more: str) -> dict[str, str]:
    """A leader of a DisaggregatedSet's LeaderWorkerSet."""
    lws = f"chat-{more.get('slice', '0')}-7f9b8c-{role}"
    return {
        "disaggregatedset.x-k8s.io/name": "chat", "disaggregatedset.x-k8s.io/role": role,
        "disaggregatedset.x-k8s.io/revision": "7f9b8c",
        "leaderworkerset.sigs.k8s.io/name": lws, "leaderworkerset.sigs.k8s.io/group-index": "0",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
        "leaderworkerset.sigs.k8s.io/group-key": f"key-of-{lws}",
        "leaderworkerset.sigs.k8s.io/template-revision-hash": "5c5fcdfb44",
        **{f"disaggregatedset.x-k8s.io/{key}": value for key, value in more.items()},
    }  # fmt: skip


def of_stack(model: str, release: str = "pd") -> dict[str, str]:
    """A pod of the production-stack's chart."""
    return {
        "model": model, "helm-release-name": release, "environment": "test", "release": "test",
        "pod-template-hash": "6d5f8c7b9d",
    }  # fmt: skip


def of_operator(model: str) -> dict[str, str]:
    """... and of its example that the router orchestrates."""
    return {"app": model, "model": model, **HASHED}


PAIRS = {
    "one slice": (disaggregated("prefill", slice="1"), disaggregated("decode", slice="1"), True),
    "slices of one set": (disaggregated("prefill", slice="0"), disaggregated("decode", slice="1"), False),
    "before there were slices": (disaggregated("prefill"), disaggregated("decode"), True),
    "one release": (of_stack("llama-prefill"), of_stack("llama-decode"), True),
    "two models": (of_stack("llama-prefill"), of_stack("qwen-decode"), False),
    "two releases": (of_stack("llama-prefill"), of_stack("llama-decode", "other"), False),
    "models that are called by their part": (of_operator("prefill"), of_operator("decode"), True),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other", "pair"), PAIRS.values(), ids=PAIRS)
def test_which_prefill_gives_a_decode_its_kv(
    one: dict[str, str], other: dict[str, str], pair: bool
) -> None:
    """By the labels that LeaderWorkerSet (DisaggregatedSet) and the production-stack give their pods."""
    prefill, decode = pod_of(document(labels=one)), pod_of(document(labels=other))
    assert prefill is not None
    assert decode is not None
    assert (prefill.role, decode.role) == ("prefill", "decode")
    assert (prefill.pairs_in == decode.pairs_in) is pair


HYBRID = "exec vllm serve m --data-parallel-size 16 --data-parallel-hybrid-lb --data-parallel-start-rank $START_RANK"
RANKS = {
    "a worker of llm-d's wide expert parallelism": (HYBRID, "1", "llm/key-of-chat"),
    "its leader": (HYBRID, "0", "llm/key-of-chat"),
    "a rank with a balancer before it": ("vllm serve m --data-parallel-rank=3", "3", "llm/key-of-chat"),
    "a leader of tensor parallelism": ("vllm serve m --tensor-parallel-size 16", "0", ""),
    "a worker of it": ("vllm serve m --nnodes 2 --node-rank 1 --headless", "1", None),
    "headless ranks": ("vllm serve m --headless --data-parallel-rank 3", "1", None),
}  # fmt: skip


@pytest.mark.parametrize(("command", "worker", "gang"), RANKS.values(), ids=RANKS)
def test_ranks_of_a_leader_worker_set_are_a_gang(
    command: str, worker: str, gang: str | None
) -> None:
    """Each pod that answers for its own ranks is a target, and all of one group step together."""
    labels = disaggregated("decode") | {
        "leaderworkerset.sigs.k8s.io/worker-index": worker, "leaderworkerset.sigs.k8s.io/group-key": "key-of-chat",
    }  # fmt: skip
    pod = document(labels=labels, namespace="llm")
    pod["spec"] = {"containers": [{"command": ["/bin/sh", "-c"], "args": [command]}]}
    found = pod_of(pod)
    assert (None if found is None else found.gang) == gang


@pytest.mark.parametrize("model", ["llama", "decoder", "llama-decode-7b", ""])
def test_a_model_that_is_named_after_no_part_has_none(model: str) -> None:
    found = pod_of(document(labels=of_stack(model)))
    assert found is not None
    assert found.role == ""
