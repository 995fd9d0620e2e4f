"""Rebuild observations from the vLLM metrics stored in a Prometheus.

All series of a scrape share its timestamp, so a range selector returns complete scrapes. `up`
shows the failed scrapes.
"""

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from vllm_watch.clients import http_answer
from vllm_watch.errors import ExpositionError, WatchError
from vllm_watch.samples.engine import FIELDS, JUDGED, Kind
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.sources import vllm_names
from vllm_watch.sources.reading import Reader
from vllm_watch.support import json_text

CHUNK_SECONDS = 3600.0
"""Time range of one query. At an interval of 15 s, that is 240 scrapes per target."""

CHUNK_SECONDS_MIN = 60.0
TARGETS_MAX = 2000
GONE_SECONDS = 300.0
"""Two samples belong to one alert if they are at most this many seconds apart, as in Prometheus' lookback."""

_ANSWER_BYTES_MAX = 256 << 20
_TIMEOUT_SECONDS = 120.0
_HUNG_SECONDS = 5.0
"""A failed scrape that took at least this many seconds counts as a timeout. A refused connection
fails at once, and Prometheus times out after 10 s by default."""

_PREFIX = re.compile(r"(?:ray_)?vllm[:_]")
_OWN = frozenset(("engine", "model_name", "ReplicaId", "WorkerId", "SessionName", "Version", "Component", "pid"))  # fmt: skip
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredTarget:
    """A server with stored metrics, and the labels that Prometheus gave it."""

    name: str
    labels: Labels


@dataclass(slots=True)
class Firing:
    """An alert that fired without interruption. Times are Unix seconds."""

    name: str
    labels: Labels
    begin_t: float
    end_t: float


@dataclass(slots=True)
class _Chunk:
    rows: dict[float, list[str]] = field(default_factory=lambda: defaultdict(list))
    up: dict[float, bool] = field(default_factory=dict)
    took_s: dict[float, float] = field(default_factory=dict)


