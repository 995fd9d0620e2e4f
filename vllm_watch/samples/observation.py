"""Everything one look at one target saw: the only thing that enters a Watch."""

from dataclasses import dataclass

from vllm_watch.samples.cpu import EngineCpu
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.engine_log import StartFailure
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.record import record

OUTCOMES = (
    "ok", "refused", "connect_timeout", "read_timeout", "http", "garbled", "too_large",
    "disconnected", "dns", "tls", "watcher",
)  # fmt: skip
"""The last one: the watcher itself could not ask, or did not run to hear the answer. It says nothing of
the other side."""


SCALING = "HTTP 503: vLLM says that it is scaling"
"""What is said of a call that vLLM turned away itself: while it changes its number of data-parallel ranks
(elastic expert parallelism), every path answers so, `/health` too."""


@record
class Call:
    """How one HTTP call ended."""

    outcome: str  # one of OUTCOMES
    status: int | None = None  # HTTP status, where an answer came
    error: str | None = None  # in words, where the outcome is not "ok"
    latency_s: float = 0.0  # seconds from the call to the last byte, or to the failure
    kept: bool = (
        False  # made on a connection that answered before: by the same process of the server
    )

    @property
    def scaling(self) -> bool:
        """Did vLLM turn it away because it scales elastically?"""
        return self.error == SCALING


@record
class ServerSample:
    """What is known of the API server's process and of the server as a whole, beside its engines."""

    version: str | None = None  # vLLM's, from /version
    models: tuple[str, ...] | None = None  # from /v1/models
    max_model_len: int | None = None  # tokens, of the first model
    sleeping: bool | None = None  # from /is_sleeping or the sleep state gauge
    paused: bool | None = None  # from /is_paused
    recovering: str | None = (
        None  # the fault from which vLLM waits to be recovered, from /fault_tolerance/status
    )
    process_start_time: float | None = None  # Unix seconds
    process_open_fds: float | None = None  # the one sign of demand while an engine hangs
    process_cpu_seconds: float | None = None
    process_resident_memory_bytes: float | None = None


@record
class Reading:
    """One /metrics body in our fields."""

    vllm: bool  # does it carry vLLM's series?
    why_not: str | None = None  # in words, where it does not
    engine_kind: str | None = None  # "V0" | "V1"
    engines: tuple[EngineSample, ...] = ()  # ascending by engine
    server: ServerSample = ServerSample()
    unknown_families: tuple[str, ...] = ()  # vLLM's families we have no field for


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The vLLM process itself, where we can see it on this host."""

    pid: int
    start_time: float | None = None  # Unix seconds
    alive: bool | None = None


CANARY_OUTCOMES = ("ok", "unanswered", "busy", "refused", "failed", "unreached")
"""How a canary ends. Only "unanswered" (taken, and no answer in time) says that an engine hangs: "busy"
is an answer (429, 503), "refused" is our mistake or the server's limit (a wrong key or model name, no
such endpoint), "failed" an error of the server, and "unreached" never came to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryCall:
    """How a one-token completion ended."""

    ok: bool
    latency_s: float
    error: str | None = None
    outcome: str | None = None  # one of CANARY_OUTCOMES; None: a recording that does not say
    engine: str | None = None  # the data-parallel engine it was addressed to; None: whichever


@record
class Observation:
    """One look at one target.

    `t` is Unix time and may step; `monotonic_s`, where known, never does: intervals are taken from it.
    """

    t: float
    target: str  # its URL in recordings, its name elsewhere
    monotonic_s: float | None = None
    scrape: Call
    health: Call | None = None  # None: not asked this time
    reading: Reading | None = None  # None: the scrape failed
    gpus: tuple[GpuSample, ...] | None = (
        None  # None: unknown or none asked for; (): a machine without GPUs
    )
    process: ProcessState | None = None
    canary: CanaryCall | None = None
    start_failure: StartFailure | None = None  # what its log says; None: nothing, or no log is read
    # EngineCpu of each engine whose processes are seen; None: of none.
    cpu: tuple[EngineCpu, ...] | None = None
    attention_backend: str | None = None  # its kernels, as its log names them; None: likewise
