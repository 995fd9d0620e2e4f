"""A board full of made-up engines, with a story each."""

import math
import zlib
from collections.abc import Mapping

from tests.told import made
from vllm_watch.board.board import Board
from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample
from vllm_watch.samples.target import Target
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.records import Advice, EngineSignals, Quantiles, Sight, TargetSignals

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

ADVICE = (
    Advice("preemptions", "0", "--max-num-seqs", "100", "900 <b>preemptions</b> in 60 min", "requests wait a little instead", 3600.0),
)  # fmt: skip
SIGHTS = {
    "engine_down": Sight("sees", ""),
    "engine_stalled": Sight("partly", "no canary so far: a hang of an idle engine is not covered yet. To fix: switch it on."),
    "throughput_collapse": Sight("blind", "no <b>counter</b> of generated tokens: throughput is unknown."),
    "overload": Sight("unknown", "too few looks yet"),
}  # fmt: skip

Evidence = tuple[str, object, str, object, str]  # name, value, unit, expected, text
INCIDENTS: dict[str, dict[str, object]] = {
    "llama-70b-b": {
        "engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": "page", "restart_advised": True, "age": 94,
        "summary": "No step has ended for 94 s although 41 requests run and 17 wait.",
        "for": [
            ("steps_per_second", 0.0, "steps_per_second", 31.0, "No step has ended for 94 s; the longest pause before was 1.3 s."),
            ("requests_running", 41, "requests", None, "41 requests are running and none has received a token."),
            ("gpu_utilization", 1.0, "ratio", 0.93, "The GPU is busy all the time, which a kernel that never returns is."),
        ],
        "against": [("health", "HTTP 200", "", None, "/health still answers; it does while an engine hangs.")],
    },
    "llama-8b-canary": {
        "engine": None, "kind": "engine_down", "cause": "crash", "severity": "page", "restart_advised": False, "age": 120,
        "summary": "Connections are refused for 2 min; it was serving 12 requests before.",
        "for": [("refused", 24, "times in a row", 0, "Every connection was refused, so nothing listens any more.")],
        "against": [],
    },
    "mistral-batch": {
        "engine": "0", "kind": "overload", "cause": "demand", "severity": "ticket", "restart_advised": False, "age": 1900,
        "summary": "212 requests wait and the queue grows by 3 per second, at the throughput that is usual for it.",
        "for": [("requests_waiting", 212, "requests", 0, "The queue has grown for 31 min.")],
        "against": [("throughput_ratio", 1.02, "ratio", 1.0, "It generates what it did when fresh at equal load.")],
    },
    "<img src=x onerror=alert(1)>": {
        "engine": "0", "kind": "host_memory_growth", "cause": "leak", "severity": "ticket", "restart_advised": True, "age": 260_000,
        "summary": "<img src=x onerror=alert(1)> holds 61 GiB of host memory and takes 0.8 GiB more per hour.",
        "for": [("memory_growth", 0.8 * GIB / 3600, "bytes_per_second", 0, "<b>It grew</b> for 3 days, by day and by night.")],
        "against": [("</script><script>alert(1)</script>", None, "<i>", None, "")],
    },
    "qwen3-moe": {
        "engine": "1", "kind": "stale_vram", "cause": "orphaned_worker", "severity": "info", "restart_advised": False, "age": 86_000,
        "summary": "A worker of a server that is gone holds 9.3 GiB of GPU 1.", "for": [], "against": [],
    },
}  # fmt: skip
PAST: list[tuple[str, str | None, str, str, str, float, float, str, str]] = [
    ("llama-70b-a", "0", "throughput_collapse", "kv_leak", "page", 420, 230, "restarted", "It generated 310 tokens per second where 1,420 are usual at this load; 71 % of the KV cache was held by no request."),
    ("embeddings", "0", "engine_stalled", "hang", "page", 5200, 5020, "healthy", "No step had ended for 42 s although 3 requests ran."),
    ("llama-8b-canary", "0", "engine_stalled", "hang", "page", 180, 120, "superseded", "No step had ended for 18 s although 12 requests ran."),
    ("qwen3-moe", "1", "throughput_collapse", "thermal_throttle", "page", 21_000, 17_300, "healthy", "Steps took 2.1 times as long as usual at equal load; GPU 1 was at 91 °C."),
    ("mistral-batch", "0", "throughput_collapse", "preemption_thrash", "ticket", 40_000, 39_100, "healthy", "Half of the steps computed anew what preemptions had thrown away."),
    ("llama-70b-old", None, "engine_down", "unreachable", "page", 90_000, 88_000, "target_gone", "No answer for 2 min."),
    ("nightly", "0", "overload", "demand", "ticket", 200_000, 190_000, "healthy", "88 requests waited."),
]  # fmt: skip


