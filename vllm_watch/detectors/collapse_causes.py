"""Finds the cause of a shortage of KV pages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_watch.detectors.base import Evidence
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.signals import stored
from vllm_watch.signals.baseline import SLOW_TOLERANCE, Baseline, Comparison
from vllm_watch.signals.blocks import Block
from vllm_watch.signals.pages import none_prefilling
from vllm_watch.signals.scales import (
    FEW,
    HALF,
    HALF_MINUTE_SECONDS,
    MINUTE_SECONDS,
    MOMENT_SECONDS,
    PART_SHARE,
    SMALL_SHARE,
)
from vllm_watch.support.quantities import in_words, requests

LENGTH_HALF_SECONDS = 120.0
"""Half-life of a finished request's weight in the mean length."""


LONG_PROMPT = 5.0
"""A prompt is long if it has this many times the usual total tokens of a request."""


class Finished:
    """Counts recently finished requests."""

    def __init__(self) -> None:
        self._requests = self._tokens = self._preempted = 0.0

    def export_state(self) -> list[float]:
        return [self._requests, self._tokens, self._preempted]

    def restore(self, state: Sequence[float]) -> None:
        self._requests, self._tokens, self._preempted = stored.numbers(state, 3)

    def add(self, block: Block) -> None:
        keep = 0.5 ** (block.seconds / LENGTH_HALF_SECONDS)
        self._requests = self._requests * keep + (block.finished or 0.0)
        self._tokens = self._tokens * keep + (block.finished_tokens or 0.0)
        self._preempted = self._preempted * keep + (block.preempted or 0.0)

    def tokens(self) -> float | None:
        return self._tokens / self._requests if self._requests >= FEW else None

    @property
    def preempting(self) -> bool:
        return self._preempted > HALF

    @property
    def preempted_share(self) -> float | None:
        return self._preempted / self._requests if self._requests > 0.0 else None


class LongPrompts:
    """Sums up the tokens of recent prompts that are far longer than usual requests."""

    def __init__(self) -> None:
        self.tokens = 0.0

    def export_state(self) -> list[float]:
        return [self.tokens]

    def restore(self, state: Sequence[float]) -> None:
        self.tokens = stored.numbers(state)[0]

    def add(self, block: Block, request_tokens: float | None) -> None:
        self.tokens *= 0.5 ** (block.seconds / LENGTH_HALF_SECONDS)
        if not block.prompts or block.prompted is None or request_tokens is None:
            return
        tokens = block.prompted * block.seconds
        if tokens >= LONG_PROMPT * request_tokens * block.prompts:
            self.tokens += tokens


KIND = "throughput_collapse"

KV_PINNING, PREEMPTION_THRASH, KV_LEAK = "kv_pinning", "preemption_thrash", "kv_leak"
PEER_WAIT = "peer_wait"
SLOW_ENGINE, THERMAL, NEIGHBOUR = "slow_engine", "thermal_throttle", "neighbour_contention"
UNKNOWN = "unknown"
SLOW, CACHE, STUCK = "slow", "cache", "stuck"

NEEDS = Needs(
    must=(
        Need(("steps", "latency"), "step times are unknown"),
        Need(("generated",), "throughput is unknown"),
        Need(("running",), "an idle engine and a slow one look alike"),
        Need(("prompted",), "long prompts look like slow steps"),
        Need(("kv_cache_usage",), "long contexts look like slow steps, and engines that lack KV pages are not found"),
    ),
    sharpens=(
        Need(("waiting",), "engines that lack KV pages are not found, and slow ones later"),
        Need(("steps",), "step times are estimated from latencies"),
        Need(("latency",), "only periods without a pause are judged"),
        Need(("prefix_cache",), "an engine whose prefix cache went cold may be called slow"),
        Need(("lengths",), "who holds the KV pages that lack is unknown"),
        Need(("preemptions",), "requests that grew too long are mistaken for pinned pages"),
        Need(("gpus",), "heat, a neighbour on the GPU and a slow engine look alike"),
    ),
)  # fmt: skip

