"""Restart through the Kubernetes API server: evict the pod, or start a rollout of its workload. Runbook:
docs/hooks/kubernetes.md.

A pod or workload is judged first: whether it may be restarted, and whether a controller starts it again.

Source: kubernetes.io, API-initiated Eviction, pod lifecycle, owners and dependents, Deployment and StatefulSet status;
kubectl rollout restart; lws.sigs.k8s.io.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from vllm_watch.clients.kubernetes import Answer, KubernetesError, in_cluster, part
from vllm_watch.errors import Finding, HookError
from vllm_watch.restart.hooks import base
from vllm_watch.settings.hooks import KubernetesHook

POLL_SECONDS = 2.0
"""Seconds between polls of an ending pod."""

WAIT_SECONDS = 10.0
"""If a PodDisruptionBudget forbids an eviction, it is retried after this many seconds, unless the API server sends Retry-After."""

TRIES_MAX = 4
"""A patch is tried at most this many times. A try fails with a conflict if the object changes meanwhile."""

_REMEDY = "check with kubectl get pod -o yaml; see docs/hooks/kubernetes.md"
_DRY_RUN = {"dryRun": "All"}
_OK, _GONE, _CONFLICT, _TOO_MANY, _SERVER_ERRORS = 200, 404, 409, 429, 500
_TWO_BUDGETS = "more than one PodDisruptionBudget"


class Hook(base.Hook):
    """Calls the API server with our pod's service account."""

    ENDING_SECONDS = 5.0
    _settings: KubernetesHook

    async def check(self, call: base.HookCall) -> str | None:
        await self._plan(_Target(self._settings, self._tools, call))
        return None

    async def act(self, call: base.HookCall) -> base.HookResult:
        target = None
        try:
            target = _Act(self._settings, self._tools, call)
            async with asyncio.timeout(self._settings.timeout_seconds):
                return await target.run()
        except (HookError, KubernetesError) as error:
            surely = base.REFUSED if isinstance(error, HookError) else base.FAILED
            begun = target is not None and target.begun
            return base.HookResult(base.UNCERTAIN if begun else surely, error.cause)
        except TimeoutError:
            assert target is not None  # noqa: S101 - only target.run has a timeout
            return target.at_timeout()

    async def findings(self, call: base.HookCall) -> list[Finding]:
        target = _Target(self._settings, self._tools, call)
        findings = await self._rights(target)
        if not all(finding.ok for finding in findings):
            return findings
        try:
            return [*findings, Finding(ok=True, text=await self._plan(target))]
        except (HookError, KubernetesError) as error:
            return [*findings, Finding(ok=False, text=error.cause, remedy=error.remedy)]

    async def _plan(self, target: "_Target") -> str:
        if self._settings.action == "evict":
            pod = await target.pod(alone=True)
            answer = await target.api.call("POST", _eviction_path(pod), eviction(pod), _DRY_RUN)
            if not answer.ok:
                raise HookError(f"the API server would not evict it: {answer.said()}", _REMEDY)
            return f"the API server would evict pod {target.call.pod} (dry run)"
        await target.rollout()
        return f"a rollout of {self._settings.workload} can begin; all its pods are restarted"

    async def _rights(self, target: "_Target") -> list[Finding]:
        found = []
        for verb, group, resource, subresource in self._needed(target.call):
            attributes = {
                "namespace": target.namespace, "verb": verb, "group": group, "resource": resource,
                "subresource": subresource,
            }  # fmt: skip
            what = (
                f"{verb} {resource}{'/' + subresource if subresource else ''} in {target.namespace}"
            )
            answer = await target.api.call(
                "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                {
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": attributes},
                },
            )  # fmt: skip
            if not answer.ok:
                raise HookError(f"it is unknown whether we may {what}: {answer.said()}", _REMEDY)
            allowed = part(answer.document, "status").get("allowed") is True
            remedy = "give the service account the Role of docs/hooks/kubernetes.md"
            text = f"we may {'' if allowed else 'not '}{what}"
            found.append(Finding(ok=allowed, text=text, remedy=None if allowed else remedy))
        return found

    def _needed(self, call: base.HookCall) -> list[tuple[str, str, str, str]]:
        if self._settings.action == "evict":
            return [("get", "", "pods", ""), ("create", "", "pods", "eviction")]
        kind = kind_of(self._settings.workload)
        needed = [(verb, kind.group, kind.resource, "") for verb in ("get", "patch")]
        return [*needed, ("get", "", "pods", "")] if call.pod else needed


