"""Pods, their controllers and budgets, on the API server of tests/kubernetes_api.py.

An eviction asks the budgets, checks the uid, ends the pod after a moment, and its controller makes another.
Source of the semantics: pkg/registry/core/pod/storage/eviction.go; StatefulSets keep a pod's name,
ReplicaSets do not; a Deployment's generation grows with its spec.
"""

import asyncio
import json
from dataclasses import dataclass, field

from aiohttp import web

from tests.kubernetes_api import KINDS, NAMESPACE, FakeKubernetes, Kind, status


def wrong_event(document):
    """pkg/apis/core/validation/events.go, of the core group's Events."""
    about = document.get("involvedObject") or {}
    if about.get("namespace", "") != document["metadata"]["namespace"]:
        return "involvedObject.namespace: does not match event.namespace"
    return None if about.get("uid") else "involvedObject.uid: kubectl would not find it"


KINDS_OF_PODS = (
    *KINDS,
    Kind("v1", "pods", "Pod", lambda _: None),
    Kind("v1", "events", "Event", wrong_event),
    Kind("apps/v1", "deployments", "Deployment", lambda _: None),
    Kind("apps/v1", "statefulsets", "StatefulSet", lambda _: None),
    Kind("apps/v1", "daemonsets", "DaemonSet", lambda _: None),
    Kind("leaderworkerset.x-k8s.io/v1", "leaderworkersets", "LeaderWorkerSet", lambda _: None),
    Kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", lambda _: None),
)
STARTED = "2026-11-21T11:04:02Z"
FORBIDDEN_BY_BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


@dataclass
class FakePods(FakeKubernetes):
    """The server with pods; `may_not` are rights that its one caller lacks, as "verb resource"."""

    kinds: tuple = KINDS_OF_PODS
    ending_seconds: float = 0.05
    may_not: set = field(default_factory=set)
    evicted: list = field(default_factory=list)  # names of pods that really were
    reviewed: list = field(default_factory=list)
    _ending: set = field(default_factory=set)

    def routes(self, app):
        super().routes(app)
        pods = next(kind for kind in self.kinds if kind.resource == "pods")
        path = "/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        app.router.add_post(path, self._handler(pods, self._evict))
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        app.router.add_post(path, self._handler(pods, self._review))

    def add(self, resource, document, name="llama-0"):
        """Have an object, as somebody else made it."""
        kind = next(each for each in self.kinds if each.resource == resource)
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-of-{name}-{self._version + 1}",
            "creationTimestamp": STARTED,
        }
        document = {**document, "metadata": metadata | document.get("metadata", {})}
        self._stored(kind, (resource, NAMESPACE, name), document, 201, "ADDED")
        return self.objects[resource, NAMESPACE, name]

    def touched(self, resource, name, event="MODIFIED"):
        """Somebody else has changed this object, in place."""
        self._version += 1
        self.objects[resource, NAMESPACE, name]["metadata"]["resourceVersion"] = str(self._version)
        self._tell(event, (resource, NAMESPACE, name))

    def _put(self, kind, key, found, new):
        metadata = new["metadata"]
        if "generation" in metadata and new["spec"] != found["spec"]:
            metadata["generation"] = found["metadata"]["generation"] + 1
        return super()._put(kind, key, found, new)

    async def _review(self, kind, request):
        document = await request.json()
        wanted = document["spec"]["resourceAttributes"]
        parts = [wanted["resource"], wanted.get("subresource")]
        right = f"{wanted['verb']} {'/'.join(part for part in parts if part)}"
        self.reviewed.append(right)
        answer = document | {"status": {"allowed": right not in self.may_not}}
        return web.json_response(answer, status=201)

    async def _evict(self, kind, request):
        wanted = await request.json()
        key = ("pods", request.match_info["namespace"], request.match_info["name"])
        pod = self.objects.get(key)
        if "create pods/eviction" in self.may_not:
            return status(403, "Forbidden", 'User "x" cannot create resource "pods/eviction"')
        if wanted["metadata"]["name"] != key[2]:
            return status(400, "BadRequest", "name in URL does not match name in Eviction object")
        if pod is None:
            return status(404, "NotFound", f'pods "{key[2]}" not found')
        dry = request.query.get("dryRun") == "All"
        refused = self._budget(pod, dry=dry)
        if refused is not None:
            return refused
        uid = wanted.get("deleteOptions", {}).get("preconditions", {}).get("uid")
        if uid not in (None, pod["metadata"]["uid"]):
            text = f"the UID in the precondition ({uid}) does not match the UID in record ({pod['metadata']['uid']})"
            return status(409, "Conflict", text)
        if not dry:
            self.evicted.append(key[2])
            self.end(key[2])
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _budget(self, pod, *, dry):
        labels = pod["metadata"].get("labels", {}).items()
        budgets = [
            each for (resource, *_), each in self.objects.items()
            if resource == "poddisruptionbudgets"
            and each["spec"]["selector"]["matchLabels"].items() <= labels
        ]  # fmt: skip
        if len(budgets) > 1:
            text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            return status(500, "", text)
        if budgets and budgets[0]["status"]["disruptionsAllowed"] == 0:
            return status(429, "TooManyRequests", FORBIDDEN_BY_BUDGET)
        if budgets and not dry:
            budgets[0]["status"]["disruptionsAllowed"] -= 1
        return None

    def end(self, name):
        """The pod gets its SIGTERM; a moment later it is gone and its controller makes another."""
        pod = self.objects["pods", NAMESPACE, name]
        pod["metadata"]["deletionTimestamp"] = STARTED
        self.touched("pods", name)
        task = asyncio.get_running_loop().create_task(self._gone(name))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _gone(self, name):
        await asyncio.sleep(self.ending_seconds)
        pod = self.objects["pods", NAMESPACE, name]
        self.touched("pods", name, "DELETED")
        del self.objects["pods", NAMESPACE, name]
        again = json.loads(json.dumps(pod))
        for key in ("uid", "deletionTimestamp", "resourceVersion", "name"):
            again["metadata"].pop(key, None)
        stays = pod["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"
        self.add("pods", again, name if stays else f"{name}-again")


def pod(**changed):
    """A pod of a StatefulSet that runs one vLLM on port 8000."""
    return {
        "metadata": {
            "labels": {"app": "llama"},
            "ownerReferences": [{"kind": "StatefulSet", "name": "llama", "controller": True}],
        },
        "spec": {"containers": [
            {"name": "vllm", "ports": [{"containerPort": 8000}]}, {"name": "proxy"},
        ]},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "vllm", "state": {"running": {"startedAt": STARTED}}},
            {"name": "proxy", "state": {"running": {"startedAt": "2026-11-21T09:00:00Z"}}},
        ]},
    } | changed  # fmt: skip


def budget(allowed):
    """A PodDisruptionBudget over the pods above."""
    return {
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "llama"}}},
        "status": {"disruptionsAllowed": allowed},
    }


def workload(**spec):
    """A Deployment or StatefulSet over the pods above, all up to date."""
    return {
        "metadata": {"generation": 3},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "llama"}},
            "template": {"metadata": {"labels": {"app": "llama"}}, "spec": {}},
        } | spec,
        "status": {"observedGeneration": 3, "replicas": 1, "updatedReplicas": 1},
    }  # fmt: skip
