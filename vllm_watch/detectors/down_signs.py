"""Follows the signs of a server that may be down: unanswered calls, failed health checks, an earlier answer."""

from dataclasses import asdict, dataclass, field
from functools import partial
from math import log
from typing import Any, ClassVar

from vllm_watch.detectors.base import FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.samples.observation import Call, Observation, ProcessState, Reading
from vllm_watch.signals import stored
from vllm_watch.signals.loading import START_SECONDS, lives_on
from vllm_watch.signals.scales import BRIEF_SECONDS, DAY_SECONDS
from vllm_watch.support.quantities import in_words

KIND = "engine_down"

firing = partial(Verdict, state=FIRING, kind=KIND)


def unknown(summary: str) -> Verdict:
    """Return an unknown verdict."""
    return Verdict(state=UNKNOWN, kind=KIND, summary=summary)


def seconds(name: str, value: float, expected: float, text: str) -> Evidence:
    """Return a duration as evidence."""
    return Evidence(name=name, value=round(value, 1), unit="s", expected=expected, text=text)


_GATEWAY = frozenset((502, 503, 504))
"""HTTP statuses of a proxy that cannot reach its server."""

BUSY_WAITING = 300.0
BUSY_FDS = 500.0
"""A server with this many waiting requests or open connections is busy, and its event loop answers
/metrics late."""

SLOW_ANSWER_SECONDS = 0.5
"""A server that takes this long to answer is busy. An idle one answers /metrics in 30 ms."""


_ACCEPTED = frozenset(("read_timeout", "disconnected"))
_UNREACHED = frozenset(("connect_timeout", "dns"))
_PLAIN = {"refused": "connection refused", "read_timeout": "every scrape has timed out"}


@dataclass(slots=True)
class Run(stored.Kept):
    """A series of polls without an answer."""

    KEPT: ClassVar[stored.Fields] = {
        "began_s": stored.number,
        "mute_s": stored.number,
        "said": stored.text,
        **dict.fromkeys(("looks", "mute", "held", "refused", "silent"), stored.count),
        **dict.fromkeys(("told_to_end", "unused", "reached_again"), stored.flag),
    }
    LATER = ("mute", "held", "reached_again")

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

    def restore(self, state: stored.Stored) -> None:
        # Older states lack `mute_s`.
        stored.Kept.restore(self, {"mute_s": state["began_s"], **state})

    def hear(self, call: Call, at_s: float) -> bool:
        unreached = self.looks > 0 and self.looks == self.mute and not (self.silent or self.refused)
        if unreached and call.outcome == "refused":
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

    def lasting(self, name: str, value: float) -> Evidence:
        """Return for how long the calls have had the same result."""
        what, colon, why = self.said.partition(": ")
        comma = "" if colon or what in _PLAIN.values() else ","
        return seconds(name, value, 0.0, f"{what}{comma} for {in_words(value)}{colon}{why}")

    def found(self, name: str, lasted_s: float, *more: Evidence, **fields: Any) -> Verdict:
        """Return the verdict on calls that have had the same result for `lasted_s`."""
        said = (self.lasting(name, lasted_s), *more)
        return firing(since_seconds=lasted_s, measure=lasted_s, evidence_for=said, **fields)


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


def turned_away(observation: Observation) -> bool:
    """Return True if a proxy answers for a missing server."""
    health = observation.health
    return observation.scrape.status in _GATEWAY and (health is None or health.status in _GATEWAY)


_SERVER_ERROR = 500


