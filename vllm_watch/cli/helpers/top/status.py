"""Client of a daemon's HTTP API."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import aiohttp
from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

from vllm_watch.board.restarts import RestartPlan, RestartState
from vllm_watch.cli.helpers.connection import Connection
from vllm_watch.clients import http_answer
from vllm_watch.errors import WatchError
from vllm_watch.incidents.incident import Incident
from vllm_watch.incidents.way import Step
from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample
from vllm_watch.samples.target import WATCHER
from vllm_watch.signals.holders.records import STALE, Judged
from vllm_watch.signals.records import Advice, Sight, TargetSignals
from vllm_watch.state.journal import Attempted, Entry, Told

_TIMEOUT_SECONDS = 5.0
_BODY_BYTES_MAX = 64 << 20  # for 10,000 targets
_LATE_INTERVALS = 3  # missed scrapes


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedProcess(ProcessSample):
    """A process on a GPU, with the daemon's verdict on its memory."""

    verdict: str = "unknown"
    reason: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedGpu(GpuSample):
    """A GPU with its stale memory. Values that are not judged are None."""

    processes: tuple[JudgedProcess, ...] | None = None
    targets: tuple[str, ...] = ()
    stale_bytes: int | None = None  # held by stale processes
    unaccounted_bytes: int | None = None  # held by no visible process
    unaccounted: Judged | None = None

    @property
    def lost_bytes(self) -> int:
        nobody = self.unaccounted is not None and self.unaccounted.verdict == STALE
        return (self.stale_bytes or 0) + ((self.unaccounted_bytes or 0) if nobody else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedReading(GpuReading):
    """All GPUs of the daemon's host."""

    gpus: tuple[JudgedGpu, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldIncident(Incident):
    """An incident in the API."""

    title: str = ""
    first_step: str = ""
    cost: str = ""
    severity_reason: str = ""  # why it is not critical
    restart_outcome: str = ""
    runbook: str = ""
    runbook_url: str = ""

    @property
    def to_do(self) -> str:
        where = " on the page" if self.runbook_url.startswith("/") else ""
        return f"{self.first_step} Runbook{where}: {self.runbook_url or self.runbook}"


class SourceStatus(BaseModel):
    """The last call to one source."""

    outcome: str = ""
    last_success_timestamp_seconds: float | None = None


class StoreStatus(BaseModel):
    """Whether the state folder was writable."""

    ok: bool = True
    because: str | None = None


def _incident(said: object) -> object:
    if not isinstance(said, Mapping):
        return said
    evidence = said.get("evidence") or {}
    names = ("opened", "updated", "resolved", "ended", "closes")
    times = {name: said.get(f"{name}_timestamp_seconds") for name in names}
    began_t = said.get("began_timestamp_seconds")  # absent from older watchers
    return {
        **said,
        **{f"{name}_t": t for name, t in times.items()},
        "began_t": times["opened"] if began_t is None else began_t,
        "evidence_for": evidence.get("for", ()),
        "evidence_against": evidence.get("against", ()),
    }


Incidents = tuple[Annotated[ToldIncident, BeforeValidator(_incident)], ...]


class HostStatus(BaseModel):
    """The daemon's host."""

    incidents: Incidents = ()  # of the host's GPUs


def _signals(said: object) -> object:
    """Rename a start failure's `class`, which cannot be a field's name."""
    failed = said.get("start_failure") if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(failed, Mapping):
        return said
    return {**said, "start_failure": {**failed, "failure": failed.get("class")}}


class TargetStatus(BaseModel):
    """One target."""

    name: str
    url: str
    group: str = ""
    interval_seconds: float = 5.0
    state: str
    state_text: str = ""
    signals: Annotated[TargetSignals | None, BeforeValidator(_signals)] = None
    advice: tuple[Advice, ...] = ()
    detectors: dict[str, Sight] = {}
    sources: dict[str, SourceStatus] = {}
    incidents: Incidents = ()  # open ones, worst first
    restart: RestartPlan | None = None  # None if restarts are off

    def is_late(self, t: float) -> bool:
        limit_seconds = _LATE_INTERVALS * self.interval_seconds
        return self.signals is not None and t - self.signals.t > limit_seconds


class Status(BaseModel):
    """The whole status. Unknown keys are ignored."""

    version: str
    t: float
    window_seconds: float
    not_ready: str | None = None
    nothing_watched: str | None = None
    uptime_seconds: float | None = None
    sources: dict[str, SourceStatus] = {}  # of the daemon's host
    store: StoreStatus | None = None  # None without a state folder
    restarts: RestartState | None = None  # None if restarts are off everywhere
    gpus: JudgedReading | None = None  # None until the first reading
    targets: list[TargetStatus]
    host: HostStatus = HostStatus()
    incidents: Incidents = ()  # about the watcher or several targets


_Told = TypeVar("_Told")


class _Incidents(BaseModel):
    incidents: Incidents


@dataclass(frozen=True, slots=True, kw_only=True)
class _Journal(Told):
    entries: tuple[Attempted | Entry, ...]


class Charted(BaseModel):
    """One engine's charts. `series` maps signals to values at the times `t`."""

    t: list[float]
    series: dict[str, list[float | None]]


class _History(BaseModel):
    engines: dict[str, Charted]


class Explanation(BaseModel):
    """Why the incident is not critical (`no_page`), and why no restart is advised (`no_restart`)."""

    severity: str
    no_page: str
    no_restart: str
    way: tuple[Step, ...]


class Explained(BaseModel):
    """An incident with the steps to its verdict."""

    id: str
    target: str
    engine: str | None
    title: str
    kind: str
    cause: str
    severity: str
    phase: str
    resolution: str | None
    summary: str
    began_timestamp_seconds: float
    ended_timestamp_seconds: float | None
    explanation: Explanation


class _Refused(BaseModel):
    error: str
    remedy: str


class Daemon:
    """A client that keeps its connection open. Every request may raise WatchError."""

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | bool = True
    ) -> None:
        self.url = url
        self._headers = dict(headers or {})
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def at(cls, connection: Connection) -> "Daemon":
        return cls(connection.url, connection.headers(), connection.tls())

    async def status(self) -> Status:
        """Fetch the status within five seconds."""
        status = await self._ask("status", Status)
        # The status lacks the watcher's own incidents.
        own = await self._ask(f"incidents?state=open&target={WATCHER}", _Incidents)
        return status.model_copy(update={"incidents": own.incidents})

    async def charts(self, target: str) -> Mapping[str, Charted]:
        """Fetch a target's charts of the last ten minutes."""
        said = await self._ask(f"history?target={quote(target, safe='')}", _History)
        return said.engines

    async def journal(self, since_t: float) -> Told:
        return await self._ask(f"journal?since={since_t}", _Journal)

    async def explained(self, name: str) -> Explained:
        return await self._ask(f"incidents/{quote(name, safe='')}?debug=true", Explained)

    async def _ask(self, what: str, kind: type[_Told]) -> _Told:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout)
        try:
            body = await self._get(self._session, what)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = http_answer.why_none(error, _TIMEOUT_SECONDS)
            remedy = "start vllm-watch there, or give its address: --url http://HOST:9470"
            raise WatchError(f"no answer from {self.url}: {why}", remedy) from None
        try:
            # Parsing a thousand targets here would delay key presses.
            return await asyncio.to_thread(TypeAdapter(kind).validate_json, body)
        except ValidationError:
            cause = f"{self.url} does not answer as vllm-watch does"
            raise WatchError(cause, "check the address, and that both are of one version") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _get(self, session: aiohttp.ClientSession, what: str) -> bytes:
        if session.closed:
            raise WatchError(f"{self.url} is not asked any more", "start vllm-watch top again")
        url = f"{self.url}/api/v1/{what}"
        async with session.get(
            url, allow_redirects=False, headers=self._headers, ssl=self._tls
        ) as answer:
            if answer.status == HTTPStatus.UNAUTHORIZED:
                remedy = "name the file that holds yours with --credentials-file"
                raise WatchError(f"{self.url} asks for a user and a password", remedy)
            body = await http_answer.body(answer, _BODY_BYTES_MAX)
        if answer.status == HTTPStatus.OK:
            return body
        cause = f"{self.url} answers with HTTP status {answer.status}"
        try:
            refused = _Refused.model_validate_json(body)
        except ValidationError:
            raise WatchError(cause, "check the address") from None
        raise WatchError(f"{cause}: {refused.error}", refused.remedy)


def asked(
    connection: Connection, question: Callable[[Daemon], Coroutine[Any, Any, _Told]]
) -> _Told:
    """Ask a daemon one question. Raises WatchError."""

    async def ask() -> _Told:
        daemon = Daemon.at(connection)
        try:
            return await question(daemon)
        finally:
            await daemon.close()

    return asyncio.run(ask())
