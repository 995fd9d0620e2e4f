"""Real vLLM servers that serve together: prefill and decode, which hand KV over, and ranks, which step together.

By hand: `python -m tests.real_vllm.together pair|ranks` serves until Ctrl-C.
"""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.ports import free_port
from tests.real_vllm.model import CONFIG
from tests.real_vllm.server import MODEL_NAME, RealVllm, find_venv

READY_SECONDS_MAX = 600.0  # two at once; 75 s on an idle machine with two cores
CALL_SECONDS_MAX = 300.0  # of a request that waits for a peer that a test has stopped

# bfloat16 meets a kernel for AMX here, which some virtual machines announce and do not have.
FLOAT32 = ("--dtype", "float32")
UCX = {"UCX_TLS": "tcp,self"}  # the transports that every machine has
TO_DECODE = {
    "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
    "remote_block_ids": None, "remote_host": None, "remote_port": None,
}  # fmt: skip
MIXTRAL = CONFIG | {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
    "num_experts_per_tok": 2, "router_aux_loss_coef": 0.0, "sliding_window": None,
    "output_router_logits": False, "tie_word_embeddings": False,
}  # fmt: skip
# vLLM's communicator for CPUs lacks two collectives of variable size; a plugin of it brings them, on gloo.
PLUGIN = Path(__file__).with_name("cpu_collectives.py")

Body = dict[str, Any]


@contextlib.contextmanager
def served(*servers: RealVllm) -> Iterator[None]:
    """Start them at once, since ranks wait for each other, and stop them all in the end."""
    with contextlib.ExitStack() as stack:
        for each in servers:
            each.make_model()
        for each in servers:
            stack.callback(each.stop)
            each.launch()
        for each in servers:
            each.wait_ready()
        yield


def _of_pair(folder: Path, name: str, role: str) -> RealVllm:
    home = folder / name
    home.mkdir()
    transfer = {"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": "cpu"}
    port = {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
    }
    return RealVllm(
        home, more=(*FLOAT32, "--kv-transfer-config", json.dumps(transfer)),
        model_folder=folder / "model",  # they refuse KV of what is called otherwise
        environment=UCX | port, ready_seconds_max=READY_SECONDS_MAX,
    )  # fmt: skip


@dataclass
class Pair:
    """A prefill server, a decode server, and the URL of the router before them."""

    prefill: RealVllm
    decode: RealVllm
    url: str = ""

    def prefilled(self, seed: int) -> Body:
        """What the decode is to be asked for a request that the prefill has done its part of."""
        prompt = [10 + (seed * 41 + i) % 900 for i in range(300)]
        body = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": 32, "ignore_eos": True}
        answer = _post(self.prefill.url, {**body, "max_tokens": 1, "kv_transfer_params": TO_DECODE})
        return {**body, "kv_transfer_params": answer["kv_transfer_params"]}

    @contextlib.contextmanager
    def decoding(self, handed: Sequence[Body]) -> Iterator[list[Future[Body]]]:
        """Hand these to the decode at once; what came of them is known after the block."""
        with ThreadPoolExecutor(len(handed)) as pool:
            yield [pool.submit(_post, self.decode.url, each) for each in handed]


def _post(url: str, body: Body) -> Body:
    """Raises OSError: no answer, or none that is a success."""
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=CALL_SECONDS_MAX) as answer:
        return dict(json.loads(answer.read()))


@contextlib.contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """A prefill and a decode that fetches its KV from it by NIXL over TCP, and a router."""
    venv = find_venv()
    tried = [venv / "bin" / "python", "-c", "import nixl"]
    if subprocess.run(tried, check=False, timeout=600).returncode:
        raise RuntimeError(f"no NIXL in {venv}: run tests/real_vllm/install.sh nixl")
    found = Pair(
        _of_pair(folder, "prefill", "kv_producer"), _of_pair(folder, "decode", "kv_consumer")
    )
    with served(found.prefill, found.decode), _router(found):
        yield found


@contextlib.contextmanager
def _router(servers: Pair) -> Iterator[None]:
    """What stands before a pair: it asks the prefill for one token, and the decode for the rest."""

    async def completions(request: web.Request) -> web.Response:
        body = await request.json()
        try:
            handed = await ask(
                servers.prefill, {**body, "max_tokens": 1, "kv_transfer_params": TO_DECODE}
            )
            body["kv_transfer_params"] = handed["kv_transfer_params"]
            return web.json_response(await ask(servers.decode, body))
        except (aiohttp.ClientError, TimeoutError):
            return web.Response(status=502)

    async def ask(server: RealVllm, body: Body) -> Body:
        async with session.post(f"{server.url}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            return dict(await answer.json())

    async def begin() -> tuple[aiohttp.ClientSession, web.AppRunner]:
        app = web.Application()
        app.router.add_post("/v1/completions", completions)
        # A client that gives up takes its request with it, as it does without a router between.
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        servers.url = f"http://127.0.0.1:{port}"
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS_MAX)
        return aiohttp.ClientSession(timeout=timeout), runner

    async def end() -> None:
        await runner.cleanup()
        await session.close()

    loop = asyncio.new_event_loop()
    session, runner = loop.run_until_complete(begin())
    thread = threading.Thread(target=loop.run_forever, name="router", daemon=True)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextlib.contextmanager
def ranks(folder: Path) -> Iterator[tuple[RealVllm, RealVllm]]:
    """Two data-parallel ranks of one mixture of experts, each with its own address."""
    plugins = folder / "plugins"
    named = plugins / "cpu_collectives-1.dist-info"
    named.mkdir(parents=True)
    (plugins / PLUGIN.name).write_text(PLUGIN.read_text())
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: cpu-collectives\nVersion: 1\n")
    (named / "entry_points.txt").write_text("[vllm.general_plugins]\ncpu = cpu_collectives:add\n")
    rpc = str(free_port())

    def rank(number: int) -> RealVllm:
        home = folder / f"rank{number}"
        home.mkdir()
        more = (
            "--data-parallel-size", "2", "--data-parallel-rank", str(number), "--data-parallel-size-local", "1",
            "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", rpc,
        )  # fmt: skip
        return RealVllm(
            home, more=(*FLOAT32, *more), environment={"PYTHONPATH": str(plugins)}, model=MIXTRAL,
            ready_seconds_max=READY_SECONDS_MAX,
        )  # fmt: skip

    both = rank(0), rank(1)
    with served(*both):
        yield both


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, contextlib.suppress(KeyboardInterrupt):
        if sys.argv[1:] == ["ranks"]:
            with ranks(Path(scratch)) as started:
                print([(each.url, each.processes()) for each in started], flush=True)
                signal.pause()
        else:
            with pair(Path(scratch)) as two:
                print(two.url, [(each.url, each.processes()) for each in (two.prefill, two.decode)])
                signal.pause()
