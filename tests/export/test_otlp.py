"""Metrics pushed to an OpenTelemetry collector: a real receiver of OTLP over HTTP, the SDK's own protocol buffers."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from tests.daemon_process import daemon
from tests.export.small_board import small_board
from tests.export.test_text import TOTALS
from vllm_watch.export import otlp
from vllm_watch.export.text import render
from vllm_watch.settings.stages import OtlpSettings

PATH = "/v1/metrics"
# What changes from one look to the next, and is the process's own.
OWN = ("process_", "python_")


class Collector:
    """Takes what is pushed; `statuses` are its answers, the last for ever."""

    def __init__(self):
        self.got, self.headers, self.statuses, self.url = [], [], [200], ""
        self._came = asyncio.Condition()

    async def take(self, request):
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        pushed = ExportMetricsServiceRequest.FromString(await request.read())
        async with self._came:
            self.got.append(pushed)
            self.headers.append(request.headers.copy())
            self._came.notify_all()
        return web.Response(status=status)

    async def until(self, count):
        async with asyncio.timeout(60), self._came:
            await self._came.wait_for(lambda: len(self.got) >= count)
        return self.got[count - 1]


@pytest.fixture
async def collector():
    it = Collector()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post(PATH, it.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    it.url = f"http://127.0.0.1:{runner.addresses[0][1]}{PATH}"
    yield it
    await runner.cleanup()


@asynccontextmanager
async def pushing(board, **settings):
    """Quicker than a configuration may ask for."""
    made = OtlpSettings.model_construct(
        **{"interval_seconds": 0.05, "headers_file": None, "ca_file": None} | settings
    )
    task = asyncio.create_task(otlp.pushing(board, made))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def metrics_of(pushed):
    return [metric for resource in pushed.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics]  # fmt: skip


def series(pushed):
    """Name and labels → value, of all that was pushed but histograms; and which are cumulative sums."""
    found, sums = {}, set()
    for metric in metrics_of(pushed):
        kind = metric.WhichOneof("data")
        if kind == "histogram":  # test_latencies_by_the_semantic_conventions
            continue
        if kind == "sum":
            assert (metric.sum.is_monotonic, metric.sum.aggregation_temporality) == (True, 2)
            sums.add(metric.name)
        for point in getattr(metric, kind).data_points:
            labels = frozenset((a.key, a.value.string_value) for a in point.attributes)
            assert (metric.name, labels) not in found
            assert point.WhichOneof("value") == "as_double"
            found[metric.name, labels] = point.as_double
    return found, sums


def board_with_totals():
    board = small_board()
    signals = board.targets["chat"].signals
    engines = {name: replace(each, totals=TOTALS) for name, each in signals.engines.items()}
    board.publish(replace(signals, engines=engines))
    return board


def exposed(board):
    text = render(board, CollectorRegistry()).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text) for sample in family.samples
    }  # fmt: skip


async def test_a_collector_gets_what_a_scrape_gets(collector):
    """Every series, none more; counters and histograms are cumulative, and it is said who pushes."""
    board = board_with_totals()
    async with pushing(board, endpoint=collector.url):
        pushed = await collector.until(1)
    found, sums = series(pushed)
    ours = {key: value for key, value in found.items() if not key[0].startswith(OWN)}
    assert ours == exposed(board)
    assert {name for name in sums if name.startswith("vllm_watch_")} == {
        name for name, _ in ours if name.endswith(("_total", "_bucket", "_sum", "_count"))
    }
    assert "vllm_watch_engine_itl_seconds_bucket" in sums
    said = {
        each.key: each.value.string_value for each in pushed.resource_metrics[0].resource.attributes
    }
    assert (said["service.name"], said["host.name"]) == ("vllm-watch", board.host.target.node)


async def test_latencies_by_the_semantic_conventions(collector):
    """OpenTelemetry's gen_ai.server.* hold the same observations as our histograms."""
    board = board_with_totals()
    async with pushing(board, endpoint=collector.url):
        pushed = await collector.until(1)
    prefix = "gen_ai.server."
    metrics = {each.name.removeprefix(prefix): each for each in metrics_of(pushed) if each.name.startswith(prefix)}  # fmt: skip
    assert metrics.keys() == {"request.duration", "time_per_output_token", "time_to_first_token"}
    first_token = metrics["time_to_first_token"]
    assert (first_token.unit, first_token.histogram.aggregation_temporality) == ("s", 2)
    exposition = exposed(board)
    for point in first_token.histogram.data_points:
        of = {each.key: each.value.string_value for each in point.attributes}
        whose = {("target", of["vllm_watch.target"]), ("engine", of["vllm_watch.engine"])}
        count, total = (
            next(v for (name, labels), v in exposition.items() if name == f"vllm_watch_engine_ttft_seconds_{end}" and whose <= labels)
            for end in ("count", "sum")
        )  # fmt: skip
        assert count == point.count == sum(point.bucket_counts) > 0
        assert total == point.sum
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert not point.HasField("min")
        assert of["gen_ai.provider.name"] == "vllm"
        assert of["gen_ai.request.model"]


async def test_headers_are_sent_and_shown_nowhere(collector, tmp_path):
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer s3cr3t-of-ours\n\nX-Scope: llm\n")
    async with pushing(small_board(), endpoint=collector.url, headers_file=file):
        await collector.until(1)
    assert collector.headers[0]["Authorization"] == "Bearer s3cr3t-of-ours"
    assert collector.headers[0]["X-Scope"] == "llm"
    assert collector.headers[0]["Content-Encoding"] == "gzip"
    for text in ("no header", "Name: ü"):
        file.write_text(text)
        with capture_logs() as logs:
            async with pushing(small_board(), endpoint=collector.url, headers_file=file) as task:
                await task
        assert [(each["event"], each["cause"]) for each in logs] == [
            ("otlp_unusable", f"otlp: {file} holds a line that is not a header")
        ]


async def test_a_collector_that_refuses_is_said_once(collector):
    """And that it takes them again; meanwhile every push is tried."""
    collector.statuses = [400, 400, 200]
    with capture_logs() as logs:
        async with pushing(small_board(), endpoint=collector.url):
            await collector.until(5)
    events = [each for each in logs if each["event"].startswith("otlp")]
    assert [each["event"] for each in events] == ["otlp_fails", "otlp_works_again"]
    assert "400" in events[0]["because"]


async def test_without_a_collector_nothing_is_loaded(monkeypatch):
    """The task ends at once; without the extra it says what to install."""
    await otlp.pushing(small_board(), OtlpSettings())
    monkeypatch.setitem(__import__("sys").modules, "vllm_watch.export.otlp_exporter", None)
    with capture_logs() as logs:
        await otlp.pushing(small_board(), OtlpSettings(endpoint="http://127.0.0.1:1/v1/metrics"))
    assert logs[0]["remedy"] == "pip install 'vllm-watch[otlp]'"


async def test_a_daemon_pushes(collector, tmp_path):
    """As it is configured, beside what it serves; and it ends with it although the collector hangs."""
    file = tmp_path / "c.yaml"
    file.write_text(
        f"targets: [{{name: chat, url: 'http://127.0.0.1:9'}}]\notlp: {{endpoint: {collector.url!r}}}\n"
    )
    async with daemon("--config", file):
        found, _ = series(await collector.until(1))
    assert "vllm_watch_targets" in {name for name, _ in found}
