"""Troubles that come again: how often one did, and how long it must stay away to be over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_watch.incidents.incident import Incident, Trouble
from vllm_watch.incidents.recurring import Recurring, words
from vllm_watch.signals import stored

QUIET_SECONDS = 30.0
"""An incident ends when nothing has been found for so long: users' retries and drained queues make a
problem flicker for some seconds as it ends. Far within the five minutes in which an end must be told."""

QUIET_SECONDS_OF: Mapping[str, float] = {"throughput_collapse": 60.0}
"""A collapse is seen in the rates of a minute, which random load makes flicker about any limit."""

QUIET_SECONDS_MAX = 180.0
"""One that comes back must stay away for twice as long each time, but never longer than this, so that the
end is told within five minutes of it."""

FLAPPING_SECONDS = 900.0
"""An incident that comes back this soon after its end ended too early."""

RECURRING_SECONDS = 3600.0
RECURRING_TIMES = 3
"""What was active so often within an hour is one trouble that recurs, and is told as that."""

RECURRING_QUIET_SECONDS = 240.0
"""... and must then stay away for so long: the next time is no news of its own. Its end is still told within five minutes."""


LONGER = 2.0
"""One that lasts so many times as long as the longest before is no more of the same: people are told again, ..."""

LONGER_SECONDS_MAX = 300.0
"""... and of one that lasts so long always: whoever knows of three outages still wants to know of the fourth."""


@dataclass(slots=True)
class _Episode:
    """One time that a trouble was there."""

    began_s: float
    ended_s: float | None = None  # None while it lasts

    def lasted_s(self, at_s: float) -> float:
        return max(0.0, (at_s if self.ended_s is None else self.ended_s) - self.began_s)


class Recurrence:
    """Remembers, of one target, when each kind of trouble was there in the last hour, and how its incident ended last."""

    def __init__(self) -> None:
        self._episodes: dict[Trouble, list[_Episode]] = {}
        # Id, cause and severity of the incident that told that it recurs.
        self._told: dict[Trouble, tuple[str, str, str]] = {}
        self._ended: dict[
            Trouble, tuple[float, float]
        ] = {}  # when, and what quiet time it had needed

    def begun(self, key: Trouble, at_s: float, lasted_s: float = 0.0) -> tuple[int, float]:
        """It is active (again), and was for `lasted_s`: return how often it was within the hour, and how long it must
        then be quiet."""
        known = self._episodes.get(key, ())
        recent = [each for each in known if at_s - each.began_s <= RECURRING_SECONDS]
        self._episodes[key] = [*recent, _Episode(at_s - lasted_s)][-RECURRING_TIMES * 8 :]
        times = len(self._episodes[key])
        usual_s = QUIET_SECONDS_OF.get(key[0], QUIET_SECONDS)
        if times >= RECURRING_TIMES:
            return times, RECURRING_QUIET_SECONDS
        self._told.pop(key, None)
        ended_s, needed_s = self._ended.pop(key, (None, usual_s))
        if ended_s is None or at_s - ended_s > FLAPPING_SECONDS:
            return times, usual_s
        return times, min(2.0 * needed_s, QUIET_SECONDS_MAX)

    def seen(self, key: Trouble, at_s: float, *, active: bool) -> None:
        """It is there at this look, or not any more."""
        last = self._episodes[key][-1] if self._episodes.get(key) else None
        if last is not None and (active or last.ended_s is None):
            last.ended_s = None if active else at_s

    def recurring(self, one: Incident, at_s: float) -> Recurring | None:
        """What there is to say of an open incident beside itself; None while it does not recur."""
        episodes = self._episodes.get(one.trouble, [])
        if len(episodes) < RECURRING_TIMES:
            return None
        *before, last = episodes
        now = one.id, one.cause, one.severity
        teller, cause, severity = self._told.get(one.trouble, now)
        # What was told as a ticket says nothing of a page.
        worse = one.severity == "page" != severity
        if teller == one.id or (cause == one.cause and worse):
            teller, self._told[one.trouble] = one.id, now
        lasts_s, lasted_s = [each.lasted_s(at_s) for each in before], last.lasted_s(at_s)
        within_s = last.began_s + lasted_s - before[0].began_s
        ill_s = sum(lasts_s) + lasted_s
        return Recurring(
            times=len(episodes),
            within_seconds=within_s,
            ill_seconds=ill_s,
            text=words(len(episodes), within_s, ill_s),
            earlier=teller if teller != one.id and cause == one.cause else "",
            longer=lasted_s > min(LONGER * max(lasts_s), LONGER_SECONDS_MAX),
        )

    def ended(self, key: Trouble, at_s: float, quiet_needed_s: float) -> None:
        """Its incident has ended, after so much quiet time."""
        self.seen(key, at_s, active=False)
        self._ended[key] = at_s, quiet_needed_s
        for memory in (self._ended, self._episodes, self._told):
            for each in [each for each in memory if self._is_old(each, at_s)]:
                del memory[each]

    def _is_old(self, key: Trouble, at_s: float) -> bool:
        ended_s = self._ended.get(key, (at_s, 0.0))[0]
        return at_s - ended_s > RECURRING_SECONDS

    def export_state(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "episodes": [
                [*key, [[each.began_s, each.ended_s] for each in episodes]]
                for key, episodes in self._episodes.items()
            ],
            "told": [[*key, *told] for key, told in self._told.items()],
            "ended": [[*key, *ended] for key, ended in self._ended.items()],
        }

    def restore(self, state: stored.Stored) -> None:
        """Take what was kept. Raises one of stored.DAMAGE, and has then changed nothing."""
        episodes = {
            trouble: [
                _Episode(stored.number(began_s), stored.number_or_none(ended_s))
                for began_s, ended_s in kept
            ]
            for trouble, (kept,) in (_row(each, 1) for each in state.get("episodes", ()))
        }
        told = {
            trouble: (stored.text(teller), stored.text(cause), stored.text(severity))
            for trouble, (teller, cause, severity) in (
                _row(each, 3) for each in state.get("told", ())
            )
        }
        ended = {
            trouble: (stored.number(at_s), stored.number(quiet_s))
            for trouble, (at_s, quiet_s) in (_row(each, 2) for each in state["ended"])
        }
        self._episodes, self._told, self._ended = episodes, told, ended


def _row(kept: Sequence[Any], values: int) -> tuple[Trouble, Sequence[Any]]:
    """Return the trouble of a kept row and its values; earlier releases kept no family.

    Raises one of stored.DAMAGE.
    """
    kind, engine, *family = kept[:-values]
    trouble = stored.text(kind), stored.text_or_none(engine), stored.text(*(family or ("",)))
    return trouble, kept[-values:]
