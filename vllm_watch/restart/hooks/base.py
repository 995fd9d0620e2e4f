"""The contract of every restart hook: it restarts one server, once, and says honestly how that ended.

A hook is a module of this folder with a `Hook(settings, tools)`; its settings are in settings/hooks.py. It
judges nothing: whether it may be called is the guard's, whether it helped is verify's.
"""

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
"""How a call ended: it did what it was asked; it would not and did nothing; it could not and surely did
nothing that matters; it may have acted. Only `failed` may be tried again, within the same attempt."""

ENVIRONMENT_PREFIX = "VLLM_WATCH_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What hooks and locks need of the watcher, beside their settings: every kind is built alike."""

    procfs: Path = Path("/proc")
    state_dir: Path | None = None
    namespace: str = ""  # our own Kubernetes namespace; empty: there is none
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    session: Callable[[aiohttp.BaseConnector | None], aiohttp.ClientSession] = new_session
    unix_time: Callable[[], float] = time.time  # for timestamps that others read
    gates: Gates | None = None  # what the daemon tells probes; None: this is not the daemon
    watcher_url: str = ""  # where the daemon serves, for who is not the daemon
    watcher_headers: Mapping[str, str] = field(default_factory=dict)  # as whom it is asked
    watcher_tls: ssl.SSLContext | bool = True  # whom to trust there; True: as the system does


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """Everything a hook is told. None: unknown, or there is none; a command then has an empty variable."""

    attempt_id: str  # idempotency key: the same for every retry of one attempt
    target: str
    url: str
    group: str
    trigger: str  # "incident" | "schedule" | "manual" | "alertmanager"
    reason: str  # in words
    engine: str | None = None
    incident_id: str | None = None
    kind: str | None = None
    cause: str | None = None
    evidence_path: str | None = None
    namespace: str | None = None
    pod: str | None = None
    node: str | None = None
    process_start_time: float | None = None  # Unix seconds, of the server that is to be restarted

    def payload(self) -> dict[str, str | float | None]:
        """Return all as JSON holds it."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**told, "target_url": self.url}

    def environment(self) -> dict[str, str]:
        """Return all as a command's environment: VLLM_WATCH_ATTEMPT_ID and so on.

        VLLM_WATCH_URL would send a vllm-watch that the command runs to the engine: it is the daemon's.
        """
        return {
            ENVIRONMENT_PREFIX + name.upper(): "" if value is None else str(value)
            for name, value in self.payload().items()
            if name != "url"
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """How one call ended."""

    outcome: str  # DONE | REFUSED | FAILED | UNCERTAIN
    text: str  # one sentence, without secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a rehearsal found."""

    ok: bool
    text: str
    remedy: str | None = None


class Hook(Protocol):
    """Restarts servers in one way."""

    timeout_seconds: (
        float  # the longest that `restart` takes; the caller cuts it off a little later
    )

    async def refusal(self, call: HookCall) -> str | None:
        """Return why this hook must not be called for this server (nothing would start it again, the
        process is not found or is another one, the supervisor is waiting), or None. Changes nothing."""

    async def restart(self, call: HookCall) -> HookResult:
        """Restart the server. Never raises but CancelledError; a cancelled call leaves no child behind."""

    async def rehearse(self, call: HookCall) -> list[Finding]:
        """Try all that changes nothing: is it reachable, allowed, would it work? For `hook test`."""
