"""More work than the engine can do; and queues that are none of its business."""

from dataclasses import replace

import pytest

from tests.detectors.made_up_engine import Engine, Told, view
from vllm_watch.detectors.overload import Detector, Settings
from vllm_watch.support.quantities import in_words

CALM = {"running": 40.0, "kv": 0.3}
FULL = {"running": 130.0, "kv": 0.98}  # finishes some 25 requests a second


def calm(interval=5.0):
    return Told(Detector(Settings()), interval).part(300, **CALM)


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0, 30.0])
def test_a_long_queue_that_does_not_shrink_is_overload(interval):
    """A minute's worth of work waits for 20 seconds."""
    told = calm(interval).part(120, **FULL, waiting=3000.0)
    assert told.first is not None
    seconds, verdict = told.first
    assert seconds <= max(30.0, 3 * interval)
    assert (verdict.cause, verdict.severity, verdict.restart_advised) == ("demand", "ticket", False)
    assert verdict.evidence_for[0].text in verdict.summary


def test_a_queue_that_the_next_run_of_the_watcher_finds():
    """How much work the engine does is known from before: no minute is needed to learn it anew."""
    before, after = calm(), Told(Detector(Settings()))
    after.detector.restore(before.detector.export_state(before.engine.at_s), 0.0)
    after.engine = before.engine
    assert after.part(60, **FULL, waiting=3000.0).first is not None
    assert after.first[0] <= 30


QUIET = {
    "no queue": {**FULL, "waiting": 0.0},
    "a queue of a second": {**FULL, "waiting": 20.0},
    "a queue of half a minute": {**FULL, "waiting": 500.0},
}


@pytest.mark.parametrize("load", QUIET.values(), ids=QUIET)
def test_no_overload(load):
    told = calm().part(600, **load)
    assert told.first is None
    assert told.verdict.state == "clear"


def test_a_queue_before_an_engine_that_runs_nothing_is_no_overload():
    """What it lacks is not another replica; who admits nothing is found elsewhere."""
    told = calm().part(120, running=0.0, kv=0.0, waiting=3000.0)
    assert told.first is None
    assert told.verdict.state == "unknown"


def test_a_burst_that_is_worked_off_is_no_overload():
    """The queue is long at first, and shrinks."""
    told = calm()
    for waiting in range(3000, 0, -100):
        told.part(5, **FULL, waiting=float(waiting))
        assert told.first is None


def test_a_queue_that_stays_just_under_its_first_peak_is_overload():
    """It swings around a minute's worth of work, and never reaches the first look's again."""
    told = calm().part(5, **FULL, waiting=3000.0)
    for _ in range(20):
        told.part(5, **FULL, waiting=2800.0).part(5, **FULL, waiting=2900.0)
    assert told.verdict.state == "firing"


def test_it_is_over_when_the_queue_is_short():
    """At 30 per cent of the delay that began it."""
    told = calm().part(120, **FULL, waiting=3000.0)
    assert told.part(30, **FULL, waiting=1200.0).verdict.state == "firing"
    assert told.part(30, **FULL, waiting=280.0).verdict.state == "firing"
    assert told.part(30, **FULL, waiting=100.0).verdict.state == "clear"


def test_how_long_a_queue_is_cannot_be_told_before_a_minute_of_work():
    """Nor where nothing is said of finished requests."""
    told = Told(Detector(Settings()))
    assert told.part(30, **FULL, waiting=3000.0).verdict.state == "unknown"


def test_each_engine_has_its_own_queue():
    detector, a, b = Detector(Settings()), Engine("0"), Engine("1")
    for second in range(100):
        waiting = 3000.0 if second > 60 else 0.0
        verdicts = detector.update(
            view(a.at_s, a.run(5, **CALM), b.run(5, **FULL, waiting=waiting))
        )
    assert [(each.engine, each.state) for each in verdicts] == [("0", "clear"), ("1", "firing")]
    (verdict,) = detector.update(view(a.at_s + 5, a.run(5, **CALM)))
    assert verdict.engine == "0"


def test_what_is_not_seen_is_unknown():
    """A failed scrape; after a step of unknown length the count of seconds begins anew."""
    told = calm()
    (verdict,) = told.detector.update(view(told.engine.at_s, answered=False))
    assert verdict.state == "unknown"
    told.part(15, **FULL, waiting=3000.0)
    sample = told.engine.run(5, **FULL, waiting=3000.0)
    (verdict,) = told.detector.update(view(told.engine.at_s, sample, known=False))
    assert verdict.state == "clear"
    told.part(15, **FULL, waiting=3000.0)
    assert told.first is None
    assert told.part(15, **FULL, waiting=3000.0).first is not None


def test_lost_time_is_remembered_until_the_next_reading():
    """The look that lost it had no answer; its steps would seem to have taken no time."""
    told = calm()
    told.detector.update(view(told.engine.at_s + 5, answered=False, known=False))
    told.engine.at_s += 5.0
    sample = replace(told.engine).run(3600.0, **CALM)
    (verdict,) = told.detector.update(view(told.engine.at_s, sample))
    assert verdict.state == "clear"


def restarted(told, away_seconds):
    """The next run of the watcher, whose first look at the same engine is so long after the last."""
    after = Told(Detector(Settings()))
    after.detector.restore(told.detector.export_state(told.engine.at_s), away_seconds)
    after.engine = told.engine
    after.engine.at_s += away_seconds - after.interval
    return after


@pytest.mark.parametrize(("away", "state"), [(60.0, "firing"), (61.0, "clear")])
def test_overload_goes_on_in_the_next_run_of_the_watcher(away, state):
    """Half a minute of work still waits: that would begin nothing. After a minute away it is another queue."""
    before = calm().part(120, **FULL, waiting=3000.0)
    assert restarted(before, away).part(10, **FULL, waiting=500.0).verdict.state == state


