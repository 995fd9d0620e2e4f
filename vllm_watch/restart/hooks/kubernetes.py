"""Restarts through the Kubernetes API server: evicts the pod, or begins a rollout of its workload.

An eviction asks the PodDisruptionBudgets, and names the uid of the pod that was looked at: another one that
has its name is not hit. A rollout is a patch of the pod template that holds only for what was looked at.
Source: kubernetes.io, API-initiated Eviction; kubectl rollout restart; SelfSubjectAccessReview.
Runbook: docs/hooks/kubernetes.md.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vllm_watch.clients.kubernetes import Answer, Api, KubernetesError, in_cluster
from vllm_watch.errors import HookError
from vllm_watch.restart import kubernetes_objects as objects
from vllm_watch.restart.hooks import base
from vllm_watch.settings.hooks import KubernetesHook

_T = TypeVar("_T")

LOOK_SECONDS = 2.0
"""From one look at a pod that is ending to the next: an engine takes seconds to minutes to end."""

WAIT_SECONDS = 10.0
"""Before an eviction that a budget forbids is tried again, where the server does not say: its own word."""

TRIES_MAX = 4
"""Of a patch that met a newer version of the workload: its status changes with each of its pods."""

_GRACE_SECONDS = 5.0  # what is under way when the time is up is judged, not cut off
_DRY_RUN = {"dryRun": "All"}
_OK, _GONE, _CONFLICT, _TOO_MANY, _SERVER_ERRORS = 200, 404, 409, 429, 500
_TWO_BUDGETS = "more than one PodDisruptionBudget"
_REMEDY = "look with kubectl get pod -o yaml; docs/hooks/kubernetes.md says what is asked for"


class Hook:
    """Asks the API server, as the service account of our pod."""

    def __init__(self, settings: KubernetesHook, tools: base.Tools) -> None:
        self._settings = settings
        self._tools = tools
        self._kind = settings.workload.partition("/")[0]
        self.timeout_seconds = settings.timeout_seconds + _GRACE_SECONDS

    async def refusal(self, call: base.HookCall) -> str | None:
        try:
            await self._plan(call)
        except (HookError, KubernetesError) as error:
            return error.cause
        return None

    async def restart(self, call: base.HookCall) -> base.HookResult:
        try:
            act = _Act(self, self._settings, call, self.api())
        except KubernetesError as error:
            return base.HookResult(outcome=base.FAILED, text=error.cause)
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                return await act.run()
        except HookError as error:
            return base.HookResult(outcome=base.REFUSED, text=error.cause)
        except KubernetesError as error:
            outcome = base.UNCERTAIN if act.begun and error.sent else base.FAILED
            return base.HookResult(outcome=outcome, text=error.cause)
        except TimeoutError:
            return act.when_time_was_up(self._settings.timeout_seconds)

    async def rehearse(self, call: base.HookCall) -> list[base.Finding]:
        try:
            findings = await self._rights(call)
        except (HookError, KubernetesError) as error:
            return [base.Finding(ok=False, text=error.cause, remedy=error.remedy)]
        if not all(finding.ok for finding in findings):
            return findings
        try:
            text = await self._plan(call)
        except (HookError, KubernetesError) as error:
            return [*findings, base.Finding(ok=False, text=error.cause, remedy=error.remedy)]
        return [*findings, base.Finding(ok=True, text=text)]

    # --- what both ways need

    def api(self) -> Api:
        """Return a client. Raises KubernetesError where this is no pod."""
        return Api(in_cluster(self._tools.environ), self._tools.session)

    def namespace(self, call: base.HookCall, api: Api) -> str:
        """Return where the pod is. Raises HookError."""
        name = self._settings.namespace or call.namespace or api.access.namespace
        if not name:
            cause = f"the namespace of {call.target} is not known"
            raise HookError(cause, "set hooks.kubernetes: namespace, or the target's")
        return name

    async def pod(self, call: base.HookCall, api: Api, *, alone: bool = False) -> Mapping[str, Any]:
        """Return the target's pod, which may be restarted; `alone`: only it, so that its controller must
        make another. Raises HookError, KubernetesError."""
        if not call.pod:
            remedy = "find it by discovery, or set pod and namespace of the target"
            raise HookError(f"the pod of {call.target} is not known", remedy)
        namespace = self.namespace(call, api)
        own = self._tools.environ.get("POD_NAME") or self._tools.environ.get("HOSTNAME")
        if (call.pod, namespace) == (own, api.access.namespace):
            self._may_end_ourselves()
        answer = await api.get(f"/api/v1/namespaces/{namespace}/pods/{call.pod}")
        pod = _found(answer, f"pod {call.pod} in namespace {namespace}")
        wrong = _judged(pod, objects.pod_unfit, pod, call.url, call.process_start_time)
        if wrong is not None:
            raise HookError(wrong, _REMEDY)
        wrong = _judged(pod, objects.not_started_again, pod) if alone else None
        if wrong is not None:
            raise HookError(wrong, "run it as a Deployment or StatefulSet")
        return pod

    def _may_end_ourselves(self) -> None:
        if not self._settings.state_outlives_pod:
            cause = "it is the pod in which vllm-watch runs, and the journal may go with it"
            remedy = "put state_dir on a volume that outlives the pod and set state_outlives_pod, or use gate"
            raise HookError(cause, remedy)

    async def workload(self, call: base.HookCall, api: Api) -> Mapping[str, Any]:
        """Return the workload, of which a rollout may begin. Raises HookError, KubernetesError."""
        kind = objects.WORKLOADS[self._kind]
        found = _found(await api.get(self.workload_path(call, api)), self._settings.workload)
        if _judged(found, objects.rollout, kind, found, call.attempt_id) is None:
            return found  # this attempt has begun it
        wrong = _judged(found, objects.workload_unfit, kind, found)
        if wrong is not None:
            raise HookError(wrong, "wait for it, or mend the workload")
        if call.pod:
            pod = await self.pod(call, api)
            if not _judged(found, objects.belongs, kind, found, pod):
                cause = f"pod {call.pod} is none of {self._settings.workload}"
                raise HookError(cause, "name the workload of the target's pod")
        return found

    def workload_path(self, call: base.HookCall, api: Api) -> str:
        """Return where the configured workload is."""
        kind, name = objects.WORKLOADS[self._kind], self._settings.workload.partition("/")[2]
        return f"{kind.root}/namespaces/{self.namespace(call, api)}/{kind.resource}/{name}"

    async def _plan(self, call: base.HookCall) -> str:
        """Say what would be done; the server has tried all of it but the doing. Raises as `pod` does."""
        api = self.api()
        if self._settings.action == "evict":
            pod = await self.pod(call, api, alone=True)
            _tried(await api.post(_eviction_path(pod), eviction(pod), _DRY_RUN))
            return f"the API server would evict pod {call.pod} (dry run)"
        await self.workload(call, api)
        return f"a rollout of {self._settings.workload} can begin; all its pods are restarted"

    async def _rights(self, call: base.HookCall) -> list[base.Finding]:
        api = self.api()
        namespace, found = self.namespace(call, api), []
        for verb, group, resource, subresource in self._needed(call):
            attributes = {
                "namespace": namespace, "verb": verb, "group": group, "resource": resource,
                "subresource": subresource,
            }  # fmt: skip
            what = f"{verb} {resource}{'/' + subresource if subresource else ''} in {namespace}"
            answer = await api.post(
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                {
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": attributes},
                },
            )  # fmt: skip
            if not answer.ok:
                raise HookError(f"whether we may {what} is not said: {answer.said()}", _REMEDY)
            allowed = (answer.document.get("status") or {}).get("allowed") is True
            found.append(
                base.Finding(
                    ok=allowed, text=f"we may {'' if allowed else 'not '}{what}",
                    remedy=None if allowed else "give the service account the Role of docs/hooks/kubernetes.md",
                )
            )  # fmt: skip
        return found

    def _needed(self, call: base.HookCall) -> list[tuple[str, str, str, str]]:
        if self._settings.action == "evict":
            return [("get", "", "pods", ""), ("create", "", "pods", "eviction")]
        kind = objects.WORKLOADS[self._kind]
        needed = [(verb, kind.group, kind.resource, "") for verb in ("get", "patch")]
        return [*needed, ("get", "", "pods", "")] if call.pod else needed


class _Act:
    """One call, and how far it has come."""

    def __init__(self, hook: Hook, settings: KubernetesHook, call: base.HookCall, api: Api) -> None:
        self._hook, self._settings, self._call, self._api = hook, settings, call, api
        self.begun = False  # a request that acts was sent
        self._accepted = ""  # what the server has agreed to, in words
        self._forbidden = ""  # why it does not agree yet

    async def run(self) -> base.HookResult:
        """Do it, and see the pod go. Raises HookError, KubernetesError."""
        call, api = self._call, self._api
        pod: Mapping[str, Any] | None
        if self._settings.action == "evict":
            pod = await self._hook.pod(call, api, alone=True)
            result = await self._evict(pod)
        else:
            pod = await self._hook.pod(call, api) if call.pod else None
            result = await self._roll_out()
        if result is not None:
            return result
        if pod is not None:
            await self._gone(pod)
            self._accepted += "; it is gone"
        return base.HookResult(outcome=base.DONE, text=self._accepted)

    def when_time_was_up(self, seconds: float) -> base.HookResult:
        """Judge what stands when there is no more time."""
        if self._accepted:
            text = f"{self._accepted}; it was still ending after {seconds:g} s"
            return base.HookResult(outcome=base.DONE, text=text)
        if self._forbidden and not self.begun:
            text = f"not within {seconds:g} s: {self._forbidden}"
            return base.HookResult(outcome=base.REFUSED, text=text)
        outcome = base.UNCERTAIN if self.begun else base.FAILED
        text = f"the API server has not answered within {seconds:g} s"
        return base.HookResult(outcome=outcome, text=text)

    async def _evict(self, pod: Mapping[str, Any]) -> base.HookResult | None:
        name = f"pod {self._call.pod}"
        while True:
            self.begun = True
            try:
                answer = await self._api.post(_eviction_path(pod), eviction(pod))
            except KubernetesError as error:
                if not error.sent or not await self._is_ending(pod):
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
        """Was the eviction carried out of which no answer came?"""
        answer = await self._api.get(_eviction_path(pod).removesuffix("/eviction"))
        if not answer.ok:
            return answer.status == _GONE
        found = answer.document
        ending = _judged(found, lambda: found["metadata"].get("deletionTimestamp"))
        return bool(ending) or _judged(found, objects.uid, found) != objects.uid(pod)

    async def _roll_out(self) -> base.HookResult | None:
        kind = objects.WORKLOADS[self._settings.workload.partition("/")[0]]
        path = self._hook.workload_path(self._call, self._api)
        answer = Answer(_CONFLICT, {})
        for _ in range(TRIES_MAX):
            found = await self._hook.workload(self._call, self._api)
            patch = _judged(found, objects.rollout, kind, found, self._call.attempt_id)
            if patch is not None:
                self.begun = True
                answer = await self._api.patch(path, patch)
            if patch is None or answer.ok:
                self._accepted = f"a rollout of {self._settings.workload} has begun"
                return None
            if answer.status != _CONFLICT:
                break
            self.begun = False
        return _judge(answer, self._settings.workload)

    async def _gone(self, pod: Mapping[str, Any]) -> None:
        path = _eviction_path(pod).removesuffix("/eviction")
        while True:
            try:
                answer = await self._api.get(path)
            except KubernetesError:
                answer = Answer(_SERVER_ERRORS, {})  # it was agreed to; only the news is late
            if answer.status == _GONE:
                return
            if answer.ok and objects.uid(answer.document) != objects.uid(pod):
                return
            await asyncio.sleep(LOOK_SECONDS)


def eviction(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Eviction of just this pod."""
    metadata = pod["metadata"]
    return {
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "deleteOptions": {"preconditions": {"uid": objects.uid(pod)}},
    }  # fmt: skip


def _eviction_path(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"


def _found(answer: Answer, what: str) -> Mapping[str, Any]:
    if answer.ok and "metadata" in answer.document:
        return answer.document
    raise HookError(f"{what} is not to be had: {answer.said()}", _REMEDY)


def _tried(answer: Answer) -> None:
    if not answer.ok:
        raise HookError(f"the API server would not evict it: {answer.said()}", _REMEDY)


def _judged(document: Mapping[str, Any], judge: Callable[..., _T], *arguments: object) -> _T:
    """Judge an object; one that does not look as it should is not touched."""
    try:
        return judge(*arguments)
    except (KeyError, TypeError, AttributeError, ValueError):
        name = document.get("kind", "object")
        raise HookError(f"the API server's {name} cannot be understood", _REMEDY) from None


def _judge(answer: Answer, what: str) -> base.HookResult:
    text = f"the API server says of {what}: {answer.said()}"
    surely_nothing = answer.status < _SERVER_ERRORS or _TWO_BUDGETS in answer.said()
    outcome = base.REFUSED if surely_nothing else base.UNCERTAIN
    return base.HookResult(outcome=outcome, text=text)
