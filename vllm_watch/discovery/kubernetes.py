"""Find the pods that match a label selector.

A pod that is not ready is also a target, but a pod that is being deleted is not. First the pods are
listed, then a watch reports their changes. A watch can be resumed.

A pod's annotations may set how its own server is reached and named. They cannot name another host
or a credential.

Source: kubernetes.io/docs/reference/using-api/api-concepts, lws.sigs.k8s.io, kserve.github.io.
"""

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import structlog
from pydantic import ValidationError

from vllm_watch.clients.kubernetes import Answer, Api, KubernetesError, in_cluster, part
from vllm_watch.clients.signed_post import NewSession, new_session
from vllm_watch.samples.target import WATCHER
from vllm_watch.settings.target import KubernetesDiscovery, TargetConfig, slug

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


def _matching(pattern: str) -> Callable[[str], str | None]:
    return lambda text: text if re.fullmatch(pattern, text) else None


ANNOTATIONS: Mapping[str, Callable[[str], str | None]] = {
    "port": _port, "path": _path, "scheme": _matching("https?"), "name": lambda text: slug(text) or None,
    "group": _matching(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,125}[A-Za-z0-9])?"),
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


WATCH_SECONDS = 180.0
"""A watch is renewed after this many seconds. Only the renewal shows that a connection has died silently."""

PODS_MAX = 2000
"""At most this many pods are followed. One watcher can scrape only a part of them."""

PAGE_PODS = 100
"""Pods are listed in pages of this many. A pod has some 20 KB, and a response may have 4 MiB."""

PAGES_MAX = 100
"""At most this many pages of a list are read, because a faulty server might never end the list."""

PAUSE_SECONDS = 1.0
"""Seconds between watches. The pause doubles after each failure except the first."""

PAUSE_SECONDS_MAX = 30.0
"""Maximum seconds between watches after failures."""

FIRST_SECONDS = 5.0
"""The first `read` waits for the list of pods for at most this many seconds."""

_PEERS_MAX = 32
"""If a decode server has more prefill servers than this, none of them is checked."""

_GROUP_CHARACTERS_MAX = 253
_GONE, _RIGHTS = 410, (401, 403)

_log = structlog.get_logger()


