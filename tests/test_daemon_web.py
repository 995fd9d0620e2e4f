"""The whole daemon with a web configuration: how it is started, checked, and found by people and commands."""

from pathlib import Path

import aiohttp
import bcrypt
import pytest
import yaml

from tests.daemon_process import daemon
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
