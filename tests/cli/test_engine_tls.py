"""`read` and `record` ask an engine that speaks TLS, with the keys of `scrape.tls_config` as arguments."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.export.certificates import Authority
from vllm_watch.__main__ import main
from vllm_watch.sources.recording import read

BODY = b'vllm:num_requests_running{engine="0",model_name="m"} 7.0\n'


class _Vllm(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_):
        pass


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def url(authority):
    """A server that demands a certificate, whose own is for another name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.signs("server", sans="DNS:llm.example.org").as_strings)
    context.load_verify_locations(cafile=authority.own.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with ThreadingHTTPServer(("127.0.0.1", 0), _Vllm) as server:
        server.handle_error = lambda *_: None
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)  # fmt: skip
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def shown(authority):
    """What the command shows and trusts, as arguments."""
    pair = authority.signs("watcher")
    words = [
        "--ca-file",
        authority.own.certificate,
        "--cert-file",
        pair.certificate,
        "--key-file",
        pair.key,
    ]
    return [*map(str, words), "--server-name", "llm.example.org"]


def test_read_asks_over_tls(url, shown, capsys):
    """Shown a certificate, trusting an authority, by the name on its certificate; and not otherwise."""
    assert main(["read", url, "--json", *shown]) == 0
    assert json.loads(capsys.readouterr().out)["engines"]["0"]["requests_running"] == 7
    assert main(["read", url, "--json", *shown[2:]]) == 2
    assert "the TLS handshake failed" in capsys.readouterr().err


def test_record_asks_over_tls(url, shown, tmp_path):
    out = tmp_path / "trace.jsonl.gz"
    assert main(["record", "--target", url, "--out", str(out), "--duration", "0.1", *shown]) == 0
    assert {raw.scrape.outcome for raw in read(out)} == {"ok"}


def test_a_file_that_cannot_be_used_is_a_mistake(url, tmp_path, capsys):
    """Told by its argument, before anything is asked."""
    for argv in (
        ["read", url],
        ["record", "--target", url, "--out", str(tmp_path / "out.jsonl.gz")],
    ):
        assert main([*argv, "--ca-file", "/nowhere"]) == 2
        assert capsys.readouterr().err.startswith("vllm-watch: --ca-file: '/nowhere' names no file")
        assert main([*argv, "--cert-file", "/nowhere"]) == 2
        assert "--cert-file without --key-file" in capsys.readouterr().err
