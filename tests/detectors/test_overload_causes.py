"""A queue that more replicas would not shorten, and what is said of one that they would."""

from dataclasses import replace

import pytest

from tests.detectors.made_up_engine import Engine, view
from vllm_watch.detectors.overload import Detector, Queue, Settings, of_queue
from vllm_watch.samples.observation import ServerSample

CALM = {"running": 40.0, "kv": 0.3}
FULL = {"running": 130.0, "kv": 0.98, "waiting": 3000.0}
LOW = {"running": 10.0, "kv": 0.1, "waiting": 3000.0}
HALF = {"block_size": "16", "num_gpu_blocks": "500"}


class Shown:
    """A detector that is shown one engine, whose samples a test may change."""

    def __init__(self):
        self.detector, self.engine, self.verdict = Detector(Settings()), Engine(), None
        self.part(700, **CALM)

    def part(
        self, seconds, *, paused=None, interval=5.0, says=lambda seconds: {}, known=True, **load
    ):
        """`says`: what the samples say besides, so many seconds into the part; `known`: does it follow what was looked at before?"""
        self.first = None
        for turn in range(round(seconds / interval)):
            sample = replace(self.engine.run(interval, **load), **says(turn * interval))
            seen = view(self.engine.at_s, sample, known=known or turn > 0)
            reading = replace(seen.observation.reading, server=ServerSample(paused=paused))
            seen = replace(seen, observation=replace(seen.observation, reading=reading))
            (self.verdict,) = self.detector.update(seen)
            if self.verdict.state == "firing" and self.first is None:
                self.first = (turn + 1) * interval, self.verdict.cause
        return self

    def begin_anew(self, **config):
        """Another process of the same model."""
        self.engine = Engine(at_s=self.engine.at_s + 60.0, config=config)
        return self


def waits(**reasons):
    return lambda seconds: {"requests_waiting_by_reason": {"capacity": 0.0, "deferred": 0.0} | reasons}  # fmt: skip


PEER = {"external_prefix_cache_queries": 7.0, "requests_waiting_by_reason": {"deferred": 3000.0}}


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
@pytest.mark.parametrize(
    ("load", "says", "cause"),
    [
        (FULL, waits(capacity=3000.0), "demand"),
        (FULL, lambda _: {}, "demand"),
        (LOW | {"prompt": 2000.0}, lambda _: {}, "demand"),
        (LOW, lambda _: {}, "unknown"),
        (LOW, waits(deferred=2900.0, capacity=100.0), "deferred"),
        (LOW, lambda _: PEER, "peer_wait"),
    ],
    ids=["full", "full, and why is not reported", "prefills fill the steps", "all free", "grammars", "KV from elsewhere"],
)  # fmt: skip
def test_why_a_queue_stands(interval, load, says, cause):
    """A replica helps only where slots, pages or the tokens of a step are used up."""
    verdict = Shown().part(120, interval=interval, says=says, **load).verdict
    assert (verdict.state, verdict.cause, verdict.severity) == ("firing", cause, "ticket")
    assert not verdict.restart_advised


def test_half_a_cache_after_a_restart():
    """Another process holds the memory: the queue is no more demand than before."""
    shown = Shown()
    assert shown.begin_anew(**HALF).part(600, **CALM | {"kv": 0.6}).first is None
    assert shown.part(120, **FULL).verdict.cause == "small_cache"
    assert "50% of the tokens" in shown.verdict.evidence_for[1].text
    assert Shown().begin_anew(block_size="16", num_gpu_blocks="990").part(600, **CALM).part(120, **FULL).verdict.cause == "demand"  # fmt: skip


def test_half_a_cache_is_known_in_the_next_run_of_the_watcher():
    """That of the process before is kept; its own is told at every look."""
    shown, again = Shown().begin_anew(**HALF).part(600, **CALM), Detector(Settings())
    again.restore(shown.detector.export_state(shown.engine.at_s), 0.0)
    shown.detector = again
    assert shown.part(120, **FULL).verdict.cause == "small_cache"


