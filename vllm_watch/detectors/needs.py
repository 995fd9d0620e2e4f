"""Matches the inputs that detectors declare in `NEEDS` with those of a target.

A detector is blind without an input in `must`, and sees less without one in `sharpens`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from vllm_watch.detectors.base import CLEAR, UNKNOWN, Verdict
from vllm_watch.samples.observation import Observation
from vllm_watch.signals.inputs import INPUTS, Inputs
from vllm_watch.signals.records import Sight
from vllm_watch.support import plugins


@dataclass(frozen=True, slots=True)
class Need:
    """Alternative inputs, and the consequence if all of them are missing."""

    any_of: tuple[str, ...]
    without: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The needs of one detector."""

    must: tuple[Need, ...] = ()
    sharpens: tuple[Need, ...] = ()


@cache
def needs_of_all() -> Mapping[str, Needs]:
    """Return the needs of all detectors, keyed by slug."""
    kinds = (("Settings", "Detector"), ("Settings", "HostDetector"))
    found = [m for each in kinds for m in plugins.modules("vllm_watch.detectors", each)]
    return {plugins.slug(module): getattr(module, "NEEDS", Needs()) for module in found}


def sight(needs: Needs, inputs: Inputs) -> Sight:
    """Return how well a detector sees with these inputs."""
    lost = [need for need in needs.must if _lost(need, inputs)]
    if lost and inputs.why_not is not None:
        return Sight("blind", inputs.why_not)
    if lost:
        return Sight("blind", _text(lost, inputs))
    if any(_lost(need, inputs) is None for need in needs.must):
        return Sight("unknown", "too few scrapes yet to know this server's metrics")
    dull = [need for need in needs.sharpens if _lost(need, inputs)]
    return Sight("partly", _text(dull, inputs)) if dull else Sight("sees", "")


def _lost(need: Need, inputs: Inputs) -> bool | None:
    said = [inputs.missing(name, None) for name in need.any_of]
    if False in said:
        return False
    return None if None in said else True


def _text(lost: Sequence[Need], inputs: Inputs) -> str:
    said, fixes = [], []
    for need in lost:
        what = " and no ".join(INPUTS[name].label for name in need.any_of)
        said.append(f"no {what}{_where(need, inputs)}: {need.without}")
        fixes += [INPUTS[name].mend for name in need.any_of]
    return "; ".join(said) + ". To fix: " + "; ".join(dict.fromkeys(fixes)) + "."


def _where(need: Need, inputs: Inputs) -> str:
    engines = inputs.engines
    without = [e for e in engines if all(inputs.missing(name, e) for name in need.any_of)]
    if 0 < len(without) < len(engines):
        return f" of engine {', '.join(without)}"
    return ""


class Sights:
    """How well each detector of one target sees."""

    def __init__(self, slugs: Iterable[str] | None = None) -> None:
        known = needs_of_all()
        self._needs = {
            each: known.get(each, Needs()) for each in (known if slugs is None else slugs)
        }
        self._inputs = Inputs()
        self._revision = -1
        self.known: dict[str, Sight] = {}
        self._clear: dict[str, dict[str | None, bool]] = defaultdict(dict)

    def look(self, at_s: float, observation: Observation) -> None:
        self._inputs.look(at_s, observation)
        if self._inputs.revision != self._revision:
            self._revision = self._inputs.revision
            self.known = {slug: sight(needs, self._inputs) for slug, needs in self._needs.items()}
            self._clear.clear()

    def believed(self, slug: str, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
        clear, needs = self._clear[slug], self._needs[slug]
        if not needs.must:
            return verdicts
        believed = []
        for verdict in verdicts:
            engine = verdict.engine
            if engine not in clear:
                now = self._inputs.now
                clear[engine] = all(
                    any(now(name, engine) for name in need.any_of) for need in needs.must
                )
            # A missing input, such as a lost GPU, may itself be the finding.
            finding = verdict.state != CLEAR and engine is None
            sure = clear[engine] or finding or verdict.state == UNKNOWN
            believed.append(verdict if sure else replace(verdict, state=UNKNOWN))
        return believed
