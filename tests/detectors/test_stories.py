"""All detectors together on the lab's stories: who is woken by what, at looks of 1, 5 and 15 seconds."""

from dataclasses import replace

import pytest

from benchmarks.lab.virtual import observe
from tests.detectors.looks import engine, judge, last, seen, silent
from tests.told import said
from vllm_watch.detectors import engine_down
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import L40S, STORIES
from vllm_watch.samples.observation import CanaryCall
from vllm_watch.watch.host_watch import SiteWatch

INTERVALS = (1.0, 5.0, 15.0)
FOUND_WITHIN = {
    1.0: 25.0,
    5.0: 30.0,
    15.0: 45.0,
}  # two looks, or a second witness, at each interval


def drained_update(scene):
    """As an orchestrator does it: first the requests go elsewhere, then the server is replaced."""
    vllm = scene["vllm"]
    usual = vllm.workload.per_second
    yield 90.0
    vllm.workload.per_second = 0.0
    yield 30.0
    vllm.stop()
    vllm.config = replace(L40S, num_gpu_blocks=7000, step_base_seconds=0.035)
    vllm.start(load_seconds=60.0)
    yield 60.0
    vllm.workload.per_second = usual


SCRIPTS = {"drained_update": drained_update}


def scene_of(story):
    if story not in SCRIPTS:
        return STORIES[story].build(1)
    healthy = STORIES["healthy"].build(1)
    return Scene(list(healthy.servers.values()), healthy.rack, SCRIPTS[story])


class Told:
    """A scene, looked at and judged from its beginning on."""

    def __init__(self, story, interval_s):
        self.scene = scene_of(story)
        self.interval_s = interval_s
        self.t = 0.0
        self.events = []
        self.site = SiteWatch(host_of=lambda _: "lab")
        self._next_t = 0.0

    def until(self, t):
        """Go on to `t`, every server looked at at the interval; return the events of that time."""
        events = []
        while self._next_t <= t:
            self.scene.advance(self._next_t)
            gpus = self.scene.rack.sample() if self.scene.rack else None
            for server in self.scene.servers.values():
                events += said(self.site.look(observe(server, gpus)))
            self._next_t += self.interval_s
        self.scene.advance(t)
        self.t = t
        self.events += events
        return events

    def until_work(self, engine=None):
        """Go on until requests run in the first server: in every engine of it, or in one."""
        while not all(each.num_running for each in self._engines(engine)):
            self.until(self.t + 0.05)

    def _engines(self, engine):
        engines = next(iter(self.scene.servers.values())).engines
        return engines if engine is None else engines[engine : engine + 1]

    def hang(self, **which):
        next(iter(self.scene.servers.values())).fault("hang", **which)

    @property
    def watches(self):
        return self.site.watches

    @property
    def failures(self):
        return self.site.failures


def of(events, *, event="opened", **fields):
    return [
        each
        for each in events
        if each["event"] == event and all(each[name] == value for name, value in fields.items())
    ]


def pages(events):
    return [each for each in events if each["severity"] == "page"]


SECONDS = {
    "healthy": 600,
    "fleet": 600,
    "pooling": 600,
    "prefill_only": 600,
    "decode_only": 600,
    "lora": 600,
    "speculative": 600,
    "several_api_servers": 600,
    "legacy": 600,
    "pause": 600,
    "elastic_scale_up": 720,
    "sleep_wake": 840,
    "drained_update": 780,
    "scale_to_zero": 900,
    "cold_start": 1500,
}


@pytest.mark.parametrize("interval_s", INTERVALS)
@pytest.mark.parametrize("story", SECONDS)
def test_nobody_is_woken_and_a_hang_afterwards_is_found(story, interval_s):
    """Ten minutes or more of it page nobody; then its engines hang, and each of them is found so; one of a server's is news."""
    told = Told(story, interval_s)
    told.until(SECONDS[story])
    assert pages(told.events) == []

    told.until_work()
    told.hang()
    events = told.until(told.t + FOUND_WITHIN[interval_s])

    found = of(events, kind="engine_stalled", cause="hang")
    first = next(iter(told.scene.servers.values()))
    hung = 1 if not first.release.engine_label else len(first.engines)
    assert len(found) == hung
    assert {each["target"] for each in found} == {first.name}
    assert len({each["id"] for each in pages(events)}) == 1
    assert len(of(events)) == len(found)
    assert told.failures == {}


IN_THE_MIDST = [
    ("sleep_wake", 60),  # before it ever sleeps
    ("sleep_wake", 420),  # between its two sleeps
    ("pause", 60),
    ("pause", 330),  # half a minute after it was resumed
    ("elastic_scale_up", 150),  # half a minute after the new engines came
    ("rolling_update", 190),  # ten seconds after the update
    ("cold_start", 902),  # on its first requests
    ("scale_to_zero", 570),
]


@pytest.mark.parametrize(("story", "t"), IN_THE_MIDST)
def test_a_hang_in_the_midst_of_it_is_found_and_is_over_when_it_is(story, t):
    """What an engine went through shortly before does not hide that it hangs now, nor that it is well again."""
    told = Told(story, 5.0)
    told.until(t)
    told.until_work()
    told.hang()
    events = told.until(told.t + FOUND_WITHIN[5.0])
    assert {(each["kind"], each["cause"]) for each in pages(events)} == {("engine_stalled", "hang")}
    name = next(iter(told.scene.servers))
    told.scene[name].clear()
    events = told.until(told.t + 300)
    ends = [each for each in of(events, event="resolved") if each["target"] == name]
    assert {(each["kind"], each["resolution"]) for each in ends} == {("engine_stalled", "healthy")}
    assert [each for each in told.watches[name].incidents if each.kind == "engine_stalled"] == []


