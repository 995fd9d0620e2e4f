"""One seed: a fleet of four, its watcher, and whatever befalls either, for so many hours."""

import asyncio
import json
import resource
import shutil
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import structlog

from benchmarks.lab.virtual import EPOCH
from benchmarks.soak import hostile
from benchmarks.soak.books import HOUR, Books, Limits
from benchmarks.soak.engine_life import MINUTE, STAYS_AWAY_SECONDS, EngineLife
from benchmarks.soak.site import Site
from benchmarks.soak.truth import Truth
from benchmarks.soak.virtual_time import Clock, Loop, virtual
from benchmarks.soak.watcher import BUDGETS, GROUPS, Watcher, joined, settings
from vllm_watch.board.restarts import Paused
from vllm_watch.signals.life import AWAY_SECONDS_MAX
from vllm_watch.signals.loading import START_SECONDS
from vllm_watch.state.attempt import ENDED_STATES

CHECK_SECONDS = 30 * MINUTE
SETTLE_TRIES = 5
"""What is shown follows what happens within a second or so: so often it is looked at again."""

WARM_HOURS = 2.0
GROWTH_RATIO, GROWTH_BYTES = 1.25, 200_000
"""After warm-up the largest size may be above the largest before by so much: bounded windows fill and empty."""

INCIDENT_BYTES = 12_000
"""Of all else: an incident that has ended stays on the page, and weighs so much at most."""


INTERVALS = (5.0, 10.0, 15.0)
"""Seconds from look to look, one for each seed: what is kept of a minute depends on it."""

RSS_MB_MAX = 200.0
"""Of the whole process, with the simulation and one engine that sends all it may."""

COMMON_MIN = 3
"""So many that fall silent at once are told as one (fleet.targets_min); fewer page each for himself."""


@dataclass(slots=True)
class Result:
    """What came of a seed."""

    seed: int
    hours: float
    cpu_s: float = 0.0
    looks: int = 0
    runs: int = 0
    troubles: int = 0
    pages: int = 0
    calls: int = 0
    happened: dict[str, int] = field(default_factory=dict)
    hooks: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    watch_bytes: int = 0
    rss_mb: float = 0.0  # the most that the process ever held
    broken: list[str] = field(default_factory=list)


