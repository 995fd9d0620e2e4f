"""The engine's own log as observations: its line about throughput, which it writes every ten seconds.

Counters are the rates of these lines added up. vLLM V1 writes the line no more while nothing is done, also
while requests stand still: so between lines the last one holds, for as long as anything else is logged. The
year is not in a line: the newest in which it is not in the future is taken. Times are read as UTC.
Source: vllm/v1/metrics/loggers.py (LoggingStatLogger.log), vllm/engine/metrics.py (V0).
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vllm_watch.diagnosis.lines import LINE_BYTES_MAX, clean
from vllm_watch.diagnosis.reading import LogReader
from vllm_watch.errors import RecordingError
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Call, Observation, Reading, ServerSample
from vllm_watch.sources import log_pieces
from vllm_watch.support import regular_file

STEP_SECONDS = 10.0
"""vLLM's interval of the line (VLLM_LOG_STATS_INTERVAL)."""

QUIET_SECONDS_MAX = 3600.0
"""For so long the last line is believed; a log with a longer gap was not written on."""

_FIRST_LINES = 20
_TIME = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
_LINE = re.compile(
    r"(?:Engine (?P<engine>\d+): )?Avg prompt throughput: (?P<prompt>[\d.]+) ?tokens/s, "
    r"Avg generation throughput: (?P<generation>[\d.]+) ?tokens/s, Running: (?P<running>\d+) reqs, "
    r"(?:Swapped: (?P<swapped>\d+) reqs, )?(?:Waiting|Pending): (?P<waiting>\d+) reqs"
    r"(?:.*?KV cache usage: (?P<kv>[\d.]+)%)?"
)
_STARTED = re.compile(r"vLLM API server version|Started server process|Initializing an? (?:V\d )?LLM engine")  # fmt: skip


@dataclass(slots=True)
class _Engine:
    sample: EngineSample
    t: float
    kind: str


def is_log(path: Path) -> bool:
    """Is the file a log, and no recording (of JSON lines that begin with a time)? An unreadable one is not."""
    try:
        with regular_file.opened(path) as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            source = gzip.GzipFile(fileobj=file) if packed else file
            lines = (source.readline(LINE_BYTES_MAX).strip() for _ in range(_FIRST_LINES))
            first = next(filter(None, lines), b"{")
    except (OSError, EOFError, zlib.error):
        return False
    return not first.startswith(b"{") or first.startswith(b'{"log":')


def observations(path: Path, now: datetime | None = None) -> Iterator[Observation]:
    """Read the log. Raises WatchError where it cannot be read, RecordingError where it has no such line."""
    history, found = _History(path.name, now or datetime.now(UTC)), False
    for raw in _lines(path):
        for each in history.line(clean(raw)):
            found = True
            yield each
    if not found:
        remedy = "vllm-watch diagnose reads other logs; with --disable-log-stats vLLM writes none"
        raise RecordingError(f"{path} has no line of vLLM's about its throughput", remedy)


class _History:
    def __init__(self, name: str, now: datetime) -> None:
        self._name, self._now = name, now
        self._engines: dict[str, _Engine] = {}
        self._last_t = 0.0  # of the last observation
        self._started_t: float | None = None

    def line(self, text: str) -> Iterator[Observation]:
        t = self._time(text)
        if t is None:
            return
        if _STARTED.search(text):
            self._engines.clear()
            self._started_t = t
        said = _LINE.search(text)
        yield from self._meanwhile(t)
        if said is not None:
            self._learn(t, said)
            yield self._look(t)

    def _meanwhile(self, t: float) -> Iterator[Observation]:
        """Looks at the same numbers: no line came, so nothing was done."""
        if not self._engines or t - self._last_t > QUIET_SECONDS_MAX:
            return
        while t - self._last_t >= 2 * STEP_SECONDS:
            yield self._look(self._last_t + STEP_SECONDS)

    def _look(self, t: float) -> Observation:
        self._last_t = t
        engines = tuple(self._engines[key].sample for key in sorted(self._engines))
        reading = Reading(
            vllm=True, engine_kind=next(iter(self._engines.values())).kind, engines=engines,
            server=ServerSample(process_start_time=self._started_t),
        )  # fmt: skip
        return Observation(t=t, target=self._name, scrape=Call(outcome="ok"), reading=reading)

    def _learn(self, t: float, said: re.Match[str]) -> None:
        key = str(int(said["engine"] or 0))
        known = self._engines.get(key)
        # The rates are of the ten seconds before the line; longer ago there was no line, so no work.
        seconds = STEP_SECONDS if known is None else min(max(t - known.t, 0.0), STEP_SECONDS * 1.5)
        before = known.sample if known else EngineSample(engine=key, prompt_tokens=0.0, generation_tokens=0.0)  # fmt: skip
        kv = said["kv"]
        sample = EngineSample(
            engine=key,
            requests_running=float(said["running"]),
            requests_waiting=float(said["waiting"]),
            requests_swapped=None if said["swapped"] is None else float(said["swapped"]),
            kv_cache_usage=None if kv is None else float(kv) / 100,
            prompt_tokens=(before.prompt_tokens or 0.0) + float(said["prompt"]) * seconds,
            generation_tokens=(before.generation_tokens or 0.0) + float(said["generation"]) * seconds,
            process_start_time=self._started_t,
        )  # fmt: skip
        self._engines[key] = _Engine(sample, t, "V1" if said["engine"] else "V0")

    def _time(self, text: str) -> float | None:
        found = _TIME.search(text)
        if found is None:
            return None
        month, day, hour, minute, second = map(int, found.groups())
        for year in (self._now.year, self._now.year - 1):
            try:
                moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
            except ValueError:  # the 29th of February
                continue
            if (moment - self._now).total_seconds() < 86400:  # noqa: PLR2004 - its zone may be another
                return moment.timestamp()
        return None


def _lines(path: Path) -> Iterator[bytes]:
    """Yield those that are not empty.

    Raises WatchError if the file cannot be read, is not text, or unpacks to far too much.
    """
    rest, kind = b"", LogReader()
    for number, piece in enumerate(log_pieces.pieces(str(path))):
        if (
            number == 0
        ):  # what this is shows at its beginning: a disk's image is not read to its end
            kind.feed(piece)
            kind.end()
            if kind.refused or b"\0" in piece:
                why = (
                    kind.diagnosis().explanation
                    if kind.refused
                    else "give the text that vLLM wrote"
                )
                raise RecordingError(f"{path} is not a log", why)
        *lines, rest = (rest + piece).split(b"\n")
        yield from filter(None, lines)
        if len(rest) > LINE_BYTES_MAX:
            yield rest
            rest = b""
    yield rest
