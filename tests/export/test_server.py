"""The server over real sockets: its routes, and callers that are slow, large, foreign or too many."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import aiohttp
import pytest
from multidict import CIMultiDict
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.export.demo_board import fill
from tests.export.raw_http import send
from tests.export.serving import serving as served
from tests.export.small_board import small_board
from tests.told import made, told
from vllm_watch.board.board import Board
from vllm_watch.errors import ConfigError, RecordingError, ServeError
from vllm_watch.export import answers, api, listener
from vllm_watch.export.server import Server

PATIENCE_SECONDS = 60.0


@asynccontextmanager
async def serving(
    board: Board | None = None, host: str = "127.0.0.1", **settings
) -> AsyncIterator[str]:
    async with served(board or small_board(), host=host, **settings) as running:
        yield f"http://127.0.0.1:{running.port}"


async def ask(method: str, url: str, **options) -> tuple[int, str, CIMultiDict[str]]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, **options) as answer,
    ):
        return answer.status, await answer.text(), CIMultiDict(answer.headers)


async def raw(url: str, request: bytes) -> bytes:
    return (await send(port_of(url), request, quiet_s=5.0)).bytes


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def never(actor: str, source: str) -> None:
    pytest.fail(f"{actor} reloaded")


async def test_metrics_in_the_format_that_is_asked_for():
    """Text by default, OpenMetrics by Accept, gzip by Accept-Encoding, the watcher's own process at the end."""
    async with serving() as url:
        _, text, headers = await ask("GET", f"{url}/metrics")
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {family.name for family in parse_text(text)}
        assert {"vllm_watch_target_up", "process_resident_memory_bytes", "python_info"} <= families
        accept = {"Accept": "application/openmetrics-text"}
        _, text, headers = await ask("GET", f"{url}/metrics", headers=accept)
        said = "application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert (headers["Content-Type"], text.count("# EOF"), text[-6:]) == (said, 1, "# EOF\n")
        for encoding, packed in (("gzip", True), ("gzip;q=0", False)):
            async with (
                aiohttp.ClientSession(auto_decompress=False) as session,
                session.get(f"{url}/metrics", headers={"Accept-Encoding": encoding}) as answer,
            ):
                assert ("Content-Encoding" in answer.headers) is packed
                body = await answer.read()
                assert b"vllm_watch_target_up" in (gzip.decompress(body) if packed else body)


async def test_healthy_and_ready():
    """Healthy from the start; ready once there are results, and until then the reason is said."""
    reasons = ["the first scrape of chat is under way", None]
    async with serving(ready=lambda: reasons.pop(0)) as url:
        assert (await ask("GET", f"{url}/-/healthy"))[:2] == (200, "healthy\n")
        why = "not ready: the first scrape of chat is under way\n"
        assert (await ask("GET", f"{url}/-/ready"))[:2] == (503, why)
        assert (await ask("GET", f"{url}/-/ready"))[:2] == (200, "ready\n")


async def test_status_and_history():
    async with serving() as url:
        _, text, headers = await ask("GET", f"{url}/api/v1/status")
        assert headers["Content-Type"] == "application/json"
        assert [target["name"] for target in json.loads(text)["targets"]] == ["chat", "gone"]
        _, text, _ = await ask("GET", f"{url}/api/v1/history?target=chat&engine=0")
        assert json.loads(text)["engines"]["0"]["series"]["requests_running"] == [3.0]
        for query, expected in (
            ("", 404), ("target=nobody", 404), ("target=chat&engine=9", 404), ("incident=nobody", 404),
            ("target=chat&seconds=3600", 200), ("target=chat&seconds=0", 400), ("target=chat&seconds=x", 400),
        ):  # fmt: skip
            status, text, _ = await ask("GET", f"{url}/api/v1/history?{query}")
            assert status == expected
            assert status == 200 or json.loads(text).keys() == {"error", "remedy"}


