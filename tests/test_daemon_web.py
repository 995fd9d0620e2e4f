"""The whole daemon with a web configuration: how it is started, checked, and found by people and commands."""

import subprocess
import sys
from pathlib import Path

import aiohttp
import bcrypt
import pytest
import yaml

from tests.daemon_process import ROOT, daemon
from tests.export.certificates import Authority

TLS = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates, a web configuration with a user, and a configuration that names it."""
    Authority(tmp_path).signs("server")
    hashed = bcrypt.hashpw(b"password", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yaml").write_text(f"{TLS}basic_auth_users: {{ana: {hashed}}}\n")
    document = {
        "web_config": "web.yaml", "gpu": {"enabled": "off"}, "api": {"hosts": ["watch.example.org"]},
        "targets": [{"url": "http://127.0.0.1:9"}],
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))
    return tmp_path


def check_config(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "vllm_watch", "check-config", folder / "config.yaml"],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("named_by", ["argument", "configuration"])
async def test_it_serves_with_tls_and_passwords(folder: Path, named_by: str) -> None:
    """Named on the command line or in the configuration; the log says where to open it."""
    arguments = ("--config", folder / "config.yaml")
    if named_by == "argument":
        arguments = ("--web-config", folder / "web.yaml", "--target", "http://127.0.0.1:9")
    async with daemon(*arguments, environ={"VLLM_WATCH_GPU__ENABLED": "off"}) as process:
        assert process.url.startswith("https://127.0.0.1:")
        auth = {"Authorization": "Basic YW5hOnBhc3N3b3Jk"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
            async with session.get(f"{process.url}/metrics", headers=auth) as answer:
                assert answer.status == 200
            async with session.get(f"{process.url}/metrics") as answer:
                assert answer.status == 401
            named = auth | {"Host": "watch.example.org"}
            async with session.get(f"{process.url}/metrics", headers=named) as answer:
                assert answer.status == (200 if named_by == "configuration" else 421)


async def test_a_broken_web_configuration_stops_the_start(folder: Path) -> None:
    """With cause and remedy and status 2: it is not served without what was asked for."""
    (folder / "web.yaml").write_text("tls_server_config: {cert_file: server.pem}\n")
    async with daemon("--config", folder / "config.yaml") as process:
        assert await process.process.wait() == 2
    said = "".join(line["text"] for line in process.lines)
    assert "web.yaml: tls_server_config.key_file: is missing" in said
    assert "Traceback" not in said


WRONG = {
    "a key that is unknown": ("tls: {}", "web.yaml: tls: unknown key"),
    "a key of another certificate": (TLS, "the key does not match the certificate"),
    "no file": (None, "web.yaml: no such file"),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_check_config_checks_it_too(folder: Path, text: str | None, words: str) -> None:
    """With its certificates, as `run` would."""
    assert check_config(folder).returncode == 0
    (folder / "server.key").write_bytes((folder / "authority.key").read_bytes())
    if text is None:
        (folder / "web.yaml").unlink()
    else:
        (folder / "web.yaml").write_text(text)
    done = check_config(folder)
    assert done.returncode == 2
    assert words in done.stderr
    assert "→" in done.stderr
