"""Identifies the process behind an engine's name."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import ServerSample
from vllm_watch.signals import stored

AWAY_SECONDS_MAX = 600.0
"""Over a longer gap, between two polls or without a watcher, process, clock and requests may differ,
and a new process may reach the old counters. Only learnt values survive it. An update of the watcher
takes less."""

_MEASURED = frozenset(("num_gpu_blocks", "num_cpu_blocks"))
"""vLLM measures the sizes in these labels at each start."""

UNKNOWN_SERVER = ServerSample()


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Identity of an engine's process, from its metrics. Unknown values are None."""

    created_time: float | None
    process_start_time: float | None
    counters: tuple[float | None, ...]  # steps, generated and prompt tokens
    config: str
    model: str  # digest of the configuration without measured sizes
    version: str | None
    max_model_len: float | None

    def goes_on_as(self, now: "Life", away_seconds: float) -> bool:
        if self.config != now.config or not self.is_of_one_kind_with(now):
            return False
        told = self._same_start(now) is not None
        return not self.ended_before(now) and (told or away_seconds <= AWAY_SECONDS_MAX)

    def ended_before(self, now: "Life") -> bool:
        same_start = self._same_start(now)
        return fell(self.counters, now.counters) if same_start is None else not same_start

    def _same_start(self, now: "Life") -> bool | None:
        starts = self.created_time, self.process_start_time
        for then, new in zip(starts, (now.created_time, now.process_start_time), strict=True):
            if then is not None and new is not None:
                return then == new
        return None

    def is_of_one_kind_with(self, other: "Life") -> bool:
        known = ((self.version, other.version), (self.max_model_len, other.max_model_len))
        return self.model == other.model and not any(
            a is not None and b is not None and a != b for a, b in known
        )

    def export_state(self) -> dict[str, Any]:
        return stored.export(self, _KEPT)

    @classmethod
    def restore(cls, state: stored.Stored) -> "Life":
        return cls(**stored.checked(state, _KEPT))


def fell(then: Iterable[float | None], now: Iterable[float | None]) -> bool:
    """Return True if a counter that is known at both times fell."""
    return any(a is not None and b is not None and b < a for a, b in zip(then, now, strict=True))


def never_falling(sample: EngineSample) -> tuple[float | None, ...]:
    """Return counters that decrease only by a reset: steps, generated and prompt tokens."""
    steps = sample.iteration_tokens
    return None if steps is None else steps.count, sample.generation_tokens, sample.prompt_tokens


def _counters(state: Any) -> tuple[float | None, ...]:
    steps, generated, prompted = map(stored.number_or_none, state)
    return steps, generated, prompted


_KEPT: stored.Fields = {
    "created_time": stored.number_or_none,
    "process_start_time": stored.number_or_none,
    "counters": _counters,
    "config": stored.text,
    "model": stored.text,
    "version": stored.text_or_none,
    "max_model_len": stored.number_or_none,
}


def life_of(sample: EngineSample, server: ServerSample = UNKNOWN_SERVER) -> Life:
    """Return the identity of the engine's process at one poll."""
    started = sample.process_start_time
    return Life(
        created_time=sample.created_time,
        process_start_time=server.process_start_time if started is None else started,
        counters=never_falling(sample),
        config=_digest(sample.model_name, sample.cache_config_info),
        model=model_of(sample),
        version=server.version,
        max_model_len=server.max_model_len,
    )


def model_of(sample: EngineSample) -> str:
    """Return a digest of model and configuration."""
    config = sample.cache_config_info
    told = None if config is None else {k: v for k, v in config.items() if k not in _MEASURED}
    return _digest(sample.model_name, told)


def _digest(model_name: str | None, config: Mapping[str, str] | None) -> str:
    what = repr((model_name, None if config is None else sorted(config.items())))
    return hashlib.sha256(what.encode()).hexdigest()[:16]
