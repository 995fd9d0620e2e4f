"""Whose a process on the GPU is, and clocks that somebody lowered: no restart cures either."""

import json

import pytest

from tests.detectors.made_up_engine import gpu
from vllm_watch.detectors.collapse_gpus import Fresh, of_slow_steps
from vllm_watch.samples.process import ProcessSample
from vllm_watch.signals import stored

START = 1_700_000_000.0


def core(pid, ppid, *, began=30.0, share=0.5, **fields):
    return ProcessSample(
        pid=pid, ppid=ppid, name="VLLM::EngineCor", type="compute", used_bytes=40 << 30,
        sm_utilization_ratio=share, create_time=START + began, **fields,
    )  # fmt: skip


OWN = core(101, 100)
PROCESSES = {
    "its own core": ((OWN,), "slow_engine"),
    "two ranks of one server": ((OWN, core(102, 100)), "slow_engine"),
    "its core and a worker of it": ((OWN, core(103, 101)), "slow_engine"),
    "two in one service": ((core(101, 100, cgroup="/a"), core(205, 200, cgroup="/a")), "slow_engine"),
    "names are all that is known": ((core(101, None), core(205, None)), "slow_engine"),
    "another server's core that came later": (
        (OWN, core(205, 200, began=90_000.0)), "neighbour_contention",
    ),
    "... that was there before": ((OWN, core(205, 200, began=-90_000.0)), "neighbour_contention"),
    "... in another pod, be its parent hidden": (
        (core(101, None, cgroup="/a"), core(205, None, cgroup="/b")), "neighbour_contention",
    ),
    "... that computes next to nothing": ((OWN, core(205, 200, began=-9e4, share=0.02)), "unknown"),
}  # fmt: skip


@pytest.mark.parametrize(("processes", "cause"), PROCESSES.values(), ids=PROCESSES)
def test_whose_it_is(processes, cause):
    """By the process tree, for the names are the same; of two trees the one that began after the server."""
    found = of_slow_steps((gpu(processes=processes),), Fresh(), START)
    assert found.name == cause


def busy(mhz, *reasons, utilization=0.9):
    return gpu(
        sm_clock_hz=mhz * 1e6, sm_clock_max_hz=2e9, utilization_ratio=utilization,
        throttle_reasons=reasons, processes=(OWN,),
    )  # fmt: skip


CLOCKS = {
    "at its maximum": (busy(2000), busy(2000), "slow_engine"),
    "set low": (busy(2000), busy(500, "applications_clocks_setting"), "unknown"),
    "set low, and nothing says so": (busy(2000), busy(500), "unknown"),
    "as low as ever": (busy(500), busy(500), "slow_engine"),
    "an idle moment": (busy(2000), busy(200, "gpu_idle"), "slow_engine"),
    "heat": (busy(2000), busy(500, "hw_thermal_slowdown"), "thermal_throttle"),
}


@pytest.mark.parametrize(("fresh", "now", "cause"), CLOCKS.values(), ids=CLOCKS)
def test_a_clock_that_was_lowered(fresh, now, cause):
    found = of_slow_steps((now,), Fresh.of((fresh,), Fresh()), START)
    assert found.name == cause


def test_a_few_looks_before_steps_are_found_to_be_long_do_not_make_it_usual():
    fresh = Fresh.of((busy(2000),), Fresh())
    for _ in range(3):
        fresh = Fresh.of((busy(500),), fresh)
    assert of_slow_steps((busy(500),), fresh, START).name == "unknown"


def test_what_was_seen_when_fresh_is_kept():
    fresh = Fresh.of((busy(1000),), Fresh())
    kept = json.loads(json.dumps([sorted(fresh.pids), dict(fresh.clocks)]))
    assert Fresh.restored(*kept) == fresh
    with pytest.raises(stored.DAMAGE):
        Fresh.restored([101], {"GPU-0": "fast"})
