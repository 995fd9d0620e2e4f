"""How a server is silent, and what else speaks for or against its having crashed; a helper of `engine_down`."""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.detectors.base import Evidence, View
from vllm_watch.detectors.demand import Demand
from vllm_watch.samples.observation import Call, Observation, Reading
from vllm_watch.signals.loading import Loading
from vllm_watch.support.counts import requests

_GATEWAY = frozenset((502, 503, 504))
"""A proxy says so of a server that is not behind it; vLLM itself says 503 on every path while it scales
elastically. Its own /metrics fails with 500."""

SCALING_SECONDS = 600.0
"""vLLM grants two minutes to requests in flight before it scales (`drain_timeout`), then moves ranks in seconds to
minutes. Where that fails it answers 503 for ever."""

SIGN_SECONDS = 60.0
"""How long before the silence a failed health check still belongs to it."""

BUSY_WAITING = 300.0
"""Requests that wait, and ..."""

BUSY_FDS = 500.0
"""... open connections from which on one event loop is late with everything, /metrics too."""

SLOW_ANSWER_SECONDS = 0.5
"""An idle API server answers /metrics within 30 ms; one that took this long was busy."""

ACCEPTED_LOOKS_MIN = 2
"""Looks at which a connection was taken and nothing said, until it is the server that hangs. One alone, before or
among others at which nobody was reached, is what a way leaves that breaks while an answer is under way."""

_ACCEPTED = frozenset(("read_timeout", "disconnected"))  # and then nothing was said
_UNREACHED = frozenset(("connect_timeout", "dns"))


@dataclass(slots=True)
class Run:
    """A row of looks without an answer."""

    began_s: float  # the first of them
    looks: int = 0
    mute: int = 0  # of them, the last in a row in which nothing at all was heard
    refused: int = 0
    mute_s: float = 0.0  # the first of those
    silent: int = 0  # of those, the ones at which a connection was accepted
    held: int = 0  # of these, the ones at which it was kept open, and not closed at once
    said: str = ""  # the newest error
    told_to_end: bool = False  # its process lived on after the port was closed
    unused: bool = False  # it went when (almost) nobody used it, or was emptied first
    reached_again: bool = False  # it began after looks at which there was no way to it

    def hear(self, call: Call, at_s: float) -> bool:
        """Take one more of them in. Was nothing at all heard at it?"""
        if self._is_reached_again(call):  # since when it has refused, nobody saw
            self.began_s, self.looks, self.mute, self.reached_again = at_s, 0, 0, True
        self.looks += 1
        self.said = call.error or call.outcome
        self.refused += call.outcome == "refused"
        if call.outcome != "refused" and call.outcome not in _ACCEPTED | _UNREACHED:
            self.mute = self.silent = self.held = 0  # something answered: no silence goes on
            return False
        if not self.mute:
            self.mute_s = at_s
        self.mute += 1
        self.silent += call.outcome in _ACCEPTED
        self.held += call.outcome == "read_timeout"
        return True

    def _is_reached_again(self, call: Call) -> bool:
        """Does it refuse, after looks at which there was no way to it, and nothing else?"""
        unreached = self.looks > 0 and self.looks == self.mute and not (self.silent or self.refused)
        return unreached and call.outcome == "refused"

    @property
    def hangs(self) -> bool:
        """Does it take connections and say nothing, or did it until its backlog was full?"""
        return self.silent >= ACCEPTED_LOOKS_MIN

    @property
    def is_held(self) -> bool:
        """Is whoever is there silent as one who hangs? A proxy without a server behind it closes at once."""
        return self.held > 0 and self.held == self.silent


def busy(waiting: float, reading: Reading, scrape: Call) -> bool:
    """Was it, at this answer, so busy that it may be late with the next ones?"""
    return (
        waiting >= BUSY_WAITING
        or (reading.server.process_open_fds or 0.0) >= BUSY_FDS
        or scrape.latency_s >= SLOW_ANSWER_SECONDS
    )


def was_busy(demand: Demand) -> tuple[Evidence, ...]:
    """What speaks against a hang of one that was."""
    text = f"it was busy when it last answered ({demand.in_flight:.0f} requests)"
    return (Evidence(name="requests_in_flight", value=demand.in_flight, text=text),)


def healthy(health: Call | None) -> bool:
    """Did /health say that all is healthy?"""
    return health is not None and health.outcome == "ok"


