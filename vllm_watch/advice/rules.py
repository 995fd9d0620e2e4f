"""Evidence for advice, from observations of an engine and from its log, and the rules: memory, hardware and usage."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from vllm_watch.samples.engine import Histogram
from vllm_watch.signals.records import Advice
from vllm_watch.support.quantities import seconds, size


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
    prompts: Histogram | None = None  # tokens
    generations: Histogram | None = None  # tokens
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


MINUTES_SECONDS = 600.0
"""Minimum seconds of observation. A one-minute burst does not justify a restart with other flags."""

SHORT_RATIO = 0.1
"""Advice is given if the cache is full and requests wait in at least this share of scrapes."""

UTILIZATION_MAX = 0.92
"""Maximum --gpu-memory-utilization to advise, vLLM's default since 0.20. CUDA graphs need memory, too."""

GAIN_RATIO = 0.05
"""Minimum gain as a share of the GPU's memory. A smaller gain is not worth a restart."""

PREEMPTIONS_MIN, PREEMPTED_RATIO = 20.0, 0.02
"""At least this many preemptions are needed, in total and per finished request. Users notice if one request in fifty starts over."""

HEADROOM_RATIO = 0.9
"""The suggested limit is at least this share of the requests that ran with a full cache. The share is below 1, because requests still grow."""

FULL_WITH_FEW_RATIO = 0.5
"""If the running requests are fewer than this share of those that would fit, a few long requests fill the cache."""

_STEPS = 100
_RUNNING_MIN = 2.0


def kv_starved(evidence: Evidence) -> Iterator[Advice]:
    """Advise if the cache is full and requests wait, but the GPU has unused memory."""
    share, gpus = _number(evidence.setting("gpu_memory_utilization")), evidence.gpus
    if share is None or gpus is None or evidence.setting("kv_cache_memory_bytes") is not None:
        return
    if evidence.setting("num_gpu_blocks_override") is not None or evidence.engines > 1:
        return
    if not _is_short(evidence):
        return
    spare = gpus.free_bytes / gpus.total_bytes - (1 - UTILIZATION_MAX)
    better = math.floor(min(UTILIZATION_MAX, share + spare) * _STEPS) / _STEPS
    if better - share < GAIN_RATIO:
        return
    yield Advice(
        "kv_starved", evidence.engine, "--gpu-memory-utilization", f"{better:g}",
        f"the KV cache was full with requests waiting at {evidence.short_ratio or 0:.0%} of {evidence.scrapes} scrapes in {seconds(evidence.seconds)}, while {size(gpus.free_bytes)} of {size(gpus.total_bytes)} were free on the GPU at all times (--gpu-memory-utilization {share:g})",
        f"gives the KV cache about {size((better - share) * gpus.total_bytes)} more per GPU",
        evidence.seconds,
    )  # fmt: skip


def preemptions(evidence: Evidence) -> Iterator[Advice]:
    """Advise if the running requests outgrow the cache."""
    thrown, finished = evidence.preemptions, evidence.finished
    if thrown is None or finished is None or evidence.seconds < MINUTES_SECONDS:
        return
    if thrown < PREEMPTIONS_MIN or thrown < PREEMPTED_RATIO * max(1.0, finished):
        return
    if next(kv_starved(evidence), None) is not None:
        return  # more memory is the better cure
    fitting = _fitting(evidence)
    if fitting is None or evidence.running_max is None or fitting >= evidence.running_max:
        return  # a lower limit does not help against few long requests
    doubled = "" if evidence.setting("cache_dtype") not in ("auto", None) else "; or --kv-cache-dtype fp8, which holds twice the tokens at a little less precision"  # fmt: skip
    yield Advice(
        "preemptions", evidence.engine, "--max-num-seqs", str(fitting),
        f"{thrown:.0f} preemptions while {finished:.0f} requests finished in {seconds(evidence.seconds)}; up to {evidence.running_max:.0f} ran at once and the KV cache of {evidence.capacity_tokens or 0:,.0f} tokens is full with {evidence.running_full or 0:.0f}",
        f"requests wait a little instead of being thrown out half done{doubled}",
        evidence.seconds,
    )  # fmt: skip


