"""Collects evidence about an unresponsive server."""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.detectors.base import Evidence, View
from vllm_watch.detectors.demand import Demand
from vllm_watch.samples.observation import Call, Observation, Reading
from vllm_watch.signals.loading import Loading
from vllm_watch.support.counts import requests
from vllm_watch.support.durations import in_words

_GATEWAY = frozenset((502, 503, 504))
"""HTTP statuses of a proxy that cannot reach its server."""

SCALING_SECONDS = 600.0
"""Elastic scaling takes at most this many seconds. vLLM drains requests for two minutes
(`drain_timeout`) and then moves ranks. After a failure, it returns 503 forever."""

SIGN_SECONDS = 60.0
"""A failed health check explains a crash if it is at most this many seconds old."""

BUSY_WAITING = 300.0
BUSY_FDS = 500.0
"""A server with this many waiting requests or open connections is busy, and its event loop answers
/metrics late."""

SLOW_ANSWER_SECONDS = 0.5
"""A server that takes this long to answer is busy. An idle one answers /metrics in 30 ms."""

ACCEPTED_LOOKS_MIN = 2
"""This many accepted connections without a response show a hang. A single one may be due to a
failing network route."""

_ACCEPTED = frozenset(("read_timeout", "disconnected"))
_UNREACHED = frozenset(("connect_timeout", "dns"))
_PLAIN = {"refused": "connection refused", "read_timeout": "every scrape has timed out"}


@dataclass(slots=True)
class Run:
    """A series of polls without an answer."""

    began_s: float
    looks: int = 0
    mute: int = 0  # polls in a row without a response, up to now
    refused: int = 0
    mute_s: float = 0.0
    silent: int = 0  # how many of `mute` had an accepted connection
    held: int = 0
    said: str = ""
    told_to_end: bool = False  # the process ran on after its port closed
    unused: bool = False
    reached_again: bool = False  # the host was unreachable at first

    def hear(self, call: Call, at_s: float) -> bool:
        if self._is_reached_again(call):
            self.began_s, self.looks, self.mute, self.reached_again = at_s, 0, 0, True
        self.looks += 1
        self.said = _plain_result(call)
        self.refused += call.outcome == "refused"
        if call.outcome != "refused" and call.outcome not in _ACCEPTED | _UNREACHED:
            self.mute = self.silent = self.held = 0
            return False
        if not self.mute:
            self.mute_s = at_s
        self.mute += 1
        self.silent += call.outcome in _ACCEPTED
        self.held += call.outcome == "read_timeout"
        return True

    def _is_reached_again(self, call: Call) -> bool:
        unreached = self.looks > 0 and self.looks == self.mute and not (self.silent or self.refused)
        return unreached and call.outcome == "refused"

    @property
    def hangs(self) -> bool:
        return self.silent >= ACCEPTED_LOOKS_MIN

    @property
    def is_held(self) -> bool:
        """Return True if all accepted calls timed out. A proxy without a server closes them."""
        return self.held > 0 and self.held == self.silent


def _plain_result(call: Call) -> str:
    said = call.error or call.outcome
    plain, (what, colon, why) = _PLAIN.get(call.outcome), said.partition(": ")
    if plain is None:
        return said
    return f"{plain}{colon}{why}" if " " in what else plain


def busy(waiting: float, reading: Reading, scrape: Call) -> bool:
    """Return True if the server may answer late."""
    return (
        waiting >= BUSY_WAITING
        or (reading.server.process_open_fds or 0.0) >= BUSY_FDS
        or scrape.latency_s >= SLOW_ANSWER_SECONDS
    )


def was_busy(demand: Demand) -> tuple[Evidence, ...]:
    """Return the last load as evidence against a hang."""
    text = f"it was busy when it last answered ({demand.in_flight:.0f} requests)"
    return (Evidence(name="requests_in_flight", value=demand.in_flight, text=text),)


def healthy(health: Call | None) -> bool:
    """Return True if /health reported success."""
    return health is not None and health.outcome == "ok"


