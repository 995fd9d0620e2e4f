"""Build hooks and locks, and ask blockers.

If a hook or lock cannot be built, the result is None, and the guard refuses.
"""

import importlib
import os
import socket
from pathlib import Path
from typing import Any

import aiohttp
import structlog

from vllm_watch.clients.signed_post import new_session
from vllm_watch.config import Config
from vllm_watch.errors import WatchError
from vllm_watch.restart import blockers
from vllm_watch.restart.facts import Answer
from vllm_watch.restart.gates import Gates
from vllm_watch.restart.hooks import base
from vllm_watch.restart.hooks.base import Hook, Tools
from vllm_watch.restart.locks.base import Lock
from vllm_watch.settings.hooks import HookSettings
from vllm_watch.settings.restart import BlockersSettings, LockSettings
from vllm_watch.support import regular_file

_log = structlog.get_logger()

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Backends:
    """Builds hooks and locks from the current configuration."""

    def __init__(self, config: Config, gates: Gates) -> None:
        self.holder = f"{socket.gethostname()} process {os.getpid()}"
        self._config = config
        self._tools = Tools(
            procfs=config.procfs, namespace=_own_namespace(), gates=gates, state_dir=config.state_dir
        )  # fmt: skip
        self._hooks: dict[str, tuple[tuple[str, HookSettings], Hook]] = {}
        self._logged: set[tuple[str, str]] = set()
        self._session: aiohttp.ClientSession | None = None

    def configure(self, config: Config) -> None:
        self._config = config
        self._logged.clear()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def hook(self, name: str) -> Hook | None:
        """Return the same hook until its settings change, because some hooks hold state."""
        wanted = self._config.hooks.by_name().get(name)
        if wanted is None:
            return None
        if name not in self._hooks or self._hooks[name][0] != wanted:
            try:
                self._hooks[name] = wanted, base.make(*wanted, self._tools)
            except WatchError as error:
                self._log_once("hook_not_made", name, error.cause)
                return None
        return self._hooks[name][1]

    def lock(self, settings: LockSettings) -> Lock | None:
        if settings.kind == "none":
            return None
        try:
            module: Any = importlib.import_module(f"vllm_watch.restart.locks.{settings.kind}")
            lock: Lock = module.make(settings, self._tools)
        except (WatchError, ImportError, OSError) as error:
            self._log_once("lock_not_made", settings.kind, str(error))
            return None
        return lock

    async def ask_blockers(self, settings: BlockersSettings) -> tuple[Answer, ...]:
        if self._session is None:
            self._session = new_session()
        return await blockers.ask(settings, self._session)

    def _log_once(self, event: str, name: str, because: str) -> None:
        if (event, name) not in self._logged:
            self._logged.add((event, name))
            _log.error(event, name=name, because=because)


def _own_namespace() -> str:
    try:
        return regular_file.read(_NAMESPACE_FILE, 4096).decode().strip()
    except (OSError, ValueError):
        return ""
