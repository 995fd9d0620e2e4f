"""1 target at 1 s; 100, 200 and 1,000 at 5 s, served from the other core: memory, CPU, lateness, /metrics, pages, detection."""

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from benchmarks.performance import processes
from benchmarks.performance.row import Row

INTERVAL_SECONDS = 5.0
WARM_SECONDS, SECONDS = 9.0, 11.0
SIDECAR_INTERVAL_SECONDS = 1.0
SMALL, MIDDLE, HOST, LARGE = 1, 100, 200, 1000
VIEWERS = 20
RENDERS, ANSWERS = 7, 12
TIMEOUT_SECONDS = 5.0  # of a scrape
DETECTED_SECONDS_MAX = 60.0
KEPT_MAX = 200_000


@dataclass
class Seen:
    """What one size of fleet cost."""

    rss_mb: float
    share: float  # of a core
    late_p99_ms: float
    late_max_ms: float
    render_ms: float  # CPU of one answer of /metrics
    body_mb: float
    looks: int


def rows() -> list[Row]:
    """All of this subject."""
    more: list[Row] = []
    with processes.engines() as url:
        small = _measured(url, SMALL, interval_seconds=SIDECAR_INTERVAL_SECONDS)
        middle, host = (_measured(url, count) for count in (MIDDLE, HOST))
        large = _measured(url, LARGE, lambda watcher: more.extend(_watched(watcher, url)))
    first, second = (large.rss_mb - middle.rss_mb) / (LARGE - MIDDLE), (middle.rss_mb - small.rss_mb) / (MIDDLE - SMALL)  # fmt: skip
    each = [1000 * one.share * INTERVAL_SECONDS / count for one, count in ((middle, MIDDLE), (large, LARGE))]  # fmt: skip
    size = f"{large.body_mb:.1f} MB"
    return [
        Row("memory, 1 target", small.rss_mb, "MB", 75.0, "with recording on"),
        Row("CPU, 1 target at 1 s", small.share, "of a core", 0.01, f"{small.looks} scrapes"),
        Row("longest delay of a scrape, 200 targets at 5 s", host.late_max_ms, "ms", 1000.0, f"{host.share:.3g} of a core"),
        Row("memory, 100 targets", middle.rss_mb, "MB"),
        Row("memory, 1,000 targets", large.rss_mb, "MB", 400.0),
        Row("CPU, 1,000 targets at 5 s", large.share, "of a core", 1.0, f"{large.looks} scrapes"),
        Row("delay of scrapes, p99, 1,000 targets", large.late_p99_ms, "ms", 500.0),
        Row("/metrics of 1,000 targets, CPU to render and send", large.render_ms, "ms", None, size),
        Row("memory per added target, from 100 to 1,000 ÷ from 1 to 100", first / second, "", 1.5, "1 is linear"),
        Row("CPU per scrape, 1,000 targets ÷ 100", each[1] / each[0], "", 1.5, "1 is linear"),
        *more,
    ]  # fmt: skip


def _measured(
    url: str,
    targets: int,
    further: Callable[[processes.Watcher], None] | None = None,
    interval_seconds: float = INTERVAL_SECONDS,
) -> Seen:
    with processes.watcher(url, targets, interval_seconds) as watcher:
        time.sleep(WARM_SECONDS)
        watcher.begin_anew()
        time.sleep(0.5)
        share = processes.spent(watcher.pid, SECONDS) / SECONDS
        rss, late = processes.rss_bytes(watcher.pid), watcher.lateness()
        size, render = _render(watcher, share)
        if further is not None:
            further(watcher)
    p99_ms, max_ms = 1000 * late[int(len(late) * 0.99)], 1000 * late[-1]
    return Seen(rss / 1e6, share, p99_ms, max_ms, 1000 * render, size / 1e6, len(late))


def _render(watcher: processes.Watcher, share: float) -> tuple[int, float]:
    """(bytes, CPU seconds) of an answer: of the whole process, less what it spends without being asked."""
    size, began, wall = 0, processes.cpu_seconds(watcher.pid), time.monotonic()
    for _ in range(RENDERS):
        size = len(fetched(f"{watcher.url}/metrics"))
    idle = share * (time.monotonic() - wall)
    return size, max(0.0, processes.cpu_seconds(watcher.pid) - began - idle) / RENDERS


