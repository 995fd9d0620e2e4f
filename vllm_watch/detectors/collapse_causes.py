"""Why an engine collapsed, told apart by what each cause leaves in the numbers. Pure helpers.

Starved of KV pages:
preemption_thrash: the requests themselves became long (finished ones are several times their old
length) and push each other out; kv_leak: usage that no running request explains grew over minutes;
kv_pinning: it was there within a moment, held by a few requests, or by none; peer_wait: requests hold
pages while they wait for their KV from another server.
Slow steps: see collapse_gpus.py and collapse_host.py; else it is the engine itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_watch.detectors.base import Evidence
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.signals import stored
from vllm_watch.signals.baseline import Comparison
from vllm_watch.signals.blocks import Block
from vllm_watch.signals.ring_buffer import RingBuffer
from vllm_watch.support.counts import requests
from vllm_watch.support.durations import in_words

KV_PINNING, PREEMPTION_THRASH, KV_LEAK = "kv_pinning", "preemption_thrash", "kv_leak"
PEER_WAIT = "peer_wait"
SLOW_ENGINE, THERMAL, NEIGHBOUR = "slow_engine", "thermal_throttle", "neighbour_contention"
UNKNOWN = "unknown"
SLOW, CACHE, STUCK = "slow", "cache", "stuck"  # families

NEEDS = Needs(
    must=(
        Need(("steps", "latency"), "the time of a step is not known"),
        Need(("generated",), "throughput is unknown"),
        Need(("running",), "idle and slow look alike"),
        Need(("prompted",), "long prompts look like slow steps"),
        Need(("kv_cache_usage",), "long contexts look like slow steps, and engines that starve of KV pages are not found"),
    ),
    sharpens=(
        Need(("waiting",), "engines that starve of KV pages are not found, and slow ones later"),
        Need(("steps",), "steps are reckoned from latencies"),
        Need(("latency",), "only stretches without a pause are judged"),
        Need(("prefix_cache",), "an engine whose prefix cache went cold may be called slow"),
        Need(("lengths",), "requests that grew too long are taken for pinned pages"),
        Need(("preemptions",), "requests that grew too long are taken for pinned pages"),
        Need(("gpus",), "heat, a neighbour on the GPU and a slow engine look alike"),
    ),
)  # fmt: skip

OF_LOAD = (UNKNOWN, KV_PINNING, PREEMPTION_THRASH)
"""What a bunch of long prompts looks like while it takes the pages of others."""

OF_OTHERS = (PREEMPTION_THRASH, PEER_WAIT)
"""What lies in the requests or in another server: a page only when more and more users wait."""

VAGUE = frozenset((SLOW_ENGINE, UNKNOWN))
"""Causes that are said for want of a better one, and may sharpen while the alarm holds."""

UNREAD_SHARE = 0.5
"""Of the pages in use, at least this share belongs to no running request: then those who run are not the cause."""

LEAK_SHARE_MIN = 0.2
"""Share of the cache that no request accounts for, from which it is said: prompts under way and requests that
wait preempted blur the books by less."""

LEAK_RISE_SECONDS = 20.0
"""Lost pages that came over longer than this were lost bit by bit; what is taken at once is there within a
look or two."""

CREEP_SECONDS = 240.0
"""Leaked pages add up over longer than this; pinned ones are taken by a few prefills, within a minute."""

CREEP_FROM, CREEP_TO = 0.25, 0.75
"""The rise is timed between these shares of what is unexplained now."""

CREEP_SAMPLE_SECONDS = 20.0
"""The history of unexplained usage is kept at this grain ..."""

CREEP_SAMPLES = 180
"""... for an hour."""

RECOVERING_RATIO = 0.9
"""Of its baseline: one that did so at the last scrape may be well again, while the mean of the last ones still tells of the trouble."""

LONG_REQUESTS = 2.5
"""Finished requests this many times as long as when fresh: the requests themselves fill the cache."""

PREEMPTED_SHARE_MIN = 0.1
"""Preemptions per finished request, at least, to call it thrash."""

LONG_PROMPTS_SHARE = 0.4
"""... when they fill so much of the cache, they are what the others lack."""

LONG_PROMPTS_SHARE_MIN = 0.1
"""... from here on they are a part of it: the load asks for more pages than it did when the engine was fresh."""


class Creep:
    """How KV usage that no running request explained came about, over the last hour."""

    def __init__(self) -> None:
        self._history = RingBuffer(CREEP_SAMPLES, 2)

    def note(self, at_s: float, unexplained: float) -> None:
        """Keep a sample now and then."""
        last = self._history.last
        if last is None or at_s - last[0] >= CREEP_SAMPLE_SECONDS:
            self._history.append((at_s, unexplained))

    def export_state(self) -> list[list[float]]:
        """Return the history as plain values."""
        return [[round(at_s, 1), round(unexplained, 4)] for at_s, unexplained in self._history]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        """Go on with the history."""
        history = [stored.numbers(each, 2) for each in state]
        for row in history:
            self._history.append(row)

    def rise_seconds(self, now: float) -> float | None:
        """How long it took from a quarter to three quarters of what it is `now`; None where not known."""
        end = None
        for when, unexplained in reversed(self._history):
            if end is None and unexplained <= CREEP_TO * now:
                end = when
            if unexplained <= CREEP_FROM * now:
                return (end or when) - when
        return None


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause and evidence and contradicting evidence."""

    name: str
    evidence_for: tuple[Evidence, ...]
    evidence_against: tuple[Evidence, ...] = ()


