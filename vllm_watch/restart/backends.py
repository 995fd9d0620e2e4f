"""Build hooks and locks, and ask Prometheus whether a query or an alert blocks a restart.

If a hook or lock cannot be built, the result is None, and the guard refuses. Without an answer of
Prometheus, the restart is blocked. Source: kured's alert gate.
"""

import asyncio
import importlib
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import aiohttp
import structlog

from vllm_watch.clients import http_answer
from vllm_watch.clients.signed_post import new_session
from vllm_watch.config import Config
from vllm_watch.errors import WatchError
from vllm_watch.restart.facts import Answer
from vllm_watch.restart.gates import Gates
from vllm_watch.restart.hooks import base
from vllm_watch.restart.hooks.base import Hook, Tools
from vllm_watch.restart.locks.base import Lock
from vllm_watch.settings.hooks import HookSettings
from vllm_watch.settings.restart import BlockersSettings, LockSettings
from vllm_watch.support import json_text, regular_file

_log = structlog.get_logger()

ANSWER_BYTES_MAX = 4 << 20  # a longer result also blocks
_TOKEN_BYTES_MAX = 8192
_NAMED = 3
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
        return await ask(settings, self._session)

    def _log_once(self, event: str, name: str, because: str) -> None:
        if (event, name) not in self._logged:
            self._logged.add((event, name))
            _log.error(event, name=name, because=because)


def _own_namespace() -> str:
    try:
        return regular_file.read(_NAMESPACE_FILE, 4096).decode().strip()
    except (OSError, ValueError):
        return ""


async def ask(settings: BlockersSettings, session: aiohttp.ClientSession) -> tuple[Answer, ...]:
    """Return one answer per query and one for the alerts. Never raises."""
    questions = [_query(settings, session, query) for query in settings.queries]
    if settings.alerts:
        questions.append(_alerts(settings, session))
    return tuple(await asyncio.gather(*questions))


async def _query(settings: BlockersSettings, session: aiohttp.ClientSession, query: str) -> Answer:
    name = f"query {query!r}"
    try:
        data = await _get(settings, session, "query", {"query": query})
        result = data["result"]
        series = result if data["resultType"] != "scalar" else [{"metric": {}}]
        if not isinstance(series, list):
            raise TypeError("the result is not a list")
        labels = [json.dumps(each["metric"], sort_keys=True) for each in series]
    except _TROUBLE as error:
        return _no_answer(name, error)
    if not labels:
        return Answer(name=name, allows=True, text="returns nothing")
    return Answer(name=name, allows=False, text=f"returns {_some(labels)}")


async def _alerts(settings: BlockersSettings, session: aiohttp.ClientSession) -> Answer:
    name = f"alerts {settings.alerts!r}"
    try:
        data = await _get(settings, session, "alerts", {})
        pattern = re.compile(settings.alerts)
        firing = sorted(
            {
                alert["labels"]["alertname"]
                for alert in data["alerts"]
                if alert["state"] == "firing" and pattern.fullmatch(alert["labels"]["alertname"])
            }
        )
    except (*_TROUBLE, re.error) as error:
        return _no_answer(name, error)
    if not firing:
        return Answer(name=name, allows=True, text="none fires")
    return Answer(name=name, allows=False, text=f"{_some(firing)} fires")


async def _get(
    settings: BlockersSettings, session: aiohttp.ClientSession, what: str, query: dict[str, str]
) -> dict[str, Any]:
    url = f"{str(settings.prometheus_url).rstrip('/')}/api/v1/{what}"
    headers = {}
    if settings.token_file is not None:
        token = await asyncio.to_thread(
            regular_file.read, settings.token_file, _TOKEN_BYTES_MAX, if_exposed="warned"
        )
        headers["Authorization"] = f"Bearer {token.decode().strip()}"
    timeout = aiohttp.ClientTimeout(total=settings.timeout_seconds)
    async with session.get(
        url, params=query, headers=headers, timeout=timeout, allow_redirects=False
    ) as response:
        body = await http_answer.body(response, ANSWER_BYTES_MAX)
    if response.status != 200:  # noqa: PLR2004
        raise ValueError(f"answers with HTTP {response.status}")
    document = json_text.read(body)
    if document["status"] != "success":
        raise ValueError("does not answer with success")
    if document.get("warnings"):
        # Thanos warns if a store did not answer. That store may hold a series that blocks.
        raise ValueError(f"answers in part: {document['warnings']}")
    data: dict[str, Any] = document["data"]
    return data


_TROUBLE = (
    aiohttp.ClientError,
    TimeoutError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
)


def _no_answer(name: str, error: Exception) -> Answer:
    text = "timed out" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
    return Answer(name=name, allows=None, text=f"gave no usable answer ({text[:200]})")


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
