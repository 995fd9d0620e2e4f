"""The process that ran before this one under the same name, and what its steps took."""

from collections.abc import Mapping

from vllm_watch.signals.step_model import StepModel

FORMER_WORK_SECONDS = 900.0
"""A process that did less work has met few loads: one before it that did more is remembered in its place."""

_FOUND_OUT = frozenset(("num_gpu_blocks", "num_cpu_blocks"))

Fingerprint = tuple[str | None, Mapping[str, str] | None]
"""Model and configuration; None is unknown."""

Models = Mapping[frozenset[str], StepModel]
"""What is known of steps, by what sets their blocks apart (`Block.apart`)."""


class Former:
    """Remembered as long as what follows is set up alike."""

    def __init__(self) -> None:
        self.models: Models = {}
        self.ended = 0  # processes that were seen to end

    def end(self, models: Models, before: Fingerprint, now: Fingerprint) -> None:
        """A process has ended of which `models` are known."""
        self.ended += 1
        ready = {each: model for each, model in models.items() if model.ready}
        enough_s = min(FORMER_WORK_SECONDS, _worked_seconds(self.models))
        if ready and _worked_seconds(ready) >= enough_s:
            self.models = ready
        if differ(_setup(now), _setup(before)):
            self.models = {}


def differ(now: Fingerprint, before: Fingerprint) -> bool:
    """Is one of the two known to be another?"""
    return any(b is not None and a is not b and a != b for a, b in zip(now, before, strict=True))


def _worked_seconds(models: Models) -> float:
    return sum(model.seconds for model in models.values())


def _setup(fingerprint: Fingerprint) -> Fingerprint:
    """What was asked for. How many blocks fit is found out at each start and differs by a few: two digits are enough."""
    model, info = fingerprint
    if info is None:
        return fingerprint
    return model, {k: _rounded(v) if k in _FOUND_OUT else v for k, v in info.items()}


def _rounded(count: str) -> str:
    try:
        return f"{float(count):.1e}"
    except ValueError:
        return count
