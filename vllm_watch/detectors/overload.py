"""Detects a lasting queue. Source: vLLM's documentation of `num_requests_waiting`."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from vllm_watch.detectors.api_server import ApiServer
from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.detectors.collapse_causes import (
    PASSES_SECONDS,
    Cause,
    Finished,
    awaited_share,
    waits_for_peer,
)
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.detectors.per_engine import EngineLook, PerEngine
from vllm_watch.samples.engine import EngineSample
from vllm_watch.settings.base import Settings as Base
from vllm_watch.signals import capacity, stored
from vllm_watch.signals.baseline import STARVED_RUNNING, STARVED_USAGE_MIN
from vllm_watch.signals.blocks import Block, Blocks, began_anew
from vllm_watch.signals.scales import (
    FEW,
    HALF,
    HOUR_SECONDS,
    MINUTE_SECONDS,
    MOST_SHARE,
    TEN_MINUTES_SECONDS,
)
from vllm_watch.signals.throughput import LEARNT_SECONDS, Mean
from vllm_watch.support.quantities import in_words, requests

DEMAND, DEFERRED, SMALL_CACHE, PAUSED = "demand", "deferred", "small_cache", "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Facts about a lasting queue. Unknown facts are None."""

    waiting: float
    running: float
    running_peak: float
    usage: float
    step_tokens: float | None
    step_tokens_peak: float
    deferred: float | None
    awaiting: float = 0.0
    awaited: float = 0.0  # cache share that requests waiting for KV may hold
    cache_ratio: float | None = None  # cache size, relative to the previous process
    length_ratio: float | None = None  # mean length of finished requests, relative to the usual one

    def used(self) -> Evidence:
        text = (
            f"{requests(self.running)} running (the most so far: {self.running_peak:.0f}), the KV cache is {self.usage:.0%} full, "
            f"a step holds {self.step_tokens or 0.0:.0f} tokens (the most so far: {self.step_tokens_peak:.0f})"
        )
        return Evidence(name="kv_usage_ratio", value=self.usage, unit="ratio", text=text)

    def longer(self) -> tuple[Evidence, ...]:
        ratio = self.length_ratio
        if ratio is None or ratio < 1.0 / STARVED_RUNNING:
            return ()
        text = f"requests that finish are {ratio:.1f} times as long as usual"
        return (Evidence(name="request_length_ratio", value=ratio, expected=1.0, text=text),)

    def not_excluded(self) -> tuple[Evidence, ...]:
        unknown = {
            "requests wait for something other than capacity (this vLLM does not report it)": self.deferred,
            "the KV cache was larger before the last restart": self.cache_ratio,
            "requests are longer than usual": self.length_ratio,
        }
        names = [name for name, value in unknown.items() if value is None]
        if not names:
            return ()
        text = f"it is unknown whether {' and whether '.join(names)}, so that may be the cause"
        return (Evidence(name="not_excluded", value=None, text=text),)


def of_queue(queue: Queue) -> Cause:
    """Return the cause of a lasting queue."""
    most = 0.5 * queue.waiting
    if queue.awaiting and (queue.awaiting >= most or queue.awaited >= HALF * queue.usage):
        return waits_for_peer(queue.awaiting, queue.usage)
    if queue.deferred is not None and queue.deferred >= most:
        return deferred(queue.deferred)
    full = queue.usage >= STARVED_USAGE_MIN
    # Two starts usually differ by less.
    if queue.cache_ratio is not None and queue.cache_ratio < MOST_SHARE and full:
        text = f"the KV cache has {queue.cache_ratio:.0%} of the tokens that it had before the last restart"
        small = Evidence(name="kv_cache_ratio", value=queue.cache_ratio, unit="ratio", expected=1.0, text=text)  # fmt: skip
        return Cause(SMALL_CACHE, (small, queue.used()))
    no_slot = queue.running >= STARVED_RUNNING * queue.running_peak
    tokens, most_tokens = queue.step_tokens, queue.step_tokens_peak
    prefills = tokens is None or tokens >= STARVED_RUNNING * most_tokens
    if not (full or no_slot or prefills):
        return Cause(UNKNOWN, (queue.used(),))
    return Cause(DEMAND, (queue.used(), *queue.longer()), queue.not_excluded())


def deferred(count: float) -> Cause:
    """Return the cause of deferred requests. They do not wait for capacity."""
    text = f"{requests(count)} deferred: they wait for a grammar to compile or a LoRA slot, and not for capacity"
    return Cause(DEFERRED, (Evidence(name="requests_deferred", value=count, text=text),))


