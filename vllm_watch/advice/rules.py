"""All rules."""

from collections.abc import Callable, Iterator

from vllm_watch.advice.hardware_rules import attention_fallback, gpus_idle
from vllm_watch.advice.memory_rules import kv_starved, preemptions
from vllm_watch.advice.records import Evidence
from vllm_watch.advice.usage_rules import context_unused, prefix_caching_off
from vllm_watch.signals.records import Advice

RULES: tuple[Callable[[Evidence], Iterator[Advice]], ...] = (
    kv_starved, preemptions, gpus_idle, prefix_caching_off, context_unused, attention_fallback,
)  # fmt: skip
