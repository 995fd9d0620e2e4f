"""Joins polls into blocks. A block is the shortest interval with reliable averages."""

from math import inf
from operator import attrgetter

from vllm_watch.samples.engine import EngineSample, Histogram, served
from vllm_watch.samples.record import record
from vllm_watch.signals import capacity
from vllm_watch.signals.life import fell, never_falling
from vllm_watch.signals.scales import BRIEF_SECONDS, FIVE_MINUTES_SECONDS, PART_SHARE
from vllm_watch.signals.state import requests_awaiting_kv

LONG_TOKENS = 16_384.0
"""A prompt is long if at least this many of its tokens are not counted yet. This is more than one step computes (--max-num-batched-tokens)."""


class LongPrompts:
    """Finds long prompts in progress. vLLM allocates all pages of a prompt at once, but counts its tokens
    with the last chunk."""

    def __init__(self) -> None:
        self._gained = 0.0  # uncounted tokens of recently allocated pages
        self._under_way = self._most = 0.0
        self._since_s = 0.0

    def note(self, at_s: float, gained: float, counted: float, finished: float) -> bool:
        """Add a block's KV growth, counted tokens and finished tokens. Return True during a long prompt."""
        self._gained = max(0.0, self._gained + gained - counted)
        began = self._gained >= LONG_TOKENS
        if not began and not self._under_way:
            return False
        if self._under_way:
            self._under_way += gained - counted + finished
        else:
            self._under_way = self._gained
        if began:
            self._since_s, self._gained = at_s, 0.0
        self._most = max(self._most, self._under_way)
        # If tokens stay uncounted for longer, the cause is a leak or a preemption.
        late = at_s - self._since_s > FIVE_MINUTES_SECONDS
        # The share is above 0, because other requests free pages.
        if late or self._under_way <= PART_SHARE * self._most:
            self._under_way = self._most = self._gained = 0.0
        return True


BLOCK_SECONDS_MIN = 1.9
"""A block covers at least two intervals of one second."""

BLOCK_STEPS_MIN = 20.0
"""A block shorter than BRIEF_SECONDS has at least this many steps. Their mean duration varies
by a few per cent."""


NEEDED = ("requests_running", "kv_cache_usage", "prompt_tokens", "generation_tokens")
"""If one of these series is missing, the load would seem too light."""

LOAD = ("iteration_tokens", "inter_token_latency", "prefix_cache_queries", "prefix_cache_hits")

LONG_PROMPTS, DRAFTING, MEDIA = "long_prompts", "drafting", "media"
"""Blocks of these kinds are compared only with blocks of the same kind. Tokens of long prompts are counted late, and drafts and media cost more."""

ADAPTERS = ("adapters_1", "adapters_4", "adapters_16")
"""Kinds of blocks by the number of LoRA adapters in use: 1 to 3, 4 to 15, or more. Switching
adapters costs time."""

KINDS = frozenset((*LOAD, LONG_PROMPTS, DRAFTING, MEDIA, *ADAPTERS))

_WATCHED = (*LOAD, "requests_waiting")
_needed_of, _watched_of = attrgetter(*NEEDED), attrgetter(*_WATCHED)
_NOTHING: frozenset[str] = frozenset()


