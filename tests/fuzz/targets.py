"""What is fuzzed: each takes any bytes, and raises for nothing but a fault of ours.

The documented errors are no fault. Whatever is read is used as the program uses it: a recording is judged,
a body that is read twice reads the same.
"""

import asyncio
import select
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.diagnosis.whole_log import diagnose
from tests.fuzz import readers
from tests.restart.station import station
from vllm_watch.config import load
from vllm_watch.diagnosis.reading import LogReader
from vllm_watch.errors import ConfigError, ExpositionError, RecordingError
from vllm_watch.samples.engine import COUNTED, JUDGED
from vllm_watch.samples.observation import Reading
from vllm_watch.samples.record import changed
from vllm_watch.sources import recording
from vllm_watch.sources.http_messages import ResponseReader
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.watch import Watch

Target = Callable[[bytes], None]

ANSWER_SECONDS_MAX = 30.0
OBSERVATIONS_MAX = 200
"""Of one recording; what one more does has been seen by then."""

CAPTURE = Path(__file__).parents[1] / "sources/captures/0.32.0-v1-cpu-idle.txt"


class FaultError(AssertionError):
    """Something that must not be."""


@contextmanager
def exposition() -> Iterator[Target]:
    """A body of /metrics: read, or refused by line; the same whether its layout is known or not."""
    readers = {False: Reader(), True: Reader()}  # a server answers in one format
    judging = {False: Reader(judged_only=True), True: Reader(judged_only=True)}

    def take(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for openmetrics, known in readers.items():
            once = _read(known, text, openmetrics=openmetrics)
            again = _read(known, text, openmetrics=openmetrics)
            fresh = _read(Reader(), text, openmetrics=openmetrics)
            if not repr(once) == repr(again) == repr(fresh):
                raise FaultError(f"read otherwise once its layout is known: {text[:2000]!r}")
            judged = _read(judging[openmetrics], text, openmetrics=openmetrics)
            if isinstance(fresh, Reading) and _judged(judged) != _judged(fresh):
                raise FaultError(f"judged on other numbers than it says: {text[:2000]!r}")

    yield take


def _judged(read: Reading | str) -> str:
    """All that judgement sees of a reading, or why there is none."""
    if isinstance(read, str):
        return read
    engines = [[_without_buckets(name, getattr(each, name)) for name in sorted(JUDGED)] for each in read.engines]  # fmt: skip
    return repr((engines, read.server, read.vllm, read.why_not, read.engine_kind))


def _without_buckets(name: str, value: Any) -> str:
    return repr(changed(value, cumulative=()) if name in COUNTED and value is not None else value)


def _read(reader: Reader, text: str, *, openmetrics: bool) -> Reading | str:
    try:
        return reader.read(text, openmetrics=openmetrics)
    except ExpositionError as error:
        return f"{error.cause}; {error.remedy}"


@contextmanager
def log() -> Iterator[Target]:
    """A log of vLLM: there is always an answer, the same however the text comes in."""

    def take(data: bytes) -> None:
        whole = diagnose(data)
        if not whole.explanation:
            raise FaultError("no explanation")
        at_once, reader, middle = LogReader(), LogReader(), len(data) // 2
        at_once.feed(data)
        reader.feed(data[:middle])
        reader.feed(data[middle:])
        reader.end()
        # Whether it is a text at all is decided by the first piece.
        if at_once.refused == reader.refused and repr(reader.diagnosis()) != repr(whole):
            raise FaultError("another answer when it comes in two pieces")

    yield take


@contextmanager
def trace() -> Iterator[Target]:
    """A recording: what can be read of it is judged, and no detector breaks over it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"

        def take(data: bytes) -> None:
            path.write_bytes(data)
            reader, watch = Reader(), Watch("fuzzed")
            try:
                for number, raw in enumerate(recording.read(path)):
                    if number == OBSERVATIONS_MAX:
                        break
                    watch.observe(recording.to_observation(raw, reader))
            except RecordingError:
                pass
            if watch.failures:
                raise FaultError(f"detectors broke: {watch.failures}")

        yield take


@contextmanager
def config() -> Iterator[Target]:
    """A configuration file: used, or refused with cause and remedy."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"

        def take(data: bytes) -> None:
            path.write_bytes(data)
            try:
                load(path, environ={})
            except ConfigError as error:
                if not error.cause or not error.remedy:
                    raise FaultError(f"no cause or no remedy: {error!r}") from error

        yield take


@contextmanager
def http() -> Iterator[Target]:
    """Bytes sent to the port of the API: answered or closed in time, never with a 500; it goes on serving."""
    with tempfile.TemporaryDirectory() as folder, _api(Path(folder)) as port:

        def take(data: bytes) -> None:
            answer = _exchange(port, data)
            if answer and not answer.startswith(b"HTTP/"):
                raise FaultError(f"no HTTP: {answer[:200]!r}")
            if answer[8:12] in (b" 500", b" 502"):
                raise FaultError(f"broke: {answer[:500]!r}")
            healthy = _exchange(
                port,
                b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                ANSWER_SECONDS_MAX,
            )
            if b" 200 " not in healthy[:20]:
                raise FaultError(f"serves no more: {healthy[:200]!r}")

        yield take


@contextmanager
def _api(folder: Path) -> Iterator[int]:
    """The daemon's whole API with restarts wired, in mode observe, in a thread of its own."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    ending = asyncio.Event()
    found: list[int] = []

    async def serve() -> None:
        async with station(folder, mode="observe", targets=("a", "b")) as one:
            one.incident()
            found.append(one.server.port)
            started.set()
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    if not started.wait(ANSWER_SECONDS_MAX):
        raise FaultError("the API did not start")
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(ANSWER_SECONDS_MAX)
        loop.close()


HALF_CLOSE_SECONDS = 0.3
"""What is no whole request is not answered: then it is said that no more comes, which ends it."""


def _exchange(port: int, data: bytes, wait_s: float = HALF_CLOSE_SECONDS) -> bytes:
    """Send all and take what is answered; a stream of events is left at its head."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX) as connection:
        try:
            connection.sendall(data)
            if not select.select([connection], [], [], wait_s)[0]:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                answer += piece
                if b"text/event-stream" in answer:
                    break
                if not select.select([connection], [], [], wait_s)[0]:
                    connection.shutdown(socket.SHUT_WR)
        except (ConnectionError, BrokenPipeError):
            return answer
        except TimeoutError:
            raise FaultError(f"no end within {ANSWER_SECONDS_MAX:.0f} s: {data[:500]!r}") from None
    return answer


BODY_BYTES_MAX = 1 << 20
BYTES_ONE_BY_ONE = 2000


@contextmanager
def answer() -> Iterator[Target]:
    """What an engine answers over HTTP: read or refused, the same in whatever pieces it comes."""

    def take(data: bytes) -> None:
        middle, first = len(data) // 2, data[:BYTES_ONE_BY_ONE]
        at_once = _answered([data])
        halves = _answered([data[:middle], data[middle:]])
        bit_by_bit = _answered([*(bytes([each]) for each in first), data[BYTES_ONE_BY_ONE:]])
        if not at_once == halves == bit_by_bit:
            raise FaultError(f"{at_once!r:.300}, {halves!r:.300}, {bit_by_bit!r:.300}")

    yield take


def _answered(pieces: Iterable[bytes]) -> tuple[object, ...] | None:
    """What was read, the body unpacked; None where it was refused."""
    reader = ResponseReader()
    reader.expect(BODY_BYTES_MAX, BODY_BYTES_MAX)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    said = reader.body()
    if len(said) > BODY_BYTES_MAX:
        raise FaultError(f"a body of {len(said)} bytes was kept")
    if reader.error is not None:
        return None
    return (
        reader.status,
        reader.headers,
        said,
        reader.complete,
        reader.keep_alive,
        reader.trailing_data,
    )


TARGETS = {
    "answer": answer,
    "exposition": exposition,
    "log": log,
    "trace": trace,
    "config": config,
    "http": http,
    "files": readers.files,
    "daemon": readers.daemon,
    "cluster": readers.cluster,
    "engine_api": readers.engine_api,
    "services": readers.services,
    "engine": readers.engine,
    "state": readers.state,
    "checkpoint": readers.checkpoint,
}
