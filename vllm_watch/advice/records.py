"""Evidence for advice, from observations of an engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sizes:
    """Request lengths in tokens, as a cumulative histogram with ascending bounds."""

    count: float
    sum: float | None
    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.sum is not None and self.count > 0 else None

    @property
    def longest(self) -> float | None:
        """Return an upper bound of the longest request, or None if unknown."""
        for bound, below in zip(self.bounds, self.cumulative, strict=True):
            if below >= self.count > 0:
                return bound if bound != float("inf") else None
        return None

    def shortest(self, share: float) -> float:
        """Return the largest bound that includes at most this share of the requests, or 0."""
        found = 0.0
        for bound, below in zip(self.bounds, self.cumulative, strict=True):
            if self.count <= 0 or below > share * self.count:
                break
            found = bound
        return found


@dataclass(frozen=True, slots=True)
class HostGpus:
    """GPUs of the engine's host. The bytes describe the GPU with the least free memory."""

    names: tuple[str | None, ...]  # of the engine's GPUs
    total_bytes: int
    free_bytes: int
    idle: int  # GPUs of the same name, unused in all scrapes


@dataclass(frozen=True, slots=True)
class AttentionBackend:
    """The engine's attention backend."""

    name: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One engine's observations over `seconds`. None means unknown."""

    engine: str
    seconds: float = 0.0
    scrapes: int = 0
    engines: int = 1  # on the same server
    config: Mapping[str, str] = field(default_factory=dict)  # vLLM's cache_config_info
    max_model_len: int | None = None
    capacity_tokens: float | None = None
    full_ratio: float | None = None  # share of scrapes with a full KV cache
    waiting_ratio: float | None = None  # share of scrapes with requests waiting
    short_ratio: float | None = None  # share of scrapes with a full cache and requests waiting
    running_full: float | None = None  # mean running requests while the cache was full
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
        value = self.config.get(name)
        return None if value in (None, "", "None") else value
