"""The pods of one namespace, or of all, as the API server last told of them: one list, then a watch that is resumed.

What is known is kept while the API server is away: pods go on serving without it, and to forget them would
end the watching of engines because of something else's outage.
Source: kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes", "410 Gone", "Watch bookmarks".
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from vllm_watch.clients.kubernetes import Answer, Api, KubernetesError, part
from vllm_watch.discovery.pods import Pod, pod_of

WATCH_SECONDS = 180.0
"""How long a watch is asked for. A connection that died without a word is noticed a call later, at most."""

PODS_MAX = 2000
"""Servers of one namespace: several times what one process keeps up with. Each takes less than a KB."""

PAGE_PODS = 100
"""Pods of one answer: with all they carry (managedFields, volumes, annotations) some 20 KB each, of 4 MiB."""

PAGES_MAX = 100
"""Of a list, whatever the server says: 10,000 pods that the selector finds."""

PAUSE_SECONDS = 1.0
"""From one watch to the next, and after the first failure; twice as long after each further one."""

PAUSE_SECONDS_MAX = 30.0
"""An API server that comes back is noticed in half a minute; many watchers do not keep it down."""

_GONE, _RIGHTS = 410, (401, 403)


class PodWatch:
    """Lists and watches as a task; `pods` and `problem` are read at any time."""

    def __init__(
        self, namespace: str, query: Mapping[str, str], api: Callable[[], Api], changed: Callable[[], None]
    ) -> None:  # fmt: skip
        """`namespace` "" is our own, "*" all; `changed` is called when `pods` or `problem` may be others."""
        self.namespace = namespace
        self.pods: dict[str, Pod] = {}  # by uid
        self.problem: str | None = None
        self.answered = asyncio.Event()  # once it is known how the first list ended
        self._query, self._api, self._changed = dict(query), api, changed
        self._version: str | None = None  # where a watch goes on; None: list first
        self._listed = False
        self._failures = 0
        self._left_out = False
        self._strange = 0  # pods that cannot be understood

    async def run(self) -> None:
        """Follow the pods until cancelled."""
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
            # S311: no secret; it only keeps many watchers from coming at once
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311

    def _failed(self, error: KubernetesError) -> None:
        self._failures = min(self._failures + 1, 16)
        if self._listed and self._failures == 1:
            return  # watches are cut off now and then; the next one goes on where this one was
        kept = f"; the pods it told of last ({len(self.pods)}) are kept" if self._listed else ""
        self._say(f"{error.cause}{kept}; {error.remedy}")
        self._version = None  # what came to pass meanwhile is seen at one look

    def _say(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self._changed()

    async def _list(self) -> None:
        """Raises KubernetesError."""
        api = self._api()
        found: dict[str, Pod] = {}
        query, self._left_out, self._strange = {**self._query, "limit": str(PAGE_PODS)}, False, 0
        for _ in range(PAGES_MAX):
            answer = await api.get(self._path(api), query)
            if not answer.ok:
                raise self._no(answer)
            items = answer.document.get("items")
            for document in items if isinstance(items, list) else ():
                self._learn(found, document)
            metadata = part(answer.document, "metadata")
            if not metadata.get("continue"):
                break
            query["continue"] = str(metadata["continue"])
        else:
            self._left_out = True
        self._version = str(metadata.get("resourceVersion") or "")
        self.pods, self._listed, self._failures = found, True, 0
        self._say(self._wrong())
        self._changed()
        self.answered.set()

    async def _watch(self) -> None:
        """Raises KubernetesError."""
        api = self._api()
        query = {
            **self._query, "watch": "1", "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "", "timeoutSeconds": f"{WATCH_SECONDS:.0f}",
        }  # fmt: skip
        answer = await api.follow(self._path(api), query, WATCH_SECONDS, self._take)
        if answer.status == _GONE or self._left_out or self._strange:
            self._version = (
                None  # it has forgotten how things were then; or there may be room again
            )
        elif not answer.ok:
            raise self._no(answer)

    def _take(self, event: Mapping[str, Any]) -> bool:
        kind, document = event.get("type"), event.get("object")
        if kind == "ERROR":
            self._version = None  # mostly 410: the list says how things are
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
            self._learn(self.pods, document)
        self._say(self._wrong())
        if self.pods.get(uid) != before:
            self._changed()

    def _learn(self, pods: dict[str, Pod], document: Any) -> None:
        """Take what a pod says into `pods`, or it out of them."""
        try:
            uid, pod = str(document["metadata"]["uid"]), pod_of(document)
        except (KeyError, TypeError, AttributeError, ValueError):
            self._strange += 1
            return
        if pod is None:
            pods.pop(uid, None)
        elif uid in pods or len(pods) < PODS_MAX:
            pods[uid] = pod
        else:
            self._left_out = True

    def _wrong(self) -> str | None:
        if self._left_out:
            return f"more than {PODS_MAX} pods are found: those after them are left out"
        if self._strange:
            return "the API server told of pods that cannot be understood: they are left out"
        return None

    def _path(self, api: Api) -> str:
        """Raises KubernetesError where it is not known which namespace is ours."""
        if self.namespace == "*":
            return "/api/v1/pods"
        namespace = self.namespace or api.access.namespace
        if not namespace:
            cause = "it is not known in which namespace this pod is"
            raise KubernetesError(cause, "set discovery.kubernetes: namespaces", sent=False)
        return f"/api/v1/namespaces/{namespace}/pods"

    def _no(self, answer: Answer) -> KubernetesError:
        if answer.status == _GONE:
            return KubernetesError("the list took too long", "it is asked again", sent=True)
        remedy = "see whether the API server is healthy"
        if answer.status in _RIGHTS:
            remedy = "give the service account the rights of docs/kubernetes.md"
        return KubernetesError(f"pods cannot be listed: {answer.said()}", remedy, sent=True)
