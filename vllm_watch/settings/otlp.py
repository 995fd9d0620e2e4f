"""Pushing what /metrics says to an OpenTelemetry collector."""

from pydantic import Field

from vllm_watch.settings.base import FilePath, HttpUrl, Seconds, Settings


class OtlpSettings(Settings):
    """Push what `/metrics` says to an OpenTelemetry collector (extra `otlp`). A change takes effect at a start."""

    endpoint: HttpUrl | None = None
    """Where it takes metrics over HTTP, such as `http://collector:4318/v1/metrics`.
    Default: none: nothing is pushed
    Why: Who has a Prometheus scrapes."""

    interval_seconds: Seconds = Field(30.0, ge=5, le=3600)
    """From one push to the next.
    Why: Between Prometheus' usual 15 s and OpenTelemetry's 60 s."""

    headers_file: FilePath | None = None
    """File with headers, one a line: `Authorization: Bearer …`; read at the start.
    Default: none"""

    ca_file: FilePath | None = None
    """Authorities that sign its certificate, in PEM.
    Default: the system's"""
