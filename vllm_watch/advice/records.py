"""Evidence for advice, over minutes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sizes:
    """A histogram: ascending bounds, cumulative counts."""

    count: float
    sum: float | None
    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.sum is not None and self.count > 0 else None

    @property
    def longest(self) -> float | None:
        """Upper bound; None beyond the last finite one."""
        for bound, below in zip(self.bounds, self.cumulative, strict=True):
            if below >= self.count > 0:
                return bound if bound != float("inf") else None
        return None

    def shortest(self, share: float) -> float:
        """Largest bound exceeded by all but this share, or 0."""
        found = 0.0
        for bound, below in zip(self.bounds, self.cumulative, strict=True):
            if self.count <= 0 or below > share * self.count:
                break
            found = bound
        return found


@dataclass(frozen=True, slots=True)
class HostGpus:
    """Over all scrapes. Bytes are those of the GPU with the least."""

    names: tuple[str | None, ...]  # of the engine's GPUs
    total_bytes: int
    free_bytes: int
    idle: int  # of the same name, unused in all scrapes


@dataclass(frozen=True, slots=True)
class AttentionBackend:
    """One backend in the engine's log."""

    name: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Over `seconds`. None: rules that need it stay silent."""

    engine: str
    seconds: float = 0.0
    scrapes: int = 0
    engines: int = 1
    config: Mapping[str, str] = field(default_factory=dict)  # cache_config_info
    max_model_len: int | None = None
    capacity_tokens: float | None = None
    full_ratio: float | None = None  # share of scrapes
    waiting_ratio: float | None = None  # share of scrapes
    short_ratio: float | None = None
    running_full: float | None = None
    running_max: float | None = None
    finished: float | None = None
    preemptions: float | None = None
    prompts: Sizes | None = None
    generations: Sizes | None = None
    media_hit_ratio: float | None = None  # of the multi-modal cache
    external_hit_ratio: float | None = None  # of a KV connector
    gpus: HostGpus | None = None
    attention: AttentionBackend | None = None

    def setting(self, name: str) -> str | None:
        """Return None if absent or "None"."""
        value = self.config.get(name)
        return None if value in (None, "", "None") else value
