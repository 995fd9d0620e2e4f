"""Poll one vLLM server over HTTP, only by GETs with limits.

vLLM's endpoints that change the engine need POST.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from vllm_watch.errors import ExpositionError
from vllm_watch.samples.observation import Call, Observation, Reading
from vllm_watch.samples.record import completed
from vllm_watch.samples.target import Target
from vllm_watch.sources import http, own_trouble, what_answered
from vllm_watch.sources.exposition import SERIES_MAX, Lines, TooManyLinesError
from vllm_watch.sources.host_servers import Neighbours
from vllm_watch.sources.http import Session
from vllm_watch.sources.reading import Reader
from vllm_watch.sources.sockets import is_loopback
from vllm_watch.support import allocator, json_text, threads
from vllm_watch.support.redaction import redacted
from vllm_watch.support.visible import printable

IDENTIFY_SECONDS = 600.0
"""Version and models are read again after this many seconds, because LoRA adapters may change without a restart."""

SWITCH_SECONDS = 60.0
"""After calls failed for this many seconds, sleep and pause are unknown: the core behind them may hang. A timeout alone may be load."""

LOOP_BYTES_MAX, LOOP_LINES_MAX = 128 << 10, 4000
"""Bodies of at most this many bytes and lines are parsed in the event loop. Parsing many new series may take half a second."""

_JSON_BYTES_MAX = 1 << 20
_NO_SUCH_PATH = (404, 405, 501)
_PAGE_BYTES = 64 << 10  # enough to recognize an HTML page
_MODELS_MAX = 100
_TOKENS_MAX = 1e12
_FAULTS_MAX, _FAULT_CHARACTERS_MAX = 16, 80


class ScrapeLimits(Protocol):
    """The `scrape` settings that a source reads."""

    @property
    def connect_timeout_seconds(self) -> float: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def health_interval_seconds(self) -> float: ...
    @property
    def body_bytes_max(self) -> int: ...
    @property
    def api_key_file(self) -> Path | None: ...
    @property
    def tls_config(self) -> Any: ...


class Look(NamedTuple):
    """One poll, with its raw body and its HTTP calls by name."""

    observation: Observation
    body: str | None
    calls: tuple[tuple[str, Call], ...]
    lines: Lines | None = None


class VllmSource:
    """Polls one server; polls must not overlap."""

    def __init__(
        self, target: Target, settings: ScrapeLimits, session: Session, neighbours: Neighbours | None = None
    ) -> None:  # fmt: skip
        self.target = target
        self._settings = settings
        self._session = session
        self._reader = Reader(judged_only=True)
        self._limits = http.Limits(
            settings.connect_timeout_seconds, settings.timeout_seconds, settings.body_bytes_max, settings.tls_config
        )  # fmt: skip
        self._small = replace(self._limits, body_bytes_max=_JSON_BYTES_MAX)
        self._metrics_url = f"{target.url}/metrics"
        # Compression pays off only between machines.
        self.local = is_loopback(urlsplit(target.url).hostname or "")
        packed = "identity" if self.local else "gzip"
        self._headers = {"Accept": what_answered.ACCEPT_TEXT, "Accept-Encoding": packed}
        self._neighbours = neighbours
        self._answered = False
        self._arrived = (0.0, 0.0)
        self._next_health_s = float("-inf")
        self._next_identify_s = float("-inf")
        self._incarnation: tuple[float | None, ...] | None = None
        self._known: dict[str, Any] = {}
        self._work: list[tuple[float | None, float | None]] = []
        self._switches: set[str] = set()
        self._switch_failed_s: dict[str, float] = {}

    async def observe(self) -> Look:
        """Return an observation. Its time is when the metrics arrived, or when the call failed."""
        now_s = time.monotonic()
        health_due = now_s >= self._next_health_s
        calls: list[tuple[str, Call]] = []
        if health_due:
            self._next_health_s = now_s + self._settings.health_interval_seconds * 0.9
            metrics, health = await asyncio.gather(self._metrics(), self._health())
            calls.append(("health", health))
        else:
            metrics, health = await self._metrics(), None
        t, monotonic_s = self._arrived
        scrape, reading, body = await self._parsed(metrics)
        calls.insert(0, ("metrics", scrape))
        if reading is None:
            self._next_identify_s = float("-inf")
        else:
            # An engine without progress may sleep or be paused, so check at once.
            work = [(each.requests_running, each.generation_tokens) for each in reading.engines]
            still = work == self._work and any(running for running, _ in work)
            self._work = work
            calls += await self._identify(reading, monotonic_s, switches_due=health_due or still)
            completed(reading.server, **self._known)
            if reading.vllm and self.local and self._neighbours is not None:
                self._neighbours.answered(self.target.url)
        observation = Observation(
            t=t, monotonic_s=monotonic_s, target=self.target.name,
            scrape=scrape, health=health, reading=reading,
        )  # fmt: skip
        # Keeping the lines takes 40 kB per target.
        lines, self._reader.lines = self._reader.lines, None
        return Look(observation, body, tuple(calls), lines if body is not None else None)

    async def _metrics(self) -> http.Answer:
        answer = await what_answered.ask(
            self._session, self._metrics_url, self._limits, self._headers, self._settings.api_key_file,
            known=self._answered,
        )  # fmt: skip
        if answer.call.outcome == "refused" and self.local and self._neighbours is not None:
            answer.call = await self._neighbours.explain(answer.call, self.target.url)
        # Date the counters by the response's arrival, because a busy server answers late.
        arrived_s = answer.arrived_monotonic_s
        self._arrived = time.time() - (time.monotonic() - arrived_s), arrived_s
        if answer.call.outcome == "ok":
            self._answered = True
            self._metrics_url = answer.url  # follow an old vLLM's redirect only once
        else:  # another vLLM may answer next
            self._metrics_url = f"{self.target.url}/metrics"
        return answer

    async def _parsed(self, answer: http.Answer) -> tuple[Call, Reading | None, str | None]:
        if len(answer.body) <= LOOP_BYTES_MAX:
            with suppress(TooManyLinesError):
                return self._read(answer, LOOP_LINES_MAX)
        try:
            return await threads.compute(lambda: self._read_long(answer))
        except MemoryError as error:
            return _no_memory(answer.call, error), None, None

    def _read_long(self, answer: http.Answer) -> tuple[Call, Reading | None, str | None]:
        try:
            return self._read(answer)
        finally:
            allocator.trim_heap()

    def _read(
        self, answer: http.Answer, lines_max: int = SERIES_MAX
    ) -> tuple[Call, Reading | None, str | None]:
        call = answer.call
        if call.outcome != "ok":
            return call, None, None
        try:
            body = answer.body.decode()
            if len(body) > LOOP_BYTES_MAX:  # avoids a second copy during parsing
                answer.body = answer.body[:_PAGE_BYTES]
            openmetrics = "openmetrics-text" in answer.content_type
            if not body or body.endswith("\n"):
                reading = self._reader.read(body, openmetrics=openmetrics, lines_max=lines_max)
                return call, reading, body
            cause = "the body ends in the middle of a line"
        except MemoryError as error:
            return _no_memory(call, error), None, None
        except UnicodeDecodeError as error:
            cause = f"byte {error.start} of the body is not UTF-8"
        except ExpositionError as error:
            if lines_max < SERIES_MAX and isinstance(error, TooManyLinesError):
                raise
            cause = error.cause
        cause = what_answered.page(answer.content_type, answer.body) or cause
        return replace(call, outcome="garbled", error=redacted(cause)), None, None

    async def _health(self) -> Call:
        return (await http.get(self._session, f"{self.target.url}/health", self._small, {})).call

    async def _identify(
        self, reading: Reading, monotonic_s: float, *, switches_due: bool
    ) -> list[tuple[str, Call]]:
        incarnation = (
            reading.server.process_start_time,
            *(e.created_time for e in reading.engines),
        )
        if incarnation == self._incarnation and monotonic_s < self._next_identify_s:
            return await self._ask_switches() if switches_due and self._switches else []
        self._incarnation = incarnation
        self._next_identify_s = monotonic_s + IDENTIFY_SECONDS
        self._switches = set(_SWITCHES)
        self._known = {}
        asked = await asyncio.gather(
            self._ask_json(
                "/version", lambda document: {"version": _text(document["version"], 64)}
            ),
            self._ask_models(),
            self._ask_switches(),
        )
        version, models, switches = asked
        return [("version", version), ("models", models), *switches]

    async def _ask_models(self) -> Call:
        try:
            headers = await what_answered.authorization(self._settings.api_key_file)
        except OSError as error:
            return Call(outcome="http", error=f"the API key file cannot be read: {error.strerror}")
        return await self._ask_json("/v1/models", _models, headers)

    async def _ask_switches(self) -> list[tuple[str, Call]]:
        asked = [name for name in _SWITCHES if name in self._switches]
        calls = await asyncio.gather(*(self._ask_json(*_SWITCHES[name]) for name in asked))
        now_s = time.monotonic()
        for name, call in zip(asked, calls, strict=True):
            if call.outcome == "ok":
                self._switch_failed_s.pop(name, None)
            elif call.status in _NO_SUCH_PATH:
                self._switches.discard(name)
                self._known.pop(name, None)
            elif (
                name == "recovering"
                or now_s - self._switch_failed_s.setdefault(name, now_s) > SWITCH_SECONDS
            ):
                self._known.pop(name, None)
        return [("sleep", call) for call in calls if call.outcome != "http"]

    async def _ask_json(
        self,
        path: str,
        parse: Callable[[Any], Mapping[str, Any]],
        headers: dict[str, str] | None = None,
    ) -> Call:
        answer = await http.get(self._session, self.target.url + path, self._small, headers or {})
        if answer.call.outcome != "ok":
            return answer.call
        try:
            self._known.update(parse(json_text.read(answer.body)))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return replace(answer.call, outcome="garbled", error=f"{path} is not the JSON of vLLM")
        return answer.call


def _models(document: Any) -> Mapping[str, Any]:
    cards = document["data"][:_MODELS_MAX]
    lengths = [card["max_model_len"] for card in cards if card.get("max_model_len") is not None]
    return {
        "models": tuple(_text(card["id"], 256) for card in cards),
        "max_model_len": int(lengths[0]) if lengths and abs(lengths[0]) < _TOKENS_MAX else None,
    }


def _text(value: object, characters_max: int) -> str:
    return redacted(str(value)[:characters_max].encode(errors="replace").decode())


def _recovering(document: Any) -> Mapping[str, Any]:
    """Parse the answer of vLLM 0.32+. An engine with status `dead` (executor gone) cannot recover."""
    faults = [
        f"{printable(str(each.get('fault_info') or 'a fault')[:_FAULT_CHARACTERS_MAX])} of engine {int(each['id'])}"
        for each in document["engines"][:_FAULTS_MAX]
        if each["status"] == "unhealthy"
    ]
    return {"recovering": " and ".join(faults) or None}


_SWITCHES: Mapping[str, tuple[str, Callable[[Any], Mapping[str, Any]]]] = {
    "sleeping": ("/is_sleeping", lambda document: {"sleeping": bool(document["is_sleeping"])}),
    "paused": ("/is_paused", lambda document: {"paused": bool(document["is_paused"])}),
    "recovering": ("/fault_tolerance/status", _recovering),
}
"""Paths and parsers. The first two need vLLM's development mode, the third --enable-fault-tolerance."""


def _no_memory(call: Call, error: MemoryError) -> Call:
    return replace(call, outcome=own_trouble.OUTCOME, error=own_trouble.of_error(error))
