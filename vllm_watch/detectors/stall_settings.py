"""Settings of `engine_stalled`."""

from pydantic import BaseModel, ConfigDict, Field

from vllm_watch.signals.state import STALL_NOTICE_COARSE_SECONDS


class Settings(BaseModel):
    """Times are since the last progress."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    notice_seconds: float = Field(8.0, gt=0)
    """Steps take up to two seconds, prompt chunks move the KV usage; pauses of 5 s happen (a LoRA adapter, garbage collection, a busy host)."""

    notice_one_request_seconds: float = Field(20.0, gt=0)
    """A single request is one source; with another (connections, idle GPUs) it counts as several."""

    notice_coarse_seconds: float = Field(STALL_NOTICE_COARSE_SECONDS, gt=0)
    """Without step counter (before 0.6.4) a whole prefill is one step."""

    notice_young_seconds: float = Field(60.0, gt=0)
    """While an engine warms up, kernels compile shape by shape, some for half a minute."""

    notice_waiting_seconds: float = Field(60.0, gt=0)
    """None running, some waiting: for KV pages from another host, or a grammar to compile. Real deadlocks last until a restart (vLLM #45414: more than 9 minutes)."""

    notice_unseen_seconds: float = Field(60.0, gt=0)
    """The gauges read idle, and only open connections show demand."""

    notice_seconds_max: float = Field(120.0, gt=0)
    """Bound of usual pauses: users have waited enough."""

    advise_seconds: float = Field(60.0, gt=0)
    """A restart costs minutes of loading and every request. vLLM reports a worker's silence after 60 s ("No available shared memory broadcast block found in 60
    seconds")."""

    advise_seconds_max: float = Field(1200.0, gt=0)
    """One engine recovered from 157 stalls of up to 15.8 minutes in a day; longer, two of hours are known (operators' reports)."""

    kv_empty_ratio: float = Field(0.05, ge=0, le=1)
    """A cache this empty could admit any waiting request."""

    operation_seconds: float = Field(600.0, gt=0)
    """A sleep, wake-up or new weights take seconds to minutes: 100 GiB over PCIe take five seconds."""

    canary_failures: int = Field(2, ge=1)
    """One canary may meet a pause, two do not. Together they wait as long as one request may: a warm-up or prefill is not a wedge."""
