"""Follows one engine's progress: the time without output, and the time without any change.

Output is a token, a first token or a finished request. Other changes are signs of life. They count
as output until the longest prefill would have ended, or until the engine has computed more than its
KV cache holds.
"""

from dataclasses import asdict
from functools import partial
from math import exp
from operator import attrgetter
from typing import Any, ClassVar

from vllm_watch.samples.engine import EngineSample, served
from vllm_watch.samples.observation import ServerSample
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.capacity import kv_cache_tokens, longest_request_tokens
from vllm_watch.signals.life import AWAY_SECONDS_MAX, never_falling
from vllm_watch.signals.scales import (
    BRIEF_SECONDS,
    FEW,
    MANY,
    MINUTE_SECONDS,
    MOMENT_SECONDS,
    NEARLY_ALL,
    TEN_MINUTES_SECONDS,
)
from vllm_watch.support.quantities import in_words

ATTENTION_TOKENS = 60_000.0
"""At this prompt length, attention costs as much as all other computation. An 8B Llama model needs
16 GFLOP per token, plus 0.26 MFLOP for each earlier token."""


@record
class Poll:
    """The signs of progress in one poll: the engine's work, and the server's clients."""

    counters: tuple[float | None, ...]
    outputs: tuple[float | None, ...]
    gauges: tuple[float | None, ...]  # changed only by the scheduler; KV usage is last
    waiting: float
    work: float
    finished: float  # without failed and aborted requests
    aborted: float
    loaded: float  # transfers or bytes of remote KV
    fds: float | None
    responses: float | None


_POLL: stored.Fields = {
    **dict.fromkeys(("counters", "outputs", "gauges"), partial(stored.numbers_or_none, least=1)),
    **dict.fromkeys(("waiting", "work", "finished", "aborted", "loaded"), stored.number),
    **dict.fromkeys(("fds", "responses"), stored.number_or_none),
}


def _restored(state: stored.Stored | None) -> Poll | None:
    return None if state is None else Poll(**stored.checked(state, _POLL))


class Progress(stored.Kept):
    """Follows one engine from poll to poll."""

    KEPT: ClassVar[stored.Fields] = {
        **dict.fromkeys(("last_s", "life_s", "output_s", "served_s", "queued_s"), stored.number),
        **dict.fromkeys(("_before_s", "_pace", "_pace_before", "gained"), stored.number),
        **dict.fromkeys(("rest_s", "fds_least"), stored.number_or_none),
        **dict.fromkeys(("gone", "doubtful", "met"), stored.flag),
        **dict.fromkeys(("poll", "before"), _restored),
    }

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.poll: Poll | None = None
        self.first = True
        self.met = False  # True if a change was seen between two polls
        # True if anything, a counter of work, or output changed since the previous poll.
        self.moved = self.served = self.output = False
        self.last_s = self.life_s = self.output_s = self.served_s = 0.0
        self.queued_s = 0.0  # start of the time in which requests wait and none runs
        self.silent_polls = 0
        self.pause_s = 0.0  # length of the pause that ended at this poll
        self.rest_s: float | None = None
        self.waking = False  # True until the first step after a sleep or pause
        # All clients left with the last step, as shown by all sources (`gone`) or by one
        # (`doubtful`).
        self.gone = self.doubtful = False
        self.overdue = ""  # why signs of life no longer count as output
        self._gained = 0.0  # share of the KV cache taken since the last output
        self._before: Poll | None = None  # poll before the last step
        self._before_s = 0.0
        self._pace = self._pace_before = 0.0  # connections closed per second
        self._fds_least: float | None = None

    @property
    def work(self) -> float:
        return 0.0 if self.gone or self.poll is None else self.poll.work

    def look(
        self, at_s: float, sample: EngineSample, server: ServerSample, engines: int, *,
        restarted: bool = False, at_rest: bool = False,
    ) -> None:  # fmt: skip
        """Add a poll. `restarted` is True if the counters were reset, and `at_rest` if the engine sleeps or is paused on purpose."""
        if at_s - self.last_s > AWAY_SECONDS_MAX:
            self.forget()
        before, now = self.poll, _poll(sample, server)
        self.first, was = before is None, before or now
        self.served = restarted or now.counters != was.counters
        self.output = restarted or now.outputs != was.outputs
        fewer_wait = now.waiting < was.waiting and not sample.requests_running
        self.moved = self.served or now.gauges != was.gauges or fewer_wait
        self.met = self.met or self.moved
        silent = bool(self.silent_polls and was.work) and not self.gone
        self.pause_s = self.last_s - self.life_s if self.moved and silent else 0.0
        # Times restart at the first poll after a sleep or pause, because work may just have
        # arrived.
        begins = self.first or restarted or at_rest or self.rest_s is not None
        self.waking = at_rest or (self.waking and not self.served)
        since_s = at_s if self.rest_s is None else self.rest_s
        self.rest_s = since_s if at_rest else None
        if self.served or begins:
            self.served_s, self.gone, self.doubtful, self._before = at_s, False, False, was
            self._before_s, self._pace_before = self.last_s, self._pace
        self._note_pace(at_s - self.last_s, was, now)
        new_work = bool(now.work) and not was.work
        if self.moved or begins or new_work:
            self.life_s = at_s
        self.silent_polls = 0 if self.moved or begins else self.silent_polls + 1
        loads = now.loaded != was.loaded
        if self.served or begins or loads or sample.requests_running or not now.waiting:
            self.queued_s = at_s
        if self.output or begins or new_work or not now.work:
            self.output_s = at_s
        if self.output_s == at_s or now.aborted != was.aborted:
            self._gained = 0.0
        self._gained += max(0.0, (now.gauges[-1] or 0.0) - (was.gauges[-1] or 0.0))
        self.poll, self.last_s = now, at_s
        if now.work and not self.served and not begins and engines == 1:
            self._note_clients(at_s, now)
        self.overdue = self._overdue(sample, server, engines)

    def _note_pace(self, seconds: float, was: Poll, now: Poll) -> None:
        closed = _fall(was.fds, now.fds, 0.0)
        if closed is not None and 0.0 < seconds < AWAY_SECONDS_MAX:
            # The rate rises when a client's pool shrinks.
            weight = 1.0 - exp(-seconds / MOMENT_SECONDS)
            self._pace += weight * (closed / seconds - self._pace)

    def _note_clients(self, at_s: float, now: Poll) -> None:
        then = self._before
        if self.gone and now.fds is not None:
            self._fds_least = min(now.fds, now.fds if self._fds_least is None else self._fds_least)
            # A scraper or a browser opens and closes one or two connections.
            if now.fds >= self._fds_least + FEW:  # new clients are not served
                self.gone, self._before = False, None
            return
        self._fds_least = None
        # A hung engine loses its clients one by one.
        if then is None or (at_s - self.served_s > BRIEF_SECONDS and self.silent_polls > 1):
            return
        ended = max(0.0, then.work - now.work)  # these requests ended as usual
        usual = 2.0 * max(0.0, self._pace_before) * (at_s - self._before_s)
        closed = _fall(then.fds, now.fds, max(ended, usual))
        answered = _fall(now.responses, then.responses, now.finished - then.finished)
        # A scraper may connect meanwhile, so the share is below 1.
        least = NEARLY_ALL * now.work
        all_closed = closed is not None and closed >= least
        all_answered = answered is not None and answered >= least
        # A gateway that requests /v1/models every five seconds gets six responses in 30
        # s.
        strong = (all_closed and (closed or 0.0) >= FEW) or (
            all_answered and (answered or 0.0) >= MANY
        )
        alone = closed is None or answered is None
        self.gone = self.gone or (all_closed and all_answered) or (alone and strong)
        self.doubtful = self.doubtful or strong

    def _overdue(self, sample: EngineSample, server: ServerSample, engines: int) -> str:
        silent_s = self.life_s - self.output_s  # increases only by signs of life
        if not sample.requests_running or silent_s < MINUTE_SECONDS:
            return ""
        if self._gained > 1.0:
            return (
                f"it has computed prompts worth {self._gained:.1f} KV caches since the last token"
            )
        longest_s = longest_prefill_seconds(sample, server, engines)
        return f"its longest prefill takes {in_words(longest_s)}" if silent_s > longest_s else ""

    def export_state(self) -> dict[str, Any]:
        polls = {"poll": self.poll, "before": self._before}
        kept = {name: None if each is None else asdict(each) for name, each in polls.items()}
        return super().export_state() | kept

    def restore(self, state: stored.Stored | None) -> None:
        if state is not None:
            super().restore({"met": True, **state})


