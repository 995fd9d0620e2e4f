"""A small Kubernetes API server: stored objects with the versions, conflicts and refusals of the real one.

It knows Leases; more kinds are rows of `KINDS`. It remembers which rights its callers used. What it is asked to do wrong is set on the object: answers
to give in place of its own, a pause before it answers, a connection cut after the work is done.
Source of the semantics: kubernetes.io/docs/reference/using-api/api-concepts (resource versions, watch, 410);
the strategies of Lease in pkg/registry/coordination/lease.
"""

import asyncio
import contextlib
import itertools
import json
import ssl
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from vllm_watch.clients.kubernetes import Api

TOKEN = "a-token"
NAMESPACE = "default"
HISTORY = 100  # versions that a watch may begin at; older ones are gone
ANNOTATION_BYTES_MAX = 256 << 10


@dataclass(frozen=True, slots=True)
class Kind:
    group_version: str  # "coordination.k8s.io/v1"; "v1" for the core
    resource: str
    kind: str
    wrong: Callable[[dict[str, Any]], str | None]  # what its validation says


def wrong_lease(document: dict[str, Any]) -> str | None:
    spec = document.get("spec") or {}
    if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
        return "spec.leaseDurationSeconds: must be greater than 0"
    if spec.get("leaseTransitions") is not None and spec["leaseTransitions"] < 0:
        return "spec.leaseTransitions: must be greater than or equal to 0"
    if spec.get("holderIdentity") == "":
        return "spec.holderIdentity: must not be empty"
    known = {
        "holderIdentity",
        "leaseDurationSeconds",
        "acquireTime",
        "renewTime",
        "leaseTransitions",
    }
    if set(spec) - known:
        return f"spec: unknown fields {sorted(set(spec) - known)}"
    return None


KINDS = (Kind("coordination.k8s.io/v1", "leases", "Lease", wrong_lease),)

Key = tuple[str, str, str]  # resource, namespace, name
Right = tuple[str, str, str]  # verb, API group, resource with its subresource: as a Role says it


def right(request: web.Request) -> Right:
    """What the caller must be allowed, as the API server's authorizer takes it from a request."""
    parts = request.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    resource, *name = rest[2:] if rest[0] == "namespaces" and len(rest) > 2 else rest
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    verb = verbs.get(request.method) or ("get" if name else "list")
    if verb == "list" and request.query.get("watch") in ("true", "1"):
        verb = "watch"
    return verb, group, "/".join([resource, *name[1:]])


