"""An engine does far less than it did when fresh; and all that only looks so."""

from dataclasses import replace

import pytest

from tests.detectors.made_up_engine import SIGNALS, Engine, Told, view
from vllm_watch.detectors.throughput_collapse import Detector, Settings

FRESH = {"running": 40.0, "kv": 0.3}
INTERVALS = [1.0, 5.0, 15.0, 30.0]


def fresh(seconds=600, interval=5.0):
    told = Told(Detector(Settings()), interval)
    return told.part(seconds, **FRESH)


HEALTHY = {
    "steady": FRESH,
    "load drops": {"running": 2.0, "kv": 0.015},
    "idle": {"running": 0.0, "kv": 0.0},
    "three times the load": {"running": 120.0, "kv": 0.9},
    "saturated: the cache is full, requests wait": {"running": 130.0, "kv": 0.99, "waiting": 500.0},
    "longer prompts, few run, requests wait: it computes more than ever": {
        "running": 20.0, "kv": 0.98, "waiting": 50.0, "prompt": 4000.0,
    },
    "longer outputs": {"running": 60.0, "kv": 0.5, "output": 800.0},
    "steps a tenth longer": {**FRESH, "slow": 1.1},
    "the cache is full of a few, and nobody waits": {"running": 4.0, "kv": 0.95},
    "somebody waits, and the cache is half empty": {"running": 4.0, "kv": 0.5, "waiting": 3.0},
}  # fmt: skip


@pytest.mark.parametrize("load", HEALTHY.values(), ids=HEALTHY)
@pytest.mark.parametrize("interval", INTERVALS)
def test_no_collapse(load, interval):
    """Another load is not another engine."""
    told = fresh(interval=interval).part(900, **load)
    assert told.first is None
    assert told.verdict.state == "clear"


