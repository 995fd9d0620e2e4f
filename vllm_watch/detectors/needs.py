"""What each detector must have and what only sharpens it: data, held against what a target really carries.

A detector whose need is missing is blind there and says so; where only something that sharpens it is missing
it sees partly, and says what that costs. In one table, so that one glance tells what a missing
input takes away. The names are those of `signals.inputs`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vllm_watch.detectors.base import CLEAR, UNKNOWN, Verdict
from vllm_watch.samples.observation import Observation
from vllm_watch.signals.inputs import INPUTS, Inputs
from vllm_watch.signals.records import Sight


@dataclass(frozen=True, slots=True)
class Need:
    """Inputs of which one is enough, and what is lost without any of them, in words."""

    any_of: tuple[str, ...]
    without: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Of one detector."""

    must: tuple[Need, ...] = ()
    sharpens: tuple[Need, ...] = ()


NEEDS: dict[str, Needs] = {
    "engine_down": Needs(
        sharpens=(
            Need(("health",), "an engine core that died behind a living API server is found when that ends, too"),
            Need(("running", "waiting"), "a crash under load looks like the end of an idle server, and pages late"),
            Need(("finished",), "a server that was emptied before it was stopped looks crashed"),
            Need(("prompted",), "a server that was emptied before it was stopped may look crashed"),
        ),
    ),
    "engine_stalled": Needs(
        must=(
            # What finishes or is preempted is no heartbeat: long answers take minutes without either.
            Need(("steps", "generated"), "an engine at work cannot be told from one that hangs"),
            Need(("running",), "work that stands still is not seen"),
        ),
        sharpens=(
            Need(("waiting",), "a queue that nothing is admitted from is not found"),
            Need(("steps",), "progress shows late, and a hang is said after half a minute instead of seconds"),
            Need(("open_fds", "canary"), "a hang of an engine whose gauges read idle is not found"),
            Need(("canary",), "an engine that only looks idle is never tried"),
            Need(("process_start",), "an engine that compiles its kernels may be called stalled"),
            Need(("gpus",), "a single silent request is believed later, and a lost GPU is not named"),
        ),
    ),
    "throughput_collapse": Needs(
        must=(
            Need(("steps", "latency"), "the time of a step is not known"),
            Need(("generated",), "what gets done is not known"),
            Need(("running",), "idle cannot be told from slow"),
            Need(("prompted",), "long prompts look like slow steps"),
            Need(("kv_cache_usage",), "long contexts look like slow steps, and engines that starve of KV pages are not found"),
        ),
        sharpens=(
            Need(("waiting",), "engines that starve of KV pages are not found, and slow ones later"),
            Need(("steps",), "steps are reckoned from latencies"),
            Need(("latency",), "only stretches without a pause are judged"),
            Need(("prefix_cache",), "an engine whose prefix cache went cold may be called slow"),
            Need(("lengths",), "requests that grew too long are taken for pinned pages"),
            Need(("preemptions",), "requests that grew too long are taken for pinned pages"),
            Need(("gpus",), "heat and a neighbour on the GPU are not told from a slow engine"),
        ),
    ),
    "overload": Needs(
        must=(
            Need(("waiting",), "the queue is not seen"),
            Need(("finished",), "how fast the queue is worked off is not known"),
        ),
    ),
    "host_memory_growth": Needs(
        must=(Need(("resident_memory",), "the server's memory is not seen"),),
        sharpens=(
            Need(("process_start",), "memory that a young server fills may be called a leak"),
            Need(("open_fds",), "memory of many connections counts as growth"),
            Need(("media_cache",), "a cache of images that fills is not told from a leak"),
        ),
    ),
    "stale_vram": Needs(must=(Need(("gpus",), "nobody who holds GPU memory is seen"),)),
    "gpu_fault": Needs(must=(Need(("gpus",), "the GPUs and their driver's errors are not seen"),)),
}  # fmt: skip
"""By detector."""


def sight(needs: Needs, inputs: Inputs) -> Sight:
    """How well a detector with such needs sees on this target."""
    lost = [need for need in needs.must if _lost(need, inputs)]
    if lost and inputs.why_not is not None:
        return Sight("blind", inputs.why_not)
    if lost:
        return Sight("blind", _text(lost, inputs))
    if any(_lost(need, inputs) is None for need in needs.must):
        return Sight("unknown", "too few looks yet to tell what this server exports")
    dull = [need for need in needs.sharpens if _lost(need, inputs)]
    return Sight("partly", _text(dull, inputs)) if dull else Sight("sees", "")


def can_clear(needs: Needs, inputs: Inputs, engine: str | None) -> bool:
    """Did the last look carry what it takes to say that all is well?"""
    return all(any(inputs.now(name, engine) for name in need.any_of) for need in needs.must)


def _lost(need: Need, inputs: Inputs) -> bool | None:
    """Is every one of them missing? None: too early to tell."""
    said = [inputs.missing(name, None) for name in need.any_of]
    if False in said:
        return False
    return None if None in said else True


def _text(lost: Sequence[Need], inputs: Inputs) -> str:
    """Every input once, what is lost without it, and how to get it."""
    said, mends = [], []
    for need in lost:
        what = " and no ".join(INPUTS[name].label for name in need.any_of)
        said.append(f"no {what}{_where(need, inputs)}: {need.without}")
        mends += [INPUTS[name].mend for name in need.any_of]
    return "; ".join(said) + ". To mend: " + "; ".join(dict.fromkeys(mends)) + "."


def _where(need: Need, inputs: Inputs) -> str:
    """Where only some of several engines lack it."""
    engines = inputs.engines
    without = [e for e in engines if all(inputs.missing(name, e) for name in need.any_of)]
    if 0 < len(without) < len(engines):
        return f" of engine {', '.join(without)}"
    return ""


class Sights:
    """How well each detector of one target sees, worked out anew only when what is carried changes."""

    def __init__(self, slugs: Iterable[str]) -> None:
        """A detector that is not in the table needs nothing."""
        self._needs = {slug: NEEDS[slug] for slug in slugs if slug in NEEDS}
        self._inputs = Inputs()
        self._revision = -1
        self._known: dict[str, Sight] = {}
        self._clear: dict[tuple[str, str | None], bool] = {}

    def look(self, at_s: float, observation: Observation) -> None:
        """Take one look."""
        self._inputs.look(at_s, observation)
        if self._inputs.revision != self._revision:
            self._revision = self._inputs.revision
            self._known = {slug: sight(needs, self._inputs) for slug, needs in self._needs.items()}
            self._clear = {}

    @property
    def known(self) -> dict[str, Sight]:
        """By detector."""
        return self._known

    def believed(self, slug: str, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
        """A detector that lacks what it must have cannot say that all is well, nor call an engine ill."""
        needs = self._needs.get(slug)
        if needs is None or not needs.must:
            return verdicts
        return [
            verdict
            # What is said of the server may rest on just that: a GPU that is not seen any more.
            if verdict.state == UNKNOWN
            or (verdict.state != CLEAR and verdict.engine is None)
            or self._can_clear(slug, needs, verdict.engine)
            else replace(verdict, state=UNKNOWN)
            for verdict in verdicts
        ]

    def _can_clear(self, slug: str, needs: Needs, engine: str | None) -> bool:
        key = slug, engine
        if key not in self._clear:
            self._clear[key] = can_clear(needs, self._inputs, engine)
        return self._clear[key]
