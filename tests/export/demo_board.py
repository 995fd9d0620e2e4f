"""A board full of made-up engines, to look at the page without any: `python tests/export/demo_board.py [TARGETS]`."""

import asyncio
import math
import sys
import time

from vllm_watch.export.board import Board
from vllm_watch.export.server import Server
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.samples.process import ProcessSample
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import EngineSignals, Quantiles, TargetSignals

GIB = 2**30
STORIES = {
    "llama-70b-a": ("serving", "Serving 38 requests at 1,420 tokens per second."),
    "llama-70b-b": ("stalled", "No step for 94 s with 41 requests running and 17 waiting; /health still says 200."),
    "qwen3-moe": ("serving", "Serving on 2 engines."),
    "mistral-batch": ("overloaded", "212 requests wait and the queue grows by 3 per second."),
    "embeddings": ("idle", "No request for 4 min."),
    "llama-8b-canary": ("down", "Connection refused for 2 min; it was serving before."),
    "deepseek-r1": ("starting", "Connection refused while the process loads, for 6 min; usually 9 min."),
    "nightly": ("sleeping", "Weights are offloaded since 22:10."),
    "<img src=x onerror=alert(1)>": ("prefilling", "<b>Prefilling</b> a prompt of 120k tokens."),
}  # fmt: skip


def engine(label: str, model: str, story: tuple[str, str], t: float, phase: float) -> EngineSignals:
    """Numbers that move like a busy engine's; a stalled one stands still."""
    state, text = story
    busy = {"serving": 1.0, "overloaded": 1.4, "prefilling": 0.3, "stalled": 0.0}.get(state, 0.0)
    wave = 1 + 0.25 * math.sin(t / 47 + phase) + 0.08 * math.sin(t / 5 + phase)
    tokens = 1420 * busy * wave
    still = state == "stalled"
    waiting = (
        17.0
        if still
        else max(0.0, round(busy * (150 * (busy > 1.2) + 3 * math.sin(t / 30 + phase))))
    )
    return EngineSignals(
        engine=label, model_name=model, state=state, state_text=text,
        requests_running=41.0 if still else round(38 * busy * wave), requests_waiting=waiting,
        requests_waiting_by_reason={"capacity": waiting, "deferred": 0.0},
        kv_cache_usage_ratio=0.83 if still else min(1.0, 0.55 * busy * wave),
        kv_cache_capacity_tokens=1_204_224.0, kv_cache_free_tokens=1_204_224 * (1 - min(1.0, 0.55 * busy * wave)),
        kv_cache_time_to_full_seconds=None if busy < 1.2 else 84.0,
        generation_tokens_per_second=tokens, prompt_tokens_per_second=tokens * 4.2,
        requests_finished_per_second=busy * 3.1, preemptions_per_second=0.0 if busy < 1.2 else 0.4,
        requests_finished_by_reason_per_second={"stop": busy * 2.8, "length": busy * 0.3, "abort": 0.0},
        steps_per_second=busy * 31, tokens_per_step=46 * wave if busy else None,
        step_time_seconds=0.0318 * wave if busy else None, prefix_cache_hit_ratio=0.62 if busy else None,
        time_to_first_token_seconds=Quantiles(0.11 * wave, 0.38 * wave, 0.9 * wave) if busy else Quantiles(),
        inter_token_latency_seconds=Quantiles(0.024, 0.041 * wave, 0.08) if busy else Quantiles(),
        queue_time_seconds=Quantiles(0.002, 0.05, 0.2) if busy else Quantiles(),
        e2e_latency_seconds=Quantiles(4.1, 11.0, 19.0) if busy else Quantiles(),
        slo_attainment_ratio={"first token": 0.981} if busy else {},
        last_progress_timestamp_seconds=t - 94 if still else t, sleeping=state == "sleeping",
    )  # fmt: skip


def signals(name: str, state: str, text: str, t: float, phase: float = 0.0) -> TargetSignals:
    """One target of a story."""
    seen = state not in {"down", "starting"}
    model = name if name.startswith("<") else f"meta-llama/{name}"
    labels = ("0", "1") if name == "qwen3-moe" else ("0",)
    engines = (
        {i: engine(i, model, (state, text), t, phase + int(i)) for i in labels} if seen else {}
    )
    return TargetSignals(
        target=name, t=t, up=seen, outcome="ok" if seen else "refused", state=state, state_text=text,
        why_not=None if seen else "GET /metrics: connection refused by 127.0.0.1:8000",
        health_status=200 if seen else None, version="0.33.0", engine_kind="V1", models=(model,) if seen else (),
        last_success_timestamp_seconds=t if seen else t - 120, process_start_time=t - 86_400 * 3.2 if seen else None,
        process_open_fds=118.0 if seen else None, engines=engines,
    )  # fmt: skip


