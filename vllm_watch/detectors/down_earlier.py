"""Judges a server that accepts connections but has answered only an earlier run of the watcher.

A starting vLLM refuses connections, because uvicorn listens only when the engine is up. So a server
that accepts them hangs, or a proxy holds its requests.
"""

from dataclasses import dataclass
from typing import Any

from vllm_watch.detectors.base import Evidence
from vllm_watch.samples.observation import ProcessState, Reading
from vllm_watch.signals import stored
from vllm_watch.signals.loading import START_SECONDS, lives_on

EARLIER_SECONDS_MAX = 86_400.0
"""Older observations are ignored, because target lists grow stale and addresses are reused."""


@dataclass(slots=True)
class Earlier:
    """The last observation at this address."""

    answered_s: float | None = None
    life_start: float | None = None  # Unix time
    refuses: bool = False  # refused connections while starting

    @classmethod
    def restored(cls, told: Any) -> "Earlier":
        if told is None:
            return cls()
        state = stored.mapping(told)
        return cls(
            stored.number_or_none(state["answered_s"]), stored.number_or_none(state["life_start"]), stored.flag(state["refuses"])
        )  # fmt: skip

    def answers(self, at_s: float, reading: Reading | None, *, refused: bool) -> None:
        self.answered_s = at_s
        self.refuses = self.refuses or refused
        if reading is not None and reading.server.process_start_time is not None:
            self.life_start = reading.server.process_start_time

    def is_up(self, process: ProcessState | None) -> str | None:
        if lives_on(process, self.life_start):
            return "the process that answered then is still alive"
        return "a starting server has refused connections here" if self.refuses else None

    def patience_s(self, since_s: float, up: str | None, usual_s: float) -> float | None:
        if self.answered_s is None or since_s - self.answered_s > EARLIER_SECONDS_MAX:
            return None
        return usual_s if up else START_SECONDS

    def told(self, since_s: float, up: str | None) -> tuple[Evidence, ...]:
        ago_s = max(0.0, since_s - (self.answered_s or since_s))
        text = (
            f"it last answered {ago_s / 60:.0f} min before that, to an earlier run of the watcher"
        )
        why = f"; {up}" if up else ""
        return (
            Evidence(name="seconds_since_answer", value=round(ago_s, 1), unit="s", text=text + why),
        )
