"""A fleet to which everything happens that a dashboard can show: `stage.py FOLDER PORT`, a process of its own.

The lab's engines and GPUs on real ports, a whole daemon over them on PORT, and a hook that restarts them. Three
quarters of an hour are played before in virtual time, by the judgement that the daemon has, and kept in its state
folder: so the daemon knows its engines when it begins, as after a restart of the watcher, and no test waits for it to learn.
"""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from random import Random

from aiohttp import web

from benchmarks.lab.virtual import observe
from vllm_watch.config import load
from vllm_watch.daemon import Daemon
from vllm_watch.lab.gpus import GpuRack, SimulatedGpuSource, idle_notebook
from vllm_watch.lab.live import Live
from vllm_watch.lab.release import V1_SEVERAL_API_SERVERS
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import L40S
from vllm_watch.lab.stories import load as usual_load
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.samples.gpu import ProcessSample
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.incidents import IncidentTable, Learnt
from vllm_watch.state.journal import Journal
from vllm_watch.state.worker import Worker
from vllm_watch.watch.watch import Watch

PAST_SECONDS = 2700.0  # a leak of host memory is one after half an hour, which begins ten minutes after the start
LEARNT_SECONDS = 400.0  # what the others are seen for: throughput is known after some minutes
LOOK_SECONDS = 5.0
LEAK_BYTES_PER_SECOND = 2.0**20
GPU_BREAKS_AFTER_SECONDS = (
    20.0  # a broken GPU explains the rest, and then no restart is advised for it
)
LOAD_SECONDS = 2.0  # of an engine that is restarted
CLOSED = {"windows": ["Mon 00:00-00:01"], "schedules": [{"name": "nightly", "cron": "0 3 * * mon"}]}
AUTO = {
    "hook": "lab", "cooldown_seconds": 1, "cooldown_load_times": 0, "new_version_seconds": 0, "peers": "none",
    "drain": {"deadline_seconds": 1}, "verify": {"start_seconds": 6, "settle_seconds": 3},
}  # fmt: skip

# Name → how it may be restarted, and what happens to it.
RESTARTS = {
    "chat-0": ("auto", {}), "asked": ("approve", {}), "revived": ("auto", {}), "stubborn": ("auto", {}),
    "unmoved": ("auto", {}), "rehearsed": ("observe", {}), "leaky": ("auto", CLOSED),
}  # fmt: skip
FAULTS = {
    "chat-1": "slow", "hangs": "hang", "wedged": "hang", "crashed": "crash", "revived": "engine_dead",
    "stubborn": "engine_dead", "unmoved": "engine_dead", "asked": "engine_dead", "rehearsed": "engine_dead",
}  # fmt: skip
KINDS = {
    "engine_down", "engine_stalled", "throughput_collapse", "overload", "gpu_fault", "stale_vram", "host_memory_growth",
}  # fmt: skip
"""The kinds of incidents that happen to it."""
IDLE = ("wedged", "revived", "stubborn", "unmoved", "asked", "rehearsed", "leaky")


def scene() -> Scene:
    """Thirteen servers on two GPUs and none; on the GPUs somebody else, too."""
    busy = [
        SimulatedVllm(name, workload=usual_load(Random(number)), config=L40S, group=group)
        for number, (name, group) in enumerate([("chat-0", "chat"), ("chat-1", "chat"), ("flooded", "flooded"), ("hangs", "hangs"), ("crashed", "crashed")])
    ]  # fmt: skip
    blind = SimulatedVllm(
        "search", workload=usual_load(Random(9)), config=L40S, group="search", num_engines=2,
        release=V1_SEVERAL_API_SERVERS,
    )  # fmt: skip
    idle = [SimulatedVllm(name, config=L40S, group=name) for name in IDLE]
    idle[IDLE.index("leaky")].host_leak_bytes_per_second = LEAK_BYTES_PER_SECOND
    rack = GpuRack(2)
    rack.place(busy[0], 0)
    rack.place(busy[1], 1)
    return Scene([*busy, blind, *idle], rack)


def left_behind(create_time: float) -> ProcessSample:
    """A process that has ended, whose memory the driver has not given back."""
    return ProcessSample(
        pid=4711, used_bytes=3 * 2**30, type="compute", name="python3", state="Z", create_time=create_time,
        cpu_seconds=60.0, uid=1001, ppid=1,
    )  # fmt: skip