@dataclass(slots=True)
class Health:
    """A series of failed health checks."""

    failed_s: float | None = None
    failed_looks: int = 0
    moving_looks: int = 0
    still_looks: int = 0  # failed checks since the last token
    moved_s: float = 0.0
    told_dead: bool = False
    in_hand: float = 0.0
    _tokens: float | None = None

    def look(self, view: View) -> None:
        health = view.observation.health
        failed = health is not None and (health.status or 0) >= _SERVER_ERROR
        if health is not None and not failed:
            self.failed_looks = self.moving_looks = self.still_looks = 0
            self._tokens, self.told_dead = None, False
        if not (failed or self.failed_looks):
            return
        if failed:
            self.failed_looks += 1
            self.still_looks += 1
            self.failed_s = view.at_s
        if view.observation.reading is not None:
            self._count(view.observation.reading, view.at_s)

    def _count(self, reading: Reading, at_s: float) -> None:
        engines = reading.engines
        counted = [
            (each.generation_tokens or 0.0) + (each.prompt_tokens or 0.0) for each in engines
        ]
        before, self._tokens = self._tokens, sum(counted)
        self.in_hand = sum(
            (each.requests_running or 0.0) + (each.requests_waiting or 0.0) for each in engines
        )
        if before is not None and self._tokens > before:
            self.moving_looks, self.still_looks, self.moved_s = self.moving_looks + 1, 0, at_s

    def dead(self, at_s: float, looks: int, patience_s: float) -> bool:
        """Return True if `looks` checks have failed without a new token.

        If tokens arrived between earlier failed checks, unfinished requests must also have waited
        `patience_s` for the next token.
        """
        if self.still_looks < looks:
            return False
        served = self.moving_looks >= looks
        if served and (self.in_hand <= 0.0 or at_s - self.moved_s < patience_s):
            return False
        self.told_dead = True
        return True


@dataclass(slots=True)
class Earlier(stored.Kept):
    """The last observation at this address, by an earlier run of the watcher.

    A starting vLLM refuses connections, because uvicorn listens only when the engine is up. So a
    server that accepts them hangs, or a proxy holds its requests.
    """

    KEPT: ClassVar[stored.Fields] = {
        **dict.fromkeys(("answered_s", "life_start"), stored.number_or_none),
        "refuses": stored.flag,
    }

    answered_s: float | None = None
    life_start: float | None = None  # Unix time
    refuses: bool = False  # refused connections while starting

    def answers(self, at_s: float, reading: Reading | None, *, refused: bool) -> None:
        self.answered_s = at_s
        self.refuses = self.refuses or refused
        if reading is not None and reading.server.process_start_time is not None:
            self.life_start = reading.server.process_start_time

    def is_up(self, process: ProcessState | None) -> str | None:
        if lives_on(process, self.life_start):
            return "the process that answered then is still alive"
        return "a starting server has refused connections here" if self.refuses else None

    def patience_s(self, since_s: float, up: str | None, usual_s: float) -> float | None:
        if self.answered_s is None or since_s - self.answered_s > DAY_SECONDS:
            return None
        return usual_s if up else START_SECONDS

    def told(self, since_s: float, up: str | None) -> tuple[Evidence, ...]:
        ago_s = max(0.0, since_s - (self.answered_s or since_s))
        text = (
            f"it last answered {ago_s / 60:.0f} min before that, to an earlier run of the watcher"
        )
        why = f"; {up}" if up else ""
        return (
            Evidence(name="seconds_since_answer", value=round(ago_s, 1), unit="s", text=text + why),
        )


HUNG_SHARE, USUAL_SHARE = 1 / 8, 1 / 80
"""The expected shares of unanswered calls. HUNG_SHARE: one process of eight hangs. USUAL_SHARE: none
hangs.
Healthy servers lost at most 8 of 622 scrapes."""

SILENCE, ANSWER = log(HUNG_SHARE / USUAL_SHARE), log((1.0 - HUNG_SHARE) / (1.0 - USUAL_SHARE))
"""An unanswered call adds SILENCE to the log odds, and an answered call adds ANSWER. Consecutive
unanswered calls count once."""

EXCUSE = -2.0 * SILENCE
"""A late answer, or a call that did not reach the server, adds this to the log odds. It cancels two
unanswered calls, because lossy networks and busy event loops delay more calls than they lose."""


SURE, ADVISE = log(1e4), log(1e6)
"""The log odds must reach SURE for a page, and ADVISE for the advice to restart. A restart cuts off
the users of healthy processes."""

_HELD, _NOTHING_NEW = "read_timeout", "watcher"


