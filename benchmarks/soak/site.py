"""The place that is watched: engines, the way to them, and what restarts them, all on the soak's clock."""

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from benchmarks.lab.virtual import observe
from benchmarks.soak.books import Books, Call
from benchmarks.soak.engine_life import MINUTE, EngineLife
from benchmarks.soak.truth import Truth
from benchmarks.soak.virtual_time import Clock
from vllm_watch.restart.hooks.base import (
    DONE,
    FAILED,
    REFUSED,
    UNCERTAIN,
    Finding,
    HookCall,
    HookResult,
)
from vllm_watch.samples.observation import Call as Asked
from vllm_watch.samples.observation import Reading
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.sources.vllm import Look

HOOK_SECONDS = 60.0
SCRAPE_SECONDS = 10.0
MISSES_SHARE = 0.003
"""Of looks that meet no answer at a healthy server."""

_UNREACHABLE = Asked(outcome="connect_timeout", error="no connection within 3 s", latency_s=3.0)
_MISSED = Asked(outcome="read_timeout", error="no answer within 10 s", latency_s=SCRAPE_SECONDS)


@dataclass(slots=True)
class Site:
    """Everything that the watcher does not own."""

    clock: Clock
    rngs: dict[
        str, Random
    ]  # by target: what happens to one does not hang on when another was looked at
    truth: Truth
    lives: dict[str, EngineLife]
    groups: dict[str, str]  # by target
    deny_hours: tuple[int, int]  # of the day, in UTC
    books: Books
    run: int = 0  # of the watcher
    paused_until_t: float = 0.0  # Unix seconds; a person has said so
    away: set[str] = field(default_factory=set)  # targets to which there is no way
    restarting: Any = None  # target → is our own restart under way?
    hooks: dict[str, int] = field(default_factory=dict)  # how its calls ended
    looks: int = 0

    def advance(self, target: str) -> EngineLife:
        """Bring one engine up to now."""
        life = self.lives[target]
        life.scene.advance(self.clock.t)
        return life

    def advance_all(self) -> None:
        """Bring all up to now."""
        for target in self.lives:
            self.advance(target)

    def forbidden(self) -> bool:
        """Is this an hour in which nothing may be restarted?"""
        hour = self.clock.unix() % 86_400.0 / 3600.0
        return self.deny_hours[0] <= hour < self.deny_hours[1]


class Source:
    """Looks at one simulated engine as VllmSource looks at a real one; its GPU is seen with it."""

    local = False

    def __init__(self, site: Site, target: Target, settings: ScrapeSettings) -> None:
        self.target = target
        self._site = site
        self._interval_s = settings.interval_seconds
        self._last_t: float | None = None
        self._tokens: float | None = None  # all generated, at the last scrape that had an answer

    async def observe(self) -> Look:
        """Look once."""
        site, name = self._site, self.target.name
        site.looks += 1
        life = site.advance(name)
        self._count()
        if name in site.away:
            await asyncio.sleep(_UNREACHABLE.latency_s)
            life = site.advance(name)
            seen = replace(
                observe(life.vllm, None),
                scrape=_UNREACHABLE,
                health=_UNREACHABLE,
                reading=None,
                process=None,
            )
        else:
            missed = site.rngs[name].random() < MISSES_SHARE
            if life.vllm.api_hung or missed:
                await asyncio.sleep(SCRAPE_SECONDS)
                life = site.advance(name)
            seen = observe(life.vllm, life.rack.sample())
            if missed and seen.scrape.outcome == "ok":
                seen = replace(seen, scrape=_MISSED, health=None, reading=None)
        life.answered_seen = seen.reading is not None
        site.books.tokens_moved[name] = self._moved(seen.reading)
        if seen.scrape.outcome == "refused":
            life.refused_run = site.run
        if seen.reading is not None:
            life.refuses_seen = life.refuses_seen or life.refused_run == site.run
            life.refused_run = None
            life.answered()
            life.in_flight_seen = sum(
                (each.requests_running or 0.0) + (each.requests_waiting or 0.0)
                for each in seen.reading.engines
            )
        clock = site.clock
        seen = replace(seen, target=name, t=clock.unix(), monotonic_s=clock.monotonic())
        calls = [("metrics", seen.scrape)]
        if seen.health is not None:
            calls.append(("health", seen.health))
        return Look(seen, None, tuple(calls))

    def _moved(self, reading: Reading | None) -> bool:
        """Did this look find more tokens than the one before? In a new process all are."""
        if reading is None:
            return False
        before = self._tokens
        self._tokens = sum(each.generation_tokens or 0.0 for each in reading.engines)
        if before is None or self._tokens < before:
            return before is not None and self._tokens > 0.0
        return self._tokens > before

    def _count(self) -> None:
        """What was seen since the last look counts, if nothing was in the way."""
        site, name, now_t = self._site, self.target.name, self._site.clock.t
        since_s = 0.0 if self._last_t is None else now_t - self._last_t
        self._last_t = now_t
        gap = since_s > self._interval_s + SCRAPE_SECONDS + 2.0
        if gap or name in site.away:
            site.books.blinded(name)
        elif not site.restarting(name):
            site.books.looked(name, now_t, since_s)


