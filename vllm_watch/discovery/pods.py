"""What a pod says of itself: is a server to be watched in it, where, and what outlives it? Pure.

Whoever writes a pod writes its annotations, so they may say how its own server is asked and what it is
called: never another host, never a credential, and nothing that is not listed here.
Source: kubernetes.io, Pod lifecycle, Well-Known Labels (pod-template-hash); lws.sigs.k8s.io; kserve.github.io.
Runbook: docs/kubernetes.md.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from vllm_watch.settings.target import slug

PREFIX = "vllm-watch/"
IGNORED = frozenset(("restart-attempt",))
"""Ours too, and no word to discovery: a rollout of the hook leaves it on each pod."""

_HASH_LABELS = ("pod-template-hash", "rollouts-pod-template-hash")
"""A Deployment (Argo: a Rollout) labels its pods so, and its ReplicaSet is named after both."""

_OUTLIVES = ("leaderworkerset.sigs.k8s.io/name", "serving.kserve.io/inferenceservice")
_ROLES = {
    "llm-d.ai/role": ("llm-d.ai/model",),
    "nvidia.com/dynamo-sub-component-type": ("nvidia.com/dynamo-graph-deployment-name",),
    "disaggregatedset.x-k8s.io/role": ("disaggregatedset.x-k8s.io/name", "disaggregatedset.x-k8s.io/slice"),
}  # fmt: skip
"""The labels that say which part a server has, and within what: of llm-d, NVIDIA Dynamo and LeaderWorkerSet's
DisaggregatedSet, whose slices exchange nothing with each other."""

PREFILL, DECODE = "prefill", "decode"
_MODEL, _RELEASE = "model", "helm-release-name"
_MODEL_OF_ROLE = re.compile(rf"(?:(.*)-)?({PREFILL}|{DECODE})")
"""The production-stack's router is told which models (`llama-prefill`, `prefill`) have which part."""

_WORKER, _TOGETHER = (
    "leaderworkerset.sigs.k8s.io/worker-index",
    "leaderworkerset.sigs.k8s.io/group-key",
)
_RANK = re.compile(r"--data[-_]parallel[-_](hybrid[-_]lb|external[-_]lb|rank)\b|\s-dp[nhr]\b")
"""Of a command whose server answers for its own data-parallel ranks, beside others on other addresses: llm-d's wide
expert parallelism is a LeaderWorkerSet of such. Source: vLLM, engine/arg_utils.py; llm-d, guides/wide-ep-lws."""

_ENDED = ("Succeeded", "Failed")
_SHOWN_CHARACTERS_MAX = 60


def _port(text: str) -> str | None:
    return text if re.fullmatch(r"[1-9]\d{0,4}", text) and int(text) < 1 << 16 else None


def _path(text: str) -> str | None:
    parts = text.rstrip("/").split("/")
    wanted = re.fullmatch(r"(/[A-Za-z0-9._~-]+)*/?", text) and not {".", ".."} & set(parts)
    return text if wanted and "v1" not in parts[-1:] else None  # /v1 is the OpenAI API's


def _scheme(text: str) -> str | None:
    return text if text in ("http", "https") else None


def _group(text: str) -> str | None:
    return text if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,125}[A-Za-z0-9])?", text) else None


SAYS: Mapping[str, Callable[[str], str | None]] = {
    "port": _port, "path": _path, "scheme": _scheme, "name": lambda text: slug(text) or None, "group": _group,
}  # fmt: skip
"""What an annotation may say, and what of it is taken; None: it is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod whose server is to be watched."""

    uid: str
    namespace: str
    name: str
    node: str
    created: str  # as Kubernetes writes times: in their order as text
    address: str  # an IP address; of IPv6 without brackets
    group: str  # what outlives it
    role: str = ""  # PREFILL, DECODE; else it does both, or does not say
    pairs_in: tuple[str, ...] = ()  # prefill and decode of the same exchange KV
    gang: str = ""  # ranks of the same step together
    says: Mapping[str, str]  # its annotations, of SAYS alone
    wrong: tuple[str, ...] = ()  # what of its annotations is not taken, in words


def pod_of(document: Mapping[str, Any]) -> Pod | None:
    """Return the pod; None: nothing in it is to be watched now.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: where this is no pod.
    """
    metadata, status = document["metadata"], document.get("status") or {}
    labels = metadata.get("labels") or {}
    address = status.get("podIP")
    if metadata.get("deletionTimestamp") or status.get("phase") in _ENDED or not address:
        return None  # it ends as somebody wanted, will never run again, or has no place yet
    is_rank = _is_rank(document.get("spec") or {})
    if labels.get(_WORKER, "0") != "0" and not is_rank:
        return None  # of a server over several nodes the leader answers, alone
    says, wrong = _said(metadata.get("annotations") or {})
    role, pairs_in = _part(labels)
    return Pod(
        uid=str(metadata["uid"]),
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        node=str((document.get("spec") or {}).get("nodeName") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        address=str(ip_address(address)),
        group=says.get("group") or _owner(metadata, labels),
        role=role,
        pairs_in=(str(metadata["namespace"]), *pairs_in),
        gang=f"{metadata['namespace']}/{labels[_TOGETHER]}"
        if is_rank and labels.get(_TOGETHER)
        else "",
        says=says,
        wrong=wrong,
    )


def _is_rank(spec: Mapping[str, Any]) -> bool:
    """Does a container of it start a server of some of the ranks, which has its own address?"""
    for container in spec.get("containers") or []:
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        command = " ".join(map(str, words))
        if _RANK.search(command) and "--headless" not in command:
            return True
    return False


def _part(labels: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Which part the server has ("": both, or nobody says), and within what."""
    for label, within in _ROLES.items():
        if labels.get(label) in (PREFILL, DECODE):
            return str(labels[label]), (label, *(str(labels.get(each)) for each in within))
    of_model = _MODEL_OF_ROLE.fullmatch(str(labels.get(_MODEL) or ""))
    if of_model is None:
        return "", ()
    return of_model[2], (_MODEL, str(labels.get(_RELEASE)), of_model[1] or "")


def _said(annotations: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    says: dict[str, str] = {}
    wrong: list[str] = []
    for key in sorted(annotations):
        what = key.removeprefix(PREFIX)
        if what == key or what in IGNORED:
            continue
        text = str(annotations[key])
        taken = SAYS[what](text) if what in SAYS else None
        if taken is not None:
            says[what] = taken
        elif what in SAYS:
            wrong.append(f"{key} {_short(text)} is not taken")
        else:
            wrong.append(f"{_short(key)} is nothing that a pod may say")
    return says, tuple(wrong)


def _short(text: str) -> str:
    shown = text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
    return repr(shown)


def _owner(metadata: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
    """What makes a new pod when this one is gone."""
    for label in _OUTLIVES:
        if labels.get(label):
            return str(labels[label])
    owners = [each for each in metadata.get("ownerReferences") or [] if each.get("controller")]
    if not owners:
        return str(metadata["name"])
    name = str(owners[0]["name"])
    if owners[0].get("kind") == "ReplicaSet":
        for label in _HASH_LABELS:
            if labels.get(label):
                return name.removesuffix(f"-{labels[label]}")
    return name
