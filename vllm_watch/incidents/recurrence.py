"""Troubles that come again: how often one did, and how long it must stay away to be over."""

from collections.abc import Mapping
from typing import Any

from vllm_watch.incidents.incident import Key
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


class Recurrence:
    """Remembers, of one target, when each kind of trouble began in the last hour, and how it ended last."""

    def __init__(self) -> None:
        self._begun_s: dict[Key, list[float]] = {}
        self._ended: dict[Key, tuple[float, float]] = {}  # when, and what quiet time it had needed

    def begun(self, key: Key, at_s: float) -> tuple[int, float]:
        """It is active (again): return how often it was within the hour, and how long it must then be quiet."""
        recent = [each for each in self._begun_s.get(key, ()) if at_s - each <= RECURRING_SECONDS]
        self._begun_s[key] = [*recent, at_s][-RECURRING_TIMES * 8 :]
        times = len(self._begun_s[key])
        usual_s = QUIET_SECONDS_OF.get(key[0], QUIET_SECONDS)
        if times >= RECURRING_TIMES:
            return times, RECURRING_QUIET_SECONDS
        ended_s, needed_s = self._ended.pop(key, (None, usual_s))
        if ended_s is None or at_s - ended_s > FLAPPING_SECONDS:
            return times, usual_s
        return times, min(2.0 * needed_s, QUIET_SECONDS_MAX)

    def ended(self, key: Key, at_s: float, quiet_needed_s: float) -> None:
        """It has ended, after so much quiet time."""
        self._ended[key] = at_s, quiet_needed_s
        for memory in (self._ended, self._begun_s):
            for each in [each for each in memory if self._is_old(each, at_s)]:
                del memory[each]

    def _is_old(self, key: Key, at_s: float) -> bool:
        ended_s = self._ended.get(key, (at_s, 0.0))[0]
        return at_s - ended_s > RECURRING_SECONDS

    def export_state(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "begun": [[*key, times] for key, times in self._begun_s.items()],
            "ended": [[*key, *ended] for key, ended in self._ended.items()],
        }

    def restore(self, state: stored.Stored) -> None:
        """Take what was kept. Raises one of stored.DAMAGE, and has then changed nothing."""
        begun = {key_of(each): stored.numbers(each[2]) for each in state["begun"]}
        ended = {
            key_of(each): (stored.number(each[2]), stored.number(each[3]))
            for each in state["ended"]
        }
        self._begun_s, self._ended = begun, ended


def key_of(state: Any) -> Key:
    """The key that stands first in a kept entry. Raises one of stored.DAMAGE."""
    return stored.text(state[0]), stored.text_or_none(state[1])
