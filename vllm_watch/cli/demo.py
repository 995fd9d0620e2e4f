"""Run the daemon with a simulated fleet."""

import argparse
import asyncio
import sys
from typing import Any

from vllm_watch.cli.helpers import exit_status, options
from vllm_watch.config import load
from vllm_watch.daemon import Daemon
from vllm_watch.errors import WatchError
from vllm_watch.lab.gpus import SimulatedGpuSource
from vllm_watch.lab.live import Live
from vllm_watch.lab.stories import STORIES
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.samples.target import Target
from vllm_watch.settings.hooks import CommandHook, HooksSettings
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.support import logs

HELP = """\
Runs the whole daemon over simulated vLLM engines and GPUs, which speak the real wire formats over real
sockets. It needs nothing but this package. The default scenario is a small fleet in which something
goes wrong after a while; --scenario list shows the others.

examples:
  vllm-watch demo
  vllm-watch demo --scenario hang
  vllm-watch demo --scenario cold_start --speed 60"""

DEFAULT_LISTEN = "127.0.0.1:9470"
_INTERVAL_SECONDS = 1.0
_TOLD = """
  The page:     {url}/
  The metrics:  {url}/metrics
  Ctrl-C ends the demo.
"""
_speed = options.number(
    lambda value: 0 < value <= 1000,  # noqa: PLR2004 - above 1000, scenarios pass between two scrapes
    "is not a number\n→ write simulated seconds for each real one: 10",
    "write a number above 0 and up to 1000",
)


class Demo:
    """Runs one scenario."""

    def __init__(self, story: str = "demo", speed: float = 1.0, seed: int = 1) -> None:
        if story not in STORIES:
            known = ", ".join(STORIES)
            raise WatchError(f"there is no scenario {story!r}", f"Choose one of: {known}.")
        self._live = Live(STORIES[story].build(seed), speed)
        self.gpu_source = SimulatedGpuSource(self._live.scene.rack, self._live.unix_time)

    async def start(self) -> list[Target]:
        """Serve the engines on free loopback ports. Raises ServeError."""
        return await self._live.start()

    async def stop(self) -> None:
        await self.gpu_source.close()
        await self._live.stop()

    def engine(self, name: str) -> SimulatedVllm:
        self._live.advance()
        return self._live.scene[name]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", default=DEFAULT_LISTEN,
        help=f"address to listen on (default {DEFAULT_LISTEN})")  # fmt: skip
    add("--scenario", metavar="NAME", default="demo", help="the story to play; 'list' prints them")
    add("--speed", metavar="X", type=_speed, default=1.0,
        help="simulated seconds for each real one (default 1)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    if arguments.scenario == "list":
        for slug, story in STORIES.items():
            print(f"{slug:20}{story.title}")
    else:
        asyncio.run(_serve(arguments.listen, arguments.scenario, arguments.speed))
    return exit_status.FINE


async def _serve(listen: str, scenario: str, speed: float) -> None:
    demo = Demo(scenario, speed)
    environ = {"VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": str(_INTERVAL_SECONDS)}
    targets = await demo.start()
    try:
        given = [f"{target.name}={target.url}" for target in targets]
        config = load(None, environ=environ, targets=given, listen=listen)
        named = tuple(
            made.model_copy(update={"group": t.group or made.group})
            for made, t in zip(config.targets, targets, strict=True)
        )
        config = config.model_copy(update={"targets": named, **dry_run()})
        logs.configure(config.log.level, config.log.format)
        daemon = Daemon(config, lambda _settings, _config: demo.gpu_source)
        await daemon.run(lambda: print(_TOLD.format(url=daemon.url), file=sys.stderr, flush=True))
    finally:
        await demo.stop()


def dry_run() -> dict[str, Any]:
    """Return settings for dry runs, which never call the hook."""
    hook = CommandHook(name="demo", argv=("/bin/true",))
    return {
        "restart": RestartSettings(mode="observe", hook=hook.name),
        "hooks": HooksSettings(command=(hook,)),
    }
