"""A failure found in an engine's log."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailure:
    """The cause of a failed start or a crash."""

    failure: str  # a failure class of `vllm-watch diagnose`
    deterministic: bool  # the next start would fail, too
    root_cause_line: str | None = None
    explanation: str = ""
    sentence: str = ""  # not published

    def published(self) -> Mapping[str, object]:
        return {
            "class": self.failure,
            "deterministic": self.deterministic,
            "root_cause_line": self.root_cause_line,
            "explanation": self.explanation,
        }