class History:
    """A client of one Prometheus. Raises WatchError if a query fails."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, headers: Labels, tls: Any = True
    ) -> None:
        self._url = url.rstrip("/")
        self._session = session
        self._headers = dict(headers)
        self._tls = tls
        self._chunk_s = CHUNK_SECONDS

    async def targets(self, match: str, start_t: float, end_t: float) -> list[StoredTarget]:
        inner = match.strip().removeprefix("{").removesuffix("}").strip().rstrip(",")
        selector = f'__name__=~"(ray_)?vllm[:_]num_requests_running"{"," if inner else ""}{inner}'
        stored = await self.labels(f"{{{selector}}}", start_t, end_t)
        found = {tuple(sorted(_given(each).items())) for each in stored}
        if len(found) > TARGETS_MAX:
            raise WatchError(f"{len(found)} servers are stored there, more than {TARGETS_MAX}", "name some with --match, such as '{namespace=\"chat\"}'")  # fmt: skip
        return _named([dict(each) for each in sorted(found)])

    async def observations(
        self, target: StoredTarget, start_t: float, end_t: float
    ) -> AsyncIterator[Observation]:
        """Yield each scrape in (start, end], in order."""
        reader, last_t = Reader(judged_only=True), start_t
        selector = _selector(target.labels)
        while last_t < end_t:
            until_t = _chunk_end(last_t, end_t, self._chunk_s)
            chunk = await self._chunk(target.labels, selector, last_t, until_t)
            if chunk is None:  # too large: retry with half the range
                continue
            for t in sorted(chunk.rows.keys() | chunk.up.keys()):
                if last_t < t <= until_t:
                    yield _observation(t, target.name, chunk, reader)
            last_t = until_t

    async def firing(self, start_t: float, end_t: float) -> list[Firing]:
        open_: dict[tuple[tuple[str, str], ...], Firing] = {}
        done: list[Firing] = []
        at_t = start_t
        while at_t < end_t:
            until_t = _chunk_end(at_t, end_t, CHUNK_SECONDS * 6)
            asked = f'ALERTS{{alertstate="firing"}}{_range(at_t, until_t)}'
            for labels, values in _series(await self._ask("query", {"query": asked, "time": f"{until_t:.3f}"})):  # fmt: skip
                key = tuple(sorted(labels.items()))
                for t, _ in values:
                    if not at_t < t <= until_t:
                        continue
                    known = open_.get(key)
                    if known is not None and t - known.end_t <= GONE_SECONDS:
                        known.end_t = max(known.end_t, t)
                    else:
                        open_[key] = Firing(labels.get("alertname", ""), labels, t, t)
                        done.append(open_[key])
            at_t = until_t
        return sorted(done, key=lambda each: each.begin_t)

    async def labels(self, match: str, start_t: float, end_t: float) -> list[dict[str, str]]:
        asked = {"match[]": match, "start": f"{start_t:.3f}", "end": f"{end_t:.3f}"}
        data = await self._ask("series", asked)
        if not isinstance(data, list):
            raise self._not_prometheus()
        return data

    async def _chunk(
        self, labels: Labels, selector: str, start_t: float, end_t: float
    ) -> _Chunk | None:
        seconds, time = _range(start_t, end_t), f"{end_t:.3f}"
        asked = f'{{__name__=~"{_NAMES}",{selector}}}{seconds}'
        try:
            data = await self._ask("query", {"query": asked, "time": time})
        except _TooMuchError:
            if self._chunk_s <= CHUNK_SECONDS_MIN:
                raise
            self._chunk_s /= 2
            return None
        asked = f'{{__name__=~"up|scrape_duration_seconds",{_selector(_of_scrape(labels))}}}{seconds}'  # fmt: skip
        own = await self._ask("query", {"query": asked, "time": time})
        return _gathered(labels, data, own)

    async def _ask(self, path: str, parameters: Labels) -> Any:
        url = f"{self._url}/api/v1/{path}"
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        try:
            async with self._session.post(
                url, data=parameters, headers=self._headers, ssl=self._tls, timeout=timeout, allow_redirects=False
            ) as response:  # fmt: skip
                body, status = await http_answer.body(response, _ANSWER_BYTES_MAX), response.status
        except http_answer.TooLongError:
            raise _TooMuchError("its answer is over 256 MiB", "ask for fewer servers with --match") from None  # fmt: skip
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = http_answer.why_none(error, _TIMEOUT_SECONDS)
            raise WatchError(f"no answer from {self._url}: {why}", "give the address of a Prometheus: --prometheus http://HOST:9090") from None  # fmt: skip
        try:
            document = await asyncio.to_thread(json_text.read, body)
        except ValueError:
            raise self._not_prometheus(status) from None
        if isinstance(document, dict) and document.get("status") == "success":
            return document.get("data")
        error_text = str(document.get("error", "")) if isinstance(document, dict) else ""
        kind = _TooMuchError if re.search(r"too many|limit|exceed|timeout|timed out", error_text) else WatchError  # fmt: skip
        raise kind(f"{self._url} answers HTTP {status}: {error_text[:300]}", "check the address, and --match")  # fmt: skip

    def _not_prometheus(self, status: int = 200) -> WatchError:
        key_required = status in (401, 403)
        return WatchError(
            f"{self._url} does not answer as Prometheus does (HTTP {status})",
            "give --credentials-file or --header" if key_required else "give its address with its path, if it has one: http://HOST:9090",
        )  # fmt: skip


class _TooMuchError(WatchError):
    """The result of a query is too large."""


def _names() -> str:
    names = {"process_start_time_seconds", *vllm_names.PROCESS.values()}
    ours = {"generation_tokens_created", "prompt_tokens_created"}
    for slug in JUDGED:
        kind_of = FIELDS.get(slug)
        for name in kind_of.names if kind_of else ():
            bare = name.removeprefix("vllm:")
            if kind_of and kind_of.kind is Kind.HISTOGRAM:
                ours |= {bare, f"{bare}_sum", f"{bare}_count"}
            elif name.startswith("vllm:"):
                ours.add(bare)
    return f"{'|'.join(sorted(names))}|(ray_)?vllm[:_]({'|'.join(sorted(ours))})"


_NAMES = _names()


def _given(labels: Labels) -> dict[str, str]:
    return {
        name: value for name, value in labels.items()
        if name != "__name__" and not name.startswith("exported_")
        and (name not in _OWN or f"exported_{name}" in labels)
    }  # fmt: skip


def _of_scrape(labels: Labels) -> Labels:
    sure = {name: labels[name] for name in ("job", "instance") if name in labels}
    return sure if "instance" in sure else labels


def _named(given: list[dict[str, str]]) -> list[StoredTarget]:
    short = [each.get("pod") or each.get("instance") or each.get("job") or "vllm" for each in given]
    found = []
    for labels, name in zip(given, short, strict=True):
        if short.count(name) > 1:
            name = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))  # noqa: PLW2901
        found.append(StoredTarget(name, labels))
    return found


def _chunk_end(start_t: float, end_t: float, seconds: float) -> float:
    return end_t if end_t - start_t < seconds + 1.0 else start_t + seconds


def _range(start_t: float, end_t: float) -> str:
    return f"[{math.ceil(end_t - start_t)}s]"


def _selector(labels: Labels) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())


def _series(data: Any) -> Iterable[tuple[dict[str, str], list[list[Any]]]]:
    result = data.get("result", ()) if isinstance(data, dict) else ()
    return ((each["metric"], each.get("values", [])) for each in result)


def _gathered(given: Labels, data: Any, own: Any) -> _Chunk:
    chunk = _Chunk()
    lines = []
    for each in data.get("result", ()) if isinstance(data, dict) else ():
        labels = {
            name.removeprefix("exported_"): value for name, value in each["metric"].items()
            if name != "__name__" and name not in given
        }  # fmt: skip
        name = _PREFIX.sub("vllm:", each["metric"]["__name__"], count=1)
        within = "{" + _selector(labels) + "} " if labels else " "
        lines.append((name + within, each.get("values", ())))
        histograms = each.get("histograms", ())
        if histograms:
            lines += [(f"{name}_{part}{within}", [(t, histogram[part]) for t, histogram in histograms]) for part in ("count", "sum")]  # fmt: skip
    for head, values in sorted(lines, key=lambda line: line[0]):
        for t, value in values:
            chunk.rows[t].append(head + value)
    for labels, values in _series(own):
        for t, value in values:
            if labels["__name__"] == "up":
                chunk.up[t] = float(value) != 0
            else:
                chunk.took_s[t] = float(value)
    return chunk


def _observation(t: float, target: str, chunk: _Chunk, reader: Reader) -> Observation:
    rows = chunk.rows.get(t)
    took_s = chunk.took_s.get(t, 0.0)
    if rows is None and not chunk.up.get(t, True):
        hung = took_s >= _HUNG_SECONDS
        error = f"the scrape failed after {took_s:.1f} s; Prometheus does not store the reason"
        call = Call(outcome="read_timeout" if hung else "refused", error=error, latency_s=took_s)
        return Observation(t=t, target=target, scrape=call)
    call = Call(outcome="ok", status=200, latency_s=took_s)
    try:
        reading = reader.read("\n".join([*(rows or ()), ""]))
    except ExpositionError as error:
        call = Call(outcome="garbled", error=error.cause, latency_s=took_s)
        return Observation(t=t, target=target, scrape=call)
    return Observation(t=t, target=target, scrape=call, reading=reading)
