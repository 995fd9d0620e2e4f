"""Ranks of one server: the one whose process is stopped is told, and the others wait for it."""

from tests.detectors.looks import T, engine, seen
from vllm_watch.samples.observation import EngineCpu
from vllm_watch.samples.record import changed
from vllm_watch.watch.watch import Watch

HALTED = (EngineCpu(engine="1", waited_seconds=1.0, stopped="VLLM::EngineCore_DP1 (PID 7)"),)


def two(second, steps, *, running=4.0, cpu=HALTED):
    """Engine 0 has work, engine 1 looks idle."""
    idle = engine(1600, name="1", running=0.0, kv=0.0)
    return changed(seen(second, engine(steps, running=running), idle), cpu=cpu)


def told(observations):
    watch = Watch("x")
    for each in observations:
        watch.observe(each)
    assert watch.failures == {}
    return watch, {e.engine: (e.cause, e.severity, e.restart_advised) for e in watch.incidents}


WELL = [two(s, 1000 + 10 * s, cpu=None) for s in range(0, 60, 5)]


def test_the_rank_that_is_stopped_is_told():
    """It was the victim that was told, and advised to be restarted, while the culprit read idle."""
    watch, found = told([*WELL, *[two(s, 1600) for s in range(60, 300, 5)]])
    assert found == {"0": ("rank_wait", "ticket", False), "1": ("stopped", "page", False)}
    victim = next(each for each in watch.incidents if each.engine == "0")
    assert "engine 1 of its group is stalled" in victim.summary


def test_a_rank_that_is_stopped_while_nobody_waits_is_a_ticket():
    _, found = told([*WELL, *[two(s, 1600, running=0.0) for s in range(60, 300, 5)]])
    assert found == {"1": ("stopped", "ticket", False)}


def test_one_that_was_in_use_until_it_was_stopped_is_a_page():
    """Between two requests: its gauges read idle from then on, whoever waits outside."""
    halted = (EngineCpu(engine="0", waited_seconds=1.0, stopped="VLLM::EngineCore (PID 7)"),)
    for used_until, severity in ((60, "page"), (10, "ticket")):
        looks = [
            changed(
                seen(s, engine(1000 + 10 * min(s, used_until), running=0.0, kv=0.0)),
                cpu=halted if s >= 120 else None,
            )
            for s in range(0, 300, 5)
        ]
        assert told(looks)[1] == {"0": ("stopped", severity, False)}


def test_a_debugger_that_takes_a_stack_is_nothing():
    """Ten seconds; nor is an engine that is asleep."""
    moments = [
        two(s, 1000 + 10 * s, cpu=HALTED if s in (60, 65) else ()) for s in range(60, 200, 5)
    ]
    assert told([*WELL, *moments])[1] == {}
    asleep = {"awake": 0.0, "weights_offloaded": 1.0}
    looks = [
        changed(seen(s, engine(1600, name="1", engine_sleep_state=asleep)), cpu=HALTED)
        for s in range(0, 200, 5)
    ]
    assert told(looks)[1] == {}


def test_a_server_of_one_engine_that_is_stopped_is_restarted_as_ever():
    """With work, after a minute."""
    halted = (EngineCpu(engine="0", waited_seconds=1.0, stopped="VLLM::EngineCore (PID 7)"),)
    looks = [changed(seen(s, engine(1600)), cpu=halted) for s in range(60, 300, 5)]
    watch, found = told([*[seen(s) for s in range(0, 60, 5)], *looks])
    assert found == {"0": ("stopped", "page", True)}
    assert watch.incidents[0].opened_t - T <= 70
