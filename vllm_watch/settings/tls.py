"""TLS of connections to engines, with the keys of Prometheus' `tls_config`."""

import ssl
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from vllm_watch.settings.base import FilePath, Settings, matching, problem, quoted
from vllm_watch.support import regular_file

FILE_BYTES_MAX = 4 << 20

_CA_REMEDY = "name a file with CA certificates, in PEM, readable by vllm-watch"
_PAIR_REMEDY = "name a certificate and its own key, without a passphrase, both in PEM and readable by vllm-watch"


class TlsFileError(Exception):
    """A file that TLS needs cannot be used."""

    def __init__(self, key: str, cause: str, remedy: str, os_error: OSError | None = None) -> None:
        super().__init__(f"tls_config.{key}: {cause}")
        self.key = key  # of `tls_config`
        self.cause = cause
        self.remedy = remedy
        self.os_error = os_error


_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"


class TlsConfig(Settings):
    """TLS for targets with an `https` URL."""

    ca_file: FilePath | None = None
    """CA certificates for the server's certificate, in PEM.
    Default: the CAs of this host"""

    cert_file: FilePath | None = None
    """Client certificate with its intermediates, in PEM."""

    key_file: FilePath | None = None
    """The key of `cert_file`, in PEM, without a passphrase."""

    server_name: Annotated[str, matching(
        rf"({_LABEL}(\.{_LABEL})*)?", "the name of a host",
        "write the name that the server's certificate has, without a port",
    )] = Field("", max_length=253)  # fmt: skip
    """Expected name in the server's certificate, also sent as SNI.
    Default: the host of the URL"""

    insecure_skip_verify: bool = False
    """Accept any certificate. A man in the middle could then read the API key.
    Why: `ca_file` is safer."""

    @model_validator(mode="after")
    def _is_pair(self) -> "TlsConfig":
        if (self.cert_file is None) != (self.key_file is None):
            there, missing = (
                ("cert_file", "key_file") if self.cert_file else ("key_file", "cert_file")
            )
            cause = f"{there} is set without {missing}"
            raise problem(cause, f"set both, or leave out {there}", missing)
        return self

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(each for each in (self.ca_file, self.cert_file, self.key_file) if each)

    def context(self) -> ssl.SSLContext:
        made = self._trusting()
        made.set_alpn_protocols(["http/1.1"])
        if self.insecure_skip_verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None and self.key_file is not None:
            _certify(made, self.cert_file, self.key_file)
        return made

    def _trusting(self) -> ssl.SSLContext:
        if self.ca_file is None:
            return ssl.create_default_context()
        # Comments between certificates may be in any language, but ssl accepts only ASCII.
        text = _read("ca_file", self.ca_file, _CA_REMEDY).decode("ascii", "ignore")
        try:
            return ssl.create_default_context(cadata=text)
        except (OSError, ValueError) as error:
            cause = f"{quoted(str(self.ca_file))} contains no usable certificates: {error}"
            raise TlsFileError("ca_file", cause, _CA_REMEDY) from None


def _certify(made: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
    _read("cert_file", cert_file, _PAIR_REMEDY)
    if b"ENCRYPTED" in _read("key_file", key_file, _PAIR_REMEDY):
        raise TlsFileError("key_file", f"{quoted(str(key_file))} has a passphrase", _PAIR_REMEDY)
    try:
        # Without the callback, OpenSSL would prompt for a passphrase on the terminal.
        made.load_cert_chain(cert_file, key_file, password=lambda: b"")
    except (OSError, ValueError) as error:
        mismatch = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
        why = "the key does not match the certificate" if mismatch else f"cannot be used: {error}"
        cause = f"{quoted(str(cert_file))} with {quoted(str(key_file))}: {why}"
        raise TlsFileError("cert_file", cause, _PAIR_REMEDY) from None


def _read(key: str, file: Path, remedy: str) -> bytes:
    # The value may be the key itself.
    shown = "the value (not shown)" if key == "key_file" else quoted(str(file))
    try:
        if_exposed: regular_file.IfExposed = "warned" if key == "key_file" else "taken"
        held = regular_file.read(file, FILE_BYTES_MAX, if_exposed=if_exposed)
    except regular_file.UnusableFileError as error:
        raise TlsFileError(key, f"{shown} {error.strerror}", remedy) from None
    except OSError as error:
        cause = f"{shown} names no file that can be read: {error.strerror or error}"
        raise TlsFileError(key, cause, remedy, error) from None
    if b"-----BEGIN " not in held:  # without certificates, ssl would use the system's
        raise TlsFileError(key, f"{shown} holds no PEM", remedy)
    return held