def of_strange_load(found: Cause) -> Cause:
    """Return the cause as unknown: requests wait while few of them hold pages, and few long contexts may be why."""
    text = "requests wait while few of them hold many pages, so the expected step time is a guess"
    strange = Evidence(name="load", value="few hold many pages", text=text)
    return Cause(UNKNOWN, found.evidence_for, (*found.evidence_against, strange))


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """What is known of an engine that lacks pages. None is unknown."""

    running: float
    usage: float  # share of the cache in use
    length_ratio: float | None  # of requests that finished lately to those when fresh
    preempted_share: float | None  # preemptions for each request that finished
    preempting: bool  # requests were preempted since it began
    long_prompts_share: float | None  # of the cache, that prompts far longer than usual took lately
    long_prompt_tokens: float  # ... of one of them
    late_length_ratio: float | None  # of requests that finished once those from before were through
    unexplained: float | None  # share of the cache beyond what so many requests held when fresh
    rise_seconds: float | None  # in which that came
    awaiting: float = 0.0  # requests that wait for KV from elsewhere
    awaited: float = 0.0  # share of the cache that they hold, at most
    unheld: float | None  # share of the cache for which no request in flight accounts
    unheld_rise_seconds: float | None  # in which that came
    unheld_surely: bool  # for so long that no prompt under way can be it


def of_starvation(facts: Starvation) -> Cause:
    """Why pages lack."""
    if facts.awaited and facts.awaited >= UNREAD_SHARE * facts.usage:
        return waits_for_peer(facts.awaiting, facts.usage)
    length, preempted = facts.length_ratio, facts.preempted_share
    lost = facts.unheld is not None and facts.unheld >= UNREAD_SHARE * facts.usage
    if (
        (length is not None and length >= LONG_REQUESTS)
        and (preempted is not None and preempted >= PREEMPTED_SHARE_MIN)
        and not lost
    ):
        return _thrash(length, preempted)
    if facts.unheld is None:
        return _by_usual_use(facts)
    rise = facts.unheld_rise_seconds or 0.0
    if facts.unheld >= LEAK_SHARE_MIN and rise >= LEAK_RISE_SECONDS:
        return _leak(facts, facts.unheld, rise)
    return _lost(facts.unheld) if lost else _held_by_few(facts, facts.unheld)


def awaited_share(
    block: Block, capacity_tokens: float | None, request_tokens: float | None
) -> float:
    """Return the share of the cache that requests which wait for KV hold at most: they may be long ones.

    `request_tokens`: of a request when fresh. What is not known is all of it: pages that are held are no leak.
    """
    if not block.awaiting_kv:
        return 0.0
    if not capacity_tokens or not request_tokens:
        return 1.0
    return min(1.0, block.awaiting_kv * LONG_REQUESTS * request_tokens / capacity_tokens)


def waits_for_peer(awaiting: float, usage: float) -> Cause:
    """Requests hold pages until their KV comes."""
    text = f"{requests(awaiting)} wait for KV from another server; {usage:.0%} of the KV cache is in use"
    return Cause(PEER_WAIT, (Evidence(name="requests_awaiting_kv", value=awaiting, text=text),))


def is_asked_for(facts: Starvation) -> bool:
    """Did prompts far longer than usual take a good part of the cache of late?"""
    return (facts.long_prompts_share or 0.0) >= LONG_PROMPTS_SHARE_MIN


def _thrash(length: float, preempted: float) -> Cause:
    longer = Evidence(
        name="request_length_ratio",
        value=length,
        expected=1.0,
        text=f"finished requests are {length:.1f} times as long as when fresh",
    )
    pushed = Evidence(
        name="preemptions_per_request",
        value=preempted,
        text=f"{preempted:.2f} preemptions for each request that finishes",
    )
    return Cause(PREEMPTION_THRASH, (longer, pushed))


