"""Restart the server's container through Docker's (or Podman's) Engine API. Runbook: docs/hooks/docker.md."""

import aiohttp

from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base, engine_api
from vllm_watch.settings.hooks import DockerHook

START_TOLERANCE_SECONDS = 2.0
"""A server may seem this much older than its container, because the two clocks are read at different moments."""
_DONE = 204


class Hook:
    """Requests the restart of one container and waits for the answer."""

    def __init__(self, settings: DockerHook, tools: base.Tools) -> None:
        self._settings = settings
        self._tools = tools
        self.timeout_seconds = settings.timeout_seconds + engine_api.ASK_SECONDS

    async def refusal(self, call: base.HookCall) -> str | None:
        try:
            return _unfit(await self._inspect(), call)
        except HookError as error:
            return error.cause

    async def restart(self, call: base.HookCall) -> base.HookResult:
        settings = self._settings
        try:
            container = await self._inspect()
            wrong = _unfit(container, call)
            if wrong is not None:
                return base.HookResult(outcome=base.REFUSED, text=wrong)
            # Use the id, because another container may have taken the name.
            status, body = await engine_api.restart(
                self._tools, settings.socket, container.id,
                settings.stop_seconds, settings.timeout_seconds,
            )  # fmt: skip
        except HookError as error:
            return base.HookResult(outcome=base.FAILED, text=error.cause)
        except TimeoutError:
            text = f"the daemon has not answered within {settings.timeout_seconds:g} s"
            return base.HookResult(outcome=base.UNCERTAIN, text=text)
        except aiohttp.ClientError as error:
            text = f"the daemon got the request, but its answer was cut off: {error}"
            return base.HookResult(outcome=base.UNCERTAIN, text=text)
        return _judge(container, status, body)

    async def rehearse(self, call: base.HookCall) -> list[base.Finding]:
        try:
            container = await self._inspect()
        except HookError as error:
            return [base.Finding(ok=False, text=error.cause, remedy=error.remedy)]
        wrong = _unfit(container, call)
        text = f"container {container.name} ({container.id[:12]}) is {container.status}"
        remedy = "name the container of this server, and check that it is running"
        return [
            base.Finding(ok=wrong is None, text=wrong or text, remedy=wrong and remedy),
            _relaunch(container),
        ]

    async def _inspect(self) -> engine_api.Container:
        settings = self._settings
        return await engine_api.inspect(self._tools, settings.socket, settings.container)


def _unfit(container: engine_api.Container, call: base.HookCall) -> str | None:
    if container.status == "restarting":
        return f"the daemon is about to restart container {container.name} itself"
    if container.status != "running":
        return f"container {container.name} does not run: it is {container.status}"
    started = call.process_start_time
    if started is None or container.started_t is None:
        return None
    if started < container.started_t - START_TOLERANCE_SECONDS:
        return f"container {container.name} was started after the observed server: it is a different one"
    return None


def _relaunch(container: engine_api.Container) -> base.Finding:
    if container.relaunched:
        text = f"restart policy {container.restart_policy}: the daemon also restarts it by itself"
        return base.Finding(ok=True, text=text)
    return base.Finding(
        ok=False,
        text=f"with restart policy {container.restart_policy}, nothing restarts the container if the "
        "server exits by itself: vLLM exits with status 0 when its engine dies",
        remedy=f"docker update --restart unless-stopped {container.name}",
    )


def _judge(container: engine_api.Container, status: int, body: bytes) -> base.HookResult:
    if status == _DONE:
        text = f"the daemon has restarted container {container.name}"
        return base.HookResult(outcome=base.DONE, text=text)
    text = f"the daemon answered for container {container.name}: {engine_api.answer_text(status, body)}"
    match status:
        case 304 | 409:  # 304: nothing changed; 409: another operation is in progress
            outcome = base.FAILED
        case _ if 400 <= status < 500:  # noqa: PLR2004 - unknown container, no permission
            outcome = base.REFUSED
        case _:
            outcome = base.UNCERTAIN
    return base.HookResult(outcome=outcome, text=text)
