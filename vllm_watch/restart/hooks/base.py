"""The contract of restart hooks (restart one server, once, and report the result), and their kinds."""

import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import aiohttp

from vllm_watch.clients.signed_post import new_session
from vllm_watch.errors import Finding, WatchError
from vllm_watch.restart.facts import RestartRequest
from vllm_watch.restart.gates import Gates
from vllm_watch.restart.verify import Before
from vllm_watch.samples.target import Target
from vllm_watch.settings.hooks import HookSettings
from vllm_watch.support import plugins

DONE, REFUSED, FAILED, UNCERTAIN = "done", "refused", "failed", "uncertain"
"""REFUSED and FAILED calls had no effect. Only FAILED calls are retried. UNCERTAIN calls may have
restarted the server."""

CONTAINER_START_SECONDS = 2.0
"""A server may seem this much older than its container, because the two clocks are read at different
moments, and the kubelet's times are whole seconds."""

ENVIRONMENT_PREFIX = "VLLM_WATCH_"
_FOLDER = "vllm_watch.restart.hooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The watcher's resources for hooks and locks."""

    procfs: Path = Path("/proc")
    state_dir: Path | None = None
    namespace: str = ""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    session: Callable[[aiohttp.BaseConnector | None], aiohttp.ClientSession] = new_session
    unix_time: Callable[[], float] = time.time
    gates: Gates | None = None  # None outside the daemon
    watcher_url: str = ""
    watcher_headers: Mapping[str, str] = field(default_factory=dict)
    watcher_tls: ssl.SSLContext | bool = True  # True to trust the system's CAs


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A hook's arguments; None means unknown or absent."""

    attempt_id: str  # idempotency key
    target: str
    url: str
    group: str
    trigger: str
    reason: str
    engine: str | None = None
    incident_id: str | None = None
    kind: str | None = None
    cause: str | None = None
    evidence_path: str | None = None
    namespace: str | None = None
    pod: str | None = None
    node: str | None = None
    process_start_time: float | None = None  # Unix seconds

    @classmethod
    def of(
        cls, request: RestartRequest, target: Target, attempt_id: str, before: Before
    ) -> "HookCall":
        return cls(
            attempt_id=attempt_id, target=target.name, url=target.url, group=target.group,
            trigger=request.trigger, reason=request.reason, engine=request.engine,
            incident_id=request.incident_id, kind=request.kind, cause=request.cause,
            namespace=target.namespace or None, pod=target.pod or None, node=target.node or None,
            process_start_time=before.process.start_time,
        )  # fmt: skip

    def payload(self) -> dict[str, str | float | None]:
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**told, "target_url": self.url}

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the call. VLLM_WATCH_URL is left out, because vllm-watch's commands would connect to it."""
        return {
            ENVIRONMENT_PREFIX + name.upper(): "" if value is None else str(value)
            for name, value in self.payload().items()
            if name != "url"
        }


@dataclass(frozen=True, slots=True)
class HookResult:
    """The result of one call."""

    outcome: str  # DONE | REFUSED | FAILED | UNCERTAIN
    text: str  # a sentence without secrets


class Hook:
    """Restarts servers in one way. The error of a kind's `check`, `act` or `findings` is its answer."""

    ENDING_SECONDS = 0.0  # a call may end this much after its timeout
    _settings: Any

    def __init__(self, settings: HookSettings, tools: Tools) -> None:
        self._settings = settings
        self._tools = tools
        self.timeout_seconds = settings.timeout_seconds + self.ENDING_SECONDS

    async def refusal(self, call: HookCall) -> str | None:
        """Return why this server must not be restarted, or None. Changes nothing."""
        try:
            return await self.check(call)
        except WatchError as error:
            return error.cause

    async def restart(self, call: HookCall) -> HookResult:
        """Restart the server. Raises only CancelledError, and then leaves no child process running."""
        try:
            return await self.act(call)
        except WatchError as error:
            return HookResult(FAILED, error.cause)

    async def rehearse(self, call: HookCall) -> list[Finding]:
        """Check reachability, permissions and whether the server would start again. Changes nothing."""
        try:
            return await self.findings(call)
        except WatchError as error:
            return [Finding(ok=False, text=error.cause, remedy=error.remedy)]

    async def check(self, call: HookCall) -> str | None:
        raise NotImplementedError

    async def act(self, call: HookCall) -> HookResult:
        """Raises WatchError only if nothing was done."""
        raise NotImplementedError

    async def findings(self, call: HookCall) -> list[Finding]:
        raise NotImplementedError


def kinds() -> Mapping[str, ModuleType]:
    """Return the module of each kind, by the kind's name in the configuration."""
    return plugins.modules(_FOLDER, "Hook")


def make(kind: str, settings: HookSettings, tools: Tools) -> Hook:
    """Build the hook. Raises WatchError if the kind is unknown."""
    module = kinds().get(kind)
    if module is None:
        known = ", ".join(kinds())
        raise WatchError(f"hooks.{kind}: this vllm-watch has no such kind", f"take one of {known}")
    return cast("Hook", module.Hook(settings, tools))


def unix_t(moment: object) -> float | None:
    """Return the Unix time of an ISO 8601 text; None if it is malformed or means never (year 1)."""
    try:
        found = datetime.fromisoformat(str(moment))
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None and found.year > 1 else None
