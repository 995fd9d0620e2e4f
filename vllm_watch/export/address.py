"""Takes the address that is served on, or says in words why it cannot be had."""

import errno
import socket

from vllm_watch.errors import ServeError

BACKLOG = 512  # connections that wait to be taken; the kernel refuses those beyond

_REMEDIES = {
    errno.EADDRINUSE: "Stop what listens there, or choose another with --listen HOST:PORT",
    errno.EACCES: "Choose a port of 1024 or above with --listen HOST:PORT",
}
_OTHERWISE = "Give an address of this machine with --listen HOST:PORT"


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens there: who connects waits in the kernel until it is served.

    Raises:
        ServeError: the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot(host, port, error) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # two that have bound an address are found out only here
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _cannot(host, port, error) from error
    return bound


def _cannot(host: str, port: int, error: OSError) -> ServeError:
    remedy = _REMEDIES.get(error.errno or 0, _OTHERWISE)
    return ServeError(f"Cannot listen on {host}:{port}: {error.strerror}", remedy)