def longest_prefill_seconds(sample: EngineSample, server: ServerSample, engines: int) -> float:
    """Return the time to compute the prompts of all running requests."""
    size = kv_cache_tokens(sample.cache_config_info, engines)
    longest = longest_request_tokens(sample.cache_config_info, server.max_model_len)
    rate = _prefill_rate(sample)
    if rate is None or (size is None and longest is None):
        # A million tokens take this long at 1,700 per second.
        return TEN_MINUTES_SECONDS
    asked = None if longest is None else longest * (sample.requests_running or 0.0)
    tokens = min(each for each in (size, asked) if each is not None)
    seconds = tokens / rate * (1.0 + (longest or tokens) / ATTENTION_TOKENS)
    return seconds if longest is not None else min(seconds, TEN_MINUTES_SECONDS)


def _prefill_rate(sample: EngineSample) -> float | None:
    lengths, times = sample.request_prompt_tokens, sample.prefill_time or sample.ttft
    # The first ones compile kernels.
    if lengths is None or times is None or times.count < MANY:
        return None
    tokens = lengths.sum or 0.0
    for hits, queries in (
        (sample.prefix_cache_hits, sample.prefix_cache_queries),
        (sample.external_prefix_cache_hits, sample.external_prefix_cache_queries),
    ):
        tokens *= 1.0 - (hits or 0.0) / queries if queries else 1.0
    return tokens / times.sum if tokens > 0.0 and times.sum else None


_alive_of = attrgetter(
    "requests_running", "requests_swapped", "engine_steps", "last_engine_iteration", "estimated_flops_per_gpu",
)  # fmt: skip


def _poll(sample: EngineSample, server: ServerSample) -> Poll:
    done, aborted = served(sample), (sample.request_success or {}).get("abort", 0.0)
    finished = None if done is None else done - aborted
    counters = (*never_falling(sample), finished, sample.preemptions)
    first, latency, tokens = sample.ttft, sample.inter_token_latency, sample.generation_tokens
    tokens = latency.count if tokens is None and latency is not None else tokens
    outputs = (tokens, None if first is None else first.count, finished)
    usage, waiting = sample.kv_cache_usage, sample.requests_waiting or 0.0
    responses = sample.http_responses
    return Poll(
        counters=counters,
        outputs=counters if tokens is None else outputs,
        gauges=(*_alive_of(sample), usage),
        waiting=waiting,
        work=(sample.requests_running or 0.0) + waiting + (sample.requests_swapped or 0.0),
        finished=finished or 0.0,
        aborted=aborted,
        loaded=sum((sample.kv_transfers or {}).values()),
        fds=server.process_open_fds,
        responses=None if responses is None else sum(responses.values()),
    )


def _fall(then: float | None, now: float | None, usual: float) -> float | None:
    return None if now is None or then is None else then - now - usual
