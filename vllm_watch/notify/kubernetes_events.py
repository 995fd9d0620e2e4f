"""Report incidents as Events of the engine's pod.

Events are hints that expire, so they are not kept on disk. An Event's name contains a hash of the
content, so retries create no duplicates.
"""

import asyncio
import hashlib
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from vllm_watch.board.health import DROPPED, FAILED, SENT, NotifierHealth
from vllm_watch.clients.kubernetes import Answer, Api, KubernetesError, in_cluster
from vllm_watch.errors import Finding
from vllm_watch.incidents.incident import OPENED, RESOLVED, UPDATED, Incident, IncidentEvent
from vllm_watch.notify import base
from vllm_watch.notify.words import clean, trial_incident
from vllm_watch.samples.target import Target
from vllm_watch.settings.notifications import KubernetesEvents
from vllm_watch.story.kinds import story_of

_log = structlog.get_logger()

QUEUE_MAX = 1000
TRIES_MAX, WAIT_SECONDS = 6, 2.0
"""The pauses between tries are 2 to 32 s. Together they outlast an upgrade of the API server."""

MESSAGE_MAX = 1024  # the API server's limit
_POD_NAME_MAX = 200  # the limit of an Event's name is 253
_EXISTS, _NOT_FOUND, _TOO_MANY, _SERVER_ERRORS = 409, 404, 429, 500

Pod = tuple[str, str]  # namespace (empty: our own), name


class Events:
    """Sends Events to one API server, in order."""

    def __init__(
        self, settings: KubernetesEvents, tools: base.Tools, health: NotifierHealth
    ) -> None:
        self._settings = settings
        self._tools = tools
        self._health = health
        self._queue: asyncio.Queue[tuple[IncidentEvent, Pod]] = asyncio.Queue(QUEUE_MAX)
        self._reported: dict[str, tuple[str, str]] = {}  # incident id → cause, severity
        self._failing: str | None = None

    def put(self, event: IncidentEvent, targets: Iterable[Target]) -> None:
        incident = event.incident
        named = incident.cause, incident.severity
        before = self._reported.pop(incident.id, None)
        if incident.open:
            self._reported[incident.id] = named
        wanted = incident.severity in self._settings.severities
        if not wanted or (event.event == UPDATED and before in (None, named)):
            return
        for target in targets:
            pod = target.namespace, target.pod or _own_pod(self._settings, self._tools)
            if not pod[1]:
                continue
            try:
                self._queue.put_nowait((event, pod))
            except asyncio.QueueFull:
                self._say(DROPPED, self._failing)

    async def run(self) -> None:
        while True:
            event, pod = await self._queue.get()
            for number in range(TRIES_MAX):
                wait_seconds = await self._try(event, pod, last=number == TRIES_MAX - 1)
                if wait_seconds is None:
                    break
                await asyncio.sleep(max(wait_seconds, WAIT_SECONDS * 2**number))

    async def _try(self, event: IncidentEvent, pod: Pod, *, last: bool) -> float | None:
        try:
            answer = await post(in_cluster(self._tools.environ, self._tools.session), event, pod)  # fmt: skip
        except KubernetesError as error:
            self._fails(error.cause)
            again = None if last else 0.0
        else:
            if answer.ok or answer.status == _EXISTS:
                if self._failing is not None:
                    _log.info("notifier_works_again", notifier=self._settings.name)
                self._failing = None
                self._say(SENT, None)
                return None
            self._fails(answer.said())
            passes = answer.status == _TOO_MANY or answer.status >= _SERVER_ERRORS
            again = (answer.retry_after_seconds or 0.0) if passes and not last else None
        if again is None:
            self._say(DROPPED, self._failing)
        return again

    def _fails(self, because: str) -> None:
        if because != self._failing:
            _log.error("notifier_fails", notifier=self._settings.name, because=because)
        self._failing = because
        self._say(FAILED, because)

    def _say(self, outcome: str, because: str | None) -> None:
        self._health.count(outcome, 1, self._queue.qsize(), because, time.time())


