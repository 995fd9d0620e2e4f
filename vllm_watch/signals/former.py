"""Keeps the step times of the previous process."""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_watch.signals import stored
from vllm_watch.signals.step_model import StepModel

FORMER_WORK_SECONDS = 900.0
"""The models of a process with this much work replace those of the previous process. Models with
less work replace only models that learnt from at most as much."""

NEAR = 1.2
"""For one model, the cache sizes of two releases differ by at most this factor. Different models differ far more."""

_FOUND_OUT = frozenset(("num_gpu_blocks", "num_cpu_blocks"))

Fingerprint = tuple[str | None, Mapping[str, str] | None]

Models = Mapping[frozenset[str], StepModel]


class Former:
    """Keeps a process's step models for successors with the same configuration."""

    def __init__(self) -> None:
        self.models: Models = {}
        self.version: str | None = None
        self.version_now: str | None = None
        self.ended = 0
        self.surpassed = False  # the current process is far slower

    def end(self, models: Models, before: Fingerprint, now: Fingerprint) -> None:
        self.ended += 1
        ready = {each: model for each, model in models.items() if model.ready}
        enough_s = min(FORMER_WORK_SECONDS, _worked_seconds(self.models))
        if ready and _worked_seconds(ready) >= enough_s and not self.surpassed:
            self.models, self.version = ready, self.version_now
        self.surpassed = False
        if not _set_up_alike(before, now):
            self.models = {}

    def export_state(self) -> dict[str, Any]:
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
        if state:
            model, version = StepModel(), stored.text_or_none(state["version"])
            model.restore(state["model"])
            self.surpassed = stored.flag(state["surpassed"])
            self.models, self.version = {frozenset(stored.texts(state["apart"])): model}, version


def differ(now: Sequence[Any], before: Sequence[Any]) -> bool:
    """Return True if a value that was known before has changed."""
    return any(b is not None and a is not b and a != b for a, b in zip(now, before, strict=True))


def _worked_seconds(models: Models) -> float:
    return sum(model.seconds for model in models.values())


def _set_up_alike(before: Fingerprint, now: Fingerprint) -> bool:
    if differ(now[:1], before[:1]) or before[1] is None or now[1] is None:
        return not differ(now[:1], before[:1])
    return all(
        _near(value, now[1][key]) if key in _FOUND_OUT else value == now[1][key]
        for key, value in before[1].items()
        if key in now[1]
    )


def _near(before: str, now: str) -> bool:
    try:
        return max(float(before), float(now)) <= NEAR * min(float(before), float(now))
    except ValueError:
        return before == now
