"""Records of signals, for detectors and exports."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_watch.samples.observation import StartFailure
from vllm_watch.samples.record import record, short_record
from vllm_watch.signals.totals import EngineTotals


@short_record
class Quantiles:
    """Quantiles within the window. None without observations."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    first_bound: float | None = None  # upper bound of the lowest bucket


@record
class EngineSignals:
    """Current signals of one engine. Rates and quantiles cover the signal window. Unknown values are None."""

    engine: str
    model_name: str = ""
    state: str = "unknown"
    state_text: str = ""
    requests_running: float | None = None
    requests_waiting: float | None = None
    requests_waiting_by_reason: Mapping[str, float] | None = None
    kv_cache_usage_ratio: float | None = None
    kv_cache_capacity_tokens: float | None = None
    kv_cache_free_tokens: float | None = None
    kv_cache_time_to_full_seconds: float | None = None
    sleeping: bool | None = None
    sleep_level: int = 0  # 1 or 2 if weights and cache are not on the GPU
    current_generation_tokens_per_second: float | None = None  # between the last two scrapes
    generation_tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    requests_finished_per_second: float | None = None  # aborted requests count, failed ones do not
    requests_finished_by_reason_per_second: Mapping[str, float] | None = None
    preemptions_per_second: float | None = None
    steps_per_second: float | None = None
    tokens_per_step: float | None = None
    step_time_seconds: float | None = None
    throughput_ratio: float | None = None  # ÷ a fresh engine's throughput at equal load
    cpu_wait_ratio: float | None = None
    prefix_cache_hit_ratio: float | None = None
    spec_acceptance_ratio: float | None = None
    time_to_first_token_seconds: Quantiles = Quantiles()
    inter_token_latency_seconds: Quantiles = Quantiles()
    queue_time_seconds: Quantiles = Quantiles()
    e2e_latency_seconds: Quantiles = Quantiles()
    # Share of observations that meet each of the user's objectives.
    slo_attainment_ratio: Mapping[str, float] = field(default_factory=dict)
    goodput_requests_per_second: float | None = None  # upper bound: finished × lowest share
    last_progress_timestamp_seconds: float | None = None
    restarts: int = 0
    totals: EngineTotals = EngineTotals()  # only for /metrics


@dataclass(frozen=True, slots=True)
class Sight:
    """How well a detector sees a target."""

    state: str  # "sees" | "partly" | "blind" | "unknown" (too early)
    text: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A setting to change on one engine."""

    rule: str
    engine: str
    flag: str
    value: str | None
    text: str
    why: str
    evidence_seconds: float


@record
class TargetSignals:
    """Current signals of one target."""

    target: str
    t: float  # Unix time of the last observation
    up: bool
    outcome: str
    state: str  # of the least healthy engine
    state_text: str
    why_not: str | None = None
    health_status: int | None = None
    version: str | None = None
    engine_kind: str | None = None
    models: tuple[str, ...] = ()
    last_success_timestamp_seconds: float | None = None
    process_start_time: float | None = None
    process_open_fds: float | None = None
    engines: Mapping[str, EngineSignals] = field(default_factory=dict)
    unknown_families: tuple[str, ...] = ()
    detectors: Mapping[str, Sight] = field(default_factory=dict)
    start_failure: StartFailure | None = None
    startup_seconds: float | None = None
    advice: tuple[Advice, ...] = ()
