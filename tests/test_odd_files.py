"""A pipe or a device where a file is expected: refused at once, also where a library opens it, and the daemon goes on."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.daemon_process import DaemonProcess, daemon
from vllm_watch.cli import advise
from vllm_watch.cli.helpers import connection
from vllm_watch.clients import signed_post
from vllm_watch.errors import WatchError
from vllm_watch.export import otlp_exporter, web_config
from vllm_watch.restart.locks import file as file_lock
from vllm_watch.sources import recording
from vllm_watch.state import file as state_file
from vllm_watch.state import seal

TOKEN = "a-token-of-enough-characters"


def lock(pipe: Path) -> object:
    made = file_lock.Lock(pipe.parent, "restart", slots=1, ttl_seconds=30.0)
    made._file = pipe
    return made._read()


def state(pipe: Path) -> object:
    pipe.rename(pipe.parent / state_file.NAME)
    return state_file.connect(pipe.parent)


def generation(pipe: Path) -> object:
    pipe.rename(pipe.parent / seal.NAME)
    return seal.read_marker(pipe.parent)


def state_lock(pipe: Path) -> object:
    pipe.rename(pipe.parent / state_file.LOCK_NAME)
    return state_file.lock(pipe.parent)


# That all others go through the one way is tried in test_one_way_to_read.py, and the way itself in support/test_regular_file.py.
READERS = {
    "web_config's certificate": lambda pipe: web_config._load(_web(pipe)),
    "secret_file": lambda pipe: signed_post.read_secret(pipe, "secret_file"),
    "otlp.headers_file": otlp_exporter._headers,
    "engine log of advise": lambda pipe: advise._of_log(str(pipe)),
    "lock": lock,
    "state": state,
    "state's generation": generation,
    "state's lock": state_lock,
    "recording": lambda pipe: list(recording.read(pipe)),
    "--ca-file": lambda pipe: connection.Connection(ca_file=pipe).tls(),
    "--cert-file": lambda pipe: connection.Connection(cert_file=pipe).tls(),
}


def _web(pipe: Path) -> Path:
    made = pipe.with_name("web.yaml")
    made.write_text(
        json.dumps({"tls_server_config": {"cert_file": str(pipe), "key_file": str(pipe)}})
    )
    return made


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path, reader: object) -> None:
    """No reader waits for a writer; each raises as for a file that it cannot read."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    came: list[object] = []

    def read() -> None:
        try:
            came.append(reader(pipe))
        except (OSError, ValueError, WatchError) as error:
            came.append(error)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(20)
    assert not reading.is_alive()
    assert came == [None] or isinstance(came[0], Exception), came


async def test_the_daemon_goes_on_and_ends(tmp_path: Path) -> None:
    """file_sd, a token and the configuration at SIGHUP: the other targets are watched, and SIGTERM ends it with 0."""
    good, bad, device, token = (tmp_path / name for name in ("a.json", "b.json", "c.json", "token"))
    good.write_text(json.dumps([{"targets": ["127.0.0.1:1"]}]))
    os.mkfifo(bad)
    device.symlink_to("/dev/zero")
    token.write_text(TOKEN)
    token.chmod(0o600)
    config = tmp_path / "config.yaml"
    text = json.dumps({
        "discovery": {"file_sd": [str(tmp_path / "*.json")], "refresh_seconds": 1},
        "api": {"tokens": [{"name": "ana", "file": str(token)}]},
        "detectors": {"engine_down": {}},
    })  # fmt: skip
    config.write_text(text)
    async with daemon("--config", config, "--state-dir", tmp_path / "state") as process:
        await process.until(lambda said: len(said["targets"]) == 1)
        said = json.dumps(process.lines)
        assert "is a pipe, not a regular file" in said
        assert "is a device, not a regular file" in said
        token.unlink()
        os.mkfifo(token)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{process.url}/-/reload", headers={"Authorization": f"Bearer {TOKEN}", "X-Forwarded-For": "10.0.0.1"}) as refused,
        ):  # fmt: skip
            assert refused.status == 401
        [unusable] = process.events("token_unusable")
        assert "is a pipe" in unusable["because"]
        assert unusable["token_name"] == "ana"
        config.unlink()
        os.mkfifo(config)
        process.process.send_signal(signal.SIGHUP)
        await _until(lambda: process.events("reload_refused"), process)
        config.unlink()
        config.write_text(text)
        process.process.send_signal(signal.SIGHUP)
        await _until(lambda: process.events("reloaded"), process)
        assert await process.end() == 0


async def _until(true: Callable[[], object], process: DaemonProcess) -> None:
    await process.until(lambda _: true())
