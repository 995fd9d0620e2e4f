"""What people have set and what outlives the watcher: pause, silences, closed breakers, versions seen.

Kept in memory for the guard, and in the journal for the next start and for other programs: it is read
again before each decision. What cannot be read holds nothing open: `known` is False then, and the guard
refuses for want of a journal.
"""

from collections.abc import Mapping
from typing import Any

from vllm_watch.errors import JournalError
from vllm_watch.restart.facts import Pause
from vllm_watch.state.journal import LOST, Journal

SILENCES_MAX = 1000


class Standing:
    """The entries, read once and written through."""

    def __init__(self, journal: Journal, version: str) -> None:
        self._journal = journal
        self._version = version
        self._said: dict[str, dict[str, Any]] = {}
        self.known = False

    async def load(self, now_t: float) -> None:
        """Read what holds, and note since when this version runs here. Never raises."""
        try:
            said = await self._journal.standing()
            if LOST in said and LOST not in self._said:
                # A damaged file was replaced while we ran: what people have set still holds.
                for name in [name for name in self._said if name not in said]:
                    await self._set(name, self._said[name])
                    said[name] = self._said[name]
            self._said = said
            if f"version {self._version}" not in self._said:
                await self._set(f"version {self._version}", {"t": now_t})
        except JournalError:
            self.known = False
            return
        self.known = True

    async def _set(self, name: str, said: Mapping[str, Any] | None) -> None:
        await self._journal.set(name, said)
        if said is None:
            self._said.pop(name, None)
        else:
            self._said[name] = dict(said)

    @property
    def version_first_t(self) -> float | None:
        """Since when this version of the watcher runs here."""
        return self._time(f"version {self._version}")

    def _time(self, name: str) -> float | None:
        return _number(self._said.get(name, {}).get("t"))

    def pause(self, now_t: float) -> Pause | None:
        """The pause that holds now."""
        said = self._said.get("pause")
        if said is None:
            return None
        until_t = _number(said.get("until_t"))
        if until_t is not None and until_t <= now_t:
            return None
        actor, reason = str(said.get("actor", "?")), str(said.get("reason", "?"))
        return Pause(actor=actor, reason=reason, until_t=until_t)

    async def set_pause(self, pause: Pause | None) -> None:
        """Pause, or (None) resume. Raises JournalError: what is not kept would not hold."""
        said = None if pause is None else {
            "actor": pause.actor, "reason": pause.reason, "until_t": pause.until_t,
        }  # fmt: skip
        await self._set("pause", said)

    def silenced(self, incident_id: str, now_t: float) -> bool:
        """Has a person silenced this incident, and is it still so?"""
        until_t = _number(self._said.get(f"silence {incident_id}", {}).get("until_t"))
        return until_t is not None and now_t < until_t

    async def silence(self, incident_id: str, actor: str, reason: str, until_t: float) -> None:
        """No restart for this incident until then. Raises JournalError."""
        name = f"silence {incident_id}"
        others = [each for each in self._said if each.startswith("silence ") and each != name]
        ends_first = sorted(
            others, key=lambda each: _number(self._said[each].get("until_t")) or 0.0
        )
        for old in ends_first[: max(0, len(others) - SILENCES_MAX + 1)]:
            await self._set(old, None)
        said = {"actor": actor, "reason": reason, "until_t": until_t}
        await self._set(name, said)

    @property
    def breaker_reset_t(self) -> float:
        """When a person last said: try again."""
        return self._time("resumed") or 0.0

    async def reset_breakers(self, now_t: float) -> None:
        """A person says: try again; what a damaged journal has lost is accepted. Raises JournalError."""
        await self._set("resumed", {"t": now_t})
        if LOST in self._said:
            await self._set(LOST, None)

    @property
    def history_lost(self) -> str | None:
        """Why the history of restarts is not known, in words."""
        said = self._said.get(LOST)
        if said is None:
            return None
        return (
            f"it was damaged ({said.get('file')}), so what was spent is not known; resume to go on"
        )


def _number(said: Any) -> float | None:
    return float(said) if isinstance(said, int | float) else None
