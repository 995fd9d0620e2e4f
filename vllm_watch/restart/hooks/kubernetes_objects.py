"""Judge whether pods and workloads may be restarted, and whether a controller starts them again.

Source: kubernetes.io, pod lifecycle, owners and dependents, Deployment and StatefulSet status;
lws.sigs.k8s.io.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

CONTROLLERS = frozenset((
    "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "LeaderWorkerSet", "RayCluster",
))  # fmt: skip
"""Owners that replace a pod regardless of how it ended. A failed Job replaces no pod."""

START_TOLERANCE_SECONDS = 2.0
"""A server may seem this much older than its container, because the kubelet's times are whole seconds."""

ATTEMPT = "vllm-watch/restart-attempt"
"""This annotation of the pod template holds the attempt's id, so that a repeated patch changes nothing."""

LWS_NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The API path of a kind, and the keys that lead to its pod templates."""

    kind: str
    resource: str
    root: str
    templates: tuple[tuple[str, ...], ...]  # the last one always exists

    @property
    def group(self) -> str:
        return self.root.split("/")[2]


_APPS = "/apis/apps/v1"
_TEMPLATE = (("spec", "template"),)
_LWS_TEMPLATES = (
    ("spec", "leaderWorkerTemplate", "leaderTemplate"),
    ("spec", "leaderWorkerTemplate", "workerTemplate"),
)
WORKLOADS = {
    "deployment": Workload(kind="Deployment", resource="deployments", root=_APPS, templates=_TEMPLATE),
    "statefulset": Workload(kind="StatefulSet", resource="statefulsets", root=_APPS, templates=_TEMPLATE),
    "daemonset": Workload(kind="DaemonSet", resource="daemonsets", root=_APPS, templates=_TEMPLATE),
    "leaderworkerset": Workload(
        kind="LeaderWorkerSet", resource="leaderworkersets", root="/apis/leaderworkerset.x-k8s.io/v1",
        templates=_LWS_TEMPLATES,
    ),
}  # fmt: skip


def kind_of(workload: str) -> Workload:
    """Return the kind of a workload such as `deployment/NAME`."""
    return WORKLOADS[workload.partition("/")[0]]


def uid(found: Mapping[str, Any]) -> str:
    """Return the object's uid."""
    return str(found["metadata"]["uid"])


def pod_unfit(pod: Mapping[str, Any], url: str, process_start_time: float | None) -> str | None:
    """Return why this pod must not be touched, or None."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    name = f"pod {metadata['name']}"
    if metadata.get("deletionTimestamp"):
        return f"{name} is being deleted already"
    if status.get("phase") != "Running":
        return f"{name} does not run: it is {status.get('phase', 'of an unknown phase')}"
    if not status.get("containerStatuses"):
        return f"the containers of {name} are not known"
    for container in status["containerStatuses"]:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting is not None:
            why = waiting.get("reason", "it is being started")
            return f"Kubernetes is about to restart {name} itself: {container['name']}, {why}"
        if (container.get("state") or {}).get("terminated") is not None:
            return f"{container['name']} in {name} has ended; Kubernetes decides whether it starts again"
    return _another(pod, name, url, process_start_time)


def _another(
    pod: Mapping[str, Any], name: str, url: str, process_start_time: float | None
) -> str | None:
    if process_start_time is None:
        return None
    began = [_unix(_running(each).get("startedAt")) for each in _serving(pod, url)]
    known = [each for each in began if each is not None]
    if not known or min(known) <= process_start_time + START_TOLERANCE_SECONDS:
        return None
    return f"{name} was started after the observed server: it is a different one"


def _serving(pod: Mapping[str, Any], url: str) -> list[Mapping[str, Any]]:
    port = urlsplit(url).port
    declared = {
        container["name"]
        for container in pod["spec"].get("containers") or []
        if any(each.get("containerPort") == port for each in container.get("ports") or [])
    }
    statuses = pod["status"].get("containerStatuses") or []
    return [each for each in statuses if each["name"] in declared] or list(statuses)


def _running(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return (container.get("state") or {}).get("running") or {}


def _unix(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def not_started_again(pod: Mapping[str, Any]) -> str | None:
    """Return why nothing would replace the pod, or None."""
    name = f"pod {pod['metadata']['name']}"
    owners = [
        each for each in pod["metadata"].get("ownerReferences") or [] if each.get("controller")
    ]
    if not owners:
        return f"nothing replaces {name}: it has no controller"
    kind = str(owners[0].get("kind"))
    if kind not in CONTROLLERS:
        return f"perhaps nothing replaces {name}: its controller is a {kind}"
    return None


def workload_unfit(kind: Workload, found: Mapping[str, Any]) -> str | None:
    """Return why a rollout must not start or would do nothing, or None."""
    metadata, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    name = f"{kind.kind} {metadata['name']}"
    if metadata.get("deletionTimestamp"):
        return f"{name} is being deleted"
    if spec.get("paused"):
        return f"{name} is paused: a rollout would not begin"
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return f"{name} has updateStrategy OnDelete: a rollout would restart nothing"
    if (strategy.get("rollingUpdate") or {}).get("partition"):
        return f"{name} has a partition: a rollout would restart only a part of it"
    wanted, updated = spec.get("replicas", 1), status.get("updatedReplicas") or 0
    if kind.kind == "DaemonSet":
        wanted = status.get("desiredNumberScheduled") or 0
        updated = status.get("updatedNumberScheduled") or 0
    if wanted == 0:
        return f"{name} is scaled to zero"
    if (status.get("observedGeneration") or 0) < metadata.get("generation", 0) or updated < wanted:
        return f"a rollout of {name} is under way: {updated} of {wanted} are up to date"
    return None


def belongs(kind: Workload, found: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return True if the pod belongs to this workload."""
    labels = pod["metadata"].get("labels") or {}
    if kind.kind == "LeaderWorkerSet":
        return bool(labels.get(LWS_NAME_LABEL) == found["metadata"]["name"])
    wanted = ((found["spec"].get("selector") or {}).get("matchLabels")) or {}
    return bool(wanted) and all(labels.get(name) == value for name, value in wanted.items())


def rollout(kind: Workload, found: Mapping[str, Any], attempt_id: str) -> dict[str, Any] | None:
    """Return the merge patch that starts a rollout; None if this attempt has already started one."""
    metadata = found["metadata"]
    patch: dict[str, Any] = {
        "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    }
    for path in kind.templates:
        template = _at(found, path)
        if template is None and path != kind.templates[-1]:
            continue
        annotations = ((template or {}).get("metadata") or {}).get("annotations") or {}
        if annotations.get(ATTEMPT) == attempt_id:
            return None
        here = patch
        for key in path:
            here = here.setdefault(key, {})
        here["metadata"] = {"annotations": {ATTEMPT: attempt_id}}
    return patch


def _at(found: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any] | None:
    here: Any = found
    for key in path:
        here = (here or {}).get(key)
    return here if isinstance(here, Mapping) else None