def _leak(facts: Starvation, share: float, rise: float) -> Cause:
    """Pages that no request accounts for, lost bit by bit."""
    text = f"{_UNHELD.format(share)}; most of it built up over {in_words(rise)}"
    found = (Evidence(name="kv_unheld_ratio", value=share, unit="ratio", expected=0.0, text=text),)
    if facts.unheld_surely or rise >= CREEP_SECONDS:
        return Cause(KV_LEAK, found)
    return Cause(UNKNOWN, found, (_PREFILLING,))


def lost_at_idle(share: float) -> Cause:
    """... or so slowly that only an idle engine shows it."""
    text = f"{share:.0%} of the KV cache was in use while no request ran or waited"
    found = Evidence(name="kv_unheld_ratio", value=share, unit="ratio", expected=0.0, text=text)
    return Cause(KV_LEAK, (found,))


def _lost(share: float) -> Cause:
    """... or at once."""
    text = f"{_UNHELD.format(share)}; it came at once"
    found = Evidence(name="kv_unheld_ratio", value=share, unit="ratio", expected=0.0, text=text)
    return Cause(KV_PINNING, (found,))


_UNHELD = "{:.0%} of the KV cache is held by no running request"


def crowded(running: float, usage: float, expected: float | None) -> Evidence:
    """How full the KV cache is with so many requests; `expected`: how many ran with as much when it was well."""
    one = round(running) == 1
    text = f"{running:.0f} {'request runs' if one else 'requests run'} with {usage:.0%} of the KV cache in use"
    usual = min(1.0, usage * running / expected) if expected else None
    if usual is not None:
        text = f"{text}; {'one usually uses' if one else 'that many usually use'} about {usual:.0%}"
    return Evidence(name="kv_usage_ratio", value=usage, unit="ratio", expected=usual, text=text)


def earlier(evidence: Evidence) -> Evidence:
    """As it was when the cause was found: by now the engine recovers, and no longer shows it."""
    return replace(evidence, text=f"earlier: {evidence.text}")


_PREFILLING = Evidence(
    name="prefill",
    value=None,
    text="a long prompt under way takes pages before it is counted; unclear for some seconds",
)


def _held_by_few(facts: Starvation, unheld: float) -> Cause:
    """Pages that requests in flight account for: few long ones, or many that grew long."""
    text = (
        f"the tokens in flight account for the pages in use: {facts.running:.0f} requests hold them"
    )
    share = max(0.0, unheld)
    held = Evidence(name="kv_unheld_ratio", value=share, unit="ratio", expected=0.0, text=text)
    late = facts.late_length_ratio
    if late is not None and late < LONG_REQUESTS:
        text = f"others still come and go, {late:.1f} times as long as when fresh"
        short = Evidence(name="request_length_ratio", value=late, expected=1.0, text=text)
        return Cause(KV_PINNING, (held, short))
    if (facts.long_prompts_share or 0.0) >= LONG_PROMPTS_SHARE:
        text = f"some have prompts of about {facts.long_prompt_tokens:.0f} tokens, which together fill {facts.long_prompts_share:.0%} of the KV cache"
        long = Evidence(name="long_prompt_tokens", value=facts.long_prompt_tokens, text=text)
        return Cause(KV_PINNING, (held, long))
    if facts.preempting:
        open_ = Evidence(
            name="request_length_ratio",
            value=None,
            text="requests push each other out, and too few have finished to know whether all became long",
        )
        return Cause(UNKNOWN, (held,), (open_,))
    return Cause(KV_PINNING, (held,))


def _by_usual_use(facts: Starvation) -> Cause:
    """Where requests' tokens are not counted: by what so many requests held when fresh."""
    now, rise = facts.unexplained or 0.0, facts.rise_seconds
    said = f"{now:.0%} of the cache is held beyond the usual for this many requests"
    if rise is not None and rise >= CREEP_SECONDS:
        text = f"{said}; it came over {rise / 60:.0f} minutes and more"
        return Cause(
            KV_LEAK, (Evidence(name="kv_unexplained_ratio", value=now, expected=0.0, text=text),)
        )
    text = f"{said}, and came at once"
    return Cause(
        KV_PINNING, (Evidence(name="kv_unexplained_ratio", value=now, expected=0.0, text=text),)
    )


def recovering(comparison: Comparison) -> tuple[Evidence, ...]:
    """What the last scrape says against a slowness that is the mean of several."""
    done = comparison.throughput_ratio
    if done is None or done < RECOVERING_RATIO or comparison.slow_now:
        return ()
    text = f"{done:.0%} of its baseline at the last scrape: it may be recovering"
    return (Evidence(name="throughput_ratio", value=done, unit="ratio", expected=1.0, text=text),)
