"""Follows pages of docs as a new user would: their fenced blocks, each under a comment that says how a test is to run it.

`python -m tests.deploy.reader follow PAGE HOME HOW...` runs the blocks of these kinds in a clone, in their order, with
that home folder; in a network namespace of its own (ALONE) ports are free and as the page says. `walk PAGE HOME` runs all
but the first beside a Prometheus that was there before, whose /etc/prometheus is of this mount namespace, and an engine.
It prints what each showed, as JSON.
"""

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.deploy.alone import loopback_up
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm

PATIENCE_SECONDS = (
    700.0  # the demo repeats itself after ten minutes, and not all of its faults page
)
COMMAND_SECONDS_MAX = 600.0  # one that installs
SCREEN_SECONDS = 8
PROMETHEUS = Path("/etc/prometheus/prometheus.yml")
TLS_HANDSHAKE = 0x16  # the first byte of a TLS connection
# Theirs, before: as short as it can be, and quicker than most, since a test waits for it.
THEIRS = (
    "global: {scrape_interval: 5s, evaluation_interval: 5s}\nrule_files: []\nscrape_configs: []\n"
)


BLOCK = re.compile(
    r"^(?:<!-- (?P<how>[^:\n]+?)(?:: (?P<shows>.+?))? -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """`how` it is run, and a pattern of what is then to be seen ("" for anything)."""

    how: str
    shows: str
    kind: str  # sh or yaml
    text: str


def blocks(page: Path) -> list[Block]:
    """All of a page, in their order."""
    return [
        Block(found["how"] or "", found["shows"] or "", found["kind"], found["text"])
        for found in BLOCK.finditer(page.read_text())
    ]


class Reader:
    """Runs one block after the other. A background command ends when the next one is started."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = os.environ | {"HOME": str(home), "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}  # fmt: skip
        self.background: subprocess.Popen[bytes] | None = None

    def follow(self, block: Block) -> str:
        """Do what it says; what was seen. Raises TimeoutError where it is not what was promised."""
        if block.how.startswith("add to "):
            return self.add(block)
        if block.how == "run in the background":
            return self.start(block)
        if block.how == "run on a screen":
            text = f"timeout -s INT {SCREEN_SECONDS} script -qec {block.text.strip()!r} /dev/null || true"
            return self.until(block, text)
        return self.until(
            block, block.text, tries=1 if block.how in ("run", "run as root") else None
        )

    def until(self, block: Block, text: str, tries: int | None = None) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", text], env=self.environ, capture_output=True,
                text=True, errors="replace", timeout=COMMAND_SECONDS_MAX, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
            said = done.stdout + done.stderr
            if done.returncode == 0 and re.search(block.shows, said):
                return said
            if tries == 1 or time.monotonic() > deadline:
                raise TimeoutError(f"{block.text}ended with {done.returncode}: {said[-2000:]}")
            time.sleep(1)

    def start(self, block: Block) -> str:
        self.stop()
        log = self.home / "background.log"
        with log.open("wb") as out:
            self.background = subprocess.Popen(
                ["bash", "-c", f"exec {block.text.strip()}"], env=self.environ, stdout=out,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not re.search(block.shows, said := log.read_text()):
            if self.background.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"{block.text}: {said[-2000:]}")
            time.sleep(0.2)
        return said

    def stop(self) -> None:
        """Ctrl-C."""
        if self.background is not None:
            self.background.send_signal(signal.SIGINT)
            self.background.wait(timeout=30)

    def add(self, block: Block) -> str:
        """Lists grow by what the page has."""
        file = Path(block.how.removeprefix("add to "))
        have, new = yaml.safe_load(file.read_text()), yaml.safe_load(block.text)
        for key, said in new.items():
            have[key] = have.get(key, []) + said if isinstance(said, list) else said
        file.write_text(yaml.safe_dump(have))
        return file.read_text()


async def relay(
    port: int, plain: int, tls: int | None = None, *, host: str = "127.0.0.1", own: ssl.SSLContext | None = None
) -> asyncio.Server:  # fmt: skip
    """From `port` to the port `plain` of this host, or to `tls` if the client speaks TLS; with `own`, TLS ends here."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.read(1 << 16)
            to = tls if tls is not None and first[:1] == bytes([TLS_HANDSHAKE]) else plain
            there, back = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        back.write(first)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    return await asyncio.start_server(call, host, port, ssl=own)


def main() -> None:
    """Raises TimeoutError where a block does not show what the page promises."""
    what, page, home, *hows = sys.argv[1:]
    steps, reader = blocks(Path(page)), Reader(Path(home))
    if os.environ.get("ALONE"):
        loopback_up()
    try:
        if what == "walk":
            shown = walk(reader, steps[1:])
        elif what == "begin":
            shown = [reader.follow(steps[0])]
        else:
            shown = [reader.follow(block) for block in steps if block.how in hows]
        print(json.dumps(shown))
    finally:
        reader.stop()


def walk(reader: Reader, steps: list[Block]) -> list[str]:
    """What each showed, in their order."""
    theirs = reader.home / "prometheus"
    theirs.mkdir()
    subprocess.run(["mount", "--bind", theirs, PROMETHEUS.parent], check=True, timeout=600)
    PROMETHEUS.write_text(THEIRS)
    with subprocess.Popen(
        ["prometheus", f"--config.file={PROMETHEUS}", f"--storage.tsdb.path={reader.home / 'data'}",
         "--web.enable-lifecycle"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as prometheus:  # fmt: skip
        try:
            return asyncio.run(beside_an_engine(reader, steps))
        finally:
            prometheus.terminate()


async def beside_an_engine(reader: Reader, steps: list[Block]) -> list[str]:
    live = Live(Scene([SimulatedVllm("chat")]))
    (engine,) = await live.start()
    server = await relay(8000, int(engine.url.rpartition(":")[2]))  # where `vllm serve` listens
    try:
        return [await asyncio.to_thread(reader.follow, block) for block in steps]
    finally:
        server.close()
        await live.stop()


if __name__ == "__main__":
    main()
