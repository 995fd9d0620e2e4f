"""The diagnosis of a log, and its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HEALTHY = "healthy"
NOISE = "benign_warning_noise"
UNKNOWN = "unknown"
NOT_VLLM = "not_a_vllm_log"
NO_FAILURE = frozenset((HEALTHY, NOISE, UNKNOWN, NOT_VLLM))

FACTS = (
    "vllm_version", "model", "engine", "max_model_len", "kv_cache_tokens", "gpu_memory_utilization",
    "tensor_parallel_size", "attention_backend",
)  # fmt: skip
"""Facts that are always published, as null if unknown. Other facts are omitted if unknown."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One step of the repair, with its command or flag."""

    what: str
    command: str | None = None


class Check(Fix):
    """A step that only reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The diagnosis of one log."""

    failure: str
    confidence: float  # 0..1
    explanation: str
    root_cause_line: str | None = None
    line_number: int | None = None  # 1-based
    fixes: tuple[Fix, ...] = ()
    facts: Mapping[str, str | float | int] = field(default_factory=dict)
    sentence: str = ""
    ready: bool = False
    fatal: bool = False
    """True if this failure ended the engine."""
    deterministic_start_failure: bool = False

    @property
    def failed(self) -> bool:
        return self.failure not in NO_FAILURE

    @property
    def found(self) -> bool:
        return self.failed or (self.failure == UNKNOWN and self.root_cause_line is not None)


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the published form."""
    return {
        "class": diagnosis.failure,
        "confidence": diagnosis.confidence,
        "root_cause_line": diagnosis.root_cause_line,
        "line_number": diagnosis.line_number,
        "explanation": diagnosis.explanation,
        "fixes": [{"what": fix.what, "command": fix.command} for fix in diagnosis.fixes],
        "facts": {**dict.fromkeys(FACTS), **diagnosis.facts},
        "deterministic_start_failure": diagnosis.deterministic_start_failure,
    }
