"""Compares an engine's throughput with the usual throughput.

Generated and prompt tokens have separate ratios. The greater ratio is used, because a changed
workload raises one and lowers the other.
"""

from math import exp
from typing import Any

from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block
from vllm_watch.signals.scales import ALIKE, BRIEF_SECONDS, HOUR_SECONDS, ODD_TIMES
from vllm_watch.signals.step_model import READY_SECONDS

LEARNT_SECONDS = 600.0
"""The usual value of a detector is known after this many seconds."""


class Mean:
    """A time-weighted average. Old values fade after `memory` seconds."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self.weight = 0.0
        self.value = 0.0

    def add(self, value: float, seconds: float) -> None:
        self.weight = min(self._memory, self.weight + seconds)
        self.value += (value - self.value) * seconds / self.weight

    def export_state(self) -> list[float]:
        return [self.value, self.weight]

    def restore(self, state: Any, away_seconds: float) -> None:
        value, weight = stored.numbers(state, 2)
        self.weight = min(self._memory, max(0.0, weight - away_seconds))
        self.value = value if self.weight else 0.0


_MEANS = ("generated", "prompted", "running", "kv_usage", "finished", "finished_tokens")


class Throughput:
    """One engine's rates, when healthy and now."""

    def __init__(self) -> None:
        means = [Mean(HOUR_SECONDS) for _ in _MEANS]
        self.generated, self.prompted, self.running = means[:3]
        self.kv_usage, self.finished, self.finished_tokens = means[3:]
        self._now: tuple[float, float] | None = None  # smoothed: generated, prompted

    def export_state(self) -> dict[str, Any]:
        return {name: getattr(self, name).export_state() for name in _MEANS}

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        for name in _MEANS:
            getattr(self, name).restore(state[name], away_seconds)

    @property
    def ready(self) -> bool:
        return self.generated.weight >= READY_SECONDS

    def see(self, block: Block) -> None:
        now = block.generated, block.prompted or 0.0
        # Prompt tokens are counted only when a prefill ends.
        (generated, prompted), share = self._now or now, 1.0 - exp(-block.seconds / BRIEF_SECONDS)
        self._now = generated + (now[0] - generated) * share, prompted + (now[1] - prompted) * share

    def learn(self, block: Block) -> None:
        if block.running <= 0.0 and block.generated <= 0.0:
            return
        self.generated.add(block.generated, block.seconds)
        self.prompted.add(block.prompted or 0.0, block.seconds)
        self.running.add(block.running, block.seconds)
        if block.kv_usage is not None:
            self.kv_usage.add(block.kv_usage, block.seconds)
        if block.finished is not None and block.finished_tokens is not None:
            self.finished.add(block.finished / block.seconds, block.seconds)
            self.finished_tokens.add(block.finished_tokens / block.seconds, block.seconds)

    def ratio(self) -> float | None:
        if not self.ready or self._now is None:
            return None
        generated, prompted = self.generated.value, self.prompted.value
        ratio = self._now[0] / generated if generated > 0.0 else None
        if prompted > 0.0:
            other = self._now[1] / prompted
            return other if ratio is None or other > ratio else ratio
        return ratio

    def running_expected(self, kv_usage: float) -> float | None:
        if not self.ready or self.kv_usage.value <= 0.0:
            return None
        return kv_usage * self.running.value / self.kv_usage.value

    def crowds(self, block: Block) -> bool:
        """Return True if far more requests run than usual without a higher throughput. A slow engine made the requests pile up (Little's law)."""
        done, usual = self.ratio(), self.running_expected(block.kv_usage or 0.0)
        # With more KV cache, requests are longer than usual.
        if done is None or not usual or done > ALIKE:
            return False
        return block.running > ODD_TIMES * self.running.value and block.running * ALIKE >= usual

    def request_tokens(self) -> float | None:
        if self.finished.value <= 0.0 or self.finished_tokens.value <= 0.0:
            return None
        return self.finished_tokens.value / self.finished.value
