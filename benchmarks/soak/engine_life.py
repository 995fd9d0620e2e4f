"""One engine's days: health, and now and then a trouble, drawn anew by a seed."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from benchmarks.lab.lives import together
from benchmarks.soak.truth import Trouble, Truth
from vllm_watch.lab.gpus import GpuRack, idle_notebook
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import L40S
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Sizes

MINUTE = 60.0
BREATH_SECONDS = 10.0
UNEVENNESS = 0.06
"""Of step times, as in the lab's healthy lives."""

HEALTHY_SECONDS = (20 * MINUTE, 80 * MINUTE)
"""Between two troubles: long enough for all that is learnt of an engine to be learnt."""

SOON_SECONDS = (10.0, 10 * MINUTE)
"""... or, where troubles follow each other, every second time: what was learnt is of the trouble before."""

ILL_SECONDS = (8 * MINUTE, 40 * MINUTE)
"""Until a person restarts what nobody else did."""

SERVED_PER_SECOND = 3.0
"""What the lab's L40S serves of these requests."""

BUSY_REQUESTS = 4
"""A crash that cuts off so many is one of a server at work ..."""

SEEN_REQUESTS = 2.0
"""... which only a watcher can know who saw so many in flight at its last look: whoever empties a server between two
looks and ends it leaves the same picture, and does so far more often than a server crashes."""

CRASH_SECONDS = 120.0
STAYS_AWAY_SECONDS = 300.0
"""Else it is told as a ticket, and pages once it has been away for longer than a restart takes: three minutes, or half
as long again as the longest start that was seen, which is under 170 s here."""


UNUSED_SECONDS = 90.0
"""So long it must have been seen without a request for anybody to know that its end costs nothing (idle_seconds 60)."""


