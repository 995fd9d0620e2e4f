"""Authorize, rate-limit and log requests to every endpoint that makes changes."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from vllm_watch.export.answers import refusal
from vllm_watch.export.auth import Auth
from vllm_watch.support.caller import Caller

ANSWER_SECONDS = 30.0
"""Maximum seconds for a change, enough for the restart guard's checks and lock."""

_log = structlog.get_logger()


Handle = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]
Known = Callable[[web.Request], str | None]
"""Returns the name of a caller that needs no token, else None."""


class Guarded:
    """Calls `inner` if the caller has the right."""

    def __init__(self, auth: Auth, right: str, inner: Handle, known: Known | None = None) -> None:
        self.right = right
        self._auth = auth
        self._inner = inner
        self._known = known

    @property
    def takes_tokens(self) -> bool:
        return self._auth.exists

    async def handle(self, request: web.Request) -> web.StreamResponse:
        source = request.remote or "unknown"
        actor = self._actor(request)
        if not isinstance(actor, str):
            return actor
        caller = Caller(actor=actor, source=source)
        status: int | str = "cut off"
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._inner(request, caller)
            status = response.status
        except TimeoutError:
            response = refusal(
                504, "There was no answer in time", "The journal shows whether it was done"
            )
            status = response.status
        finally:
            _log.info("change_asked", actor=actor, source=source, path=request.path, status=status)
        return response

    def _actor(self, request: web.Request) -> str | web.Response:
        if "Authorization" not in request.headers or not self._auth.exists:
            known = None if self._known is None else self._known(request)
            if known is not None:
                return self._auth.too_fast(known, self.right) or known
        if not self._auth.exists:
            return refusal(403, f"{request.remote} may not {self.right}",
                           "Ask from the watcher's own host, send SIGHUP, or configure api.tokens")  # fmt: skip
        return self._auth.actor(request, self.right)


def guard_of(request: web.Request) -> Guarded | None:
    """Return the Guarded of the requested route, or None."""
    owner = getattr(request.match_info.handler, "__self__", None)
    return owner if isinstance(owner, Guarded) else None
