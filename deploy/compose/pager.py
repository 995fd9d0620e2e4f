"""Stands in for a pager: prints what Alertmanager or vllm-watch itself sends, one line for each alert."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer

ADDRESS = ("127.0.0.1", 9099)
BODY_BYTES_MAX = 1 << 22  # some thousand alerts; a pager takes no more


class Pager(BaseHTTPRequestHandler):
    """Takes POST /page and /ticket."""

    timeout = 10  # seconds for a whole request

    def do_GET(self) -> None:
        """Say that it is there."""
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        """Print a notification."""
        length = int(self.headers.get("Content-Length", 0))
        if not 0 < length <= BODY_BYTES_MAX:
            self.send_error(413)
            return
        sent = json.loads(self.rfile.read(length))
        where = self.path.strip("/").upper()
        for alert in sent.get("alerts", ()):
            what = f"{where} {alert['status']}"
            print(f"{what}: {alert['annotations'].get('summary', alert['labels'])}", flush=True)
        if "title" in sent:
            print(f"{where} {sent['phase']}: {sent['title']}\n{sent['text']}", flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing but what was sent is printed."""


if __name__ == "__main__":
    print(f"waiting for alerts on {ADDRESS[0]}:{ADDRESS[1]}", flush=True)
    HTTPServer(ADDRESS, Pager).serve_forever()
