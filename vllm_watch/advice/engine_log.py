"""Find the attention backend in an engine's log."""

import re
from collections.abc import Iterable

from vllm_watch.advice.records import AttentionBackend

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