def incident_events(name: str, now: float) -> list[dict[str, object]]:
    """What judgement told of a story's target until `now`: its past incidents, and its open one."""
    events = []
    for target, engine, kind, cause, severity, began, ended, resolution, summary in PAST:
        if target == name:
            story = {"engine": engine, "kind": kind, "cause": cause, "severity": severity, "summary": summary}  # fmt: skip
            past = event(name, story, now - began)
            over = {"event": "resolved", "t": now - ended, "resolution": resolution}
            events += [past, past | over]
    if name in INCIDENTS:
        story = INCIDENTS[name]
        events.append(event(name, story, now - story["age"]))  # type: ignore[operator]
    return events  # fmt: skip


def event(target: str, story: Mapping[str, object], t: float) -> dict[str, object]:
    """One `opened`, in the published form."""
    sides = {
        side: [
            dict(zip(("name", "value", "unit", "expected", "text"), each, strict=True))
            for each in story.get(side, ())  # type: ignore[attr-defined]
        ]
        for side in ("for", "against")
    }
    return {
        "t": t, "event": "opened", "id": f"{story['kind']}-{t:.0f}-{zlib.crc32(target.encode()):08x}", "target": target,
        "engine": story["engine"], "kind": story["kind"], "cause": story["cause"], "severity": story["severity"],
        "summary": story["summary"], "evidence": sides, "restart_advised": story.get("restart_advised", False),
    }  # fmt: skip


def engine(label: str, model: str, story: tuple[str, str], t: float, phase: float) -> EngineSignals:
    """Numbers that move like a busy engine's; a stalled one stands still."""
    state, text = story
    busy = {"serving": 1.0, "overloaded": 1.4, "prefilling": 0.3, "stalled": 0.0}.get(state, 0.0)
    wave = 1 + 0.25 * math.sin(t / 47 + phase) + 0.08 * math.sin(t / 5 + phase)
    tokens = 1420 * busy * wave
    still = state == "stalled"
    queue = max(0.0, round(busy * (150 * (busy > 1.2) + 3 * math.sin(t / 30 + phase))))
    waiting = 17.0 if still else queue
    return EngineSignals(
        engine=label, model_name=model, state=state, state_text=text,
        requests_running=41.0 if still else round(38 * busy * wave), requests_waiting=waiting,
        requests_waiting_by_reason={"capacity": waiting, "deferred": 0.0},
        kv_cache_usage_ratio=0.83 if still else min(1.0, 0.55 * busy * wave),
        kv_cache_capacity_tokens=1_204_224.0, kv_cache_free_tokens=1_204_224 * (1 - min(1.0, 0.55 * busy * wave)),
        kv_cache_time_to_full_seconds=None if busy < 1.2 else 84.0,
        current_generation_tokens_per_second=tokens, generation_tokens_per_second=tokens, prompt_tokens_per_second=tokens * 4.2,
        requests_finished_per_second=busy * 3.1, preemptions_per_second=0.0 if busy < 1.2 else 0.4,
        requests_finished_by_reason_per_second={"stop": busy * 2.8, "length": busy * 0.3, "abort": 0.0},
        steps_per_second=busy * 31, tokens_per_step=46 * wave if busy else None,
        step_time_seconds=0.0318 * wave if busy else None, prefix_cache_hit_ratio=0.62 if busy else None,
        time_to_first_token_seconds=Quantiles(0.11 * wave, 0.38 * wave, 0.9 * wave) if busy else Quantiles(),
        inter_token_latency_seconds=Quantiles(0.024, 0.041 * wave, 0.08) if busy else Quantiles(),
        queue_time_seconds=Quantiles(0.002, 0.05, 0.2, 0.3) if busy else Quantiles(),
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
        process_open_fds=118.0 if seen else None, engines=engines, detectors=SIGHTS,
        advice=ADVICE,
    )  # fmt: skip


