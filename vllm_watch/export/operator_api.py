"""The endpoints that make changes. Each needs a token."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from vllm_watch.clients import http_answer
from vllm_watch.errors import JournalError, WatchError
from vllm_watch.export.answers import BODY_SECONDS, LARGE_BODIES_PATH, TimedResponse, refusal
from vllm_watch.export.auth import Auth, Guarded
from vllm_watch.export.status import to_json
from vllm_watch.support import json_text
from vllm_watch.support.redaction import redacted
from vllm_watch.support.token_file import Caller

ALERTS_BYTES_MAX = 1 << 20
"""Maximum bytes from Alertmanager, enough for a thousand alerts."""

TEXT_CHARACTERS_MAX = 500
MINUTES_MAX = 60 * 24 * 30


Reply = tuple[int, Mapping[str, Any]]
"""HTTP status and JSON."""


class Operators(Protocol):
    """Actions of operators. Each may raise WatchError or JournalError."""

    async def restart(
        self, caller: Caller, target: str, reason: str, override_reason: str | None
    ) -> Reply: ...

    async def approve(self, caller: Caller, incident_id: str) -> Reply: ...

    async def silence(
        self, caller: Caller, incident_id: str, reason: str, minutes: float
    ) -> Reply: ...

    async def pause(self, caller: Caller, reason: str, minutes: float | None) -> Reply:
        """Pause restarts for `minutes`, or until resumed."""

    async def resume(self, caller: Caller, reason: str) -> Reply:
        """End the pause and close the circuit breakers."""

    async def alerts(self, caller: Caller, document: Mapping[str, Any]) -> Reply: ...


TestNotifier = Callable[[str], Awaitable[Reply]]
"""Sends a test message through the named notifier. Raises WatchError."""

Act = Callable[..., Awaitable[Reply]]
"""Arguments: the caller, the names in the path, and the values from the body."""

Read = Callable[["_Body"], tuple[Any, ...]]


def routes(
    auth: Auth, operators: Operators | None, test_notifier: TestNotifier | None = None
) -> list[web.RouteDef]:
    """Return the routes. Without `operators`, only notifiers can be tested."""

    def change(path: str, right: str, act: Act, read: Read = lambda _: ()) -> web.RouteDef:
        async def changed(request: web.Request, caller: Caller) -> Reply:
            body = _Body(await request.read())
            given = read(body)
            body.done()
            return await act(caller, *request.match_info.values(), *given)

        return _guarded(auth, path, right, changed)

    if not auth.exists:
        return []
    found = []
    if test_notifier is not None:
        path = "/api/v1/notifiers/{name}/test"
        found.append(change(path, "notify", lambda _, name: test_notifier(name)))
    if operators is None:
        return found

    async def alerts(request: web.Request, caller: Caller) -> Reply:
        return await operators.alerts(caller, _document(await _bounded(request)))

    return [
        *found,
        change("/api/v1/targets/{target}/restart", "restart", operators.restart, lambda body: (
            body.text("reason"), body.text("override_freeze", required=False) or None,
        )),
        change("/api/v1/incidents/{id}/approve", "approve", operators.approve),
        change("/api/v1/incidents/{id}/silence", "silence", operators.silence,
               lambda body: (body.text("reason"), body.minutes(default=60.0) or 60.0)),
        change("/api/v1/pause", "pause", operators.pause,
               lambda body: (body.text("reason"), body.minutes(default=None))),
        change("/api/v1/resume", "pause", operators.resume, lambda body: (body.text("reason", required=False),)),
        _guarded(auth, LARGE_BODIES_PATH, "alertmanager", alerts),
    ]  # fmt: skip


def _guarded(
    auth: Auth, path: str, right: str, act: Callable[[web.Request, Caller], Awaitable[Reply]]
) -> web.RouteDef:
    async def answered(request: web.Request, caller: Caller) -> web.StreamResponse:
        try:
            status, said = await act(request, caller)
        except JournalError as error:  # Alertmanager retries a 503
            return refusal(503, error.cause, error.remedy)
        except WatchError as error:
            return refusal(400, error.cause, error.remedy)
        return TimedResponse(
            status=status, body=to_json(dict(said)).encode(), content_type="application/json"
        )

    return web.post(path, Guarded(auth, right, answered).handle)


class _Body:
    def __init__(self, body: bytes) -> None:
        self._left = dict(_document(body)) if body.strip() else {}

    def text(self, key: str, *, required: bool = True) -> str:
        value = self._left.pop(key, "")
        if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
            raise WatchError(
                f"{key} is not a text of at most {TEXT_CHARACTERS_MAX} characters", "Shorten it"
            )
        line = " ".join(value.split())
        # Terminals obey control characters, and the journal cannot encode a lone surrogate.
        if not line.isprintable():
            raise WatchError(f"{key} holds control characters", "Send plain text")
        if required and not line:
            raise WatchError(f"{key} is missing", f'Give a reason: {{"{key}": "..."}}')
        return redacted(line)

    def minutes(self, default: float | None) -> float | None:
        value = self._left.pop("minutes", default)
        if value is None:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value <= MINUTES_MAX:
            cause = f"minutes is not a number above 0 and up to {MINUTES_MAX}"
            raise WatchError(cause, 'Write {"minutes": 60}')
        return float(value)

    def done(self) -> None:
        if self._left:
            raise WatchError(f"unknown key {next(iter(self._left))[:50]!r}", "Leave it out")


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        document = json_text.read(body)
    except ValueError:
        raise WatchError("The body is not JSON", "Send a JSON object") from None
    if not isinstance(document, dict):
        raise WatchError("The body is not a JSON object", "Send a JSON object")
    return document


async def _bounded(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await http_answer.body(request, ALERTS_BYTES_MAX)
    except http_answer.TooLongError:
        cause = f"The body is larger than {ALERTS_BYTES_MAX >> 20} MiB"
        raise WatchError(cause, "Send smaller groups") from None
    except TimeoutError:
        raise WatchError("The body did not arrive in time", "Send it again") from None
