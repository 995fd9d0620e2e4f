"""A watcher whose metric was renamed: what it exports, but for one name, on a port of its own."""

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class RenamingProxy:
    """Serves the /metrics of `source` (HOST:PORT) with `old` written as `new`."""

    def __init__(self, source: str, old: str, new: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with urllib.request.urlopen(f"http://{source}{self.path}", timeout=10) as answer:
                    body = answer.read().replace(old.encode(), new.encode())
                    kind = answer.headers["Content-Type"]
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:  # fmt: skip
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()
