"""Settings of `engine_stalled`."""

from pydantic import BaseModel, ConfigDict, Field

from vllm_watch.signals.state import STALL_NOTICE_COARSE_SECONDS


class Settings(BaseModel):
    """Limits, measured from the last scrape with progress."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    notice_seconds: float = Field(8.0, gt=0)
    """Seconds without progress before a hang is reported. Steps take up to two seconds, and pauses
    of 5 s happen (a LoRA adapter from disk, a busy host)."""

    notice_one_request_seconds: float = Field(20.0, gt=0)
    """Replaces notice_seconds if only one request is in flight, which is weak evidence. If
    connections pile up or no GPU computes, notice_seconds applies."""

    notice_coarse_seconds: float = Field(STALL_NOTICE_COARSE_SECONDS, gt=0)
    """Replaces notice_seconds without a step counter (before vLLM 0.6.4). A whole prefill then
    shows no progress."""

    notice_young_seconds: float = Field(60.0, gt=0)
    """Replaces notice_seconds while an engine warms up. Some kernels compile for half a minute."""

    notice_waiting_seconds: float = Field(60.0, gt=0)
    """Seconds before a stall is reported if requests wait and none runs. They may wait for KV pages
    from another host, or for a grammar to compile. Real deadlocks last until a restart (vLLM
    #45414)."""

    notice_unseen_seconds: float = Field(60.0, gt=0)
    """Replaces notice_seconds if open connections are the only sign of demand."""

    notice_seconds_max: float = Field(120.0, gt=0)
    """Maximum seconds before a hang is reported, for engines with long usual pauses. Users do not
    wait longer."""

    advise_seconds: float = Field(60.0, gt=0)
    """Minimum seconds before a restart is advised. It costs minutes of loading and every request in
    flight. vLLM itself reports a silent worker after 60 s."""

    advise_seconds_max: float = Field(1200.0, gt=0)
    """Maximum seconds before a restart is advised. One engine recovered from 157 stalls of up to
    15.8 minutes in a day (operators' reports)."""

    kv_empty_ratio: float = Field(0.05, ge=0, le=1)
    """Maximum KV usage at which any waiting request could be admitted. Requests that still wait are
    deadlocked."""

    operation_seconds: float = Field(600.0, gt=0)
    """Maximum seconds of a sleep, a wake-up or a weight update. Each takes seconds to minutes."""

    canary_failures: int = Field(2, ge=1)
    """An idle engine hangs after this many unanswered canaries (one-token requests) in a row. A
    pause may delay one. Together they must wait for notice_seconds or its replacement, so a warm-up
    is not a hang."""
