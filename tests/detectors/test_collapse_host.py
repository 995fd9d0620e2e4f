"""Steps that are long for what no restart cures: other processes, lowered clocks, CPUs of the host."""

import json
from dataclasses import replace

import pytest

from tests.detectors.made_up_engine import Engine, gpu, view
from vllm_watch.detectors.collapse_host import Fresh, of_slow_steps
from vllm_watch.detectors.throughput_collapse import Detector, Settings
from vllm_watch.samples.gpu import ProcessSample
from vllm_watch.samples.observation import EngineCpu
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


def process(pid, **fields):
    return ProcessSample(pid=pid, type=fields.pop("type", "compute"), **fields)


ENGINE = process(1, name="VLLM::EngineCore", used_bytes=70 << 30, sm_utilization_ratio=0.9)
XORG = process(2, name="Xorg", type="graphics", sm_utilization_ratio=0.5)
TRAIN = process(3, name="python", cmdline=("python", "train.py"), sm_utilization_ratio=0.5)
IDLE = process(4, name="jupyter", sm_utilization_ratio=0.01)
HIDDEN = process(5, name="python")
HOT = {"throttle_reasons": ("hw_thermal_slowdown",), "temperature_celsius": 92.0}

GPUS = {
    "no GPU is visible": (None, "slow_engine"),
    "all is well with it": ((gpu(processes=(ENGINE,)),), "slow_engine"),
    "hot, and the clock is low": (
        (gpu(sm_clock_hz=3e8, sm_clock_max_hz=1.4e9, **HOT),), "thermal_throttle",
    ),
    "hot, the clock is not known": ((gpu(**HOT),), "thermal_throttle"),
    "hot, but at full clock": (
        (gpu(sm_clock_hz=1.4e9, sm_clock_max_hz=1.4e9, **HOT),), "slow_engine",
    ),
    "power cap at full clock is normal": (
        (gpu(throttle_reasons=("sw_power_cap",), sm_clock_hz=1.3e9, sm_clock_max_hz=1.4e9),),
        "slow_engine",
    ),
    "power cap at the clock of a busy H100 is normal, too": (
        (gpu(throttle_reasons=("sw_power_cap",), sm_clock_hz=1.367e9, sm_clock_max_hz=1.98e9,
             utilization_ratio=1.0),),
        "slow_engine",
    ),
    "power cap, the clock is not known": (
        (gpu(throttle_reasons=("sw_power_cap",)),), "slow_engine",
    ),
    "power cap at half the clock is not": (
        (gpu(throttle_reasons=("sw_power_cap",), sm_clock_hz=7e8, sm_clock_max_hz=1.4e9),),
        "thermal_throttle",
    ),
    "another process computes": ((gpu(processes=(ENGINE, TRAIN)),), "neighbour_contention"),
    "a desktop and an idle notebook": ((gpu(processes=(ENGINE, XORG, IDLE)),), "slow_engine"),
    "a new process whose share is hidden": (
        (gpu(processes=(ENGINE, HIDDEN)),), "neighbour_contention",
    ),
    "the engine is the largest where none has its name": (
        (gpu(processes=(replace(TRAIN, used_bytes=70 << 30), IDLE)),), "slow_engine",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("gpus", "cause"), GPUS.values(), ids=GPUS)
def test_why_steps_are_slow(gpus, cause):
    """The GPU says it, or else it is the engine."""
    assert of_slow_steps(gpus, Fresh(), None).name == cause


def test_a_process_that_was_there_before_is_not_the_cause():
    """Its share of the SMs is hidden, but the engine was well beside it."""
    beside = (gpu(processes=(ENGINE, HIDDEN)),)
    fresh = Fresh.of(beside, Fresh())
    assert of_slow_steps(beside, fresh, None).name == "slow_engine"
    more = (gpu(processes=(ENGINE, HIDDEN, TRAIN)),)
    assert of_slow_steps(more, fresh, None).name == "neighbour_contention"


def test_what_a_throttled_gpu_says():
    """Its reasons, or the power cap, and how low the clock is."""
    low = {"sm_clock_hz": 3e8, "sm_clock_max_hz": 1.4e9}
    for reasons, said in (
        (("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"), "hw_slowdown,hw_thermal_slowdown"),
        (("sw_power_cap",), "sw_power_cap"),
    ):
        found = of_slow_steps((gpu(throttle_reasons=reasons, **low),), Fresh(), None)
        assert (found.name, found.evidence_for[0].value) == ("thermal_throttle", said)
        assert "SM clock 300 of 1400 MHz" in found.evidence_for[0].text


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
    "a power cap, as ever": (busy(900, "sw_power_cap"), busy(900, "sw_power_cap"), "slow_engine"),
    "... and a quarter lower": (
        busy(900, "sw_power_cap"),
        busy(670, "sw_power_cap"),
        "thermal_throttle",
    ),
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


FRESH = {"running": 40.0, "kv": 0.3}
INTERVALS = [1.0, 5.0, 15.0, 30.0]


class Host:
    """An engine and the CPUs it runs on, shown look by look."""

    def __init__(self, interval=5.0, *, seen=True):
        self.detector = Detector(Settings())
        self.engine = Engine()
        self.interval = interval
        self.seen = seen
        self.gpus = None
        self.waited = self.periods = self.throttled = 0.0
        self.verdicts = []

    def part(self, seconds, *, waits, throttled=None, **load):
        """Serve for so long; of each second the engine waits `waits` for a CPU."""
        self.verdicts = []
        for _ in range(round(seconds / self.interval)):
            sample = self.engine.run(self.interval, **{**FRESH, **load})
            self.waited += waits * self.interval
            at_s, cpu = self.engine.at_s, self._cpu(throttled) if self.seen else None
            look = view(at_s, sample, gpus=self.gpus, cpu=cpu)
            (verdict,) = self.detector.update(look)
            self.verdicts.append(verdict)
        return self

    @property
    def firing(self):
        return [each for each in self.verdicts if each.state == "firing"]

    @property
    def verdict(self):
        return self.verdicts[-1]

    def _cpu(self, throttled):
        if throttled is not None:
            self.periods += 10 * self.interval
            self.throttled += 10 * self.interval * throttled
        return (
            EngineCpu(
                engine="0", waited_seconds=self.waited, pid=77, name="VLLM::EngineCore",
                quota_periods=None if throttled is None else self.periods,
                throttled_periods=None if throttled is None else self.throttled,
            ),
        )  # fmt: skip


def texts(evidence):
    return [each.text for each in evidence]


CAUSES = {
    # how it waits when fresh, how it waits and how slow it is then → cause, restart advised
    "others have the CPU for half of the time": (0.01, 0.50, 2.0, "neighbour_contention", False),
    "... which is not quite all of it: who waits for that thread loses more": (
        0.01, 0.35, 2.0, "neighbour_contention", False,
    ),
    "three quarters of the time": (0.01, 0.75, 4.0, "neighbour_contention", False),
    "nine tenths slower, and it waits as much": (0.0, 0.45, 1.9, "neighbour_contention", False),
    "some of it: then nothing is sure, and a restart is not advised": (
        0.01, 0.16, 2.0, "unknown", False,
    ),
    "it waits no more than ever": (0.01, 0.01, 2.0, "slow_engine", True),
    "never": (0.0, 0.0, 3.0, "slow_engine", True),
    "it waits a little more, as a slow engine's clients that pile up make it": (
        0.01, 0.05, 2.0, "slow_engine", True,
    ),
    "a crowded host, as crowded as ever, and the engine is slow": (
        0.30, 0.30, 3.0, "slow_engine", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(
    ("fresh", "waits", "slow", "cause", "restart"), CAUSES.values(), ids=CAUSES
)
def test_who_is_to_blame(fresh, waits, slow, cause, restart, interval):
    """It pages where users suffer. From the first word on it is not called slow where it waits; what
    is slow without a reason is a ticket first, then a page, and only then a restart."""
    host = Host(interval).part(900, waits=fresh)
    assert host.firing == []
    host.part(240, waits=waits, slow=slow)
    assert {each.cause for each in host.firing} == {cause}
    said = [(each.severity, each.restart_advised) for each in host.firing]
    order = [("ticket", False), ("page", False), ("page", True)]
    assert said == sorted(said, key=order.index)
    assert said[-1] == ("page", restart)


def test_a_look_that_comes_too_late_does_not_make_it_a_slow_engine():
    """Where CPUs are short the watcher itself is late: some looks do without the waits, the first of an alarm too."""
    host = Host().part(600, waits=0.01).part(5, waits=0.5, slow=2.0)
    host.seen = False
    host.part(20, waits=0.5, slow=2.0)
    assert {each.cause for each in host.firing} == {"neighbour_contention"}


def test_it_says_who_waited_how_long_and_how_long_before():
    """In words, with what to do; and that it does not wait where it does not."""
    host = Host().part(600, waits=0.01).part(120, waits=0.5, slow=2.0)
    slow, waited, whose = host.verdict.evidence_for[:3]
    assert slow.name == "step_time_ratio"
    assert (round(waited.value, 2), round(waited.expected, 2)) == (0.5, 0.01)
    assert waited.text == (
        "VLLM::EngineCore (PID 77) waited for a CPU during 50% of its step time (1% after the start). "
        "That explains 99% of the slowdown"
    )
    assert host.verdict.summary.endswith("; most of the delay is waiting for a CPU of its host")
    assert whose.text.startswith("no CPU limit of its own is seen: other processes use the CPUs")

    slow = Host().part(600, waits=0.01).part(120, waits=0.01, slow=2.0)
    assert any(
        "waited for a CPU during 1% of its step time" in text
        for text in texts(slow.verdict.evidence_for)
    )


LIMITS = {
    "its limit is used up": (0.8, "its CPU limit was used up in 80% of the periods: raise"),
    "its limit is not reached": (0.0, "its own CPU limit is not the cause: other processes use the CPUs"),
    "it has no limit": (None, "no CPU limit of its own is seen: other processes use the CPUs"),
}  # fmt: skip


@pytest.mark.parametrize(("throttled", "text"), LIMITS.values(), ids=LIMITS)
def test_a_limit_is_told_from_a_neighbour(throttled, text):
    """What to do differs: raise the limit, or find who has the CPUs."""
    host = Host().part(600, waits=0.01).part(120, waits=0.5, slow=2.0, throttled=throttled)
    assert [each for each in texts(host.verdict.evidence_for) if each.startswith(text)]


def test_heat_goes_first_and_a_neighbour_on_the_gpu_stands_beside():
    """A clock that is lowered is the cause whoever waits; of two neighbours both are named."""
    host = Host().part(600, waits=0.01)
    host.gpus = (gpu(throttle_reasons=("hw_thermal_slowdown",)),)
    assert host.part(120, waits=0.5, slow=2.0).verdict.cause == "thermal_throttle"

    host = Host().part(600, waits=0.01)
    host.gpus = (gpu(processes=(ENGINE, TRAIN)),)
    verdict = host.part(120, waits=0.5, slow=2.0).verdict
    assert verdict.cause == "neighbour_contention"
    names = [each.name for each in verdict.evidence_for][:4]
    assert names == ["step_time_ratio", "cpu_wait_ratio", "cpu_throttled_ratio", "neighbour"]

    host = Host().part(600, waits=0.01)
    host.gpus = (gpu(processes=(ENGINE, TRAIN)),)
    assert host.part(120, waits=0.01, slow=2.0).verdict.cause == "neighbour_contention"