OF_LOAD = (UNKNOWN, KV_PINNING, PREEMPTION_THRASH)
"""Causes that long prompts can imitate."""

OF_OTHERS = (PREEMPTION_THRASH, PEER_WAIT)
"""Causes outside the engine. They page only if the queue grows."""

VAGUE = frozenset((SLOW_ENGINE, UNKNOWN))

PASSES_SECONDS = 120.0
"""Odd or long prompts are over after this many seconds. One long prompt takes 10 to 60 s."""


LONG_REQUESTS = 2.5
"""If requests become this many times as long as after the engine's start, they can fill the cache
of a healthy engine."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause with its evidence."""

    name: str
    evidence_for: tuple[Evidence, ...]
    evidence_against: tuple[Evidence, ...] = ()


def of_strange_load(found: Cause) -> Cause:
    """Replace the cause by UNKNOWN, because a few long contexts may explain the slow steps."""
    text = "requests wait while few of them hold many pages, so the expected step time is a guess"
    strange = Evidence(name="load", value="few hold many pages", text=text)
    return Cause(UNKNOWN, found.evidence_for, (*found.evidence_against, strange))


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """Facts about a lack of KV pages. Unknown facts are None."""

    running: float
    usage: float
    length_ratio: float | None  # recent mean length of requests, relative to that after the start
    preempted_share: float | None  # preemptions per finished request
    preempting: bool
    long_prompts_share: float | None
    awaiting: float = 0.0
    awaited: float = 0.0  # cache share that requests waiting for KV may hold
    unheld: float | None  # share of the cache that no request holds
    unheld_rise_seconds: float | None
    unheld_surely: bool  # `unheld` has lasted longer than a prompt takes


def of_starvation(facts: Starvation) -> Cause:
    """Return the cause of a lack of pages."""
    if facts.awaited and facts.awaited >= HALF * facts.usage:
        return waits_for_peer(facts.awaiting, facts.usage)
    length, preempted = facts.length_ratio, facts.preempted_share
    lost = facts.unheld is not None and facts.unheld >= HALF * facts.usage
    if (
        (length is not None and length >= LONG_REQUESTS)
        and (preempted is not None and preempted >= SMALL_SHARE)
        and not lost
    ):
        return _thrash(length, preempted)
    if facts.unheld is None:
        return _uncounted(facts)
    rise = facts.unheld_rise_seconds or 0.0
    # Preempted requests and prompts in progress distort the estimate by less.
    # Pages that are taken at once appear within two scrapes.
    if facts.unheld >= PART_SHARE and rise >= HALF_MINUTE_SECONDS:
        return _leak(facts, facts.unheld, rise)
    return _lost(facts.unheld) if lost else _held_by_few(facts, facts.unheld)


def awaited_share(
    block: Block, capacity_tokens: float | None, request_tokens: float | None
) -> float:
    """Return the largest share of the cache that requests waiting for KV may hold."""
    if not block.awaiting_kv:
        return 0.0
    if not capacity_tokens or not request_tokens:
        return 1.0
    return min(1.0, block.awaiting_kv * LONG_REQUESTS * request_tokens / capacity_tokens)


def waits_for_peer(awaiting: float, usage: float) -> Cause:
    """Return the cause of a queue that waits for remote KV."""
    text = f"{requests(awaiting)} wait for KV from another server; {usage:.0%} of the KV cache is in use"
    return Cause(PEER_WAIT, (Evidence(name="requests_awaiting_kv", value=awaiting, text=text),))


def is_asked_for(facts: Starvation) -> bool:
    """Return True if long prompts recently took much of the cache."""
    return (facts.long_prompts_share or 0.0) >= SMALL_SHARE


def _thrash(length: float, preempted: float) -> Cause:
    text = f"finished requests are {length:.1f} times as long as they were after the start"
    longer = Evidence(name="request_length_ratio", value=length, expected=1.0, text=text)
    text = f"{preempted:.2f} preemptions for each request that finishes"
    pushed = Evidence(name="preemptions_per_request", value=preempted, text=text)
    return Cause(PREEMPTION_THRASH, (longer, pushed))


