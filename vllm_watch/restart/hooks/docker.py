"""Restart the server's container through Docker's (or Podman's) Engine API. Runbook: docs/hooks/docker.md.

Paths contain no API version, so each daemon uses its default. Source: docs.docker.com/engine/api;
docs.podman.io, compat API.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from vllm_watch.clients import http_answer
from vllm_watch.errors import Finding, HookError
from vllm_watch.restart.hooks import base
from vllm_watch.settings.hooks import DockerHook
from vllm_watch.support import json_text
from vllm_watch.support.redaction import excerpt

ASK_SECONDS = 10.0
_ANSWER_BYTES_MAX = 1 << 20  # an inspect response has about 10 KB
_ERROR_BYTES_MAX = 2000
_OK, _DONE = 200, 204


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as the daemon reports it."""

    id: str
    name: str
    status: str  # "running", "exited", "restarting", "paused" …
    restart_policy: str
    started_t: float | None

    @property
    def relaunched(self) -> bool:
        return self.restart_policy in ("always", "unless-stopped")


class Hook(base.Hook):
    """Requests the restart of one container and waits for the answer."""

    ENDING_SECONDS = ASK_SECONDS
    _settings: DockerHook

    async def check(self, call: base.HookCall) -> str | None:
        return _unfit(await self._inspect(), call)

    async def act(self, call: base.HookCall) -> base.HookResult:
        settings = self._settings
        container = await self._inspect()
        wrong = _unfit(container, call)
        if wrong is not None:
            return base.HookResult(base.REFUSED, wrong)
        try:
            # Use the id, because another container may have taken the name.
            status, body = await request_restart(
                self._tools, settings.socket, container.id,
                settings.stop_seconds, settings.timeout_seconds,
            )  # fmt: skip
        except TimeoutError:
            text = f"the daemon has not answered within {settings.timeout_seconds:g} s"
            return base.HookResult(base.UNCERTAIN, text)
        except aiohttp.ClientError as error:
            text = f"the daemon got the request, but its answer was cut off: {error}"
            return base.HookResult(base.UNCERTAIN, text)
        return _judge(container, status, body)

    async def findings(self, call: base.HookCall) -> list[Finding]:
        container = await self._inspect()
        wrong = _unfit(container, call)
        text = f"container {container.name} ({container.id[:12]}) is {container.status}"
        remedy = "name the container of this server, and check that it is running"
        return [
            Finding(ok=wrong is None, text=wrong or text, remedy=wrong and remedy),
            _relaunch(container),
        ]

    async def _inspect(self) -> Container:
        settings = self._settings
        return await inspect(self._tools, settings.socket, settings.container)


def _unfit(container: Container, call: base.HookCall) -> str | None:
    if container.status == "restarting":
        return f"the daemon is about to restart container {container.name} itself"
    if container.status != "running":
        return f"container {container.name} does not run: it is {container.status}"
    started = call.process_start_time
    if started is None or container.started_t is None:
        return None
    if started < container.started_t - base.CONTAINER_START_SECONDS:
        return f"container {container.name} was started after the observed server: it is a different one"
    return None


def _relaunch(container: Container) -> Finding:
    if container.relaunched:
        text = f"restart policy {container.restart_policy}: the daemon also restarts it by itself"
        return Finding(ok=True, text=text)
    return Finding(
        ok=False,
        text=f"with restart policy {container.restart_policy}, nothing restarts the container if the "
        "server exits by itself: vLLM exits with status 0 when its engine dies",
        remedy=f"docker update --restart unless-stopped {container.name}",
    )


def _judge(container: Container, status: int, body: bytes) -> base.HookResult:
    if status == _DONE:
        return base.HookResult(base.DONE, f"the daemon has restarted container {container.name}")
    text = f"the daemon answered for container {container.name}: {answer_text(status, body)}"
    match status:
        case 304 | 409:  # 304: nothing changed; 409: another operation is in progress
            outcome = base.FAILED
        case _ if 400 <= status < 500:  # noqa: PLR2004 - unknown container, no permission
            outcome = base.REFUSED
        case _:
            outcome = base.UNCERTAIN
    return base.HookResult(outcome, text)


async def inspect(tools: base.Tools, socket: Path, container: str) -> Container:
    """Inspect a container by name or id. Raises HookError."""
    status, body = await _call(
        tools, socket, "GET", f"{_path(container)}/json", ASK_SECONDS, _ANSWER_BYTES_MAX
    )
    if status != _OK:
        remedy = "check hooks.docker: container, with docker ps -a"
        raise HookError(
            f"the daemon at {socket} answered for {container}: {answer_text(status, body)}", remedy
        )
    try:
        return _container(json_text.read(body))
    except (ValueError, KeyError, TypeError, AttributeError):
        cause = f"{socket} does not serve the Engine API"
        raise HookError(cause, "set hooks.docker: socket to Docker's or Podman's") from None


async def request_restart(
    tools: base.Tools, socket: Path, container_id: str, stop_seconds: float, timeout_seconds: float
) -> tuple[int, bytes]:
    """Restart the container and return the response. Raises HookError if nothing was sent, and ClientError or TimeoutError if no response came."""
    path = f"{_path(container_id)}/restart?t={round(stop_seconds)}"
    return await _call(tools, socket, "POST", path, timeout_seconds, _ERROR_BYTES_MAX, sure=False)


def answer_text(status: int, body: bytes) -> str:
    """Return the status and the daemon's message."""
    try:
        message = str(json_text.read(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = body.decode(errors="replace")
    return f"{status} {excerpt(message.strip(), 300)}".strip()


async def _call(
    tools: base.Tools, socket: Path, method: str, path: str, seconds: float, bytes_max: int,
    *, sure: bool = True,
) -> tuple[int, bytes]:  # fmt: skip
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with (
            tools.session(aiohttp.UnixConnector(path=str(socket))) as session,
            session.request(
                method, f"http://localhost{path}", timeout=timeout, allow_redirects=False
            ) as response,
        ):
            return response.status, await http_answer.beginning(response, bytes_max, seconds)
    except aiohttp.ClientConnectorError as error:
        cause = f"{socket} cannot be reached: {error.os_error.strerror or error.os_error}"
        remedy = "mount the socket, and let vllm-watch read and write it; see docs/hooks/docker.md"
        raise HookError(cause, remedy) from None
    except (aiohttp.ClientError, TimeoutError) as error:
        if not sure:
            raise
        cause = f"the daemon at {socket} does not answer: {error or 'timeout'}"
        raise HookError(cause, "see whether docker ps answers") from None


def _path(container: str) -> str:
    return f"/containers/{quote(container, safe='')}"


def _container(document: Any) -> Container:
    state = document["State"]
    return Container(
        id=str(document["Id"]),
        name=str(document.get("Name", "")).lstrip("/"),
        status=str(state["Status"]),
        restart_policy=str((document["HostConfig"].get("RestartPolicy") or {}).get("Name") or "no"),
        started_t=base.unix_t(state.get("StartedAt")),
    )
