"""The process that ran before this one under the same name, and what its steps took."""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_watch.signals import stored
from vllm_watch.signals.step_model import StepModel

FORMER_WORK_SECONDS = 900.0
"""A process that did less work has met few loads: one before it that did more is remembered in its place."""

NEAR = 1.2
"""Another release needs up to so much more or less memory beside the cache; another model needs far more."""

_FOUND_OUT = frozenset(("num_gpu_blocks", "num_cpu_blocks"))

Fingerprint = tuple[str | None, Mapping[str, str] | None]
"""Model and configuration; None is unknown."""

Models = Mapping[frozenset[str], StepModel]
"""What is known of steps, by what sets their blocks apart (`Block.apart`)."""


class Former:
    """Remembered as long as what follows is set up alike."""

    def __init__(self) -> None:
        self.models: Models = {}
        self.version: str | None = None  # of vLLM, of the process that they are of
        self.version_now: str | None = None
        self.ended = 0  # processes that were seen to end
        self.surpassed = (
            False  # by the process of today: it takes far longer, and must not become the norm
        )

    def end(self, models: Models, before: Fingerprint, now: Fingerprint) -> None:
        """A process has ended of which `models` are known."""
        self.ended += 1
        ready = {each: model for each, model in models.items() if model.ready}
        enough_s = min(FORMER_WORK_SECONDS, _worked_seconds(self.models))
        if ready and _worked_seconds(ready) >= enough_s and not self.surpassed:
            self.models, self.version = ready, self.version_now
        self.surpassed = False
        if not _set_up_alike(before, now):
            self.models = {}

    def export_state(self) -> dict[str, Any]:
        """Return what is known of most of its steps as plain values."""
        if not self.models:
            return {}
        apart = max(self.models, key=lambda each: self.models[each].blocks)
        model = self.models[apart].export_state()
        return {
            "apart": sorted(apart),
            "model": model,
            "version": self.version,
            "surpassed": self.surpassed,
        }

    def restore(self, state: stored.Stored) -> None:
        """Go on with it. Raises one of stored.DAMAGE."""
        if state:
            model, version = StepModel(), stored.text_or_none(state["version"])
            model.restore(state["model"])
            self.surpassed = stored.flag(state["surpassed"])
            self.models, self.version = {frozenset(stored.texts(state["apart"])): model}, version


def differ(now: Sequence[Any], before: Sequence[Any]) -> bool:
    """Is one of the two known to be another?"""
    return any(b is not None and a is not b and a != b for a, b in zip(now, before, strict=True))


def _worked_seconds(models: Models) -> float:
    return sum(model.seconds for model in models.values())


def _set_up_alike(before: Fingerprint, now: Fingerprint) -> bool:
    """Return True if both were asked for the same, as far as both releases tell it."""
    if differ(now[:1], before[:1]) or before[1] is None or now[1] is None:
        return not differ(now[:1], before[:1])
    return all(
        _near(value, now[1][key]) if key in _FOUND_OUT else value == now[1][key]
        for key, value in before[1].items()
        if key in now[1]
    )


def _near(before: str, now: str) -> bool:
    """Return True if about as many blocks fit: that is measured at each start."""
    try:
        return max(float(before), float(now)) <= NEAR * min(float(before), float(now))
    except ValueError:
        return before == now
