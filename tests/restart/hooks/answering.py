"""An HTTP server that answers what a test tells it to, in a thread of its own."""

import http.server
import threading
import time
from urllib.parse import parse_qs, urlsplit

ENDLESS_SECONDS = 30.0


class Answering:
    """`answers` is (status, body) by path; `{word}` in a body becomes the word that was asked with."""

    def __init__(self, answers):
        self.answers = dict(answers)
        self.asked = []
        self._over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer._answer(self)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def _answer(self, request):
        self.asked.append(request.path)
        url = urlsplit(request.path)
        word = parse_qs(url.query).get("asked", [""])[0]
        status, body = self.answers.get(url.path, (404, b""))
        request.send_response(status)
        if status == 302:
            request.send_header("Location", request.path)
        request.end_headers()
        if body is not None:
            request.wfile.write(body.replace(b"{word}", word.encode()))
            return
        until = time.monotonic() + ENDLESS_SECONDS
        while time.monotonic() < until and not self._over.wait(0.2):
            try:
                request.wfile.write(b"k")
                request.wfile.flush()
            except OSError:
                return

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
