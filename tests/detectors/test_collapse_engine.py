"""What is said of an engine that lost against its past: the cause, how urgent it is, and for how long."""

import json
from dataclasses import replace
from math import log

import pytest

from tests.detectors.made_up_engine import gpu
from tests.detectors.scripted_past import (
    CALM,
    CHUNKED,
    HOT,
    LONG_PROMPT,
    LOST,
    SLOW,
    Judged,
    Throughput,
    drained,
    evidence,
    said,
    well,
)
from vllm_watch.detectors.collapse_engine import EngineJudge
from vllm_watch.samples.gpu import ProcessSample

LOWERED = (gpu(utilization_ratio=0.9, sm_clock_hz=5e8, sm_clock_max_hz=1.4e9),)


def test_a_judge_that_has_seen_nothing_says_and_keeps_nothing():
    """No cause, no urgency and no advice come from before the first look."""
    judge = EngineJudge("0")
    kept = judge.export_state()
    assert (judge.verdict.state, judge.verdict.engine, judge.compared) == ("unknown", "0", False)
    assert {name: kept[name] for name in kept if isinstance(kept[name], bool)} == dict.fromkeys(
        ("starving", "queue_grew", "asked_for", "urgent", "restart"), False
    )
    assert (kept["quiet_ratio"], kept["starved_seconds"], kept["waiting_first"]) == (0.0, 0.0, None)


def test_the_step_time_that_is_told_is_smoothed_over_the_last_blocks():
    """One block is a third of it; a block that could not be compared changes nothing."""
    judged = well()
    for ratio, smoothed in ((1.0, 0.3), (1.0, 0.51), (None, 0.51), (0.0, 0.357)):
        judged.see(slow_log_ratio=ratio)
        assert judged.judge.quiet_ratio == pytest.approx(smoothed)
        assert judged.judge.compared == (ratio is not None)


@pytest.mark.parametrize(
    ("level", "load", "other"),
    [("slow_level", SLOW, "starved_level"), ("starved_level", LOST, "slow_level")],
)
def test_a_trouble_began_when_it_was_first_in_doubt(level, load, other):
    """The doubt before the alarm counts; not doubt that cleared up, nor doubt about the other family."""
    judged = well()
    judged.see(50, **{level: 0.2})
    judged.see(5, **{other: 0.2})
    judged.see(20, **{level: 0.2, other: 0.2})
    assert judged.see(10, **load).since_seconds == pytest.approx(30.0)


@pytest.mark.parametrize("load", [SLOW, LOST], ids=["slow", "starved"])
def test_a_single_normal_block_may_be_luck(load):
    """Two in a row, and what raised the alarm is not there any more."""
    judged = well()
    assert judged.see(30, **load).present
    assert judged.see(5, **drained(load)).present
    assert judged.see(5, **load).present
    assert judged.see(5, **drained(load)).present
    assert not judged.see(5, **drained(load)).present
    assert judged.see(5, **load).present


def test_the_first_normal_block_of_a_new_run_may_be_luck_as_well():
    judged = well()
    judged.see(30, **LOST)
    after = kept_on(judged)
    assert after.see(5, **drained(LOST)).present
    assert not after.see(5, **drained(LOST)).present


def kept_on(judged):
    """The next run of the watcher, which goes on with what this one kept."""
    after = Judged()
    after.at_s, after.past.throughput = judged.at_s, judged.past.throughput
    after.judge.restore(json.loads(json.dumps(judged.kept)), 5.0)
    return after


OTHERWISE = {
    "causes": {"slow": "thermal_throttle", "cache": "kv_leak"}, "capacity_tokens": 5.0, "unheld_rise_seconds": 7.0, "starving": True,
    "quiet_ratio": 0.9, "pids": [3], "clocks": {"GPU-0": 0.5}, "waiting_first": 10.0,
    "unread_seconds": 11.0, "queue_grew": True, "asked_for": True, "starved_seconds": 12.0, "urgent": True, "restart": True,
    "long_prompts": [1.0], "finished": [1.0, 2.0, 3.0],
}  # fmt: skip


