"""Decides whether a server is in use, idle, or drained on purpose."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Any, ClassVar

from vllm_watch.detectors.base import Evidence, View, usual
from vllm_watch.samples.observation import Reading
from vllm_watch.signals import stored
from vllm_watch.signals.cpu_waits import SMOOTHING
from vllm_watch.signals.life import fell
from vllm_watch.signals.scales import (
    CONFIRMED,
    FEW,
    FIVE_MINUTES_SECONDS,
    HALF,
    KEPT_MAX,
    MINUTE_SECONDS,
    SMALL_SHARE,
)
from vllm_watch.support.quantities import in_words, requests

ARRIVALS_MISSED_MIN = 7.0
"""A drain is proven if this many expected requests did not arrive. Chance causes this with a
probability of 0.001 (Poisson). A drain with --shutdown-timeout is over before ten are missed."""

DRAIN_SECONDS_MIN = 5.0
"""A drain is assumed after this many seconds without arrivals. Scrape timing causes shorter
gaps."""

Counts = tuple[float | None, float | None, float, float]
"""Finished requests, prompt tokens, generated tokens, aborts. The first two are None unless every
engine counts them."""


def _kept_counts(state: Any) -> Counts | None:
    if state is None:
        return None
    finished, prompted, generated, aborts = state
    known = stored.number_or_none(finished), stored.number_or_none(prompted)
    return *known, stored.number(generated), stored.number(aborts)


@dataclass(slots=True)
class Demand(stored.Kept):
    """Follows the demand on one server, without the watcher's own test requests."""

    KEPT: ClassVar[stored.Fields] = {
        **dict.fromkeys(("in_flight", "waiting", "idle_s", "silence_s"), stored.number),
        **dict.fromkeys(("_rate", "_rate_weight", "_running_usual", "_running"), stored.number),
        **dict.fromkeys(("_usual_s", "_canaries", "_lately", "_step_s", "_blind_s"), stored.number),
        **dict.fromkeys(("_idle_since_s", "_admitted_s", "_at_s", "_t"), stored.number_or_none),
        **dict.fromkeys(("known", "aborting", "_served"), stored.flag),
        "_counts": _kept_counts,
        "_silences": stored.last(KEPT_MAX),
    }
    LATER = ("_lately", "_step_s", "_blind_s")

    in_flight: float = 0.0
    waiting: float = 0.0
    idle_s: float = 0.0  # 0 if unknown
    silence_s: float = 0.0
    known: bool = False  # the server was polled shortly before it ended
    aborting: bool = False
    _rate: float = 0.0  # finished requests per second while in use
    _rate_weight: float = 0.0
    _idle_since_s: float | None = None
    _admitted_s: float | None = None
    _running_usual: float = 0.0
    _running: float = 0.0
    _served: bool = False
    _at_s: float | None = None
    _t: float | None = None  # Unix time
    _usual_s: float = 0.0
    _lately: float = 0.0
    _step_s: float = 0.0
    _blind_s: float = 0.0
    _canaries: float = 0.0  # test requests that the counters lack
    _counts: Counts | None = None
    _silences: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))

    def missed(self, view: View) -> None:
        self._blind_s = self._tick(view) or 0.0

    def unseen(self, seconds: float) -> None:
        self.known = self.known and seconds <= self._gap_s

    def look(self, view: View, reading: Reading) -> None:
        passed_s, self.known = self._tick(view), True
        engines = reading.engines
        self._running = sum([each.requests_running or 0.0 for each in engines])
        self.waiting = sum([each.requests_waiting or 0.0 for each in engines])
        self.in_flight = self._running + self.waiting
        if view.observation.canary is not None:
            self._canaries = 1.0
        before, now = self._counts, _counts(reading)
        self._counts = now
        if before is None or passed_s is None or fell(before, now):
            self._idle_since_s = self._admitted_s = view.at_s
            self.idle_s = self.silence_s = self._lately = 0.0
            self.aborting, self._running_usual = False, self._running
            return
        self._step_s = passed_s
        self._lately += (1.0 - exp(-passed_s / MINUTE_SECONDS)) * (self.in_flight - self._lately)
        finished, prompted = [
            None if then is None or new is None else new - then
            for then, new in zip(before[:2], now[:2], strict=True)
        ]
        generated, aborted = now[2] - before[2], now[3] - before[3]
        self._served = generated > 0.0
        if finished is not None:
            self._average(finished, passed_s)
        self._idle(view.at_s, finished)
        fallen = self._running <= HALF * self._running_usual
        aborted_share = before[3] / before[0] if before[0] else 0.0
        # vLLM 0.18 and later abort requests when stopped with --shutdown-timeout.
        self.aborting = (
            aborted >= CONFIRMED and aborted_share <= SMALL_SHARE and (fallen or not prompted)
        )
        self._silence(view.at_s, prompted, finished)

    def _tick(self, view: View) -> float | None:
        before, self._at_s = self._at_s, view.at_s
        before_t, self._t = self._t, view.observation.t
        if before is None or not view.known:
            self.known = False
            return None
        passed_s = view.at_s - before
        limit_s = self._gap_s
        usual_s = min(passed_s, limit_s)
        self._usual_s += (usual_s - self._usual_s) / (8.0 if self._usual_s else 1.0)
        # The monotonic clock of a suspended host stops, but Unix time does not.
        slept_s = 0.0 if before_t is None else self._t - before_t - passed_s
        if max(passed_s, slept_s) > limit_s:
            self.known = False
            return None
        return passed_s

    @property
    def _gap_s(self) -> float:
        return max(MINUTE_SECONDS, FEW * self._usual_s)

    def _average(self, finished: float, passed_s: float) -> None:
        if finished <= 0.0 and not self.in_flight:
            return
        weight = exp(-passed_s / FIVE_MINUTES_SECONDS)
        self._rate = weight * self._rate + (1.0 - weight) * finished / passed_s
        self._rate_weight = weight * self._rate_weight + (1.0 - weight)

    def _idle(self, at_s: float, finished: float | None) -> None:
        known = finished is not None and finished <= self._canaries
        if not known or self.in_flight > self._canaries or self._idle_since_s is None:
            self._idle_since_s = at_s
        self._canaries = max(0.0, self._canaries - (finished or 0.0))
        self.idle_s = at_s - self._idle_since_s

    def _silence(self, at_s: float, prompted: float | None, finished: float | None) -> None:
        # An idle engine gets only test requests. Without prompt counts, finished requests show arrivals.
        came = self.idle_s <= 0.0 and (finished if prompted is None else prompted) != 0.0
        if self._admitted_s is None or came or finished is None:
            if self.silence_s >= DRAIN_SECONDS_MIN:
                self._silences.append(self.silence_s)
            self._admitted_s = at_s
            self._running_usual += SMOOTHING * (self._running - self._running_usual)
        self.silence_s = at_s - self._admitted_s

    @property
    def usual_silence_s(self) -> float:
        return usual(self._silences)

    @property
    def _missed(self) -> float:
        return self._rate / self._rate_weight * self.silence_s if self._rate_weight else 0.0

    @property
    def at_work(self) -> float:
        """Return the recent requests in flight, or 0 if arrivals stopped before the server ended."""
        unseen_s = self.silence_s + self._step_s + self._blind_s
        came = self._missed < FEW and unseen_s <= DRAIN_SECONDS_MIN
        return self._lately if self.known and self._rate and came and not self.aborting else 0.0

    @property
    def drained(self) -> Evidence | None:
        if not self.known:
            return None
        if self.aborting:
            text = "it aborted new requests and finished the others before it stopped"
            return Evidence(name="aborting", value=1.0, expected=0.0, text=text)
        missed = self._missed
        ends = self._served and self._running <= HALF * self._running_usual
        if (
            self.waiting
            or (self._running and not ends)
            or missed < ARRIVALS_MISSED_MIN
            or self.silence_s < max(DRAIN_SECONDS_MIN, self.usual_silence_s)
        ):
            return None
        text = (
            f"for {in_words(self.silence_s)} no request had arrived, though {missed:.0f} were expected; "
            f"{self._running:.0f} were still running"
        )
        return Evidence(
            name="seconds_without_arrival", value=round(self.silence_s), unit="s", text=text
        )

    def planned(self, *, told_to_end: bool) -> tuple[Evidence, ...]:
        drained = self.drained
        said = [drained] if drained is not None else []
        if told_to_end:
            text = "its port closed while its process kept running: it was asked to stop"
            said.append(Evidence(name="process_alive", value=1.0, text=text))
        return tuple(said)

    def how_it_crashed(self, *, at_work: bool) -> str:
        if not self.known:
            return "its port refuses connections; it was not scraped for a while before"
        count, about = (self.at_work, "about ") if at_work else (self.in_flight, "")
        text = f"its port refuses connections; {about}{requests(count)} {'was' if round(count) == 1 else 'were'} in flight"
        return f"{text}, and new ones still arrived" if at_work else text

    def why_not_a_crash(self, *, idle: bool) -> tuple[Evidence, ...]:
        """Return evidence that few or no users are affected."""
        if not self.known:
            text = "it was not scraped for a while before: it may have been stopped on purpose"
            return (Evidence(name="requests_in_flight", value=None, text=text),)
        text = "few or no requests were in flight: it may have been stopped on purpose"
        said = [Evidence(name="requests_in_flight", value=self.in_flight, text=text)]
        if idle:
            text = f"no request came for {in_words(self.idle_s)} before: it may be scaled to zero"
            said.append(
                Evidence(name="seconds_idle", value=round(self.idle_s), unit="s", text=text)
            )
        return tuple(said)


def _counts(reading: Reading) -> Counts:
    engines = reading.engines
    ends = [each.request_success for each in engines]
    return (
        _sum([None if end is None else sum(end.values()) for end in ends]),
        _sum([each.prompt_tokens for each in engines]),
        sum([each.generation_tokens or 0.0 for each in engines]),
        sum([(end or {}).get("abort", 0.0) for end in ends]),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
