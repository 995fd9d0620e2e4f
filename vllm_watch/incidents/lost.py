"""Counts the requests that an incident cost: those in flight when the process ended, and failures
beyond the usual rate."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from math import sqrt
from typing import Any, NamedTuple

from vllm_watch.samples.engine import EngineSample
from vllm_watch.signals import stored
from vllm_watch.signals.scales import HOUR_SECONDS, KEPT_MAX, MINUTE_SECONDS
from vllm_watch.signals.wander import OUTLIER


class Counted(NamedTuple):
    """One engine's requests since watching began."""

    at_s: float
    failed: float  # by an error or an abort
    gone: float  # in flight when the process ended


Mark = Mapping[str, Counted]
"""The counts of each engine when the incident began."""


@dataclass(slots=True)
class _Engine:
    begun_s: float
    restarts: int
    counter: float  # of failed requests
    in_flight: float | None
    at_s: float
    well_s: float = 0.0
    well_failed: float = 0.0
    past: deque[Counted] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))

    def at(self, at_s: float) -> Counted:
        known = (each for each in reversed(self.past) if each.at_s <= at_s)
        return next(known, self.past[0])._replace(at_s=max(at_s, self.begun_s))

    def lost_since(self, then: Counted, at_s: float) -> float | None:
        now = self.past[-1]
        if self.begun_s > then.at_s:
            return None
        failed, gone = now.failed - then.failed, now.gone - then.gone
        if failed == 0.0:
            return gone
        if self.well_s < MINUTE_SECONDS:
            return None
        usual = self.well_failed / self.well_s * (at_s - then.at_s)
        beyond = failed - usual
        return gone + (beyond if beyond > OUTLIER * sqrt(usual) else 0.0)


class LostRequests:
    """Follows the engines of one target."""

    def __init__(self) -> None:
        self._engines: dict[str, _Engine] = {}
        self._heard = False

    def look(
        self, at_s: float, samples: Sequence[EngineSample], restarts: Mapping[str, int], *, well: bool
    ) -> None:  # fmt: skip
        self._heard = bool(samples)
        for sample in samples:
            self._see(at_s, sample, restarts.get(sample.engine, 0), well=well)
        if len(self._engines) > max(KEPT_MAX, len(samples)):
            here = {sample.engine for sample in samples}
            self._engines = {name: each for name, each in self._engines.items() if name in here}

    def at(self, engine: str | None, at_s: float) -> Mark:
        return {
            name: each.at(at_s) for name, each in self._engines.items() if engine in (None, name)
        }

    def since(self, mark: Mark, at_s: float) -> int | None:
        if not self._heard or not mark:
            return None
        lost = 0.0
        for name, then in mark.items():
            known = self._engines.get(name)
            one = None if known is None else known.lost_since(then, at_s)
            if one is None:
                return None
            lost += one
        return round(lost)

    def _see(self, at_s: float, sample: EngineSample, restarts: int, *, well: bool) -> None:
        known = self._engines.get(sample.engine)
        by, running, waiting = (
            sample.request_success,
            sample.requests_running,
            sample.requests_waiting,
        )
        counter = None if by is None else by.get("error", 0.0) + by.get("abort", 0.0)
        in_flight = None if running is None or waiting is None else running + waiting
        anew = known is not None and restarts != known.restarts
        unknown = (
            known is None
            or (anew and known.in_flight is None)
            or (not anew and counter is not None and counter < known.counter)
        )
        if known is None or unknown:
            self._engines.pop(sample.engine, None)
            if counter is not None:
                begun = _Engine(at_s, restarts, counter, in_flight, at_s)
                begun.past.append(Counted(at_s, 0.0, 0.0))
                self._engines[sample.engine] = begun
            return
        if counter is None:
            counter = 0.0 if anew else known.counter
        failed = counter if anew else counter - known.counter
        gone = known.in_flight or 0.0 if anew else 0.0
        if well and not anew:
            passed_s = at_s - known.at_s
            keep = 0.5 ** (passed_s / HOUR_SECONDS)
            known.well_s = known.well_s * keep + passed_s
            known.well_failed = known.well_failed * keep + failed
        if failed or gone:
            last = known.past[-1]
            known.past.append(Counted(at_s, last.failed + failed, last.gone + gone))
        known.restarts, known.counter = restarts, counter
        known.in_flight, known.at_s = in_flight, at_s

    def export_state(self) -> list[list[Any]]:
        return [[name, *stored.plain(astuple(each))] for name, each in self._engines.items()]

    @classmethod
    def restored(cls, state: Iterable[Any]) -> "LostRequests":
        lost = cls()
        for name, begun_s, restarts, counter, in_flight, at_s, well_s, well_failed, past in state:
            one = _Engine(
                stored.number(begun_s), stored.count(restarts), stored.number(counter), stored.number_or_none(in_flight),
                stored.number(at_s), stored.number(well_s), stored.number(well_failed),
            )  # fmt: skip
            one.past.extend(Counted(*stored.numbers(each, 3)) for each in past)
            if not one.past:
                raise ValueError("nothing was counted")
            lost._engines[stored.text(name)] = one
        return lost


def kept(mark: Mark) -> list[list[Any]]:
    """Return plain values."""
    return [[name, *counted] for name, counted in mark.items()]


def restored(state: Iterable[Any]) -> Mark:
    """Restore a mark."""
    return {stored.text(name): Counted(*stored.numbers(rest, 3)) for name, *rest in state}
