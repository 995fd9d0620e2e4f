"""Convert Prometheus text to OTLP, and push it. Needs the extra `otlp`."""

import logging
import time
from itertools import pairwise
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from vllm_watch import __version__
from vllm_watch.errors import WatchError
from vllm_watch.settings.stages import OtlpSettings
from vllm_watch.support import regular_file
from vllm_watch.support.redaction import excerpt, redact_always

TRY_SECONDS = 10.0
"""A push with retries takes at most this long. The default interval is longer."""

BATCH_POINTS_MAX = 10_000
"""Maximum points per request, about 2 MiB. By default, collectors accept 4 MiB over gRPC."""

GEN_AI = {
    "vllm_watch_engine_e2e_seconds": "gen_ai.server.request.duration",
    "vllm_watch_engine_ttft_seconds": "gen_ai.server.time_to_first_token",
    "vllm_watch_engine_itl_seconds": "gen_ai.server.time_per_output_token",
}
"""Name of each histogram in OpenTelemetry's conventions v1.37, which are in development. Source:
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/#generative-ai-model-server-metrics"""

# The convention requires an operation, but vLLM does not distinguish APIs.
_GEN_AI_ATTRIBUTES = {"gen_ai.provider.name": "vllm", "gen_ai.operation.name": "text_completion"}
_CHARACTERS_MAX = 300
_FILE_BYTES_MAX = 16384


class _LastLine(logging.Handler):
    """Keeps the exporter's last log line, the only report of a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


class Exporter:
    """Pushes to one collector."""

    def __init__(self, settings: OtlpSettings, host: str) -> None:
        self._started_ns = time.time_ns()
        names = {"service.name": "vllm-watch", "service.version": __version__}
        self._resource = Resource({**names, "service.instance.id": host, "host.name": host})
        self._said = _LastLine()
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._said)
        logger.propagate = False
        try:
            if settings.ca_file is not None:
                regular_file.check(settings.ca_file)
            self._exporter = OTLPMetricExporter(
                endpoint=settings.endpoint, headers=_headers(settings.headers_file), timeout=TRY_SECONDS,
                certificate_file=None if settings.ca_file is None else str(settings.ca_file),
                compression=Compression.Gzip, max_export_batch_size=BATCH_POINTS_MAX,
            )  # fmt: skip
        except OSError as error:
            raise WatchError(f"otlp: {error}", "name files that can be read") from None

    def push(self, text: str) -> str | None:
        """Push, and return None or the cause of a failure. Blocks for about TRY_SECONDS."""
        result = self._exporter.export(metrics_data(text, self._resource, self._started_ns))
        if result is MetricExportResult.SUCCESS:
            return None
        return excerpt(self._said.last, _CHARACTERS_MAX) or "it was not taken"

    def close(self) -> None:
        self._exporter.shutdown()


def metrics_data(text: str, resource: Resource, started_ns: int) -> MetricsData:
    """Return the metrics, with counters as cumulative sums since `started_ns`."""
    now_ns = time.time_ns()
    metrics = []
    for family in text_string_to_metric_families(text):
        points: dict[str, list[NumberDataPoint]] = {}
        for sample in family.samples:
            # Always a float: a value of 1 must not make the metric an integer.
            point = NumberDataPoint(sample.labels, started_ns, now_ns, float(sample.value))
            points.setdefault(sample.name, []).append(point)
        for name, found in points.items():
            data: Sum | Gauge = Gauge(found)
            if family.type in ("counter", "histogram"):
                data = Sum(found, AggregationTemporality.CUMULATIVE, is_monotonic=True)
            metrics.append(Metric(name, family.documentation, "", data))
        if family.name in GEN_AI:
            metrics.append(_gen_ai(family, started_ns, now_ns))
    scope = ScopeMetrics(InstrumentationScope("vllm_watch", __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _gen_ai(family: Family, started_ns: int, now_ns: int) -> Metric:
    buckets: dict[frozenset[tuple[str, str]], dict[float, float]] = {}
    sums = {}
    for sample in family.samples:
        labels = frozenset((key, value) for key, value in sample.labels.items() if key != "le")
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, {})[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    points = []
    for labels, by_bound in buckets.items():
        of = dict(labels)
        bounds = sorted(by_bound)
        cumulative = [int(by_bound[bound]) for bound in bounds]
        attributes = {
            **_GEN_AI_ATTRIBUTES, "gen_ai.request.model": of.get("model_name", ""),
            "vllm_watch.target": of.get("target", ""), "vllm_watch.engine": of.get("engine", ""),
        }  # fmt: skip
        points.append(
            HistogramDataPoint(
                attributes, started_ns, now_ns, cumulative[-1], sums.get(labels, 0.0),
                [upper - lower for lower, upper in pairwise([0, *cumulative])], bounds[:-1],
                min=None, max=None,  # type: ignore[arg-type] # unknown to vLLM
            )
        )  # fmt: skip
    data = Histogram(points, AggregationTemporality.CUMULATIVE)
    return Metric(GEN_AI[family.name], family.documentation, "s", data)


def _headers(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    text = regular_file.read(file, _FILE_BYTES_MAX, if_exposed="warned").decode(errors="replace")
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not (name.strip() and colon and value.strip() and line.isascii() and line.isprintable()):
            raise WatchError(f"otlp: {file} holds a line that is not a header", "write NAME: VALUE")
        redact_always(value.strip())
        found[name.strip()] = value.strip()
    return found
