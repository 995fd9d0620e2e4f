"""What the pictures of the status page show: simulated fleets, each in one state, under the real daemon.

python docs/screenshot_stages.py STAGE HOST:PORT SECONDS    (the trouble begins after so many seconds)
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import yaml

from vllm_watch.config import load as load_config
from vllm_watch.daemon import Daemon
from vllm_watch.lab.gpus import GpuRack, SimulatedGpuSource, idle_notebook
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import L40S, load
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import ClosedLoop, Sizes, Workload

TOKEN = "a-token-for-the-pictures-only"  # noqa: S105 - of a daemon that lives for minutes on loopback
_WEEK_SECONDS = 604_800.0
_MANY = 500
_PATIENCE = {"timeout_seconds": 15, "connect_timeout_seconds": 15}  # all of this shares one core


@dataclass(frozen=True)
class Stage:
    """One state: who is there, and what happens after some seconds."""

    servers: Callable[[], list[SimulatedVllm]]
    trouble: Callable[[Scene], None]
    mode: str = "observe"
    interval_seconds: float = 4.0  # a chart has a point every five


def _rng(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - to be repeatable, not secret


def _four() -> list[SimulatedVllm]:
    """A small fleet under usual loads."""
    clients = ClosedLoop(_rng(3), Sizes(_rng(3), prompt_tokens=900, output_tokens=400), 24, 2.0)
    return [
        SimulatedVllm("chat", group="chat", config=L40S, workload=load(_rng(1), 2.0)),
        SimulatedVllm("search", group="search", config=L40S, workload=load(_rng(2), 1.4)),
        SimulatedVllm("batch", group="batch", config=L40S, workload=clients),
        SimulatedVllm("assist", group="chat", config=L40S, workload=load(_rng(4), 1.2)),
    ]


def _one() -> list[SimulatedVllm]:
    """The only engine of its host."""
    return [server for server in _four() if server.name == "batch"]


def _many() -> list[SimulatedVllm]:
    """A large fleet, of which every fiftieth engine works: what costs the page is the number of targets."""
    names = [f"{group}-{n:03d}" for group in ("chat", "code", "embed", "rag") for n in range(125)]
    return [
        SimulatedVllm(
            name, group=name.rpartition("-")[0], config=L40S,
            workload=load(_rng(n), 1.0) if n % 50 == 0 else Workload(),
        )
        for n, name in enumerate(names[:_MANY])
    ]  # fmt: skip


def _nothing(_: Scene) -> None:
    return


def _fault(name: str, slug: str) -> Callable[[Scene], None]:
    return lambda scene: scene[name].fault(slug)


def _orphan(scene: Scene) -> None:
    if scene.rack is not None:
        scene.rack.orphan(scene["batch"])
        scene.rack.add_process(0, idle_notebook(scene.epoch - _WEEK_SECONDS))
    scene["batch"].stop()


def _several(scene: Scene) -> None:
    scene["chat-000"].fault("hang")
    for n in range(40):
        scene[f"rag-{n:03d}"].fault("engine_dead")
    scene["embed-017"].fault("crash")


STAGES = {
    "healthy": Stage(_four, _nothing),
    "stalled": Stage(_four, _fault("batch", "hang")),
    "collapsed": Stage(_four, _fault("batch", "leak")),
    "down": Stage(_four, _fault("search", "crash")),
    "stale-vram": Stage(_one, _orphan),
    "approval": Stage(_four, _fault("batch", "hang"), mode="approve"),
    "500-targets": Stage(_many, _several, interval_seconds=20.0),
}


def _script(stage: Stage, after_seconds: float) -> Callable[[Scene], Iterator[float]]:
    def script(scene: Scene) -> Iterator[float]:
        yield after_seconds
        stage.trouble(scene)

    return script


async def serve(stage: Stage, listen: str, after_seconds: float) -> None:
    """Run the daemon over the stage until told to stop."""
    servers = stage.servers()
    rack = None
    if len(servers) < _MANY:
        rack = GpuRack(len(servers))
        for index, server in enumerate(servers):
            rack.place(server, index)
    live = Live(Scene(servers, rack, _script(stage, after_seconds)))
    gpus = SimulatedGpuSource(rack, live.unix_time)
    with tempfile.TemporaryDirectory() as folder:
        targets = await live.start()
        try:
            document = {
                "listen": listen,
                "state_dir": f"{folder}/state",
                "scrape": {"interval_seconds": stage.interval_seconds, **_PATIENCE},
                "targets": [{"name": t.name, "url": t.url, "group": t.group} for t in targets],
                "restart": {"mode": stage.mode, "hook": "restart-engine", "peers": "none"},
                "hooks": {"command": [{"name": "restart-engine", "argv": ["/bin/true"]}]},
                "api": {"tokens": [{"name": "anna", "file": _token(folder)}]},
            }
            file = Path(folder) / "vllm-watch.yaml"
            file.write_text(yaml.safe_dump(document))
            daemon = Daemon(load_config(file, environ={}), lambda _settings, _config: gpus)
            await daemon.run(lambda: None)
        finally:
            await live.stop()


def _token(folder: str) -> str:
    file = Path(folder) / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return str(file)


if __name__ == "__main__":
    asyncio.run(serve(STAGES[sys.argv[1]], sys.argv[2], float(sys.argv[3])))
