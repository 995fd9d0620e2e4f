"""Judges an engine's throughput by its own baseline."""

from dataclasses import replace
from functools import partial
from math import exp
from typing import Any, ClassVar

from vllm_watch.detectors import collapse_causes as causes
from vllm_watch.detectors import collapse_host
from vllm_watch.detectors.base import CLEAR, UNKNOWN, Evidence, Verdict
from vllm_watch.detectors.collapse_causes import (
    KIND,
    Cause,
    Finished,
    LongPrompts,
    Unread,
)
from vllm_watch.detectors.collapse_own import OwnWork, Stuck, Unserved
from vllm_watch.detectors.consequences import PAGE, RESTART, Bar, Harm, explained, finding
from vllm_watch.detectors.per_engine import EngineLook
from vllm_watch.signals import capacity, stored
from vllm_watch.signals.baseline import DOUBT, Baseline, Comparison, Cusum
from vllm_watch.signals.blocks import Block
from vllm_watch.signals.cpu_waits import SMOOTHING, StepWaits
from vllm_watch.signals.pages import Pages
from vllm_watch.signals.scales import (
    CONFIRMED,
    HALF,
    MOMENT_SECONDS,
    PART_SHARE,
    SMALL_SHARE,
    TWICE,
)
from vllm_watch.signals.state import is_connected
from vllm_watch.support.quantities import requests


class Alarm:
    """Follows one CUSUM of the baseline: slow steps, or a shortage of KV pages."""

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self._since_s: float | None = None
        self._normal_blocks = 0

    @property
    def over(self) -> bool:
        return self._normal_blocks >= CONFIRMED

    def follow(self, block: Block, cusum: Cusum, *, reason: bool) -> None:
        self._normal_blocks = self._normal_blocks + 1 if cusum.alarm and not reason else 0
        if not cusum.alarm:
            self.cause = None
        if cusum.level <= 0.0:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = block.at_s - block.seconds

    def lasted_s(self, at_s: float) -> float:
        return 0.0 if self._since_s is None else max(0.0, at_s - self._since_s)


QUEUE_REQUESTS_MIN = 5.0
"""A cause in `collapse_causes.OF_OTHERS` pages if the queue reaches 2 × (its length at the start of
the shortage + 5)."""


