"""A board of one engine, one silent target and one GPU, with every kind of series on it."""

from prometheus_client import CollectorRegistry

from vllm_watch.board.board import Board
from vllm_watch.export.text import render
from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import EngineSignals, Quantiles, TargetSignals

T = 1_763_700_000.0
GIB = 2**30
ENGINE = EngineSignals(
    engine="0", model_name='say "hi" \\ twice', state="serving", state_text="Serving 3 requests.",
    requests_running=3.0, requests_waiting=0.0, requests_waiting_by_reason={"deferred": 0.0, "capacity": 0.0},
    kv_cache_usage_ratio=0.25, generation_tokens_per_second=812.5, sleeping=False,
    time_to_first_token_seconds=Quantiles(0.1, 0.25, 0.5), slo_attainment_ratio={"ttft": 0.99},
    last_progress_timestamp_seconds=T - 1,
)  # fmt: skip
SERVING = TargetSignals(
    target="chat", t=T, up=True, outcome="ok", state="serving", state_text="Serving 3 requests.",
    health_status=200, version="0.33.0", engine_kind="V1", models=("llama",), engines={"0": ENGINE},
)  # fmt: skip
DOWN = TargetSignals(
    target="gone", t=T, up=False, outcome="refused", state="down", state_text="Connection refused for 2 min.",
    why_not="connection refused",
)  # fmt: skip
GPU = GpuSample(
    index=0, uuid="GPU-7f3a", name="NVIDIA H200", memory_total_bytes=139 * GIB, memory_used_bytes=120 * GIB,
    utilization_ratio=0.93, throttle_reasons=("sw_power_cap",), xid_errors=(79,),
    processes=(
        ProcessSample(pid=41210, used_bytes=119 * GIB, name="VLLM::EngineCore", uid=1000,
                      cmdline=("vllm", "serve", "--api-key", "sk-1")),
        ProcessSample(pid=7, used_bytes=None, name="hidden"),
    ),
)  # fmt: skip


def small_board() -> Board:
    """Build it anew."""
    board = Board()
    board.add_target(
        Target(name="chat", url="http://10.0.0.1:8000", group="deployment/chat", pod="chat-0"), 5.0
    )
    board.add_target(Target(name="gone", url="http://10.0.0.2:8000"), 5.0)
    board.publish(SERVING)
    board.publish(DOWN)
    board.publish_gpus(GpuReading(status="ok", t=T, driver_version="570.124", gpus=(GPU,)))
    board.call("metrics", "chat", "ok", 0.004, T)
    board.call("metrics", "gone", "refused", 0.001, T)
    board.call("nvml", "", "ok", 0.011, T)
    return board


def text_of(board: Board, *, openmetrics: bool = False) -> str:
    """What /metrics says of a board, without the watcher's own process metrics."""
    return render(board, CollectorRegistry(), openmetrics=openmetrics).decode()


def samples_of(board: Board) -> list[str]:
    """The same without HELP and TYPE."""
    return [line for line in text_of(board).splitlines() if not line.startswith("#")]
