"""Each wrong start in one daemon: the page, `top`, the log and `check-config --ask` say the same of it."""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import yaml

from tests.daemon_process import daemon
from tests.ports import free_port
from tests.sources.test_what_answered import (
    ANSWERS,
    BODIES,
    SPEAKS_PLAIN_HTTP,
    SPEAKS_TLS,
    wrong_schemes,
)
from tests.sources.wire import wire

PATIENCE_SECONDS = 60.0


async def command(*arguments):
    """(exit status, stdout, stderr)."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_watch", *map(str, arguments), stdout=-1, stderr=-1,
        env=os.environ | {"COLUMNS": ""},  # nothing is cut off in a pipe
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def wrong_starts(folder):
    """Name → (URL, what is to be said of it)."""
    found = {}
    async with AsyncExitStack() as servers:
        for number, (handler, sentence) in enumerate([*ANSWERS, *BODIES]):
            server = await servers.enter_async_context(wire(metrics=handler))
            found[f"answer-{number}"] = (server.url, sentence)
        secure, plain = await servers.enter_async_context(wrong_schemes(folder))
        found |= {"secure": (secure, SPEAKS_TLS), "plain": (plain, SPEAKS_PLAIN_HTTP)}
        found["nobody"] = (
            f"http://127.0.0.1:{free_port()}",
            "no vLLM API server is seen on this host",
        )
        found["no-name"] = ("http://no-such-host.invalid:8000", "the host name does not resolve")
        yield found


async def test_every_wrong_start_gets_its_sentence_wherever_people_look(tmp_path):
    """A watcher that found something else than vLLM says what it is, and what to change."""
    proc = tmp_path / "proc"
    proc.mkdir()
    file = tmp_path / "watch.yaml"
    async with wrong_starts(tmp_path) as wrong:
        targets = [{"name": name, "url": url} for name, (url, _) in wrong.items()]
        file.write_text(yaml.safe_dump({"targets": targets, "procfs": str(proc)}))
        asked = await command("check-config", file, "--ask")
        async with daemon("--config", file) as process:
            status = await process.until(
                lambda status: all(each["signals"] for each in status["targets"]), PATIENCE_SECONDS
            )
            top = await command("top", "--once", "--url", process.url)
    page = {each["name"]: each["signals"]["state_text"] for each in status["targets"]}
    logged = {each["target"]: json.dumps(each) for each in process.lines if "because" in each}
    for name, (_, sentence) in wrong.items():
        assert sentence in page[name]
        assert sentence in top[1], name
        assert json.dumps(sentence)[1:-1] in logged[name]
        (line,) = (each for each in asked[2].splitlines() if each.startswith(f"{name}: "))
        assert sentence in line
    assert asked[0] == 1


@pytest.mark.parametrize("arguments", [("run", "--target"), ("read",)])
async def test_the_address_of_the_openai_api_is_refused(arguments):
    """/v1 too much is said before anything is asked, in the same words."""
    status, _, err = await command(*arguments, "http://127.0.0.1:8000/v1")
    assert status == 2
    assert "leave /v1 out" in err
