"""Commands, and probes with curl, reach a daemon behind TLS, passwords and client certificates."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import bcrypt
import pytest
import yaml

from tests.daemon_process import ROOT
from tests.export.certificates import Authority
from tests.export.serving import serving
from tests.export.small_board import small_board
from vllm_watch.board.restarts import Probes
from vllm_watch.cli.helpers.connection import Connection
from vllm_watch.cli.helpers.top.status import Daemon
from vllm_watch.errors import WatchError
from vllm_watch.export.server import Server

PASSWORD = "password-of-ana"


class Keeper:
    """Knows of one target's probes."""

    async def answer(
        self, target: str, which: str, started_t: float | None, source: str
    ) -> float | None:
        return None

    def probes(self, target: str) -> Probes:
        return Probes(liveness_asked_seconds=3.5, starts=(1795000000.0,))


class Site:
    """A server with all protections, and what a client needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority(folder)
        authority.signs("server")
        client = authority.signs("client")
        (folder / "client-both.pem").write_bytes(
            client.certificate.read_bytes() + client.key.read_bytes()
        )
        (folder / "client-both.pem").chmod(0o600)
        for name, text in {"user": f"ana:{PASSWORD}\n", "wrong": "ana:x\n", "bad": "ana\n"}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        tls = {
            "cert_file": "server.pem", "key_file": "server.key", "client_ca_file": "authority.pem",
            "client_auth_type": "RequireAndVerifyClientCert",
        }  # fmt: skip
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        self.web = folder / "web.yaml"
        self.web.write_text(
            yaml.safe_dump({"tls_server_config": tls, "basic_auth_users": {"ana": hashed}})
        )

    def connection(self, port: int, **changes: str | None) -> Connection:
        files = {
            "ca_file": "authority.pem",
            "cert_file": "client-both.pem",
            "credentials_file": "user",
        }
        named = {key: name and self.folder / name for key, name in (files | changes).items()}
        return Connection(url=f"https://localhost:{port}", **named)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


@asynccontextmanager
async def guarded(site: Site) -> AsyncIterator[Server]:
    async with serving(small_board(), web_config=site.web, gatekeeper=Keeper()) as server:
        yield server


async def targets_of(connection: Connection) -> list[str] | str:
    try:
        daemon = Daemon.at(connection)
    except WatchError as error:
        return error.cause
    try:
        return [each.name for each in (await daemon.status()).targets]
    except WatchError as error:
        return error.cause
    finally:
        await daemon.close()


ASKED: dict[str, tuple[dict[str, str | None], list[str] | str]] = {
    "with all": ({}, ["chat", "gone"]),
    "without a password": ({"credentials_file": None}, "asks for a user and a password"),
    "with a wrong one": ({"credentials_file": "wrong"}, "asks for a user and a password"),
    "with a file that holds none": ({"credentials_file": "bad"}, "does not hold USER:PASSWORD"),
    "with a file that is not there": ({"credentials_file": "no"}, "cannot be read: No such file"),
    "without a certificate": ({"cert_file": None}, "no answer from"),
    "without the authority": ({"ca_file": None}, "no answer from"),
    "with an authority that is none": ({"ca_file": "user"}, "--ca-file: "),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "told"), ASKED.values(), ids=ASKED)
async def test_a_daemon_behind_all_protections(
    site: Site, changes: dict[str, str | None], told: list[str] | str
) -> None:
    """What top and advise ask with; what is missing is said."""
    async with guarded(site) as server:
        found = await targets_of(site.connection(server.port, **changes))
    assert found == told if isinstance(told, list) else told in found
    assert PASSWORD not in str(found)


def run(*arguments: object, **environ: object) -> "subprocess.CompletedProcess[str]":
    clean = {name: text for name, text in os.environ.items() if not name.startswith("VLLM_")}
    return subprocess.run(
        [sys.executable, "-m", "vllm_watch", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
        timeout=600, check=False, env=clean | {name: str(text) for name, text in environ.items()},
    )  # fmt: skip


async def test_the_command_line_and_the_environment_say_it(site: Site) -> None:
    async with guarded(site) as server:
        url, folder = f"https://localhost:{server.port}", site.folder
        files = ("--ca-file", folder / "authority.pem", "--cert-file", folder / "client-both.pem")
        done = await asyncio.to_thread(
            run, "advise", "--json", "--url", url, *files, "--credentials-file", folder / "user"
        )
        assert json.loads(done.stdout)["targets"], done.stderr
        done = await asyncio.to_thread(
            run, "advise", "--json", VLLM_WATCH_URL=url, VLLM_WATCH_CA_FILE=folder / "authority.pem",
            VLLM_WATCH_CERT_FILE=folder / "client-both.pem", VLLM_WATCH_CREDENTIALS_FILE=folder / "user",
        )  # fmt: skip
        assert json.loads(done.stdout)["targets"], done.stderr


async def test_a_probe_with_curl_needs_only_its_configuration_file(site: Site) -> None:
    """The command of docs/hooks/gate.md as it is; without the file it gets no answer, which is "stay"."""
    (site.folder / ".curlrc").write_text(
        f'cacert = "{site.folder}/authority.pem"\ncert = "{site.folder}/client-both.pem"\n'
        f'user = "ana:{PASSWORD}"\n'
    )
    async with guarded(site) as server:
        url = f"https://localhost:{server.port}/gate/liveness?target=chat&started=&asked=w"
        command = ["curl", "-gsf", "-w", " %{http_code}", "--noproxy", "*", "--max-time", "10", url]
        for home, said in ((site.folder, "ok w\n 200"), (site.folder / "none", " 000")):
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=600, check=False,
                env={"PATH": os.environ["PATH"], "CURL_HOME": str(home), "HOME": str(home)},
            )  # fmt: skip
            assert done.stdout == said
