"""The share of calls that a server answers: one of its API server processes hangs, and others answer; a helper of `engine_down`.

The kernel hands each new connection to one of the processes, and only the first call on it tells of another one. So a part of the calls gets no answer, by chance, and
those in between are answered at once. One event loop that is busy is late with all it has, silent for a while, and late
again; a network that loses packets is late more often than silent; a watcher that is short of CPU knows it.
A sequential test of the two shares (Wald, 1945; Page, 1954) adds up what each call says.
"""

from dataclasses import asdict, dataclass, field
from math import log
from typing import Any

from vllm_watch.detectors.base import FIRING, Evidence, Verdict, View
from vllm_watch.detectors.down_verdicts import KIND
from vllm_watch.detectors.down_witnesses import BUSY_WAITING, SLOW_ANSWER_SECONDS
from vllm_watch.samples.observation import Call
from vllm_watch.signals import stored

HUNG_SHARE, USUAL_SHARE = 1 / 8, 1 / 80
"""One process of eight hangs; and the most that healthy servers were seen to leave unanswered (8 of 622 scrapes)."""

SILENCE, ANSWER = log(HUNG_SHARE / USUAL_SHARE), log((1.0 - HUNG_SHARE) / (1.0 - USUAL_SHARE))
"""What one call adds to the log of the odds. Calls in a row without an answer are one silence, whatever its cause."""

EXCUSE = -2.0 * SILENCE
"""... and a late answer, or a call that never reached it: where packets are lost or one event loop is busy, more calls are
late than lost. So one of them answers for two silences."""

CLOSE_SECONDS = 8.0
"""Polls this far apart meet the end of a silence that ends by itself as a late answer, at least every other time: a call waits
for 4 s. Beyond that silences between two polls look like one process of several, and no restart is advised unless
/metrics was answered at once while /health, asked at the same moment, was not."""

SURE, ADVISE = log(1e4), log(1e6)
"""Odds from which it pages, and from which a restart is advised: it cuts off those whom the other processes serve."""

_HELD, _NOTHING_NEW = "read_timeout", "watcher"


@dataclass(slots=True)
class Share:
    """Follows the calls to one server."""

    level: float = 0.0  # log odds, between 0 and ADVISE
    is_open: bool = False
    is_advised: bool = False
    began_s: float = 0.0  # since then
    calls: int = 0
    unanswered: int = 0
    _at_s: float | None = None  # the poll before
    _close: bool = False  # ... was it CLOSE_SECONDS ago at most?
    _mute: list[bool] = field(
        default_factory=lambda: [False, False]
    )  # were the last /metrics and /health?

    def export_state(self) -> dict[str, Any]:
        """Return all as plain values."""
        return asdict(self)

    @classmethod
    def restored(cls, told: Any) -> "Share":
        """Go on as it was kept; anew if nothing was. Raises one of stored.DAMAGE."""
        if told is None:
            return cls()
        return cls(
            stored.number(told["level"]), stored.flag(told["is_open"]), stored.flag(told["is_advised"]),
            stored.number(told["began_s"]), stored.count(told["calls"]), stored.count(told["unanswered"]),
            _mute=[stored.flag(each) for each in told["_mute"]],
        )  # fmt: skip

    def look(self, view: View, waiting: float) -> None:
        """Take one look in; `waiting`: requests at the last answer."""
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
        """Return True if a new connection got no answer, where the call before did."""
        which = int(call is view.observation.health)
        was_mute, self._mute[which] = self._mute[which], call.status is None
        return call.outcome == _HELD and not (call.kept or was_mute) and view.known

    def _count(self, odds: float, most: float = ADVISE, *, silent: bool = False) -> None:
        self.level = max(0.0, min(self.level + odds, max(most, self.level)))
        self.calls += 1
        self.unanswered += silent

    def judge(self, found: Verdict, at_s: float) -> Verdict:
        """Return what is to be said; `found`: what the last row of looks says."""
        severe = found.state == FIRING and (found.cause != "api_hang" or found.severity == "page")
        if severe or not self.is_open:
            return found
        text = (
            f"{self.unanswered} of {self.calls} scrapes in {at_s - self.began_s:.0f} s got no answer, "
            f"those between were answered at once"
        )
        ratio = 1.0 - self.unanswered / self.calls
        what = "one of its API server processes hangs"
        if not (self._close or self.is_advised):
            what = f"{what}, or it stops now and then"
        share = Evidence(name="answered_ratio", value=ratio, unit="ratio", expected=1.0, text=text)
        others = "the other processes serve their users, whom a restart cuts off"
        return Verdict(
            state=FIRING,
            kind=KIND,
            cause="api_hang",
            severity="page",
            restart_advised=self.is_advised,
            summary=f"{what}: {text}",
            present=self.level >= SURE,
            since_seconds=at_s - self.began_s,
            measure=1.0 - ratio,
            evidence_for=(share,),
            evidence_against=(Evidence(name="answered", value=ratio, unit="ratio", text=others),),
        )
