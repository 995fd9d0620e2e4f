"""What a running daemon says at GET /api/v1/status, read into the records it was made of."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from http import HTTPStatus

import aiohttp
from pydantic import BaseModel, ValidationError

from vllm_watch.cli.connection import Connection
from vllm_watch.errors import WatchError
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.signals.records import Advice, TargetSignals

_TIMEOUT_SECONDS = 5.0
_BODY_BYTES_MAX = 64 << 20  # 10,000 targets of one engine each


class TargetStatus(BaseModel):
    """One target: who it is and its last signals, None before the first look."""

    name: str
    url: str
    group: str = ""
    interval_seconds: float = 5.0
    state: str
    state_text: str = ""
    signals: TargetSignals | None = None
    advice: tuple[Advice, ...] = ()


class Status(BaseModel):
    """Everything at one moment; keys that a newer daemon adds are not read."""

    version: str
    t: float  # Unix seconds, by the daemon's clock
    window_seconds: float
    not_ready: str | None = None
    gpus: GpuReading | None = None  # None: not looked at yet
    targets: list[TargetStatus]


class Daemon:
    """A running vllm-watch, asked over one connection that is kept."""

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | bool = True
    ) -> None:
        self.url = url
        self._headers = dict(headers or {})
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def at(cls, connection: Connection) -> "Daemon":
        """Return the one that a command line names. Raises WatchError."""
        return cls(connection.url, connection.headers(), connection.tls())

    async def status(self) -> Status:
        """Ask for the status.

        Raises:
            WatchError: no answer within five seconds, or one that is not vllm-watch's.
        """
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout)
        try:
            body = await self._get(self._session)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise WatchError(
                f"no answer from {self.url}: {_why(error)}", "is it running there?"
            ) from None
        try:
            # In a thread: a thousand targets take longer to read than a key may wait.
            return await asyncio.to_thread(Status.model_validate_json, body)
        except ValidationError:
            cause = f"{self.url} does not answer as vllm-watch does"
            raise WatchError(cause, "check the address, and that both are of one version") from None

    async def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()

    async def _get(self, session: aiohttp.ClientSession) -> bytes:
        url = f"{self.url}/api/v1/status"
        async with session.get(
            url, allow_redirects=False, headers=self._headers, ssl=self._tls
        ) as answer:
            if answer.status == HTTPStatus.UNAUTHORIZED:
                remedy = "name the file that holds yours with --credentials-file"
                raise WatchError(f"{self.url} asks for a user and a password", remedy)
            if answer.status != HTTPStatus.OK:
                raise WatchError(
                    f"{self.url} answers with HTTP status {answer.status}", "check the address"
                )
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > _BODY_BYTES_MAX:
                    raise WatchError(f"{self.url} answers without end", "check the address")
            return bytes(body)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing within {_TIMEOUT_SECONDS:g} s"
    number = getattr(error, "errno", None)
    return (
        os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
    ).lower()
