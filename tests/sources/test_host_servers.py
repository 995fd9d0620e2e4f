"""This host's vLLM servers, found in /proc: real processes with real sockets, and command lines that only look so."""

import asyncio
import sys
from pathlib import Path

from tests.fake_vllm import vllm_serve
from tests.ports import free_port
from vllm_watch.config import Config
from vllm_watch.discovery.targets import Discovery, targets_of
from vllm_watch.settings.target import DiscoverySettings
from vllm_watch.sources import host_servers
from vllm_watch.sources.host_servers import servers
from vllm_watch.sources.processes import ProcessFacts, ProcessListing

PROC = Path("/proc")
PATIENCE_SECONDS = 60.0
_TOO_BUSY = b"cannot be listed"


async def found(*ports):
    """The servers here, once those at these ports are among them; a busy machine may take several looks."""
    here, listing = {}, ProcessListing()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not here.keys() >= {f"http://127.0.0.1:{port}" for port in ports}:
            here |= {each.url: each for each in await servers(listing, PROC) or ()}
    return here


def test_a_server_without_arguments_and_one_that_embeds_vllm():
    """`vllm serve` alone loads for port 8000; a program with an engine core, and nothing that listens, is none yet."""
    facts = [
        ProcessFacts(pid=4_194_301, ppid=1, cmdline=("/usr/bin/vllm", "serve")),
        ProcessFacts(pid=4_194_302, ppid=1, cmdline=("python", "mine.py")),
        ProcessFacts(pid=4_194_303, ppid=4_194_302, cmdline=("VLLM::EngineCore",)),
    ]
    found = host_servers.find({each.pid: each for each in facts}, PROC)
    assert [(each.url, each.sure) for each in found] == [("http://127.0.0.1:8000", True)]


async def test_servers_are_found_by_command_line_and_socket(tmp_path):
    """Each at its own port, with the model that its command line names."""
    async with (
        vllm_serve(tmp_path / "a", "serve", "meta/llama", "--port", "{port}") as (_, first),
        vllm_serve(tmp_path / "b", "serve", "x", "--served-model-name", "qwen", "--port={port}") as (_, second),
    ):  # fmt: skip
        here = await found(first, second)
    assert here[f"http://127.0.0.1:{first}"].model == "llama"
    assert here[f"http://127.0.0.1:{second}"].model == "qwen"


async def test_a_port_that_the_command_line_does_not_tell_is_asked(tmp_path):
    """--config may name any port: the sockets say which, and the answer that it is vLLM's."""
    async with vllm_serve(tmp_path, "serve", "--config", "serve.yaml") as (_, port):
        here = await found(port)
    assert here[f"http://127.0.0.1:{port}"].model == "model-8b"


async def test_what_was_found_stays_and_new_ones_are_followed(tmp_path):
    """A server whose process is gone has crashed, and has not left."""
    config = Config(discovery=DiscoverySettings(host=True, refresh_seconds=1))
    discovery = Discovery(config)

    def urls(targets):
        return {each.url for each in targets or ()}

    async with vllm_serve(tmp_path / "a", "serve", "m", "--port", "{port}") as (_, first):
        now_s, seen = 0.0, set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while f"http://127.0.0.1:{first}" not in seen:
                seen |= urls(await discovery.refresh(now_s := now_s + 60))
    async with vllm_serve(tmp_path / "b", "serve", "m", "--port", "{port}") as (_, second):
        both = set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while f"http://127.0.0.1:{second}" not in both:
                both |= urls(await discovery.refresh(now_s := now_s + 60))
                await asyncio.sleep(0.1)
    assert f"http://127.0.0.1:{first}" in both


def test_a_decode_is_the_peer_of_the_prefills_of_its_model():
    """As `--kv-transfer-config` says; one of another model, or that says nothing readable, is nobody's."""
    servers_ = {
        "4001": ("m", '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'),
        "4002": ("m", '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}'),
        "4003": ("n", '{"kv_role": "kv_producer"}'),
        "4004": ("m", '{"kv_role"'),
        "4005": ("m", "[7]"),
    }
    facts = [
        ProcessFacts(
            pid=4_194_000 + number, ppid=1,
            cmdline=("vllm", "serve", model, "--port", port, "--kv-transfer-config", transfer),
        )
        for number, (port, (model, transfer)) in enumerate(servers_.items())
    ]  # fmt: skip
    found = host_servers.find({each.pid: each for each in facts}, PROC)
    targets = targets_of({each.url: each for each in found})
    peers = {each.name: each.peers for each in targets}
    ours = {name: peers[name] for name in (f"vllm-{port}" for port in servers_)}
    assert ours == {
        "vllm-4001": (), "vllm-4002": ("vllm-4001",), "vllm-4003": (), "vllm-4004": (), "vllm-4005": (),
    }  # fmt: skip


async def test_without_any_server_it_is_said(tmp_path):
    """A procfs without processes, and nothing on the usual port of ours."""
    discovery = Discovery(Config(discovery=DiscoverySettings(host=True), procfs=tmp_path))
    assert await discovery.refresh(0) == ()
    assert "no vLLM server runs on this host" in discovery.nothing_found
    assert "--target HOST:PORT" in discovery.nothing_found


async def test_read_tells_of_every_server_though_one_does_not_answer(tmp_path):
    """The first of them loads its weights; those behind it are read all the same, and the exit status says so."""
    loading, free = tmp_path / "vllm", free_port()
    loading.write_text("import time; print(flush=True); time.sleep(600)")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(loading), "serve", "m", "--port", str(free), stdout=-1
    )
    try:
        await process.stdout.readline()
        async with vllm_serve(tmp_path / "v", "serve", "m", "--port", "{port}") as (_, port):
            err, out = _TOO_BUSY, b""
            while _TOO_BUSY in err:
                read = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "vllm_watch", "read", stdout=-1, stderr=-1
                )
                out, err = await asyncio.wait_for(read.communicate(), PATIENCE_SECONDS)
    finally:
        process.kill()
        await process.wait()
    assert f"http://127.0.0.1:{port}  m\nvLLM, " in out.decode(), err.decode()
    assert f"http://127.0.0.1:{free}/metrics cannot be read: connection refused" in err.decode()
    assert read.returncode == 2
