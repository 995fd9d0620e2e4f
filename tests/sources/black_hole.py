"""A port that swallows what is sent to it: of a stopped process, or behind a firewall that drops."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

FILL = 4  # connections; the kernel takes one or two more than it was asked to


@contextmanager
def black_hole(port: int = 0) -> Iterator[int]:
    """Its number, while it is open: a listener that accepts nobody, and whose backlog is full."""
    with ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(FILL):
            each = held.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        yield port
