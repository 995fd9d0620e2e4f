"""Open pages: streams of server-sent events, and when they hear of a look or of an incident."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

KEPT_MAX = 200_000


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
