"""What an engine's log says it failed of, as of one look."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailure:
    """Why its last start failed, or what it died of."""

    failure: str  # a class of vllm-watch diagnose
    deterministic: bool  # would the next start fail the same way, with nothing changed?
    root_cause_line: str | None = None
    explanation: str = ""
    sentence: str = ""  # the finding in short; not published

    def published(self) -> Mapping[str, object]:
        """The form in which the status and recordings carry it."""
        return {
            "class": self.failure,
            "deterministic": self.deterministic,
            "root_cause_line": self.root_cause_line,
            "explanation": self.explanation,
        }