def reading(t: float) -> GpuReading:
    """Four GPUs: full, shared with a zombie, hidden holders, lost."""

    def holder(
        pid: int,
        gib: float | None,
        name: str,
        *cmdline: str,
        state: str = "S",
        age: float = 276_000,
    ) -> ProcessSample:
        used = None if gib is None else int(gib * GIB)
        return ProcessSample(pid=pid, used_bytes=used, name=name, cmdline=cmdline, uid=1000 + pid % 3,
                             state=state, create_time=t - age)  # fmt: skip

    def gpu(
        index: int, used: float | None, holders: tuple[ProcessSample, ...] | None, **more: object
    ) -> GpuSample:
        fields: dict[str, object] = {
            "index": index, "uuid": f"GPU-7f3a9c1{index}-4b1e-9d0c-52aa-8c0de1f0a9b{index}", "name": "NVIDIA H200",
            "memory_total_bytes": 139 * GIB, "memory_used_bytes": None if used is None else int(used * GIB),
            "memory_reserved_bytes": int(0.6 * GIB), "utilization_ratio": 0.5 + 0.45 * math.sin(t / 9 + index),
            "temperature_celsius": 64.0 + index, "power_watts": 512.0, "power_limit_watts": 700.0,
            "sm_clock_hz": 1.98e9, "sm_clock_max_hz": 1.98e9, "throttle_reasons": (), "processes": holders,
        }  # fmt: skip
        return GpuSample(**(fields | more))  # type: ignore[arg-type]

    engine_core = holder(
        41_210,
        121.4,
        "VLLM::EngineCore",
        "vllm",
        "serve",
        "meta-llama/Llama-3.3-70B",
        "--api-key",
        "sk-secret",
    )
    return GpuReading(status="ok", t=t, duration_s=0.011, driver_version="570.124.06", gpus=(
        gpu(0, 123.0, (engine_core,)),
        gpu(1, 96.0, (
            holder(41_377, 61.0, "VLLM::Worker_TP1", "VLLM::Worker_TP1"),
            holder(2_204, 21.5, "python3", "python3", "-m", "ipykernel_launcher", "-f", "/home/ana/.local/share/jupyter/kernel-9f.json", age=900_000),
            holder(38_101, 9.25, "python3", "python3", "train.py", state="Z", age=52_000),
        ), throttle_reasons=("sw_power_cap", "hw_thermal_slowdown"), temperature_celsius=91.0),
        gpu(2, 40.0, (holder(77, None, "VLLM::EngineCore", "vllm", "serve"),)),
        gpu(3, None, None, lost=True, memory_total_bytes=None, memory_reserved_bytes=None, utilization_ratio=None,
            temperature_celsius=None, power_watts=None, sm_clock_hz=None, xid_errors=(79,) if int(t) % 300 < 5 else (), throttle_reasons=None),
    ))  # fmt: skip


def fill(board: Board, extra: int, now: float, back_seconds: int = 600) -> None:
    """Add the stories' targets (and `extra` well ones) with their last ten minutes."""
    stories = STORIES | {
        f"fleet-{i:03d}": ("serving", "Serving 38 requests.") for i in range(extra)
    }
    for name in stories:
        board.add_target(
            Target(name=name, url="http://127.0.0.1:8000", group="chat", node="gpu-host-1"), 5.0
        )
    for t in range(int(now) - back_seconds, int(now), 5):
        step(board, stories, float(t))


def step(board: Board, stories: dict[str, tuple[str, str]], t: float) -> None:
    """Publish one more moment of everything."""
    for phase, (name, (state, text)) in enumerate(stories.items()):
        failed = state in {"down", "starting"}
        board.publish(signals(name, state, text, t, phase))
        board.call("metrics", name, "refused" if failed else "ok", 0.0042, t)
        board.call("health", name, "refused" if failed else "ok", 0.0011, t)
    board.publish_gpus(reading(t))
    board.call("nvml", "", "ok", 0.011, t)


async def main(extra: int, port: int) -> None:
    """Serve it until interrupted."""
    board = Board()
    fill(board, extra, time.time())
    server = Server(board, host="127.0.0.1", port=port, ready=lambda: None)
    await server.start()
    print(f"http://127.0.0.1:{server.port}/", flush=True)
    stories = {
        name: (e.signals.state, e.signals.state_text)
        for name, e in board.targets.items()
        if e.signals
    }
    while True:
        await asyncio.sleep(2)
        step(board, stories, time.time())


if __name__ == "__main__":
    asyncio.run(
        main(
            int(sys.argv[1]) if len(sys.argv) > 1 else 0,
            int(sys.argv[2]) if len(sys.argv) > 2 else 0,
        )
    )
