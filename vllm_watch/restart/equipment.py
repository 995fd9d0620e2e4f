"""What restarts are carried out with, made from the configuration: hooks, locks, blockers, policies.

Whatever cannot be made is not there, which the guard takes for a no; the log says once why.
"""

import importlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp
import structlog

from vllm_watch.clients.signed_post import new_session
from vllm_watch.config import Config
from vllm_watch.errors import WatchError
from vllm_watch.restart import blockers, hook_kinds
from vllm_watch.restart.facts import Answer
from vllm_watch.restart.gates import Gates
from vllm_watch.restart.hooks.base import Hook, Tools
from vllm_watch.restart.locks import file as file_lock
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.means import Means
from vllm_watch.restart.policy import Policy
from vllm_watch.settings import windows
from vllm_watch.settings.hooks import HookSettings
from vllm_watch.settings.restart import BlockersSettings, LockSettings, RestartSettings
from vllm_watch.settings.windows import Freeze

_log = structlog.get_logger()

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

MakeLock = Callable[[LockSettings, Tools], Lock]


class Equipment:
    """Made once; `configure` changes what it is made from."""

    def __init__(self, config: Config, gates: Gates) -> None:
        self._config = config
        self._hooks: dict[str, tuple[tuple[str, HookSettings], Hook]] = {}
        self._told: set[str] = set()
        self._session: aiohttp.ClientSession | None = None
        self.tools = Tools(procfs=config.procfs, namespace=_own_namespace(), gates=gates)

    def configure(self, config: Config) -> None:
        """Use this configuration from now on."""
        self._config = config
        self._told.clear()

    async def close(self) -> None:
        """Close what was opened."""
        if self._session is not None:
            await self._session.close()

    def means(self) -> Means:
        """Return it as the dispatcher takes it."""
        return Means(
            hook=self._hook, lock=self._lock, ask_blockers=self._ask, policy=self._policy,
            holder=f"{socket.gethostname()} process {os.getpid()}",
        )  # fmt: skip

    def _hook(self, name: str) -> Hook | None:
        """One object for each hook as long as its settings are the same: some remember what they do."""
        wanted = self._config.hooks.by_name().get(name)
        if wanted is None:
            return None
        known = self._hooks.get(name)
        if known is not None and known[0] == wanted:
            return known[1]
        try:
            hook = hook_kinds.make(*wanted, self.tools)
        except WatchError as error:
            self._tell_once("hook_not_made", name, error.cause)
            return None
        self._hooks[name] = wanted, hook
        return hook

    def _lock(self, settings: RestartSettings) -> Lock | None:
        wanted = settings.lock
        if wanted.kind == "none":
            return None
        try:
            if wanted.kind == "file":
                return self._file_lock(wanted)
            module: Any = importlib.import_module(f"vllm_watch.restart.locks.{wanted.kind}")
            make: MakeLock = module.make
            return make(wanted, self.tools)
        except (WatchError, ImportError, AttributeError, OSError) as error:
            self._tell_once("lock_not_made", wanted.kind, str(error))
            return None

    def _file_lock(self, wanted: LockSettings) -> Lock | None:
        folder = wanted.path
        if folder is None and self._config.state_dir is not None:
            folder = self._config.state_dir / "locks"
        if folder is None:
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return file_lock.Lock(
            folder, wanted.name, slots=wanted.slots, ttl_seconds=wanted.ttl_seconds,
            per_hour=wanted.restarts_per_hour_max,
        )  # fmt: skip

    async def _ask(self, settings: BlockersSettings) -> tuple[Answer, ...]:
        if self._session is None:
            self._session = new_session()
        return await blockers.ask(settings, self._session)

    def _policy(self, settings: RestartSettings) -> Policy:
        asks = settings.blockers
        return Policy(
            mode=settings.mode,
            triggers=frozenset(settings.triggers),
            windows=tuple(map(windows.parse, settings.windows)),
            deny_windows=tuple(map(windows.parse, settings.deny_windows)),
            freezes=tuple(
                Freeze(each.begin.timestamp(), each.end.timestamp(), each.reason)
                for each in settings.freezes
            ),
            zone=ZoneInfo(settings.time_zone),
            cooldown_seconds=settings.cooldown_seconds,
            cooldown_load_times=settings.cooldown_load_times,
            budget_per_hour=settings.budget_per_hour,
            budget_per_day=settings.budget_per_day,
            blockers=(*asks.queries, *((asks.alerts,) if asks.alerts else ())),
            has_lock=settings.lock.kind != "none",
            peers_matter=settings.peers != "none",
            peers_healthy_ratio_min=settings.peers_healthy_ratio_min,
            new_version_seconds=settings.new_version_seconds,
        )

    def _tell_once(self, event: str, name: str, because: str) -> None:
        if f"{event} {name}" not in self._told:
            self._told.add(f"{event} {name}")
            _log.error(event, name=name, because=because)


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except (OSError, ValueError):
        return ""
