"""Ports for programs that cannot be given a socket."""

import contextlib
import random
import socket

_RANDOM = random.SystemRandom()  # property tests seed the other one, alike in all workers
_FROM, _TO = 20_000, 32_000
"""Below those that the kernel gives to connections: none of them can take it before the program does."""


def free_port() -> int:
    """One at which nobody listens."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = _RANDOM.randrange(_FROM, _TO)
            probe.bind(("127.0.0.1", port))
            return port