def _is_short(evidence: Evidence) -> bool:
    return evidence.seconds >= MINUTES_SECONDS and (evidence.short_ratio or 0.0) >= SHORT_RATIO


def _fitting(evidence: Evidence) -> int | None:
    prompt, generation = _mean(evidence.prompts), _mean(evidence.generations)
    if prompt is None or generation is None or evidence.capacity_tokens is None:
        return None
    if not evidence.running_full:
        return None
    by_length = evidence.capacity_tokens / max(1.0, prompt + generation)
    if evidence.running_full < FULL_WITH_FEW_RATIO * by_length:
        return None
    found = math.floor(max(by_length, HEADROOM_RATIO * evidence.running_full))
    return found if found >= _RUNNING_MIN else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value <= 1 else None


WAITING_RATIO = 0.5
"""Advice is given if requests wait in at least this share of scrapes. An engine that has a queue half of the time needs more capacity."""

_RANKS = (2, 4, 8, 16)
_FALLBACKS = ("XFORMERS", "TORCH_SDPA", "FLEX_ATTENTION")
"""Slow backends that vLLM uses if it cannot use FlashAttention."""

_BEFORE_AMPERE = ("T4", "V100", "P100", "P40", "P4", "RTX 20", "GTX")
"""Cards that FlashAttention does not support."""


def gpus_idle(evidence: Evidence) -> Iterator[Advice]:
    """Advise if requests wait for a single GPU while other GPUs of the host are idle."""
    gpus, waits = evidence.gpus, evidence.waiting_ratio
    if gpus is None or waits is None or evidence.seconds < MINUTES_SECONDS:
        return
    if len(gpus.names) != 1 or evidence.engines > 1 or gpus.idle < 1 or waits < WAITING_RATIO:
        return
    count = max((each for each in _RANKS if each <= 1 + gpus.idle), default=2)
    full = (evidence.full_ratio or 0.0) >= SHORT_RATIO
    flag = "--tensor-parallel-size" if full else "--data-parallel-size"
    why = (
        "weights and KV cache are spread over them, which leaves several times the space for requests"
        if full
        else "a replica on each serves as many times the requests; --tensor-parallel-size would make each answer faster instead"
    )
    yield Advice(
        "gpus_idle", evidence.engine, flag, str(count),
        f"requests waited at {waits:.0%} of {evidence.scrapes} scrapes in {seconds(evidence.seconds)}, the engine runs on one GPU ({gpus.names[0] or 'name unknown'}), and {gpus.idle} more of this host were idle all the time",
        why, evidence.seconds,
    )  # fmt: skip


def attention_fallback(evidence: Evidence) -> Iterator[Advice]:
    """Advise if vLLM logged a slower attention backend than this card supports."""
    backend = evidence.attention
    if backend is None or backend.name.upper() not in _FALLBACKS:
        return
    names = evidence.gpus.names if evidence.gpus else ()
    if any(old in f"{name} " for name in names for old in _BEFORE_AMPERE):
        return
    because = f": {backend.reason}" if backend.reason else ""
    yield Advice(
        "attention_fallback", evidence.engine, "--attention-backend", "FLASH_ATTN",
        f"the engine's log shows {backend.name} attention{because}",
        "FlashAttention is several times faster at long contexts; before vLLM 0.13 set VLLM_ATTENTION_BACKEND=FLASH_ATTN; the log has the reason for the fallback",
        evidence.seconds,
    )  # fmt: skip


HALF_HOUR_SECONDS = 1800.0
"""Minimum seconds of observation. Long requests are rare, so a few minutes prove little."""

REQUESTS_MIN = 200.0
"""At least this many requests are needed. Fewer prove little about users."""

FAR_BEYOND = 8.0
"""Advice is given if max_model_len is at least this many times the longest request. Later requests may be several times longer."""

HELD_RATIO = 0.25
"""Advice is given if one request of full length would hold at least this share of the KV cache. A smaller share does no harm."""

