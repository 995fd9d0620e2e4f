"""Settings of `engine_stalled`."""

from pydantic import BaseModel, ConfigDict, Field

from vllm_watch.signals.state import STALL_NOTICE_COARSE_SECONDS


class Settings(BaseModel):
    """Times count from the last scrape with progress."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    notice_seconds: float = Field(8.0, gt=0)
    """Steps take milliseconds to a second or two, and each chunk of a prompt moves the KV usage; pauses of 5 s happen
    (a LoRA adapter from disk, a garbage collection, a busy host)."""

    notice_one_request_seconds: float = Field(20.0, gt=0)
    """A single request is weak evidence; it counts as several if connections pile up or no GPU computes."""

    notice_coarse_seconds: float = Field(STALL_NOTICE_COARSE_SECONDS, gt=0)
    """Without a step counter (before 0.6.4) progress shows late, because a whole prefill is one step."""

    notice_young_seconds: float = Field(60.0, gt=0)
    """While an engine warms up, it compiles kernels shape by shape, some for half a minute."""

    notice_waiting_seconds: float = Field(60.0, gt=0)
    """While none runs, requests may wait for KV pages from another host, or for a grammar to compile. Real deadlocks last
    until a restart (vLLM #45414: more than 9 minutes)."""

    notice_unseen_seconds: float = Field(60.0, gt=0)
    """Used if the gauges read idle, and only open connections show demand."""

    notice_seconds_max: float = Field(120.0, gt=0)
    """Upper bound for engines with long usual pauses: by then users have waited long enough."""

    advise_seconds: float = Field(60.0, gt=0)
    """A restart costs minutes of loading and every request in flight. vLLM itself reports a worker's silence after 60 s
    ("No available shared memory broadcast block found in 60 seconds")."""

    advise_seconds_max: float = Field(1200.0, gt=0)
    """One engine recovered by itself from 157 stalls of up to 15.8 minutes in a day; only two recoveries after hours are
    known (operators' reports)."""

    kv_empty_ratio: float = Field(0.05, ge=0, le=1)
    """A cache this empty could admit any waiting request."""

    operation_seconds: float = Field(600.0, gt=0)
    """A sleep, a wake-up or new weights take seconds to minutes: 100 GiB over PCIe take five seconds."""

    canary_failures: int = Field(2, ge=1)
    """One canary may meet a pause, but not two. Together they wait as long as one request may go without a step, so a
    warm-up or a long prefill before them is not a hang."""