COLLAPSED = {
    "steps take twice as long": ({**FRESH, "slow": 2.0}, "slow_engine", "page", True),
    "... and requests wait": (
        {"running": 130.0, "kv": 0.99, "waiting": 90.0, "slow": 3.0}, "slow_engine", "page", True,
    ),
    "pages are held by a few who run": (
        {"running": 3.0, "kv": 0.99, "waiting": 60.0}, "kv_pinning", "page", False,
    ),
    "... whose steps are short: their tokens account for the pages": (
        {"running": 3.0, "kv": 0.99, "waiting": 60.0, "slow": 0.5}, "kv_pinning", "page", False,
    ),
    "pages are held by nobody": (
        {"running": 3.0, "kv": 0.99, "waiting": 60.0, "read": 0.03}, "kv_pinning", "page", True,
    ),
    "requests grew ten times as long and preempt each other": (
        {"running": 5.0, "kv": 0.97, "waiting": 4.0, "prompt": 2000.0, "output": 2000.0,
         "preempted": 0.5},
        "preemption_thrash", "ticket", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("load", "cause", "severity", "restart"), COLLAPSED.values(), ids=COLLAPSED
)
def test_collapse_and_its_cause(load, cause, severity, restart):
    """Found within half a minute, and named within two."""
    told = fresh().part(240, **load)
    assert told.first is not None
    assert told.first[0] <= 30
    verdict = told.verdict
    assert (verdict.state, verdict.cause) == ("firing", cause)
    assert (verdict.severity, verdict.restart_advised) == (severity, restart)
    assert verdict.evidence_for
    assert all(each.text for each in (*verdict.evidence_for, *verdict.evidence_against))


def test_a_slowdown_that_creeps_in_does_not_become_the_norm():
    """One per cent more each half minute, for an hour."""
    told = fresh()
    found = None
    for percent in range(100, 220):
        told.part(30, **FRESH, slow=percent / 100)
        if told.first is not None and found is None:
            found = percent
    assert found is not None
    assert found <= 160


def test_an_engine_that_falls_idle_while_slow_is_not_known_to_be_well():
    told = fresh().part(120, **FRESH, slow=3.0)
    assert told.part(120, running=0.0, kv=0.0).verdict.state == "unknown"


def test_one_odd_block_is_no_collapse():
    """However slow: a pause of one look, at any interval."""
    for interval in INTERVALS:
        told = fresh(900, interval).part(interval, **FRESH, slow=20.0)
        told.part(interval, **FRESH)
        assert told.first is None


def test_nothing_is_known_at_first():
    """Until a dozen blocks and 40 seconds of work were seen."""
    told = Told(Detector(Settings()))
    assert told.part(30, **FRESH, slow=9.0).verdict.state == "unknown"
    assert told.part(90, **FRESH, slow=9.0).verdict.state == "clear"


def test_another_configuration_is_learnt_anew():
    """What is slow by the old yardstick may be all that the new one can do."""
    told = fresh()
    told.engine = replace(told.engine, config={"num_gpu_blocks": "500"})
    assert told.part(30, **FRESH, slow=3.0).verdict.state == "unknown"
    told.part(600, **FRESH, slow=3.0)
    assert told.first is None
    assert told.verdict.state == "clear"


def test_each_engine_is_judged_alone():
    """Two engines behind one server, one of them slow; then it goes away."""
    detector, a, b = Detector(Settings()), Engine("0"), Engine("1")
    for second in range(900):
        slow = 3.0 if second > 600 else 1.0
        samples = a.run(5, **FRESH), b.run(5, **FRESH, slow=slow)
        verdicts = detector.update(view(a.at_s, *samples))
    assert [(each.engine, each.state) for each in verdicts] == [("0", "clear"), ("1", "firing")]
    (only,) = detector.update(view(a.at_s + 5, a.run(5, **FRESH)))
    assert only.engine == "0"


def test_what_is_not_seen_is_unknown():
    """A scrape that failed, and a look of which is not known how long ago the last one was."""
    told = fresh()
    (verdict,) = told.detector.update(view(told.engine.at_s + 5, answered=False))
    assert verdict.state == "unknown"
    sample = told.engine.run(5, **FRESH)
    (verdict,) = told.detector.update(view(told.engine.at_s, sample, known=False))
    assert verdict.state == "unknown"
    assert told.part(10, **FRESH).verdict.state == "clear"


def test_a_server_that_is_down_is_unknown():
    """Its engines are known by name, and nothing is said of them."""
    told = fresh(60)
    down = replace(view(told.engine.at_s + 5, answered=False), signals=replace(SIGNALS, up=False))
    assert [(each.engine, each.state) for each in told.detector.update(down)] == [("0", "unknown")]


def test_the_throughput_ratio_is_what_it_does_now_by_what_it_did():
    told = fresh()
    ratio = told.detector.throughput_ratio
    assert ratio("0") == pytest.approx(1.0, abs=0.05)
    told.part(60, **FRESH, slow=2.0)
    assert ratio("0") == pytest.approx(0.5, abs=0.05)
    told.part(60, running=3.0, kv=0.99, waiting=60.0)
    assert ratio("0") < 0.3
    assert ratio("7") is None
    assert Detector(Settings()).throughput_ratio("0") is None


def test_lost_time_is_remembered_until_the_next_reading():
    """The look that lost it had no answer; its steps would seem to have taken no time."""
    told = fresh()
    told.detector.update(view(told.engine.at_s + 5, answered=False, known=False))
    told.engine.at_s += 5.0
    sample = replace(told.engine).run(3600.0, **FRESH)
    (verdict,) = told.detector.update(view(told.engine.at_s, sample))
    assert verdict.state == "unknown"


def test_a_load_that_was_never_met_is_no_proof_of_slowness():
    """After two minutes of small contexts a few huge ones make steps long: nobody is woken for that."""
    told = Told(Detector(Settings()))
    told.part(120, running=10.0, kv=0.05)
    assert told.part(60, running=10.0, kv=0.15, slow=3.0).first is None


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
def test_a_quiet_engine_teaches_nothing_about_a_busy_one(interval):
    """Agents at one request, then fifty, whose steps cost far more than a fit to one extrapolates."""
    told = Told(Detector(Settings()), interval)
    for running in (1.0, 4.0, 2.0, 1.0, 5.0, 3.0) * 10:
        told.part(60, running=running, kv=0.003 * running)
    assert told.part(900, running=60.0, kv=0.2, slow=2.0).first is None
    told.part(600, running=2.0, kv=0.006)
    assert told.part(900, running=60.0, kv=0.2, slow=2.0).first is None


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
def test_a_slow_engine_that_more_and_more_requests_wait_in_pages(interval):
    """It began at a load that was known; that more requests run at once by now comes of it."""
    told = fresh(interval=interval)
    told.part(30, **(FRESH | {"slow": 2.5}))
    told.part(60, **(FRESH | {"slow": 2.5, "running": 60.0, "kv": 0.5}))
    told.part(120, **(FRESH | {"slow": 2.5, "running": 100.0, "kv": 0.8}))
    assert (told.verdict.cause, told.verdict.severity) == ("slow_engine", "page")


SIBLINGS = {
    "the others are well": (
        1.0,
        "2 other engines are as fast as before (step time 1.0 times the usual): only this one is slow",
    ),
    "all are slow": (3.0, "a shared part is slow"),
}


@pytest.mark.parametrize(("slow", "said"), SIBLINGS.values(), ids=SIBLINGS)
def test_siblings_tell_whether_it_is_one_rank_or_what_all_share(slow, said):
    """Ranks of one server are the same hardware with the same model."""
    detector, engines = Detector(Settings()), [Engine("0"), Engine("1"), Engine("2")]
    for turn in range(132):
        late = turn >= 120
        samples = [
            e.run(5, **FRESH, slow=(3.0 if e is engines[0] else slow) if late else 1.0)
            for e in engines
        ]
        verdicts = detector.update(view(engines[0].at_s, *samples))
    evidence = (*verdicts[0].evidence_for, *verdicts[0].evidence_against)
    assert verdicts[0].state == "firing"
    assert any(said in each.text for each in evidence)


def test_a_small_loss_that_stays_is_a_ticket_within_the_hour():
    """A fifth longer is below every sudden threshold; after twenty minutes of it nobody calls it chance."""
    told = fresh(3600)
    told.part(3600, **FRESH, slow=1.2)
    assert told.first is not None
    seconds, verdict = told.first
    assert 1200 <= seconds <= 1500
    assert (verdict.cause, verdict.severity, verdict.restart_advised) == (
        "slow_engine",
        "ticket",
        False,
    )
    assert told.part(1800, **FRESH).verdict.state == "clear"