def test_what_a_demand_does_not_exclude_is_said():
    """Neither why they wait nor what the cache was; and when both are known, nothing."""
    (open_,) = Shown().part(120, **FULL).verdict.evidence_against
    assert open_.text == (
        "it is unknown whether requests wait for something other than capacity (this vLLM does not report it) "
        "and whether the KV cache was larger before the last restart, so that may be the cause"
    )
    known = Queue(
        waiting=9.0, running=9.0, running_peak=9.0, usage=0.9, step_tokens=1.0, step_tokens_peak=1.0, deferred=0.0, cache_ratio=1.0,
        length_ratio=3.0,
    )  # fmt: skip
    cause = of_queue(known)
    assert cause.evidence_against == ()
    length = cause.evidence_for[1]
    assert (length.name, length.value, length.expected) == ("request_length_ratio", 3.0, 1.0)
    assert "3.0 times as long as usual" in length.text


USED_UP = {
    "all slots": ({"running": 90.0}, "demand"),
    "most slots": ({"running": 60.0}, "unknown"),
    "the tokens of a step": ({"step_tokens": 900.0}, "demand"),
    "perhaps the tokens of a step": ({"step_tokens": None}, "demand"),
    "all pages": ({"usage": 0.98}, "demand"),
}


@pytest.mark.parametrize(("used", "cause"), USED_UP.values(), ids=USED_UP)
def test_a_replica_helps_where_one_of_three_is_used_up(used, cause):
    free = Queue(
        waiting=300.0, running=10.0, running_peak=100.0, usage=0.1, step_tokens=10.0, step_tokens_peak=1000.0, deferred=None,
    )  # fmt: skip
    assert of_queue(replace(free, **used)).name == cause


@pytest.mark.parametrize(
    ("says", "found"),
    [
        (lambda seconds: waits(deferred=seconds / 10.0)(seconds), True),  # one in ten seconds, and none passes
        (lambda seconds: waits(deferred=min(18.0, seconds / 10.0))(seconds), True),  # clients give up after 3 minutes
        (lambda seconds: waits(deferred=(seconds / 5.0) % 6)(seconds), False),  # grammars compile
        (waits(deferred=2.0), False),
        (lambda seconds: waits(deferred=seconds / 10.0)(seconds) | {"kv_transfers": {}}, False),
    ],
    ids=["stuck", "stuck, and clients give up", "they come and go", "two large grammars", "KV from elsewhere"],
)  # fmt: skip
def test_a_grammar_compiler_that_is_stuck(says, found):
    """Others pass, and the queue is short."""
    shown = Shown().part(900, says=waits(deferred=0.5), **CALM)
    shown.part(900, says=says, **CALM | {"waiting": 20.0})
    assert (shown.first is not None and shown.first[1] == "deferred") is found
    assert (shown.verdict.state == "firing") is found
    assert shown.part(300, says=waits(), **CALM).verdict.state == "clear"


def test_what_was_deferred_before_nobody_looked_counts_no_more():
    """It may have passed meanwhile: two minutes start again."""
    stuck = {"says": waits(deferred=20.0), **CALM, "waiting": 20.0}
    shown = Shown().part(900, says=waits(deferred=0.5), **CALM)
    assert shown.part(100, **stuck).first is None
    assert shown.part(100, known=False, **stuck).first is None
    assert shown.part(60, **stuck).verdict.cause == "deferred"


def test_many_grammars_as_ever_are_no_news():
    """Ten are always being compiled here."""
    assert Shown().part(900, says=waits(deferred=10.0), **CALM | {"waiting": 10.0}).first is None


def test_a_pause_that_nobody_ends():
    """After ten minutes in which requests wait for its end; a pause without requests is nobody's trouble."""
    shown = Shown().part(900, paused=True, running=4.0, kv=0.3)
    assert shown.first == (605.0, "paused")
    assert shown.part(60, **CALM).verdict.state == "clear"
    assert shown.part(300, paused=True, running=4.0, kv=0.3).first is None
    assert Shown().part(900, paused=True, running=0.0, kv=0.0).first is None