class EngineJudge(stored.Kept):
    """Judges one engine."""

    KEPT: ClassVar[stored.Fields] = {
        "pages": stored.part(Pages),
        "bar": stored.part(Bar),
        "harm": stored.part(Harm),
        "waits": stored.part(StepWaits),
        "long_prompts": stored.part(LongPrompts),
        "finished": stored.part(Finished),
        **dict.fromkeys(("capacity_tokens", "unheld_rise_seconds", "waiting_first"), stored.number_or_none),
        **dict.fromkeys(("quiet_ratio", "starved_seconds"), stored.number),
        **dict.fromkeys(("starving", "queue_grew", "asked_for", "urgent", "restart"), stored.flag),
    }  # fmt: skip
    LATER = ("bar", "harm", "waits", "starved_seconds", "asked_for", "urgent")

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.baseline = Baseline()
        self.quiet_ratio = 0.0  # smoothed log ratio of actual to expected step time
        self._other_seconds = self._starved_seconds = 0.0
        self._restart = self._queue_grew = self._asked_for = self._urgent = False
        self._fresh = collapse_host.Fresh()
        self._begin()
        self.verdict = Verdict(state=UNKNOWN, kind=KIND, engine=engine)

    def _begin(self) -> None:
        self._past = self.baseline.throughput
        self._pages = Pages()
        self._bar, self.harm = Bar(), Harm()
        self._stuck, self.own_work, self._unserved = Stuck(), OwnWork(), Unserved()
        self._waits, self._outlived_s = StepWaits(), 0.0
        self._capacity_tokens: float | None = None
        self._awaited = 0.0
        self._long_prompts = LongPrompts()
        self._finished = Finished()
        self._starving = False
        self._unheld_rise_seconds: float | None = None
        self._waiting_first: float | None = None  # since the queue was empty
        self._alarms = {causes.SLOW: Alarm(), causes.CACHE: Alarm()}
        self._unread = Unread()

    def update(self, look: EngineLook) -> Verdict:
        if not look.known:
            self.verdict = Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)
        comparison = self.baseline.update(
            look.at_s, look.sample, known=look.known, engines=look.engines
        )
        if self.baseline.throughput is not self._past:
            self._begin()
        self._waits.look(look.at_s, look.cpu, known=look.known)
        self._unserved.look(look.at_s, look.sample, known=look.known)
        if comparison is not None:
            self._follow(look, comparison)
            self.verdict = self._judge(look, comparison)
        elif self.baseline.comparison is None:
            self.verdict = Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)
        return self.verdict

    @property
    def compared(self) -> bool:
        last = self.baseline.comparison
        return last is not None and last.slow_log_ratio is not None

    def export_state(self) -> dict[str, Any]:
        return {
            "baseline": self.baseline.export_state(),
            **super().export_state(),
            "causes": {family: each.cause and each.cause.name for family, each in self._alarms.items()},
            "pids": sorted(self._fresh.pids),
            "clocks": dict(self._fresh.clocks),
            "unread_seconds": self._unread.seconds,
        }  # fmt: skip

    def restore(self, state: stored.Stored, away_seconds: float = 0.0) -> None:
        self.baseline.restore(state["baseline"], away_seconds)
        self._begin()
        super().restore(state)
        names = stored.mapping(state.get("causes", {}))
        for family, alarm in self._alarms.items():
            name = stored.text_or_none(names.get(family))
            alarm.cause = None if name is None else Cause(name, ())
        self._fresh = collapse_host.Fresh.restored(state["pids"], state.get("clocks", {}))
        self._unread.seconds = stored.number(state["unread_seconds"])

    def _follow(self, look: EngineLook, comparison: Comparison) -> None:
        block = comparison.block
        slow, starved = self.baseline.slow.level, self.baseline.starved.level
        doubt = max(slow, starved)
        slow_alarm, cache_alarm = self._alarms[causes.SLOW], self._alarms[causes.CACHE]
        slow_alarm.follow(block, self.baseline.slow, reason=comparison.slow_now)
        cache_alarm.follow(block, self.baseline.starved, reason=comparison.starved_now)
        self.harm.add(block, well=doubt <= 0.0)
        self._stuck.add(block)
        self._unserved.add(block)
        self.own_work.add(block)
        self._waits.take(block, comparison.expected_step_seconds, well=doubt < DOUBT)
        size = capacity.kv_cache_tokens(look.sample.cache_config_info, look.engines)
        self._capacity_tokens = size
        self._long_prompts.add(block, self._past.request_tokens())
        self._finished.add(block)
        if comparison.slow_log_ratio is not None:
            self.quiet_ratio += SMOOTHING * (comparison.slow_log_ratio - self.quiet_ratio)
            odd = doubt > 0.0 or self.baseline.drift >= SMALL_SHARE
            self._bar.follow(comparison, doubt=odd, harmed=self.harm.felt)
        starving = starved > 0.0
        self._awaited = causes.awaited_share(block, size, self._past.request_tokens())
        self._pages.note(block, size, well=not starving, awaited=self._awaited)
        if starving and not self._starving:
            self._finished, self._unread = Finished(), Unread()
            first = self._waiting_first
            self._waiting_first = block.waiting if first is None else min(first, block.waiting)
        elif not starving and block.waiting_min < 1.0:
            self._waiting_first = None  # the queue has drained
        self._starving = starving
        if starving:
            self._unread.follow(comparison, self.baseline, self._pages.unheld())
        if look.gpus is not None and doubt <= 0.0:
            self._fresh = collapse_host.Fresh.of(look.gpus, self._fresh)

    def _judge(self, look: EngineLook, comparison: Comparison) -> Verdict:
        if not comparison.starved:
            self._restart = self._queue_grew = self._asked_for = self._urgent = False
            self._starved_seconds, self._unheld_rise_seconds = 0.0, None
        if comparison.unseen:
            return Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)
        verdict = self._alarm(look, comparison) or self._without_alarm(look, comparison)
        known = CLEAR if comparison.known else UNKNOWN
        return verdict or Verdict(state=known, kind=KIND, engine=self.engine)

    def _alarm(self, look: EngineLook, comparison: Comparison) -> Verdict | None:
        if comparison.slow:
            started = look.sample.process_start_time
            found = collapse_host.of_slow_steps(look.gpus, self._fresh, started)
            found = collapse_host.judged(found, self._waits.judge())
            # An engine that lacks KV pages may run only a few long requests, in slow steps.
            slow, cache = self._alarms[causes.SLOW], self._alarms[causes.CACHE]
            itself = cache.over and not slow.over and comparison.sure
            if itself or not comparison.starved or found.name not in causes.VAGUE:
                return self._slow(comparison, found)
        return self._starved(comparison) if comparison.starved else None

    def _without_alarm(self, look: EngineLook, comparison: Comparison) -> Verdict | None:
        tests = (
            (self._bar.lasts, causes.SLOW, causes.SLOW_ENGINE),
            (partial(self._lost_at_idle, look), causes.CACHE, causes.KV_LEAK),
            (self._stuck.found, causes.STUCK, causes.UNKNOWN),
            (self._unserved.left, causes.STUCK, causes.UNKNOWN),
            (self._unserved.crawls, causes.SLOW, causes.UNKNOWN),
            (self.own_work.found, causes.SLOW, causes.SLOW_ENGINE),
        )
        for test, family, cause in tests:
            odd = test()
            if odd is not None:
                known, at_s = cause != causes.UNKNOWN, comparison.block.at_s
                return finding(
                    self.engine, cause, f": {odd.text}", (odd,), family=family, measure=float(odd.value or 0.0),
                    since_seconds=self._alarms[family].lasted_s(at_s) if known else 0.0,
                )  # fmt: skip
        return None

    def _lost_at_idle(self, look: EngineLook) -> Evidence | None:
        lost = self._pages.idle_lost
        if lost < PART_SHARE or is_connected(look.sample):
            return None
        text = f"{lost:.0%} of the KV cache was in use while no request ran or waited"
        return Evidence(name="kv_unheld_ratio", value=lost, unit="ratio", expected=0.0, text=text)

    def _slow(self, comparison: Comparison, found: causes.Cause) -> Verdict:
        if found.name == causes.SLOW_ENGINE and not comparison.sure:
            found = causes.of_strange_load(found)
        alarm = self._alarms[causes.SLOW]
        known = alarm.cause.name if alarm.cause else causes.UNKNOWN
        open_ = known in (*causes.VAGUE, found.name)
        if not open_:
            left = collapse_host.has_left(known, found) and comparison.slow_now
            self._outlived_s = self._outlived_s + comparison.block.seconds if left else 0.0
            open_ = self._outlived_s >= MOMENT_SECONDS
        sharper = open_ and comparison.slow_now and found.name != causes.UNKNOWN
        if collapse_host.is_excused(alarm.cause) and found.name == causes.SLOW_ENGINE:
            sharper = False  # clocks are not judged while the GPU is idle
        if alarm.cause is None or sharper or collapse_host.is_excused(found):
            alarm.cause = found
        cause = alarm.cause
        if cause.name not in causes.VAGUE:
            self._bar.excuse()
        itself = cause.name == causes.SLOW_ENGINE
        reached = [each for each in self._bar.reached if itself or each != RESTART]
        shift = replace(self._bar.shift, curable=self._bar.shift.curable and itself)
        times = exp(self.quiet_ratio)
        text = f"{times:.1f}× slower per step than its own baseline at this load"
        slow = Evidence(name="step_time_ratio", value=times, expected=1.0, text=text)
        return finding(
            self.engine,
            cause.name,
            f" is {text}{collapse_host.in_short(cause)}",
            (slow, *cause.evidence_for, *explained(shift, reached, curable=itself)),
            cause.evidence_against,
            family=causes.SLOW,
            reached=reached,
            present=not alarm.over,
            since_seconds=alarm.lasted_s(comparison.block.at_s),
            measure=times,
        )

    def _starved(self, comparison: Comparison) -> Verdict:
        block = comparison.block
        facts = self._facts(comparison)
        most = facts.unheld is None or facts.unheld >= HALF * facts.usage
        long = self._asked_for or block.long_prompts or causes.is_asked_for(facts)
        self._asked_for = long and not most
        self._starved_seconds += block.seconds if comparison.starved_now else 0.0
        self._restart = self._restart or (most and self._unread.surely and not self._awaited)
        grown = TWICE * ((self._waiting_first or 0.0) + QUEUE_REQUESTS_MIN)
        # While the alarm clears, a long queue is normal.
        self._queue_grew |= comparison.starved_now and block.waiting >= grown
        found = causes.of_starvation(facts)
        cause = self._held(found, comparison)
        if comparison.starved_now:
            self._urgent = self._is_urgent(cause)
        done = min(1.0, self.baseline.throughput.ratio() or 0.0)  # above 1 while a backlog drains
        text = f"{done:.0%} of its usual throughput, with {requests(block.waiting)} waiting"
        much = f"is at {text}"
        if done >= 1.0:
            much = f"has its usual throughput again, with {requests(block.waiting)} waiting"
        few = causes.crowded(block.running, block.kv_usage or 0.0, comparison.running_expected)
        ratio = Evidence(name="throughput_ratio", value=done, unit="ratio", expected=1.0, text=text)
        restart = self._restart if cause.name == causes.KV_PINNING else cause.name == causes.KV_LEAK
        alarm = self._alarms[causes.CACHE]
        return finding(
            self.engine,
            cause.name,
            f" {much}",
            (ratio, few, *(cause.evidence_for if cause is found else map(causes.earlier, cause.evidence_for))),
            cause.evidence_against,
            family=causes.CACHE,
            reached=[name for name, due in ((PAGE, self._urgent), (RESTART, restart)) if due],
            present=not alarm.over,
            since_seconds=alarm.lasted_s(block.at_s),
            measure=1.0 / max(done, 1e-3),
        )  # fmt: skip

    def _is_urgent(self, cause: causes.Cause) -> bool:
        of_prompts = cause.name in causes.OF_LOAD and self._asked_for
        if of_prompts and self._starved_seconds < causes.PASSES_SECONDS:
            return False
        return cause.name not in causes.OF_OTHERS or self._queue_grew

    def _held(self, found: causes.Cause, comparison: Comparison) -> causes.Cause:
        known = self._alarms[causes.CACHE].cause
        if known is None or known.name in causes.VAGUE or found.name == known.name:
            known, self._other_seconds = found, 0.0
        elif comparison.starved_now and found.name != causes.UNKNOWN:
            self._other_seconds += comparison.block.seconds
            if self._other_seconds >= MOMENT_SECONDS:
                known, self._other_seconds = found, 0.0
        self._alarms[causes.CACHE].cause = known
        return known

    def _facts(self, comparison: Comparison) -> causes.Starvation:
        was = self.baseline.throughput.request_tokens()
        length = self._finished.tokens()
        block, size = comparison.block, self._capacity_tokens
        if self._unheld_rise_seconds is None:  # measured once, because later requests blur it
            self._unheld_rise_seconds = self._pages.rise_seconds()
        return causes.Starvation(
            running=block.running,
            usage=block.kv_usage or 0.0,
            length_ratio=None if was is None or length is None else length / was,
            long_prompts_share=self._long_prompts.tokens / size if size else None,
            preempted_share=self._finished.preempted_share,
            preempting=self._finished.preempting,
            awaiting=block.awaiting_kv,
            awaited=self._awaited,
            unheld=self._pages.unheld(),
            unheld_rise_seconds=self._unheld_rise_seconds,
            unheld_surely=self._unread.surely,
        )
