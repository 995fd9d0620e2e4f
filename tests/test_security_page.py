"""docs/security.md: its example runs as it stands, and its numbers are those of the code."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import aiohttp
import yaml

from tests.daemon_process import ROOT, daemon
from tests.planted import PLACES
from vllm_watch.clients.signed_post import REPLAY_SECONDS
from vllm_watch.export import answers, auth, listener, web_config
from vllm_watch.export.operator_api import ALERTS_BYTES_MAX
from vllm_watch.settings import web
from vllm_watch.support import token_file

PAGE = (ROOT / "docs/security.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


async def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    """Certificates, password, web configuration; then the daemon, and curl as the page says."""
    make, look = BLOCKS
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, program in {"vllm-watch": "-m vllm_watch", "python3": ""}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {program} "$@"\n')
        (commands / name).chmod(0o755)
    environ = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euc", make], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "config.yaml is usable." in done.stdout
    async with daemon("--config", tmp_path / "config.yaml") as process:
        port = process.url.rpartition(":")[2]
        curl = look.splitlines()[0].replace(":9470", f":{port}")
        assert "vllm_watch_build_info" in await _shell(curl, tmp_path)
        untrusting = aiohttp.TCPConnector(ssl=False)
        async with (
            aiohttp.ClientSession(connector=untrusting) as session,
            session.get(f"{process.url}/metrics") as answer,
        ):
            assert answer.status == 401


async def _shell(command: str, folder: Path) -> str:
    running = await asyncio.create_subprocess_exec(
        "bash",
        "-euc",
        f"{command} --silent --show-error",
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(running.communicate(), 60)
    return said.decode()


def test_its_numbers_are_those_of_the_code() -> None:
    """A limit that is changed is changed here, too."""
    for said in (
        f"{listener.CONNECTIONS_PER_CALLER_MAX} connections of one address, {listener.CONNECTIONS_MAX} in all",
        f"{listener.FIRST_REQUEST_SECONDS:g} s for a request's head",
        f"{answers.BODY_SECONDS:g} s for its body, {answers.WRITE_SECONDS:g} s to take the answer",
        f"a body {answers.BODY_BYTES_MAX >> 10} KiB (alerts: {ALERTS_BYTES_MAX >> 20} MiB",
        f"{auth.CHANGES_MAX} times a minute",
        f"{auth.FAILURES_MAX} tries a minute",
        f"tokens have {token_file.TOKEN_CHARACTERS_MIN} characters",
        f"checked every {web_config.LOOK_SECONDS:g} seconds",
        f"bcrypt hash, cost 4 to {web.BCRYPT_COST_MAX}",
        f"older than {REPLAY_SECONDS} s",
        f"plants {len(PLACES)} of them",
    ):
        assert said in PAGE.replace("\n", " "), said


def test_every_key_of_the_web_configuration_is_on_the_page() -> None:
    """And its YAML is YAML."""
    for model in (web.WebSettings, web.TlsSettings, web.HttpSettings):
        for key in model.model_fields:
            if key != "curve_preferences":  # is refused, with a remedy
                assert key in PAGE
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        yaml.safe_load(text)
