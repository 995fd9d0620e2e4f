"""A client of Docker's Engine API, which Podman also implements.

Paths contain no API version, so each daemon uses its default. Source: docs.docker.com/engine/api;
docs.podman.io, compat API.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from vllm_watch.clients import http_answer
from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base
from vllm_watch.support import json_text
from vllm_watch.support.redaction import excerpt

ASK_SECONDS = 10.0
_ANSWER_BYTES_MAX = 1 << 20  # an inspect response has about 10 KB
_ERROR_BYTES_MAX = 2000
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as the daemon reports it."""

    id: str
    name: str
    status: str  # "running", "exited", "restarting", "paused" …
    restart_policy: str
    started_t: float | None
    pid: int | None  # on the host

    @property
    def relaunched(self) -> bool:
        return self.restart_policy in ("always", "unless-stopped")


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


async def restart(
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
        started_t=_unix(str(state.get("StartedAt", ""))),
        pid=state.get("Pid") or None,
    )


def _unix(text: str) -> float | None:
    # The daemon writes nanoseconds, but fromisoformat takes microseconds. Year 1 means never.
    try:
        moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", text))
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None and moment.year > 1 else None