@pytest.mark.parametrize(("away", "seconds"), [(60.0, 10.0), (61.0, 25.0)])
def test_the_time_that_a_queue_has_held_goes_on_in_the_next_run(away, seconds):
    """Fifteen seconds before, and the first block after: unless nobody looked for over a minute."""
    before = calm().part(15, **FULL, waiting=3000.0)
    assert before.verdict.state == "clear"
    assert restarted(before, away).part(60, **FULL, waiting=3000.0).first[0] == seconds


def test_the_first_requests_after_an_idle_time_are_no_overload():
    """The rate of the last minute says nothing: what it does when it works was learnt before, and idle time is not in it."""
    told = calm().part(900, running=0.0, kv=0.0).part(120, **FULL, waiting=300.0)
    assert (told.first, told.verdict.state) == (None, "clear")


def test_of_an_engine_that_has_finished_nothing_no_delay_is_known():
    """It was idle since the watcher began."""
    told = Told(Detector(Settings())).part(300, running=0.0, kv=0.0)
    assert told.verdict.state == "clear"
    assert told.part(5, **FULL, waiting=3000.0).verdict.state == "unknown"


@pytest.mark.parametrize(("less_a_second", "first"), [(2.0, 60.0), (4.0, 60.0), (6.0, None)])
def test_a_queue_that_shrinks_too_slowly_stands(less_a_second, first):
    """After a minute in which it shrank by so little that ten more would not end it; not before."""
    told, waiting = calm(), 3000.0
    found = None
    for seconds in range(5, 95, 5):
        told.part(5, **FULL, waiting=waiting)
        if told.first is not None and found is None:
            found = float(seconds)
        waiting -= less_a_second * 5
    assert found is None if first is None else first <= found <= first + 5


def test_what_a_finding_says():
    """How long the queue has held, and how much work it is."""
    seconds, verdict = calm().part(60, **FULL, waiting=3000.0).first
    queue, _used = verdict.evidence_for
    assert (seconds, verdict.since_seconds) == (
        25.0,
        20.0,
    )  # the first look's five belong to the calm
    assert queue.value == verdict.measure == pytest.approx(3000.0 / 15.0, rel=0.4)
    assert (queue.expected, queue.unit) == (45.0, "s")
    assert f"3000 requests waiting: {in_words(queue.value)} of work" in verdict.summary


def test_a_queue_that_is_empty_at_times_is_none():
    """It is long at every other look."""
    told = calm(1.0)
    for _ in range(60):
        told.part(1, **FULL, waiting=3000.0).part(1, **FULL, waiting=0.0)
        assert told.first is None


def test_a_queue_that_nobody_served_meanwhile_begins_anew():
    """Its time counts from the first look at which requests run again."""
    told = calm().part(15, **FULL, waiting=3000.0)
    told.part(10, running=0.0, kv=0.0, waiting=3000.0)
    assert told.verdict.state == "unknown"
    assert told.part(15, **FULL, waiting=3000.0).first is None
    assert told.part(15, **FULL, waiting=3000.0).first is not None


def test_a_queue_that_was_short_meanwhile_begins_anew():
    """As one that is found for the first time."""
    told = calm().part(15, **FULL, waiting=3000.0).part(10, **FULL, waiting=20.0)
    assert told.part(15, **FULL, waiting=3000.0).first is None
    assert told.part(15, **FULL, waiting=3000.0).first is not None


def test_a_minute_of_work_that_waits_is_overload():
    """Little more than what begins it."""
    assert calm().part(60, **FULL, waiting=750.0).first is not None


def test_what_the_last_run_found_ends_with_it():
    """Then the next queue must be as long as the first was."""
    after = restarted(calm().part(120, **FULL, waiting=3000.0), 5.0)
    assert after.part(15, **FULL, waiting=20.0).verdict.state == "clear"
    assert after.part(60, **FULL, waiting=300.0).first is None


def test_a_queue_that_shrinks_since_the_last_run_is_worked_off():
    """How long it was then is known."""
    after = restarted(calm().part(15, **FULL, waiting=3000.0), 5.0)
    assert after.part(30, **FULL, waiting=2000.0).first is None


def test_its_usual_rate_is_known_after_a_minute_of_work():
    """Not before; and then the queue must hold as always."""
    told = Told(Detector(Settings())).part(65, **FULL, waiting=3000.0)
    assert told.verdict.state == "unknown"
    assert told.part(5, **FULL, waiting=3000.0).verdict.state == "clear"
    assert told.part(25, **FULL, waiting=3000.0).first is not None


def test_a_minute_in_which_it_was_idle_at_first_is_enough():
    """What it finished since says how fast it is, though it worked for less than a minute."""
    told = Told(Detector(Settings())).part(60, running=0.0, kv=0.0).part(20, **FULL)
    assert told.part(5, **FULL, waiting=3000.0).verdict.state == "clear"


def test_one_request_that_waits_for_more_than_a_minute_is_overload():
    """Of an engine that serves one at a time, for a minute and a half each."""
    one = {"running": 1.0, "kv": 0.1, "output": 9000.0}
    told = Told(Detector(Settings())).part(600, **one)
    assert told.part(60, **one, waiting=1.0).first is not None


def test_what_it_did_hours_ago_is_no_yardstick():
    """It was fast, and for two hours has had longer answers: how long its queue takes is told by those."""
    told = Told(Detector(Settings()), 30.0).part(7200, **CALM).part(7200, **CALM, output=2000.0)
    assert told.part(300, **CALM, output=2000.0, waiting=150.0).first is not None
