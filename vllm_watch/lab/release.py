"""The /metrics of a vLLM release as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

INF = float("inf")

TOKEN_COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, INF)
"""1-2-5 up to the model's length, 8,192 here."""


@dataclass(frozen=True, slots=True)
class Family:
    """The field of EngineSample that a family exports; None: no samples. A labelled field's keys are values of `label`."""

    name: str  # counters with _total
    type: str  # "gauge" | "counter" | "histogram" | "info"
    field: str
    help: str
    label: str = ""
    bounds: tuple[float, ...] = ()
    server_wide: bool = False  # without an engine label


@dataclass(frozen=True)
class Release:
    """One release in one mode of serving."""

    version: str
    engine_kind: str  # "V0" | "V1"
    families: tuple[Family, ...]
    cache_config: Mapping[str, str]  # labels that do not depend on the engine
    finished_reasons: tuple[str, ...]  # 0 from the start
    engine_label: bool = True
    http: bool = True
    multiprocess: bool = False  # one registry: no process_*, no _created

    @cached_property
    def bounds(self) -> Mapping[str, tuple[float, ...]]:
        return {f.field: f.bounds for f in self.families if f.type == "histogram"}