@dataclass(slots=True)
class Share(stored.Kept):
    """Finds one hanging API server process among several, from the share of calls that get an answer.

    The kernel gives each new connection to one process. A sequential test decides between two shares
    (Wald, 1945; Page, 1954).
    """

    KEPT: ClassVar[stored.Fields] = {
        **dict.fromkeys(("level", "began_s"), stored.number),
        **dict.fromkeys(("is_open", "is_advised"), stored.flag),
        **dict.fromkeys(("calls", "unanswered"), stored.count),
        "_mute": lambda state: [stored.flag(each) for each in state],
    }

    level: float = 0.0  # log odds
    is_open: bool = False
    is_advised: bool = False
    began_s: float = 0.0
    calls: int = 0
    unanswered: int = 0
    _at_s: float | None = None
    _close: bool = False
    _mute: list[bool] = field(default_factory=lambda: [False, False])  # /metrics, /health

    def export_state(self) -> dict[str, Any]:
        return asdict(self)

    def look(self, view: View, waiting: float) -> None:
        scrape, health = view.observation.scrape, view.observation.health
        # Only close polls distinguish a process that hangs from one that stops now and then.
        self._close = self._at_s is not None and view.at_s - self._at_s <= BRIEF_SECONDS
        self._at_s = view.at_s
        if scrape.outcome == _NOTHING_NEW:
            return
        if self.level <= 0.0:
            self.began_s, self.calls, self.unanswered = view.at_s, 0, 0
        calls = [scrape] if health is None else [scrape, health]
        silent = [self._falls_silent(call, view) for call in calls]
        answered = [each for each in calls if each.status is not None]
        if True in silent:
            apart = self._close or (scrape in answered and scrape.latency_s < SLOW_ANSWER_SECONDS)
            odds = SILENCE if waiting < BUSY_WAITING else 0.0
            self._count(odds, ADVISE if apart else ADVISE + ANSWER, silent=True)
        elif max([each.latency_s for each in answered], default=0.0) >= SLOW_ANSWER_SECONDS:
            self._count(EXCUSE)
        elif False in [each.kept for each in answered]:
            self._count(ANSWER)
        elif not answered and scrape.outcome != _HELD:
            self._count(EXCUSE)
        self.is_open = self.level >= (0.5 * SURE if self.is_open else SURE)
        self.is_advised = self.level >= (SURE if self.is_advised else ADVISE)

    def _falls_silent(self, call: Call, view: View) -> bool:
        which = int(call is view.observation.health)
        was_mute, self._mute[which] = self._mute[which], call.status is None
        return call.outcome == _HELD and not (call.kept or was_mute) and view.known

    def _count(self, odds: float, most: float = ADVISE, *, silent: bool = False) -> None:
        self.level = max(0.0, min(self.level + odds, max(most, self.level)))
        self.calls += 1
        self.unanswered += silent

    def judge(self, found: Verdict, at_s: float) -> Verdict:
        severe = found.state == FIRING and (found.cause != "api_hang" or found.severity == "page")
        if severe or not self.is_open:
            return found
        text = (
            f"{self.unanswered} of {self.calls} scrapes in {in_words(at_s - self.began_s)} got no answer, "
            f"the others were answered at once"
        )
        ratio = 1.0 - self.unanswered / self.calls
        what = "one of its API server processes hangs"
        if not (self._close or self.is_advised):
            what = f"{what}, or it stops now and then"
        share = Evidence(name="answered_ratio", value=ratio, unit="ratio", expected=1.0, text=text)
        others = "a restart would cut off the users of the other processes"
        return firing(
            cause="api_hang",
            severity="page",
            restart_advised=self.is_advised,
            summary=f"{what}: {text}; drain it before a restart, which cuts off the users of the other processes",
            present=self.level >= SURE,
            since_seconds=at_s - self.began_s,
            measure=1.0 - ratio,
            evidence_for=(share,),
            evidence_against=(Evidence(name="answered", value=ratio, unit="ratio", text=others),),
        )