def _leak(facts: Starvation, share: float, rise: float) -> Cause:
    text = f"{_UNHELD.format(share)}; most of it came within {in_words(rise)}"
    found = (Evidence(name="kv_unheld_ratio", value=share, unit="ratio", expected=0.0, text=text),)
    # A few prefills pin pages within a minute.
    if facts.unheld_surely:
        return Cause(KV_LEAK, found)
    text = "a long prompt takes pages before its tokens are counted: the cause is unclear for some seconds"
    return Cause(UNKNOWN, found, (Evidence(name="prefill", value=None, text=text),))


def _lost(share: float) -> Cause:
    text = f"{_UNHELD.format(share)}; it came at once"
    found = Evidence(name="kv_unheld_ratio", value=share, unit="ratio", expected=0.0, text=text)
    return Cause(KV_PINNING, (found,))


_UNHELD = "{:.0%} of the KV cache belongs to no running request"


def crowded(running: float, usage: float, expected: float | None) -> Evidence:
    """Describe the usage of the cache."""
    one = round(running) == 1
    text = f"{running:.0f} {'request runs' if one else 'requests run'} with {usage:.0%} of the KV cache in use"
    usual = min(1.0, usage * running / expected) if expected else None
    if usual is not None:
        text = f"{text}; {'one usually uses' if one else 'that many usually use'} about {usual:.0%}"
    return Evidence(name="kv_usage_ratio", value=usage, unit="ratio", expected=usual, text=text)


def earlier(evidence: Evidence) -> Evidence:
    """Mark evidence as found before the recovery."""
    return replace(evidence, text=f"earlier: {evidence.text}")


def _held_by_few(facts: Starvation, unheld: float) -> Cause:
    text = f"the running requests ({facts.running:.0f}) fill the KV cache themselves"
    share = max(0.0, unheld)
    held = Evidence(name="kv_unheld_ratio", value=share, unit="ratio", expected=0.0, text=text)
    length = facts.length_ratio
    if length is not None and length < LONG_REQUESTS:
        text = f"others still come and go, {length:.1f} times as long as they were after the start"
        short = Evidence(name="request_length_ratio", value=length, expected=1.0, text=text)
        return Cause(KV_PINNING, (held, short))
    if (facts.long_prompts_share or 0.0) >= HALF:
        text = f"recent long prompts fill {facts.long_prompts_share:.0%} of the KV cache"
        long = Evidence(name="long_prompts_share", value=facts.long_prompts_share, unit="ratio", text=text)  # fmt: skip
        return Cause(KV_PINNING, (held, long))
    if facts.preempting:
        text = (
            "requests preempt each other, and too few have finished to know whether all became long"
        )
        open_ = Evidence(name="request_length_ratio", value=None, text=text)
        return Cause(UNKNOWN, (held,), (open_,))
    return Cause(KV_PINNING, (held,))


def _uncounted(facts: Starvation) -> Cause:
    text = f"the lengths of requests are not counted: whether the {facts.running:.0f} running ones hold the pages is unknown"
    return Cause(UNKNOWN, (), (Evidence(name="kv_unheld_ratio", value=None, text=text),))


class Unread:
    """Follows an engine that lacks KV pages."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def surely(self) -> bool:
        return self.seconds >= MOMENT_SECONDS

    def follow(self, comparison: Comparison, baseline: Baseline, unheld: float | None) -> None:
        block, slow = comparison.block, comparison.slow_log_ratio
        if slow is None:
            slow = baseline.former_log_ratio(block)
        if unheld is None or unheld < PART_SHARE:
            unread = False
        elif none_prefilling(block) and (slow is None or slow < SLOW_TOLERANCE):
            unread = True
        else:
            return  # inconclusive: a prompt may lengthen steps
        # If the usual step time is unknown, a prompt may go unnoticed for a minute.
        counts = MOMENT_SECONDS / MINUTE_SECONDS if slow is None else 1.0
        self.seconds = self.seconds + counts * block.seconds if unread else 0.0
