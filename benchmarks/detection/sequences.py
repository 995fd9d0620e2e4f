"""Days on which troubles follow each other: what is told at each look, against what is so.

One simulated server in virtual time, with health before the first trouble, then faults of all kinds, in any order, of
20 s to 5 min, 10 s to 10 min apart. A crash ends when a supervisor has started the server anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from benchmarks.detection import baselines
from benchmarks.lab.virtual import EPOCH, observe
from vllm_watch.incidents.incident import ACTIVE, Incident
from vllm_watch.lab.gpus import GpuRack
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import L40S, STORIES, load
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.samples.observation import Observation
from vllm_watch.watch.host_watch import SiteWatch

HEALTH_SECONDS = 900.0
FOUND_SECONDS_MIN = 45.0
"""Shorter troubles may be over before they are told."""

GRACE_LOOKS, GRACE_SECONDS_MIN = 2.0, 10.0
"""So long after the end of a trouble nobody can know of it: rates are those of some seconds."""

KINDS = {
    "hang": "engine_stalled", "admission_deadlock": "engine_stalled", "crash": "engine_down", "api_hang": "engine_down",
    "engine_dead": "engine_down", "slow": "throughput_collapse", "leak": "throughput_collapse", "pinning": "throughput_collapse",
}  # fmt: skip
"""Fault of the lab → the kind of incident that it is."""

SUDDEN = ("hang", "crash", "api_hang", "engine_dead", "slow")
"""Those of which something is felt at once; the others need minutes to fill a cache."""


@dataclass
class Trouble:
    """One fault, in seconds of the scene."""

    slug: str
    begin_s: float
    cleared: bool = False  # a server that crashed may still have to start
    end_s: float | None = None
    found_s: float | None = None  # the first scrape at which its kind was active
    last: tuple[Incident, ...] = ()  # active at the last scrape before it was cleared

    @property
    def told_in_time(self) -> bool:
        return self.found_s is not None


@dataclass
class Told:
    """What one day showed."""

    name: str
    interval_s: float
    troubles: list[Trouble] = field(default_factory=list)
    late_pages: list[str] = field(default_factory=list)
    advised_when_healthy: list[str] = field(default_factory=list)
    healthy_looks: list[float] = field(default_factory=list)  # seconds of the scene
    healthy_page_s: float = 0.0
    by_rules: dict[str, "Told"] = field(
        default_factory=dict
    )  # what the rules of today showed of the same looks

    @property
    def healthy_s(self) -> float:
        return self.interval_s * len(self.healthy_looks)

    @property
    def judged(self) -> list[Trouble]:
        """Those that lasted long enough to be found."""
        least_s = max(FOUND_SECONDS_MIN, 4.0 * self.interval_s)
        return [
            each for each in self.troubles if each.end_s and each.end_s - each.begin_s >= least_s
        ]

    @property
    def missed(self) -> list[Trouble]:
        return [each for each in self.judged if not each.told_in_time]


def random_day(seed: int, hours: float, slugs: tuple[str, ...] = SUDDEN) -> Callable[[Told], Scene]:
    """A scene in which 3 to 10 troubles an hour follow each other; what is done is written into `Told`."""

    def build(told: Told) -> Scene:
        rng = Random(seed)
        vllm = SimulatedVllm("vllm", workload=load(rng), config=L40S)
        rack = GpuRack(1)
        rack.place(vllm, 0)

        def script(scene: Scene) -> Iterator[float]:
            yield HEALTH_SECONDS
            while scene.t < hours * 3600.0 - 600.0:
                slug = rng.choice(slugs)
                yield from _trouble(
                    scene, told, slug, rng.choice((20.0, 45.0, 60.0, 90.0, 180.0, 300.0))
                )
                yield rng.choice((10.0, 30.0, 60.0, 120.0, 300.0, 600.0))

        return Scene([vllm], rack, script)

    return build


def demo_day(told: Told) -> Scene:
    """What `vllm-watch demo` plays on its server "batch"."""
    scene = STORIES["demo"].build(1)
    batch, faults = scene["batch"], {}
    begin, clear = batch.fault, batch.clear

    def fault(slug: str, **options: float) -> None:
        faults[slug] = Trouble(slug, scene.t)
        told.troubles.append(faults[slug])
        begin(slug, **options)

    def cleared(slug: str | None = None) -> None:
        clear(slug)
        if slug in faults:
            faults.pop(slug).cleared = True

    batch.fault, batch.clear = fault, cleared  # type: ignore[method-assign]
    return scene


def _trouble(scene: Scene, told: Told, slug: str, seconds: float) -> Iterator[float]:
    vllm = scene["vllm"]
    trouble = Trouble(slug, scene.t)
    told.troubles.append(trouble)
    vllm.fault(slug)
    yield seconds
    vllm.clear(slug)
    trouble.cleared = True
    while trouble.end_s is None:
        yield 1.0


def play(
    told: Told, build: Callable[[Told], Scene], seconds: float, target: str = "vllm", *, rules: bool = False
) -> Told:  # fmt: skip
    """Look at the target every `told.interval_s` and write down what is told of it; with `rules`, also by them."""
    looks = _looks(told, build(told), seconds, target)
    seen = baselines.tracks(looks) if rules else None
    for _ in looks:
        pass
    for trouble in told.troubles:
        if trouble.end_s is None:
            trouble.end_s = seconds
    if seen is not None:
        told.by_rules = {
            name: _by_rule(told, baselines.predict(rule, seen))
            for name, rule in baselines.BASELINES.items()
        }
    return told


def _looks(told: Told, scene: Scene, seconds: float, target: str) -> Iterator[Observation]:
    """Each look at the target, once it is judged."""
    site = SiteWatch()
    scene.begin_at(EPOCH)
    looks = 0
    while (t := looks * told.interval_s) < seconds:
        looks += 1
        scene.play(t)
        for server in scene.servers.values():
            server.advance(t)
            if server.name == target:
                mark_ends(told, server, t)
                seen = observe(server, scene.rack.sample() if scene.rack else None)
                site.look(seen)
        _compare(told, t, site.watches[target].incidents)
        yield seen
    if site.failures:
        raise RuntimeError(f"a detector broke: {site.failures}")


def _by_rule(told: Told, events: list[dict[str, Any]]) -> Told:
    """What a rule showed: its alerts are pages, and it advises nothing."""
    ends = {each["id"]: each["t"] - EPOCH for each in events if each["event"] == "resolved"}
    spans = [
        (each["kind"], each["t"] - EPOCH, ends.get(each["id"], float("inf")))
        for each in events
        if each["event"] == "opened"
    ]
    shown = Told(told.name, told.interval_s, healthy_looks=told.healthy_looks)
    for trouble in told.troubles:
        kind, end_s = KINDS[trouble.slug], trouble.end_s or 0.0
        found = [
            since
            for of, since, until in spans
            if of == kind and since <= end_s and until >= trouble.begin_s
        ]
        shown.troubles.append(replace(trouble, found_s=min(found, default=None)))
    healthy = set(told.healthy_looks)
    shown.late_pages = [f"{since:.0f} s: {kind}" for kind, since, _ in spans if since in healthy]
    alarmed = [
        t for t in told.healthy_looks if any(since <= t < until for _, since, until in spans)
    ]
    shown.healthy_page_s = told.interval_s * len(alarmed)
    return shown


def mark_ends(told: Told, server: SimulatedVllm, t: float) -> None:
    """A trouble is over when it was cleared, and the server serves again."""
    for trouble in told.troubles:
        if trouble.cleared and trouble.end_s is None and server.serving:
            trouble.end_s = t


def _compare(told: Told, t: float, incidents: tuple[Incident, ...]) -> None:
    """One look: what is active now, and is it so?"""
    active = [each for each in incidents if each.phase == ACTIVE]
    now = [
        each
        for each in told.troubles
        if each.begin_s <= t and (each.end_s is None or t <= each.end_s)
    ]
    for trouble in now:
        if not trouble.cleared:
            trouble.last = tuple(active)
        if trouble.found_s is None and any(each.kind == KINDS[trouble.slug] for each in active):
            trouble.found_s = t
    last_s = max((each.end_s for each in told.troubles if each.end_s is not None), default=None)
    healthy = not now and (
        last_s is None or t - last_s > max(GRACE_SECONDS_MIN, GRACE_LOOKS * told.interval_s)
    )
    if not healthy:
        return
    told.healthy_looks.append(t)
    pages = [each for each in active if each.severity == "page"]
    told.healthy_page_s += told.interval_s if pages else 0.0
    said = [
        f"{t:.0f} s: {each.kind}/{each.cause}: {each.summary}"
        for each in pages
        if each.opened_t - EPOCH >= t - 0.5
    ]
    told.late_pages += said
    advised = [each for each in incidents if each.restart_advised]
    told.advised_when_healthy += [
        f"{t:.0f} s: {each.kind}/{each.cause}: {each.summary}" for each in advised
    ]
