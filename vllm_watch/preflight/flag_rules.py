"""Rules for values of flags: numbers, choices, JSON. Source: vLLM's argument definitions."""

import re

from vllm_watch.preflight.facts import Facts
from vllm_watch.preflight.findings import PROBLEM, WARNING
from vllm_watch.support import json_text, vllm_flags

Numbers = tuple[int, ...]

OPTIONAL_VALUE = ("hf-token", "enable-chunked-prefill", "multi-step-stream-outputs")
"""Flags that may have a value."""
STORE_BOOLEAN = ("enable-chunked-prefill", "multi-step-stream-outputs")
"""Switches that took a value before 0.9.0."""
ALWAYS_SWITCHES = ("enforce-eager", "trust-remote-code", "enable-lora", "enable-auto-tool-choice")
"""Switches that never took a value."""
WITHOUT_NO = ("headless", "grpc", "data-parallel-multi-port-external-lb", "disable-log-stats", "aggregate-engine-logging")  # fmt: skip
"""Switches without a --no- form."""
ONLY_SWITCHES: Numbers = (0, 9, 0)
"""From this release on, no switch takes a value."""

INTEGERS = (
    "max-num-seqs", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "data-parallel-size-local",
    "decode-context-parallel-size", "block-size", "max-loras", "max-lora-rank", "max-logprobs", "seed", "api-server-count", "nnodes", "node-rank",
)  # fmt: skip
READABLE_INTEGERS = ("max-model-len", "max-num-batched-tokens")
_READABLE = re.compile(r"\d+(\.\d+)?[kmgt]|\d+[KMGT]")
READABLE_SINCE: Numbers = (0, 8, 0)
"""Before this release, 1k was refused. (Some later releases refuse it, too.)"""
AUTO_SINCE: Numbers = (0, 11, 0)
"""Before this release, --max-model-len auto was refused."""

CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
    "uvicorn-log-level": ("critical", "error", "warning", "info", "debug", "trace"),
    "scheduling-policy": ("fcfs", "priority"),
    "chat-template-content-format": ("auto", "openai", "string"),
    "logprobs-mode": ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"),
    "runner": ("auto", "generate", "pooling", "draft"),
    "convert": ("auto", "none", "embed", "classify", "reward", "mm_encoder_only"),
    "data-parallel-backend": ("mp", "ray"),
}
"""All values that any release takes."""
MEANT = {"fp16": "float16", "f16": "float16", "bf16": "bfloat16", "fp32": "float32", "f32": "float32"}  # fmt: skip
EXECUTORS = ("mp", "ray", "uni", "external_launcher")
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)

JSON_ALWAYS = ("allowed-origins", "allowed-methods", "allowed-headers", "hf-overrides", "kv-transfer-config", "speculative-config")  # fmt: skip
JSON_NOW = ("compilation-config", "limit-mm-per-prompt", "mm-processor-kwargs", "override-generation-config", "pooler-config",
            "structured-outputs-config")  # fmt: skip
JSON_SINCE: Numbers = (0, 11, 0)
"""Before this release, some of JSON_NOW had other spellings, such as image=2."""

ADAPTERS_LOADED_SINCE: Numbers = (0, 10, 0)
"""Before this release, vLLM may load the files of --lora-modules only when a request needs them."""


def status(facts: Facts, since: Numbers | None = None, before: Numbers | None = None) -> str | None:
    """Return PROBLEM if the rule holds in this release, WARNING if that is unknown, else None."""
    release, newest = facts.release, vllm_flags.table()[1][-1]
    if release is None:
        unknown = facts.software.vllm is not None or since is not None or before is not None
        return WARNING if unknown else PROBLEM
    if (since is not None and release < since) or (before is not None and release >= before):
        return None
    return WARNING if release > newest else PROBLEM


def is_integer(text: str) -> bool:
    """Return True if Python's int() accepts it, as argparse does."""
    try:
        int(text)
    except ValueError:
        return False
    return True


def is_readable_integer(text: str) -> bool:
    """Return True for integers, and for 8k or 8K."""
    return is_integer(text) or _READABLE.fullmatch(text.strip()) is not None


def drafter_tokens(text: str) -> int | None:
    """Return num_speculative_tokens of a --speculative-config."""
    try:
        found = json_text.read(text)
    except ValueError:
        return None
    tokens = found.get("num_speculative_tokens") if isinstance(found, dict) else None
    return tokens if isinstance(tokens, int) else None


def json_error(text: str) -> str | None:
    """Return why a value is not JSON, without the value."""
    try:
        json_text.read(text)
    except ValueError as error:
        return str(error)
    return None
