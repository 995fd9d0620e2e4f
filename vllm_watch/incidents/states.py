"""Chooses the state to show for each engine.

Without an active incident, the signals set it. An incident's state is shown until MOMENT_SECONDS
after the last finding. If the incident had recovered before, it is shown for QUIET_SECONDS_MAX.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.incidents.followed import Life
from vllm_watch.incidents.incident import RECOVERING, Incident
from vllm_watch.incidents.recurrence import QUIET_SECONDS_MAX
from vllm_watch.incidents.relations import ORDER, STATE_OF
from vllm_watch.samples.record import completed
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.signals.scales import MOMENT_SECONDS
from vllm_watch.signals.state import of_all

_OWN_REASONS = ("down", "starting", "sleeping")


@dataclass(slots=True)
class _Given:
    incident: Incident
    life: Life
    seen_s: float
    times: int


class States:
    """Remembers which incident gave each engine its state."""

    def __init__(self) -> None:
        self._given: dict[str, _Given] = {}

    def show(self, signals: TargetSignals, incidents: Sequence[Incident], at_s: float) -> None:
        """Complete the signals of one poll, before they are shared."""
        if not incidents:
            self._given.clear()
            return
        engines, differs = signals.engines, False
        for engine in engines.values():
            given = self._of_engine(signals, engine, incidents, at_s)
            if given is None or engine.state in _OWN_REASONS:
                continue
            now = STATE_OF[given.incident.kind], given.incident.summary
            differs = differs or now != (engine.state, engine.state_text)
            completed(engine, state=now[0], state_text=now[1])
        self._given = {name: each for name, each in self._given.items() if name in engines}
        if differs:
            word, text = of_all(list(engines.values()))
            completed(signals, state=word, state_text=text)

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
            if at_s - known.seen_s < (MOMENT_SECONDS if first else QUIET_SECONDS_MAX):
                candidates.append(_Given(same[0], life, known.seen_s, known.times))
        if not candidates:
            return None
        given = min(candidates, key=lambda each: ORDER.index(each.incident.kind))
        self._given[engine.engine] = given
        return given
