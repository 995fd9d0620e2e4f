"""An engine beside its siblings, who are the same hardware with the same model, and beside the process before it."""

from dataclasses import replace
from random import Random

import pytest

from benchmarks.lab.virtual import EPOCH, observe
from tests.detectors.made_up_engine import Engine, view
from vllm_watch.detectors.collapse_others import SIBLINGS_MAX
from vllm_watch.detectors.throughput_collapse import Detector, Settings
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import L40S, load
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.watch.watch import Watch

FRESH = {"running": 40.0, "kv": 0.3}
LOOK_S = 5.0


def said(count, slow, *, from_s=0.0, until_s=2400.0, waiting=0.0):
    """Verdicts on engine 0 of so many at every look; it is `slow` times slower from then on."""
    detector, engines, verdicts = Detector(Settings()), [Engine(str(n)) for n in range(count)], []
    for look in range(int(until_s / LOOK_S)):
        now = slow if look * LOOK_S >= from_s else 1.0
        samples = [
            each.run(LOOK_S, **FRESH, **({"slow": 1.0} if n else {"slow": now, "waiting": waiting}))
            for n, each in enumerate(engines)
        ]
        seen = detector.update(view((look + 1) * LOOK_S, *samples))
        assert all(each.state != "firing" for each in seen[1:])
        verdicts.append(seen[0])
    return verdicts


@pytest.mark.parametrize("from_s", [0.0, 900.0])
def test_one_of_eight_that_is_a_fifth_slower_is_a_ticket(from_s):
    """Were it so from the first look or not; its own past would not have told."""
    verdicts = said(8, 1.2, from_s=from_s)
    found = next(n * LOOK_S for n, each in enumerate(verdicts) if each.state == "firing")
    assert found - from_s <= 900.0
    last = verdicts[-1]
    assert (last.cause, last.severity, last.restart_advised) == ("slow_engine", "ticket", False)
    assert "7 sibling engines" in last.summary


@pytest.mark.parametrize(("waiting", "severity"), [(0.0, "ticket"), (3.0, "page")])
def test_one_that_takes_twice_as_long_from_the_first_scrape_pages_where_requests_wait(
    waiting, severity
):
    """Ranks whose tenants differ are as slow for good, and nobody waits."""
    last = said(4, 2.0, until_s=1200.0, waiting=waiting)[-1]
    assert (last.state, last.severity, last.restart_advised) == ("firing", severity, False)


@pytest.mark.parametrize(("count", "slow"), [(8, 1.05), (2, 1.15), (2, 1.5), (1, 2.0)])
def test_what_is_no_loss_or_cannot_be_told(count, slow):
    """A twentieth; one of two, of whom either may be the slow one; and one without siblings."""
    assert all(each.state != "firing" for each in said(count, slow, until_s=1500.0))


def test_an_idle_engine_is_compared_with_nobody():
    detector, engines = Detector(Settings()), [Engine(str(n)) for n in range(4)]
    for look in range(40):
        idle = {"running": 0.0, "kv": 0.0}
        samples = [each.run(LOOK_S, **(FRESH if n else idle)) for n, each in enumerate(engines)]
        seen = detector.update(view((look + 1) * LOOK_S, *samples))
        assert all(each.state != "firing" for each in seen)


def test_one_of_many_is_compared_with_some_of_all_nodes():
    """As many questions for each rank of 64 as for one of nine, and no look grows with their square."""
    last = said(64, 1.5, until_s=900.0)[-1]
    assert (last.state, last.cause) == ("firing", "slow_engine")
    assert f"{SIBLINGS_MAX} sibling engines" in last.summary


USUAL = {"running": 40.0, "kv": 0.1}  # 2,500 tokens per second


def verdict_on_first(seconds=1500.0, count=4, **load):
    """Of engines that were so from the first look: one that serves `load`, and its siblings."""
    detector, engines = Detector(Settings()), [Engine(str(n)) for n in range(count)]
    for look in range(int(seconds / LOOK_S)):
        samples = [each.run(LOOK_S, **(USUAL if n else load)) for n, each in enumerate(engines)]
        first, *others = detector.update(view((look + 1) * LOOK_S, *samples))
        assert all(each.state != "firing" for each in others)
    return first


SLOW = {"running": 200.0, "kv": 0.5, "slow": 2.0}
"""The same 2,500 tokens per second, by steps that take twice as long at every load."""


def test_equal_work_with_a_multiple_of_the_requests_is_a_ticket():
    told = verdict_on_first(**SLOW)
    assert (told.state, told.cause, told.severity) == ("firing", "slow_engine", "ticket")
    assert not told.restart_advised
    assert "5.0 times as many requests" in told.summary
    assert "3 sibling engines" in told.summary


OTHERWISE = {
    "it does more": {"running": 160.0, "kv": 0.4},
    "its requests have longer contexts": {"running": 93.0, "kv": 0.9},
    "one of two": {**SLOW, "count": 2},
    "for some minutes": {**SLOW, "seconds": 500.0},
}


@pytest.mark.parametrize("load", OTHERWISE.values(), ids=OTHERWISE)
def test_what_is_no_sign_of_slow_steps(load):
    assert verdict_on_first(**load).state != "firing"


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
    vllm.config = replace(L40S, num_gpu_blocks=7000, step_base_seconds=0.08)
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
