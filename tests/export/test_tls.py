"""TLS over real sockets, with certificates that openssl made: who is let in, with what, and what a renewal does."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.export.certificates import Authority, Pair
from tests.export.serving import serving
from tests.export.small_board import small_board
from vllm_watch.board.board import Board
from vllm_watch.export import listener, web_config
from vllm_watch.export.server import Server


class Site:
    """An authority with a server's and clients' certificates, and a web configuration file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.server = self.authority.signs("server")
        self.client = self.authority.signs("client", sans="DNS:prometheus,URI:spiffe://cluster/ops")
        self.expired = self.authority.signs("expired", days=-1)
        self.stranger = Authority(folder, "stranger").signs("somebody")
        self.file = folder / "web.yaml"

    def configure(self, **tls: object) -> Path:
        """Write the file; keys that are not given are as in the common case."""
        tls = {"cert_file": "server.pem", "key_file": "server.key"} | tls
        self.file.write_text(
            yaml.safe_dump({"tls_server_config": {k: v for k, v in tls.items() if v is not None}})
        )
        return self.file

    def trusting(self, pair: Pair | None = None, **changes: object) -> ssl.SSLContext:
        """A client that trusts the authority, with a certificate of its own or none."""
        made = ssl.create_default_context(cafile=str(self.authority.own.certificate))
        if pair is not None:
            made.load_cert_chain(*pair.as_strings)
        for name, value in changes.items():
            setattr(made, name, value)
        return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def encrypted(file: Path, board: Board | None = None) -> AsyncIterator[Server]:
    async with serving(board or small_board(), web_config=file) as server:
        yield server


async def status_of(
    server: Server, context: ssl.SSLContext | bool | None, scheme: str = "https"
) -> int | str:
    """The status of /-/healthy, or the kind of error that came instead."""
    connector = aiohttp.TCPConnector(ssl=context if context is not None else True)
    url = f"{scheme}://localhost:{server.port}/-/healthy"
    try:
        async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as said:
            return said.status
    except (aiohttp.ClientError, ConnectionError, ssl.SSLError):
        return "refused"


REQUIRED = {
    "client_auth_type": "RequireAndVerifyClientCert",
    "client_ca_file": "authority.pem",
}
IF_GIVEN = REQUIRED | {"client_auth_type": "VerifyClientCertIfGiven"}
NOBODY: dict[str, object] = {}
FOR_PROMETHEUS = REQUIRED | {"client_allowed_sans": ["prometheus", "grafana"]}
BY_URI = REQUIRED | {"client_allowed_sans": ["spiffe://cluster/ops"]}
FOR_OTHERS = REQUIRED | {"client_allowed_sans": ["grafana"]}

MATRIX = {
    "no certificate asked for, none given": (NOBODY, None, 200),
    "verified if given, none given": (IF_GIVEN, None, 200),
    "verified if given, a stranger's": (IF_GIVEN, "stranger", "refused"),
    "required, none given": (REQUIRED, None, "refused"),
    "required, ours": (REQUIRED, "client", 200),
    "required, a stranger's": (REQUIRED, "stranger", "refused"),
    "required, run out": (REQUIRED, "expired", "refused"),
    "required with one of these names, has it": (FOR_PROMETHEUS, "client", 200),
    "required with a URI, has it": (BY_URI, "client", 200),
    "required with one of these names, has none": (FOR_OTHERS, "client", 403),
}


@pytest.mark.parametrize(("tls", "given", "status"), MATRIX.values(), ids=MATRIX)
async def test_client_certificates(
    site: Site, tls: dict[str, object], given: str | None, status: int | str
) -> None:
    pair = None if given is None else getattr(site, given)
    async with encrypted(site.configure(**tls)) as server:
        assert server.scheme == "https"
        assert await status_of(server, site.trusting(pair)) == status


async def test_the_server_is_known_by_its_certificate(site: Site) -> None:
    """Who does not trust the authority does not speak with us, and nobody speaks in the clear."""
    async with encrypted(site.configure()) as server:
        assert await status_of(server, ssl.create_default_context()) == "refused"
        assert await status_of(server, None, scheme="http") == "refused"
        assert await status_of(server, site.trusting()) == 200


