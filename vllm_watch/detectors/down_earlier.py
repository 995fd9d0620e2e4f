"""A server that this run of the watcher has not seen to answer, and an earlier one has; a helper of `engine_down`.

The watcher comes back after a while and meets an address that takes connections and says nothing. A vLLM that
starts refuses: its port is bound early (vLLM's `setup_server`) and listened on only when the engine is up (by
uvicorn), with one API server or with many (`run_multi_api_server` hands the bound socket on). So whoever takes
connections is up and hangs, or is not vLLM: a proxy, a mesh or an activator that holds the request until a
server is there. What tells them apart is what was seen here before.
"""

from dataclasses import dataclass
from typing import Any

from vllm_watch.detectors.base import Evidence
from vllm_watch.samples.observation import ProcessState, Reading
from vllm_watch.signals import stored
from vllm_watch.signals.loading import START_SECONDS, lives_on

EARLIER_SECONDS_MAX = 86_400.0
"""What answered longer ago says nothing of who lives at this address now: lists of targets grow old, and
addresses are given to others."""


@dataclass(slots=True)
class Earlier:
    """How the server at this address was last seen; kept for the next run, however long that is away."""

    answered_s: float | None = None  # the last answer, on the target's timeline
    life_start: float | None = None  # Unix time at which the process that gave it began
    refuses: bool = False  # while no server was up here, connections were refused

    @classmethod
    def restored(cls, told: Any) -> "Earlier":
        """As it was kept; nothing where nothing was. Raises one of stored.DAMAGE."""
        if told is None:
            return cls()
        state = stored.mapping(told)
        return cls(
            stored.number_or_none(state["answered_s"]), stored.number_or_none(state["life_start"]), stored.flag(state["refuses"])
        )  # fmt: skip

    def answers(self, at_s: float, reading: Reading | None, *, refused: bool) -> None:
        """It answers; `refused`: until now it did so."""
        self.answered_s = at_s
        self.refuses = self.refuses or refused
        if reading is not None and reading.server.process_start_time is not None:
            self.life_start = reading.server.process_start_time

    def is_up(self, process: ProcessState | None) -> str | None:
        """What says, in words, that who is silent here does not start; None: nothing does."""
        if lives_on(process, self.life_start):
            return "the process that answered then still lives"
        return "a server that starts has refused connections here" if self.refuses else None

    def patience_s(self, since_s: float, up: str | None, usual_s: float) -> float | None:
        """How long who takes connections since `since_s` may be silent; None: nothing is known of it.

        `usual_s` where it is `up`; else it may be a start behind something that holds connections.
        """
        if self.answered_s is None or since_s - self.answered_s > EARLIER_SECONDS_MAX:
            return None
        return usual_s if up else START_SECONDS

    def told(self, since_s: float, up: str | None) -> tuple[Evidence, ...]:
        """What is known of it from before."""
        ago_s = max(0.0, since_s - (self.answered_s or since_s))
        text = (
            f"it last answered {ago_s / 60:.0f} min before that, to an earlier run of the watcher"
        )
        why = f"; {up}" if up else ""
        return (
            Evidence(name="seconds_since_answer", value=round(ago_s, 1), unit="s", text=text + why),
        )
