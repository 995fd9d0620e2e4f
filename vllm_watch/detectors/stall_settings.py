"""Settings of `engine_stalled`."""

from pydantic import BaseModel, ConfigDict, Field

from vllm_watch.signals.state import STALL_NOTICE_COARSE_SECONDS


class Settings(BaseModel):
    """All seconds are counted from the last scrape with progress."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    notice_seconds: float = Field(8.0, gt=0)
    """A hang is reported after this many seconds without progress. Steps take up to two seconds,
    and pauses of 5 s happen (a LoRA adapter from disk, a busy host)."""

    notice_one_request_seconds: float = Field(20.0, gt=0)
    """Replaces notice_seconds if only one request is in flight, which is weak evidence. If
    connections pile up or no GPU computes, notice_seconds still applies."""

    notice_coarse_seconds: float = Field(STALL_NOTICE_COARSE_SECONDS, gt=0)
    """Replaces notice_seconds if steps are not counted (before vLLM 0.6.4), or until the first step
    after a sleep or pause. A whole prefill then shows no progress."""

    notice_young_seconds: float = Field(60.0, gt=0)
    """Replaces notice_seconds while an engine warms up. Some kernels compile for half a minute."""

    notice_waiting_seconds: float = Field(60.0, gt=0)
    """If requests wait and none runs, a stall is reported after this many seconds. They may wait
    for KV pages from another host, or for a grammar to compile. Real deadlocks last until a restart
    (vLLM #45414)."""

    notice_unseen_seconds: float = Field(60.0, gt=0)
    """Replaces notice_seconds if open connections are the only sign of demand."""

    notice_seconds_max: float = Field(120.0, gt=0)
    """If the usual pauses are long, a hang is reported after at most this many seconds."""

    advise_seconds: float = Field(60.0, gt=0)
    """A restart is advised after at least this many seconds. It costs minutes of loading and every
    request in flight. vLLM itself reports a silent worker after 60 s."""

    advise_seconds_max: float = Field(1200.0, gt=0)
    """A restart is advised after at most this many seconds. One engine recovered from 157 stalls of
    up to 15.8 minutes in a day (operators' reports)."""

    kv_empty_ratio: float = Field(0.05, ge=0, le=1)
    """Up to this KV usage, any waiting request could be admitted. Requests that still wait are
    deadlocked."""

    operation_seconds: float = Field(600.0, gt=0)
    """A sleep, a wake-up or a weight update is stuck after this many seconds. Each takes seconds to
    minutes."""

    canary_failures: int = Field(2, ge=1)
    """An idle engine hangs after this many unanswered canaries (one-token requests) in a row. A
    pause may delay one canary. The first must be older than notice_seconds, or than the setting
    that replaces it."""