class Soak:
    """Runs one seed."""

    def __init__(self, seed: int, hours: float, folder: Path, *, sequences: bool = False) -> None:
        self.clock = Clock(EPOCH)
        self.rng = Random(f"soak {seed}")
        self.end_t = hours * HOUR
        self.truth = Truth()
        # It may say of itself what it likes: nothing of it is held against the watcher but memory and CPU.
        self.truth.begin("hostile", hostile.NAME, 0.0)
        lives = {
            name: EngineLife(
                name, zlib.crc32(f"{seed} {name}".encode()), self.truth, sequences=sequences
            )
            for name in GROUPS
        }
        for life in lives.values():
            life.scene.begin_at(EPOCH)
        limits = Limits(
            BUDGETS["cooldown_seconds"],
            int(BUDGETS["budget_per_hour"]),
            int(BUDGETS["budget_per_day"]),
        )
        deny = self.rng.randrange(23)
        self.books = Books(self.truth, dict.fromkeys(GROUPS.values(), limits))
        self.site = Site(
            self.clock, {name: Random(f"site {seed} {name}") for name in GROUPS}, self.truth, lives, GROUPS,
            (deny, deny + 1), self.books,
        )  # fmt: skip
        self.watcher = Watcher(
            self.site, folder, settings(folder, (deny, deny + 1), self.rng.choice(INTERVALS))
        )
        self.site.restarting = self.watcher.restarting
        self.result = Result(seed, hours)
        self._sizes: list[tuple[float, dict[str, int], int]] = []
        structlog.configure(processors=[self._log])

    def _log(self, _: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        """A traceback in the log is a breach, unless a hook of ours broke as it was told to."""
        if level in ("exception", "critical") and event.get("event") != "hook_broke":
            self.books.breach(self.clock.t, f"the log has a traceback: {dict(event)}")
        raise structlog.DropEvent

    async def run(self) -> Result:
        """From beginning to end."""
        await self.watcher.start()
        acts: list[Awaitable[None]] = [
            self._again(self._check, CHECK_SECONDS, CHECK_SECONDS),
            self._again(self._restart_watcher, 1 * HOUR, 5 * HOUR),
            self._again(self._lose_network, 1 * HOUR, 6 * HOUR),
            self._again(self._suspend, 1 * HOUR, 6 * HOUR),
            self._again(self._pause, 2 * HOUR, 10 * HOUR),
            self._again(self._resume, 1 * HOUR, 3 * HOUR),
        ]
        self._steady = asyncio.Lock()
        tasks = [asyncio.ensure_future(each) for each in acts]
        while self.clock.t < self.end_t:
            await asyncio.sleep(min(60.0, self.end_t - self.clock.t))
            for task in tasks:
                if task.done():
                    task.result()
            if len(self.books.broken) >= 20:
                break
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self.watcher.running:
            self._hold_what_is_kept()
            await self.watcher.start()
        await self._check()
        await self._end()
        return self.result

    async def _again(self, act: Callable[[], Awaitable[None]], low_s: float, high_s: float) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(low_s, high_s))
            async with self._steady:
                await act()

    # --- what befalls the watcher

    async def _restart_watcher(self) -> None:
        """Stopped or killed; nobody watches for a while; another takes its folder over."""
        kill, away_s = self.rng.random() < 0.5, self.rng.choice((1.0, 20.0, 300.0, 1500.0))
        left_t = self.clock.t
        await (self.watcher.kill() if kill else self.watcher.stop())
        await asyncio.sleep(away_s * self.rng.uniform(0.5, 1.5))
        self.site.advance_all()
        self.books.blinded(forget=("crash", "slow"))
        if self.clock.t - left_t > AWAY_SECONDS_MAX:
            self._may_be_starts()
        self._hold_what_is_kept()
        await self.watcher.start()

    def _may_be_starts(self) -> None:
        """Who takes connections and says nothing may start behind a proxy, where nothing seen before says otherwise."""
        for trouble in self.truth.troubles:
            life = self.site.lives[trouble.target]
            known = life.vllm.process_seen or life.refuses_seen
            if trouble.slug == "api_hang" and trouble.end_t is None and not known:
                trouble.within_s = START_SECONDS + MINUTE

    def _hold_what_is_kept(self) -> None:
        """Between two runs: what is in the folder, and what the next run counts from."""
        states = self.watcher.states()
        self.books.kept(self.watcher.rows(), states, self.clock.t)
        self.books.ended_before = {
            name: each for name, each in states.items() if each in ENDED_STATES
        }

    async def _lose_network(self) -> None:
        """No way to one target, or to all: a page for the way, and no restart."""
        all_ = self.rng.random() < 0.5
        names = list(GROUPS) if all_ else [self.rng.choice(list(GROUPS))]
        self.site.advance_all()
        # One that has just come back, and was not looked at since, does not fall silent for the watcher.
        answering = sum(
            each.answered_seen and each.vllm.serving and not each.vllm.api_hung
            for each in self.site.lives.values()
        )
        common = all_ and answering >= COMMON_MIN
        away = [
            self.truth.begin("network", name, self.clock.t, pages=not common, restarts=False)
            for name in names
        ]
        lives = self.site.lives
        unseen = [name for name in names if lives[name].refused_run != self.site.run]
        self.site.away.update(names)
        await asyncio.sleep(self.rng.uniform(MINUTE, 15 * MINUTE))
        self.site.away.clear()
        for trouble in away:
            trouble.end_t = self.clock.t
        self._nobody_saw_it_go(unseen)

    def _nobody_saw_it_go(self, names: list[str]) -> None:
        """Who was not seen to refuse before the way was lost may be starting: it has the time that a start takes."""
        for trouble in self.truth.troubles:
            if trouble.slug != "crash" or trouble.end_t is not None or trouble.target not in names:
                continue
            unseen_s = self.clock.t - self.site.lives[trouble.target].answered_t
            if trouble.within_s is not None:
                trouble.noted_s = None
                trouble.within_s = (
                    STAYS_AWAY_SECONDS if unseen_s <= AWAY_SECONDS_MAX else START_SECONDS + MINUTE
                )

    async def _suspend(self) -> None:
        """The watcher is stopped in its tracks, all its timers with it."""
        self.clock.t += self.rng.choice((10.0, 60.0, 600.0)) * self.rng.uniform(0.5, 1.5)
        self.books.blinded(forget=("crash", "slow"))

    async def _pause(self) -> None:
        """A person pauses all restarts for a while."""
        controls = self.watcher.restarts._controls
        until_t = self.clock.unix() + self.rng.uniform(10 * MINUTE, 60 * MINUTE)
        await controls.set_pause(
            Paused(actor="ana", reason="soak", until_timestamp_seconds=until_t)
        )
        self.site.paused_until_t = until_t

    async def _resume(self) -> None:
        """A person says: try again."""
        await self.watcher.restarts._controls.reset_breakers(self.clock.unix())
        self.books.resets.append(self.clock.t)

    # --- what must hold

    async def _check(self) -> None:
        wrong: list[str] = []
        for _ in range(SETTLE_TRIES):
            await asyncio.sleep(35.0)
            attempts = await self.watcher.attempts()
            wrong = self.books.exported(self.watcher.shown(), attempts)
            if not wrong:
                break
        for each in wrong:
            self.books.breach(self.clock.t, f"/metrics: {each}")
        ended = sum(each["event"] == "resolved" for each in self.books.latest.values())
        self._sizes.append((self.clock.t / HOUR, self.watcher.sizes(), ended))

    async def _end(self) -> None:
        result, books = self.result, self.books
        for each in await self.watcher.attempts():
            name = f"{each.trigger} {each.state}"
            result.outcomes[name] = result.outcomes.get(name, 0) + 1
        await self.watcher.stop()
        self._hold_what_is_kept()
        self._is_flat()
        for life in self.site.lives.values():
            for name, count in life.happened.items():
                result.happened[name] = result.happened.get(name, 0) + count
        result.rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        if result.rss_mb > RSS_MB_MAX:
            books.breach(self.clock.t, f"the process held {result.rss_mb:.0f} MB")
        result.looks, result.runs, result.hooks = self.site.looks, self.site.run, self.site.hooks
        result.troubles, result.pages = len(self.truth.troubles), books.pages
        result.calls, result.broken = len(books.calls), books.broken

    def _is_flat(self) -> None:
        warm = [each for each in self._sizes if each[0] >= WARM_HOURS]
        half = len(warm) // 2
        if half < 2:
            return
        for name in warm[0][1]:
            first = max(sizes[name] for _, sizes, _ in warm[:half])
            last = max(sizes[name] for _, sizes, _ in warm[half:])
            self.result.watch_bytes = max(self.result.watch_bytes, last if name in GROUPS else 0)
            allowed = first * GROWTH_RATIO + GROWTH_BYTES
            if name not in GROUPS:
                allowed += INCIDENT_BYTES * (warm[-1][2] - warm[0][2])
            if last > allowed:
                self.books.breach(
                    self.clock.t, f"memory of {name} grows from {first:,} to {last:,} bytes"
                )


def soak(seed: int, hours: float, *, sequences: bool = False) -> Result:
    """Run one seed in a folder of its own, which is removed."""
    began_s = time.process_time()
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="soak-", dir=memory if memory.is_dir() else None))
    one = Soak(seed, hours, folder, sequences=sequences)
    loop = Loop(one.clock)
    try:
        with virtual(one.clock), joined(one.site):
            asyncio.set_event_loop(loop)
            result = loop.run_until_complete(one.run())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        shutil.rmtree(folder, ignore_errors=True)
        structlog.reset_defaults()
    result.cpu_s = time.process_time() - began_s
    return result


def kept(seed: int, hours: float, path: Path, sequences: bool) -> dict[str, Any]:
    """Run a seed and keep what came of it in `path`; returns that."""
    result = asdict(soak(seed, hours, sequences=sequences))
    path.with_suffix(".new").write_text(json.dumps(result, indent=1))
    path.with_suffix(".new").rename(path)
    return result
