"""The contract of hooks: restart one server, once, and report honestly. The guard decides and verify judges, not the hook.

A hook is a module here with `Hook(settings, tools)`; settings in settings/hooks.py."""

import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Protocol

import aiohttp

from vllm_watch.clients.signed_post import new_session
from vllm_watch.restart.gates import Gates

DONE, REFUSED, FAILED, UNCERTAIN = "done", "refused", "failed", "uncertain"
"""`failed`: certainly without effect, the only one retried; `uncertain`: may have acted."""

ENVIRONMENT_PREFIX = "VLLM_WATCH_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The watcher's resources for hooks and locks."""

    procfs: Path = Path("/proc")
    state_dir: Path | None = None
    namespace: str = ""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    session: Callable[[aiohttp.BaseConnector | None], aiohttp.ClientSession] = new_session
    unix_time: Callable[[], float] = time.time
    gates: Gates | None = None  # None: not in the daemon
    watcher_url: str = ""
    watcher_headers: Mapping[str, str] = field(default_factory=dict)
    watcher_tls: ssl.SSLContext | bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """Arguments; None: unknown or absent, for a command an empty variable."""

    attempt_id: str  # idempotency key: the same for all retries
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
    process_start_time: float | None = None

    def payload(self) -> dict[str, str | float | None]:
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**told, "target_url": self.url}

    def environment(self) -> dict[str, str]:
        """VLLM_WATCH_ATTEMPT_ID and so on; not VLLM_WATCH_URL, which a vllm-watch run by the command would take for the daemon's."""
        return {
            ENVIRONMENT_PREFIX + name.upper(): "" if value is None else str(value)
            for name, value in self.payload().items()
            if name != "url"
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """Result of one call."""

    """The result of one call."""

    outcome: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a rehearsal."""

    ok: bool
    text: str
    remedy: str | None = None


class Hook(Protocol):
    """Restarts servers in one way."""

    timeout_seconds: float  # longest that `restart` takes; cut off a little later

    async def refusal(self, call: HookCall) -> str | None:
        """Return why it must not be called, or None. Changes nothing."""

    async def restart(self, call: HookCall) -> HookResult:
        """Raises only CancelledError; leaves no child behind."""

    async def rehearse(self, call: HookCall) -> list[Finding]:
        """Rehearse for `hook test`: changes nothing."""
