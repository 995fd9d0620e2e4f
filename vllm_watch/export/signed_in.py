"""Authenticate readers by password or client certificate."""

import ssl

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from vllm_watch.export import tls
from vllm_watch.export.answers import refusal
from vllm_watch.export.guarded import guard_of
from vllm_watch.export.passwords import TRY_AGAIN_SECONDS, Passwords, TooManyError
from vllm_watch.export.web_config import WebConfig

OPEN_PATH = "/-/healthy"
"""Path without authentication, because the kubelet's probes have no password."""


def signed_in(config: WebConfig) -> Middleware:
    """Return the middleware that authenticates readers."""
    passwords = Passwords()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        settings = config.settings
        allowed = settings.tls_server_config.client_allowed_sans
        if allowed and tls.names(_certificate(request)).isdisjoint(allowed):
            return refusal(403, "This certificate names no permitted user",
                           "See client_allowed_sans in the web configuration")  # fmt: skip
        users = settings.basic_auth_users
        if not users or request.path == OPEN_PATH or _brings_token(request):
            return await handler(request)
        header = request.headers.get("Authorization", "")
        try:
            user = await passwords.user(users, header, request.remote or "unknown")
        except TooManyError:
            response = refusal(429, "Too many wrong passwords", f"Wait {TRY_AGAIN_SECONDS:g} s")
            response.headers["Retry-After"] = f"{TRY_AGAIN_SECONDS:g}"
            return response
        if user is not None:
            return await handler(request)
        response = refusal(401, "This needs a user and a password",
                           "Send those of basic_auth_users in the web configuration")  # fmt: skip
        response.headers["WWW-Authenticate"] = 'Basic realm="vllm-watch", charset="UTF-8"'
        return response

    return check


def _brings_token(request: web.Request) -> bool:
    scheme = request.headers.get("Authorization", "").partition(" ")[0]
    guard = guard_of(request)
    return scheme.lower() == "bearer" and guard is not None and guard.takes_tokens


def _certificate(request: web.Request) -> dict[str, object]:
    secure = request.transport.get_extra_info("ssl_object") if request.transport else None
    return dict(secure.getpeercert() or {}) if isinstance(secure, ssl.SSLObject) else {}
