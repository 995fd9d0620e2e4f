"""Slow from the first minutes of a new process: told beside what the process before it did."""

from dataclasses import replace
from random import Random

import pytest

from benchmarks.lab.virtual import EPOCH, observe
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.scripts import L40S
from vllm_watch.lab.stories import load
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.watch.watch import Watch


def told(script, seconds=1500.0, seed=3, **server):
    """[(second, kind, cause, severity, advised)] of what was active at each look, 5 s apart."""
    vllm = SimulatedVllm("vllm", workload=load(Random(seed)), config=L40S, **server)
    scene, watch, seen = Scene([vllm], None, script), Watch("vllm"), []
    scene.begin_at(EPOCH)
    for second in range(0, int(seconds), 5):
        scene.advance(float(second))
        watch.observe(observe(vllm))
        seen += [
            (second, each.kind, each.cause, each.severity, each.restart_advised)
            for each in watch.incidents
            if each.phase == "active"
        ]
    assert watch.failures == {}
    return [each for each in seen if each[1] == "throughput_collapse"]


def restarted(then):
    def script(scene):
        vllm = scene["vllm"]
        yield 900.0
        vllm.fault("crash")
        yield 30.0
        vllm.clear("crash")
        while not vllm.serving:
            yield 1.0
        yield from then(vllm)

    return script


def slow_at_once(vllm, factor=2.7, seconds=240.0):
    yield 5.0
    vllm.fault("slow", factor=factor)
    yield seconds
    vllm.clear("slow")


def test_slow_from_the_first_minute_of_a_new_process():
    """A ticket within a minute and a half, without advice, and over when the engine is as it was before."""
    found = told(restarted(slow_at_once))
    assert found
    begins, ends = found[0][0], found[-1][0]
    assert 940 < begins < 1060
    assert ends < 1210
    assert {each[2:] for each in found} == {("slow_engine", "ticket", False)}


def test_far_too_slow_for_minutes_pages():
    """No flag and no other GPU of the fleet costs that much; a restart has just not helped, so none is advised."""
    found = told(restarted(lambda vllm: slow_at_once(vllm, 6.0, 500.0)))
    severities = [each[3] for each in found]
    paged = found[severities.index("page")][0]
    assert found[0][3] == "ticket"
    assert paged - found[0][0] >= 120
    assert paged < 1400
    assert not any(each[4] for each in found)


def well(vllm):
    yield 500.0


def another_model(vllm):

    vllm.stop()
    yield 10.0
    vllm.replace_model(replace(L40S, num_gpu_blocks=7000, step_base_seconds=0.08))
    vllm.start(load_seconds=60.0)
    yield 500.0


QUIET = {"as fast as before": well, "another model in its place": another_model}


@pytest.mark.parametrize("then", QUIET.values(), ids=QUIET)
def test_nothing_is_said_of(then):
    assert told(restarted(then)) == []


def test_a_server_that_does_not_answer_is_not_seen_to_be_slow():
    """What was compared before is no finding of now."""

    def then_silent(vllm):
        vllm.fault("slow", factor=3.0)
        yield 180.0
        vllm.fault("api_hang")
        yield 40.0

    vllm = SimulatedVllm("vllm", workload=load(Random(3)), config=L40S)
    scene, watch, firing = Scene([vllm], None, restarted(then_silent)), Watch("vllm"), {}
    scene.begin_at(EPOCH)
    for second in range(0, 1200, 5):
        scene.advance(float(second))
        watch.observe(observe(vllm))
        if slow := [each for each in watch.incidents if each.kind == "throughput_collapse"]:
            firing.setdefault(watch.signals.up, set()).add(slow[0].firing)
    assert firing == {True: {True}, False: {False}}


def watched(script, seconds, versions):
    """[(second, incident)] of the open collapse at each scrape, 15 s apart. `versions`: of vLLM, by process."""
    vllm = SimulatedVllm("vllm", workload=load(Random(3)), config=L40S)
    scene, watch, seen, started = Scene([vllm], None, script), Watch("vllm"), [], []
    scene.begin_at(EPOCH)
    for second in range(0, seconds, 15):
        scene.advance(float(second))
        looked = observe(vllm)
        if looked.reading is not None:
            server = looked.reading.server
            if server.process_start_time not in started:
                started.append(server.process_start_time)
            server = replace(server, version=versions[min(len(started), len(versions)) - 1])
            looked = replace(looked, reading=replace(looked.reading, server=server))
        watch.observe(looked)
        seen += [(second, each) for each in watch.incidents if each.kind == "throughput_collapse"]
    assert watch.failures == {}
    return seen


def slow_for_good(vllm):
    while True:
        vllm.fault("slow", factor=5.0)
        yield 60.0


def test_a_slower_release_stays_open_and_names_both_versions():
    """Hours do not make it healthy, and no restart helps."""
    seen = watched(restarted(slow_for_good), 7200, ("0.23.0", "0.24.0"))
    second, last = seen[-1]
    assert (second, last.phase, last.cause) == (7185, "active", "slow_release")
    assert {each.id for _, each in seen} == {last.id}
    assert "since vLLM 0.23.0 was replaced by 0.24.0" in last.summary
    assert not any(each.restart_advised for _, each in seen)
    assert last.severity == "page"


def test_the_next_process_of_a_slower_release_is_compared_with_the_faster_one():
    def then(vllm):
        for _ in range(20):
            vllm.fault("slow", factor=5.0)
            yield 60.0
        vllm.fault("crash")
        yield 30.0
        vllm.clear("crash")
        while not vllm.serving:
            yield 1.0
        yield from slow_for_good(vllm)

    second, last = watched(restarted(then), 3600, ("0.23.0", "0.24.0"))[-1]
    assert (second, last.cause) == (3585, "slow_release")
    assert "vLLM 0.23.0 was replaced by 0.24.0" in last.summary


def test_without_versions_it_is_the_engine():
    _, last = watched(restarted(slow_for_good), 1800, (None,))[-1]
    assert last.cause == "slow_engine"
    assert "before the restart" in last.summary
