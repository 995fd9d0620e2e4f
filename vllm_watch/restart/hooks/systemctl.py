"""Query systemd units. Source: systemctl(1), systemd.service(5), org.freedesktop.systemd1(5)."""

import os
from dataclasses import dataclass

from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base, child

ASK_SECONDS = 10.0  # D-Bus may hang
_PROPERTIES = (
    "LoadState", "ActiveState", "SubState", "Result", "MainPID", "NRestarts", "Restart",
    "InvocationID", "ControlGroup", "CanStart",
)  # fmt: skip
# systemctl --user needs these variables.
_ENVIRONMENT = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Properties of one unit."""

    name: str
    load_state: str  # "loaded", "not-found", "masked" …
    active_state: str  # "active", "activating", "deactivating", "inactive", "failed", "reloading"
    sub_state: str
    result: str
    restart: str
    restarts: int | None
    main_pid: int | None  # on the host
    invocation: str  # new for each start

    @property
    def waiting(self) -> bool:
        return self.sub_state.startswith("auto-restart")


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
    return Unit(
        name=unit,
        load_state=said["LoadState"],
        active_state=said["ActiveState"],
        sub_state=said.get("SubState", ""),
        result=said.get("Result", ""),
        restart=said.get("Restart", ""),
        restarts=_number(said.get("NRestarts", "")),
        main_pid=_number(said.get("MainPID", "")) or None,
        invocation=said.get("InvocationID", ""),
    )


async def restart(tools: base.Tools, unit: str, *, user: bool = False) -> child.Ended:
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


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