class _Target:
    """The pod and the workload of one call, read from the API server at each access."""

    def __init__(self, settings: KubernetesHook, tools: base.Tools, call: base.HookCall) -> None:
        """Raises KubernetesError outside a pod, HookError if the namespace is unknown."""
        self.api = in_cluster(tools.environ, tools.session)
        self.call = call
        self.namespace = settings.namespace or call.namespace or self.api.namespace
        self.settings = settings
        self._environ = tools.environ
        if not self.namespace:
            cause = f"the namespace of {call.target} is not known"
            raise HookError(cause, "set hooks.kubernetes: namespace, or the target's")

    async def pod(self, *, alone: bool = False) -> Mapping[str, Any]:
        """Return the pod if it may be restarted.

        If `alone`, there must be a controller that would replace the pod. Raises HookError and
        KubernetesError.
        """
        call = self.call
        if not call.pod:
            remedy = "find it by discovery, or set pod and namespace of the target"
            raise HookError(f"the pod of {call.target} is not known", remedy)
        own = self._environ.get("POD_NAME") or self._environ.get("HOSTNAME")
        ours = (call.pod, self.namespace) == (own, self.api.namespace)
        if ours and not self.settings.state_outlives_pod:
            cause = "it is the pod in which vllm-watch runs, and the journal may be lost with it"
            remedy = "put state_dir on a volume that outlives the pod and set state_outlives_pod, or use gate"
            raise HookError(cause, remedy)
        answer = await self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/pods/{call.pod}")
        pod = _found(answer, f"pod {call.pod} in namespace {self.namespace}")

        with _understood(pod):
            _eviction_path(pod)  # this and the uid must be there
            uid(pod)
            wrong = pod_unfit(pod, call.url, call.process_start_time)
            if wrong is not None:
                raise HookError(wrong, _REMEDY)
            wrong = not_started_again(pod) if alone else None
            if wrong is not None:
                raise HookError(wrong, "run it as a Deployment or StatefulSet")
        return pod

    async def rollout(self) -> dict[str, Any] | None:
        name, kind = self.settings.workload, kind_of(self.settings.workload)
        found = _found(await self.api.call("GET", self.workload_path), name)
        with _understood(found):
            patch = rollout(kind, found, self.call.attempt_id)
            if patch is None:
                return None
            wrong = workload_unfit(kind, found)
            if wrong is not None:
                raise HookError(wrong, "wait for it, or fix the workload")
            if self.call.pod and not belongs(kind, found, await self.pod()):
                cause = f"pod {self.call.pod} does not belong to {name}"
                raise HookError(cause, "name the workload of the target's pod")
        return patch

    @property
    def workload_path(self) -> str:
        workload = self.settings.workload
        kind, name = kind_of(workload), workload.partition("/")[2]
        return f"/apis/{kind.group}/v1/namespaces/{self.namespace}/{kind.resource}/{name}"


class _Act(_Target):
    begun = False  # True if a request may have changed something
    _accepted = ""
    _forbidden = ""  # why the API server rejects the eviction

    async def run(self) -> base.HookResult:
        pod: Mapping[str, Any] | None
        if self.settings.action == "evict":
            pod = await self.pod(alone=True)
            result = await self._evict(pod)
        else:
            pod = await self.pod() if self.call.pod else None
            result = await self._roll_out()
        if result is not None:
            return result
        if pod is not None:
            await self._wait_gone(pod)
            self._accepted += "; it is gone"
        return base.HookResult(base.DONE, self._accepted)

    def at_timeout(self) -> base.HookResult:
        seconds = self.settings.timeout_seconds
        if self._accepted:
            text = f"{self._accepted}; it was still ending after {seconds:g} s"
            return base.HookResult(base.DONE, text)
        if self._forbidden and not self.begun:
            return base.HookResult(base.REFUSED, f"not within {seconds:g} s: {self._forbidden}")
        outcome = base.UNCERTAIN if self.begun else base.FAILED
        return base.HookResult(outcome, f"the API server has not answered within {seconds:g} s")

    async def _send(self, request: Awaitable[Answer]) -> Answer:
        self.begun = True
        try:
            return await request
        except KubernetesError as error:
            self.begun = error.sent
            raise

    async def _evict(self, pod: Mapping[str, Any]) -> base.HookResult | None:
        name = f"pod {self.call.pod}"
        while True:
            try:
                answer = await self._send(self.api.call("POST", _eviction_path(pod), eviction(pod)))
            except KubernetesError:
                if not self.begun or not await self._is_ending(pod):
                    raise
                answer = Answer(_OK, {})
            if answer.status != _TOO_MANY:
                break
            self.begun = False
            self._forbidden = f"{name} may not be evicted now: {answer.said()}"
            await asyncio.sleep(max(1.0, answer.retry_after_seconds or WAIT_SECONDS))
        if answer.ok:
            self._accepted = f"{name} was evicted"
            return None
        return _judge(answer, name)

    async def _is_ending(self, pod: Mapping[str, Any]) -> bool:
        answer = await self.api.call("GET", _eviction_path(pod).removesuffix("/eviction"))
        if not answer.ok:
            return answer.status == _GONE
        found = answer.document
        with _understood(found):
            return bool(found["metadata"].get("deletionTimestamp")) or uid(found) != uid(pod)

    async def _roll_out(self) -> base.HookResult | None:
        answer = Answer(_CONFLICT, {})
        for _ in range(TRIES_MAX):
            patch = await self.rollout()
            if patch is not None:
                answer = await self._send(self.api.call("PATCH", self.workload_path, patch))
            if patch is None or answer.ok:
                self._accepted = f"a rollout of {self.settings.workload} has begun"
                return None
            if answer.status != _CONFLICT:
                break
            self.begun = False
        return _judge(answer, self.settings.workload)

    async def _wait_gone(self, pod: Mapping[str, Any]) -> None:
        path = _eviction_path(pod).removesuffix("/eviction")
        while True:
            try:
                answer = await self.api.call("GET", path)
            except KubernetesError:
                answer = Answer(_SERVER_ERRORS, {})  # the eviction was already accepted: poll again
            if answer.status == _GONE:
                return
            with _understood(answer.document):
                if answer.ok and uid(answer.document) != uid(pod):
                    return
            await asyncio.sleep(POLL_SECONDS)