def reading(t: float) -> GpuReading:
    """Four GPUs: full, shared with a zombie, hidden holders, lost."""

    def holder(
        pid: int, gib: float | None, name: str, *cmdline: str, state: str = "S", age: float = 276_000, ppid: int | None = None
    ) -> ProcessSample:  # fmt: skip
        used = None if gib is None else int(gib * GIB)
        return ProcessSample(pid=pid, used_bytes=used, name=name, cmdline=cmdline, uid=1000 + pid % 3,
                             state=state, create_time=t - age, ppid=ppid)  # fmt: skip

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

    serve = ("vllm", "serve", "meta-llama/Llama-3.3-70B", "--api-key", "sk-secret")
    engine_core = holder(41_210, 121.4, "VLLM::EngineCore", *serve)
    return GpuReading(status="ok", t=t, duration_s=0.011, driver_version="570.124.06", gpus=(
        gpu(0, 123.0, (engine_core,)),
        gpu(1, 96.0, (
            holder(41_377, 61.0, "VLLM::Worker_TP1", "VLLM::Worker_TP1"),
            holder(2_204, 21.5, "python3", "python3", "-m", "ipykernel_launcher", "-f", "/home/ana/.local/share/jupyter/kernel-9f.json", age=900_000),
            holder(38_101, 9.25, "python3", "python3", "train.py", state="Z", age=52_000, ppid=38_090),
        ), throttle_reasons=("sw_power_cap", "hw_thermal_slowdown"), temperature_celsius=91.0),
        gpu(2, 40.0, (holder(77, None, "VLLM::EngineCore", "vllm", "serve"),)),
        gpu(3, None, None, lost=True, memory_total_bytes=None, memory_reserved_bytes=None, utilization_ratio=None,
            temperature_celsius=None, power_watts=None, sm_clock_hz=None, xid_errors=(79,) if int(t) % 300 < 5 else (), throttle_reasons=None),
    ))  # fmt: skip


def fill(
    board: Board, extra: int, now: float, back_seconds: int = 600, interval_seconds: float = 60.0
) -> None:
    """Add the stories' targets (and `extra` well ones) with their last ten minutes.

    With an interval as long as this no target is stale by the time at which a busy machine has drawn it.
    """
    well = ("serving", "Serving 38 requests.")
    stories = STORIES | {f"fleet-{i:03d}": well for i in range(extra)}
    for name in stories:
        one = Target(name=name, url="http://127.0.0.1:8000", group="chat", node="gpu-host-1")
        board.add_target(one, interval_seconds)
    board.add_target(Target(name="llama-70b-old", url="http://127.0.0.1:8000"), 5.0)
    for name in (*stories, "llama-70b-old"):
        board.tell(made(*incident_events(name, now)))
    board.remove_target("llama-70b-old")
    for t in range(int(now) - back_seconds, int(now), 5):
        step(board, stories, float(t))


def step(board: Board, stories: dict[str, tuple[str, str]], t: float) -> None:
    """Publish one more moment of everything."""
    for phase, (name, (state, text)) in enumerate(stories.items()):
        failed = state in {"down", "starting"}
        board.publish(signals(name, state, text, t, phase))
        board.call("metrics", name, "refused" if failed else "ok", 0.0042, t)
        board.call("health", name, "refused" if failed else "ok", 0.0011, t)
    now = reading(t)
    judge = HolderJudge()
    for second in (-60.0, 0.0):  # seen so for a minute
        judged = judge.look(t + second, t + second, now.gpus or ())
    board.publish_gpus(now, judged)
    board.call("nvml", "", "ok", 0.011, t)
