"""Restart by running a command. Runbook: docs/hooks/command.md."""

import os
import shutil
from collections.abc import Mapping

from vllm_watch.errors import Finding
from vllm_watch.restart.hooks import base, child, supervisor
from vllm_watch.settings.hooks import CommandHook

TRY_AGAIN_STATUS = 75  # EX_TEMPFAIL of sysexits.h


class Hook(base.Hook):
    """Runs the command, with the call's data in its environment."""

    ENDING_SECONDS = 8.0  # to end all children after the timeout
    _settings: CommandHook

    async def check(self, call: base.HookCall) -> str | None:
        wrong = _cannot_run(self._settings.argv[0], self._tools.environ)
        if wrong is not None or self._settings.relaunches:
            return wrong
        found = await supervisor.finding(self._tools, call)
        return None if found.ok else found.text

    async def act(self, call: base.HookCall) -> base.HookResult:
        settings = self._settings
        ended = await child.run(settings.argv, self._environment(call), settings.timeout_seconds)
        return base.HookResult(*_judge(settings, ended))

    async def findings(self, call: base.HookCall) -> list[Finding]:
        program = self._settings.argv[0]
        wrong = _cannot_run(program, self._tools.environ)
        found = Finding(
            ok=wrong is None,
            text=wrong or f"{program} can be run; it was not, since that may restart the server",
            remedy=wrong and "fix argv, or install the program where vllm-watch runs",
        )
        if self._settings.relaunches:
            text = "the command itself restarts the server (hooks.command: relaunches: true)"
            return [found, Finding(ok=True, text=text)]
        return [found, await supervisor.finding(self._tools, call)]

    def _environment(self, call: base.HookCall) -> dict[str, str]:
        allowed = self._settings.environment
        own = {name: self._tools.environ[name] for name in allowed if name in self._tools.environ}
        # The kernel rejects NUL.
        told = {name: value.replace("\0", " ") for name, value in call.environment().items()}
        return own | told


def _cannot_run(program: str, environ: Mapping[str, str]) -> str | None:
    if shutil.which(program, path=environ.get("PATH", os.defpath)) is not None:
        return None
    there = os.path.exists(program)
    return f"{program} {'may not be run' if there else 'is not there'}"


def _judge(settings: CommandHook, ended: child.Ended) -> tuple[str, str]:
    program = settings.argv[0]
    said = f": {ended.tail}" if ended.tail else ""
    if ended.unable is not None:
        return base.FAILED, f"{program} cannot be run: {ended.unable}"
    if ended.timed_out:
        left = f"; {ended.left} of its processes could not be ended" if ended.left else ""
        return base.UNCERTAIN, (
            f"{program} was ended after {settings.timeout_seconds:g}s with all its children{left}{said}"
        )
    match ended.status:
        case 0:
            return base.DONE, f"{program} ended with status 0"
        case status if status == TRY_AGAIN_STATUS:
            return base.FAILED, f"{program} ended with status 75: try again later{said}"
        case None:
            return base.UNCERTAIN, f"the exit status of {program} is unknown{said}"
        case status if status > 0:
            return base.UNCERTAIN, f"{program} ended with status {status}{said}"
        case status:
            return base.UNCERTAIN, f"{program} was killed by signal {-status}{said}"
