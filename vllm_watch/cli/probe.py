"""Check the local watcher, for a container's health check or exec probe.

The probe reads no configuration, so it must detect TLS. It sends no secrets, so it need not
verify the certificate. If the server requires a client certificate, an answer to the TLS handshake suffices.
"""

import argparse
import contextlib
import http.client
import os
import socket
import ssl
import sys
from urllib.parse import urlsplit

from vllm_watch.cli.helpers import exit_status
from vllm_watch.cli.helpers.connection import DEFAULT_URL, URL_VARIABLE
from vllm_watch.errors import WatchError
from vllm_watch.samples.target import PORT_OF_SCHEME
from vllm_watch.support.redaction import redacted

HELP = f"""\
Checks that the watcher of this host or container answers: for a health check or an exec probe of the watcher itself,
never of an engine. It needs neither a password nor a certificate, whatever the web configuration asks for.

examples:
  vllm-watch probe                                        # on port 9470, with or without TLS
  vllm-watch probe --url https://127.0.0.1:9471           # there, with TLS
  {URL_VARIABLE}=http://127.0.0.1:9471 vllm-watch probe   # the same without an argument, as in a container

exit status: 0 it answers, 1 it does not
"""
_SECONDS = 2.0  # two attempts fit into the image's timeout of 5 s
_PATH = "/-/healthy"
_SILENT = f"nothing came within {_SECONDS:.0f} s"
_REMEDY = "check that vllm-watch runs there, and its listen address"
_HANDSHAKE = 0x16  # a TLS record type
_BYTES_MAX = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", metavar="URL",
        help=f"the watcher's address (default: {URL_VARIABLE}, else {DEFAULT_URL}, then the same over https)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    given = arguments.url or os.environ.get(URL_VARIABLE)
    scheme, host, port = _address(given or DEFAULT_URL)
    why = _asked(scheme, host, port)
    if why not in ("", _SILENT) and not given:  # perhaps TLS
        why = _asked("https", host, port) and why
    if not why:
        return exit_status.FINE
    sys.stderr.write(f"vllm-watch: {host}:{port} does not answer: {why}\n  → {_REMEDY}\n")
    return exit_status.FOUND


def _address(url: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in PORT_OF_SCHEME:
        raise WatchError(f"--url: '{redacted(url)}' is not a URL", "write http://HOST:PORT")
    if "@" in url:
        remedy = "take them out of the URL: the probe needs no password"
        raise WatchError(f"--url: '{redacted(url)}' carries credentials", remedy)
    return parts.scheme, host, port or PORT_OF_SCHEME[parts.scheme]


def _asked(scheme: str, host: str, port: int) -> str:
    try:
        status = _status(scheme, host, port)
    except TimeoutError:
        return _SILENT
    except (OSError, http.client.HTTPException) as error:
        if scheme == "https" and _shakes_hands(host, port):
            return ""
        return getattr(error, "strerror", None) or str(error) or type(error).__name__
    return "" if status == http.client.OK else f"HTTP status {status}"


def _status(scheme: str, host: str, port: int) -> int:
    made = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    if scheme == "https":
        made = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=_context())
    with contextlib.closing(made):
        made.request("GET", _PATH)
        return made.getresponse().status


def _shakes_hands(host: str, port: int) -> bool:
    outgoing = ssl.MemoryBIO()
    mine = _context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        mine.do_handshake()
    try:
        with socket.create_connection((host, port), _SECONDS) as connected:
            connected.sendall(outgoing.read())
            return connected.recv(_BYTES_MAX)[:1] == bytes([_HANDSHAKE])
    except OSError:
        return False


def _context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made