def test_all_that_is_kept_is_known_again():
    """Each part of it, whatever it says."""
    judged = Judged()
    judged.see(300, waits=0.1)
    judged.see(50, gpus=HOT, **SLOW)
    kept = json.loads(json.dumps(judged.kept)) | OTHERWISE
    after = Judged()
    after.judge.restore(kept, 5.0)
    assert json.loads(json.dumps(after.kept)) == kept
    assert after.past.restored == (kept["baseline"], 5.0)


def test_what_an_older_version_kept_is_enough():
    """It had not counted waits and said neither who asked for the pages nor how urgent it was."""
    judged = well()
    judged.see(50, **SLOW)
    newer = ("waits", "bar", "asked_for", "starved_seconds", "urgent", "clocks")
    judge = Judged().judge
    judge.restore({name: each for name, each in judged.kept.items() if name not in newer}, 5.0)
    again = judge.export_state()
    assert (again["asked_for"], again["starved_seconds"], again["urgent"]) == (False, 0.0, False)
    assert again["pages"] == judged.kept["pages"]


def test_another_life_of_the_engine_begins_with_nothing():
    """Another process or configuration: neither its pages nor its requests are compared with those before."""
    judged = well()
    judged.see(30, **LONG_PROMPT)
    judged.past.throughput = Throughput()
    judged.see(5)
    kept = judged.kept
    assert len(kept["pages"]["recent"]) == 1
    assert (kept["finished"][0], kept["long_prompts"]) == (50.0, [0.0])
    assert not kept["starving"]


UNSEEN = {
    "slow, and steps could not be compared": SLOW | {"slow_now": False, "slow_log_ratio": None},
    "starved, and the queue is not seen": LOST | {"starved_now": False, "starved_seen": False},
    "nothing is known of the engine yet": {"known": False},
}


@pytest.mark.parametrize("load", UNSEEN.values(), ids=UNSEEN)
def test_what_a_block_does_not_tell_is_unknown(load):
    judged = well()
    assert judged.see(5).state == "clear"
    assert judged.see(5, **load).state == "unknown"
    assert judged.see(5).state == "clear"


def test_between_two_blocks_what_was_said_still_holds():
    """Until time is lost, or the past that it was judged by is gone."""
    judged = well()
    slow = judged.see(30, **SLOW)
    judged.past.completes = False
    assert judged.look() == slow
    lost = judged.look(known=False)
    assert (lost.state, lost.kind, lost.engine) == ("unknown", "throughput_collapse", "0")
    assert judged.look() == lost
    judged.past.completes = True
    assert judged.see(5, **SLOW).state == "firing"
    judged.past.comparison = None
    assert judged.look().state == "unknown"


WAITS = {  # of the time: when well, when slow → cause
    "it waits as long as ever": (0.6, 0.6, "slow_engine"),
    "it waits far longer": (0.05, 0.6, "neighbour_contention"),
    "it waits a little longer": (0.05, 0.3, "unknown"),
    "its processes are not seen": (None, None, "slow_engine"),
}