def eviction(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return an Eviction of exactly this pod."""
    metadata = pod["metadata"]
    return {
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "deleteOptions": {"preconditions": {"uid": uid(pod)}},
    }  # fmt: skip


def _eviction_path(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"


def _judge(answer: Answer, what: str) -> base.HookResult:
    text = f"the API server answered for {what}: {answer.said()}"
    surely_nothing = answer.status < _SERVER_ERRORS or _TWO_BUDGETS in answer.said()
    outcome = base.REFUSED if surely_nothing else base.UNCERTAIN
    return base.HookResult(outcome, text)


@contextmanager
def _understood(document: Mapping[str, Any]) -> Iterator[None]:
    """Raises HookError if the object is malformed."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError):
        name = document.get("kind", "object")
        raise HookError(f"the API server's {name} cannot be understood", _REMEDY) from None


def _found(answer: Answer, what: str) -> Mapping[str, Any]:
    if answer.ok and "metadata" in answer.document:
        return answer.document
    raise HookError(f"{what} is not available: {answer.said()}", _REMEDY)


CONTROLLERS = frozenset((
    "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "LeaderWorkerSet", "RayCluster",
))  # fmt: skip
"""Owners that replace a pod regardless of how it ended. A failed Job replaces no pod."""

ATTEMPT = "vllm-watch/restart-attempt"
"""This annotation of the pod template holds the attempt's id, so that a repeated patch changes nothing."""

LWS_NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The API path of a kind, and the keys that lead to its pod templates."""

    kind: str
    group: str = "apps"
    templates: tuple[tuple[str, ...], ...] = (("spec", "template"),)

    @property
    def resource(self) -> str:
        return f"{self.kind.lower()}s"


_LWS_TEMPLATES = (
    ("spec", "leaderWorkerTemplate", "leaderTemplate"),
    ("spec", "leaderWorkerTemplate", "workerTemplate"),
)
_LWS = Workload(kind="LeaderWorkerSet", group="leaderworkerset.x-k8s.io", templates=_LWS_TEMPLATES)
WORKLOADS = {
    each.kind.lower(): each
    for each in (
        *(Workload(kind=kind) for kind in ("Deployment", "StatefulSet", "DaemonSet")),
        _LWS,
    )
}


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
        waiting = container["state"].get("waiting")
        if waiting is not None:
            why = waiting.get("reason", "it is being started")
            return f"Kubernetes is about to restart {name} itself: {container['name']}, {why}"
        if container["state"].get("terminated") is not None:
            return f"{container['name']} in {name} has ended; Kubernetes decides whether it starts again"
    return _another(pod, name, url, process_start_time)


def _another(
    pod: Mapping[str, Any], name: str, url: str, process_start_time: float | None
) -> str | None:
    if process_start_time is None:
        return None
    began = [base.unix_t(each["state"]["running"].get("startedAt")) for each in _serving(pod, url)]
    known = [each for each in began if each is not None]
    if not known or min(known) <= process_start_time + base.CONTAINER_START_SECONDS:
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
    if status.get("observedGeneration") != metadata["generation"] or updated < wanted:
        return f"a rollout of {name} is under way: {updated} of {wanted} are up to date"
    return None


def belongs(kind: Workload, found: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return True if the pod belongs to this workload."""
    labels = pod["metadata"].get("labels") or {}
    if kind.kind == "LeaderWorkerSet":
        return bool(labels.get(LWS_NAME_LABEL) == found["metadata"]["name"])
    wanted = found["spec"]["selector"].get("matchLabels")
    return bool(wanted) and all(labels.get(name) == value for name, value in wanted.items())


def rollout(kind: Workload, found: Mapping[str, Any], attempt_id: str) -> dict[str, Any] | None:
    """Return the merge patch that starts a rollout; None if this attempt has already started one."""
    metadata = found["metadata"]
    patch: dict[str, Any] = {
        "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    }
    for path in kind.templates:
        template = _at(found, path)
        if template is None:
            continue
        annotations = (template.get("metadata") or {}).get("annotations") or {}
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
