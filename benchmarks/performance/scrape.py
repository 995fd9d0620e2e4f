"""CPU per scrape of the real capture: the watcher's whole path, beside Prometheus, a parser, and a bare GET."""

import asyncio
import time

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.engines import bodies
from benchmarks.performance import processes
from benchmarks.performance.row import Row
from vllm_watch.sources import http

TARGETS, INTERVAL_SECONDS = 50, 1.0
WARM_SECONDS, SECONDS = 8.0, 12.0
SCRAPES = TARGETS / INTERVAL_SECONDS * SECONDS
# So many windows of that: the quietest counts, as of the rows beside it; what else runs only adds.
WINDOWS = 3
GETS, PARSES, REPEATS = 300, 16, 5
LIMIT_MS = 1.0


def rows() -> list[Row]:
    """All of this subject."""
    with processes.engines() as url:
        with processes.watcher(url, TARGETS, INTERVAL_SECONDS) as watcher:
            windows = _ms_each(watcher.pid)
        with processes.prometheus(url, TARGETS, INTERVAL_SECONDS) as pid:
            theirs = min(_ms_each(pid))
        bare = min(asyncio.run(_bare_ms(f"{url}/bare/metrics")) for _ in range(REPEATS))
        get = min(asyncio.run(_get_ms(f"{url}/bare/metrics")) for _ in range(REPEATS))
    parsed = min(_parse_ms() for _ in range(REPEATS))
    ours = min(windows)
    each = ", ".join(f"{window:.2f}" for window in windows)
    rate = f"{TARGETS} targets at {INTERVAL_SECONDS:g} s"
    return [
        Row(f"CPU per scrape, whole path ({rate})", ours, "ms", LIMIT_MS, f"HTTP, parser, judgement, recorder, export; best of {each}"),
        Row("CPU per scrape ÷ Prometheus' in the same run", ours / theirs, "", 1.0, f"Prometheus {theirs:.2f} ms"),
        Row("CPU per scrape ÷ prometheus_client's parser alone", ours / parsed, "", None, f"parser {parsed:.2f} ms"),
        Row("CPU per scrape ÷ a bare GET by aiohttp", ours / bare, "", None, f"GET {bare:.2f} ms"),
        Row("a GET by our HTTP client ÷ aiohttp's", get / bare, "", 1.0, f"ours {get:.2f} ms"),
    ]  # fmt: skip


def _ms_each(pid: int) -> list[float]:
    time.sleep(WARM_SECONDS)
    return [1000 * processes.spent(pid, SECONDS) / SCRAPES for _ in range(WINDOWS)]


async def _bare_ms(url: str) -> float:
    async with aiohttp.ClientSession() as session:
        began = time.process_time()
        for _ in range(GETS):
            async with session.get(url) as response:
                await response.read()
        return 1000 * (time.process_time() - began) / GETS


async def _get_ms(url: str) -> float:
    limits = http.Limits(5.0, 10.0, 1 << 24)
    async with http.Session() as session:
        began = time.process_time()
        for _ in range(GETS):
            answer = await http.get(session, url, limits, {})
            assert answer.call.outcome == "ok", answer.call.error
        return 1000 * (time.process_time() - began) / GETS


def _parse_ms() -> float:
    texts = bodies(PARSES)
    began = time.process_time()
    for text in texts:
        list(text_string_to_metric_families(text))
    return 1000 * (time.process_time() - began) / PARSES
