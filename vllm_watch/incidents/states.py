"""Chooses the state to show for each engine.

Without an active incident, the signals set it. An incident's state is shown until RETURNED_SECONDS
after the last finding. If the incident had recovered before, it is shown for QUIET_SECONDS_MAX.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.incidents.followed import RETURNED_SECONDS
from vllm_watch.incidents.incident import RECOVERING, Incident
from vllm_watch.incidents.recurrence import QUIET_SECONDS_MAX
from vllm_watch.incidents.relations import ORDER, STATE_OF
from vllm_watch.samples.record import changed
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.signals.state import WORST_FIRST

_OWN_REASONS = ("down", "starting", "sleeping")


@dataclass(slots=True)
class _Given:
    incident: Incident
    life: tuple[float | None, int]
    seen_s: float
    times: int


class States:
    """Remembers which incident gave each engine its state."""

    def __init__(self) -> None:
        self._given: dict[str, _Given] = {}

    def shown(
        self, signals: TargetSignals, incidents: Sequence[Incident], at_s: float
    ) -> TargetSignals:
        if not incidents:
            self._given.clear()
            return signals
        engines = dict(signals.engines)
        for name, engine in signals.engines.items():
            given = self._of_engine(signals, engine, incidents, at_s)
            if given is None or engine.state in _OWN_REASONS:
                continue
            word = STATE_OF[given.incident.kind]
            engines[name] = changed(engine, state=word, state_text=given.incident.summary)
        self._given = {name: each for name, each in self._given.items() if name in engines}
        if engines == signals.engines:
            return signals
        word, text = of_all(list(engines.values()))
        return changed(signals, engines=engines, state=word, state_text=text)

    def _of_engine(
        self, signals: TargetSignals, engine: EngineSignals, open_: Sequence[Incident], at_s: float
    ) -> _Given | None:
        life = signals.process_start_time, engine.restarts
        ours = [
            each for each in open_
            if each.kind in STATE_OF and each.engine in (None, engine.engine) and each.cause != "health_failing"
        ]  # fmt: skip
        known = self._given.get(engine.engine)
        same = [] if known is None else [each for each in ours if each.id == known.incident.id]
        candidates = [_Given(each, life, at_s, each.times) for each in ours if each.firing]
        if known is None or not same or known.life != life:
            self._given.pop(engine.engine, None)
        else:
            for each in candidates:
                each.times = known.times if each.incident.id == known.incident.id else each.times
            first = same[0].phase == RECOVERING and same[0].times == known.times
            if at_s - known.seen_s < (RETURNED_SECONDS if first else QUIET_SECONDS_MAX):
                candidates.append(_Given(same[0], life, known.seen_s, known.times))
        if not candidates:
            return None
        given = min(candidates, key=lambda each: ORDER.index(each.incident.kind))
        self._given[engine.engine] = given
        return given


def of_all(engines: Sequence[EngineSignals]) -> tuple[str, str]:
    """Return the state and the sentence of the least healthy engine."""
    word = min((engine.state for engine in engines), key=WORST_FIRST.index)
    so = [engine for engine in engines if engine.state == word]
    if len(engines) == 1:
        return word, so[0].state_text
    if word in ("serving", "idle"):
        running = sum(each.requests_running or 0.0 for each in engines)
        waiting = sum(each.requests_waiting or 0.0 for each in engines)
        return word, f"{running:.0f} running, {waiting:.0f} waiting ({len(engines)} engines)"
    return word, f"{len(so)} of {len(engines)} engines; engine {so[0].engine}: {so[0].state_text}"