async def post(api: Api, event: IncidentEvent, pod: Pod) -> Answer:
    """Write an Event. Raises KubernetesError if there is no response."""
    namespace, name = pod[0] or api.namespace, pod[1]
    folder = f"/api/v1/namespaces/{namespace}"
    found = await api.call("GET", f"{folder}/pods/{name}")
    if not found.ok:
        return found
    uid = str((found.document.get("metadata") or {}).get("uid", ""))
    return await api.call("POST", f"{folder}/events", document(event, namespace, name, uid))


def document(event: IncidentEvent, namespace: str, pod: str, uid: str) -> dict[str, Any]:
    """Return an Event that refers to the pod by uid, as kubectl does."""
    incident = event.incident
    key = "\n".join((incident.id, event.event, incident.cause, incident.severity, uid))
    name = f"{pod[:_POD_NAME_MAX]}.{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    t = datetime.fromtimestamp(event.t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about: Mapping[str, str] = {
        "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid,
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
        "involvedObject": about, "reason": _reason(incident), "message": _message(event),
        "type": "Normal" if event.event == RESOLVED or incident.severity == "info" else "Warning",
        "firstTimestamp": t, "lastTimestamp": t, "count": 1,
        "source": {"component": "vllm-watch"}, "reportingComponent": "vllm-watch", "reportingInstance": "",
    }  # fmt: skip


def _reason(incident: Incident) -> str:
    return "".join(part.capitalize() for part in incident.kind.split("_"))


def _message(event: IncidentEvent) -> str:
    incident = event.incident
    if incident.kind == "test":
        return clean(incident.summary, MESSAGE_MAX)
    story = story_of(incident.kind)
    if event.event == RESOLVED:
        minutes = max(0.0, event.t - incident.opened_t) / 60
        return clean(f"Over after {minutes:.0f} min: {incident.summary}", MESSAGE_MAX)
    engine = f"engine {incident.engine} " if incident.engine else ""
    what = f"{engine}{story.says_of(incident.cause)}. {incident.summary}."
    step = story.first_step_of(
        incident.cause, advised=incident.restart_advised, known=incident.texts
    )
    return clean(f"{what} {step}", MESSAGE_MAX)


def check(settings: KubernetesEvents, tools: base.Tools) -> list[Finding]:
    """Check the access to the API server."""
    if settings.pod.startswith("$") and not _own_pod(settings, tools):
        text = f"the environment has no {settings.pod[1:]}"
        return [Finding(ok=False, text=text, remedy="set it from metadata.name, or name the pod")]
    try:
        api = in_cluster(tools.environ)
    except KubernetesError as error:
        return [Finding(ok=False, text=error.cause, remedy=error.remedy)]
    return [Finding(ok=True, text=f"Events go to {api.url}")]


async def send_test(settings: KubernetesEvents, tools: base.Tools, t: float) -> Finding:
    """Write a test Event for the named pod or our own pod."""
    pod = _own_pod(settings, tools) or tools.environ.get("HOSTNAME", "")
    incident = trial_incident(settings.name, t)
    try:
        api = in_cluster(tools.environ, tools.session)
        answer = await post(api, IncidentEvent(OPENED, t, incident), ("", pod))
    except KubernetesError as error:
        return Finding(ok=False, text=error.cause, remedy=error.remedy)
    if answer.ok:
        return Finding(ok=True, text=f"kubectl describe pod {pod} shows the test")
    remedy = "see deploy/kubernetes/rights/events" if answer.status != _NOT_FOUND else "name our pod in `pod`"  # fmt: skip
    return Finding(ok=False, text=f"it was not accepted: {answer.said()}", remedy=remedy)


def _own_pod(settings: KubernetesEvents, tools: base.Tools) -> str:
    name = settings.pod
    return tools.environ.get(name[1:], "") if name.startswith("$") else name
