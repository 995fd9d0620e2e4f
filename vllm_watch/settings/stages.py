"""The settings of each stage, from the scrape to the log."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from vllm_watch.settings.base import Bytes, FilePath, Minutes, Seconds, Settings, Switch, problem
from vllm_watch.settings.tls import TlsConfig

_TIMEOUT_SECONDS = 4.0
_TIMEOUT_SECONDS_MIN = 2.0  # a busy API server may need longer than a short scrape interval
_CONNECT_TIMEOUT_SECONDS = 2.0
_INTERVAL_SECONDS_MIN = 0.1


def _interval(value: float) -> float:
    if value < _INTERVAL_SECONDS_MIN:
        cause = f"{value:g} is below {_INTERVAL_SECONDS_MIN}"
        raise problem(
            cause, "set it to 1 or more: each scrape takes milliseconds of the engine's API server"
        )
    return value


def _timeout_seconds(seen: dict[str, Any]) -> float:
    interval = seen.get("interval_seconds", 5.0)
    return float(max(_TIMEOUT_SECONDS_MIN, min(_TIMEOUT_SECONDS, interval)))


Interval = Annotated[Seconds, AfterValidator(_interval)]


class ScrapeSettings(Settings):
    """Scrapes of targets. A target can override each key."""

    interval_seconds: Interval = 5.0
    """Scrape interval of `/metrics`.
    Why: Three scrapes show a change of state within 15 seconds."""

    timeout_seconds: Seconds = Field(default_factory=_timeout_seconds, le=30)
    """Timeout of one complete response.
    Default: 4, or the interval if shorter, but at least 2
    Why: A busy API server takes seconds to answer."""

    connect_timeout_seconds: Seconds = Field(
        default_factory=lambda seen: min(_CONNECT_TIMEOUT_SECONDS, seen.get("timeout_seconds", 4.0))
    )
    """Connect timeout; at most `timeout_seconds`.
    Default: 2, or `timeout_seconds` if shorter
    Why: A healthy host accepts within this time even if one packet is lost."""

    body_bytes_max: Bytes = 2 << 20
    """Maximum size of `/metrics`, after decompression.
    Default: 2 MiB
    Why: A vLLM with 16 engines exports about 1 MB."""

    health_interval_seconds: Interval = 5.0
    """Interval of `GET /health`.
    Why: Only metrics and health together distinguish a dead engine from a dead server."""

    api_key_file: FilePath | None = None
    """File with the key of vLLM's `--api-key`, reread when it changes. The key is sent only after
    a 401 or 403.
    Why: vLLM requires the key for `/v1/models`, and a proxy may require it for `/metrics`."""

    tls_config: TlsConfig = TlsConfig()


class CanarySettings(Settings):
    """One-token requests that detect hangs of idle engines. A target can override each key."""

    enabled: bool | None = None
    """`false`: off. `true`: on, and refusals are logged. Unset: on for servers without `peers`
    that answer the first canary within a second. Slower servers are tried again after an hour.
    Default: unset
    Why: Only a request detects a hang of an idle engine."""

    interval_seconds: Seconds = Field(180.0, ge=10, le=86400)
    """Interval of canaries to each idle engine. Busy engines get none.
    Why: Canaries detect a hang within four minutes and cost 20 tokens an hour."""

    timeout_seconds: Seconds = Field(10.0, ge=2, le=300)
    """Timeout of a canary.
    Why: An idle engine answers in milliseconds, but may pause for 5 seconds."""

    model: str = Field("", max_length=256)
    """The model to request.
    Default: the first of `/v1/models`
    Why: A gateway may use another name."""


class FleetSettings(Settings):
    """Targets that become unreachable together are reported as one incident."""

    targets_min: int = Field(3, ge=2)
    """At least this many targets must become unreachable within a minute.
    Why: Two may be a coincidence, or two data-parallel ranks of one deployment."""

    share: float = Field(0.5, gt=0, lt=1)
    """More than this share of the targets must be unreachable, not counting those that never
    answered.
    Why: If most targets are unreachable, one shared cause is likelier than many separate ones."""


class SignalsSettings(Settings):
    """Computation of rates and quantiles."""

    window_seconds: Seconds = Field(60.0, le=3600)
    """Window of rates and quantiles. It must contain at least two scrapes.
    Why: It is long
    enough for a p95 at a few requests per second, and short enough to show a collapse."""

    totals: bool = True
    """Export counters and histograms that continue across restarts and can be summed over engines.
    Why: They are about 50 series per engine. Disable them if Prometheus scrapes vLLM itself."""


class SloSettings(Settings):
    """Latency objectives. Goodput is an upper bound of the requests that meet all objectives. A target can override each key."""

    time_to_first_token_seconds: Seconds | None = None
    """Maximum time to a request's first token."""

    inter_token_latency_seconds: Seconds | None = None
    """Maximum time between consecutive tokens of a request."""

    e2e_latency_seconds: Seconds | None = None
    """Maximum duration of a whole request."""


class GpuSettings(Settings):
    """The GPUs of this host, read through NVML."""

    enabled: Switch = "auto"
    """`auto`: poll GPUs if a driver is found; `on`: report an error without a driver; `off`: never
    load NVML.
    Why: A watcher often runs on a machine without GPUs."""

    interval_seconds: Interval = 5.0
    """Interval of GPU polls.
    Why: Memory and temperature change within seconds, but each poll takes the driver's lock."""

    deadline_seconds: Seconds = 10.0
    """Time after which a poll is reported as a hung driver. Polls never overlap.
    Why: A cold driver without persistence mode needs seconds for its first call."""


class RecorderSettings(Settings):
    """The flight recorder: the last minutes of every target, for later analysis."""

    minutes: Minutes = Field(10.0, le=24 * 60)
    """Length of the recording.
    Why: It covers most incidents from the first sign until the on-call engineer reacts."""

    bytes_max: Bytes = Field(8 << 20, ge=64 << 10)
    """Maximum compressed size of one target's recording. The oldest data is dropped first.
    Default: 8 MiB
    Why: It holds ten minutes of vLLM's largest `/metrics`, scraped every second."""


class LogSettings(Settings):
    """The log on stderr."""

    format: Literal["auto", "console", "json"] = "auto"
    """`auto`: console format on a terminal, JSON lines elsewhere.
    Why: Log collectors parse JSON."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level.
    Why: `info` logs only one line per change of state."""