async def test_incidents():
    """The open ones first, then those that ended; of one target, of one state; one by its id."""
    board = small_board()
    ended = [told(id="ended"), told("resolved", id="ended")]
    board.tell(made(*ended, told(id="a/ö <1>")))
    board.tell(made(told(id="down", target="gone", severity="ticket")))
    async with serving(board) as url:

        async def listed(**params: str) -> list[str]:
            status, text, headers = await ask("GET", f"{url}/api/v1/incidents", params=params)
            assert (status, headers["Content-Type"]) == (200, "application/json")
            return [incident["id"] for incident in json.loads(text)["incidents"]]

        assert await listed() == ["a/ö <1>", "down", "ended"]
        assert await listed(state="open") == ["a/ö <1>", "down"]
        assert await listed(state="resolved") == ["ended"]
        assert await listed(target="gone") == ["down"]
        assert await listed(target="chat", state="resolved") == ["ended"]
        assert await listed(target="nobody") == []
        for name in ("ended", "a/ö <1>"):
            _, text, _ = await ask("GET", f"{url}/api/v1/incidents/{quote(name, safe='')}")
            assert json.loads(text)["id"] == name
        for path, status in (("/nobody", 404), ("?state=burning", 400), ("/", 404)):
            got, text, _ = await ask("GET", f"{url}/api/v1/incidents{path}")
            assert (got, json.loads(text).keys()) == (status, {"error", "remedy"})


async def test_reload():
    """It runs once per request; what the new configuration lacks is said, and the caller knows the old one goes on."""
    ran = []

    async def reload(actor, source) -> None:
        ran.append(1)
        if len(ran) > 1:
            raise ConfigError("targets[0].url: 'x' is no URL", "Write http://HOST:PORT")

    async with serving(reload=reload) as url:
        assert (await ask("POST", f"{url}/-/reload"))[:2] == (200, '{"reloaded":true}')
        status, text, _ = await ask("POST", f"{url}/-/reload")
        assert status == 500
        assert json.loads(text) == {
            "error": "targets[0].url: 'x' is no URL",
            "remedy": "Write http://HOST:PORT. The old configuration stays in use",
        }
        assert (await ask("GET", f"{url}/-/reload"))[0] == 405
        assert len(ran) == 2


async def test_reload_is_for_this_machine_and_not_for_other_sites():
    """From another address, or from a page of another site in the operator's browser, nothing is reloaded."""
    address = other_address()
    async with serving(reload=never, host="0.0.0.0") as url:
        for origin in ("http://evil.example", "null"):
            asked = await ask("POST", f"{url}/-/reload", headers={"Origin": origin})
            assert asked[0] == 403
        if address is not None:
            elsewhere = url.replace("127.0.0.1", address)
            status, text, _ = await ask("POST", f"{elsewhere}/-/reload")
            assert status == 403
            assert json.loads(text)["error"] == f"{address} may not reload"


PROXIES = {
    "nginx": {"X-Real-IP": "203.0.113.9"},
    "Squid": {"Via": "1.1 squid"},
    "one that nobody has heard of": {"X-Original-Caller": "203.0.113.9"},
}


@pytest.mark.parametrize("headers", PROXIES.values(), ids=PROXIES)
async def test_whoever_comes_through_a_proxy_of_this_host_is_not_this_host(headers):
    """Its address is loopback's, those of its callers are not."""
    async with serving(reload=never) as url:
        status, text, _ = await ask("POST", f"{url}/-/reload", headers=headers)
        assert (status, json.loads(text)["error"]) == (403, "127.0.0.1 may not reload")


async def test_a_proxy_that_adds_no_header_speaks_an_old_http():
    """As nginx does unless it is told otherwise."""
    async with serving(reload=never) as url:
        port = port_of(url)
        bare = b"POST /-/reload HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert (await send(port, bare)).statuses == [403]


