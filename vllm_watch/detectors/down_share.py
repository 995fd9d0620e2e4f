"""Finds one hanging API server process among several, from the share of calls that get an answer.

The kernel gives each new connection to one process. A sequential test decides between two shares
(Wald, 1945; Page, 1954).
"""

from dataclasses import asdict, dataclass, field
from math import log
from typing import Any

from vllm_watch.detectors.base import FIRING, Evidence, Verdict, View
from vllm_watch.detectors.down_verdicts import KIND
from vllm_watch.detectors.down_witnesses import BUSY_WAITING, SLOW_ANSWER_SECONDS
from vllm_watch.samples.observation import Call
from vllm_watch.signals import stored
from vllm_watch.support.durations import in_words

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

CLOSE_SECONDS = 8.0
"""If polls are at most this far apart, they distinguish a process that hangs from one that stops
now and then. At longer intervals, a restart is advised only if /metrics was answered at once and a
simultaneous /health was not."""

SURE, ADVISE = log(1e4), log(1e6)
"""The log odds must reach SURE for a page, and ADVISE for the advice to restart. A restart cuts off
the users of healthy processes."""

_HELD, _NOTHING_NEW = "read_timeout", "watcher"


@dataclass(slots=True)
class Share:
    """Counts the calls to one server."""

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

    @classmethod
    def restored(cls, told: Any) -> "Share":
        if told is None:
            return cls()
        return cls(
            stored.number(told["level"]), stored.flag(told["is_open"]), stored.flag(told["is_advised"]),
            stored.number(told["began_s"]), stored.count(told["calls"]), stored.count(told["unanswered"]),
            _mute=[stored.flag(each) for each in told["_mute"]],
        )  # fmt: skip

    def look(self, view: View, waiting: float) -> None:
        scrape, health = view.observation.scrape, view.observation.health
        self._close = self._at_s is not None and view.at_s - self._at_s <= CLOSE_SECONDS
        self._at_s = view.at_s
        if scrape.outcome == _NOTHING_NEW:
            return
        if self.level <= 0.0:
            self.began_s, self.calls, self.unanswered = view.at_s, 0, 0
        calls = [each for each in (scrape, health) if each is not None]
        silent = [self._falls_silent(call, view) for call in calls]
        answered = [each for each in calls if each.status is not None]
        if any(silent):
            apart = self._close or (scrape in answered and scrape.latency_s < SLOW_ANSWER_SECONDS)
            odds = SILENCE if waiting < BUSY_WAITING else 0.0
            self._count(odds, ADVISE if apart else ADVISE + ANSWER, silent=True)
        elif any(each.latency_s >= SLOW_ANSWER_SECONDS for each in answered):
            self._count(EXCUSE)
        elif not all(each.kept for each in answered):
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
        return Verdict(
            state=FIRING,
            kind=KIND,
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
