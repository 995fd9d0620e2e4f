"""The web configuration file of Prometheus exporters.

Options that only Go's TLS supports are refused. Source: github.com/prometheus/exporter-toolkit,
docs/web-configuration.md.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from vllm_watch.errors import ConfigError
from vllm_watch.settings import yaml_text
from vllm_watch.settings.base import FilePath, Problem, Sections, problem, problems, quoted
from vllm_watch.settings.errors import InvalidConfigError, dotted, explained

FILE_BYTES_MAX = 1 << 20
USERS_MAX = 1000

BCRYPT_COST_MAX = 14
"""Maximum cost of a password hash. A check takes a second at 14, and each step doubles the time."""

_BCRYPT = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")

CIPHERS: Mapping[str, str | None] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": None,
    "TLS_AES_256_GCM_SHA384": None,
    "TLS_CHACHA20_POLY1305_SHA256": None,
}
"""Go's cipher suites with their OpenSSL names. The name is None for TLS 1.3 suites, which are
always on. Suites without forward secrecy or authenticated encryption are not supported."""

_UNVERIFIED = {"RequestClientCert", "RequireClientCert", "RequireAnyClientCert"}
_AUTH_TYPES = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_HEADERS = (
    "Content-Security-Policy", "Strict-Transport-Security", "X-Content-Type-Options",
    "X-Frame-Options", "X-XSS-Protection",
)  # fmt: skip


def _auth_type(value: Any) -> Any:
    if value in _UNVERIFIED:
        cause = f"{quoted(value)} would take a certificate without verifying it"
        raise problem(cause, "write VerifyClientCertIfGiven or RequireAndVerifyClientCert")
    if value not in _AUTH_TYPES:
        raise problem(f"{quoted(value)} is not a client_auth_type", f"write one of {', '.join(_AUTH_TYPES)}")  # fmt: skip
    return value


def _version(value: Any) -> Any:
    if value not in ("TLS12", "TLS13"):
        old = value in ("TLS10", "TLS11")
        cause = f"{quoted(value)} is {'broken, and not served' if old else 'not a TLS version'}"
        raise problem(cause, "write TLS12 or TLS13")
    return value


def _ciphers(value: Any) -> Any:
    unknown = [each for each in value if each not in CIPHERS] if isinstance(value, list) else []
    if unknown:
        cause = f"{quoted(unknown[0])} is not a supported cipher suite"
        raise problem(cause, f"leave the list out, or write some of {', '.join(CIPHERS)}")
    return value


def _curves(value: Any) -> Any:
    if value:
        cause = "the order of curves cannot be set with Python's TLS"
        raise problem(cause, "leave it out: X25519, P-256, P-384 and P-521 are served")
    return value


def _hash(value: Any) -> Any:
    match = _BCRYPT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        # The value may be the password itself.
        remedy = "write the output of: htpasswd -nBC 10 '' | tr -d ':\\n'"
        raise problem("the value (not shown) is not a bcrypt hash", remedy)
    if not 4 <= int(match[1]) <= BCRYPT_COST_MAX:  # noqa: PLR2004
        cause = f"a cost of {int(match[1])} is not between 4 and {BCRYPT_COST_MAX}"
        raise problem(cause, "make the hash again: htpasswd -nBC 10 '' | tr -d ':\\n'")
    return value


def _headers(value: Any) -> Any:
    if not isinstance(value, dict):
        raise problem(f"{quoted(value)} is not a group of keys", "write NAME: VALUE lines there")
    for name, text in value.items():
        if name not in _HEADERS:
            cause = f"{quoted(name)} is not a header that can be set"
            raise problem(cause, f"write some of {', '.join(_HEADERS)}")
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise problem(f"{name} is not a line of text", "put its value in quotes, on one line")
    return value


class TlsSettings(Sections):
    """TLS of our server. Without a certificate, it serves plain HTTP."""

    cert_file: FilePath | None = None
    key_file: FilePath | None = None
    client_auth_type: Annotated[str, BeforeValidator(_auth_type)] = "NoClientCert"
    client_ca_file: FilePath | None = None
    client_allowed_sans: tuple[str, ...] = Field((), max_length=1000)
    min_version: Annotated[Literal["TLS12", "TLS13"], BeforeValidator(_version)] = "TLS12"
    max_version: Annotated[Literal["TLS12", "TLS13"], BeforeValidator(_version)] = "TLS13"
    cipher_suites: Annotated[tuple[str, ...], BeforeValidator(_ciphers)] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: Annotated[tuple[str, ...], BeforeValidator(_curves)] = ()

    @property
    def on(self) -> bool:
        return self.cert_file is not None

    @model_validator(mode="after")
    def _complete(self) -> "TlsSettings":
        found = []
        for own, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
            if getattr(self, own) is None and (getattr(self, other) is not None or self.model_fields_set):  # fmt: skip
                found.append(Problem((own,), "is missing", "name the file, in PEM"))
        if self.client_ca_file is not None and self.client_auth_type == "NoClientCert":
            remedy = "set client_auth_type to RequireAndVerifyClientCert, or leave it out"
            cause = "clients are not asked for a certificate"
            found.append(Problem(("client_ca_file",), cause, remedy))
        if self.client_ca_file is None and self.client_auth_type != "NoClientCert":
            remedy = "name the file with the CAs that sign clients' certificates"
            found.append(Problem(("client_ca_file",), "is missing", remedy))
        if self.client_allowed_sans and self.client_auth_type != "RequireAndVerifyClientCert":
            remedy = "set client_auth_type to RequireAndVerifyClientCert"
            found.append(Problem(("client_allowed_sans",), "clients need no certificate", remedy))
        if self.min_version > self.max_version:
            found.append(Problem(("min_version",), "is above max_version", "swap the two"))
        if self.max_version == "TLS12" and self.cipher_suites and not self.ciphers:
            remedy = "add one of TLS 1.2, or set max_version to TLS13"
            found.append(Problem(("cipher_suites",), "holds none of TLS 1.2", remedy))
        if found:
            raise problems(found)
        return self

    @property
    def ciphers(self) -> tuple[str, ...]:
        return tuple(name for each in self.cipher_suites if (name := CIPHERS[each]))


class HttpSettings(Sections):
    """HTTP options."""

    http2: bool = True
    """Accepted for compatibility and ignored. We serve HTTP/1.1, which every HTTP/2 client
    supports."""
    headers: Annotated[dict[str, str], BeforeValidator(_headers)] = Field(default_factory=dict)


class WebSettings(Sections):
    """One web configuration file."""

    tls_server_config: TlsSettings = Field(default_factory=TlsSettings.model_construct)
    http_server_config: HttpSettings = HttpSettings()
    basic_auth_users: dict[str, Annotated[str, BeforeValidator(_hash)]] = Field(
        default_factory=dict, max_length=USERS_MAX
    )

    @model_validator(mode="after")
    def _names(self) -> "WebSettings":
        for name in self.basic_auth_users:
            if not name or ":" in name or not name.isprintable():
                cause = f"{quoted(name)} cannot be sent as a user's name"
                raise problem(cause, "take a name without ':'", "basic_auth_users")
        return self

    @property
    def files(self) -> tuple[Path, ...]:
        tls = self.tls_server_config
        named = (tls.cert_file, tls.key_file, tls.client_ca_file)
        return tuple(each for each in named if each is not None)


def read(path: Path) -> WebSettings:
    """Read the file. Raises ConfigError; an InvalidConfigError lists each error."""
    data, found = yaml_text.read(path, FILE_BYTES_MAX)
    errors = [ConfigError(f"{path}: {cause}", remedy) for cause, remedy in found]
    try:
        settings = WebSettings.model_validate(data, context={"folder": path.absolute().parent})
    except ValidationError as error:
        errors += explained(error, WebSettings, lambda key: f"{path}: {dotted(key)}")
    if errors:
        raise InvalidConfigError(errors)
    return settings
