"""A collapse as the next run of the watcher finds it, and what every finding says of itself."""

import json
from copy import deepcopy

import pytest

from tests.detectors.made_up_engine import Engine, Told
from tests.detectors.test_throughput_collapse import COLLAPSED, FRESH, fresh
from vllm_watch.detectors.collapse_engine import EngineJudge
from vllm_watch.detectors.throughput_collapse import Detector, Settings


def next_run(told):
    """Another run of the watcher, which misses no look at the same engine."""
    after = Told(Detector(Settings()))
    after.detector.restore(
        json.loads(json.dumps(told.detector.export_state(told.engine.at_s))), after.interval
    )
    after.engine, after.gpus = deepcopy(told.engine), told.gpus
    return after


def said(verdict):
    return verdict.state, verdict.cause, verdict.severity, verdict.restart_advised, verdict.present


@pytest.mark.parametrize("load", [each[0] for each in COLLAPSED.values()], ids=COLLAPSED)
@pytest.mark.parametrize("seconds", [10, 240])
def test_a_collapse_goes_on_in_the_next_run(load, seconds):
    """Found at the same time, of the same cause, and over when it would have been: all but the first look's."""
    one = fresh().part(seconds, **load)
    two = next_run(one)
    kept = json.loads(json.dumps(one.detector.judges["0"].export_state()))
    judge = EngineJudge("0")
    judge.restore(kept, 0.0)
    assert json.loads(json.dumps(judge.export_state())) == kept
    for part, how in ((60, load), (300, load), (120, FRESH)):
        assert said(one.part(part, **how).verdict) == said(two.part(part, **how).verdict)


def test_a_leak_goes_on_in_the_next_run():
    """How slowly it came is known, whenever the watcher was begun again."""
    one = fresh()
    for share in range(30, 98, 2):
        one.part(60, running=40.0, kv=share / 100, read=0.3 / (share / 100))
        if share % 20 == 0:
            one = next_run(one)
    one.part(120, running=4.0, kv=0.99, waiting=80.0, read=0.03)
    last = next_run(one).part(60, running=4.0, kv=0.99, waiting=80.0, read=0.03)
    assert (last.verdict.cause, last.verdict.restart_advised) == ("kv_leak", True)


def test_a_process_slower_than_the_one_before_stays_found_in_the_next_run():
    """What the one before did is known, though it ended before the watcher began."""
    told = fresh()
    told.engine = Engine(at_s=told.engine.at_s)
    told.part(120, **FRESH, slow=5.0)
    assert told.verdict.state == "firing"
    after = next_run(told).part(60, **FRESH, slow=5.0)
    assert (after.verdict.state, after.verdict.cause) == ("firing", "slow_engine")
    assert "before the restart" in after.verdict.summary
