"""Find the pods that match a label selector.

A pod that is not ready is also a target, but a pod that is being deleted is not.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping

import structlog
from pydantic import ValidationError

from vllm_watch.clients.kubernetes import Api, NewSession, in_cluster
from vllm_watch.clients.signed_post import new_session
from vllm_watch.discovery.pod_watch import PodWatch
from vllm_watch.discovery.pods import DECODE, PREFILL, Pod
from vllm_watch.samples.target import WATCHER
from vllm_watch.settings.target import KubernetesDiscovery, TargetConfig, slug

_log = structlog.get_logger()

FIRST_SECONDS = 5.0
"""The first `read` waits for the list of pods for at most this many seconds."""

_GROUP_CHARACTERS_MAX = 253
_PEERS_MAX = 32
"""If a decode server has more prefill servers than this, none of them is checked."""


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
        return Api(in_cluster(self._environ), self._session)

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
        self.problems = {_place(each): each.problem for each in self._watches if each.problem}
        self.problems |= {
            _place(watch): "no answer yet"
            for watch in self._watches if not watch.answered.is_set()
        }  # fmt: skip
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