class PodWatch:
    """Follows pods. `pods` and `problem` can be read at any time."""

    def __init__(
        self, namespace: str, query: Mapping[str, str], api: Callable[[], Api], changed: Callable[[], None]
    ) -> None:  # fmt: skip
        """`namespace` is "" for our own namespace, or "*" for all namespaces. `changed` is called when `pods` or `problem` may have changed."""
        self.namespace = namespace
        self.pods: dict[str, Pod] = {}
        self.problem: str | None = None
        self.answered = asyncio.Event()  # the first list has succeeded or failed
        self._query, self._api, self._changed = dict(query), api, changed
        self._version: str | None = None  # resourceVersion to resume at; None: list first
        self._listed = False
        self._failures = 0
        self._left_out = False
        self._invalid = 0

    async def run(self) -> None:
        while True:
            try:
                if self._version is None:
                    await self._list()
                await self._watch()
                self._failures = 0
            except KubernetesError as error:
                self._failed(error)
            self.answered.set()
            pause = min(PAUSE_SECONDS * 2 ** max(0, self._failures - 1), PAUSE_SECONDS_MAX)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311

    def _failed(self, error: KubernetesError) -> None:
        self._failures = min(self._failures + 1, 16)
        if self._listed and self._failures == 1:
            return  # the next watch resumes
        kept = f"; the last known pods ({len(self.pods)}) are kept" if self._listed else ""
        self._set_problem(f"{error.cause}{kept}; {error.remedy}")
        self._version = None

    def _set_problem(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self._changed()

    async def _list(self) -> None:
        api = self._api()
        found: dict[str, Pod] = {}
        query, self._left_out, self._invalid = {**self._query, "limit": str(PAGE_PODS)}, False, 0
        for _ in range(PAGES_MAX):
            answer = await api.call("GET", self._path(api), query=query)
            if not answer.ok:
                raise self._error(answer)
            items = answer.document.get("items")
            for document in items if isinstance(items, list) else ():
                self._update(found, document)
            metadata = part(answer.document, "metadata")
            if not metadata.get("continue"):
                break
            query["continue"] = str(metadata["continue"])
        else:
            self._left_out = True
        self._version = str(metadata.get("resourceVersion") or "")
        self.pods, self._listed, self._failures = found, True, 0
        self._set_problem(self._incomplete())
        self._changed()
        self.answered.set()

    async def _watch(self) -> None:
        api = self._api()
        query = {
            **self._query, "watch": "1", "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "", "timeoutSeconds": f"{WATCH_SECONDS:.0f}",
        }  # fmt: skip
        answer = await api.follow(self._path(api), query, WATCH_SECONDS, self._take)
        if answer.status == _GONE or self._left_out or self._invalid:
            self._version = None  # list again: the version has expired, or pods were left out
        elif not answer.ok:
            raise self._error(answer)

    def _take(self, event: Mapping[str, Any]) -> bool:
        kind, document = event.get("type"), event.get("object")
        if kind == "ERROR":
            self._version = None  # mostly status 410: list again
            return False
        if not isinstance(document, dict):
            return True
        version = part(document, "metadata").get("resourceVersion")
        self._version = str(version) if version else self._version
        self._failures = 0
        if kind != "BOOKMARK":
            self._change(document, deleted=kind == "DELETED")
        return True

    def _change(self, document: Mapping[str, Any], *, deleted: bool) -> None:
        uid = str(part(document, "metadata").get("uid"))
        before = self.pods.get(uid)
        if deleted:
            self.pods.pop(uid, None)
        else:
            self._update(self.pods, document)
        self._set_problem(self._incomplete())
        if self.pods.get(uid) != before:
            self._changed()

    def _update(self, pods: dict[str, Pod], document: Any) -> None:
        try:
            uid, pod = str(document["metadata"]["uid"]), pod_of(document)
        except (KeyError, TypeError, AttributeError, ValueError):
            self._invalid += 1
            return
        if pod is None:
            pods.pop(uid, None)
        elif uid in pods or len(pods) < PODS_MAX:
            pods[uid] = pod
        else:
            self._left_out = True

    def _incomplete(self) -> str | None:
        if self._left_out:
            return f"more than {PODS_MAX} pods match: the others are left out"
        if self._invalid:
            return "the API server returned invalid pods: they are left out"
        return None

    def _path(self, api: Api) -> str:
        if self.namespace == "*":
            return "/api/v1/pods"
        namespace = self.namespace or api.namespace
        if not namespace:
            cause = "the namespace of this pod is unknown"
            raise KubernetesError(cause, "set discovery.kubernetes: namespaces", sent=False)
        return f"/api/v1/namespaces/{namespace}/pods"

    def _error(self, answer: Answer) -> KubernetesError:
        if answer.status == _GONE:
            return KubernetesError("the list took too long", "it is retried", sent=True)
        remedy = "check whether the API server is healthy"
        if answer.status in _RIGHTS:
            remedy = "give the service account the rights of docs/kubernetes.md"
        return KubernetesError(f"pods cannot be listed: {answer.said()}", remedy, sent=True)


class KubernetesTargets:
    """The pods of one configuration entry. The name of a pod's target never changes."""

    def __init__(
        self, settings: KubernetesDiscovery, environ: Mapping[str, str], news: Callable[[], None],
        session: NewSession = new_session,
    ) -> None:  # fmt: skip
        """`news` is called when `read` may return something new."""
        self.settings = settings
        self.problems: dict[str, str] = {}  # source of the error → error in the last `read`
        self.changed = True  # pods changed since the last `read`
        self._environ, self._news, self._session = environ, news, session
        query = {"labelSelector": settings.selector}
        if node := self._node():
            query["fieldSelector"] = f"spec.nodeName={node}"
        spaces = settings.namespaces or ("",)
        self._watches = [PodWatch(each, query, self._api, self._notice) for each in spaces]
        self._tasks: dict[PodWatch, asyncio.Task[None]] = {}
        self._names: dict[str, str] = {}

    def _node(self) -> str:
        name = self.settings.node_name
        return self._environ.get(name[1:], "") if name.startswith("$") else name

    def _notice(self) -> None:
        self.changed = True
        self._news()

    def _api(self) -> Api:
        return in_cluster(self._environ, self._session)

    async def read(self, *, qualified: bool = False) -> list[TargetConfig]:
        """Return the targets. If `qualified`, names and groups begin with the namespace."""
        self.changed = False
        if self.settings.node_name.startswith("$") and not self._node():
            # Without the node's name, every node's watcher would watch all pods.
            cause = f"the environment has no {self.settings.node_name[1:]}"
            self.problems = {"kubernetes": f"{cause}; set it from spec.nodeName, or name the node"}
            return []
        self._run()
        answers = [asyncio.ensure_future(each.answered.wait()) for each in self._watches]
        _, late = await asyncio.wait(answers, timeout=FIRST_SECONDS)
        for each in late:
            each.cancel()
        self.changed = False
        found = ((w, w.problem if w.answered.is_set() else "no answer yet") for w in self._watches)
        self.problems = {_place(watch): problem for watch, problem in found if problem}
        return self._targets(qualified=qualified)

    def close(self) -> list[asyncio.Task[None]]:
        for task in self._tasks.values():
            task.cancel()
        return list(self._tasks.values())

    def _run(self) -> None:
        for watch in self._watches:
            task = self._tasks.get(watch)
            if task is not None and not task.done():
                continue
            if task is not None and not task.cancelled():
                _log.error("pod_watch_failed", exc_info=task.exception())
            self._tasks[watch] = asyncio.create_task(watch.run(), name=f"pods {watch.namespace}")

    def _targets(self, *, qualified: bool) -> list[TargetConfig]:
        pods = sorted(
            (pod for watch in self._watches for pod in watch.pods.values()),
            key=lambda pod: (pod.created, pod.uid),
        )
        self._name(pods, qualified=qualified)
        prefills: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for pod in pods:
            if pod.role == PREFILL and self._names[pod.uid]:
                prefills[pod.pairs_in].append(self._names[pod.uid])
        found: list[TargetConfig] = []
        invalid = [
            f"pod {pod.namespace}/{pod.name}: {each}" for pod in pods for each in pod.invalid
        ]
        for pod in pods:
            try:
                peers = prefills[pod.pairs_in] if pod.role == DECODE else []
                found.append(self._target(pod, peers, qualified=qualified))
            except ValidationError as error:
                invalid.append(f"pod {pod.namespace}/{pod.name} is left out: {error.errors()[0]['msg']}")  # fmt: skip
        if invalid:
            self.problems["annotations"] = f"{len(invalid)} invalid, the first: {invalid[0]}"
        return found

    def _name(self, pods: list[Pod], *, qualified: bool) -> None:
        self._names = {pod.uid: self._names[pod.uid] for pod in pods if pod.uid in self._names}
        own = {pod.uid: slug(_in(pod, pod.name, ".", qualified=qualified)) for pod in pods}
        owned, taken = set(own.values()), {*self._names.values(), WATCHER}
        for pod in pods:
            if pod.uid in self._names:
                continue
            requested = pod.annotations.get("name", "")
            free = requested and requested not in taken and requested not in owned
            name = requested if free else own[pod.uid]
            self._names[pod.uid] = "" if name in taken else name
            taken.add(name)

    def _target(self, pod: Pod, peers: list[str], *, qualified: bool) -> TargetConfig:
        given, settings = pod.annotations, self.settings
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        group = _in(pod, pod.group, "/", qualified=qualified)
        return TargetConfig(
            url=f"{given.get('scheme', settings.scheme)}://{host}:{given.get('port', settings.port)}{given.get('path', '')}",
            name=self._names[pod.uid],
            group=group[:_GROUP_CHARACTERS_MAX],
            namespace=pod.namespace,
            pod=pod.name,
            node=pod.node,
            peers=tuple(peers) if len(peers) <= _PEERS_MAX else (),
            gang=pod.gang,
        )


def _in(pod: Pod, name: str, sign: str, *, qualified: bool) -> str:
    return f"{pod.namespace}{sign}{name}" if qualified else name


def _place(watch: PodWatch) -> str:
    return f"kubernetes {watch.namespace}".strip()
