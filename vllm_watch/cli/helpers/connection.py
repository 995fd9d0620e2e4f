"""A command's connection to a daemon."""

import argparse
import os
import ssl
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from vllm_watch.errors import WatchError
from vllm_watch.support import regular_file
from vllm_watch.support.redaction import redact_always, redacted

URL_VARIABLE, TOKEN_VARIABLE = "VLLM_WATCH_URL", "VLLM_WATCH_TOKEN_FILE"
DEFAULT_URL = "http://127.0.0.1:9470"
_FILES = {
    "ca_file": ("VLLM_WATCH_CA_FILE", "CAs that sign the daemon's certificate, in PEM", ", else the system's"),
    "cert_file": ("VLLM_WATCH_CERT_FILE", "your certificate with its key, in PEM, if the daemon requires one", ""),
    "credentials_file": ("VLLM_WATCH_CREDENTIALS_FILE", "file with USER:PASSWORD, if the daemon requires a password", ""),
}  # fmt: skip
"""Argument → variable, meaning, further default."""

_FILE_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A daemon's address and credentials."""

    url: str = DEFAULT_URL
    ca_file: Path | None = None
    cert_file: Path | None = None
    credentials_file: Path | None = None

    def tls(self) -> ssl.SSLContext | bool:
        """Return aiohttp's `ssl` argument. True means the system's CAs. Raises WatchError."""
        if self.ca_file is None and self.cert_file is None:
            return True
        try:
            if self.ca_file is not None:
                regular_file.check(self.ca_file)
            made = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise _unusable("--ca-file", self.ca_file, error, "CA certificates") from None  # fmt: skip
        if self.cert_file is not None:
            try:
                regular_file.check(self.cert_file, if_exposed="refused")
                made.load_cert_chain(self.cert_file, password=lambda: b"")
            except (OSError, ValueError) as error:
                raise _unusable("--cert-file", self.cert_file, error, "your certificate and its key") from None  # fmt: skip
        return made

    def headers(self) -> dict[str, str]:
        if self.credentials_file is None:
            return {}
        text = secret_of("--credentials-file", self.credentials_file)
        if ":" not in text:
            cause = f"--credentials-file: {self.credentials_file} does not hold USER:PASSWORD"
            raise WatchError(cause, "write one line: the user, a colon, the password")
        redact_always(text.partition(":")[2])
        return {"Authorization": "Basic " + b64encode(text.encode()).decode()}


def add_daemon(
    parser: argparse.ArgumentParser, *, default_url: str = DEFAULT_URL, url_help: str = ""
) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("--url", metavar="URL",
        help=url_help or f"the daemon's address (default: {URL_VARIABLE}, else {default_url})")  # fmt: skip
    for name, (variable, said, otherwise) in _FILES.items():
        add(f"--{name.replace('_', '-')}", metavar="FILE", type=Path,
            help=f"{said} (default: {variable}{otherwise})")  # fmt: skip


def of(
    arguments: argparse.Namespace, default_url: str = DEFAULT_URL, *, option: str = "--url"
) -> Connection:
    """Read the connection from the command line or the environment. Raises WatchError."""
    url = (arguments.url or os.environ.get(URL_VARIABLE) or default_url).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise WatchError(f"{option}: '{redacted(url)}' is not a URL", "write http://HOST:PORT")
    if "@" in url:
        remedy = "put USER:PASSWORD in a file and set --credentials-file"
        raise WatchError(f"{option}: '{redacted(url)}' carries credentials", remedy)
    given = vars(arguments)
    files = {name: given[name] or named_path(variable) for name, (variable, *_) in _FILES.items()}
    return Connection(url=url, **files)


def secret_of(argument: str, file: Path) -> str:
    """Return the only line of a secret's file. Raises WatchError."""
    try:
        text = regular_file.read(file, _FILE_BYTES_MAX, if_exposed="refused").decode().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise WatchError(f"{argument}: {file} cannot be read: {why}", "give a file with one line of text, readable by you alone: chmod 600") from None  # fmt: skip
    if not text or not text.isprintable():
        raise WatchError(f"{argument}: {file} does not hold one line of text", "write the secret on its only line")  # fmt: skip
    redact_always(text)
    return text


def named_path(variable: str) -> Path | None:
    """Return the path in an environment variable, or None."""
    return Path(os.environ[variable]) if os.environ.get(variable) else None


def _unusable(argument: str, file: Path | None, error: Exception, what: str) -> WatchError:
    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    if "NO_CERTIFICATE" in str(error):
        why = "it holds no certificate"
    return WatchError(f"{argument}: {file} cannot be used: {why}", f"name a file with {what}, in PEM")  # fmt: skip
