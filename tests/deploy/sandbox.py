"""Runs every command that shown.py finds, as printed, beside what it names: engines, a daemon, Prometheus, a driver.

Started in namespaces of its own (`unshare --mount --net`) in a clone: ports and names are those that are printed, and
what is written to /var or the home folder is gone afterwards. It prints what each command showed, as JSON.
"""

import asyncio
import fcntl
import gzip
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import bcrypt
import yaml
from aiohttp import web

from tests.alerts.programs import pager, prometheus
from tests.capacity.models import LLAMA_31_8B, QWEN3_06B, QWEN3_32B
from tests.cli.preflight_host import PreflightHost
from tests.cli.test_capacity import V1 as START
from tests.daemon_process import ROOT
from tests.deploy.alone import loopback_up, make_host
from tests.deploy.reader import relay
from tests.deploy.shown import Shown, shown
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import load
from vllm_watch.lab.vllm import SimulatedVllm

NAMES = ("prometheus", "mimir", "gpu-7", "HOST", "llm.example.org")
ADDRESSES = ("10.0.0.7", "10.0.0.8")
SERVES = re.compile(r"vllm-watch (run|demo)\b(?!.*--scenario list)")
UNTIL_CTRL_C = re.compile(r"vllm-watch (record|gpus --watch)\b")
CHANGES = re.compile(r"vllm-watch (pause|resume|restart|approve|silence|journal|record|replay today)\b")  # fmt: skip
PLACEHOLDERS = {
    r"\bTARGET\b": "llama",
    r"\bINCIDENT\b|\bengine_stalled-1764633600-1a2b3c4d\b": "{incident}",
}
PATIENCE_SECONDS = 120.0
AT_ONCE = 3
DIED = "(EngineCore_DP0 pid=77) ERROR 10-09 15:40:00 [core.py:710] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which 1.00 GiB is free.\n"
LOAD = "(APIServer pid=7) INFO 10-09 15:39:50 [loggers.py:127] Engine 000: Avg prompt throughput: 812.4 tokens/s, Avg generation throughput: 240.1 tokens/s, Running: 12 reqs, Waiting: 3 reqs, GPU KV cache usage: 71.0%, Prefix cache hit rate: 0.0%\n"
KERNELS = "(EngineCore_DP0 pid=77) INFO 10-07 14:03:11 [cuda.py:408] Using Flash Attention backend on V1 engine.\n"
RECORDED_T = 1771854900.0
GPU = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA H100 80GB HBM3", "memory_total_bytes": 80 << 30, "memory_used_bytes": 1 << 29, "processes": [], "processes_complete": True}  # fmt: skip
PROGRAMS = {
    "vllm-watch": f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m vllm_watch "$@"',
    "python": f'PYTHONPATH="{ROOT}" exec "{sys.executable}" "$@"',
    # What brings a log from elsewhere brings this one.
    "kubectl": 'test "$1" = logs && cat "$LOG"',
    "journalctl": 'cat "$LOG"',
    "dmesg": "echo '[Thu Oct  9 15:40:00 2025] Out of memory: Killed process 77 (VLLM::EngineCor) total-vm:1kB, anon-rss:1kB'",
    "mail": "cat",
}  # fmt: skip


