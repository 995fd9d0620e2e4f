"""`vllm-watch record`: what a real HTTP server says, in a file that replays."""

import gzip
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vllm_watch.__main__ import main
from vllm_watch.sources.recording import read

BODY = 'vllm:num_requests_running{{engine="0",model_name="m"}} {}.0\n'
DEADLINE_SECONDS = 20


class _Vllm(BaseHTTPRequestHandler):
    def do_GET(self):
        said = {
            "/metrics": lambda: BODY.format(next(self.server.scrapes)),
            "/health": lambda: "",
            "/version": lambda: json.dumps({"version": "0.33.0"}),
        }.get(self.path)
        text = said().encode() if said else b""
        self.send_response(200 if said else 404)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture
def url():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Vllm) as server:
        server.scrapes = iter(range(10_000))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def command(url, out, *more):
    return ["record", "--target", url, "--out", str(out), "--interval", "0.1", *more]


@contextmanager
def in_a_process(argv, **streams):
    """It is ended with the test, also with one that fails."""
    with subprocess.Popen([sys.executable, "-m", "vllm_watch", *argv], **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def until(holds):
    end = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_the_server_says_is_recorded(url, tmp_path, capfd):
    """Each text as it was sent, with time, health and version; quiet where nobody looks on."""
    out = tmp_path / "trace.jsonl.gz"

    assert main(command(url, out, "--duration", "0.55")) == 0

    found = list(read(out))
    assert [raw.metrics for raw in found] == [BODY.format(n) for n in range(len(found))]
    assert 1 <= len(found) <= 6
    assert {raw.target for raw in found} == {url}
    assert {raw.server.version for raw in found} == {"0.33.0"}
    assert {raw.health.outcome for raw in found if raw.health} == {"ok"}
    assert capfd.readouterr() == ("", "")


def test_read_asks_a_server(url, capsys):
    assert main(["read", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engines"]["0"]["requests_running"] == 0


def test_a_server_that_is_not_there_is_recorded_as_such(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    out = tmp_path / "trace.jsonl.gz"

    assert main(command(url, out, "--duration", "0.25")) == 0

    found = list(read(out))
    assert {(raw.scrape.outcome, raw.metrics) for raw in found} == {("refused", None)}
    # Two looks that a busy machine brings close together ask for the health once.
    assert {raw.health.outcome for raw in found if raw.health} == {"refused"}


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_file_properly(url, tmp_path, stop):
    """Ctrl-C and a supervisor's stop are the normal ends: status 0, and a gzip file with its end."""
    out = tmp_path / "trace.jsonl.gz"
    with in_a_process(command(url, out)) as process:
        until(lambda: out.exists() and len(list(read(out))) > 1)
        process.send_signal(stop)
        assert process.wait(DEADLINE_SECONDS) == 0

    assert gzip.decompress(out.read_bytes()).endswith(b"}\n")


def test_a_kill_loses_nothing_that_was_seen(url, tmp_path):
    """The file lacks its gzip end, and every line is there."""
    out = tmp_path / "trace.jsonl.gz"
    with in_a_process(command(url, out)) as process:
        until(lambda: out.exists() and len(list(read(out))) > 2)
        process.kill()

    found = list(read(out))
    assert len(found) > 2
    assert [raw.metrics for raw in found] == [BODY.format(n) for n in range(len(found))]