def health_failed(looks: int) -> Evidence:
    """Return evidence of a dead engine core."""
    text = f"/health failed {looks} times in a row"
    return Evidence(name="health_status", value=503.0, expected=200.0, text=text)


def signs(view: View, dead_s: float | None) -> tuple[Evidence, ...]:
    """Return evidence of a crash. `dead_s` is when /health last failed."""
    found = []
    if dead_s is not None and view.at_s - dead_s < SIGN_SECONDS:
        text = "/health reported a dead engine core, just before"
        found.append(Evidence(name="health_status", value=503.0, expected=200.0, text=text))
    return tuple(found)


def planned(demand: Demand, *, told_to_end: bool) -> tuple[Evidence, ...]:
    """Return evidence that the server was stopped on purpose."""
    drained = demand.drained
    said = [drained] if drained is not None else []
    if told_to_end:
        text = "its port closed while its process kept running: it was asked to stop"
        said.append(Evidence(name="process_alive", value=1.0, text=text))
    return tuple(said)


def slow_load(loading: Loading, at_s: float, began_s: float) -> tuple[Evidence, ...]:
    """Return evidence of a slow start."""
    longest_s, loads_s = loading.longest_s, loading.for_s(at_s)
    taken_s = at_s - began_s if loads_s is None else loads_s
    if longest_s is None or taken_s < loading.patience_s(0.0):
        return ()
    text = f"loading for {in_words(taken_s)}; its longest start so far took {in_words(longest_s)}"
    if loads_s is None:
        text = f"down for {in_words(taken_s)} and no new process seen yet; its longest start so far took {in_words(longest_s)}"
    return (seconds("seconds_to_load", taken_s, longest_s, text),)


def how_it_crashed(demand: Demand, *, at_work: bool) -> str:
    """Describe a crash."""
    if not demand.known:
        return "its port refuses connections; it was not scraped for a while before"
    count, about = (demand.at_work, "about ") if at_work else (demand.in_flight, "")
    text = f"its port refuses connections; {about}{requests(count)} {'was' if round(count) == 1 else 'were'} in flight"
    return f"{text}, and new ones still arrived" if at_work else text


def how_it_loops(loading: Loading, starts: int, lives: Sequence[float]) -> str:
    """Describe a crash loop."""
    if loading.attempts >= starts:
        return f"started {loading.attempts} times and never answered"
    last = ", ".join(map(in_words, list(lives)[-3:]))
    return f"crashed again: it ran for {last}, then refused connections"


def left_behind(core: str | None) -> tuple[Evidence, ...]:
    """Return evidence of an engine core that was left behind."""
    if core is None:
        return ()
    text = f"its engine core was left behind and still holds GPU memory: {core}"
    return (Evidence(name="left_core", value=core, text=text),)


def why_not_a_crash(demand: Demand, *, idle: bool) -> tuple[Evidence, ...]:
    """Return evidence that few or no users are affected."""
    if not demand.known:
        text = "it was not scraped for a while before: it may have been stopped on purpose"
        return (Evidence(name="requests_in_flight", value=None, text=text),)
    text = "few or no requests were in flight: it may have been stopped on purpose"
    said = [Evidence(name="requests_in_flight", value=demand.in_flight, text=text)]
    if idle:
        text = f"no request came for {in_words(demand.idle_s)} before: it may be scaled to zero"
        said.append(Evidence(name="seconds_idle", value=round(demand.idle_s), unit="s", text=text))
    return tuple(said)


def turned_away(observation: Observation) -> bool:
    """Return True if a proxy answers for a missing server."""
    health = observation.health
    return observation.scrape.status in _GATEWAY and (health is None or health.status in _GATEWAY)


def seconds(name: str, value: float, expected: float, text: str) -> Evidence:
    """Return a duration as evidence."""
    return Evidence(name=name, value=round(value, 1), unit="s", expected=expected, text=text)


def lasting(name: str, value: float, said: str) -> Evidence:
    """Return for how long a call has had the same result, as evidence."""
    what, colon, why = said.partition(": ")
    comma = "" if colon or what in _PLAIN.values() else ","
    return seconds(name, value, 0.0, f"{what}{comma} for {in_words(value)}{colon}{why}")