@dataclass
class FakeKubernetes:
    """The server; `url` once it runs."""

    token: str = TOKEN
    kinds: tuple[Kind, ...] = KINDS
    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    instead: list[web.Response] = field(
        default_factory=list
    )  # answers in place of its own, in order
    cut_after_write: int = 0  # so many writes are carried out and never answered
    pause: asyncio.Event | None = None  # nothing is answered before it is set
    asked: list[str] = field(default_factory=list)
    used: set[Right] = field(default_factory=set)
    page_max: int = 500  # objects of one answer to a list, whatever limit is asked for
    bookmark: bool = False  # a watch that begins is told at once how far it is
    notices_hang_ups: bool = False  # a watch ends when its client goes
    streams: dict[web.StreamResponse, web.Request] = field(
        default_factory=dict
    )  # watches under way
    url: str = ""
    events: list[tuple[int, str, str, dict[str, Any]]] = field(default_factory=list)
    _version: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def routes(self, app: web.Application) -> None:
        app.router.add_get(
            "/version", self._plain({"major": "1", "minor": "32", "gitVersion": "v1.32.0"})
        )
        app.router.add_get("/api", self._plain({"kind": "APIVersions", "versions": ["v1"]}))
        app.router.add_get("/apis", self._groups)
        for group_version in {kind.group_version for kind in self.kinds} | {"v1"}:
            app.router.add_get(f"{self._root(group_version)}", self._resources)
        for kind in self.kinds:
            folder = f"{self._root(kind.group_version)}/namespaces/{{namespace}}/{kind.resource}"
            app.router.add_route("*", folder, self._handler(kind, self._collection))
            app.router.add_route("*", f"{folder}/{{name}}", self._handler(kind, self._item))
            everywhere = f"{self._root(kind.group_version)}/{kind.resource}"
            app.router.add_get(everywhere, self._handler(kind, self._collection))

    @staticmethod
    def _root(group_version: str) -> str:
        return f"/api/{group_version}" if "/" not in group_version else f"/apis/{group_version}"

    def _plain(self, document: dict[str, Any]) -> Any:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response(document)

        return answer

    async def _groups(self, request: web.Request) -> web.Response:
        groups = [
            {"name": version.split("/")[0], "versions": [{"groupVersion": version, "version": version.split("/")[1]}],
             "preferredVersion": {"groupVersion": version, "version": version.split("/")[1]}}
            for version in sorted({kind.group_version for kind in self.kinds}) if "/" in version
        ]  # fmt: skip
        return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    async def _resources(self, request: web.Request) -> web.Response:
        version = request.path.removeprefix("/apis/").removeprefix("/api/")
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        resources = [
            {"name": kind.resource, "singularName": kind.kind.lower(), "namespaced": True, "kind": kind.kind, "verbs": verbs}
            for kind in self.kinds if kind.group_version == version
        ]  # fmt: skip
        if version == "v1":
            resources.append(
                {"name": "namespaces", "singularName": "namespace", "namespaced": False, "kind": "Namespace", "verbs": ["get"]}
            )  # fmt: skip
        document = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
        return web.json_response(document | {"resources": resources})

    def _handler(self, kind: Kind, answer: Any) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.asked.append(f"{request.method} {request.path_qs}")
            self.used.add(right(request))
            if request.headers.get("Authorization") != f"Bearer {self.token}":
                return status(401, "Unauthorized", "Unauthorized")
            if self.pause is not None:
                await self.pause.wait()
            if self.instead:
                return self.instead.pop(0)
            response: web.StreamResponse = await answer(kind, request)
            if (
                request.method not in ("GET", "HEAD")
                and response.status < 300
                and self.cut_after_write > 0
            ):
                self.cut_after_write -= 1
                assert request.transport is not None
                request.transport.abort()
            return response

        return handle

    async def _collection(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        namespace = request.match_info.get("namespace", "")
        if request.method == "GET" and request.query.get("watch") in ("true", "1"):
            return await self._watch(kind, namespace, request)
        if request.method == "GET":
            items = self._listed(kind, namespace, request)
            version = {"resourceVersion": str(self._version)}
            begin = int(request.query.get("continue") or 0)
            end = begin + min(int(request.query.get("limit") or self.page_max), self.page_max)
            if end < len(items):
                version["continue"] = str(end)
            items = items[begin:end]
            return web.json_response(
                {"kind": f"{kind.kind}List", "apiVersion": kind.group_version, "metadata": version, "items": items}
            )  # fmt: skip
        if request.method != "POST":
            return status(405, "MethodNotAllowed", "the server does not allow this method")
        document = await request.json()
        name = document["metadata"]["name"]
        if document["metadata"].get("resourceVersion"):
            return status(
                400, "BadRequest", "resourceVersion should not be set on objects to be created"
            )
        if namespace != NAMESPACE:
            return status(404, "NotFound", f'namespaces "{namespace}" not found')
        if (kind.resource, namespace, name) in self.objects:
            return status(409, "AlreadyExists", f'{kind.resource} "{name}" already exists')
        document["metadata"] |= {
            "namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        return self._stored(kind, (kind.resource, namespace, name), document, 201, "ADDED")

    def _listed(self, kind: Kind, namespace: str, request: web.Request) -> list[dict[str, Any]]:
        return [
            each for (resource, where, _), each in self.objects.items()
            if resource == kind.resource and namespace in ("", where) and selected(request, each)
        ]  # fmt: skip

    async def _item(self, kind: Kind, request: web.Request) -> web.Response:
        key = kind.resource, request.match_info["namespace"], request.match_info["name"]
        found = self.objects.get(key)
        if found is None:
            return status(404, "NotFound", f'{kind.resource} "{key[2]}" not found')
        if request.method == "GET":
            return web.json_response(found)
        if request.method == "PUT":
            return self._put(kind, key, found, await request.json())
        if request.method == "PATCH":
            merged = merge(found, await request.json())
            return self._put(kind, key, found, merged)
        if request.method == "DELETE":
            return self._delete(kind, key, found, await request.text())
        return status(405, "MethodNotAllowed", "the server does not allow this method")

    def _put(
        self, kind: Kind, key: Key, found: dict[str, Any], new: dict[str, Any]
    ) -> web.Response:
        version = new["metadata"].get("resourceVersion")
        if not version:
            return status(
                422, "Invalid", "metadata.resourceVersion: must be specified for an update"
            )
        if version != found["metadata"]["resourceVersion"] or (
            new["metadata"].get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]
        ):
            text = "the object has been modified; please apply your changes to the latest version and try again"
            return status(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {kind.resource} "{key[2]}": {text}',
            )
        kept = {
            name: found["metadata"][name]
            for name in ("uid", "creationTimestamp", "namespace", "name")
        }
        return self._stored(kind, key, {**new, "metadata": new["metadata"] | kept}, 200, "MODIFIED")

    def _stored(
        self, kind: Kind, key: Key, document: dict[str, Any], code: int, event: str
    ) -> web.Response:
        annotations = document["metadata"].get("annotations") or {}
        if sum(len(name) + len(text) for name, text in annotations.items()) > ANNOTATION_BYTES_MAX:
            return status(
                422, "Invalid", "metadata.annotations: Too long: may not be more than 262144 bytes"
            )
        wrong = kind.wrong(document)
        if wrong is not None:
            return status(422, "Invalid", f'{kind.kind} "{key[2]}" is invalid: {wrong}')
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        document |= {"apiVersion": kind.group_version, "kind": kind.kind}
        self.objects[key] = json.loads(json.dumps(document))
        self._tell(event, key)
        return web.json_response(document, status=code)

    def _delete(self, kind: Kind, key: Key, found: dict[str, Any], body: str) -> web.Response:
        wanted = (json.loads(body) if body else {}).get("preconditions") or {}
        if any(found["metadata"][name] != value for name, value in wanted.items()):
            return status(409, "Conflict", f'{kind.resource} "{key[2]}": the precondition failed')
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._tell("DELETED", key)
        del self.objects[key]
        return web.json_response({"kind": "Status", "status": "Success", "metadata": {}})

    def _tell(self, event: str, key: Key) -> None:
        document = json.loads(json.dumps(self.objects[key]))
        self.events.append((self._version, event, "/".join(key[:2]), document))
        del self.events[:-HISTORY]
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch(self, kind: Kind, namespace: str, request: web.Request) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion") or self._version)
        oldest = self.events[0][0] if self.events else self._version + 1
        if since + 1 < oldest and since < self._version:
            return status(410, "Expired", f"too old resource version: {since} ({self._version})")
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        self.streams[stream] = request
        seconds = float(request.query.get("timeoutSeconds", "60"))
        deadline = asyncio.get_running_loop().time() + seconds
        if self.bookmark and request.query.get("allowWatchBookmarks"):
            metadata = {"resourceVersion": str(self._version)}
            await self._line(stream, "BOOKMARK", {"kind": kind.kind, "metadata": metadata})
        try:
            while True:
                changed = self._changed
                for version, event, where, document in list(self.events):
                    if version > since and where.startswith(f"{kind.resource}/{namespace}"):
                        since = version
                        told = told_as(request, event, document)
                        if told is not None:
                            await self._line(stream, told, document)
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
        except TimeoutError:
            return stream
        finally:
            self.streams.pop(stream, None)

    @staticmethod
    async def _line(stream: web.StreamResponse, event: str, document: dict[str, Any]) -> None:
        line = json.dumps({"type": event, "object": document})
        await stream.write(f"{line}\n".encode())

    async def say(self, line: bytes) -> None:
        """Send this to every watch under way, as it is."""
        for stream in list(self.streams):
            with contextlib.suppress(ConnectionError):  # its client has just gone
                await stream.write(line)

    def cut(self) -> None:
        """End the connection of every watch under way, without a word."""
        for request in self.streams.values():
            if request.transport is not None:
                request.transport.abort()
        self.streams.clear()

    def account(self, folder: Path) -> dict[str, str]:
        """Lay a service account of ours into a folder; return the environment of a pod that has it."""
        (folder / "token").write_text(self.token)
        (folder / "namespace").write_text(NAMESPACE)
        host, _, port = self.url.removeprefix("https://").partition(":")
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    @contextlib.asynccontextmanager
    async def running(self, secure: Any = None) -> AsyncIterator["FakeKubernetes"]:
        app = web.Application()
        self.routes(app)
        runner = web.AppRunner(
            app,
            shutdown_timeout=0.1,
            handle_signals=False,
            handler_cancellation=self.notices_hang_ups,
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=secure)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http{'s' if secure else ''}://127.0.0.1:{port}"
        try:
            yield self
        finally:
            if self.pause is not None:
                self.pause.set()
            await runner.cleanup()

    def api(self, folder: Path, token: str | None = None) -> Api:
        """What a pod would have: its files are in `folder`."""
        folder.mkdir(exist_ok=True)
        file = folder / f"token-{next(_numbers)}"
        file.write_text((token or self.token) + "\n")
        return Api(url=self.url, token_file=file, namespace=NAMESPACE)


_numbers = itertools.count()


def selected(request: web.Request, document: dict[str, Any]) -> bool:
    """Do the selectors of the query find this object? Equality and existence are all that is known here."""
    labels = document["metadata"].get("labels") or {}
    for wanted in filter(None, request.query.get("labelSelector", "").split(",")):
        key, equals, value = wanted.partition("=")
        if key not in labels or (equals and labels[key] != value.lstrip("=")):
            return False
    for wanted in filter(None, request.query.get("fieldSelector", "").split(",")):
        path, _, value = wanted.partition("=")
        here: Any = document
        for part in path.split("."):
            here = (here or {}).get(part)
        if here != value:
            return False
    return True


def told_as(request: web.Request, event: str, document: dict[str, Any]) -> str | None:
    """How a watch with selectors is told: an object that they find no more is deleted, for it."""
    if selected(request, document):
        return event
    return "DELETED" if event == "MODIFIED" else None


def certified(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Make a certificate for 127.0.0.1; return its file, which clients must trust, and the server's context."""
    folder.mkdir(exist_ok=True)
    key, certificate = folder / "tls.key", folder / "ca.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=tests",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True, timeout=600,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


def status(
    code: int, reason: str, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    """A refusal as the API server words it."""
    document = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip
    return web.json_response(document, status=code, headers=headers)


def busy(seconds: int) -> web.Response:
    """What priority and fairness answers: text, no JSON."""
    text = "Too many requests, please try again later.\n"
    return web.Response(status=429, text=text, headers={"Retry-After": str(seconds)})


def merge(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged
