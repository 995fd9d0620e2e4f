"""Find and check the pod and the workload of a call."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vllm_watch.clients.kubernetes import Answer, Api, in_cluster
from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base
from vllm_watch.restart.hooks import kubernetes_objects as objects
from vllm_watch.settings.hooks import KubernetesHook

_T = TypeVar("_T")

REMEDY = "check with kubectl get pod -o yaml; see docs/hooks/kubernetes.md"


class KubernetesTarget:
    """The pod and the workload of one call, read from the API server at each access."""

    def __init__(self, settings: KubernetesHook, tools: base.Tools, call: base.HookCall) -> None:
        """Raises KubernetesError outside a pod, HookError if the namespace is unknown."""
        self.api = Api(in_cluster(tools.environ), tools.session)
        self.call = call
        self.namespace = settings.namespace or call.namespace or self.api.access.namespace
        self._settings = settings
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
        ours = (call.pod, self.namespace) == (own, self.api.access.namespace)
        if ours and not self._settings.state_outlives_pod:
            cause = "it is the pod in which vllm-watch runs, and the journal may be lost with it"
            remedy = "put state_dir on a volume that outlives the pod and set state_outlives_pod, or use gate"
            raise HookError(cause, remedy)
        answer = await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{call.pod}")
        pod = _found(answer, f"pod {call.pod} in namespace {self.namespace}")

        judged(pod, lambda: (objects.uid(pod), pod["metadata"]["namespace"]))
        wrong = judged(pod, objects.pod_unfit, pod, call.url, call.process_start_time)
        if wrong is not None:
            raise HookError(wrong, REMEDY)
        wrong = judged(pod, objects.not_started_again, pod) if alone else None
        if wrong is not None:
            raise HookError(wrong, "run it as a Deployment or StatefulSet")
        return pod

    async def rollout(self) -> dict[str, Any] | None:
        name, kind = self._settings.workload, objects.kind_of(self._settings.workload)
        found = _found(await self.api.get(self.workload_path), name)
        patch = judged(found, objects.rollout, kind, found, self.call.attempt_id)
        if patch is None:
            return None
        wrong = judged(found, objects.workload_unfit, kind, found)
        if wrong is not None:
            raise HookError(wrong, "wait for it, or fix the workload")
        if self.call.pod and not judged(found, objects.belongs, kind, found, await self.pod()):
            cause = f"pod {self.call.pod} does not belong to {name}"
            raise HookError(cause, "name the workload of the target's pod")
        return patch

    @property
    def workload_path(self) -> str:
        workload = self._settings.workload
        kind, name = objects.kind_of(workload), workload.partition("/")[2]
        return f"{kind.root}/namespaces/{self.namespace}/{kind.resource}/{name}"


def judged(document: Mapping[str, Any], judge: Callable[..., _T], *arguments: object) -> _T:
    """Return the result of `judge`. Raises HookError if the object is malformed."""
    try:
        return judge(*arguments)
    except (KeyError, TypeError, AttributeError, ValueError):
        name = document.get("kind", "object")
        raise HookError(f"the API server's {name} cannot be understood", REMEDY) from None


def _found(answer: Answer, what: str) -> Mapping[str, Any]:
    if answer.ok and "metadata" in answer.document:
        return answer.document
    raise HookError(f"{what} is not available: {answer.said()}", REMEDY)
