"""The identity of the process to restart. It is compared again right before the hook call."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_watch.samples.target import Target
from vllm_watch.signals.records import TargetSignals


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One server process in one scrape; None or empty means unknown."""

    address: str = ""  # host:port
    pod: str = ""  # NAMESPACE/NAME
    pids: tuple[int, ...] = ()  # of its engines on this host
    start_time: float | None = None  # Unix seconds; of the last process that answered
    restarts: int | None = None  # number of counter resets, over all engines
    up: bool = False
    version: str | None = None
    models: tuple[str, ...] = ()  # from /v1/models; adapters last

    @classmethod
    def of(
        cls, target: Target | None, signals: TargetSignals | None, pids: Iterable[int] = ()
    ) -> "Process":
        engines = {} if signals is None else signals.engines
        counted = [engine.restarts for engine in engines.values()]
        return cls(
            address="" if target is None else target.host_and_port,
            pod="" if target is None or not target.pod else f"{target.namespace}/{target.pod}",
            pids=tuple(sorted(pids)),
            start_time=None if signals is None else signals.process_start_time,
            restarts=sum(counted) if counted else None,
            up=signals is not None and signals.up,
            version=None if signals is None else signals.version,
            models=() if signals is None else signals.models,
        )

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Process":
        """Parse a journal entry. Raises TypeError or KeyError if malformed."""
        return cls(**{**kept, "pids": tuple(kept["pids"]), "models": tuple(kept["models"])})

    def is_same(self, now: "Process") -> bool | None:
        """Return True if `now` (from a later scrape) is the same process, or None if that is unknown."""
        starts = self.start_time, now.start_time
        if None not in starts:
            return starts[0] == starts[1]
        if starts != (None, None):
            return None
        if self.pids and now.pids:
            return not set(self.pids).isdisjoint(now.pids)
        if None not in (self.restarts, now.restarts):
            return self.restarts == now.restarts
        return None if now.up else True
