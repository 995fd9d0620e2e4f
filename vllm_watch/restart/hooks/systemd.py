"""Restart the server's unit through the host's systemd. Runbook: docs/hooks/systemd.md.

Source: systemctl(1), systemd.service(5), org.freedesktop.systemd1(5).
"""

import asyncio
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from vllm_watch.errors import Finding, HookError
from vllm_watch.restart.hooks import base, child, server_process
from vllm_watch.samples.target import PORT_OF_SCHEME
from vllm_watch.settings.hooks import PORT, SystemdHook
from vllm_watch.sources import gpu_pids
from vllm_watch.sources.engine_processes import descendants, started_at

ASK_SECONDS = 10.0  # D-Bus may hang
_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "Restart",
    "InvocationID",
)
# systemctl --user needs these variables.
_ENVIRONMENT = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_POLL_SECONDS = 0.5
# Exit statuses of systemctl if no job was started: no permission, not installed, not configured (LSB).
_NOT_BEGUN_STATUSES = (4, 5, 6)
# Messages of systemctl if no job was started.
_NOT_BEGUN_TEXTS = (
    "Access denied", "Interactive authentication required", "not found", "is masked",
    "Failed to connect to bus", "Can't operate", "may be requested by dependency only",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Properties of one unit."""

    name: str
    load_state: str  # "loaded", "not-found", "masked" …
    active_state: str  # "active", "activating", "deactivating", "inactive", "failed", "reloading"
    sub_state: str
    result: str
    restart: str
    main_pid: int | None  # on the host
    invocation: str  # new for each start

    @property
    def waiting(self) -> bool:
        return self.sub_state.startswith("auto-restart")


class Hook(base.Hook):
    """Requests a restart, and waits for the unit's new start."""

    ENDING_SECONDS = ASK_SECONDS
    _settings: SystemdHook

    async def check(self, call: base.HookCall) -> str | None:
        return await self._unfit(await self._show(call), call)

    async def act(self, call: base.HookCall) -> base.HookResult:
        before = await self._show(call)
        wrong = await self._unfit(before, call)
        if wrong is not None:
            return base.HookResult(base.REFUSED, wrong)
        name = before.name
        ended = await request_restart(self._tools, name, user=self._settings.user)
        if ended.status != 0:
            return _not_accepted(name, ended)
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                await self._wait_restarted(call, before.invocation)
        except TimeoutError:
            took = f"{self._settings.timeout_seconds:g} s"
            text = f"systemd accepted the restart of {name}, but it has not started within {took}"
            return base.HookResult(base.UNCERTAIN, text)
        return base.HookResult(base.DONE, f"systemd restarted {name}")

    async def findings(self, call: base.HookCall) -> list[Finding]:
        unit = await self._show(call)
        wrong = await self._unfit(unit, call)
        state = f"{unit.name} is {unit.active_state} ({unit.sub_state})"
        remedy = "name the unit of this server, and check that it is active"
        return [
            Finding(ok=wrong is None, text=wrong or state, remedy=wrong and remedy),
            _relaunch(unit),
            Finding(
                ok=True,
                text="the right to restart it was not tested, because a test would restart it",
                remedy="users other than root need a polkit rule: docs/hooks/systemd.md",
            ),
        ]

    async def _show(self, call: base.HookCall) -> Unit:
        url = urlsplit(call.url)
        port = url.port or PORT_OF_SCHEME[url.scheme]
        unit = self._settings.unit.replace(PORT, str(port))
        return await show(self._tools, unit, user=self._settings.user)

    async def _wait_restarted(self, call: base.HookCall, invocation: str) -> None:
        while True:
            try:
                now = await self._show(call)
            except HookError:
                now = None
            if now is not None and now.invocation not in ("", invocation):
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _unfit(self, unit: Unit, call: base.HookCall) -> str | None:
        return _unfit(unit) or await self._replaced(unit, call)

    async def _replaced(self, unit: Unit, call: base.HookCall) -> str | None:
        started = call.process_start_time
        procfs = self._tools.procfs
        if started is None or unit.main_pid is None or not gpu_pids.of_tree(procfs).initial:
            return None
        all_ = await asyncio.to_thread(server_process.everything, procfs)
        main = all_.get(unit.main_pid)
        if main is None:
            return None
        tree = [main, *descendants(main.pid, all_)]
        if any(started_at(each, started) for each in tree):
            return None
        return f"no process of {unit.name} has the start time of the observed server: it is a different one"


def _unfit(unit: Unit) -> str | None:
    if unit.load_state != "loaded":
        return f"{unit.name} is {unit.load_state}: systemd cannot start it"
    if unit.waiting:
        return f"systemd is about to restart {unit.name} itself, after its RestartSec"
    if unit.result == "start-limit-hit":
        return f"systemd gave up on {unit.name}: it was started too often (start-limit-hit)"
    if unit.active_state in ("activating", "deactivating", "reloading", "maintenance"):
        return f"{unit.name} is {unit.active_state} ({unit.sub_state})"
    if unit.active_state == "inactive":
        return f"{unit.name} does not run: it was stopped, or its server ended with status 0"
    return None


def _relaunch(unit: Unit) -> Finding:
    if unit.restart == "always":
        text = f"{unit.name} has Restart=always: systemd also restarts it when it exits by itself"
        return Finding(ok=True, text=text)
    return Finding(
        ok=False,
        text=f"with Restart={unit.restart}, nothing restarts {unit.name} if the server exits by itself: "
        "vLLM exits with status 0 when its engine dies",
        remedy="set Restart=always in the unit",
    )


def _not_accepted(unit: str, ended: child.Ended) -> base.HookResult:
    if ended.unable is not None or ended.timed_out:
        outcome = base.UNCERTAIN if ended.unable is None else base.FAILED
        return base.HookResult(outcome, _why(ended))
    said = ended.tail.replace("\n", " ")
    surely = ended.status in _NOT_BEGUN_STATUSES or any(text in said for text in _NOT_BEGUN_TEXTS)
    outcome = base.FAILED if surely else base.UNCERTAIN
    return base.HookResult(outcome, f"systemd did not restart {unit}: {said}")


async def show(tools: base.Tools, unit: str, *, user: bool = False) -> Unit:
    """Return the unit's properties. Raises HookError if systemd does not answer."""
    ended = await _systemctl(tools, user, "show", f"--property={','.join(_PROPERTIES)}", "--", unit)
    if ended.status != 0:
        raise HookError(
            f"systemd does not answer: {_why(ended)}", "see docs/hooks/systemd.md: rights"
        )
    said = dict(line.split("=", 1) for line in ended.tail.splitlines() if "=" in line)
    if not said.get("ActiveState") or not said.get("LoadState"):
        raise HookError(f"systemctl shows nothing for {unit}", "run systemctl show by hand")
    pid = said.get("MainPID", "")
    return Unit(
        name=unit,
        load_state=said["LoadState"],
        active_state=said["ActiveState"],
        sub_state=said.get("SubState", ""),
        result=said.get("Result", ""),
        restart=said.get("Restart", ""),
        main_pid=int(pid) or None if pid.isdigit() else None,
        invocation=said.get("InvocationID", ""),
    )


async def request_restart(tools: base.Tools, unit: str, *, user: bool = False) -> child.Ended:
    """Request a restart and return whether systemd accepted it."""
    return await _systemctl(tools, user, "restart", "--no-block", "--no-ask-password", "--", unit)


async def _systemctl(tools: base.Tools, user: bool, *words: str) -> child.Ended:
    own = {name: tools.environ[name] for name in _ENVIRONMENT if name in tools.environ}
    environment = {"PATH": os.defpath} | own | {"LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"}
    which = "--user" if user else "--system"
    return await child.run(("systemctl", which, "--no-pager", *words), environment, ASK_SECONDS)


def _why(ended: child.Ended) -> str:
    if ended.unable is not None:
        return f"systemctl cannot be run: {ended.unable}"
    if ended.timed_out:
        return f"systemctl did not answer within {ASK_SECONDS:g} s"
    return ended.tail.replace("\n", " ") or f"systemctl ended with status {ended.status}"
