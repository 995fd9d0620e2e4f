"""What the dispatcher asks of its surroundings; the daemon fulfils it, tests make it by hand."""

from typing import Protocol

from vllm_watch.restart.facts import IncidentFact, Peers
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.attempt import Attempt


class World(Protocol):
    """The targets as the watcher sees them now."""

    def target(self, name: str) -> Target | None:
        """Who it is; None: it is not watched (any more)."""

    def settings(self, name: str) -> RestartSettings:
        """What holds for it."""

    def signals(self, name: str) -> TargetSignals | None:
        """The last look; None before the first."""

    def open_kinds(self, name: str) -> frozenset[str]:
        """Kinds of the incidents that are open on it."""

    def incident(self, incident_id: str) -> IncidentFact | None:
        """What is known of an incident; None: nothing any more."""

    def peers(self, name: str) -> Peers | None:
        """How the target's group is, with the target itself."""

    def load_seconds(self, name: str) -> float | None:
        """The longest of its last starts."""

    def start_failure(self, name: str) -> str | None:
        """Why a start of it cannot succeed, in words; None: nothing says so."""

    async def next_look(self, name: str, timeout_seconds: float) -> bool:
        """Wait for the next look at it to end; False when none did in time."""

    async def evidence(self, attempt: Attempt) -> str | None:
        """Keep what there is to know of the server; return the path."""

    def restarting(self, name: str, *, on: bool) -> None:
        """From now on its end is one that was asked for, or no more."""

    def draining(self, name: str, *, on: bool) -> None:
        """From now on its readiness gate says no, or no more."""

    def changed(self, name: str) -> None:
        """What is decided or done for it has changed: show it."""