V = ssl.TLSVersion
VERSIONS = {
    "as by default, the older": ({}, {"maximum_version": V.TLSv1_2}, 200),
    "at least 1.3, the older": ({"min_version": "TLS13"}, {"maximum_version": V.TLSv1_2}, "refused"),
    "at most 1.2, the newer": ({"max_version": "TLS12"}, {"minimum_version": V.TLSv1_3}, "refused"),
    "only suites of 1.3, the older": (
        {"cipher_suites": ["TLS_AES_128_GCM_SHA256"]}, {"maximum_version": V.TLSv1_2}, "refused"),
    "a suite that both have": (
        {"cipher_suites": ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]}, {"maximum_version": V.TLSv1_2}, 200),
    "a suite that fits no key of ours": (
        {"cipher_suites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]}, {"maximum_version": V.TLSv1_2}, "refused"),
}  # fmt: skip


@pytest.mark.parametrize(("tls", "client", "status"), VERSIONS.values(), ids=VERSIONS)
async def test_versions_and_suites(
    site: Site, tls: dict[str, object], client: dict[str, object], status: int | str
) -> None:
    async with encrypted(site.configure(**tls)) as server:
        assert await status_of(server, site.trusting(**client)) == status


async def serial_of(server: Server, site: Site) -> str:
    _, writer = await asyncio.open_connection("localhost", server.port, ssl=site.trusting())
    found = writer.get_extra_info("peercert")["serialNumber"]
    writer.transport.abort()
    return str(found)


async def renewed(server: Server, site: Site, before: str) -> None:
    async with asyncio.timeout(15.0):
        while await serial_of(server, site) == before:
            await asyncio.sleep(0.05)


async def told(board: Board, wrong: bool = True) -> str:
    """Wait until the board says that something is wrong with the files, or that nothing is; return what."""
    assert board.web is not None
    async with asyncio.timeout(15.0):
        while (board.web.problem is not None) != wrong:
            await asyncio.sleep(0.05)
    return board.web.problem or ""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_config, "LOOK_SECONDS", 0.05)


@pytest.mark.usefixtures("quick")
async def test_a_renewed_certificate_counts_without_a_restart(tmp_path: Path) -> None:
    """New connections get the new one; one that was open goes on."""
    site = Site(tmp_path)
    board = small_board()
    async with encrypted(site.configure(), board) as server:
        before = await serial_of(server, site)
        connector = aiohttp.TCPConnector(ssl=site.trusting())
        async with aiohttp.ClientSession(connector=connector) as session:
            url = f"https://localhost:{server.port}/-/ready"
            async with session.get(url) as said:
                assert await said.text() == "ready\n"
            site.authority.signs("server")
            await renewed(server, site, before)
            async with session.get(url) as said:
                assert said.status == 200
    await told(board, wrong=False)


BROKEN = {
    "a certificate without its key": "tls_server_config: {cert_file: client.pem, key_file: server.key}",
    "empty, as a file that is just being written": "",
    "client certificates without an authority": (
        "tls_server_config: {cert_file: server.pem, key_file: server.key, "
        "client_auth_type: RequireAndVerifyClientCert}"
    ),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
async def test_a_broken_file_keeps_the_old_one_and_says_so(tmp_path: Path, text: str) -> None:
    """In /-/ready and the metric; what is mended is taken over by itself."""
    site = Site(tmp_path)
    board = small_board()
    async with encrypted(site.configure(), board) as server:
        site.file.write_text(text)
        await told(board)
        connector = aiohttp.TCPConnector(ssl=site.trusting())
        url = f"https://localhost:{server.port}"
        async with aiohttp.ClientSession(connector=connector) as session:
            ready = await (await session.get(f"{url}/-/ready")).text()
            metrics = await (await session.get(f"{url}/metrics")).text()
        assert ready.startswith("ready\nbut the web configuration: ")
        assert "The previous configuration stays in use" in ready
        assert "vllm_watch_web_config_reload_successful 0.0" in metrics
        site.configure(min_version="TLS13")
        await told(board, wrong=False)
        older = site.trusting(maximum_version=V.TLSv1_2)
        assert await status_of(server, older) == "refused"


@pytest.mark.usefixtures("quick")
async def test_a_new_certificate_may_come_before_its_key(tmp_path: Path) -> None:
    """Two files cannot be written at once: until the second is there the old pair is used."""
    site = Site(tmp_path)
    board = small_board()
    async with encrypted(site.configure(), board) as server:
        before = await serial_of(server, site)
        new = site.authority.signs("new")
        site.server.certificate.write_bytes(new.certificate.read_bytes())
        assert "the key does not match the certificate" in await told(board)
        assert await serial_of(server, site) == before
        site.server.key.write_bytes(new.key.read_bytes())
        await renewed(server, site, before)
        await told(board, wrong=False)


async def test_a_handshake_that_never_ends_is_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever connects and says nothing holds no descriptor for ever."""
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 2.0)
    async with encrypted(site.configure()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        assert await status_of(server, site.trusting()) == 200