class Hook:
    """Restarts simulated engines; now and then it fails in one of the ways in which hooks fail."""

    timeout_seconds = HOOK_SECONDS

    def __init__(self, site: Site) -> None:
        self._site = site

    async def refusal(self, call: HookCall) -> str | None:
        """Seldom it has a reason, seldom it breaks or says nothing."""
        chance = self._site.rngs[call.target].random()
        if chance < 0.02:
            raise RuntimeError("this hook cannot even say so")
        if chance < 0.04:
            await asyncio.sleep(600.0)
        return "the supervisor is waiting" if chance < 0.1 else None

    async def rehearse(self, call: HookCall) -> list[Finding]:
        """Nothing to try."""
        return []

    async def restart(self, call: HookCall) -> HookResult:
        """Act, or fail."""
        site, rng = self._site, self._site.rngs[call.target]
        site.books.called(
            Call(site.clock.t, site.run, call.attempt_id, call.target, call.group, call.trigger, call.incident_id),
            paused=site.clock.unix() < site.paused_until_t, forbidden=site.forbidden(),
        )  # fmt: skip
        (end,) = rng.choices(
            ("restarts", "fails", "refuses", "uncertain", "uncertain, acted", "does nothing",
             "never starts", "hangs", "hangs, acted", "breaks"),
            (60, 8, 5, 4, 4, 4, 3, 4, 4, 4),
        )  # fmt: skip
        site.hooks[end] = site.hooks.get(end, 0) + 1
        await asyncio.sleep(rng.uniform(0.5, 20.0))
        return await self._end(end, site.advance(call.target))

    async def _end(self, end: str, life: EngineLife) -> HookResult:
        rng = self._site.rngs[life.target]
        if end in ("restarts", "uncertain, acted", "hangs, acted"):
            life.restart(rng.uniform(0.0, 20.0), rng.uniform(20.0, 120.0))
        if end == "never starts":
            self._end_for_long(life)
        if end.startswith("hangs"):
            await asyncio.sleep(3600.0)
        if end == "breaks":
            raise RuntimeError("this hook broke")
        outcome = {"fails": FAILED, "refuses": REFUSED}.get(end, DONE)
        if end.startswith("uncertain"):
            outcome = UNCERTAIN
        return HookResult(outcome=outcome, text=f"the soak's hook: {end}")

    def _end_for_long(self, life: EngineLife) -> None:
        """It ends the server, and nothing starts it again until somebody does it by hand."""
        life.vllm.stop()
        trouble = self._site.truth.begin("hook_never_starts", life.target, life.t)

        def start() -> None:
            life.vllm.start(60.0)
            life.later(90.0, lambda: setattr(trouble, "end_t", life.t))

        life.later(self._site.rngs[life.target].uniform(10 * MINUTE, 60 * MINUTE), start)