KIND = "overload"

NEEDS = Needs(
    must=(
        Need(("waiting",), "the queue is not seen"),
        Need(("finished",), "how fast the queue drains is unknown"),
    ),
)  # fmt: skip


DRAIN_SHARE = 0.3
"""The incident ends when a new request waits less than this share of `delay_seconds`."""


DEFERRED_TIMES = 4.0
"""Deferred requests wait, e.g. for a grammar. They are stuck if their number stays above
FEW and above DEFERRED_TIMES × the usual number for PASSES_SECONDS. Compiling takes
seconds."""


class Settings(Base):
    """The limits of a queue."""

    delay_seconds: float = Field(default=45.0, gt=0)
    """A queue is too long if a new request would wait longer than this. Users leave after ten
    seconds (Nielsen, 1993), but short bursts cause longer waits."""

    hold_seconds: float = Field(default=20.0, gt=0)
    """A queue that does not shrink is reported after this many seconds. A burst ends before an
    operator could act."""


class EngineJudge(stored.Kept):
    """Follows one engine's queue."""

    LATER = ("running_peak", "step_tokens_peak", "former_tokens")
    KEPT: ClassVar[stored.Fields] = {
        "since_s": stored.number_or_none,
        "since_waiting": stored.number,
        **dict.fromkeys(LATER[:2], stored.number),
        "former_tokens": stored.number_or_none,
    }

    def __init__(self, engine: str, settings: Settings) -> None:
        self.engine = engine
        self._settings = settings
        self._blocks = Blocks()
        self._last: EngineSample | None = None
        self._running_peak = self._step_tokens_peak = 0.0
        self._cache_tokens: float | None = None
        self._former_tokens: float | None = None
        self._lately = Finished()
        self._tokens = Mean(HOUR_SECONDS)
        self._deferred: deque[tuple[float, float]] = deque()
        self._deferred_usual = Mean(HOUR_SECONDS)
        self._paused_s: float | None = None
        self._finished = Mean(MINUTE_SECONDS)
        self._usual = Mean(HOUR_SECONDS)
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
        # Weight updates take minutes.
        if seconds < TEN_MINUTES_SECONDS:
            return None
        text = f"paused through /pause for {seconds / 60:.0f} min with {requests(count)} in hand"
        said = Evidence(name="seconds_paused", value=round(seconds), unit="s", text=text)
        return self._verdict(Cause(PAUSED, (said,)), text, seconds, seconds)

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
        while self._deferred[0][0] <= block.at_s - PASSES_SECONDS - block.seconds:
            self._deferred.popleft()
        if self._stuck() is None:
            self._deferred_usual.add(block.deferred, block.seconds)

    def _stuck(self) -> float | None:
        usual = self._deferred_usual
        if (
            usual.weight < LEARNT_SECONDS
            or self._deferred[-1][0] - self._deferred[0][0] < PASSES_SECONDS
        ):
            return None
        floor = min(count for _, count in self._deferred)
        return floor if floor >= max(FEW, DEFERRED_TIMES * usual.value) else None

    def export_state(self) -> dict[str, Any]:
        means = {"finished": self._finished.export_state(), "usual": self._usual.export_state()}
        return {**means, "firing": self.verdict.state == FIRING, **super().export_state()}

    def restore(self, state: stored.Stored, away_seconds: float = 0.0) -> None:
        self._finished.restore(state["finished"], away_seconds)
        self._usual.restore(state["usual"], away_seconds)
        super().restore(state)
        self._fired = stored.flag(state["firing"])
        if away_seconds > MINUTE_SECONDS:
            self._since_s, self._fired = None, False

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
            cause = deferred(stuck)
            return self._verdict(cause, cause.evidence_for[0].text, PASSES_SECONDS, stuck)
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
        return held_s >= MINUTE_SECONDS and waiting * held_s / shrunk >= TEN_MINUTES_SECONDS

    def _delay(self, block: Block) -> float | None:
        if not block.waiting:
            delay: float | None = 0.0
        else:
            rate = max(self._finished.value, self._usual.value)
            weight = max(self._finished.weight, self._usual.weight)
            known = weight >= MINUTE_SECONDS and rate > 0.0
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
        cause = of_queue(self._queue(block))
        return self._verdict(cause, text, held_s, delay, queue)

    def _queue(self, block: Block) -> Queue:
        usual, lately = self._tokens.value or None, self._lately.tokens()
        return Queue(
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