def health_failed(looks: int) -> Evidence:
    """/health said that the engine core is dead, at so many scrapes in a row."""
    text = f"/health failed {looks} times in a row"
    return Evidence(name="health_status", value=503.0, expected=200.0, text=text)


def signs(view: View, dead_s: float | None) -> tuple[Evidence, ...]:
    """What says that this end was not asked for; `dead_s`: the last failed health check."""
    found = []
    if dead_s is not None and view.at_s - dead_s < SIGN_SECONDS:
        text = "/health reported a dead engine core, just before"
        found.append(Evidence(name="health_status", value=503.0, expected=200.0, text=text))
    return tuple(found)


def planned(demand: Demand, *, told_to_end: bool) -> tuple[Evidence, ...]:
    """What says that this end was asked for."""
    drained = demand.drained
    said = [drained] if drained is not None else []
    if told_to_end:
        text = "its port was closed while its process lived on: it was asked to end"
        said.append(Evidence(name="process_alive", value=1.0, text=text))
    return tuple(said)


def slow_load(loading: Loading, at_s: float, began_s: float) -> tuple[Evidence, ...]:
    """A start that takes longer than this server's starts do; `began_s`: since when it has not answered."""
    longest_s, loads_s = loading.longest_s, loading.for_s(at_s)
    taken_s = at_s - began_s if loads_s is None else loads_s
    if longest_s is None or taken_s < loading.patience_s(0.0):
        return ()
    text = f"loading for {taken_s:.0f} s; its longest start so far took {longest_s:.0f} s"
    if loads_s is None:
        text = f"down for {taken_s:.0f} s and no new process seen yet; its longest start so far took {longest_s:.0f} s"
    return (seconds("seconds_to_load", taken_s, longest_s, text),)


def how_it_crashed(demand: Demand, *, at_work: bool) -> str:
    """One that goes on living when it is started again; `at_work`: was it, whatever the last look met?"""
    if not demand.known:
        return "its port refuses connections; it was not scraped for a while before"
    text = f"its port refuses connections; {requests(demand.in_flight)} {'was' if round(demand.in_flight) == 1 else 'were'} in flight"
    if not at_work:
        return text
    return f"{text}, {demand.at_work:.0f} on average, and more came until it went"


def how_it_loops(loading: Loading, starts: int, lives: Sequence[float]) -> str:
    """One that does not: `starts` in a row never came to answer, or its `lives` were short."""
    if loading.attempts >= starts:
        return f"started {loading.attempts} times and never answered"
    last = ", ".join(f"{life:.0f} s" for life in list(lives)[-3:])
    return f"crashed again: it ran for {last}, then refused connections"


def left_behind(core: str | None) -> tuple[Evidence, ...]:
    """An engine core that survived its server: without its memory no start succeeds."""
    if core is None:
        return ()
    text = f"its engine core was left behind and still holds GPU memory: {core}"
    return (Evidence(name="left_core", value=core, text=text),)


def why_not_a_crash(demand: Demand, *, idle: bool) -> tuple[Evidence, ...]:
    """What says that nobody is hurt."""
    if not demand.known:
        text = "it was not scraped for a while before: it may have been stopped on purpose"
        return (Evidence(name="requests_in_flight", value=None, text=text),)
    text = "few or no requests were in flight: it may have been stopped on purpose"
    said = [Evidence(name="requests_in_flight", value=demand.in_flight, text=text)]
    if idle:
        text = f"no request came for {demand.idle_s:.0f} s before: it may be scaled to zero"
        said.append(Evidence(name="seconds_idle", value=round(demand.idle_s), unit="s", text=text))
    return tuple(said)


def turned_away(observation: Observation) -> bool:
    """Do /metrics and /health both say what a proxy says of a server that is not there?"""
    health = observation.health
    return observation.scrape.status in _GATEWAY and (health is None or health.status in _GATEWAY)


def seconds(name: str, value: float, expected: float, text: str) -> Evidence:
    """Evidence that is a time."""
    return Evidence(name=name, value=round(value, 1), unit="s", expected=expected, text=text)


def lasting(name: str, value: float, said: str) -> Evidence:
    """What a call said, and for how long by now."""
    what, colon, why = said.partition(": ")
    text = f"{what} for {value:.0f} s{colon}{why}" if colon else f"{said}, for {value:.0f} s"
    return seconds(name, value, 0.0, text)
