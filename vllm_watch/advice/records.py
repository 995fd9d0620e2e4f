"""Evidence for advice, from observations of an engine and from its log."""

import re
from collections.abc import Iterable, Mapping
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


# Source: vllm/platforms/cuda.py and attention/selector.py, vLLM 0.4 to 0.32.
_NAMES = (
    (re.compile(r"Using (XFormers|Flash Attention|FlashAttention(?:-\d)?|FlashInfer|Triton|FlexAttention|Torch SDPA) backend", re.IGNORECASE), 1),
    (re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) (?:attention )?backend"), 1),
)  # fmt: skip
_REASON = re.compile(r"(Cannot use FlashAttention[^\n]*)")
_WORDS = {
    "xformers": "XFORMERS", "torch sdpa": "TORCH_SDPA", "flexattention": "FLEX_ATTENTION",
    "flash attention": "FLASH_ATTN", "flashinfer": "FLASHINFER", "triton": "TRITON_ATTN",
}  # fmt: skip
_REASON_CHARACTERS = 200


def backend_name(word: str) -> str:
    """Return vLLM's identifier for a backend's name in a log."""
    small = word.lower()
    return _WORDS.get(small, "FLASH_ATTN" if small.startswith("flashattention") else word)


def attention_of(lines: Iterable[str]) -> AttentionBackend | None:
    """Return the last backend that the log names, or None."""
    name, reason = None, None
    for line in lines:
        refused = _REASON.search(line)
        if refused:
            reason = refused[1].strip()[:_REASON_CHARACTERS].rstrip(".")
        for pattern, group in _NAMES:
            found = pattern.search(line)
            if found:
                name = backend_name(found[group])
                break
    return None if name is None else AttentionBackend(name, reason)
