"""More work than the engine can do at its usual throughput: the engine is healthy, there is too much to do.

Source: vLLM's own advice on `num_requests_waiting`; a queue alone is no incident, one that holds is.
Runbook: docs/detectors/overload.md
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vllm_watch.detectors.api_server import ApiServer
from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.detectors.per_engine import EngineLook, PerEngine
from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block, Blocks
from vllm_watch.signals.throughput import Mean
from vllm_watch.support.counts import requests

KIND = "overload"

NEEDS = Needs(
    must=(
        Need(("waiting",), "the queue is not seen"),
        Need(("finished",), "how fast the queue is worked off is not known"),
    ),
)  # fmt: skip

FOLLOWED_SECONDS = 60.0
"""A queue that was followed when the watcher stopped is still that queue for so long."""

RATE_SECONDS = 60.0
"""The rate at which requests finish is averaged over this."""

USUAL_SECONDS = 3600.0
"""... and the usual rate, while requests run, over this: after an idle time the rate of the last minute
says too little."""

STANDS_SECONDS, SHRINKS_SECONDS = 60.0, 600.0
"""A queue that shrinks, but in a minute by so little that ten more would not end it, stands."""

DRAIN_SHARE = 0.3
"""It is over when the queue would be worked off in this share of the delay that began it."""


class Settings(BaseModel):
    """When a queue is too long."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    delay_seconds: float = Field(default=45.0, gt=0)
    """A request that arrives now would wait so long: well beyond the ten seconds after which people leave
    (Nielsen, 1993), and beyond what bursts of arrivals do to an engine that is large enough on average."""

    hold_seconds: float = Field(default=20.0, gt=0)
    """... and has to, for so long, in which the queue does not shrink: a burst is worked off before anybody
    could act."""


class EngineJudge:
    """Follows one engine's queue."""

    def __init__(self, engine: str, settings: Settings) -> None:
        self.engine = engine
        self._settings = settings
        self._blocks = Blocks()
        self._finished = Mean(RATE_SECONDS)
        self._usual = Mean(USUAL_SECONDS)
        self._since_s: float | None = None
        self._since_waiting = 0.0
        self._fired = False  # when the watcher was restarted, until the first block since
        self.verdict = Verdict(state=UNKNOWN, kind=KIND, engine=engine)

    def update(self, look: EngineLook) -> Verdict:
        """Take a look in; the verdict changes at the end of a block only."""
        if not look.known:
            self._since_s = None
        block = self._blocks.add(look.at_s, look.sample, anew=not look.known)
        if block is not None:
            self.verdict = self._judge(block)
        return self.verdict

    def export_state(self) -> dict[str, Any]:
        """Return what was learnt, and the queue that is followed, as plain values."""
        return {
            "finished": self._finished.export_state(),
            "usual": self._usual.export_state(),
            "since_s": self._since_s,
            "since_waiting": self._since_waiting,
            "firing": self.verdict.state == FIRING,
        }

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        """Go on: the queue only if nobody can have worked it off and filled it again meanwhile."""
        self._finished.restore(state["finished"], away_seconds)
        self._usual.restore(state["usual"], away_seconds)
        since_s, firing = stored.number_or_none(state["since_s"]), stored.flag(state["firing"])
        self._since_waiting = stored.number(state["since_waiting"])
        if away_seconds <= FOLLOWED_SECONDS:
            self._since_s = since_s
            self._fired = firing

    def _judge(self, block: Block) -> Verdict:
        delay = self._delay(block)
        if delay is None:
            return Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)
        if block.waiting and not block.running:
            # Nobody is served: whatever this queue is, more replicas are not what it lacks.
            self._since_s = None
            return Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)
        firing = self.verdict.state == FIRING or self._fired
        self._fired = False
        limit = self._settings.delay_seconds * (DRAIN_SHARE if firing else 1.0)
        if block.waiting_min < 1.0 or delay < limit:
            self._since_s = None
            return Verdict(state=CLEAR, kind=KIND, engine=self.engine)
        if self._since_s is None:
            self._since_s, self._since_waiting = block.at_s - block.seconds, block.waiting
        held_s = block.at_s - self._since_s
        held = held_s >= self._settings.hold_seconds
        if not firing and not (held and self._stands(block.waiting, held_s)):
            return Verdict(state=CLEAR, kind=KIND, engine=self.engine)
        return self._overloaded(block, delay, held_s)

    def _stands(self, waiting: float, held_s: float) -> bool:
        """Does the queue not shrink, or so slowly that it will be there for long?"""
        shrunk = self._since_waiting - waiting
        if shrunk <= 0.0:
            return True
        return held_s >= STANDS_SECONDS and waiting * held_s / shrunk >= SHRINKS_SECONDS

    def _delay(self, block: Block) -> float | None:
        """Seconds until the queue would be worked off at the usual rate; None while that is not known."""
        if not block.waiting:
            delay: float | None = 0.0
        else:
            rate = max(self._finished.value, self._usual.value)
            weight = max(self._finished.weight, self._usual.weight)
            known = weight >= RATE_SECONDS and rate > 0.0
            delay = block.waiting / rate if known else None
        if block.finished is not None:
            self._finished.add(block.finished / block.seconds, block.seconds)
            if block.running_min > 0.0:
                self._usual.add(block.finished / block.seconds, block.seconds)
        return delay

    def _overloaded(self, block: Block, delay: float, held_s: float) -> Verdict:
        limit = self._settings.delay_seconds
        text = f"{requests(block.waiting)} waiting: {delay:.0f} s of work at the usual rate"
        queue = Evidence(
            name="queue_delay_seconds", value=delay, unit="s", expected=limit, text=text
        )
        return Verdict(
            state=FIRING,
            kind=KIND,
            engine=self.engine,
            cause="demand",
            severity="ticket",
            summary=f"Engine {self.engine}: {text}",
            since_seconds=max(0.0, held_s),
            measure=delay,
            evidence_for=(queue,),
        )


class Detector(PerEngine[EngineJudge]):
    """One judge per engine, and one for the API server before them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(KIND, lambda engine: EngineJudge(engine, settings))
        self._api = ApiServer(KIND)

    def update(self, view: View) -> Sequence[Verdict]:
        """See `PerEngine.update`; the server's verdict is the last."""
        return [*super().update(view), *self._api.update(view)]

    def export_state(self, at_s: float) -> dict[str, Any]:
        """See `detectors.base.Remembers`."""
        return {**super().export_state(at_s), "api": self._api.export_state()}

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        """See `detectors.base.Remembers`."""
        super().restore(state, away_seconds)
        if "api" in state:
            self._api.restore(state["api"], away_seconds)
