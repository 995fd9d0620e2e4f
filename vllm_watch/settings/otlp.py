"""Export of the metrics to an OpenTelemetry collector."""

from pydantic import Field

from vllm_watch.settings.base import FilePath, HttpUrl, Seconds, Settings


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
