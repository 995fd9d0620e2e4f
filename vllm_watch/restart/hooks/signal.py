"""Ends the server with SIGTERM, later SIGKILL, and leaves starting it again to who looks after it.

Every signal goes through a pidfd, which holds the one process it was opened for: a successor that was given
the same PID cannot be hit. Between opening it and the first signal the process is looked at once more.
Runbook: docs/hooks/signal.md. Source: pidfd_open(2), pidfd_send_signal(2).
"""

import asyncio
import os
import signal
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base, relaunch, server_process
from vllm_watch.restart.hooks.server_process import Server
from vllm_watch.settings.hooks import SIGNAL_KILL_SECONDS, SignalHook
from vllm_watch.sources import pid_namespace
from vllm_watch.sources.processes import ProcessFacts, ProcReader

_ENGINES_SECONDS = 2.0  # vLLM's engines see their server's end by their pipe, and end themselves


@dataclass(frozen=True, slots=True)
class _Held:
    """A process and the pidfd that holds it."""

    pid: int
    descriptor: int

    def send(self, number: int) -> bool:
        """Send it; return False where the process is gone already. Raises: PermissionError."""
        try:
            signal.pidfd_send_signal(self.descriptor, number)
        except ProcessLookupError:
            return False
        return True


class Hook:
    """Finds the server's process anew at each call, and ends it with what is left of its engines."""

    def __init__(self, settings: SignalHook, tools: base.Tools) -> None:
        self._settings = settings
        self._tools = tools
        self.timeout_seconds = settings.timeout_seconds

    async def refusal(self, call: base.HookCall) -> str | None:
        wrong = [finding.text for finding in await self.rehearse(call) if not finding.ok]
        return wrong[0] if wrong else None

    async def restart(self, call: base.HookCall) -> base.HookResult:
        wrong = await self.refusal(call)
        if wrong is not None:
            return base.HookResult(outcome=base.REFUSED, text=wrong)
        try:
            server = await self._find(call)
        except HookError as error:
            return base.HookResult(outcome=base.REFUSED, text=error.cause)
        with ExitStack() as descriptors:
            main = _hold(self._tools, server.facts, descriptors)
            if main is None:
                text = f"process {server.facts.pid} has ended by itself"
                return base.HookResult(outcome=base.REFUSED, text=text)
            engines = _engines(self._tools, server, descriptors)
            return await self._end(main, engines, descriptors)

    async def rehearse(self, call: base.HookCall) -> list[base.Finding]:
        try:
            server = await self._find(call)
            _may_signal(self._tools, server.facts)
        except HookError as error:
            return [base.Finding(ok=False, text=error.cause, remedy=error.remedy)]
        engines = [each.pid for each in server.descendants() if server_process.is_engine_part(each)]
        text = (
            f"the server is process {server.facts.pid}, with {len(engines)} of engines and workers"
        )
        supervised_by = self._settings.supervised_by
        return [
            base.Finding(ok=True, text=text),
            await relaunch.of_server(self._tools, server, supervised_by),
        ]

    async def _find(self, call: base.HookCall) -> Server:
        if pid_namespace.of_tree(self._tools.procfs).levels_above_ours != 0:
            cause = f"the PIDs of {self._tools.procfs} are not those that vllm-watch can signal"
            remedy = (
                "run it with the host's PID namespace (hostPID, --pid host) or the pod's shared one"
            )
            raise HookError(cause, remedy)
        port, pid_file = self._settings.port, self._settings.pid_file
        return await server_process.find(self._tools, call, port=port, pid_file=pid_file)

    async def _end(self, main: _Held, engines: list[_Held], holds: ExitStack) -> base.HookResult:
        try:
            if not main.send(signal.SIGTERM):
                text = f"process {main.pid} has ended by itself"
                return base.HookResult(outcome=base.REFUSED, text=text)
        except PermissionError:
            text = f"process {main.pid} may not be signalled: it is another user's"
            return base.HookResult(outcome=base.FAILED, text=text)
        by = "SIGTERM"
        if await _left((main,), self._settings.terminate_seconds):
            by = f"SIGKILL, {self._settings.terminate_seconds:g} s after SIGTERM"
            engines += await asyncio.to_thread(_born_since, self._tools, main, engines, holds)
            main.send(signal.SIGKILL)
        if await _left((main,), SIGNAL_KILL_SECONDS / 2):
            text = f"process {main.pid} does not end by SIGKILL: it waits in the kernel (state D)"
            return base.HookResult(outcome=base.UNCERTAIN, text=text)
        return await _end_engines(engines, f"process {main.pid} ended by {by}")


