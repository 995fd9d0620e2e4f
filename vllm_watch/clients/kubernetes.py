"""Call the Kubernetes API server, with limits on time and size.

Credentials are read for each call, because tokens are rotated. Each call has its own connection.
Source: kubernetes.io/docs/tasks/run-application/access-api-from-pod.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from vllm_watch import __version__
from vllm_watch.clients import http_answer
from vllm_watch.clients.signed_post import NewSession, new_session
from vllm_watch.errors import WatchError
from vllm_watch.support import json_text, regular_file
from vllm_watch.support.redaction import excerpt, redacted

CALL_SECONDS = 10.0
"""Timeout of a call in seconds. The API server answers in milliseconds, and callers retry."""

CONNECT_SECONDS = 5.0

ANSWER_BYTES_MAX = 4 << 20
"""Maximum bytes of a response. The pods of a large namespace take one or two MiB."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

MERGE_PATCH = "application/merge-patch+json"

_FILE_BYTES_MAX = 1 << 20
_MESSAGE_CHARACTERS_MAX = 300

Take = Callable[[Mapping[str, Any]], bool]
"""Handles one event. Returns False to stop the watch."""


class KubernetesError(WatchError):
    """A call to the API server failed."""

    def __init__(self, cause: str, remedy: str, *, sent: bool) -> None:
        super().__init__(cause, remedy)
        self.sent = sent  # True if the server may have executed the request


class Answer(NamedTuple):
    """The API server's response, including 4xx and 5xx."""

    status: int
    document: dict[str, Any]
    retry_after_seconds: float | None = None  # from a response 429 or 503

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004

    def said(self) -> str:
        message = excerpt(str(self.document.get("message", "")), _MESSAGE_CHARACTERS_MAX)
        return f"HTTP {self.status} {' '.join(message.split())}".strip()


def part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field such as `metadata`, or {} if it is missing or not an object."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Calls the API server with vllm-watch's credentials. Every method raises KubernetesError if no response comes."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None  # None for the system's CAs
    namespace: str = ""  # of our own pod; "" if unknown
    session: NewSession = new_session

    async def call(
        self, method: str, path: str, document: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        """Send one request. The status is 409 if a POST's name exists, or if the metadata.resourceVersion of a PUT is not the newest."""
        data = None if document is None else json.dumps(document)
        async with self._response(method, path, data, query) as response:
            return await _answer(response)

    async def follow(
        self, path: str, query: Mapping[str, str], seconds: float, take: Take
    ) -> Answer:
        """Pass each event to `take` until it returns False or the stream ends. The connection may
        last CALL_SECONDS longer than `seconds`. Raises KubernetesError if the stream breaks off."""
        async with self._response("GET", path, query=query, stream_seconds=seconds) as response:
            if response.status != 200:  # noqa: PLR2004
                return await _answer(response)
            async with aclosing(http_answer.lines(response, ANSWER_BYTES_MAX)) as lines:
                async for line in lines:
                    event = json_text.read(line)
                    if not isinstance(event, dict):
                        raise ValueError("an event is not an object")  # noqa: TRY004 - invalid text, not code
                    if not take(event):
                        break
            return Answer(response.status, {})

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, data: str | None = None, query: Mapping[str, str] | None = None,
        stream_seconds: float = 0.0,
    ) -> AsyncIterator[aiohttp.ClientResponse]:  # fmt: skip
        headers, secure = await asyncio.to_thread(self._credentials)
        if data is not None:
            headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
        timeout = aiohttp.ClientTimeout(
            total=stream_seconds + CALL_SECONDS, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS
        )  # fmt: skip
        try:
            async with (
                self.session(aiohttp.TCPConnector(ssl=secure)) as session,
                session.request(
                    method, self.url + path, params=query, headers=headers, timeout=timeout,
                    data=data, allow_redirects=False,
                ) as response,
            ):  # fmt: skip
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            sent = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)  # fmt: skip
            why = redacted(str(error)) or f"no answer within {stream_seconds or CALL_SECONDS:g} s"
            cause = f"a call to the API server at {self.url} failed: {why}"
            remedy = "check whether kubectl works from this pod"
            raise KubernetesError(cause, remedy, sent=sent) from None

    def _credentials(self) -> tuple[dict[str, str], ssl.SSLContext | bool]:
        headers = {"Accept": "application/json", "User-Agent": f"vllm-watch/{__version__}"}
        try:
            if self.token_file is not None:
                headers["Authorization"] = f"Bearer {_token(self.token_file)}"
            if not self.url.startswith("https:"):
                return headers, True
            ca = None if self.ca_file is None else _content(self.ca_file)
            return headers, ssl.create_default_context(cadata=ca)
        except (OSError, ValueError) as error:
            cause = f"the service account's files cannot be used: {redacted(str(error))}"
            remedy = "check the volume that Kubernetes mounts into the pod"
            raise KubernetesError(cause, remedy, sent=False) from None


def in_cluster(
    environ: Mapping[str, str], session: NewSession = new_session, folder: Path | None = None
) -> Api:
    """Return the API server with this pod's credentials. Raises KubernetesError if they are missing."""
    folder = folder or SERVICE_ACCOUNT
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or environ.get("KUBERNETES_SERVICE_PORT")
    if not host:
        cause = "this is not a Kubernetes pod (KUBERNETES_SERVICE_HOST is not set)"
        raise KubernetesError(cause, "run vllm-watch in the cluster", sent=False)
    if not (folder / "token").exists():
        remedy = "give the pod a serviceAccountName, and leave automountServiceAccountToken on"
        raise KubernetesError(f"{folder} holds no token", remedy, sent=False)
    ca_file, namespace = folder / "ca.crt", ""
    with suppress(OSError, ValueError):
        namespace = _content(folder / "namespace").strip()
    return Api(
        url=f"https://{f'[{host}]' if ':' in host else host}:{port or 443}",
        token_file=folder / "token",
        ca_file=ca_file if ca_file.exists() else None,
        namespace=namespace,
        session=session,
    )


def _token(file: Path) -> str:
    token = _content(file).strip()
    if not token or not token.isprintable():
        raise ValueError(f"{file} holds no token")
    return token


def _content(file: Path) -> str:
    return regular_file.read(file, _FILE_BYTES_MAX).decode("ascii")


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    body = await http_answer.body(response, ANSWER_BYTES_MAX)
    try:
        document = json_text.read(body)
    except ValueError:
        document = {"message": body[:_MESSAGE_CHARACTERS_MAX].decode(errors="replace")}
    after = response.headers.get("Retry-After", "").strip()
    return Answer(
        response.status,
        document if isinstance(document, dict) else {},
        float(after[:9]) if after.isascii() and after.isdigit() else None,
    )
