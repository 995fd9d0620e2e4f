"""Restart an engine by failing its own liveness probe, which needs no rights. Runbook: docs/hooks/gate.md.

Source: kubernetes.io, Configure Liveness, Readiness and Startup Probes.
"""

import aiohttp

from vllm_watch.board.restarts import Probes
from vllm_watch.clients import http_answer
from vllm_watch.errors import Finding, HookError
from vllm_watch.restart.gates import ASKED_SECONDS, SAME_START_SECONDS, Gates
from vllm_watch.restart.hooks import base
from vllm_watch.settings.hooks import GateHook
from vllm_watch.support import json_text
from vllm_watch.support.waiting import happens

_ASK_SECONDS = 5.0
_ANSWER_BYTES_MAX = 10_000
_READ_PAGE = "add the liveness probe of docs/hooks/gate.md to the engine's container"


class Hook(base.Hook):
    """Answers "kill" to the probe until the server has ended or the timeout has passed."""

    _settings: GateHook

    async def check(self, call: base.HookCall) -> str | None:
        await self._server_start(call)
        return None

    async def act(self, call: base.HookCall) -> base.HookResult:
        try:
            started_t = await self._server_start(call)
        except HookError as error:
            return base.HookResult(base.REFUSED, error.cause)
        return await self._kill(self._gates(), call.target, started_t)

    async def findings(self, call: base.HookCall) -> list[Finding]:
        again = Finding(
            ok=True,
            text="Kubernetes restarts the container if the pod's restartPolicy is Always: check "
            "with kubectl get pod POD -o jsonpath={.spec.restartPolicy}",
        )
        try:
            probes = await self._probes(call.target)
            started_t = _identity(call, probes)
        except HookError as error:
            return [Finding(ok=False, text=error.cause, remedy=error.remedy), again]
        text = f"the liveness probe asked {probes.liveness_asked_seconds:.0f} s ago; it would fail"
        text += f" for the server that started at Unix time {started_t:.0f}"
        return [Finding(ok=True, text=text), again]

    def _gates(self) -> Gates:
        if self._tools.gates is None:
            raise HookError(
                "only the running daemon can do this", "start the daemon: vllm-watch run"
            )
        return self._tools.gates

    async def _kill(self, gates: Gates, target: str, started_t: float) -> base.HookResult:
        seconds = self._settings.timeout_seconds
        with gates.killing(target, started_t, seconds) as kill:
            if await happens(kill.ended, seconds):
                text = "the probe failed, and the server has ended"
                if not kill.answers:
                    text = "the server ended before its probe failed"
                return base.HookResult(base.DONE, text)
        if not kill.answers:
            text = f"no liveness probe asked within {seconds:g} s: nothing was restarted"
            return base.HookResult(base.FAILED, text)
        text = f"the probe failed for {seconds:g} s, but the server has not ended yet"
        return base.HookResult(base.UNCERTAIN, text)

    async def _server_start(self, call: base.HookCall) -> float:
        looked_t = self._gates().probes(call.target).scraped_start_t
        known_t = looked_t if call.process_start_time is None else call.process_start_time
        if known_t is not None and abs((looked_t or known_t) - known_t) > SAME_START_SECONDS:
            cause = "the server was restarted since it was observed: it is a different one"
            raise HookError(cause, "wait for the next scrape")
        return _identity(call, await self._probes(call.target))

    async def _probes(self, target: str) -> Probes:
        if self._tools.gates is not None:
            return self._tools.gates.probes(target)
        return await self._probes_of_daemon(target)

    async def _probes_of_daemon(self, target: str) -> Probes:
        url = f"{self._tools.watcher_url}/gate/probes"
        timeout = aiohttp.ClientTimeout(total=_ASK_SECONDS)
        try:
            async with (
                self._tools.session(None) as session,
                session.get(
                    url,
                    params={"target": target},
                    timeout=timeout,
                    allow_redirects=False,
                    headers=self._tools.watcher_headers,
                    ssl=self._tools.watcher_tls,
                ) as response,
            ):
                answer = json_text.read(await http_answer.body(response, _ANSWER_BYTES_MAX))
                if response.status != 200:  # noqa: PLR2004
                    raise HookError(str(answer["error"]), str(answer["remedy"]))
                return Probes(
                    liveness_asked_seconds=answer["liveness_asked_seconds"],
                    starts=tuple(answer["starts"]),
                )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
            cause = f"only the daemon knows its probes, and it does not answer at {url}"
            raise HookError(cause, "rehearse it while vllm-watch run runs") from None


def _identity(call: base.HookCall, probes: Probes) -> float:
    asked_seconds, starts = probes.liveness_asked_seconds, probes.starts
    if asked_seconds is None:
        raise HookError(f"no liveness probe of {call.target} has ever asked", _READ_PAGE)
    if not -SAME_START_SECONDS <= asked_seconds <= ASKED_SECONDS:
        cause = f"the liveness probe of {call.target} has not asked for {asked_seconds:.0f} s"
        raise HookError(cause, f"{_READ_PAGE}; periodSeconds of 10 at most")
    if len(starts) > 1:
        cause = f"probes of {len(starts)} containers ask for {call.target}: it is unknown which one is meant"
        raise HookError(
            cause, "give each engine a target of its own; after a restart, wait a minute"
        )
    started_t = call.process_start_time
    if started_t is None:
        if not starts:
            cause = "the server's start is known neither from vLLM nor from its probe"
            raise HookError(cause, _READ_PAGE)
        return starts[0]
    if starts and starts[0] > started_t + SAME_START_SECONDS:
        cause = "the probe's container started after the observed server: it is a different one"
        raise HookError(cause, "wait for the next scrape; give each engine a target of its own")
    return started_t
