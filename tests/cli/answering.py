"""Something that answers where a daemon is expected: with given bytes, in given pieces, over real sockets."""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class Answering(socketserver.ThreadingTCPServer):
    """Sends `pieces` to each request, one after the other with a pause; then the connection is closed.

    On a port of loopback, or on a Unix socket.
    """

    request_queue_size = 100
    allow_reuse_address = True

    def __init__(self, path: Path | None = None) -> None:
        if path is not None:
            self.address_family, self.allow_reuse_address = socket.AF_UNIX, False
        super().__init__(("127.0.0.1", 0) if path is None else str(path), _Handler)  # type: ignore[arg-type]
        self.pieces: Sequence[bytes] = ()
        self.pause_s = 0.05
        self.url = "" if path else f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(socketserver.StreamRequestHandler):
    server: Answering
    timeout = 30

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            length = 0
            while line := self.rfile.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            self.rfile.read(length)
            for piece in self.server.pieces:
                self.wfile.write(piece)
                if self.server.pause_s:
                    time.sleep(self.server.pause_s)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()


def answer(body: bytes, status: str = "200 OK") -> bytes:
    """Return a whole answer with this body."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@contextmanager
def answering(path: Path | None = None) -> Iterator[Answering]:
    """Listen in threads, so that commands may run their own event loop."""
    with Answering(path) as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join(30)