async def _end_engines(engines: Iterable[_Held], ended: str) -> base.HookResult:
    left = await _left(engines, _ENGINES_SECONDS)
    if not left:
        return base.HookResult(outcome=base.DONE, text=ended)
    refused = False
    for each in left:
        try:
            each.send(signal.SIGKILL)
        except PermissionError:
            refused = True
    still = await _left(left, SIGNAL_KILL_SECONDS / 2 - _ENGINES_SECONDS)
    if still:
        pids = ", ".join(str(each.pid) for each in still)
        why = "they are another user's" if refused else "they wait in the kernel (state D)"
        text = f"{ended}, but of its engines {pids} cannot be ended: {why}"
        return base.HookResult(outcome=base.UNCERTAIN, text=text)
    text = f"{ended}, and {len(left)} left of its engines by SIGKILL"
    return base.HookResult(outcome=base.DONE, text=text)


def _hold(tools: base.Tools, facts: ProcessFacts, descriptors: ExitStack) -> _Held | None:
    """Open the process's pidfd and make sure that it is the one that was looked at; None: it is gone."""
    try:
        descriptor = os.pidfd_open(facts.pid)
    except OSError:
        return None
    descriptors.callback(os.close, descriptor)
    now = ProcReader(tools.procfs).read(facts.pid)
    if now is None or now.start_ticks != facts.start_ticks or now.state in ("Z", "X"):
        return None
    return _Held(facts.pid, descriptor)


def _engines(tools: base.Tools, server: Server, descriptors: ExitStack) -> list[_Held]:
    parts = [each for each in server.descendants() if server_process.is_engine_part(each)]
    held = (_hold(tools, each, descriptors) for each in parts)
    return [each for each in held if each is not None]


def _born_since(
    tools: base.Tools, main: _Held, known: list[_Held], descriptors: ExitStack
) -> list[_Held]:
    all_ = server_process.everything(tools.procfs)
    facts = all_.get(main.pid)
    if facts is None or not _alive(main):
        return []
    pids = {each.pid for each in known}
    now = _engines(tools, Server(facts=facts, all=all_), descriptors)
    return [each for each in now if each.pid not in pids]


def _alive(held: _Held) -> bool:
    try:
        return held.send(0)
    except PermissionError:
        return True


def _may_signal(tools: base.Tools, facts: ProcessFacts) -> None:
    with ExitStack() as descriptors:
        held = _hold(tools, facts, descriptors)
        if held is None:
            raise HookError(f"process {facts.pid} has just ended", "wait for the next look")
        try:
            held.send(0)
        except PermissionError:
            cause = f"process {facts.pid} may not be signalled: it is another user's"
            raise HookError(cause, "run vllm-watch as its user, or with CAP_KILL") from None


async def _left(processes: Iterable[_Held], seconds: float) -> list[_Held]:
    """Wait until all have ended; return those that have not in time. A zombie has ended."""
    loop = asyncio.get_running_loop()
    waiting = {each.descriptor: each for each in processes}
    if not waiting:
        return []
    all_ended = loop.create_future()

    def ended(descriptor: int) -> None:
        loop.remove_reader(descriptor)  # a pidfd stays readable once its process has ended
        del waiting[descriptor]
        if not waiting:
            all_ended.set_result(None)

    for descriptor in list(waiting):
        loop.add_reader(descriptor, ended, descriptor)
    try:
        await asyncio.wait((all_ended,), timeout=seconds)
    finally:
        for descriptor in waiting:
            loop.remove_reader(descriptor)
    return list(waiting.values())