class Sandbox:
    """Its folders, the environment of its commands, and what became of each."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.host = PreflightHost(self.home, self.home)
        self.bin = self.home / "bin"
        self.here = Path.cwd()
        self.done: dict[str, tuple[int, str]] = {}
        self.incident = ""
        self.environ = self.host.env() | {
            "HOME": str(self.home), "LOG": str(self.here / "vllm.log"), "SHELL": "/bin/bash", "TERM": "xterm",
            "SSL_CERT_FILE": str(self.here / "authority.pem"), "VLLM_WATCH_TOKEN_FILE": str(self.home / ".vllm-watch.token"),
            "FPATH": str(self.home / "zsh"), "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "0.5",
        }  # fmt: skip
        self.environ["PATH"] = f"{self.bin}:{self.environ['PATH']}"

    def enter(self, root: Path) -> None:
        """Make `root` what all see: the host's programs, and names, addresses and folders of this sandbox's own."""
        loopback_up()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            for number, address in enumerate(ADDRESSES, 1):  # SIOCSIFADDR
                packed = struct.pack("16sH2s4s8x", f"lo:{number}".encode(), socket.AF_INET, b"", socket.inet_aton(address))  # fmt: skip
                fcntl.ioctl(any_socket, 0x8916, packed)
        make_host(root, NAMES)
        (root / "var/lib/vllm-watch").mkdir(parents=True, mode=0o700)
        os.chroot(root)
        os.chdir(self.here)

    def write(self) -> None:
        """Every file that a command names."""
        for name, text in PROGRAMS.items():
            self.bin.mkdir(exist_ok=True)
            (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.bin / name).chmod(0o755)
        for folder in ["zsh", ".local/state", ".local/share/bash-completion/completions", ".config/fish/completions"]:  # fmt: skip
            (self.home / folder).mkdir(parents=True)
        for folder, config in {"model": LLAMA_31_8B, "Llama-3.1-8B-Instruct": LLAMA_31_8B, "other-model": QWEN3_06B, "its-model": QWEN3_32B, "/models/llama": LLAMA_31_8B}.items():  # fmt: skip
            self.host.write_model(folder=self.here / folder, **config)
        self.host.cached("Qwen/Qwen3-32B", **QWEN3_32B)
        shutil.copy("model/config.json", "config.json")
        Path("serve.yaml").write_text("model: ./model\nmax-model-len: 8192\n")
        log = START.format(ranks=1, weights=61.03, kv=4.45).replace("a/b", "Qwen/Qwen3-32B")
        Path("vllm.log").write_text(log + KERNELS + LOAD + DIED)
        self.record("incident.jsonl.gz", "yesterday.jsonl.gz")
        for file in (".vllm-watch.token", ".config/vllm-watch.token", ".config/vllm-watch.user"):
            (self.home / file).write_text("anna:of-letters-many\n")
            (self.home / file).chmod(0o600)
        (self.home / ".local/state/vllm-watch").symlink_to("/var/lib/vllm-watch")
        self.certify()

    def record(self, *names: str) -> None:
        """A real hang, with a GPU beside it, at the time that a command names."""
        with gzip.open(ROOT / "tests/alerts/recordings/slow_hang_pinning.jsonl.gz", "rt") as file:
            lines = [json.loads(line) for line in file]
        for line in lines:
            line |= {"t": line["t"] - lines[-1]["t"] + RECORDED_T, "gpus": [GPU]}
        for name in names:
            with gzip.open(name, "wt") as file:
                file.writelines(f"{json.dumps(line)}\n" for line in lines)

    def certify(self) -> None:
        """An authority, and a certificate of it for every name."""
        names = ",".join(["DNS:localhost", *(f"DNS:{name}" for name in NAMES), "IP:127.0.0.1", *(f"IP:{each}" for each in ADDRESSES)])  # fmt: skip
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]  # fmt: skip
        for command in (
            [*new, "-subj", "/CN=authority", "-keyout", "authority.key", "-out", "authority.pem"],
            [*new, "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.pem", "-CA", "authority.pem",
             "-CAkey", "authority.key", "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE"],
        ):  # fmt: skip
            subprocess.run(command, check=True, capture_output=True, timeout=600)
        Path("server.key").chmod(0o600)
        shutil.copy("authority.pem", "ca.pem")
        hashed = bcrypt.hashpw(b"of-letters-many", bcrypt.gensalt(4)).decode()
        Path("web.yaml").write_text(yaml.safe_dump({
            "tls_server_config": {"cert_file": "server.pem", "key_file": "server.key"}, "basic_auth_users": {"anna": hashed},
        }))  # fmt: skip

    def configure(self, pager_url: str) -> None:
        """/etc/vllm-watch/vllm-watch.yaml, and in this folder the same of one engine."""
        config = {
            "state_dir": "/var/lib/vllm-watch", "listen": "127.0.0.1:19470",
            "targets": [{"name": "llama", "url": "http://127.0.0.1:8000"}, {"name": "batch", "url": "http://127.0.0.1:8001"}, {"name": "search", "url": "http://127.0.0.1:8002"}],
            "restart": {"mode": "approve", "hook": "restart-vllm", "peers": "none"},
            "hooks": {"command": [{"name": "restart-vllm", "argv": ["/bin/true"], "relaunches": True}]},
            "notifications": {"webhook": [{"name": "oncall", "url": f"{pager_url}/page"}]},
            "api": {"hosts": ["gpu-7"], "tokens": [{"name": "anna", "file": str(self.home / ".vllm-watch.token")}]},
        }  # fmt: skip
        Path("/etc/vllm-watch").mkdir()
        Path("/etc/vllm-watch/vllm-watch.yaml").write_text(yaml.safe_dump(config))
        config["targets"] = config["targets"][:1]
        Path("vllm-watch.yaml").write_text(yaml.safe_dump(config))

    async def run(self, each: Shown) -> None:
        """To its end, or to Ctrl-C once it has shown that it does what it is to do."""
        text = each.text
        for pattern, real in PLACEHOLDERS.items():
            text = re.sub(pattern, real.format(incident=self.incident), text)
        shell = "zsh" if "fpath" in text else "bash"
        process = await asyncio.create_subprocess_exec(
            shell, "-c", text, cwd=self.here / each.folder, env=self.environ, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said: list[bytes] = []

        async def read() -> None:
            assert process.stdout is not None
            while part := await process.stdout.read(1 << 16):
                said.append(part)

        reading = asyncio.create_task(read())
        try:
            if SERVES.search(text) or UNTIL_CTRL_C.search(text):
                works = (lambda: self.served(text)) if SERVES.search(text) else lambda: self.began(text, said)  # fmt: skip
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while process.returncode is None and not await asyncio.to_thread(works):
                        await asyncio.sleep(0.1)
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGINT)
            await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            said.append(b"it did not end, or did not begin")
        await reading
        self.done[str(each)] = (await process.wait(), b"".join(said).decode(errors="replace"))

    def served(self, text: str) -> bool:
        """A daemon on the port that is printed serves, and has read every engine that it was given."""
        try:
            with urllib.request.urlopen("http://127.0.0.1:9470/metrics", timeout=5) as answer:
                up = [line for line in answer if line.startswith(b"vllm_watch_target_up{")]
        except OSError:
            return False
        read = sum(line.endswith(b"} 1\n") for line in up)
        return read >= text.count("--target ") and (bool(up) or "demo" not in text)

    def began(self, text: str, said: list[bytes]) -> bool:
        """It has written its file, or its second screen."""
        out = re.search(r"--out (\S+)", text)
        if out is not None:
            file = self.here / out[1]
            return file.exists() and file.stat().st_size > 0
        return len(said) > 1


@asynccontextmanager
async def peers(sandbox: Sandbox, live: Live, pager_url: str) -> AsyncIterator[None]:
    """A daemon over three engines, one of which is gone and one dead; the same behind TLS; Prometheus, the same as Mimir."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        secure = {"targets": [{"url": "http://127.0.0.1:8000"}], "listen": "127.0.0.1:19471", "web_config": "web.yaml", "api": {"hosts": ["gpu-7"]}}  # fmt: skip
        Path("secure.yaml").write_text(yaml.safe_dump(secure))
        for port, file in ((19470, "/etc/vllm-watch/vllm-watch.yaml"), (19471, "secure.yaml")):
            process = await asyncio.create_subprocess_exec(
                "vllm-watch", "run", "--config", file, env=sandbox.environ,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(process.kill)
            await until(lambda port=port: _listens(port))
        for port in (9470, 9471):
            server = await relay(port, 19470, 19471, host="0.0.0.0")
            stack.callback(server.close)
        await enter(prometheus(sandbox.home, "127.0.0.1:9470", "127.0.0.1:9", ["127.0.0.1:8000", "127.0.0.1:8001"], "127.0.0.1:9090"))  # fmt: skip
        await enter(_mimir())
        await until(lambda: _stored('vllm:num_requests_running{instance="127.0.0.1:8001"}'))
        live.scene["batch"].fault("crash")
        await until(lambda: _stored('ALERTS{alertname="VllmEngineDown", alertstate="firing"}'))
        live.scene["search"].fault("engine_dead")
        await until(_approvable)
        await until(lambda: _stored('count_over_time((up{instance="127.0.0.1:8001"} == 0)[5m:1s]) > 10'))  # fmt: skip
        status = await asyncio.to_thread(_asked, "http://127.0.0.1:9470/api/v1/status")
        (sandbox.incident,) = [i["id"] for t in status["targets"] for i in t["incidents"] if t["name"] == "search"][:1]  # fmt: skip
        yield


def own_tls() -> ssl.SSLContext:
    """What a server shows."""
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain("server.pem", "server.key")
    return own


@asynccontextmanager
async def _mimir() -> AsyncIterator[None]:
    """On https://mimir/prometheus, for one tenant."""

    async def ask(request: web.Request) -> web.Response:
        if request.headers.get("X-Scope-OrgID") != "llm":
            return web.Response(status=401, text="no org id")
        url = f"http://127.0.0.1:9090{request.path.removeprefix('/prometheus')}"
        async with aiohttp.ClientSession() as session, session.post(url, data=await request.post()) as answer:  # fmt: skip
            return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")  # fmt: skip

    application = web.Application()
    application.router.add_post("/prometheus/{path:.*}", ask)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 443, ssl_context=own_tls()).start()
    try:
        yield
    finally:
        await runner.cleanup()