def other_address() -> str | None:
    """An address of this machine that is not loopback; None where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


async def test_without_configuration_there_is_nothing_to_reload():
    async with serving() as url:
        status, text, _ = await ask("POST", f"{url}/-/reload")
        assert (status, json.loads(text)["error"]) == (404, "There is no configuration to reload")


@pytest.mark.parametrize(
    ("bound", "host", "status"),
    [
        ("127.0.0.1", "localhost:9464", 200),
        ("127.0.0.1", "[::1]:9464", 200),
        ("127.0.0.1", "LOCALHOST", 200),
        ("127.0.0.1", "watch.internal:80", 200),
        ("127.0.0.1", "evil.example", 421),
        ("127.0.0.1", "localhost.evil.example", 421),
        ("127.0.0.1", "", 421),
        ("0.0.0.0", "gpu-host-1:9464", 421),
        ("0.0.0.0", "watch.internal:9464", 200),
        ("0.0.0.0", "10.0.0.7:9464", 200),
        ("0.0.0.0", "[fe80::1]", 200),
        ("127.0.0.1", "[::1].evil.example", 421),
        ("127.0.0.1", "127.0.0.1:80:evil", 421),
        ("127.0.0.1", "localhost:99999", 421),
        ("127.0.0.1", "evil@localhost", 421),
        ("127.0.0.1", "[::1", 421),
        ("0.0.0.0", "10.0.0.7.evil.example", 421),
        ("0.0.0.0", "[10.0.0.7]", 421),
    ],
)
async def test_host_names_that_are_answered_to(bound, host, status):
    """Our own names alone, or a site could read us through a browser by DNS rebinding; an address is no name."""
    async with serving(host=bound, names=["watch.internal"]) as url:
        assert (await ask("GET", f"{url}/api/v1/status", headers={"Host": host}))[0] == status


async def test_on_a_network_address_any_name_is_answered_to_until_names_are_given():
    """The watcher cannot know by which names it is reached there."""
    async with serving(host="0.0.0.0") as url:
        assert (await ask("GET", f"{url}/metrics", headers={"Host": "gpu-host-1:9464"}))[0] == 200


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/status", "/nowhere", "/page/app.js"])
async def test_every_answer_carries_the_security_headers(path):
    async with serving() as url:
        _, _, headers = await ask("GET", url + path)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "script-src 'self'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert "Set-Cookie" not in headers


async def test_page_files_are_a_fixed_list_and_are_not_sent_twice():
    """A path of a request never meets the disk; an unchanged file costs a 304."""
    async with serving() as url:
        _, _, headers = await ask("GET", f"{url}/page/style.css")
        assert headers["Content-Type"] == "text/css; charset=utf-8"
        known = {"If-None-Match": headers["ETag"]}
        assert (await ask("GET", f"{url}/page/style.css", headers=known))[:2] == (304, "")
        for path in ("/page/%2e%2e/server.py", "/page/..%2fserver.py", "/page/server.py", "/page/"):
            assert (await ask("GET", url + path))[0] == 404


async def test_errors_of_the_router_are_json_too():
    async with serving() as url:
        status, text, _ = await ask("GET", f"{url}/api/v2/status")
        assert (status, json.loads(text)["error"]) == (404, "GET /api/v2/status: Not Found")
        status, _, headers = await ask("DELETE", f"{url}/metrics")
        assert (status, headers["Allow"]) == (405, "GET,HEAD")


async def test_connection_that_never_asks_is_closed(monkeypatch):
    """Half a request head, byte by byte, holds no connection for ever; one that asked stays open."""
    monkeypatch.setattr(listener, "FIRST_REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.05)
    async with serving() as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/-/healthy") as answer:
            await answer.read()
        assert await raw(url, b"GET / HTTP/1.1\r\nHost: loc") == b""
        async with session.get(f"{url}/-/healthy") as answer:
            assert answer.status == 200


async def test_reader_that_does_not_read_loses_its_connection(monkeypatch):
    """A scrape whose answer is not taken is given up, and its memory with it."""
    monkeypatch.setattr(answers, "WRITE_SECONDS", 0.3)
    given_up = asyncio.Event()
    give_up = answers.TimedResponse._give_up
    monkeypatch.setattr(
        answers.TimedResponse, "_give_up", lambda answer: (give_up(answer), given_up.set())
    )
    board = small_board()
    fill(board, extra=900, now=1_763_700_000.0, back_seconds=5)
    async with serving(board) as url:
        port = port_of(url)
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(lazy, ("127.0.0.1", port))
            await loop.sock_sendall(lazy, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(60):
                await given_up.wait()  # it does not read until the server's deadline
            got = b""
            while chunk := await loop.sock_recv(lazy, 65536):
                got += chunk
        promised = int(got.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        assert len(got) < promised
        assert (await ask("GET", f"{url}/-/healthy"))[0] == 200


async def test_port_that_is_taken_is_said_with_a_way_out():
    """An operator's mistake, not a traceback; the second server leaves nothing behind."""
    async with serving() as url:
        port = port_of(url)
        second = Server(Board(), host="127.0.0.1", port=port, ready=lambda: None)
        with pytest.raises(ServeError) as refused:
            await second.start()
        await second.stop()
        assert refused.value.cause == f"Cannot listen on 127.0.0.1:{port}: Address already in use"
        assert "--listen" in refused.value.remedy
    for host in ("203.0.113.7", "no.such.host.invalid"):
        with pytest.raises(ServeError, match="Cannot listen on"):
            await Server(Board(), host=host, port=0, ready=lambda: None).start()


