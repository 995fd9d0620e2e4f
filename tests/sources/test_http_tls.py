"""Engines that speak TLS: whom we trust, whom we are, and how it is said when one of both is wrong. Real servers."""

import asyncio
import os
import resource
import ssl
import subprocess
from contextlib import asynccontextmanager, suppress

import pytest
from structlog.testing import capture_logs

from tests.export.certificates import Authority
from tests.sources.wire import wire
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.settings.tls import FILE_BYTES_MAX, TlsConfig, TlsFileError
from vllm_watch.sources import http, http_caches
from vllm_watch.sources.vllm import VllmSource

METRICS = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nx 1\n"
PATIENCE_SECONDS = 60.0


class Server:
    """One that speaks TLS; `clients` are the names on the certificates that it was shown, one a request."""

    def __init__(self, authority, **signed):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*authority.signs("server", **signed).as_strings)
        self.context.sni_callback = lambda _, name, __: self.names.append(name)
        self.names = []
        self.clients = []
        self.closes = False
        self.url = ""

    def demands(self, authority):
        """A client shall show a certificate of this authority."""
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.load_verify_locations(cafile=authority.own.certificate)

    async def answers(self, request):
        shown = request.writer.get_extra_info("peercert") or {}
        self.clients.append(dict(pair for (pair,) in shown.get("subject", ())).get("commonName"))
        await request.raw(METRICS)
        if self.closes:
            raise ConnectionError


@asynccontextmanager
async def serving(server):
    async def answer(request):
        await server.answers(request)

    routes = {"metrics": answer, "health": answer}
    async with wire(secure=server.context, **routes) as listening:
        server.url = f"{listening.url}/metrics"
        yield server


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("strangers"), "strangers")


async def call(server, session=None, **tls):
    """How a GET ends."""
    limits = http.Limits(PATIENCE_SECONDS, PATIENCE_SECONDS, 1000, TlsConfig(**tls))
    if session is not None:
        return (await http.get(session, server.url, limits, {})).call
    async with http.Session() as own:
        return (await http.get(own, server.url, limits, {})).call


async def test_an_authority_of_ones_own_is_trusted(ours):
    """Where it is named; this host knows nothing of it."""
    async with serving(Server(ours)) as server:
        assert (await call(server, ca_file=ours.own.certificate)).outcome == "ok"
        assert (await call(server)).outcome == "tls"


def pairs(ours, strangers):
    """What a client may show: the right certificate, none, and another's."""
    right, wrong = ours.signs("watcher"), strangers.signs("impostor")
    return (
        {"cert_file": right.certificate, "key_file": right.key}, {},
        {"cert_file": wrong.certificate, "key_file": wrong.key},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("version", "outcome", "words"),
    [
        (ssl.TLSVersion.TLSv1_2, "connect_timeout", "broke off in the TLS handshake"),
        (ssl.TLSVersion.TLSv1_3, "tls", "it may require a client certificate"),
    ],
)
async def test_a_client_certificate_is_shown_where_it_is_demanded(
    ours, strangers, version, outcome, words
):
    """Without one, or with another's, asyncio's server (as uvicorn is) hangs up without a word. In TLS 1.3 that is
    after the handshake, and no engine that breaks off; before it ends, it may be a dead one behind a balancer."""
    server = Server(ours)
    server.demands(ours)
    server.context.minimum_version = server.context.maximum_version = version
    async with serving(server):
        calls = [
            await call(server, ca_file=ours.own.certificate, **pair)
            for pair in pairs(ours, strangers)
        ]
    assert [each.outcome for each in calls] == ["ok", outcome, outcome]
    assert all(words in each.error for each in calls[1:])
    assert server.clients == ["watcher"]


async def test_an_answer_that_breaks_off_is_no_matter_of_tls(ours):
    """Once a server has answered over TLS 1.3, its silence is an engine's."""
    server, trusted = Server(ours), {"ca_file": ours.own.certificate}
    async with serving(server), http.Session() as session:
        outcomes = [(await call(server, session, **trusted)).outcome]

        async def breaks_off(request):
            await request.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
            raise ConnectionError

        server.answers = breaks_off
        outcomes.append((await call(server, session, **trusted)).outcome)
    assert outcomes == ["ok", "disconnected"]


async def test_a_server_by_another_name(ours):
    """As behind an address that is in no certificate: the name is checked, and the server is told it."""
    async with serving(Server(ours, sans="DNS:llm.example.org")) as server:
        trusted = {"ca_file": ours.own.certificate}
        assert (await call(server, **trusted)).outcome == "tls"
        assert (await call(server, **trusted, server_name="llm.example.org")).outcome == "ok"
        assert (await call(server, **trusted, server_name="else.example.org")).outcome == "tls"
    assert server.names == [None, "llm.example.org", "else.example.org"]


async def test_any_certificate_is_taken_where_that_is_asked_for(strangers):
    """One of a stranger, for another name, that has run out."""
    async with serving(Server(strangers, sans="DNS:else.example.org", days=-1)) as server:
        assert (await call(server, insecure_skip_verify=True)).outcome == "ok"


async def test_each_target_has_its_own(ours, strangers):
    """One session asks both: a connection that was made with one trust does not serve the other."""
    async with serving(Server(ours)) as server, http.Session() as session:
        trusting, other = {"ca_file": ours.own.certificate}, {"ca_file": strangers.own.certificate}
        assert (await call(server, session, **trusting)).outcome == "ok"
        assert (await call(server, session, **other)).outcome == "tls"
        assert (await call(server, session, **trusting)).outcome == "ok"
        assert session.connections == 1