def _watched(watcher: processes.Watcher, engines_url: str) -> list[Row]:
    """While 20 pages are open: what a page waits, and when it hears that an engine hangs."""
    with viewers(watcher.url, VIEWERS) as seen:
        time.sleep(INTERVAL_SECONDS)
        pages = sorted(_timed(f"{watcher.url}/api/v1/status") for _ in range(RENDERS))
        told: list[float] = []
        waiting = threading.Thread(
            target=lambda: told.append(incident_opened(watcher.url, "t0", DETECTED_SECONDS_MAX))
        )
        waiting.start()
        time.sleep(0.5)
        fetched(f"{engines_url}/t0/silence")
        began = time.monotonic()
        waiting.join()
    late = sorted(seen)
    calm = _p99_ms(watcher)
    fetched(f"{engines_url}/all/silence")
    time.sleep(INTERVAL_SECONDS + TIMEOUT_SECONDS)
    silent = _p99_ms(watcher)
    return [
        Row("/api/v1/status of 1,000 targets with 20 pages open, median", 1000 * pages[len(pages) // 2], "ms", None, "wall clock"),
        Row("from a scrape to an open page, p99, 20 pages", late[int(len(late) * 0.99)] if late else float("inf"), "s", 2.5,
            f"{len(late)} events; a page updates once a second"),
        Row("from an engine's silence to its incident on the page", told[0] - began, "s", DETECTED_SECONDS_MAX,
            "1,000 targets"),
        Row("/metrics of 1,000 targets, slowest of 12", calm, "ms", 1000.0, "wall clock, while scraping"),
        Row("the same, while every target times out", silent, "ms", 1000.0, "wall clock"),
    ]  # fmt: skip


def _p99_ms(watcher: processes.Watcher) -> float:
    """Of so few answers the slowest."""
    return 1000 * max(_timed(f"{watcher.url}/metrics") for _ in range(ANSWERS))


def fetched(url: str) -> bytes:
    """The body."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


def _timed(url: str) -> float:
    began = time.monotonic()
    fetched(url)
    return time.monotonic() - began


@contextmanager
def viewers(url: str, count: int) -> Iterator[list[float]]:
    """`count` pages; the list grows by how old each look was when one of them heard of it (seconds)."""
    heard: list[float] = []
    ended = threading.Event()
    streams = [_stream(url) for _ in range(count)]
    threads = [
        threading.Thread(target=_read, args=(stream, heard if number == 0 else None, ended), daemon=True)
        for number, stream in enumerate(streams)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    try:
        yield heard
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)


def incident_opened(url: str, target: str, seconds: float) -> float:
    """When (monotonic) a page is told of an incident of this target; infinite where it is not in time."""
    end_s = time.monotonic() + seconds
    for kind, data in _events(_stream(url)):
        if kind == b"incident" and json.loads(data)["target"] == target:
            return time.monotonic()
        if time.monotonic() > end_s:
            break
    return float("inf")


def _stream(url: str):
    return urllib.request.urlopen(f"{url}/api/v1/events", timeout=30)


def _read(stream, heard: list[float] | None, ended: threading.Event) -> None:
    """Read on; only one of them is understood, since this process shares a core with the engines."""
    with suppress(OSError, ValueError):
        if heard is None:
            while not ended.is_set() and stream.read1(1 << 16):
                pass
            return
        for kind, data in _events(stream):
            signals = json.loads(data)["signals"] if kind == b"target" else None
            if signals is not None and len(heard) < KEPT_MAX:
                heard.append(time.time() - signals["t"])
            if ended.is_set():
                return


def _events(stream) -> Iterator[tuple[bytes, bytes]]:
    kind = b""
    for line in stream:
        if line.startswith(b"event: "):
            kind = line[7:].strip()
        elif line.startswith(b"data: "):
            yield kind, line[6:]
