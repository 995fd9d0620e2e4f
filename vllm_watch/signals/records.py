"""What signals say at one moment: the records that detectors judge and that export shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_watch.samples.engine_log import StartFailure
from vllm_watch.samples.record import record, short_record
from vllm_watch.signals.totals import EngineTotals


@short_record
class Quantiles:
    """Quantiles of what was observed within the window, in the histogram's unit; None: nothing observed."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    first_bound: float | None = (
        None  # of the lowest bucket: a quantile up to it is only known to be below it
    )


@record
class EngineSignals:
    """One engine now. Rates, quantiles and shares are over the signal window; None is unknown, never 0."""

    engine: str
    model_name: str = ""
    state: str = "unknown"  # one of signals.state.STATES
    state_text: str = ""  # the same in words, with the numbers that led to it
    # gauges, as vLLM gave them last
    requests_running: float | None = None
    requests_waiting: float | None = None
    requests_waiting_by_reason: Mapping[str, float] | None = None
    kv_cache_usage_ratio: float | None = None
    kv_cache_capacity_tokens: float | None = None
    kv_cache_free_tokens: float | None = None
    kv_cache_time_to_full_seconds: float | None = None  # at the window's slope; None: not filling
    sleeping: bool | None = None
    sleep_level: int = 0  # 1, 2: asleep without weights and cache on the GPU
    # rates
    current_generation_tokens_per_second: float | None = None  # between the last two scrapes
    generation_tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    requests_finished_per_second: float | None = None  # by any reason but an error; aborts too
    requests_finished_by_reason_per_second: Mapping[str, float] | None = None
    preemptions_per_second: float | None = None
    steps_per_second: float | None = None
    # shape of the work
    tokens_per_step: float | None = None
    step_time_seconds: float | None = None  # mean, while there were steps
    throughput_ratio: float | None = None  # what it does now ÷ what it did when fresh at equal load
    cpu_wait_ratio: float | None = None  # of the time, in which its most hindered thread had no CPU
    prefix_cache_hit_ratio: float | None = None
    spec_acceptance_ratio: float | None = None
    # latencies
    time_to_first_token_seconds: Quantiles = Quantiles()
    inter_token_latency_seconds: Quantiles = Quantiles()
    queue_time_seconds: Quantiles = Quantiles()
    e2e_latency_seconds: Quantiles = Quantiles()
    # against the user's objectives: share of the window's observations at or under each
    slo_attainment_ratio: Mapping[str, float] = field(
        default_factory=dict
    )  # objective's name → ratio
    goodput_requests_per_second: float | None = (
        None  # finished × the least attainment: an upper bound
    )
    # progress
    last_progress_timestamp_seconds: float | None = (
        None  # Unix time of the last look that saw progress
    )
    restarts: int = 0  # times the counters were seen to begin anew
    totals: EngineTotals = EngineTotals()  # told by /metrics only


@dataclass(frozen=True, slots=True)
class Sight:
    """How well one detector sees on a target, by what the target exports."""

    state: str  # "sees" | "partly" | "blind" | "unknown": too few looks yet
    text: str  # what is missing, what that costs, how to mend it; empty where nothing is


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to set, for one engine, from what was seen of it over minutes."""

    rule: str
    engine: str
    flag: str
    value: str | None
    text: str  # what was seen, in numbers
    why: str  # what the flag does about it
    evidence_seconds: float


@record
class TargetSignals:
    """One target now."""

    target: str  # its name
    t: float  # Unix time of the last observation
    up: bool  # did the last scrape bring a body that could be read?
    outcome: str  # of the last scrape, one of samples.observation.OUTCOMES
    state: (
        str  # the least healthy of its engines' states, or the target's own when it has no engine
    )
    state_text: str
    why_not: str | None = None  # why nothing (or nothing of vLLM's) could be read, in words
    health_status: int | None = None  # HTTP status of /health, last asked
    version: str | None = None
    engine_kind: str | None = None  # "V0" | "V1"
    models: tuple[str, ...] = ()
    last_success_timestamp_seconds: float | None = (
        None  # Unix time of the last scrape that could be read
    )
    process_start_time: float | None = None
    process_open_fds: float | None = None
    engines: Mapping[str, EngineSignals] = field(default_factory=dict)  # by engine label, ascending
    unknown_families: tuple[str, ...] = ()
    detectors: Mapping[str, Sight] = field(default_factory=dict)  # by slug
    start_failure: StartFailure | None = None  # what its log says it failed of
    startup_seconds: float | None = None  # the longest of its last starts; None: none was seen
    advice: tuple[Advice, ...] = ()  # on settings; empty: none, or not enough was seen yet
