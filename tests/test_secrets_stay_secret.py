"""Secrets are planted everywhere, everything is done that the daemon can do, and all that comes out is searched.

A secret has no business in a log, an answer, a metric, a page, a recording, a bundle or the state file: all of
these are handed to other people.
"""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.daemon_process import ROOT, DaemonProcess, daemon
from tests.nvml_stub import GIB, NvmlStub, h200
from tests.planted import Planted, unpacked
from tests.sources.wire import Wire, wire
from tests.test_daemon import BODY

SECONDS_MAX = 30.0
READ = (
    "/", "/metrics", "/-/ready", "/api/v1/status", "/api/v1/incidents", "/api/v1/history?target=a",
    "/api/v1/recording?target=a", "/gate/probes?target=a", "/page/app.js", "/nowhere?token={wrong_token}",
)  # fmt: skip


class Run:
    """One daemon with secrets all around it, and what came out so far, by name."""

    def __init__(
        self, planted: Planted, process: DaemonProcess, engine: Wire, nvml: dict[str, str]
    ) -> None:
        self.planted = planted
        self._nvml = nvml
        self.process = process
        self.engine = engine
        self.outputs: dict[str, bytes] = {}

    async def ask(
        self, path: str, authorization: str | None = None, body: object = None
    ) -> tuple[int, bytes]:
        """Ask as the user, or as who is said; the answer, headers and all, is kept."""
        basic = base64.b64encode(f"ana:{self.planted['password']}".encode()).decode()
        headers = {"Authorization": authorization or f"Basic {basic}"}
        method = "GET" if body is None else "POST"
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=40)) as session,
            session.request(method, self.process.url + path, json=body, headers=headers) as answer,
        ):
            content = await answer.read()
            said = str(answer.headers).encode() + content
            name = f"{method} {path.partition('?')[0]} {len(self.outputs)}"
            self.outputs |= unpacked(name, said) | unpacked(f"{name} body", content)
            return answer.status, content

    async def status(self) -> dict:
        return json.loads((await self.ask("/api/v1/status"))[1])

    async def until(self, path: str, words: bytes) -> None:
        """Wait until an answer holds these words."""
        async with asyncio.timeout(SECONDS_MAX):
            while words not in (await self.ask(path))[1]:
                await asyncio.sleep(0.2)

    async def logged(self, event: str) -> None:
        """Wait until the log holds this event."""
        async with asyncio.timeout(SECONDS_MAX):
            while not any(event in str(line) for line in self.process.lines):
                await asyncio.sleep(0.1)

    async def read_all(self) -> None:
        for path in READ:
            await self.ask(path.format(**self.planted.values))
        await self._listen()

    async def _listen(self) -> None:
        """The first of the live updates."""
        basic = base64.b64encode(f"ana:{self.planted['password']}".encode()).decode()
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                self.process.url + "/api/v1/events", headers={"Authorization": f"Basic {basic}"}
            ) as page,
        ):
            got = b""
            async with asyncio.timeout(SECONDS_MAX):
                while b"event: target" not in got:
                    got += await page.content.readany()
            self.outputs["live updates"] = got

    async def commands(self, *each: tuple[object, ...]) -> None:
        """Run commands of ours, some at a time; what they say is kept."""
        at_once = asyncio.Semaphore(3)

        async def run(arguments: tuple[object, ...]) -> None:
            async with at_once:  # in threads: the engine that they ask lives in this loop
                await asyncio.to_thread(self._command, *arguments)

        await asyncio.gather(*map(run, each))

    def _command(self, *arguments: object) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
        done = subprocess.run(
            [sys.executable, "-m", "vllm_watch", *map(str, arguments)],
            cwd=ROOT, env=environ | self.planted.environment() | self._nvml, capture_output=True,
            timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        self.outputs[f"{arguments[0]} {len(self.outputs)}"] = done.stdout + done.stderr
        assert b"Traceback" not in done.stderr, done.stderr

    def collect_files(self, when: str) -> None:
        """All of the state folder, with what is packed in it."""
        for path in (self.planted.folder / "state").rglob("*"):
            if path.is_file():
                self.outputs |= unpacked(f"{when}: {path.name}", path.read_bytes())


def engine_routes(engine: Wire, planted: Planted) -> None:
    """A server that repeats in its errors whatever key it is shown."""
    idle = "\n".join(
        f"{line.rpartition(' ')[0]} 0.0"
        if line.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting"))
        else line
        for line in BODY.split("\n")
    )

    async def refuses(request) -> None:
        key = request.headers.get("authorization", "")
        said = {"error": {"message": f"Incorrect API key provided: {key.removeprefix('Bearer ')}"}}
        await request.answer(json.dumps(said), status="401 Unauthorized")

    engine.on("/metrics", idle)
    engine.on("/health", "")
    engine.on("/version", '{"version": "0.32.0"}')
    for path in ("/v1/models", "/v1/completions", "/v1/chat/completions"):
        engine.on(path, refuses)


async def change_things(run: Run) -> None:
    """Wrong ones, and then all that a person can ask for: a restart with its hook and bundle, too."""
    planted = run.planted
    wrong = base64.b64encode(f"ana:{planted['wrong_password']}".encode()).decode()
    await run.ask("/metrics", f"Basic {wrong}")
    await run.ask("/api/v1/pause", f"Bearer {planted['wrong_token']}", {"reason": "x"})
    right = f"Bearer {planted['api_token']}"
    await run.ask("/api/v1/pause", right, {"reason": "rack", "minutes": 1})
    await run.ask("/api/v1/resume", right, {})
    reason = {"reason": f"see https://chat/x?sig={planted['journal_override']}"}
    status, said = await run.ask("/api/v1/targets/a/restart", right, reason)
    assert status == 202, said
    async with asyncio.timeout(SECONDS_MAX):
        while not (planted.folder / "hook.env").exists():
            await asyncio.sleep(0.1)
    await run.until("/api/v1/status", b'"verifying"')


async def break_things(run: Run, stub: NvmlStub) -> None:
    """Faults, reloads and what an operator might write in a hurry."""
    planted = run.planted
    run.engine.on("/metrics", f"garbage token={planted['garbled_body']} http://u:{planted['garbled_body']}@h\n")  # fmt: skip
    await run.until("/api/v1/status", b'"garbled"')
    planted.break_configuration()
    run.process.process.send_signal(signal.SIGHUP)
    await run.ask("/-/reload", f"Bearer {planted['api_token']}", {})
    await run.until("/-/ready", b"but the web configuration")
    stub.patch({"gpu.0.compute": ""})
    await run.ask("/api/v1/status")


async def use_commands(run: Run, config: Path) -> None:
    """Every command that reads what the daemon reads or wrote, and wrong ones."""
    folder, planted, url = run.planted.folder, run.planted, run.engine.url
    commands: list[tuple[object, ...]] = [
        (*command, *form)
        for form in ((), ("--json",))
        for command in (
            ("check-config", config), ("hook", "test", "posts", "--config", config, "--target", "a"), ("gpus",),
            ("journal", "--state-dir", folder / "state"), ("diagnose", folder / "fatal.log"), ("read", url),
        )
    ]  # fmt: skip
    recorded = folder / "recorded.gz"
    here = "127.0.0.1:1"
    await run.commands(
        *commands,
        ("record", "--target", url, "--out", recorded, "--duration", "1", "--interval", "0.3"),
        ("restart", "a", "--url", run.process.url, "--token-file", folder / "key"),
        ("advise", "--url", f"http://u:{planted['url_password']}@{here}"),
        ("read", f"http://u:{planted['url_password']}@{here}"),
        ("read", f"http://{here}/?k={planted['url_query']}"),
        ("run", "--target", f"http://u:{planted['url_password']}@{here}"),
    )
    run.outputs |= unpacked("recorded.gz", recorded.read_bytes())


@pytest.mark.parametrize("form", ["json", "console"])
async def test_no_secret_comes_out_anywhere(tmp_path: Path, form: str) -> None:
    """Logs as both machines and people read them, answers, metrics, page, recordings, bundles, state, commands."""
    planted = Planted(tmp_path)
    stub = NvmlStub(tmp_path)
    engine_process = planted.engine_process()
    try:
        stub.set_state(gpus={0: h200(processes={engine_process.pid: 100 * GIB})})
        async with wire() as engine:
            engine_routes(engine, planted)
            config = planted.configure(engine.url)
            environ = planted.environment() | stub.env()
            environ |= {"VLLM_WATCH_LOG__LEVEL": "debug", "VLLM_WATCH_LOG__FORMAT": form}
            async with daemon("--config", config, environ=environ) as process:
                assert process.url, process.lines
                run = Run(planted, process, engine, stub.env())
                await run.logged("engine_log_says")
                await run.until("/api/v1/status", b"No available memory for the cache blocks")
                await run.until("/api/v1/status", b"cmdline")
                await run.read_all()
                await change_things(run)
                if form == "json":
                    await use_commands(run, config)
                await break_things(run, stub)
                await run.read_all()
                await run.commands(("check-config", config))
                run.collect_files("while it runs")
                await process.end()
                run.collect_files("when it has ended")
                run.outputs["log"] = json.dumps(process.lines).encode()
    finally:
        engine_process.kill()
        engine_process.wait()
    assert run.planted.found_in(run.outputs) == []
    if form == "json":
        _all_of_it_was_there(run)


def _all_of_it_was_there(run: Run) -> None:
    """The search says something only where there was something to find."""
    hidden = {name for name, content in run.outputs.items() if b"[hidden]" in content}
    for where in ("log", "GET /api/v1/status", "check-config", "gpus", "journal", "recording.jsonl.gz unpacked", "engine.log"):  # fmt: skip
        assert any(where in name for name in hidden), (where, sorted(hidden))
    environment = (run.planted.folder / "hook.env").read_text()
    assert "VLLM_WATCH_TARGET=a" in environment
    assert run.planted.found_in({"the hook's environment": environment.encode()}) == []
    assert any(run.planted["api_key"] in str(each.headers) for each in run.engine.requests)