async def test_a_renewed_client_certificate_is_used_without_a_restart(ours, monkeypatch):
    """While certificate and key do not fit, the old ones serve, and that is said once."""
    monkeypatch.setattr(http_caches, "CHECK_SECONDS", 0.0)
    server = Server(ours)
    server.demands(ours)
    server.closes = True
    pair, renewed = ours.signs("old"), ours.signs("new")
    tls = {"ca_file": ours.own.certificate, "cert_file": pair.certificate, "key_file": pair.key}
    async with serving(server), http.Session() as session:

        async def asked_until(reached):
            """The files are looked at beside a call, not before it."""
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    assert (await call(server, session, **tls)).outcome == "ok"
                    if reached():
                        return

        await asked_until(lambda: True)
        os.replace(renewed.certificate, pair.certificate)
        with capture_logs() as logs:
            await asked_until(lambda: logs)
            for _ in range(3):
                await asked_until(lambda: True)
        assert set(server.clients) == {"old"}
        os.replace(renewed.key, pair.key)
        await asked_until(lambda: server.clients[-1] == "new")
    assert [line["event"] for line in logs] == ["tls_files_not_renewed"]
    assert "the key does not match the certificate" in logs[0]["cause"]


async def test_a_file_that_is_gone_is_said(ours, tmp_path):
    """With its key and a remedy, where there is nothing older that would serve."""
    async with serving(Server(ours)) as server:
        ended = await call(server, ca_file=tmp_path / "gone.pem")
    assert ended.outcome == "tls"
    assert ended.error.startswith("tls_config.ca_file: ")
    assert "name a file with" in ended.error


async def test_a_file_that_no_descriptor_is_left_for_is_our_trouble(ours):
    """The engine is as well as ever."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.dup(0)]
    server = Server(ours)
    server.url = "https://127.0.0.1:9/"
    async with http.Session() as session:
        await asyncio.to_thread(list)  # there is a thread to read in
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))  # fmt: skip
        try:
            with suppress(OSError):
                while True:
                    held.append(os.dup(0))
            ended = await call(server, session, ca_file=ours.own.certificate)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in held:
                os.close(each)
    assert (ended.outcome, "LimitNOFILE" in ended.error) == ("watcher", True)


async def test_so_many_are_kept_at_most(ours, monkeypatch):
    """Each holds the authorities of a system: the oldest goes, and is made anew when it is needed."""
    monkeypatch.setattr(http_caches, "CONTEXTS_MAX", 2)
    trust = http_caches.Trust()
    files = [
        TlsConfig(ca_file=ours.own.certificate, server_name=f"h{number}") for number in range(3)
    ]
    first, *_ = [await trust.context(each) for each in files]
    assert await trust.context(files[2]) is await trust.context(files[2])
    assert await trust.context(files[0]) is not first


async def test_a_target_is_asked_with_its_own_tls(ours):
    async with serving(Server(ours)) as server, http.Session() as session:
        target = Target(name="a", url=server.url.removesuffix("/metrics"), group="a")
        settings = ScrapeSettings(
            tls_config=TlsConfig(ca_file=ours.own.certificate), timeout_seconds=30
        )
        look = await VllmSource(target, settings, session).observe()
    assert (look.observation.scrape.outcome, look.observation.health.outcome) == ("ok", "ok")


def encrypted(pair, folder):
    """The same key with a passphrase."""
    to = folder / "encrypted.key"
    command = f"openssl ec -in {pair.key} -aes256 -passout pass:secret -out {to}".split()
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return to


def test_what_is_wrong_with_a_file_is_said(ours, tmp_path):
    """With the key that names it, whatever is wrong; nothing is waited for."""
    pair, other = ours.signs("one"), ours.signs("two")
    pipe, text, empty, huge = (tmp_path / name for name in ("pipe", "text", "empty", "huge"))
    os.mkfifo(pipe)
    text.write_text("no certificate")
    empty.write_text("")
    with huge.open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)

    def with_key(key, certificate=pair.certificate):
        return {"cert_file": certificate, "key_file": key}

    wrong = [
        ({"ca_file": tmp_path / "none"}, "ca_file", "No such file"),
        ({"ca_file": tmp_path}, "ca_file", "is a folder, not a regular file"),
        ({"ca_file": pipe}, "ca_file", "is a pipe, not a regular file"),
        ({"ca_file": text}, "ca_file", "no PEM"),
        ({"ca_file": empty}, "ca_file", "no PEM"),
        ({"ca_file": huge}, "ca_file", "larger than"),
        (with_key(pair.key, tmp_path / "none"), "cert_file", "No such file"),
        (with_key(tmp_path / "none"), "key_file", "No such file"),
        (with_key(text), "key_file", "no PEM"),
        (with_key(other.key), "cert_file", "does not match the certificate"),
        (with_key(encrypted(pair, tmp_path)), "key_file", "passphrase"),
    ]
    for keys, key, words in wrong:
        with pytest.raises(TlsFileError) as found:
            TlsConfig(**keys).context()
        assert (found.value.key, words in found.value.cause) == (key, True), (keys, found.value)
        assert found.value.remedy
        if key == "key_file" and "No such" in words:  # some write the key itself there
            assert str(keys["key_file"]) not in str(found.value)


async def test_another_authority_is_not_trusted(ours, strangers):
    async with serving(Server(strangers)) as server:
        ended = await call(server, ca_file=ours.own.certificate)
    assert (ended.outcome, server.clients) == ("tls", [])
    assert "certificate verify failed" in ended.error
