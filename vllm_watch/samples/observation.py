"""The result of one poll of one target: the scrape, the CPU waits, and a failure found in the engine's log."""

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.record import record


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailure:
    """The cause of a failed start or a crash."""

    failure: str  # a failure class of `vllm-watch diagnose`
    deterministic: bool  # the next start would fail, too
    root_cause_line: str | None = None
    explanation: str = ""
    sentence: str = ""  # not published

    def published(self) -> Mapping[str, object]:
        return {
            "class": self.failure,
            "deterministic": self.deterministic,
            "root_cause_line": self.root_cause_line,
            "explanation": self.explanation,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCpu:
    """`None` is unknown. Counters restart with the engine's processes or the watcher."""

    engine: str
    waited_seconds: float
    """Seconds that a thread was runnable without a CPU. Each poll adds the longest wait of any
    thread."""

    pid: int | None = None  # of the thread with the longest wait since the last poll
    name: str | None = None
    core: str | None = None  # "VLLM::EngineCore_DP1 (PID 20)"
    stopped: str | None = None  # title and PID of a process stopped by a signal or debugger
    quota_periods: float | None = None  # of the nearest cgroup with a CPU limit
    throttled_periods: float | None = None  # periods that reached the limit


OUTCOMES = (
    "ok", "refused", "connect_timeout", "read_timeout", "http", "garbled", "too_large",
    "disconnected", "dns", "tls", "watcher",
)  # fmt: skip
"""Outcomes of a call. `watcher` means that the watcher itself failed, so the server may be fine."""


SCALING = "HTTP 503: vLLM reports that it is scaling"
"""Response of every path, even `/health`, while vLLM changes its number of data-parallel ranks."""


@record
class Call:
    """The outcome of one HTTP call."""

    outcome: str  # one of OUTCOMES
    status: int | None = None
    error: str | None = None
    latency_s: float = 0.0  # until the last byte or the failure
    kept: bool = False  # the connection was reused, so the same process answered

    @property
    def scaling(self) -> bool:
        return self.error == SCALING


@record
class ServerSample:
    """The API server, without its engines."""

    version: str | None = None
    models: tuple[str, ...] | None = None
    max_model_len: int | None = None  # tokens, of the first model
    sleeping: bool | None = None  # from /is_sleeping or the sleep state gauge
    paused: bool | None = None  # from /is_paused
    recovering: str | None = None  # fault awaiting recovery, from /fault_tolerance/status
    process_start_time: float | None = None
    process_open_fds: float | None = None  # the only sign of requests while an engine hangs
    process_cpu_seconds: float | None = None
    process_resident_memory_bytes: float | None = None


@record
class Reading:
    """One parsed /metrics body."""

    vllm: bool
    why_not: str | None = None
    engine_kind: str | None = None  # "V0" | "V1"
    engines: tuple[EngineSample, ...] = ()  # ascending by engine
    server: ServerSample = ServerSample()
    unknown_families: tuple[str, ...] = ()  # vLLM's metric families that have no field here


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The vLLM process, if visible on this host."""

    pid: int
    start_time: float | None = None
    alive: bool | None = None


CANARY_OUTCOMES = ("ok", "unanswered", "busy", "refused", "failed", "unreached")
"""Only "unanswered" shows a hang: the request was accepted, but not answered in time. "busy" is
status 429 or 503. "refused" means our mistake or a limit of the server, and "failed" a server
error. "unreached" requests never arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryCall:
    """The outcome of a one-token completion."""

    ok: bool
    latency_s: float
    error: str | None = None
    outcome: str | None = None  # one of CANARY_OUTCOMES; None in old recordings
    engine: str | None = None  # the addressed data-parallel engine; None if any may answer


@record
class Observation:
    """One poll of a target. `t` is Unix time, which may jump. Use `monotonic_s` for intervals, if it is known."""

    t: float
    target: str  # URL in recordings, name elsewhere
    monotonic_s: float | None = None
    scrape: Call
    health: Call | None = None
    reading: Reading | None = None  # None if the scrape failed
    gpus: tuple[GpuSample, ...] | None = None  # None if unknown or not polled, () without GPUs
    process: ProcessState | None = None
    canary: CanaryCall | None = None
    start_failure: StartFailure | None = None
    cpu: tuple[EngineCpu, ...] | None = None  # of engines with visible processes
    attention_backend: str | None = None
