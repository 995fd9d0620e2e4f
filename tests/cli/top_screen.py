"""What tests of the live view need: a board with engines on it, and what stands on the screen."""

import asyncio
import time

from vllm_watch.cli.helpers.top.app import TopApp
from vllm_watch.cli.helpers.top.status import Daemon
from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import EngineSignals, Quantiles, TargetSignals

NEVER_SECONDS = 3600.0  # between two looks: tests ask when they want to know
GIB = 1 << 30


def watching(server):
    return TopApp(Daemon(f"http://127.0.0.1:{server.port}"), NEVER_SECONDS)


async def first_look(pilot):
    async with asyncio.timeout(30):
        while "asking" in part(pilot, "header") or not part(pilot, "header"):
            await pilot.pause(0.01)


def part(pilot, name):
    widget = pilot.app.query_one(f"#{name}")
    return widget.content.plain if widget.display else ""


def rows(pilot):
    return part(pilot, "engines").splitlines()[1:]


def names(pilot):
    return [line.split()[0] for line in rows(pilot)]


def row(pilot, name):
    return next(line for line in rows(pilot) if line.split()[0] == name)


def selected(pilot):
    return part(pilot, "detail").splitlines()[1].split(":")[0]


def add(board, name, *engines, t=None, up=True, state=None, state_text=""):
    if name not in board.targets:
        # A long interval: it is not stale by the time a busy machine shows it.
        board.add_target(Target(name=name, url=f"http://{name}:8000", group=name), 60)
    board.publish(
        TargetSignals(
            target=name, t=time.time() if t is None else t, up=up, outcome="ok" if up else "refused",
            state=state or engines[0].state, state_text=state_text, version="0.11.0",
            engines={each.engine: each for each in engines},
        )
    )  # fmt: skip


def engine(label, state, **changed):
    numbers = {
        "model_name": "llama", "state_text": "12 running, 3 waiting",
        "requests_running": 12, "requests_waiting": 3, "kv_cache_usage_ratio": 0.42,
        "kv_cache_capacity_tokens": 100_000, "kv_cache_free_tokens": 58_000,
        "current_generation_tokens_per_second": 1234.5, "throughput_ratio": 0.43, "prompt_tokens_per_second": 12_000,
        "time_to_first_token_seconds": Quantiles(p95=0.45), "restarts": 2,
        "inter_token_latency_seconds": Quantiles(p95=0.021),
    }  # fmt: skip
    return EngineSignals(engine=label, state=state, **(numbers | changed))


def reading(*gpus):
    return GpuReading(status="ok", t=1000.0, driver_version="570.86", gpus=gpus)


def gpu(index, used_gib, **changed):
    holders = (
        ProcessSample(pid=99, name="python3", used_bytes=GIB),
        ProcessSample(pid=4711, name="VLLM::EngineCore", used_bytes=60 * GIB),
        ProcessSample(pid=7, cmdline=("/bin/sh",), used_bytes=None),
    )
    return GpuSample(
        index=index, uuid=f"GPU-{index}", name="NVIDIA H100 80GB HBM3", memory_total_bytes=80 * GIB,
        memory_used_bytes=used_gib * GIB, utilization_ratio=0.93, temperature_celsius=61,
        power_watts=410, processes=holders, **changed,
    )  # fmt: skip
