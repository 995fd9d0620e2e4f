"""Advice on unused hardware."""

from collections.abc import Iterator

from vllm_watch.advice.memory_rules import MINUTES_SECONDS, SHORT_RATIO
from vllm_watch.advice.records import Evidence
from vllm_watch.signals.holders.words import seconds
from vllm_watch.signals.records import Advice

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
