"""Engines in virtual time, how a scrape finds each, what judges it, and a hook that ends and starts them.

An engine is an address. Its process is well, hangs, or answers nobody; or there is none. The judgement is small and quick:
what a real detector waits for is tested with that detector.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.restart.virtual import CLOCK
from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.restart.hooks.base import DONE, FAILED, HookCall, HookResult
from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.observation import Call, Observation, Reading, ServerSample
from vllm_watch.sources.vllm import Look

if TYPE_CHECKING:
    from tests.restart.virtual_site import Site

SCRAPE_SECONDS, TIMEOUT_SECONDS = 0.2, 4.0
LOAD_SECONDS = 3.0
"""A process refuses for so long after its start."""

WELL, HANGS, SILENT = "well", "hangs", "silent"


@dataclass(eq=False)
class Process:
    """One life of an engine."""

    number: int
    start_t: float  # as it exports it
    model: str
    serves_s: float
    is_: str = WELL
    hung_s: float = 0.0  # since when it makes no step


@dataclass(eq=False)
class Engine:
    """One address."""

    url: str
    process: Process | None = None
    numbers: Any = field(default_factory=count)

    def start(self, *, start_t: float | None = None, model: str = "m", load_s: float = 0.0) -> None:
        """In the place of whatever ran there."""
        start_t = CLOCK.time() if start_t is None else start_t
        self.process = Process(next(self.numbers), start_t, model, CLOCK.monotonic_s + load_s)

    def end(self) -> None:
        self.process = None

    def sicken(self, how: str) -> None:
        if self.process is not None:
            self.process.is_, self.process.hung_s = how, CLOCK.monotonic_s

    @property
    def serves(self) -> bool:
        process = self.process
        return process is not None and process.is_ == WELL and CLOCK.monotonic_s >= process.serves_s


@dataclass(frozen=True)
class Found:
    """What one scrape found."""

    process: Process | None  # that answered; None: none did
    met: Process | None  # whom it was sent to
    sick: bool
    t: float
    began_s: float
    outcome: str = "ok"


class Source:
    """In the place of VllmSource: a scrape finds what is so when it begins."""

    local = False

    def __init__(self, site: "Site", target: Any, *_: object) -> None:
        self._site, self.target = site, target

    async def observe(self) -> Look:
        engine, began_s, t = self._site.engine(self.target.url), CLOCK.monotonic_s, CLOCK.time()
        process = None if engine is None else engine.process
        call, reading = Call(outcome="ok", status=200), None
        if self._site.outage or (process is not None and process.is_ == SILENT):
            call = Call(outcome="read_timeout")
        elif process is None or began_s < process.serves_s:
            call = Call(outcome="refused")
        else:
            reading = _reading(process, began_s)
        sick = reading is None or bool(process and process.is_ != WELL)
        silent = call.outcome == "read_timeout"
        await asyncio.sleep(TIMEOUT_SECONDS - 0.1 if silent else SCRAPE_SECONDS)
        found = Found(
            process if reading is not None else None, process, sick, t, began_s, call.outcome,
        )  # fmt: skip
        self._site.scraped(self.target.name, found)
        observation = Observation(
            t=t, target=self.target.name, monotonic_s=began_s, scrape=call, reading=reading
        )
        return Look(observation, None, ())


def _reading(process: Process, at_s: float) -> Reading:
    hangs = process.is_ == HANGS
    steps = max(0.0, 10.0 * ((process.hung_s if hangs else at_s) - process.serves_s))
    engine = EngineSample(
        engine="0", model_name=process.model, requests_running=2.0, requests_waiting=7.0 if hangs else 0.0,
        generation_tokens=steps, iteration_tokens=Histogram(count=steps, sum=None),
    )  # fmt: skip
    server = ServerSample(version="1", models=(process.model,), process_start_time=process.start_t)
    return Reading(vllm=True, engine_kind="V1", engines=(engine,), server=server)


class Stalled:
    """An engine that hangs says so by its queue."""

    def update(self, view: View) -> Sequence[Verdict]:
        reading = view.observation.reading
        if reading is None:
            return [Verdict(state=UNKNOWN, kind="engine_stalled", engine="0")]
        if reading.engines[0].requests_waiting != 7.0:
            return [Verdict(state=CLEAR, kind="engine_stalled", engine="0")]
        return [_fires("engine_stalled", "hang", "0", advised=True)]


class Down:
    """Two scrapes without an answer."""

    def __init__(self) -> None:
        self._misses = 0

    def update(self, view: View) -> Sequence[Verdict]:
        if view.observation.reading is not None:
            self._misses = 0
            return [Verdict(state=CLEAR, kind="engine_down")]
        self._misses += 1
        if self._misses == 1:
            return [Verdict(state=UNKNOWN, kind="engine_down")]
        silent = view.observation.scrape.outcome == "read_timeout"
        return [_fires("engine_down", "api_hang" if silent else "crash", None, advised=silent)]


def _fires(kind: str, cause: str, engine: str | None, *, advised: bool) -> Verdict:
    return Verdict(
        state=FIRING, kind=kind, engine=engine, cause=cause, severity="page", restart_advised=advised, summary=cause,
        evidence_for=(Evidence(name="sick", value=1.0),),
    )  # fmt: skip


def detectors(*_: object) -> dict[str, Any]:
    """In the place of all that there are."""
    return {"engine_stalled": Stalled(), "engine_down": Down()}


STOP_SECONDS = 2.0


class Hook:
    """Ends the engine of the URL that it is told, and starts it: in person, or by a supervisor that outlives whoever called it."""

    timeout_seconds = 20.0

    def __init__(self, site: "Site", settings: Any) -> None:
        self._site, self.settings = site, settings

    async def refusal(self, call: HookCall) -> str | None:
        return None

    async def restart(self, call: HookCall) -> HookResult:
        site = self._site
        asyncio.get_running_loop().check()  # type: ignore[attr-defined]
        engine, does = site.called(call, self.settings), site.hook_does
        await site.point("the hook has begun")
        if does == "fails" or engine is None:
            await asyncio.sleep(1.0)
            return site.answered(call, HookResult(outcome=FAILED, text="it is busy"))
        if does == "does nothing":
            return site.answered(call, HookResult(outcome=DONE, text="done"))
        engine.end()
        stopped = False

        def starts() -> None:
            if not stopped and does != "never starts":
                engine.start(
                    model="another" if does == "another model" else "m", load_s=LOAD_SECONDS
                )

        CLOCK.after(STOP_SECONDS, starts)
        try:
            await site.point("the hook has ended the engine")
            await asyncio.sleep(STOP_SECONDS)
        except asyncio.CancelledError:
            stopped = not site.supervised  # a program ends with its watcher
            site.cut_off(call)
            raise
        await site.point("the hook has started the engine")
        return site.answered(call, HookResult(outcome=DONE, text="done"))
