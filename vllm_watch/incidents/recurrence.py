"""Decides when people are notified again of recurring trouble."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

from vllm_watch.signals import stored
from vllm_watch.signals.scales import DAY_SECONDS, FIVE_MINUTES_SECONDS, HALF_MINUTE_SECONDS, TWICE
from vllm_watch.story.base import UNKNOWN
from vllm_watch.support.quantities import in_words

if TYPE_CHECKING:
    from vllm_watch.incidents.incident import Incident, Trouble


QUIET_SECONDS_OF: Mapping[str, float] = {"throughput_collapse": 60.0}
"""Replaces HALF_MINUTE_SECONDS for kinds judged by one-minute rates, which may cross a limit by
chance."""

QUIET_SECONDS_MAX = 240.0
"""HALF_MINUTE_SECONDS doubles with each occurrence, up to this maximum. The end of an incident must be
reported within five minutes."""


@dataclass(frozen=True, slots=True)
class Recurring:
    """Occurrences of one problem within a day."""

    times: int
    within_seconds: float  # from the first beginning to the last end (or now)
    ill_seconds: float  # total of all occurrences
    text: str
    earlier: str = ""  # incident that notified people, if not this one

    @property
    def told(self) -> bool:
        return bool(self.earlier)


@dataclass(frozen=True, slots=True)
class _Told:
    incident: str
    causes: tuple[str, ...]
    severity: str
    times: int
    ill_s: float


@dataclass(slots=True)
class _Past:
    first_s: float
    began_s: float
    times: int = 1
    ill_s: float = 0.0  # total without the last occurrence
    ended_s: float | None = None
    told: _Told | None = None

    def ill_for(self, at_s: float) -> float:
        return self.ill_s + max(0.0, (at_s if self.ended_s is None else self.ended_s) - self.began_s)  # fmt: skip


class Recurrence:
    """Follows one target's problems for a day."""

    def __init__(self) -> None:
        self._past: dict[Trouble, _Past] = {}

    def begun(self, key: "Trouble", at_s: float, lasted_s: float = 0.0) -> tuple[int, float]:
        """Return the number of occurrences, and the seconds without a finding that end the incident."""
        for each, old in tuple(self._past.items()):
            if old.ended_s is not None and at_s - old.ended_s > DAY_SECONDS:
                del self._past[each]
        began_s, past = at_s - lasted_s, self._past.get(key)
        if past is None:
            past = self._past[key] = _Past(began_s, began_s)
        else:
            past.ill_s, past.times = past.ill_for(at_s), past.times + 1
            past.began_s = began_s if past.ended_s is None else max(began_s, past.ended_s)
            past.ended_s = None
        usual_s = QUIET_SECONDS_OF.get(key[0], HALF_MINUTE_SECONDS)
        return past.times, min(usual_s * 2.0 ** min(past.times - 1, 10), QUIET_SECONDS_MAX)

    def renamed(self, old: "Trouble", new: "Trouble", at_s: float) -> tuple[int, float]:
        past = self._past[old]
        times = self.begun(new, at_s, at_s - past.began_s)
        past.times, past.ended_s = past.times - 1, past.began_s
        if not past.times:
            del self._past[old]
        return times

    def seen(self, key: "Trouble", at_s: float, *, active: bool) -> None:
        past = self._past.get(key)
        if past is not None and (active or past.ended_s is None):
            past.ended_s = None if active else at_s

    def recurring(self, one: "Incident", at_s: float) -> Recurring | None:
        past = self._past.get(one.trouble)
        if past is None:
            return None
        ill_s, told = past.ill_for(at_s), past.told
        if told is None or told.incident == one.id or _is_news(told, one, past, at_s):
            causes = dict.fromkeys((*(told.causes if told else ()), one.cause))
            told = past.told = _Told(one.id, tuple(causes), one.severity, past.times, ill_s)
        if past.times == 1:
            return None
        within_s = (at_s if past.ended_s is None else past.ended_s) - past.first_s
        text = f"recurring: {_ordinal(past.times)} time in {in_words(within_s)}, {in_words(ill_s)} in all"
        return Recurring(past.times, within_s, ill_s, text, "" if told.incident == one.id else told.incident)  # fmt: skip

    def export_state(self) -> list[list[Any]]:
        return [[*key, *astuple(past)] for key, past in self._past.items()]

    def restore(self, state: Sequence[Any]) -> None:
        if not isinstance(state, list):  # saved by an earlier release
            return
        past = {}
        for kind, engine, family, first_s, began_s, times, ill_s, ended_s, told in state:
            key = stored.text(kind), stored.text_or_none(engine), stored.text(family)
            past[key] = _Past(
                stored.number(first_s), stored.number(began_s), stored.count(times), stored.number(ill_s),
                stored.number_or_none(ended_s), None if told is None else _kept(*told),
            )  # fmt: skip
        self._past = past


def _is_news(told: _Told, one: "Incident", past: _Past, at_s: float) -> bool:
    same = bool(one.family) or one.cause in (*told.causes, UNKNOWN)
    worse = one.severity == "page" != told.severity
    doubled = past.times >= TWICE * told.times or past.ill_for(at_s) > TWICE * told.ill_s
    lasts_s = 0.0 if past.ended_s is not None else at_s - past.began_s
    stays = one.severity == "page" and lasts_s >= FIVE_MINUTES_SECONDS
    return not same or worse or doubled or stays


def _kept(name: str, causes: list[str], severity: str, times: int, ill_s: float) -> _Told:
    return _Told(
        stored.text(name), stored.texts(causes), stored.text(severity), stored.count(times), stored.number(ill_s)
    )  # fmt: skip


def _ordinal(times: int) -> str:
    last = {1: "st", 2: "nd", 3: "rd"}.get(times % 10, "th")
    return f"{times}{'th' if times % 100 in (11, 12, 13) else last}"


def plain(recurring: Recurring | None) -> dict[str, Any] | None:
    """Return the published form."""
    return None if recurring is None else asdict(recurring)


def from_plain(said: stored.Stored | None) -> Recurring | None:
    """Restore from the published form."""
    if said is None:
        return None
    return Recurring(
        stored.count(said["times"]),
        stored.number(said["within_seconds"]),
        stored.number(said["ill_seconds"]),
        stored.text(said["text"]),
        stored.text(said["earlier"]),
    )
