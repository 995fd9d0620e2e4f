"""What fuzzing begins with: the corpus, and what the repository has of each kind anyway."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.diagnosis.examples import EXAMPLES
from tests.restart.station import TOKEN

TESTS = Path(__file__).parents[1]
CORPUS = Path(__file__).parent / "corpus"
LINES_MAX = 6
"""Of a recording: a few looks show what a line is."""


def corpus(target: str) -> list[Path]:
    """What was kept: what once broke, and what is worth beginning with."""
    return sorted((CORPUS / target).iterdir())


def seeds(target: str) -> list[bytes]:
    """All that there is to begin with, the corpus first."""
    more = _OF.get(target)
    return [*(path.read_bytes() for path in corpus(target)), *(more() if more else ())]


def _bodies() -> Iterator[bytes]:
    for path in sorted((TESTS / "sources/captures").glob("*.txt"))[::4]:
        yield path.read_bytes()[:12_000]


def _logs() -> Iterator[bytes]:
    for lines in EXAMPLES.values():
        yield "\n".join(lines).encode()


def _traces() -> Iterator[bytes]:
    for path in sorted((TESTS / "alerts/recordings").glob("*.jsonl.gz")):
        with gzip.open(path) as file:
            lines = [line for _, line in zip(range(LINES_MAX), file, strict=False)]
        yield b"".join(lines)
        yield gzip.compress(b"".join(lines[:2]), mtime=0)


def _configs() -> Iterator[bytes]:
    for path in sorted((TESTS / "config").glob("*.yaml")):
        yield path.read_bytes()
    yield from (
        path.read_bytes() for path in sorted((TESTS.parent / "deploy").rglob("vllm-watch*.yaml"))
    )


def _requests() -> Iterator[bytes]:
    for path in (
        "/", "/metrics", "/api/v1/status", "/api/v1/incidents?state=open", "/api/v1/incidents/engine_stalled-a",
        "/api/v1/history?target=a", "/api/v1/recording?target=a&minutes=1", "/gate/liveness?target=a", "/-/ready",
        "/openapi.json", "/api/v1/events",
    ):  # fmt: skip
        yield f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode()
    for path, body in (
        ("/api/v1/targets/a/restart", '{"reason": "x"}'), ("/api/v1/pause", '{"reason": "x", "minutes": 1}'),
        ("/api/v1/resume", "{}"), ("/api/v1/incidents/engine_stalled-a/silence", '{"reason": "x", "minutes": 1}'),
        ("/api/v1/incidents/engine_stalled-a/approve", "{}"), ("/-/reload", ""),
        ("/api/v1/alertmanager", '{"version": "4", "alerts": [{"status": "firing", "labels": {"target": "a"}, "fingerprint": "f"}]}'),
    ):  # fmt: skip
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json"
        yield f"{head}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def _answers() -> Iterator[bytes]:
    ok, body = b"HTTP/1.1 200 OK\r\n", b"metric 1\n" * 20
    packed = gzip.compress(body, mtime=0)
    yield ok + b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    yield (
        ok + b"Transfer-Encoding: chunked\r\n\r\n7;a=b\r\nmetric \r\n2\r\n1\n\r\n0\r\nA: b\r\n\r\n"
    )
    yield ok + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    yield ok + b"Content-Encoding: deflate\r\nConnection: close\r\n\r\n" + zlib.compress(body)
    yield b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 503 Busy\r\nConnection: keep-alive\r\n\r\n{}"


_OF = {
    "answer": _answers,
    "exposition": _bodies,
    "log": _logs,
    "trace": _traces,
    "config": _configs,
    "http": _requests,
}