def _listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


def _approvable() -> bool:
    """A restart waits for a person."""
    with urllib.request.urlopen("http://127.0.0.1:9470/metrics", timeout=30) as answer:
        return any(
            line.startswith(b"vllm_watch_restart_waiting") and b"approval" in line and line.endswith(b" 1\n")
            for line in answer
        )  # fmt: skip


def _asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def _stored(selector: str) -> bool:
    url = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": selector})
    return bool(_asked(url)["data"]["result"])


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.2)


async def walk(sandbox: Sandbox) -> None:
    """First what serves itself, on free ports; then everything else, beside a daemon."""
    commands = [each for each in shown() if each.not_run is None]
    rng = Random(1)
    live = Live(
        Scene(
            [
                SimulatedVllm("llama", workload=load(rng, 2.0)),
                SimulatedVllm("batch"),
                SimulatedVllm("search"),
            ]
        )
    )
    llama, batch, search = [int(each.url.rpartition(":")[2]) for each in await live.start()]
    servers = [
        await relay(8000, llama, 18000, host="0.0.0.0"),
        await relay(18000, llama, own=own_tls()),
        await relay(8001, batch),
        await relay(8002, search),
    ]
    try:
        async with pager() as taking:
            sandbox.configure(taking.url)
            for each in commands:
                if SERVES.search(each.text):
                    await sandbox.run(each)
            rest = [each for each in commands if not SERVES.search(each.text)]
            async with peers(sandbox, live, taking.url):
                limit = asyncio.Semaphore(AT_ONCE - 1)

                walker = ["bash", "-c", "exec -a 'vllm serve ./model' sleep 600"]
                engine = await asyncio.create_subprocess_exec(*walker)  # as /proc shows one

                async def alone(each: Shown) -> None:
                    async with limit:
                        await sandbox.run(each)

                async def in_order() -> None:
                    for each in rest:
                        if CHANGES.search(each.text):
                            await sandbox.run(each)

                await asyncio.gather(in_order(), *(alone(each) for each in rest if not CHANGES.search(each.text)))  # fmt: skip
                engine.kill()
                await engine.wait()
    finally:
        for server in servers:
            server.close()
        await live.stop()


def main() -> None:
    folder = Path(sys.argv[1])
    (folder / "home").mkdir(exist_ok=True)
    sandbox = Sandbox(folder)
    sandbox.enter(folder / "root")
    os.environ["PATH"] = sandbox.environ["PATH"]
    sandbox.write()
    asyncio.run(walk(sandbox))
    print(json.dumps(sandbox.done))


if __name__ == "__main__":
    main()