def past(played: Scene) -> list[Learnt]:
    """Play what was before, and return what a watcher that saw it has learnt."""
    played.begin_at(time.time() - PAST_SECONDS)
    watches = {name: Watch(name) for name in played.servers}
    t = 0.0
    while t < PAST_SECONDS:
        t += LOOK_SECONDS
        played.advance(t)
        for name, watch in watches.items():
            if name == "leaky" or t > PAST_SECONDS - LEARNT_SECONDS:
                watch.observe(observe(played[name]))
    rows = [
        Learnt(target=name, group=played[name].group, saved_t=played.epoch + t, state=state)
        for name, watch in watches.items()
        if (state := watch.export_state()) is not None
    ]
    damaged = next(
        row for row in rows if row.target == "search"
    )  # so that the store has something to say
    damaged.state["detectors"]["overload"]["version"] = -1  # type: ignore[index]
    return rows


async def keep(folder: Path, rows: list[Learnt]) -> None:
    """Write it as the watcher of yesterday would have, with a restart that it made."""
    worker = Worker(folder, lambda *_: None)
    incidents, journal = IncidentTable(worker), Journal(worker)
    for row in rows:
        incidents.put(learnt=row)
    await journal.probe()
    yesterday = time.time() - 86_400.0
    await journal.write(Attempt(
        id="yesterday", target="chat-0", group="chat", trigger="incident", hook="lab", reason="slow_engine", actor="vllm-watch",
        state="helped", began_t=yesterday, called_t=yesterday + 5, ended_t=yesterday + 300, payoff_ratio=0.62, text="it helped",
    ))  # fmt: skip
    await worker.close()


def configuration(folder: Path, port: int, live: Live, hook: str) -> Path:
    """The daemon's file: quick looks, objectives, a canary for one, restarts for some."""
    targets = []
    for name, server in live.servers.items():
        mode, more = RESTARTS.get(name, ("off", {}))
        canary = {"enabled": name == "wedged", "interval_seconds": 10, "timeout_seconds": 2}
        targets.append({
            "name": name, "url": server.url, "group": server.vllm.group, "namespace": "prod", "canary": canary,
            "restart": {"mode": mode, **(AUTO | more if mode != "off" else {})},
        })  # fmt: skip
    token = folder / "token"
    token.write_text("a-token-of-enough-characters")
    token.chmod(0o600)
    config = {
        "listen": f"127.0.0.1:{port}", "state_dir": str(folder / "state"), "targets": targets,
        "scrape": {"interval_seconds": 1, "health_interval_seconds": 1, "timeout_seconds": 10, "connect_timeout_seconds": 10},
        "gpu": {"interval_seconds": 1},
        "slo": {"time_to_first_token_seconds": 2, "inter_token_latency_seconds": 0.1},
        "hooks": {"webhook": [{"name": "lab", "url": hook, "retries": 0}]},
        "api": {"tokens": [{"name": "anna", "file": str(token)}]},
        "signals": {"window_seconds": 15},
    }  # fmt: skip
    path = folder / "vllm-watch.yaml"
    path.write_text(json.dumps(config))
    return path


async def hook(live: Live) -> tuple[web.AppRunner, str]:
    """What restarts an engine: one comes back, one does not, one cannot be restarted at all."""

    async def restart(request: web.Request) -> web.Response:
        name = next(v for k, v in (await request.json()).items() if k.upper().endswith("TARGET"))
        if name == "unmoved":
            return web.Response(status=403, text="it is not mine to restart")
        live.advance()
        live.scene[name].stop()
        if name != "stubborn":
            live.scene[name].start(LOAD_SECONDS)
        return web.Response(text="done")

    app = web.Application()
    app.add_routes([web.post("/", restart)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/"


def happen(live: Live) -> None:
    """All of it at once."""
    live.advance()
    for name, fault in FAULTS.items():
        live.scene[name].fault(fault)
    live.scene["flooded"].workload.per_second = 30.0  # type: ignore[attr-defined]
    asyncio.get_running_loop().call_later(GPU_BREAKS_AFTER_SECONDS, break_gpu, live)


def break_gpu(live: Live) -> None:
    rack = live.scene.rack
    assert rack is not None
    rack.break_gpu(
        1, xid_errors=(48,), ecc_uncorrected=3, throttle_reasons=("hw_thermal_slowdown",)
    )


async def main(folder: Path, port: int) -> None:
    played = scene()
    assert played.rack is not None
    rows = past(played)
    played.rack.add_process(0, idle_notebook(played.epoch))
    played.rack.add_process(1, left_behind(played.epoch))
    await keep(folder / "state", rows)
    live = Live(played)
    await live.start()
    runner, url = await hook(live)
    source = SimulatedGpuSource(played.rack, live.unix_time)
    config = load(configuration(folder, port, live, url), environ={})
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, happen, live)
    try:
        await Daemon(config, lambda _settings, _config: source).run()
    finally:
        await live.stop()
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