def test_a_hang_during_a_pause_is_found_when_the_pause_ends():
    """A paused engine may keep requests and not step: until it is to serve again, it is as asked for."""
    told = Told("pause", 5.0)
    told.until(121)
    told.hang()
    assert of(told.until(299)) == []
    assert of(told.until(330), kind="engine_stalled", cause="hang")


@pytest.mark.parametrize("interval_s", INTERVALS)
def test_long_prompts_that_take_the_pages_of_others_are_a_ticket_at_first(interval_s):
    """A bunch of them is computed within two minutes; what lasts longer pages, without advice to restart."""
    told = Told("healthy", interval_s)
    told.until(300)
    told.scene["vllm"].fault("pinning")
    said = [e for e in told.until(480) if e["kind"] == "throughput_collapse"]
    severities = list(dict.fromkeys(e["severity"] for e in said))
    assert severities == ["ticket", "page"]
    (paged, *_) = [e for e in said if e["severity"] == "page"]
    assert 100.0 <= paged["t"] - said[0]["t"] <= 150.0
    assert not any(e["restart_advised"] for e in said)


# Fault → the incident that stays open through it, its cause, and whether a restart is advised in the end.
FAULTS = {
    "hang": ("engine_stalled", "hang", True),
    "admission_deadlock": ("engine_stalled", "admission_deadlock", True),
    "crash": ("engine_down", "crash", False),
    "api_hang": ("engine_down", "api_hang", True),
    "engine_dead": ("engine_down", "engine_dead", True),
    "slow": ("throughput_collapse", "slow_engine", True),
    "leak": ("throughput_collapse", "kv_leak", True),
    "pinning": ("throughput_collapse", "kv_pinning", False),
}


@pytest.mark.parametrize("interval_s", INTERVALS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_ends(fault, interval_s):
    """After five minutes of health a fault of three; one page, and within five minutes of its end none.

    Until its cause is known it may be unknown; another it never has, nor an advice that would not help.
    """
    kind, cause, restart = FAULTS[fault]
    told = Told("healthy", interval_s)
    assert of(told.until(300)) == []

    told.scene["vllm"].fault(fault)
    during = told.until(480)
    opened = of(during, kind=kind)
    assert len(opened) == 1
    said = [e for e in during if e["event"] != "resolved" and e["id"] == opened[0]["id"]]
    assert said[-1]["severity"] == "page"
    assert {e["cause"] for e in said} <= {cause, "unknown"}
    assert restart or not any(e["restart_advised"] for e in said)
    assert (said[-1]["cause"], said[-1]["restart_advised"]) == (cause, restart)
    assert {e["resolution"] for e in of(during, event="resolved")} <= {"superseded"}

    told.scene["vllm"].clear(fault)
    after = told.until(780)
    (resolved,) = of(after, event="resolved")
    anew = fault in ("crash", "engine_dead")
    assert resolved["id"] == opened[0]["id"]
    assert resolved["resolution"] == ("restarted" if anew else "healthy")
    assert not any(watch.incidents for watch in told.watches.values())


@pytest.mark.parametrize("interval_s", INTERVALS)
def test_overload_is_a_ticket(interval_s):
    """More demand than it can serve wakes nobody, has no other name, and ends with its queue."""
    told = Told("overload", interval_s)
    events = told.until(900)
    assert [(e["kind"], e["cause"], e["severity"]) for e in of(events)] == [
        ("overload", "demand", "ticket")
    ]
    assert [e["resolution"] for e in of(events, event="resolved")] == ["healthy"]


def idle(seconds, finished=lambda second: 7.0, canary=None, running=0.0):
    """A server with nothing to do for so long, then gone for an hour; `finished` requests at a second."""
    looks = []
    for second in range(0, seconds + 1, 5):
        success = {"stop": finished(second)} if finished else None
        asked = canary if second % 30 == 0 else None
        one = engine(1000, running=running, request_success=success)
        looks.append(seen(second, one, canary=asked))
    return [*looks, *[silent(second) for second in range(seconds + 5, seconds + 3600, 5)]]


CANARY = CanaryCall(ok=True, latency_s=0.1)

GONE_UNUSED = {
    "idle for a minute": (idle(60), "ticket"),
    "idle for less": (idle(55), "page"),
    "its requests are not counted": (idle(600, finished=None), "page"),
    "a request now and then": (idle(600, finished=lambda second: second // 30), "page"),
    "... which were our own": (idle(600, lambda second: second // 30, CANARY), "ticket"),
    "... and were not alone": (idle(600, lambda second: 2 * (second // 30), CANARY), "page"),
    "one request all the time": (idle(600, running=1.0), "page"),
}


@pytest.mark.parametrize(("looks", "severity"), GONE_UNUSED.values(), ids=GONE_UNUSED)
def test_gone_without_use(looks, severity):
    """Only who is known to have been asked nothing for a minute never pages."""
    assert last(judge(engine_down.Detector(engine_down.Settings()), looks)).severity == severity
