"""Data types that describe the /metrics of a vLLM release."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

INF = float("inf")

TOKEN_COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, INF)
"""Bucket bounds in 1-2-5 steps, up to the simulation's maximum length of 8,192 tokens."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family and the field of EngineSample that it exports."""

    name: str  # counters end with _total
    type: str  # "gauge" | "counter" | "histogram" | "info"
    field: str
    help: str
    label: str = ""
    bounds: tuple[float, ...] = ()
    server_wide: bool = False  # one series for all engines


@dataclass(frozen=True)
class Release:
    """One vLLM release in one mode of serving."""

    version: str
    engine_kind: str  # "V0" | "V1"
    families: tuple[Family, ...]
    cache_config: Mapping[str, str]  # labels of cache_config_info, equal for all engines
    finished_reasons: tuple[str, ...]  # their series exist from the start
    engine_label: bool = True
    http: bool = True  # with http_* families
    multiprocess: bool = False  # several processes share one registry

    @cached_property
    def bounds(self) -> Mapping[str, tuple[float, ...]]:
        return {f.field: f.bounds for f in self.families if f.type == "histogram"}