@pytest.mark.parametrize(("usual", "waits", "cause"), WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("again", [False, True], ids=["one run", "the next run"])
def test_steps_are_slow_for_want_of_a_cpu(usual, waits, cause, again):
    """What is usual is learnt while the engine is well, and known in the next run of the watcher."""
    judged = Judged()
    judged.see(300, waits=usual)
    judged = kept_on(judged) if again else judged
    judged.see(5, waits=usual)
    longer = {"gpus": CALM, "waits": waits, "step_seconds": 0.06, "steps": 83.0}
    judged.see(120, **longer, slow_level=0.3, slow_log_ratio=1.1)
    assert judged.see(5, **longer, **SLOW).cause == cause


def test_steps_that_stay_slow_when_the_neighbour_has_gone_have_another_cause():
    """Said after a while, in which the waits that were smoothed have faded."""
    judged = Judged()
    judged.see(300, waits=0.05)
    slow = SLOW | {"gpus": CALM, "step_seconds": 0.06, "steps": 83.0}
    assert judged.see(30, waits=0.6, **slow).cause == "neighbour_contention"
    assert judged.see(10, waits=0.05, **slow).cause == "neighbour_contention"
    judged.see(60, waits=0.05, **drained(slow))
    assert judged.see(5, waits=0.05, **slow).cause == "neighbour_contention"
    assert judged.see(60, waits=0.05, **slow).cause == "slow_engine"


BOTH = {
    "slow alone": (SLOW, CALM, "slow_engine", "step_time_ratio"),
    "starved alone": (LOST, CALM, "kv_pinning", "throughput_ratio"),
    "both, and nothing else explains the steps": (SLOW | LOST, CALM, "kv_pinning", "throughput_ratio"),
    "both, and the GPU is hot": (SLOW | LOST, HOT, "thermal_throttle", "step_time_ratio"),
    "starved alone, and the GPU is hot": (LOST, HOT, "kv_pinning", "throughput_ratio"),
}  # fmt: skip


@pytest.mark.parametrize(("load", "gpus", "cause", "first"), BOTH.values(), ids=BOTH)
def test_who_lacks_pages_is_not_slow_for_that(load, gpus, cause, first):
    """Few requests with long contexts take long steps; a hot GPU is told all the same."""
    verdict = well().see(30, gpus=gpus, **load)
    assert (verdict.cause, verdict.evidence_for[0].name) == (cause, first)
    assert verdict.evidence_for[0].expected == 1.0


STEPS = {  # what is seen after half a minute of slow steps → cause then
    "all as before": (CALM, SLOW, "slow_engine"),
    "the GPU became hot": (HOT, SLOW, "thermal_throttle"),
    "the GPU became hot while the alarm drains": (HOT, drained(SLOW), "slow_engine"),
    "somebody lowered the clock": (LOWERED, SLOW, "unknown"),
    "somebody lowered the clock, seen while the alarm drains": (LOWERED, drained(SLOW), "unknown"),
    "a load that was never met": (CALM, SLOW | {"sure": False}, "slow_engine"),
}


@pytest.mark.parametrize(("gpus", "load", "cause"), STEPS.values(), ids=STEPS)
def test_what_is_vague_sharpens_while_steps_are_slow(gpus, load, cause):
    judged = well()
    assert judged.see(30, gpus=CALM, **SLOW).cause == "slow_engine"
    assert judged.see(5, gpus=gpus, **load).cause == cause


def test_a_named_cause_stays_while_the_alarm_holds():
    """The GPU cools down, and steps stay slow."""
    judged = well()
    judged.see(30, gpus=HOT, **SLOW)
    assert judged.see(120, gpus=CALM, **SLOW).cause == "thermal_throttle"
    judged.see(5)
    assert judged.see(30, gpus=CALM, **SLOW).cause == "slow_engine"


def test_a_look_at_an_idle_moment_of_the_gpu_takes_no_excuse_back():
    """Its lowered clock is not seen then; heat is news all the same."""
    judged = well()
    judged.see(30, gpus=LOWERED, **SLOW)
    excused = judged.see(30, gpus=CALM, **SLOW)
    assert excused.cause == "unknown"
    assert evidence(excused, "sm_clock_ratio").value == 0.36
    assert judged.see(5, gpus=HOT, **SLOW).cause == "thermal_throttle"


def test_a_load_that_was_never_met_is_unknown_until_it_is_sure():
    judged = well()
    strange = judged.see(5, gpus=CALM, **SLOW, sure=False)
    assert (strange.cause, strange.evidence_against[-1].name) == ("unknown", "load")
    assert judged.see(5, gpus=CALM, **SLOW).cause == "slow_engine"
    hot = well().see(5, gpus=HOT, **SLOW, sure=False)
    assert (hot.cause, hot.evidence_against) == ("thermal_throttle", ())


def test_slow_steps_are_a_ticket_then_a_page_then_a_restart():
    """A restart is for the engine itself, and not once something else on the GPU is found."""
    judged = well()
    assert said(judged.see(5, gpus=CALM, **SLOW)) == ("firing", "slow_engine", "ticket", False)
    assert said(judged.see(60, gpus=CALM, **SLOW)) == ("firing", "slow_engine", "page", False)
    assert said(judged.see(120, gpus=CALM, **SLOW)) == ("firing", "slow_engine", "page", True)
    assert said(judged.see(5, gpus=LOWERED, **SLOW)) == ("firing", "unknown", "page", False)


@pytest.mark.parametrize(
    ("felt", "severity"),
    [({}, "page"), ({"step_seconds": 0.025}, "ticket")],
    ids=["felt", "not felt"],
)
def test_a_hot_gpu_pages_where_users_feel_it(felt, severity):
    """A known cause is no reason to wake anybody: at this load steps are three times as long, at others they always were."""
    judged = well()
    assert said(judged.see(5, gpus=HOT, **SLOW)) == ("firing", "thermal_throttle", "ticket", False)
    verdict = judged.see(120, gpus=HOT, **(SLOW | felt))
    assert said(verdict) == ("firing", "thermal_throttle", severity, False)
    assert evidence(verdict, "rule").value == severity
    following = [each.text for each in verdict.evidence_for if each.name == "next_rule"]
    harm = "becomes critical when users wait longer or get fewer tokens than in the worst minutes so far"
    assert following == ([harm] if severity == "ticket" else [])  # no restart cools a GPU


@pytest.mark.parametrize(("gpus", "restart"), [(CALM, False), (HOT, True)], ids=["own", "hot"])
def test_a_slowdown_that_went_by_itself_speaks_against_a_restart_unless_it_was_excused(
    gpus, restart
):
    """What a hot GPU did, and went as it cooled, is no habit of the engine."""
    judged = well(1800)
    judged.see(240, gpus=gpus, **SLOW)
    judged.see(600)
    again = judged.see(240, gpus=CALM, **SLOW)
    assert said(again) == ("firing", "slow_engine", "page", restart)


@pytest.mark.parametrize(("load", "severity"), [(LOST, "page"), (CHUNKED, "ticket")], ids=["lost", "asked for"])  # fmt: skip
def test_lost_pages_are_told_while_steps_are_slow_as_well(load, severity):
    judged = well()
    assert judged.see(30, gpus=CALM, **load).severity == severity
    both = judged.see(5, gpus=CALM, **SLOW | load)
    assert (both.family, both.cause, both.severity) == ("cache", "kv_pinning", severity)
    over = judged.see(30, gpus=CALM, **SLOW | drained(load) | {"slow_now": False})
    assert (over.family, over.present) == ("cache", False)


@pytest.mark.parametrize(("first", "then", "family"), [(SLOW, LOST, "cache"), (LOST, SLOW, "slow")])
def test_a_trouble_takes_nothing_from_the_one_before_it(first, then, family):
    """Its cause, its begin and its evidence are its own, though the other alarm still drains."""
    judged = well()
    judged.see(60, gpus=HOT if first is SLOW else CALM, **first)
    draining = drained(first) | then
    told, alone = judged.see(10, gpus=CALM, **draining), well().see(10, gpus=CALM, **then)
    assert (told.family, told.cause) == (family, alone.cause)
    assert told.present
    assert told.since_seconds == alone.since_seconds == pytest.approx(10.0)
    assert told.evidence_for[0].name == alone.evidence_for[0].name


def test_requests_that_come_back_after_lost_pages_are_no_slowness():
    """At a load that the engine never met; only steps that are slow for sure are another trouble."""
    judged = well()
    judged.see(60, gpus=CALM, **LOST)
    back = judged.see(10, gpus=CALM, **drained(LOST) | SLOW, sure=False)
    assert (back.family, back.present) == ("cache", False)


def process(pid, created, used=30):
    name = "VLLM::EngineCore"
    return ProcessSample(
        pid=pid, type="compute", name=name, cmdline=(name,), ppid=pid - 1, used_bytes=used << 30,
        create_time=created, sm_utilization_ratio=0.5 if pid == 20 else None,
    )  # fmt: skip


@pytest.mark.parametrize(("start", "cause"), [(990.0, "neighbour_contention"), (1990.0, "unknown")])
def test_the_engine_on_a_shared_gpu_is_the_one_that_began_after_its_server(start, cause):
    """Of two vLLM the other one is the neighbour, however much memory it holds."""
    gpus = (gpu(processes=(process(10, 1000.0), process(20, 2000.0, used=40))),)
    judged = well()
    judged.sample = replace(judged.sample, process_start_time=start)
    judged.see(10, gpus=gpus)
    assert judged.see(5, gpus=gpus, **SLOW).cause == cause


BESIDE = (gpu(processes=(ProcessSample(pid=7, type="compute", name="python"),)),)


@pytest.mark.parametrize(
    ("gpus", "load", "pids"),
    [
        (BESIDE, {}, [7]),
        (None, {}, []),
        (BESIDE, {"slow_level": 0.1}, []),
        (BESIDE, {"starved_level": 0.1}, []),
    ],
)
def test_who_was_there_while_the_engine_was_well(gpus, load, pids):
    """Whoever comes with the first doubt may be its cause."""
    judged = well()
    judged.see(5, gpus=gpus, **load)
    assert judged.kept["pids"] == pids
    if pids:
        judged.see(5, gpus=None)
        assert judged.kept["pids"] == pids


HABIT = {
    "well": ({}, 0.0, True),
    "doubtful": ({"slow_level": 0.1}, 0.0, False),
    "starving": ({"starved_level": 0.1}, 0.0, False),
    "drifting": ({}, 0.1, False),
    "hardly drifting": ({}, 0.09, True),
}


@pytest.mark.parametrize(("load", "drift", "learnt"), HABIT.values(), ids=HABIT)
def test_how_steps_wander_is_learnt_from_an_engine_that_is_well(load, drift, learnt):
    judged = Judged()
    judged.past.drift = drift
    judged.see(180, **load)
    assert (judged.kept["bar"]["wander"]["count"] > 8.0) == learnt


@pytest.mark.parametrize("familiar", [True, False])
def test_a_small_loss_that_lasts_is_a_ticket_at_loads_that_are_known(familiar):
    judged = well(1800)
    judged.past.drift = 0.2
    verdict = judged.see(1260, slow_log_ratio=log(1.25), familiar=familiar)
    if not familiar:
        assert verdict.state == "clear"
        return
    assert said(verdict) == ("firing", "slow_engine", "ticket", False)
    assert (verdict.present, verdict.since_seconds) == (True, 0.0)
    slow = evidence(verdict, "step_time_ratio")
    assert (slow.value, slow.expected) == (pytest.approx(1.25), 1.0)
    assert verdict.measure == slow.value


def test_requests_that_get_no_token_are_told():
    """Twenty more run for ten minutes, and as many tokens come as ever."""
    verdict = well(1200).see(660, running=60.0)
    assert (verdict.state, verdict.severity, verdict.measure) == ("firing", "ticket", 20.0)
    assert "20 of 60 running requests" in verdict.summary


def test_the_usual_work_that_takes_a_multiple_of_the_requests_is_a_ticket():
    """Each step takes five times as long, at a load of which nobody can say that it is slow."""
    verdict = well(1800).see(
        1200, running=160.0, kv_usage=0.9, step_seconds=0.1, steps=50.0, prompts=50.0
    )
    assert said(verdict) == ("firing", "slow_engine", "ticket", False)
    assert verdict.measure == pytest.approx(5.0, rel=0.1)
    assert (verdict.present, verdict.since_seconds) == (True, 0.0)
    assert [each.name for each in verdict.evidence_for] == ["step_time_ratio"]
