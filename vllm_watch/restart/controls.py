"""Hold state that outlives the watcher: pause, silences, approvals, breaker resets, versions seen.

While this state cannot be read, `known` is False and the guard refuses.
"""

from collections.abc import Mapping
from typing import Any

from vllm_watch.board.restarts import Paused
from vllm_watch.errors import JournalError
from vllm_watch.settings.stages import Right
from vllm_watch.state.journal import LOST, Journal, approval
from vllm_watch.support.token_file import TokenFile

SILENCES_MAX = 1000


class Controls:
    """A cache of the journal's entries that are in force. Methods that write may raise JournalError."""

    def __init__(self, journal: Journal, version: str) -> None:
        self._journal = journal
        self._version = f"version {version}"
        self._entries: dict[str, dict[str, Any]] = {}
        self.tokens: Mapping[str, TokenFile] | None = None  # by person; None if unknown
        self._void: set[str] = set()  # revoked entries that are still in the journal
        self.known = False

    async def load(self, now_t: float) -> None:
        """Read the entries, and record when this version first ran. Never raises."""
        try:
            entries = await self._journal.standing()
            if LOST in entries and LOST not in self._entries:
                # A damaged file was replaced at runtime, so restore the operators' settings.
                for name in [name for name in self._entries if name not in entries]:
                    await self._set(name, self._entries[name])
                    entries[name] = self._entries[name]
            self._entries = entries
            first_t = self.version_first_t
            if first_t is None or first_t > now_t:
                await self._set(self._version, {"t": now_t})
            await self._forget_void()
        except JournalError:
            self.known = False
            return
        self.known = True

    async def _set(self, name: str, entry: Mapping[str, Any] | None) -> None:
        await self._journal.set(name, entry)
        if entry is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = dict(entry)

    def _number(self, name: str, key: str) -> float | None:
        value = self._entries.get(name, {}).get(key)
        return float(value) if isinstance(value, int | float) else None

    @property
    def version_first_t(self) -> float | None:
        return self._number(self._version, "t")

    def pause(self, now_t: float) -> Paused | None:
        entry, until_t = self._entries.get("pause"), self._number("pause", "until_t")
        if entry is None or (until_t is not None and until_t <= now_t):
            return None
        actor, reason = str(entry.get("actor", "?")), str(entry.get("reason", "?"))
        return Paused(actor=actor, reason=reason, until_timestamp_seconds=until_t)

    async def set_pause(self, pause: Paused | None) -> None:
        entry = None if pause is None else {
            "actor": pause.actor, "reason": pause.reason, "until_t": pause.until_timestamp_seconds,
        }  # fmt: skip
        await self._set("pause", entry)

    def silenced(self, incident_id: str, now_t: float) -> bool:
        until_t = self._number(f"silence {incident_id}", "until_t")
        return until_t is not None and now_t < until_t

    async def silence(self, incident_id: str, actor: str, reason: str, until_t: float) -> None:
        name = f"silence {incident_id}"
        others = [each for each in self._entries if each.startswith("silence ") and each != name]
        others.sort(key=lambda each: self._number(each, "until_t") or 0.0)
        for ends_first in others[: max(0, len(others) - SILENCES_MAX + 1)]:
            await self._set(ends_first, None)
        await self._set(name, {"actor": actor, "reason": reason, "until_t": until_t})

    def approved_by(self, incident_id: str, target: str) -> str | None:
        name = approval(incident_id, target)
        actor = self._entries.get(name, {}).get("actor")
        if actor is None or name in self._void:
            return None
        return None if self.revoked(str(actor), "approve", name) else str(actor)

    def revoked(self, actor: str, right: Right, name: str = "") -> bool:
        """Return True if the actor's token lost this right, or is not the token that made entry `name`."""
        if self.tokens is None:
            return False
        now, used = self._token(actor, right), self._entries.get(name, {}).get("token")
        return now is None or used not in (None, now)

    def _token(self, actor: str, right: Right) -> str | None:
        token = (self.tokens or {}).get(actor)
        digest = token.digest() if token is not None and right in token.may else None
        return None if digest is None else digest.hex()[:16]

    async def approve(self, incident_id: str, target: str, actor: str, now_t: float) -> None:
        name = approval(incident_id, target)
        self._void.discard(name)
        await self._set(name, {"actor": actor, "t": now_t, "token": self._token(actor, "approve")})

    def void_approvals(self, incident_id: str, target: str | None = None) -> None:
        """Revoke the approvals at once. The next load removes them from the journal."""
        names = [approval(incident_id, target or "")]
        if target is None:
            names = [each for each in self._entries if each.startswith(names[0])]
        self._void.update(names)

    async def _forget_void(self) -> None:
        for name in list(self._void):
            if name in self._entries:
                await self._set(name, None)
            self._void.discard(name)

    def scheduled_t(self, target: str, schedule: str) -> float | None:
        return self._number(f"schedule {schedule} {target}", "t")

    async def set_scheduled(self, target: str, schedule: str, due_t: float) -> None:
        await self._set(f"schedule {schedule} {target}", {"t": due_t})

    @property
    def breaker_reset_t(self) -> float:
        return self._number("resumed", "t") or 0.0

    async def reset_breakers(self, now_t: float) -> None:
        """Close every breaker, and accept that a damaged journal lost entries."""
        await self._set("resumed", {"t": now_t})
        if LOST in self._entries:
            await self._set(LOST, None)

    @property
    def history_lost(self) -> str | None:
        entry = self._entries.get(LOST)
        if entry is None:
            return None
        why = entry.get("why") or f"damaged: {entry.get('file')}"
        return f"the budget spent is unknown ({why}); run vllm-watch journal accept-loss, or resume"