async def test_who_comes_before_it_serves_waits_and_is_answered():
    """The address is taken before anything is looked at: a probe of the first moment is not refused."""
    server = Server(small_board(), host="127.0.0.1", port=0, ready=lambda: None)
    server.take()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /-/healthy HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    await writer.drain()
    await server.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        said = await reader.read()
    writer.close()
    await server.stop()
    assert said.startswith(b"HTTP/1.1 200 OK")


async def test_a_wrong_web_configuration_is_found_before_the_address_is_taken(tmp_path):
    file = tmp_path / "web.yaml"
    file.write_text("tls_server_config: {cert_file: none.pem, key_file: none.key}\n")
    server = Server(Board(), host="127.0.0.1", port=0, ready=lambda: None, web_config=file)
    with pytest.raises(ConfigError, match=r"none\.pem"):
        server.take()
    assert server.port == 0
    await server.stop()


def recording(*parts: bytes, error: str = "", hangs: bool = False):
    """One that is streamed in these parts, and then ends, breaks or hangs."""

    async def recorded(target: str, minutes: float) -> AsyncIterator[bytes]:
        for part in parts:
            yield part % (target.encode(), minutes) if b"%" in part else part
        if hangs:
            await asyncio.Event().wait()
        if error:
            raise RecordingError(error, "Free some")

    return recorded


RECORDED = recording(b"%s %g\n", b"more\n")


async def test_recording_is_a_download():
    """Streamed as it comes, under a name that a file can have; one that breaks off is seen as such."""
    async with serving(recording=RECORDED) as url:
        _, text, headers = await ask("GET", f"{url}/api/v1/recording?target=chat&minutes=2.5")
        assert text == "chat 2.5\nmore\n"
        assert headers["Content-Type"] == "application/gzip"
        assert headers["Content-Disposition"] == 'attachment; filename="chat.jsonl.gz"'
        assert (await ask("GET", f"{url}/api/v1/recording?target=chat"))[1][:8] == "chat 10\n"
    async with serving(recording=recording(b"half", error="vanished")) as url:
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask("GET", f"{url}/api/v1/recording?target=chat")


NO_RECORDING = (
    (RECORDED, "", 404, "There is no target ''"),
    (RECORDED, "target=nobody", 404, "There is no target 'nobody'"),
    (None, "target=chat", 404, "The flight recorder is off"),
    *((RECORDED, f"target=chat&minutes={each}", 400, f"minutes='{each}' is not a number above 0 and up to 60") for each in ("0", "nan", "61", "x")),
    (recording(), "target=chat", 404, "There is no recording of target 'chat' yet"),
    (recording(error="state/chat: no space left on device"), "target=chat", 404, "state/chat: no space left on device"),
    (recording(hangs=True), "target=chat", 503, "The recorder did not answer in time"),
)  # fmt: skip


@pytest.mark.parametrize(("found", "query", "status", "error"), NO_RECORDING)
async def test_recording_that_cannot_be_had(monkeypatch, found, query, status, error):
    monkeypatch.setattr(api, "_CHUNK_SECONDS", 0.5)
    async with serving(recording=found) as url:
        got, text, _ = await ask("GET", f"{url}/api/v1/recording?{query}")
        assert (got, json.loads(text)["error"]) == (status, error)


async def test_an_address_that_was_taken_is_freed_though_nothing_was_served():
    """As by a start that is stopped in its first moment."""
    server = Server(small_board(), host="127.0.0.1", port=0, ready=lambda: None)
    server.take()
    with pytest.raises(ServeError, match="already in use"):
        Server(Board(), host="127.0.0.1", port=server.port, ready=lambda: None).take()
    await server.stop()
    with socket.socket() as again:
        again.bind(("127.0.0.1", server.port))
