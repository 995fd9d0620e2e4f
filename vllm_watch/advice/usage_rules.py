"""Advice from an engine's usage."""

import math
from collections.abc import Iterator

from vllm_watch.advice.memory_rules import MINUTES_SECONDS
from vllm_watch.advice.records import Evidence
from vllm_watch.signals.holders.words import seconds
from vllm_watch.signals.records import Advice

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
    prompts, generations = evidence.prompts, evidence.generations
    if limit is None or capacity is None or prompts is None or generations is None:
        return
    if evidence.seconds < HALF_HOUR_SECONDS or prompts.count < REQUESTS_MIN:
        return
    if prompts.longest is None or generations.longest is None:
        return
    longest = prompts.longest + generations.longest
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
    prompts = evidence.prompts
    if prompts is None or prompts.mean is None or prompts.count < REQUESTS_MIN:
        return None
    common = prompts.shortest(FEW_RATIO)
    if common < ALIKE_TOKENS or common < ALIKE_RATIO * prompts.mean or not math.isfinite(common):
        return None
    return f"of {prompts.count:.0f} prompts hardly one was shorter than {common:,.0f} tokens, {prompts.mean:,.0f} on average: they probably share a prefix, such as a system prompt"
