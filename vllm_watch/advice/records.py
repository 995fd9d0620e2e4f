"""What advice is made from: what was seen of an engine over minutes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths of requests, as a histogram tells them: bounds ascending, counts at or under each."""

    count: float
    sum: float | None
    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.sum is not None and self.count > 0 else None

    @property
    def longest(self) -> float | None:
        """An upper bound of the longest; None where it is beyond the last finite bound."""
        for bound, below in zip(self.bounds, self.cumulative, strict=True):
            if below >= self.count > 0:
                return bound if bound != float("inf") else None
        return None

    def shortest(self, share: float) -> float:
        """The largest bound that all but this share exceed; 0 where there is none."""
        found = 0.0
        for bound, below in zip(self.bounds, self.cumulative, strict=True):
            if self.count <= 0 or below > share * self.count:
                break
            found = bound
        return found


@dataclass(frozen=True, slots=True)
class HostGpus:
    """The GPUs of the engine's host, over all looks. Bytes are of the GPU where they are least."""

    names: tuple[str | None, ...]  # of the GPUs that the engine runs on
    total_bytes: int
    free_bytes: int
    idle: int  # GPUs of the same name that nobody used at any look


@dataclass(frozen=True, slots=True)
class AttentionBackend:
    """What the engine's log says of its attention kernels."""

    name: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One engine over `seconds`. None is unknown: rules that need it are silent."""

    engine: str
    seconds: float = 0.0
    looks: int = 0
    engines: int = 1  # of the server
    config: Mapping[str, str] = field(default_factory=dict)  # vLLM's cache_config_info
    max_model_len: int | None = None
    capacity_tokens: float | None = None
    full_ratio: float | None = None  # share of looks at which the KV cache was full
    waiting_ratio: float | None = None  # share of looks at which requests waited
    short_ratio: float | None = None  # share of looks at which both were so
    running_full: float | None = None  # mean of requests that ran while it was full
    running_max: float | None = None
    finished: float | None = None
    preemptions: float | None = None
    prompts: Sizes | None = None
    generations: Sizes | None = None
    media_hit_ratio: float | None = None  # of images and the like, which have a cache of their own
    external_hit_ratio: float | None = None  # of a KV connector
    gpus: HostGpus | None = None
    attention: AttentionBackend | None = None

    def setting(self, name: str) -> str | None:
        """A value of vLLM's configuration; None where it is not said or "None"."""
        value = self.config.get(name)
        return None if value in (None, "", "None") else value
