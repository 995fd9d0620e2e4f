"""`vllm-watch probe`, the image's health check: whatever the web configuration asks for, and what is no answer."""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.daemon_process import ROOT
from tests.export.certificates import Authority
from tests.export.serving import serving
from tests.export.small_board import small_board
from vllm_watch.cli import probe
from vllm_watch.export.server import Server

REQUIRED = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "authority.pem"}
HASHED = "$2b$04$XyzXyzXyzXyzXyzXyzXyzOg5gJMQ4dJ4ZbQWbq0gkFQmOWmYk6nNe"
WEB: dict[str, dict[str, object]] = {
    "nothing": {},
    "a password": {"basic_auth_users": {"ana": HASHED}},
    "TLS": {"tls_server_config": {}},
    "TLS of 1.2 at most": {"tls_server_config": {"max_version": "TLS12"}},
    "TLS and a password": {"tls_server_config": {}, "basic_auth_users": {"ana": HASHED}},
    "a client certificate": {"tls_server_config": REQUIRED},
    "a client certificate, with 1.2": {"tls_server_config": REQUIRED | {"max_version": "TLS12"}},
    "a client certificate of a name": {"tls_server_config": REQUIRED | {"client_allowed_sans": ["ana"]}},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    Authority(made).signs("server")
    return made


@asynccontextmanager
async def asking(folder: Path, wanted: dict[str, object]) -> AsyncIterator[Server]:
    tls = wanted.get("tls_server_config")
    if isinstance(tls, dict):
        tls |= {"cert_file": "server.pem", "key_file": "server.key"}
    file = folder / "web.yaml"
    file.write_text(yaml.safe_dump(wanted))
    async with serving(small_board(), web_config=file if wanted else None) as server:
        yield server


async def probed(url: str | None) -> int:
    return await asyncio.to_thread(probe.run, argparse.Namespace(url=url))


@pytest.mark.parametrize("wanted", WEB.values(), ids=WEB)
async def test_a_server_that_lives_answers(
    folder: Path, wanted: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named with its scheme, or found out where nobody says which it is."""
    async with asking(folder, wanted) as server:
        assert await probed(f"{server.scheme}://127.0.0.1:{server.port}") == 0
        monkeypatch.delenv("VLLM_WATCH_URL", raising=False)
        monkeypatch.setattr(probe, "DEFAULT_URL", f"http://127.0.0.1:{server.port}")
        assert await probed(None) == 0


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def saying(text: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(text)
        writer.close()

    return answer


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes the connection and all that comes, and says nothing: an event loop that hangs looks so."""
    while await reader.read(1024):
        pass
    writer.close()


DEAD = {
    "it says nothing": ("http", silent, "nothing came within"),
    "it says nothing to TLS": ("https", silent, "nothing came within"),
    "it does not feel well": ("http", saying(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"), "HTTP status 500"),
    "it is no web server": ("http", saying(b"220 mail\r\n"), "220 mail"),
    "it hangs up": ("http", saying(b""), "Remote end closed"),
    "it speaks no TLS": ("https", saying(b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n"), "SSL"),
}  # fmt: skip


@pytest.mark.parametrize(("scheme", "answer", "said"), DEAD.values(), ids=DEAD)
async def test_what_is_no_answer(
    scheme: str, answer: Answer, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1, and why: Docker keeps it with the container's health."""
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await probed(f"{scheme}://127.0.0.1:{port}") == 1
    told = capsys.readouterr().err
    assert told.startswith(f"vllm-watch: 127.0.0.1:{port} does not answer: ")
    assert said in told


def command() -> list[str]:
    """What the image's HEALTHCHECK runs, by this Python."""
    (listed,) = re.findall(
        r"^HEALTHCHECK .*?CMD (\[.*?\])$",
        (ROOT / "Dockerfile").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    program, *arguments = json.loads(listed)
    assert program == "/opt/vllm-watch/bin/vllm-watch"
    return [sys.executable, "-m", "vllm_watch", *arguments]


def run(environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """The health check in a container that was started with these variables."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("VLLM_")}
    return subprocess.run(
        command(), cwd=ROOT, env=clean | environ, capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip


async def test_the_images_health_check(folder: Path) -> None:
    """Told of another port as docs/install.md says; a closed one is status 1, and no traceback."""
    async with asking(folder, {"tls_server_config": dict(REQUIRED)}) as server:
        environ = {"VLLM_WATCH_URL": f"https://127.0.0.1:{server.port}"}
        alive = await asyncio.to_thread(run, environ)
    gone = await asyncio.to_thread(run, environ)
    assert (alive.returncode, alive.stderr) == (0, "")
    assert (gone.returncode, len(gone.stderr.splitlines())) == (1, 2), gone.stderr
    assert "Connection refused" in gone.stderr
