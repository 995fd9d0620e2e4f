"""Authenticate readers by client certificate, and by the users' passwords in the web configuration.

bcrypt is slow, so verified credentials are cached, as keyed digests. A valid password is always accepted,
sometimes after a wait.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import ssl
import time
from collections import OrderedDict
from collections.abc import Mapping
from weakref import WeakValueDictionary

import bcrypt
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from vllm_watch.export.answers import refusal
from vllm_watch.export.auth import guard_of, slower
from vllm_watch.export.web_config import WebConfig

_log = structlog.get_logger()

FAILURES_MAX, FAILURES_SECONDS = 10, 60.0
"""Allowed wrong passwords per address and minute. Further attempts wait PAUSE_SECONDS."""

TRY_AGAIN_SECONDS = 1.0
PAUSE_SECONDS = 0.2

VERIFIED_MAX = 100
"""Maximum cached credentials, as in exporter-toolkit."""

OPEN_PATH = "/-/healthy"
"""Path without authentication, because the kubelet's probes have no password."""

CALLERS_MAX = 1024
HEADER_CHARACTERS_MAX = 1024
_PASSWORD_BYTES_MAX = 72  # bcrypt ignores the rest
_NOBODY = "$2b$10$PvVXdGv/Kb6Sa0J.gT3GW.ozQcxvh4t1o4r.W/fraAlqBVgWmQt9K"  # of a random password


class TooManyError(Exception):
    """Too many wrong passwords from this address."""


class Passwords:
    """Checks credentials."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes()
        self._verified: OrderedDict[bytes, None] = OrderedDict()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._thread = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by address

    async def user(self, users: Mapping[str, str], header: str, caller: str) -> str | None:
        """Return the user's name, or None. Raises TooManyError."""
        given = credentials(header)
        if given is None:
            return None
        name, password = given
        known = users.get(name)
        digest = self._digest(name, known or "", password)
        if digest in self._verified:
            self._verified.move_to_end(digest)
            return name
        turn = self._turns.setdefault(caller, asyncio.Lock())
        async with turn:
            too_many = len(self._recent(caller)) >= FAILURES_MAX
            if too_many:
                await asyncio.sleep(PAUSE_SECONDS)
            # An unknown name takes as long as a known one.
            if await self._matches(password, known or _like(users)) and known is not None:
                self._verified[digest] = None
                while len(self._verified) > VERIFIED_MAX:
                    self._verified.popitem(last=False)
                return name
            self._count(caller)
        if too_many:
            raise TooManyError
        return None

    def _digest(self, name: str, known: str, password: bytes) -> bytes:
        """Return the cache key. It includes the configured hash, so that old passwords fail."""
        said = b"\0".join((name.encode(), known.encode(), password))
        return hmac.new(self._key, said, hashlib.sha256).digest()

    async def _matches(self, password: bytes, known: str) -> bool:
        async with self._thread:
            return await asyncio.to_thread(_check, password, known)

    def _recent(self, caller: str) -> list[float]:
        now_s = time.monotonic()
        return [t for t in self._failures.get(caller, ()) if now_s - t < FAILURES_SECONDS]

    def _count(self, caller: str) -> None:
        recent = [*self._recent(caller), time.monotonic()][-FAILURES_MAX:]
        if len(recent) < FAILURES_MAX:
            _log.warning("wrong_password", caller=caller)
        elif len(self._failures[caller]) < FAILURES_MAX:
            _log.warning("wrong_passwords", caller=caller, because="it now waits for each try")
        self._failures[caller] = recent
        self._failures.move_to_end(caller)
        while len(self._failures) > CALLERS_MAX:
            self._failures.popitem(last=False)


def credentials(header: str) -> tuple[str, bytes] | None:
    """Parse a Basic Authorization header."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic" or len(text) > HEADER_CHARACTERS_MAX:
        return None
    try:
        name, colon, password = base64.b64decode(text.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _like(users: Mapping[str, str]) -> str:
    """Return a hash that no password matches, with the users' bcrypt cost."""
    cost = max((known[4:6] for known in users.values()), default="10")
    return f"{_NOBODY[:4]}{cost}{_NOBODY[6:]}"


def _check(password: bytes, known: str) -> bool:
    try:
        # Other programs write the prefixes $2x$ and $2y$.
        return bcrypt.checkpw(password[:_PASSWORD_BYTES_MAX], f"$2b{known[3:]}".encode())
    except ValueError:  # e.g. a NUL in the password
        return False


def signed_in(config: WebConfig) -> Middleware:
    """Return the middleware that authenticates readers."""
    passwords = Passwords()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        settings = config.settings
        allowed = settings.tls_server_config.client_allowed_sans
        if allowed and _names(request).isdisjoint(allowed):
            return refusal(403, "This certificate names no permitted user",
                           "See client_allowed_sans in the web configuration")  # fmt: skip
        users = settings.basic_auth_users
        if not users or request.path == OPEN_PATH or _brings_token(request):
            return await handler(request)
        header = request.headers.get("Authorization", "")
        try:
            user = await passwords.user(users, header, request.remote or "unknown")
        except TooManyError:
            return slower("Too many wrong passwords", TRY_AGAIN_SECONDS)
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
    return scheme.lower() == "bearer" and guard is not None and guard.auth.exists


def _names(request: web.Request) -> frozenset[str]:
    secure = request.transport.get_extra_info("ssl_object") if request.transport else None
    certificate = secure.getpeercert() if isinstance(secure, ssl.SSLObject) else None
    found = (certificate or {}).get("subjectAltName", ())
    return frozenset(str(name) for _, name in found) if isinstance(found, tuple) else frozenset()