@record
class Block:
    """One engine's work between two polls. Unknown values are None."""

    at_s: float
    seconds: float
    steps: float | None
    step_seconds: float | None  # without known idle time
    tokens_per_step: float | None  # without cached prompt tokens
    kv_usage: float | None
    running: float
    waiting: float
    waiting_min: float
    running_min: float
    generated: float  # tokens per second
    prompted: float | None  # computed tokens per second
    finished: float | None
    finished_tokens: float | None
    preempted: float | None
    prompts: float | None = None
    first_token_seconds: float | None = None  # sum over all first tokens
    kv_usage_end: float | None = None
    tokens_in_flight: float | None = None  # only changes are meaningful
    deferred: float | None = None
    awaiting_kv: float = 0.0  # requests that hold pages for remote KV
    long_prompts: bool = False  # some tokens are counted in another block
    recomputed: float = 0.0  # tokens at most, after preemptions: vLLM does not count them again
    drafting: bool = False
    media: bool = False
    adapters: int = 0
    lacks: frozenset[str] = _NOTHING

    @property
    def apart(self) -> frozenset[str]:
        if not (self.lacks or self.long_prompts or self.drafting or self.media or self.adapters):
            return _NOTHING
        special = {LONG_PROMPTS: self.long_prompts, DRAFTING: self.drafting, MEDIA: self.media}
        if self.adapters:
            special[ADAPTERS[min(2, (self.adapters.bit_length() - 1) // 2)]] = True
        return self.lacks.intersection(LOAD).union(name for name in special if special[name])


class Blocks:
    """Joins one engine's polls into blocks."""

    def __init__(self) -> None:
        self._first: EngineSample | None = None
        self._first_at_s = 0.0
        self._sums = [0.0, 0.0, 0.0, 0.0]  # polls, running, waiting, usage
        self._lows = [0.0, 0.0]  # running, waiting
        self._lacks = _NOTHING
        self._adapters = 0
        self._long_prompts = LongPrompts()
        self._recomputed = 0.0  # tokens that the last block's preemptions cost

    def add(
        self, at_s: float, sample: EngineSample, *, anew: bool, engines: int = 1
    ) -> Block | None:
        """Add a poll, and return a block if one is complete. `anew` is True if earlier polls are not comparable."""
        if not tells_load(sample):
            self._first = None
            return None
        if anew or self._first is None or began_anew(self._first, sample):
            self._long_prompts = LongPrompts()
            self._begin(at_s, sample)
            return None
        self._note(sample)
        seconds = at_s - self._first_at_s
        if seconds < BLOCK_SECONDS_MIN:
            return None
        steps = _grown(_count(self._first.iteration_tokens), _count(sample.iteration_tokens))
        # A block ends even with fewer steps, so that slow engines are judged.
        if seconds < BRIEF_SECONDS and 0 < (steps or 0) < BLOCK_STEPS_MIN:
            return None
        block = self._block(at_s, seconds, self._first, sample, engines)
        self._begin(at_s, sample)
        return block

    def _begin(self, at_s: float, sample: EngineSample) -> None:
        self._first, self._first_at_s = sample, at_s
        self._sums, self._lows = [0.0, 0.0, 0.0, 0.0], [inf, inf]
        self._lacks, self._adapters = _NOTHING, 0
        self._note(sample)

    def _note(self, sample: EngineSample) -> None:
        self._lacks |= _lacking(sample)
        if sample.lora_requests_info is not None:
            self._adapters = max(self._adapters, _adapters(sample))
        running, waiting = sample.requests_running or 0.0, sample.requests_waiting or 0.0
        sums, lows = self._sums, self._lows
        sums[0] += 1.0
        sums[1] += running
        sums[2] += waiting
        sums[3] += sample.kv_cache_usage or 0.0
        lows[0] = min(lows[0], running)
        lows[1] = min(lows[1], waiting)

    def _block(
        self, at_s: float, seconds: float, a: EngineSample, b: EngineSample, engines: int
    ) -> Block:
        looks, running, waiting, usage = self._sums
        generated = _grown(a.generation_tokens, b.generation_tokens) or 0.0
        prompt, tokens = _grown(a.prompt_tokens, b.prompt_tokens), _finished_tokens(a, b)
        prompted = _computed(prompt, a, b)
        steps, step_seconds = _pace(a, b, seconds, generated, busy=self._lows[0] > 0)
        counted = (prompt or 0.0) + generated
        preempted = _grown(a.preemptions, b.preemptions)
        size = capacity.kv_cache_tokens(b.cache_config_info, engines)
        each = usage / running * (size or 0.0) if running else 0.0  # tokens of a running request
        before, self._recomputed = self._recomputed, (preempted or 0.0) * each
        recomputed = before + self._recomputed  # a prompt may be computed in the next block
        return Block(
            at_s=at_s,
            seconds=seconds,
            steps=steps,
            step_seconds=step_seconds,
            tokens_per_step=(generated + (prompted or 0.0) + recomputed) / steps if steps else None,
            kv_usage=usage / looks,
            running=running / looks,
            waiting=waiting / looks,
            waiting_min=self._lows[1],
            running_min=self._lows[0],
            generated=generated / seconds,
            prompted=None if prompted is None else prompted / seconds,
            finished=_grown(served(a), served(b)),
            finished_tokens=tokens,
            preempted=preempted,
            prompts=_grown(_count(a.ttft), _count(b.ttft)),
            first_token_seconds=_sum_grown(a.ttft, b.ttft),
            kv_usage_end=b.kv_cache_usage,
            tokens_in_flight=_tokens_in_flight(b),
            deferred=(b.requests_waiting_by_reason or {}).get("deferred"),
            awaiting_kv=requests_awaiting_kv(b),
            long_prompts=self._note_prompts(at_s, a, b, size, counted, tokens or 0.0),
            recomputed=recomputed,
            drafting=bool(_grown(a.spec_num_draft_tokens, b.spec_num_draft_tokens)),
            media=bool(_grown(a.mm_cache_queries, b.mm_cache_queries)),
            adapters=self._adapters,
            lacks=self._lacks,
        )

    def _note_prompts(
        self, at_s: float, a: EngineSample, b: EngineSample, size: float | None, counted: float, finished: float
    ) -> bool:  # fmt: skip
        if size is None or a.kv_cache_usage is None or b.kv_cache_usage is None:
            return False
        gained = (b.kv_cache_usage - a.kv_cache_usage) * size
        return self._long_prompts.note(at_s, gained, counted, finished)


def began_anew(before: EngineSample, now: EngineSample) -> bool:
    """Return True if the counters were reset."""
    if before.created_time is not None and now.created_time is not None:
        return before.created_time != now.created_time
    return fell(never_falling(before), never_falling(now))


def tells_load(sample: EngineSample) -> bool:
    """Return True if the poll has all series in NEEDED."""
    return None not in _needed_of(sample)


def _lacking(sample: EngineSample) -> frozenset[str]:
    seen = _watched_of(sample)
    if None not in seen:
        return _NOTHING
    return frozenset(name for name, value in zip(_WATCHED, seen, strict=True) if value is None)


def _adapters(sample: EngineSample) -> int:
    if sample.lora_requests_info is None:
        return 0
    named = sample.lora_requests_info.get("running_lora_adapters", "")
    return named.count(",") + 1 if named else 0


def _count(h: Histogram | None) -> float | None:
    return None if h is None else h.count


def _grown(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None or b < a else b - a


def _sum_grown(a: Histogram | None, b: Histogram | None) -> float | None:
    return None if a is None or b is None else _grown(a.sum, b.sum)


def _mean(a: Histogram | None, b: Histogram | None) -> float | None:
    count, total = _grown(_count(a), _count(b)), _sum_grown(a, b)
    return total / count if count and total else None


def _computed(prompt: float | None, a: EngineSample, b: EngineSample) -> float | None:
    """Some releases count hits and queries in blocks instead of tokens, so only their ratio is used."""
    if prompt is None:
        return None
    queries = _grown(a.prefix_cache_queries, b.prefix_cache_queries)
    hits = _grown(a.prefix_cache_hits, b.prefix_cache_hits)
    return prompt * (1.0 - min(1.0, hits / queries)) if queries and hits else prompt


def _pace(
    a: EngineSample, b: EngineSample, seconds: float, generated: float, *, busy: bool
) -> tuple[float | None, float | None]:
    """Return the steps and the seconds of a step, the smaller of two estimates. Idle time inflates the elapsed time per step, and preemptions inflate the latency."""
    latency = _mean(a.inter_token_latency, b.inter_token_latency)
    if not (generated or latency):
        latency = _mean(a.prefill_time, b.prefill_time)
    steps = _grown(_count(a.iteration_tokens), _count(b.iteration_tokens))
    if steps is None and latency and busy:
        steps = seconds / latency
    if not steps:
        return steps, None
    elapsed = seconds / steps
    if latency is None:
        return steps, elapsed if busy else None
    return steps, min(elapsed, latency)


def _finished_tokens(a: EngineSample, b: EngineSample) -> float | None:
    prompt = _sum_grown(a.request_prompt_tokens, b.request_prompt_tokens)
    output = _sum_grown(a.request_generation_tokens, b.request_generation_tokens)
    return None if prompt is None or output is None else prompt + output


def _tokens_in_flight(b: EngineSample) -> float | None:
    prompt, output = b.request_prompt_tokens, b.request_generation_tokens
    if prompt is None or prompt.sum is None or output is None or output.sum is None:
        return None
    if b.prompt_tokens is None or b.generation_tokens is None:
        return None
    return b.prompt_tokens - prompt.sum + b.generation_tokens - output.sum
