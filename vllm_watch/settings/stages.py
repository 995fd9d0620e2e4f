"""What can be set for each stage, from the scrape to the log; a default always comes with its reason."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from vllm_watch.settings.base import Bytes, FilePath, Minutes, Seconds, Settings, Switch, problem
from vllm_watch.settings.tls import TlsConfig

_TIMEOUT_SECONDS = 4.0
_TIMEOUT_SECONDS_MIN = 2.0  # at one look a second a busy API server would be called silent
_CONNECT_TIMEOUT_SECONDS = 2.0
_INTERVAL_SECONDS_MIN = 0.1


def _interval(value: float) -> float:
    if value < _INTERVAL_SECONDS_MIN:
        cause = f"{value:g} is below {_INTERVAL_SECONDS_MIN}"
        raise problem(cause, "a scrape costs the engine's API server milliseconds: take 1 or more")
    return value


def _timeout_seconds(seen: dict[str, Any]) -> float:
    interval = seen.get("interval_seconds", 5.0)
    return float(max(_TIMEOUT_SECONDS_MIN, min(_TIMEOUT_SECONDS, interval)))


Interval = Annotated[Seconds, AfterValidator(_interval)]


class ScrapeSettings(Settings):
    """How a target is asked. Stands for all targets; each key can be set again at a target."""

    interval_seconds: Interval = 5.0
    """Time from one scrape of `/metrics` to the next.
    Why: Three looks show a change of state within 15 seconds; 1 is fine too."""

    timeout_seconds: Seconds = Field(default_factory=_timeout_seconds, le=30)
    """How long one whole answer may take. Looks never overlap: one that takes longer than the interval
    leaves out the next.
    Default: 4, or the interval where that is shorter, but at least 2
    Why: vLLM answers in milliseconds; a busy API server has been seen to need seconds."""

    connect_timeout_seconds: Seconds = Field(
        default_factory=lambda seen: min(_CONNECT_TIMEOUT_SECONDS, seen.get("timeout_seconds", 4.0))
    )
    """How long a connection may take to be accepted; at most `timeout_seconds`.
    Default: 2, or `timeout_seconds` where that is shorter
    Why: A host that lives accepts even when one packet is lost and sent again (1 second)."""

    body_bytes_max: Bytes = 2 << 20
    """The largest `/metrics` body that is read, after decompression.
    Default: 2 MiB
    Why: A vLLM with 16 engines gives about 1 MB; what is far larger is not vLLM's, and costs memory at each look."""

    health_interval_seconds: Interval = 5.0
    """Time from one `GET /health` to the next.
    Why: As often as `/metrics`: the two together tell a dead engine from a dead server."""

    api_key_file: FilePath | None = None
    """File with the bearer key of vLLM's `--api-key`, read again when it changes; a relative path starts at
    the folder of this file.
    Why: `/v1/models` wants it where vLLM was given one. `/metrics` does not; where a proxy asks for a key it is shown this."""

    tls_config: TlsConfig = TlsConfig()


class CanarySettings(Settings):
    """A request for one token, to find the engine that only looks idle. Each key can be set again at a target."""

    enabled: bool | None = None
    """`false`: none is sent. `true`: they are sent, and what refuses them is logged. Unset: they are sent to a server
    without `peers` that answered its first within a second; every other is left alone for an hour.
    Default: unset
    Why: Nothing else finds an engine that hangs while it is idle, and a token every three minutes costs nothing that
    can be measured. But you did not make this request: one line switches it off."""

    interval_seconds: Seconds = Field(180.0, ge=10, le=86400)
    """Time from one canary to the next of each engine that looks idle. A busy engine gets none.
    Why: A wedge is found within four minutes, by 20 tokens an hour."""

    timeout_seconds: Seconds = Field(10.0, ge=2, le=300)
    """How long an idle engine may take to answer with one token.
    Why: It takes milliseconds; pauses of 5 seconds happen. Raise it where the first token of an idle engine
    is slow."""

    model: str = Field("", max_length=256)
    """The model that is asked for.
    Default: the first of `/v1/models`
    Why: A gateway may know it by another name."""


class FleetSettings(Settings):
    """When many targets fall silent at once, the watcher suspects itself first."""

    targets_min: int = Field(3, ge=2)
    """At least so many targets that fell silent within a minute are one incident.
    Why: Two may be chance, or two ranks of one deployment."""

    share: float = Field(0.5, gt=0, lt=1)
    """... if they are more than this share of all that answered before.
    Why: With the larger part away, what they share is more likely at fault than each of them."""


class SignalsSettings(Settings):
    """How observations become rates and quantiles."""

    window_seconds: Seconds = Field(60.0, le=3600)
    """What rates and quantiles look back over; at least two scrapes must fit.
    Why: Long enough for a p95 of a few requests per second, short enough to see a collapse."""

    totals: bool = True
    """Whether `/metrics` has counters and histograms of each engine that add up over engines and restarts.
    Why: About 50 series per engine; leave them out where Prometheus scrapes vLLM's own."""


class SloSettings(Settings):
    """Your objectives: goodput counts what met all that are set. Each can be set again at a target."""

    time_to_first_token_seconds: Seconds | None = None
    """A request's first token within this time.
    Why: Only you know what your users were promised."""

    inter_token_latency_seconds: Seconds | None = None
    """Each further token within this time."""

    e2e_latency_seconds: Seconds | None = None
    """A whole request within this time."""


class GpuSettings(Settings):
    """The GPUs of this host, read through NVML."""

    enabled: Switch = "auto"
    """`auto`: read GPUs where a driver is found; `on`: say so loudly where none is; `off`: never load NVML.
    Why: A machine without GPUs is a normal place for a watcher."""

    interval_seconds: Interval = 5.0
    """Time from one poll of all GPUs to the next.
    Why: Memory and heat change over seconds; a poll takes the driver's lock."""

    deadline_seconds: Seconds = 10.0
    """A poll that takes longer is reported as a hung driver; it is never called twice at once.
    Why: A cold driver without persistence mode needs seconds for its first call."""


class RecorderSettings(Settings):
    """The flight recorder: the last minutes of every target, to look at after the fact."""

    minutes: Minutes = Field(10.0, le=24 * 60)
    """How far back the recording reaches.
    Why: From before the first sign of most incidents to the moment somebody looks."""

    bytes_max: Bytes = Field(8 << 20, ge=64 << 10)
    """The most that one target's recording takes, compressed; the oldest goes first.
    Default: 8 MiB
    Why: Ten minutes at one look per second of the largest vLLM body, with room to spare."""


class LogSettings(Settings):
    """What is said on stderr."""

    format: Literal["auto", "console", "json"] = "auto"
    """`auto`: for people on a terminal, JSON lines anywhere else.
    Why: Collectors parse JSON; people do not."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important line that is written.
    Why: One line per change of state is little enough to keep."""