HIT_RATIO = 0.2
"""If a multi-modal or external cache has at least this hit ratio, prompts probably repeat."""

ALIKE_TOKENS, FEW_RATIO, ALIKE_RATIO = 500.0, 0.01, 0.5
"""Prompts probably share a prefix if at most FEW_RATIO of them are short: below ALIKE_TOKENS, or below ALIKE_RATIO of the mean length."""

_ROUND_TOKENS = 1024


def context_unused(evidence: Evidence) -> Iterator[Advice]:
    """Advise if max_model_len is far above the length of all requests."""
    limit, capacity = evidence.max_model_len, evidence.capacity_tokens
    prompts = evidence.prompts
    prompt, generation = _longest(prompts), _longest(evidence.generations)
    if limit is None or capacity is None or prompts is None or prompts.count < REQUESTS_MIN:
        return
    if evidence.seconds < HALF_HOUR_SECONDS or prompt is None or generation is None:
        return
    longest = prompt + generation
    if limit < FAR_BEYOND * longest or limit < HELD_RATIO * capacity:
        return
    value = math.ceil(2 * longest / _ROUND_TOKENS) * _ROUND_TOKENS
    yield Advice(
        "context_unused", evidence.engine, "--max-model-len", str(value),
        f"none of {prompts.count:.0f} requests in {seconds(evidence.seconds)} was longer than {longest:,.0f} tokens, and --max-model-len is {limit:,}",
        f"vLLM keeps nothing back for it, but one request of that length would hold {min(1.0, limit / capacity):.0%} of the KV cache from all others",
        evidence.seconds,
    )  # fmt: skip


def prefix_caching_off(evidence: Evidence) -> Iterator[Advice]:
    """Advise if prompts probably repeat, and prefix caching is off."""
    if evidence.setting("enable_prefix_caching") != "False" or evidence.seconds < MINUTES_SECONDS:
        return
    if evidence.setting("is_attention_free") == "True" or evidence.setting("mamba_block_size"):
        return  # some releases do not support it for these models
    seen = _repeats(evidence)
    if seen is None:
        return
    yield Advice(
        "prefix_caching_off", evidence.engine, "--enable-prefix-caching", None,
        f"prefix caching is off, and {seen} (in {seconds(evidence.seconds)})",
        "a common prefix is then computed once; it takes no memory from requests",
        evidence.seconds,
    )  # fmt: skip


def _repeats(evidence: Evidence) -> str | None:
    for what, ratio in (("images", evidence.media_hit_ratio), ("prompts", evidence.external_hit_ratio)):  # fmt: skip
        if ratio is not None and ratio >= HIT_RATIO:
            return f"{ratio:.0%} of {what} were already in another cache"
    prompts, mean = evidence.prompts, _mean(evidence.prompts)
    if prompts is None or mean is None or prompts.count < REQUESTS_MIN:
        return None
    common = 0.0
    for bound, below in zip(prompts.bounds, prompts.cumulative, strict=True):
        if below > FEW_RATIO * prompts.count:
            break
        common = bound
    if common < ALIKE_TOKENS or common < ALIKE_RATIO * mean or not math.isfinite(common):
        return None
    return f"of {prompts.count:.0f} prompts hardly one was shorter than {common:,.0f} tokens, {mean:,.0f} on average: they probably share a prefix, such as a system prompt"


def _mean(sizes: Histogram | None) -> float | None:
    if sizes is None or sizes.sum is None or sizes.count <= 0:
        return None
    return sizes.sum / sizes.count


def _longest(sizes: Histogram | None) -> float | None:
    """Return an upper bound of the longest request, or None if unknown."""
    if sizes is not None:
        for bound, below in zip(sizes.bounds, sizes.cumulative, strict=True):
            if below >= sizes.count > 0:
                return bound if bound != float("inf") else None
    return None


RULES: tuple[Callable[[Evidence], Iterator[Advice]], ...] = (
    kv_starved, preemptions, gpus_idle, prefix_caching_off, context_unused, attention_fallback,
)  # fmt: skip