class EngineLife:
    """One server in its scene; `chores` are what somebody will do at a time."""

    def __init__(self, target: str, seed: int, truth: Truth, *, sequences: bool = False) -> None:
        self.target = target
        self._sequences = sequences
        self.truth = truth
        self.rng = Random(f"{target} {seed}")
        self.usual = SERVED_PER_SECOND * self.rng.uniform(0.2, 0.6)
        sizes = Sizes(Random(seed + 1), prompt_tokens=2500, output_tokens=200, spread=0.5)
        self.workload = OpenLoop(Random(seed), sizes, self.usual)
        self.vllm = SimulatedVllm("vllm", workload=self.workload, config=L40S)
        self.vllm.process_seen = self.rng.random() < 0.5
        self.rack = GpuRack(1)
        self.rack.place(self.vllm, 0)
        self.scene = Scene(
            [self.vllm], self.rack, lambda scene: together([self._breathe, self._live], scene)
        )
        self.chores: list[tuple[float, Callable[[], None]]] = []
        self.happened: dict[str, int] = {}
        self.in_flight_seen = 0.0  # at the last scrape that had an answer
        self.answered_seen = False  # at the last scrape
        self.answered_t = 0.0  # of the last look that had an answer
        self.unused_since_t: float | None = None  # the first in a row that met it without requests
        self.refused_run: int | None = (
            None  # of the watcher, that met it refusing since it answered
        )
        self.refuses_seen = False  # did one of them then see it answer?
        self._ill = False

    @property
    def t(self) -> float:
        """The scene's time."""
        return self.vllm.t

    def restart(self, linger_s: float, load_s: float) -> None:
        """End the process and start another."""
        self.vllm.stop(linger_s)
        self.vllm.start(load_s)

    def later(self, seconds: float, chore: Callable[[], None]) -> None:
        """Have something done in so many seconds."""
        self.chores.append((self.t + seconds, chore))

    def answered(self) -> None:
        """A look met it and had an answer."""
        if self.vllm.outstanding or self.t - self.answered_t > UNUSED_SECONDS:
            self.unused_since_t = None
        if not self.vllm.outstanding and self.unused_since_t is None:
            self.unused_since_t = self.t
        self.answered_t = self.t

    # --- scripts of the scene

    def _breathe(self, _: Scene) -> Iterator[float]:
        """Steps scatter, and now and then one takes seconds; chores are done."""
        while True:
            due = [each for each in self.chores if each[0] <= self.t]
            self.chores = [each for each in self.chores if each[0] > self.t]
            for _, chore in due:
                chore()
            if not self._ill:
                for engine in self.vllm.engines:
                    engine.slow_factor = self.rng.lognormvariate(0.0, UNEVENNESS)
            yield BREATH_SECONDS

    def _live(self, _: Scene) -> Iterator[float]:
        yield self.rng.uniform(*HEALTHY_SECONDS)
        kinds: dict[str, tuple[int, Callable[[], Iterator[float]]]] = {
            "hang": (4, self._hang), "deadlock": (3, self._deadlock), "slow": (3, self._slow),
            "leak": (2, self._leak), "pinning": (1, self._pinning), "crash": (4, self._crash),
            "crash_loop": (1, self._crash_loop), "api_hang": (3, self._api_hang),
            "engine_dead": (2, self._engine_dead), "overload": (2, self._overload),
            "planned": (3, self._planned), "to_zero": (1, self._to_zero),
            "pause": (2, self._short_pause), "notebook": (1, self._notebook),
        }  # fmt: skip
        while True:
            names = list(kinds)
            (name,) = self.rng.choices(names, [kinds[each][0] for each in names])
            self.happened[name] = self.happened.get(name, 0) + 1
            yield from kinds[name][1]()
            soon = self._sequences and self.rng.random() < 0.5
            yield self.rng.uniform(*(SOON_SECONDS if soon else HEALTHY_SECONDS))

    # --- troubles

    def _begin(self, slug: str, **how: Any) -> Trouble:
        return self.truth.begin(slug, self.target, self.t, **how)

    def _end(self, trouble: Trouble) -> None:
        trouble.end_t = self.t
        self._ill = False

    def _until_cured(
        self, slug: str, begin: Callable[[], None], within_s: float | None, *, restarts: bool = True
    ) -> Iterator[float]:
        """It lasts until a process takes this one's place; a quarter of them come again in that one, too."""
        stubborn = self.rng.random() < 0.25
        trouble = self._begin(slug, within_s=within_s, restarts=restarts)
        self._ill = True
        begin()
        incarnation, end_t = self.vllm.incarnation, self.t + self.rng.uniform(*ILL_SECONDS)
        while self.t < end_t:
            yield 5.0
            if self.vllm.incarnation == incarnation or not self.vllm.serving:
                continue
            if not stubborn:
                break
            if slug == "slow":
                # A process that is slow from its first minute is the measure of itself: docs/real-vllm.md.
                trouble.within_s = None
            yield 30.0
            incarnation = self.vllm.incarnation
            if self.vllm.serving:
                begin()
        else:
            self.restart(0.0, self.rng.uniform(20.0, 120.0))
            yield from self._until_serving()
        self._end(trouble)

    def _until_serving(self) -> Iterator[float]:
        while not self.vllm.serving:
            yield 2.0

    def _hang(self) -> Iterator[float]:
        def begin() -> None:
            for engine in self.vllm.engines:
                engine.freeze(self.t)

        yield from self._until_cured("hang", begin, 180.0)

    def _deadlock(self) -> Iterator[float]:
        def begin() -> None:
            for engine in self.vllm.engines:
                engine.batch.admission_blocked = True

        yield from self._until_cured("deadlock", begin, 300.0)

    def _slow(self) -> Iterator[float]:
        factor = self.rng.uniform(4.0, 8.0)

        def begin() -> None:
            for engine in self.vllm.engines:
                engine.slow_factor, engine.slow_since_t = factor, self.t

        yield from self._until_cured("slow", begin, 600.0)

    def _leak(self) -> Iterator[float]:
        ramp_s = self.rng.uniform(120.0, 900.0)
        yield from self._until_cured(
            "leak", lambda: self.vllm.fault("leak", share=0.95, ramp_seconds=ramp_s), None
        )
        self.vllm.faults.pop("leak", None)

    def _pinning(self) -> Iterator[float]:
        trouble = self._begin("pinning", restarts=False)
        self.vllm.fault("pinning")
        yield self.rng.uniform(3 * MINUTE, 20 * MINUTE)
        self.vllm.clear("pinning")
        self._end(trouble)

    def _api_hang(self) -> Iterator[float]:
        def begin() -> None:
            self.vllm.api_hung = self.vllm.serving

        yield from self._until_cured("api_hang", begin, 240.0)

    def _engine_dead(self) -> Iterator[float]:
        def begin() -> None:
            self.vllm.dead = self.vllm.serving
            for engine in self.vllm.engines:
                engine.freeze(self.t)

        yield from self._until_cured("engine_dead", begin, 120.0)

    def _crash(self) -> Iterator[float]:
        """Gone; a supervisor or a person starts it again, sooner or later."""
        trouble = self._begin("crash", **self._crash_is_told())
        self.vllm.stop()
        yield self.rng.choice((5.0, 30.0, 300.0, 1200.0)) * self.rng.uniform(0.5, 1.5)
        self.vllm.start(self.rng.uniform(20.0, 150.0))
        yield from self._until_serving()
        self._end(trouble)

    def _crash_is_told(self) -> dict[str, float]:
        if self.vllm.outstanding < BUSY_REQUESTS:
            return {}
        if self.in_flight_seen >= SEEN_REQUESTS:
            return {"within_s": CRASH_SECONDS}
        return {"noted_s": CRASH_SECONDS, "within_s": STAYS_AWAY_SECONDS}

    def _crash_loop(self) -> Iterator[float]:
        trouble = self._begin("crash_loop")
        for _ in range(self.rng.randint(3, 6)):
            self.vllm.stop()
            yield self.rng.uniform(2.0, 20.0)
            self.vllm.start(self.rng.uniform(20.0, 60.0))
            yield from self._until_serving()
            yield self.rng.uniform(5.0, 60.0)
        self._end(trouble)

    def _overload(self) -> Iterator[float]:
        """More is asked than it can do: a ticket, and nothing that a restart would cure."""
        trouble = self._begin("overload", pages=False, restarts=False)
        self.workload.per_second = SERVED_PER_SECOND * self.rng.uniform(1.3, 2.5)
        yield self.rng.uniform(3 * MINUTE, 15 * MINUTE)
        self.workload.per_second = self.usual
        self._end(trouble)

    # --- what happens to healthy engines

    def _emptied(self) -> Iterator[float]:
        self.workload.per_second = 0.0
        waited = 0.0
        while self.vllm.outstanding and waited < 2 * MINUTE:
            yield 1.0
            waited += 1.0

    def _planned(self) -> Iterator[float]:
        yield from self._emptied()
        yield self.rng.uniform(45.0, 90.0)
        # The backlog of a trouble before may be longer than anybody waits: who cuts it off leaves the picture of a crash.
        cut_off = self._begin("cut_off", restarts=False) if self.vllm.outstanding else None
        linger_s = self.rng.uniform(0.0, 40.0)
        self.vllm.stop(linger_s)
        yield linger_s
        self.vllm.start(self.rng.uniform(20.0, 150.0))
        yield from self._until_serving()
        if cut_off is not None:
            self._end(cut_off)
        self.workload.per_second = self.usual

    def _to_zero(self) -> Iterator[float]:
        yield from self._emptied()
        yield 5 * MINUTE
        self.vllm.stop()
        # Whoever was last seen at work and refuses ever after may have crashed: nobody outside can tell.
        since_t = self.unused_since_t
        unseen = since_t is None or self.answered_t < since_t + UNUSED_SECONDS
        trouble = self._begin("to_zero_unseen", restarts=False) if unseen else None
        yield self.rng.uniform(10 * MINUTE, 60 * MINUTE)
        self.vllm.start(self.rng.uniform(30.0, 120.0))
        yield from self._until_serving()
        if trouble is not None:
            trouble.end_t = self.t
        self.workload.per_second = self.usual

    def _short_pause(self) -> Iterator[float]:
        """A garbage collection, an adapter from disk, a busy host."""
        engines = list(self.vllm.engines)
        for engine in engines:
            engine.freeze(self.t)
        yield self.rng.uniform(0.5, 4.0)
        for engine in engines:
            engine.thaw(self.t)

    def _notebook(self) -> Iterator[float]:
        """Somebody leaves a notebook open on this GPU: a ticket."""
        if self.happened["notebook"] == 1:
            self.rack.add_process(0, idle_notebook(self.vllm.epoch + self.t - 4 * 86_400.0))
        yield 1.0
