"""Detects a lasting queue. Source: vLLM's documentation of `num_requests_waiting`."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vllm_watch.detectors import overload_causes
from vllm_watch.detectors.api_server import ApiServer
from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.detectors.collapse_causes import Cause, awaited_share
from vllm_watch.detectors.finished import Finished
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.detectors.per_engine import EngineLook, PerEngine
from vllm_watch.samples.engine import EngineSample
from vllm_watch.signals import capacity, stored
from vllm_watch.signals.blocks import Block, Blocks, began_anew
from vllm_watch.signals.throughput import Mean
from vllm_watch.support.counts import requests
from vllm_watch.support.durations import in_words

KIND = "overload"

NEEDS = Needs(
    must=(
        Need(("waiting",), "the queue is not seen"),
        Need(("finished",), "how fast the queue drains is unknown"),
    ),
)  # fmt: skip

FOLLOWED_SECONDS = 60.0
"""The stored queue is discarded if no watcher ran for longer than this."""

RATE_SECONDS = 60.0
USUAL_SECONDS = 3600.0
"""The recent rate of finished requests is averaged over RATE_SECONDS, the usual rate over
USUAL_SECONDS."""

STANDS_SECONDS, SHRINKS_SECONDS = 60.0, 600.0
"""A shrinking queue is a finding if it has lasted STANDS_SECONDS, and will need at least
SHRINKS_SECONDS to drain."""

DRAIN_SHARE = 0.3
"""The incident ends when a new request waits less than this share of `delay_seconds`."""


DEFERRED_SECONDS, DEFERRED_MIN, DEFERRED_TIMES = 120.0, 3.0, 4.0
"""Deferred requests wait, e.g. for a grammar. They are stuck if their number stays above
DEFERRED_MIN and above DEFERRED_TIMES × the usual number for DEFERRED_SECONDS. Compiling takes
seconds."""

DEFERRED_KNOWN_SECONDS = 600.0
"""The usual number of deferred requests is known after this many seconds."""

PAUSED_SECONDS = 600.0
"""A longer pause is a finding. Weight updates take minutes."""


class Settings(BaseModel):
    """The limits of a queue."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    delay_seconds: float = Field(default=45.0, gt=0)
    """A queue is too long if a new request would wait longer than this. Users leave after ten
    seconds (Nielsen, 1993), but short bursts cause longer waits."""

    hold_seconds: float = Field(default=20.0, gt=0)
    """A queue that does not shrink is reported after this many seconds. A burst ends before an
    operator could act."""


_KEPT = ("running_peak", "step_tokens_peak", "cache_tokens", "former_tokens")


