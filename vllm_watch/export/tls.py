"""TLS of the web configuration."""

import ssl

from vllm_watch.errors import ConfigError
from vllm_watch.settings.web import TlsSettings
from vllm_watch.support import regular_file

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_MODES = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_REMEDY = "give a certificate and its own key, both in PEM and readable by vllm-watch"
_DEFAULT_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # default for TLS 1.2


def context(settings: TlsSettings) -> ssl.SSLContext | None:
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
    _certify(made, settings)
    if settings.client_ca_file is not None:
        try:
            regular_file.check(settings.client_ca_file)
            made.load_verify_locations(cafile=settings.client_ca_file)
        except OSError as error:
            cause = f"tls_server_config.client_ca_file: {settings.client_ca_file}: {_why(error)}"
            raise ConfigError(cause, "give CA certificates, in PEM") from None
        made.verify_mode = _MODES[settings.client_auth_type]
    return made


def _certify(made: ssl.SSLContext, settings: TlsSettings) -> None:
    assert settings.cert_file is not None and settings.key_file is not None  # noqa: PT018, S101
    try:
        regular_file.check(settings.cert_file)
        regular_file.check(settings.key_file, if_exposed="warned")
        made.load_cert_chain(settings.cert_file, settings.key_file, password=lambda: b"")
    except OSError as error:
        files = f"{settings.cert_file} with {settings.key_file}"
        raise ConfigError(f"tls_server_config: {files}: {_why(error)}", _REMEDY) from None
    except ValueError as error:
        raise ConfigError(f"tls_server_config: {settings.key_file}: {error}", _REMEDY) from None


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        reasons = {"KEY_VALUES_MISMATCH": "the key does not match the certificate"}
        return reasons.get(error.reason or "", f"cannot be used ({error.reason or 'no PEM'})")
    return (error.strerror or str(error)).lower()


def names(certificate: dict[str, object]) -> frozenset[str]:
    """Return the subject alternative names of a `getpeercert` result."""
    found = certificate.get("subjectAltName", ())
    return frozenset(str(name) for _, name in found) if isinstance(found, tuple) else frozenset()
