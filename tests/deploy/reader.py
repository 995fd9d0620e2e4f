"""Follows docs/getting-started.md as a new user would, with a Prometheus that was there before.

Started in namespaces of its own (`unshare --mount --net`) in a clone: ports, /etc/prometheus and the home folder are
free and as the page says. `install` runs the first block alone, which needs the internet; then all others are run.
It prints what each showed, as JSON.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from tests.deploy.blocks import Block, blocks
from tests.deploy.relay import relay
from tests.deploy.stack import loopback_up
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm

PATIENCE_SECONDS = (
    700.0  # the demo repeats itself after ten minutes, and not all of its faults page
)
COMMAND_SECONDS_MAX = 600.0  # one that installs
SCREEN_SECONDS = 8
PROMETHEUS = Path("/etc/prometheus/prometheus.yml")
# Theirs, before: as short as it can be, and quicker than most, since a test waits for it.
THEIRS = (
    "global: {scrape_interval: 5s, evaluation_interval: 5s}\nrule_files: []\nscrape_configs: []\n"
)


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


def main() -> None:
    what, home = sys.argv[1], Path(sys.argv[2])
    first, *others = blocks(Path("docs/getting-started.md"))
    reader = Reader(home)
    if what == "install":
        print(json.dumps([reader.follow(first)]))
        return
    loopback_up()
    theirs = home / "prometheus"
    theirs.mkdir()
    subprocess.run(["mount", "--bind", theirs, PROMETHEUS.parent], check=True, timeout=600)
    PROMETHEUS.write_text(THEIRS)
    with subprocess.Popen(
        ["prometheus", f"--config.file={PROMETHEUS}", f"--storage.tsdb.path={home / 'data'}",
         "--web.enable-lifecycle"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as prometheus:  # fmt: skip
        try:
            print(json.dumps(asyncio.run(walk(reader, others))))
        finally:
            reader.stop()
            prometheus.terminate()


async def walk(reader: Reader, steps: list[Block]) -> list[str]:
    """What each showed, in their order."""
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
