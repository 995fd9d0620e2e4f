"""Settings of `engine_stalled`."""

from pydantic import BaseModel, ConfigDict, Field

from vllm_watch.signals.state import STALL_NOTICE_COARSE_SECONDS


class Settings(BaseModel):
    """All times are measured from the last scrape with progress."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    notice_seconds: float = Field(8.0, gt=0)
    """A hang is reported after this time without progress. Steps take milliseconds to a second or two, and each chunk
    of a prompt changes the KV usage; pauses of 5 s happen (a LoRA adapter from disk, a busy host)."""

    notice_one_request_seconds: float = Field(20.0, gt=0)
    """Replaces notice_seconds if only one request is in flight, because that is weak evidence. If connections pile up or no
    GPU computes, notice_seconds applies."""

    notice_coarse_seconds: float = Field(STALL_NOTICE_COARSE_SECONDS, gt=0)
    """Replaces notice_seconds without a step counter (before vLLM 0.6.4): a whole prefill is then one step, so
    progress becomes visible late."""

    notice_young_seconds: float = Field(60.0, gt=0)
    """Replaces notice_seconds while an engine warms up: it compiles kernels shape by shape, some for half a minute."""

    notice_waiting_seconds: float = Field(60.0, gt=0)
    """If requests wait and none runs, a stall is reported after this time. They may wait for KV pages from another
    host, or for a grammar to compile. Real deadlocks last until a restart (vLLM #45414)."""

    notice_unseen_seconds: float = Field(60.0, gt=0)
    """Replaces notice_seconds if the gauges show an idle engine, and only open connections show demand."""

    notice_seconds_max: float = Field(120.0, gt=0)
    """Upper bound of the time before a hang is reported, for engines with long usual pauses: by then users have waited long
    enough."""

    advise_seconds: float = Field(60.0, gt=0)
    """A restart is not advised before this time, because it costs minutes of loading and every request in flight.
    vLLM itself reports a silent worker after 60 s."""

    advise_seconds_max: float = Field(1200.0, gt=0)
    """Upper bound of the time before a restart is advised: one engine recovered from 157 stalls of up to 15.8 minutes
    in a day (operators' reports)."""

    kv_empty_ratio: float = Field(0.05, ge=0, le=1)
    """A KV cache with at most this usage could admit any waiting request, so requests that wait are deadlocked."""

    operation_seconds: float = Field(600.0, gt=0)
    """A sleep, a wake-up or a weight update is stuck after this time. Each takes seconds to minutes."""

    canary_failures: int = Field(2, ge=1)
    """An idle engine hangs if this many canaries (one-token requests) in a row get no answer: a pause may delay one,
    but not two. Together they must wait for notice_seconds or its replacement, so a warm-up is not a hang."""
