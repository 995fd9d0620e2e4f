"""The settings of each stage, from the scrape to the log, the API and the links."""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, field_validator

from vllm_watch.settings.base import (
    Bytes,
    FilePath,
    HttpUrl,
    Minutes,
    Name,
    Problem,
    Seconds,
    Sections,
    Settings,
    Switch,
    matching,
    problem,
    problems,
    quoted,
)
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


class OtlpSettings(Settings):
    """Pushes the metrics of `/metrics` to an OpenTelemetry collector (pip extra `otlp`). Changes need a restart of vllm-watch."""

    endpoint: HttpUrl | None = None
    """The collector's OTLP/HTTP endpoint, such as `http://collector:4318/v1/metrics`.
    Default: none (no push)"""

    interval_seconds: Seconds = Field(30.0, ge=5, le=3600)
    """Push interval.
    Why: It is between Prometheus' usual 15 s and OpenTelemetry's 60 s."""

    headers_file: FilePath | None = None
    """File with HTTP headers, one per line: `Authorization: Bearer …`. It is read at the start."""

    ca_file: FilePath | None = None
    """CA certificates for the collector, in PEM.
    Default: the CAs of the system"""


PLACEHOLDERS = ("target", "model", "group", "namespace", "pod", "node", "from", "to")

LINKS_MAX = 10
"""At most this many links are allowed."""


def _template(url: str) -> str:
    unknown = [name for name in re.findall(r"\{(\w*)\}", url) if name not in PLACEHOLDERS]
    if unknown:
        known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
        raise problem(f"{quoted(url)} has {{{unknown[0]}}}", f"use {known}")
    return url


class LinkSettings(Settings):
    """A link on every incident and target."""

    name: Annotated[str, Field(min_length=1, max_length=40)]
    """Link text, such as `Grafana`."""

    url: Annotated[HttpUrl, AfterValidator(_template)]
    """URL template with `{target}`, `{model}`, `{group}`, `{namespace}`, `{pod}`, `{node}`,
    `{from}` and `{to}`. The last two enclose the incident, or else the last hour, in Unix milliseconds."""


Right = Literal["restart", "approve", "silence", "pause", "alertmanager", "reload", "notify"]
RIGHTS: tuple[Right, ...] = get_args(Right)
Host = Annotated[str, matching(
    r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", "a host name", "write it without scheme and port",
)]  # fmt: skip


class TokenSettings(Settings):
    """A bearer token for one person or program. The journal shows its `name`."""

    name: Name
    """The owner's name: a unique slug."""

    file: FilePath
    """File with the token (at least 16 characters), reread when it changes. It must be readable
    only by vllm-watch."""

    may: tuple[Right, ...] = RIGHTS
    """Rights of the token.
    Default: all
    Why: People need all rights; a program usually needs only one."""


class ApiSettings(Sections):
    """Access to the HTTP API. Endpoints that change something exist only if tokens are configured."""

    hosts: tuple[Host, ...] = Field((), max_length=100)
    """Host names accepted in requests, besides loopback names and IP addresses. Unset: any name, if `listen` is a network address.
    Why: This prevents DNS rebinding."""

    public: bool = False
    """Serve `/public`: targets' names, state and uptime, without addresses and evidence.
    Why: The status page shows more than users may see."""

    tokens: tuple[TokenSettings, ...] = Field((), max_length=100)

    @field_validator("tokens")
    @classmethod
    def _unique(cls, tokens: tuple[TokenSettings, ...]) -> tuple[TokenSettings, ...]:
        names = [token.name for token in tokens]
        found = [
            Problem((number, "name"), f"{quoted(name)} is used twice", "give each its own name")
            for number, name in enumerate(names)
            if name in names[:number]
        ]
        if found:
            raise problems(found)
        return tokens
