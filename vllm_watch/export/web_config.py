"""The web configuration in use, and its TLS. A reload never removes TLS or passwords, because a file that is being written may be empty."""

import asyncio
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from vllm_watch.board.health import WebHealth
from vllm_watch.errors import ConfigError
from vllm_watch.settings import web
from vllm_watch.settings.web import TlsSettings, WebSettings
from vllm_watch.support import regular_file

LOOK_SECONDS = 5.0
"""Seconds between checks for changed files, such as a renewed certificate."""

STAT_SECONDS = 2.0
"""Maximum seconds to wait for a check, which may hang on a network folder."""

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_MODES = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_REMEDY = "give a certificate and its own key, both in PEM and readable by vllm-watch"
_DEFAULT_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # default for TLS 1.2

_log = structlog.get_logger()
_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class _Used:
    settings: WebSettings
    context: ssl.SSLContext | None
    stamp: _Stamp


def check(path: Path) -> WebSettings:
    """Read and check the file. Raises ConfigError."""
    return _load(path).settings


class WebConfig:
    """The current settings. Without a file, TLS and authentication are off."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._used = _Used(WebSettings(), None, ())
        self._seen: _Stamp = ()
        self._reading: asyncio.Future[None] | None = None
        self.health = None if path is None else WebHealth(str(path))

    @property
    def settings(self) -> WebSettings:
        return self._used.settings

    @property
    def context(self) -> ssl.SSLContext | None:
        return self._used.context

    def open(self) -> None:
        """Read the file once. Raises ConfigError."""
        if self._path is not None and not self._seen:
            self._use(_load(self._path))

    async def keep_up(self) -> None:
        while self._path is not None:
            await asyncio.sleep(LOOK_SECONDS)
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(asyncio.to_thread(self.look))
            await asyncio.wait({self._reading}, timeout=STAT_SECONDS)

    def look(self) -> None:
        """Apply changed files. Blocks on the disk."""
        if self._path is None or self.health is None:
            return
        # A refused configuration is read again at each check.
        now = _stamp((self._path, *self._used.settings.files))
        if self.health.problem is None and now == self._seen:
            return
        try:
            found = _load(self._path)
            _refuse_less(self._used, found)
        except ConfigError as error:
            self._refuse(error)
        else:
            self._use(found)
            _log.info("web_config_reloaded", file=str(self._path))

    def _use(self, found: _Used) -> None:
        self._used, self._seen = found, found.stamp
        if self.health is not None:
            self.health.problem = self.health.remedy = None
            self.health.last_success_timestamp_seconds = time.time()

    def _refuse(self, error: ConfigError) -> None:
        if self.health is not None and self.health.problem != error.cause:
            self.health.problem, self.health.remedy = error.cause, error.remedy
            _log.error("web_config_not_usable", cause=error.cause, remedy=error.remedy)


def _load(path: Path) -> _Used:
    # Stamp before reading, so that later changes are seen.
    before = _stamp((path,))
    settings = web.read(path)
    stamp = (*before, *_stamp(settings.files))
    try:
        return _Used(settings, context_of(settings.tls_server_config), stamp)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.cause}", error.remedy) from None


def _refuse_less(used: _Used, found: _Used) -> None:
    before, after = used.settings, found.settings
    lost = {
        "TLS": used.context is not None and found.context is None,
        "passwords": bool(before.basic_auth_users) and not after.basic_auth_users,
        "client certificates": before.tls_server_config.client_auth_type == "RequireAndVerifyClientCert"
        and after.tls_server_config.client_auth_type != "RequireAndVerifyClientCert",
    }  # fmt: skip
    for what, is_lost in lost.items():
        if is_lost:
            cause = f"it no longer requires {what}, and a reload must not remove a protection"
            raise ConfigError(cause, "restart vllm-watch if this is intended")


def _stamp(files: tuple[Path, ...]) -> _Stamp:
    return tuple(map(_stamp_of, files))


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        return regular_file.stamp(os.stat(file))
    except OSError:
        return None


def context_of(settings: TlsSettings) -> ssl.SSLContext | None:
    """Return the TLS context, or None without TLS. Raises ConfigError."""
    if settings.cert_file is None or settings.key_file is None:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    only_13 = bool(settings.cipher_suites) and not settings.ciphers
    made.minimum_version = _VERSIONS["TLS13" if only_13 else settings.min_version]
    made.maximum_version = _VERSIONS[settings.max_version]
    made.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if not settings.prefer_server_cipher_suites:
        made.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    made.set_ciphers(":".join(settings.ciphers) or _DEFAULT_CIPHERS)
    made.set_alpn_protocols(["http/1.1"])
    try:
        regular_file.check(settings.cert_file)
        regular_file.check(settings.key_file, if_exposed="warned")
        made.load_cert_chain(settings.cert_file, settings.key_file, password=lambda: b"")
    except OSError as error:
        files = f"{settings.cert_file} with {settings.key_file}"
        raise ConfigError(f"tls_server_config: {files}: {_why(error)}", _REMEDY) from None
    except ValueError as error:
        raise ConfigError(f"tls_server_config: {settings.key_file}: {error}", _REMEDY) from None
    if settings.client_ca_file is not None:
        try:
            regular_file.check(settings.client_ca_file)
            made.load_verify_locations(cafile=settings.client_ca_file)
        except OSError as error:
            cause = f"tls_server_config.client_ca_file: {settings.client_ca_file}: {_why(error)}"
            raise ConfigError(cause, "give CA certificates, in PEM") from None
        made.verify_mode = _MODES[settings.client_auth_type]
    return made


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        reasons = {"KEY_VALUES_MISMATCH": "the key does not match the certificate"}
        return reasons.get(error.reason or "", f"cannot be used ({error.reason or 'no PEM'})")
    return (error.strerror or str(error)).lower()
