"""Options that several commands take: numbers, a time, and TLS to an engine (the keys of `scrape.tls_config`)."""

import argparse
import contextlib
import re
from collections.abc import Callable
from datetime import datetime

from vllm_watch.errors import WatchError

SECONDS_MAX = 86_400.0


def number(
    fits: Callable[[float], bool], otherwise: str, out_of_range: str = ""
) -> Callable[[str], float]:
    """Return a parser of numbers. It raises ArgumentTypeError with the text and `otherwise`, or with `out_of_range`."""

    def parse(text: str) -> float:
        with contextlib.suppress(ValueError):
            value = float(text)
            if fits(value):
                return value
            if out_of_range:
                raise argparse.ArgumentTypeError(f"{text} is out of range\n→ {out_of_range}")
        raise argparse.ArgumentTypeError(f"'{text}' {otherwise}")

    return parse


minutes = number(
    lambda value: value > 0, "is not a number of minutes\n→ write a number above 0: 60"
)

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def moment(text: str, now_t: float) -> float:
    """Parse an age such as "30m", a local date, or Unix seconds. Raises ArgumentTypeError."""
    if ago := _AGO.fullmatch(text):
        return now_t - float(ago[1]) * _UNIT_SECONDS[ago[2]]
    with contextlib.suppress(ValueError):
        return float(text)
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text).timestamp()
    remedy = "write 30m, 2h, 7d, 2026-03-01 or Unix seconds"
    raise argparse.ArgumentTypeError(f"'{text}' is not a time\n→ {remedy}")


_KEYS = ("ca_file", "cert_file", "key_file", "server_name", "insecure_skip_verify")


def add_engine_tls(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    group = parser.add_argument_group("an https URL")
    group.add_argument("--ca-file", metavar="FILE", help="CAs that sign the server's certificate, in PEM (default: this host's)")  # fmt: skip
    group.add_argument("--cert-file", metavar="FILE", help="client certificate, in PEM")
    group.add_argument("--key-file", metavar="FILE", help="the key of --cert-file, in PEM")
    group.add_argument("--server-name", metavar="NAME", help="the name that the server's certificate must have (default: the URL's host)")  # fmt: skip
    group.add_argument("--insecure-skip-verify", action="store_const", const="true", help="accept any certificate")  # fmt: skip


def engine_tls(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the TLS arguments for `config.load`. Raises WatchError."""
    if bool(arguments.cert_file) != bool(arguments.key_file):
        given, other = ("cert", "key") if arguments.cert_file else ("key", "cert")
        raise WatchError(f"--{given}-file without --{other}-file", "give both, or neither")
    return {key: getattr(arguments, key) for key in _KEYS if getattr(arguments, key)}