class EngineJudge:
    """Follows one engine's queue."""

    def __init__(self, engine: str, settings: Settings) -> None:
        self.engine = engine
        self._settings = settings
        self._blocks = Blocks()
        self._last: EngineSample | None = None
        self._running_peak = self._step_tokens_peak = 0.0
        self._cache_tokens: float | None = None
        self._former_tokens: float | None = None
        self._lately = Finished()
        self._tokens = Mean(USUAL_SECONDS)
        self._deferred: deque[tuple[float, float]] = deque()
        self._deferred_usual = Mean(USUAL_SECONDS)
        self._paused_s: float | None = None
        self._finished = Mean(RATE_SECONDS)
        self._usual = Mean(USUAL_SECONDS)
        self._since_s: float | None = None
        self._since_waiting = 0.0
        self._fired = False
        self.verdict = Verdict(state=UNKNOWN, kind=KIND, engine=engine)

    def update(self, look: EngineLook) -> Verdict:
        if not look.known:
            self._since_s = self._paused_s = None
            self._deferred.clear()
        self._follow(look)
        held_up = self._paused(look)
        if held_up is not None:
            self.verdict = held_up
            return held_up
        block = self._blocks.add(look.at_s, look.sample, anew=not look.known)
        if block is not None:
            self._learn(block)
            self.verdict = self._judge(block)
        return self.verdict

    def _follow(self, look: EngineLook) -> None:
        sample, last = look.sample, self._last
        if last is not None and began_anew(last, sample):
            self._running_peak = self._step_tokens_peak = 0.0
            same = last.model_name == sample.model_name
            self._former_tokens, self._cache_tokens = self._cache_tokens if same else None, None
        tokens = capacity.kv_cache_tokens(sample.cache_config_info, look.engines)
        self._last, self._cache_tokens = sample, tokens or self._cache_tokens

    def _paused(self, look: EngineLook) -> Verdict | None:
        count = (look.sample.requests_running or 0.0) + (look.sample.requests_waiting or 0.0)
        if not look.paused or not count:
            self._paused_s = None
            return None
        if self._paused_s is None:
            self._paused_s = look.at_s
        seconds = look.at_s - self._paused_s
        if seconds < PAUSED_SECONDS:
            return None
        cause = overload_causes.paused(seconds, count)
        return self._verdict(cause, cause.evidence_for[0].text, seconds, seconds)

    def _learn(self, block: Block) -> None:
        self._running_peak = max(self._running_peak, block.running)
        self._step_tokens_peak = max(self._step_tokens_peak, block.tokens_per_step or 0.0)
        self._lately.add(block)
        if block.finished and block.finished_tokens is not None:
            self._tokens.add(block.finished_tokens / block.finished, block.seconds)
        if block.deferred is None or block.awaiting_kv:
            self._deferred.clear()
            return
        self._deferred.append((block.at_s, block.deferred))
        while self._deferred[0][0] <= block.at_s - DEFERRED_SECONDS - block.seconds:
            self._deferred.popleft()
        if self._stuck() is None:
            self._deferred_usual.add(block.deferred, block.seconds)

    def _stuck(self) -> float | None:
        usual = self._deferred_usual
        if (
            usual.weight < DEFERRED_KNOWN_SECONDS
            or self._deferred[-1][0] - self._deferred[0][0] < DEFERRED_SECONDS
        ):
            return None
        floor = min(count for _, count in self._deferred)
        return floor if floor >= max(DEFERRED_MIN, DEFERRED_TIMES * usual.value) else None

    def export_state(self) -> dict[str, Any]:
        return {
            "finished": self._finished.export_state(),
            "usual": self._usual.export_state(),
            "since_s": self._since_s,
            "since_waiting": self._since_waiting,
            "firing": self.verdict.state == FIRING,
            **{name: getattr(self, "_" + name) for name in _KEPT},
        }

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        self._finished.restore(state["finished"], away_seconds)
        self._usual.restore(state["usual"], away_seconds)
        since_s, firing = stored.number_or_none(state["since_s"]), stored.flag(state["firing"])
        self._since_waiting = stored.number(state["since_waiting"])
        for name in _KEPT:
            setattr(
                self,
                "_" + name,
                stored.number_or_none(state.get(name)) or getattr(self, "_" + name),
            )
        if away_seconds <= FOLLOWED_SECONDS:
            self._since_s = since_s
            self._fired = firing

    def _judge(self, block: Block) -> Verdict:
        delay = self._delay(block)
        if delay is None:
            return Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)
        if block.waiting and not block.running:
            # More replicas do not help if no request is served.
            self._since_s = None
            return Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)
        stuck = self._stuck() if self._deferred else None
        if stuck is not None:
            cause = overload_causes.deferred(stuck)
            return self._verdict(cause, cause.evidence_for[0].text, DEFERRED_SECONDS, stuck)
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
        shrunk = self._since_waiting - waiting
        if shrunk <= 0.0:
            return True
        return held_s >= STANDS_SECONDS and waiting * held_s / shrunk >= SHRINKS_SECONDS

    def _delay(self, block: Block) -> float | None:
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
        text = f"{requests(block.waiting)} waiting: {in_words(delay)} of work at the rate so far"
        queue = Evidence(
            name="queue_delay_seconds", value=delay, unit="s", expected=limit, text=text
        )
        cause = overload_causes.of_queue(self._queue(block))
        return self._verdict(cause, text, held_s, delay, queue)

    def _queue(self, block: Block) -> overload_causes.Queue:
        usual, lately = self._tokens.value or None, self._lately.tokens()
        return overload_causes.Queue(
            waiting=block.waiting, running=block.running, running_peak=self._running_peak, usage=block.kv_usage or 0.0,
            step_tokens=block.tokens_per_step, step_tokens_peak=self._step_tokens_peak, deferred=block.deferred,
            awaiting=block.awaiting_kv, awaited=awaited_share(block, self._cache_tokens, usual),
            cache_ratio=self._cache_tokens / self._former_tokens if self._cache_tokens and self._former_tokens else None,
            length_ratio=lately / usual if lately and usual else None,
        )  # fmt: skip

    def _verdict(
        self, cause: Cause, text: str, lasted_s: float, measure: float, *queue: Evidence
    ) -> Verdict:
        return Verdict(
            state=FIRING,
            kind=KIND,
            engine=self.engine,
            cause=cause.name,
            severity="ticket",
            summary=f"Engine {self.engine}: {text}",
            since_seconds=max(0.0, lasted_s),
            measure=measure,
            evidence_for=(*queue, *cause.evidence_for),
            evidence_against=cause.evidence_against,
        )


class Detector(PerEngine[EngineJudge]):
    """Judges the queue of each engine, and the API server."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(KIND, lambda engine: EngineJudge(engine, settings))
        self._api = ApiServer(KIND)

    def update(self, view: View) -> Sequence[Verdict]:
        return [*super().update(view), *self._api.update(view)]

    def export_state(self, at_s: float) -> dict[str, Any]:
        return {**super().export_state(at_s), "api": self._api.export_state()}

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        super().restore(state, away_seconds)
        if "api" in state:
            self._api.restore(state["api"], away_seconds)
