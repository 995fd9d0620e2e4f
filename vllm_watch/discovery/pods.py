"""Turn a pod into a target.

A pod's annotations may set how its own server is reached and named. They cannot name another host
or a credential. Source: kubernetes.io, lws.sigs.k8s.io, kserve.github.io.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from vllm_watch.settings.target import slug

PREFIX = "vllm-watch/"
IGNORED = frozenset(("restart-attempt",))
"""Annotations that vllm-watch itself sets on pods when it restarts them."""

_HASH_LABELS = ("pod-template-hash", "rollouts-pod-template-hash")
"""These labels hold the hash at the end of a ReplicaSet's name. The rest is the name of the Deployment or Argo Rollout."""

_OUTLIVES = ("leaderworkerset.sigs.k8s.io/name", "serving.kserve.io/inferenceservice")
_ROLES = {
    "llm-d.ai/role": ("llm-d.ai/model",),
    "nvidia.com/dynamo-sub-component-type": ("nvidia.com/dynamo-graph-deployment-name",),
    "disaggregatedset.x-k8s.io/role": ("disaggregatedset.x-k8s.io/name", "disaggregatedset.x-k8s.io/slice"),
}  # fmt: skip
"""Each key is the label with a pod's role (llm-d, NVIDIA Dynamo, DisaggregatedSet). Pods that
exchange KV cache have equal values of the labels in the tuple."""

PREFILL, DECODE = "prefill", "decode"
_MODEL, _RELEASE = "model", "helm-release-name"
_MODEL_OF_ROLE = re.compile(rf"(?:(.*)-)?({PREFILL}|{DECODE})")
"""In vLLM's production-stack, the model label ends with the role (`llama-prefill`, `prefill`)."""

_WORKER, _TOGETHER = (
    "leaderworkerset.sigs.k8s.io/worker-index",
    "leaderworkerset.sigs.k8s.io/group-key",
)
_RANK = re.compile(r"--data[-_]parallel[-_](hybrid[-_]lb|external[-_]lb|rank)\b|\s-dp[nhr]\b")
"""The flags of a server that runs only some data-parallel ranks. Source: vLLM, engine/arg_utils.py; llm-d, guides/wide-ep-lws."""

_ENDED = ("Succeeded", "Failed")
_SHOWN_CHARACTERS_MAX = 60


def _port(text: str) -> str | None:
    return text if re.fullmatch(r"[1-9]\d{0,4}", text) and int(text) < 1 << 16 else None


def _path(text: str) -> str | None:
    parts = text.rstrip("/").split("/")
    wanted = re.fullmatch(r"(/[A-Za-z0-9._~-]+)*/?", text) and not {".", ".."} & set(parts)
    # A path that ends in /v1 belongs to the OpenAI API, not to the server.
    return text if wanted and "v1" not in parts[-1:] else None


def _scheme(text: str) -> str | None:
    return text if text in ("http", "https") else None


def _group(text: str) -> str | None:
    return text if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,125}[A-Za-z0-9])?", text) else None


ANNOTATIONS: Mapping[str, Callable[[str], str | None]] = {
    "port": _port, "path": _path, "scheme": _scheme, "name": lambda text: slug(text) or None, "group": _group,
}  # fmt: skip
"""Known annotations and their parsers, which return None for an invalid value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod with a server to watch."""

    uid: str
    namespace: str
    name: str
    node: str
    created: str  # in Kubernetes' format, which sorts by time
    address: str  # IPv6 without brackets
    group: str  # name of the Deployment or other owner
    role: str = ""  # PREFILL or DECODE; "" if both or unknown
    pairs_in: tuple[str, ...] = ()  # pods with a common entry exchange KV cache
    gang: str = ""
    annotations: Mapping[str, str]
    invalid: tuple[str, ...] = ()  # messages about invalid annotations


def pod_of(document: Mapping[str, Any]) -> Pod | None:
    """Return the pod, or None if it has no server to watch. Raises KeyError, TypeError, AttributeError or ValueError if it is malformed."""
    metadata, status = document["metadata"], document.get("status") or {}
    labels = metadata.get("labels") or {}
    address = status.get("podIP")
    if metadata.get("deletionTimestamp") or status.get("phase") in _ENDED or not address:
        return None  # being deleted, finished, or not scheduled yet
    is_rank = _is_rank(document.get("spec") or {})
    if labels.get(_WORKER, "0") != "0" and not is_rank:
        return None  # only the leader of a multi-node server answers
    annotations, invalid = _annotations(metadata.get("annotations") or {})
    role, pairs_in = _role(labels)
    return Pod(
        uid=str(metadata["uid"]),
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        node=str((document.get("spec") or {}).get("nodeName") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        address=str(ip_address(address)),
        group=annotations.get("group") or _owner(metadata, labels),
        role=role,
        pairs_in=(str(metadata["namespace"]), *pairs_in),
        gang=f"{metadata['namespace']}/{labels[_TOGETHER]}"
        if is_rank and labels.get(_TOGETHER)
        else "",
        annotations=annotations,
        invalid=invalid,
    )


def _is_rank(spec: Mapping[str, Any]) -> bool:
    for container in spec.get("containers") or []:
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        command = " ".join(map(str, words))
        if _RANK.search(command) and "--headless" not in command:
            return True
    return False


def _role(labels: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    for label, within in _ROLES.items():
        if labels.get(label) in (PREFILL, DECODE):
            return str(labels[label]), (label, *(str(labels.get(each)) for each in within))
    of_model = _MODEL_OF_ROLE.fullmatch(str(labels.get(_MODEL) or ""))
    if of_model is None:
        return "", ()
    return of_model[2], (_MODEL, str(labels.get(_RELEASE)), of_model[1] or "")


def _annotations(given: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    valid: dict[str, str] = {}
    invalid: list[str] = []
    for key in sorted(given):
        name = key.removeprefix(PREFIX)
        if name == key or name in IGNORED:
            continue
        text = str(given[key])
        value = ANNOTATIONS[name](text) if name in ANNOTATIONS else None
        if value is not None:
            valid[name] = value
        elif name in ANNOTATIONS:
            invalid.append(f"{key} {_short(text)} is invalid")
        else:
            invalid.append(f"{_short(key)} is not a known annotation")
    return valid, tuple(invalid)


def _short(text: str) -> str:
    shown = text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
    return repr(shown)


def _owner(metadata: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
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
