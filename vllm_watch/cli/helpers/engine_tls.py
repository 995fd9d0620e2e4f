"""Arguments for TLS to an engine: the keys of `scrape.tls_config`."""

import argparse

from vllm_watch.errors import WatchError

_KEYS = ("ca_file", "cert_file", "key_file", "server_name", "insecure_skip_verify")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    group = parser.add_argument_group("an https URL")
    group.add_argument("--ca-file", metavar="FILE", help="CA certificates, in PEM (default: this host's)")  # fmt: skip
    group.add_argument("--cert-file", metavar="FILE", help="client certificate, in PEM")
    group.add_argument("--key-file", metavar="FILE", help="the key of --cert-file, in PEM")
    group.add_argument("--server-name", metavar="NAME", help="the name that its certificate must have (default: the URL's host)")  # fmt: skip
    group.add_argument("--insecure-skip-verify", action="store_const", const="true", help="accept any certificate")  # fmt: skip


def said(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the TLS arguments for `config.load`. Raises WatchError."""
    if bool(arguments.cert_file) != bool(arguments.key_file):
        given, other = ("cert", "key") if arguments.cert_file else ("key", "cert")
        raise WatchError(f"--{given}-file without --{other}-file", "give both, or neither")
    return {key: getattr(arguments, key) for key in _KEYS if getattr(arguments, key)}
