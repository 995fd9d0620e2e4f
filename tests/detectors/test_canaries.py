"""What an unanswered one-token request says of an engine that looks idle, and what it does not."""

import pytest

from tests.detectors.looks import T, engine, first_firing, judge, last, seen, silent, unanswered
from vllm_watch.detectors.engine_stalled import Detector, Settings
from vllm_watch.samples.observation import CanaryCall
from vllm_watch.watch.watch import Watch


def ended(outcome, latency_s=10.0, engine=None):
    return CanaryCall(ok=outcome == "ok", latency_s=latency_s, outcome=outcome, engine=engine)


NO = ended("unanswered")


def idle(second, steps=1000, **fields):
    """A look at an engine without work."""
    server = {k: fields.pop(k) for k in ("canary", "fds", "process_start_time") if k in fields}
    return seen(second, engine(steps, running=fields.pop("running", 0.0), **fields), **server)


def looks(canaries, *, every=5, until=300, **fields):
    """Idle looks; `canaries`: second of the look with which one came → how it ended."""
    return [idle(s, canary=canaries.get(s), **fields) for s in range(0, until, every)]


def said_of(observations):
    return judge(Detector(Settings()), observations)


STORIES = {
    "healthy: a canary a minute is answered, each with a step": (
        [idle(s, 1000 + s // 60, canary=ended("ok", 0.1) if s % 60 == 0 else None) for s in range(0, 1200, 5)],
        None,
    ),
    "one unanswered": (looks({65: NO}), None),
    "two in a row": (looks({65: NO, 80: NO}), 80),
    "two in a row, a minute apart": (looks({65: NO, 130: NO}), 130),
    "at one look in 30 s": (looks({90: NO, 120: NO}, every=30), 120),
    "an answer between": (looks({65: NO, 80: ended("ok", 0.5), 140: NO}), None),
    "something was done between": (
        [*looks({65: NO}, until=75), *[idle(s, 1001, canary=NO if s == 80 else None) for s in range(75, 300, 5)]],
        None,
    ),
    "it was done while the canary waited, so that was in a queue": (
        [*looks({65: NO}, until=75), *[idle(s, 1001, canary=NO if s in (80, 85) else None) for s in range(75, 300, 5)]],
        None,
    ),
    "refused: a wrong key or name": (looks(dict.fromkeys(range(30, 300, 60), ended("refused", 5.0))), None),
    "too busy, it says": (looks(dict.fromkeys(range(30, 300, 60), ended("busy", 5.0))), None),
    "an error": (looks(dict.fromkeys(range(30, 300, 60), ended("failed", 5.0))), None),
    "not reached": (looks(dict.fromkeys(range(30, 300, 60), ended("unreached", 5.0))), None),
    "errors between do not make it well": (looks({65: NO, 125: ended("failed"), 185: NO}), 185),
    "a recording that does not say how: slow is silent": (looks({65: unanswered(), 80: unanswered()}), 80),
    "... and quick is refused": (looks({65: unanswered(0.1), 80: unanswered(0.1), 95: unanswered(0.1)}), None),
    "the canary itself shows, and goes when we hang up": (
        [*looks({}, until=60),
         *[idle(s, waiting=1.0 if s % 15 else 0.0, canary=NO if s in (75, 90) else None) for s in range(60, 200, 5)]],
        90,
    ),
    "a queue of others stands before it: that is a stall by its own signs": (
        [*looks({}, until=60), *[idle(s, running=4.0, waiting=50.0, canary=NO if s in (75, 90) else None) for s in range(60, 66, 5)]],
        None,
    ),
    "no step counter: a whole prefill may stand before it": (
        looks({65: NO, 80: NO}, counted=False), 85,
    ),
    "asleep": (
        looks({65: NO, 80: NO}, engine_sleep_state={"awake": 0.0, "weights_offloaded": 1.0}), None,
    ),
    "asked before it went to sleep, and awake again": (
        [*looks({65: NO}, until=70),
         *[idle(s, engine_sleep_state={"awake": 0.0, "weights_offloaded": 1.0}) for s in range(70, 100, 5)],
         *[idle(s, canary=NO if s == 100 else None) for s in range(100, 200, 5)]],
        None,
    ),
    "no answer to a look in between": (
        [*looks({65: NO}, until=70), silent(70, "read_timeout"), idle(75), idle(80, canary=NO)], 80,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("observations", "second"), STORIES.values(), ids=STORIES)
def test_a_story(observations, second):
    """When it is first said to be wedged."""
    found = first_firing(said_of(observations), "0")
    assert (found and found[0]) == second
    assert found is None or found[1].cause == "idle_wedged"


def test_a_canary_behind_others_is_no_sign():
    """Two that wait are a queue: whether it is one for ever is told by the queue itself."""
    queue = [
        idle(s, waiting=2.0, kv=0.0, canary=NO if s in (75, 90) else None)
        for s in range(60, 200, 5)
    ]
    second, verdict = first_firing(said_of([*looks({}, until=60), *queue]), "0")
    assert (second, verdict.cause) == (115, "admission_deadlock")


def test_while_it_warms_up_a_minute_is_granted():
    """The first request of a young engine may compile kernels for half a minute."""
    observations = looks({65: NO, 80: NO}, steps=5, process_start_time=T - 10)
    assert first_firing(said_of(observations), "0")[0] == 115  # a minute after the first was sent


def test_a_restart_is_advised_after_a_minute():
    """Counted from the first canary that went unanswered."""
    said = said_of(looks({65: NO, 80: NO}))
    assert next(s for s, (verdict,) in said if verdict.restart_advised) == 115


def test_the_first_step_ends_it():
    """An answered canary is one, and so is a user's request."""
    said = said_of([*looks({65: NO, 80: NO}, until=150), idle(150, 1001), idle(155, 1001)])
    assert [verdict.state for _, (verdict,) in said[-3:]] == ["firing", "clear", "clear"]


def pair(second, busy, canary, **server):
    """Two data-parallel engines: "0" steps on where `busy`, "1" stands."""
    steps = 1000 + 10 * second if busy else 1000
    engines = engine(steps, running=4.0 if busy else 0.0), engine(50, name="1", running=0.0)
    return seen(second, *engines, canary=canary, **server)


ADDRESSED = {
    "whichever: nobody knows which": (None, True, None),
    "the one that stands, while the other works": ("1", True, "1"),
    "the one that stands, while the other is idle": ("1", False, "1"),
    "the one that works": ("0", True, None),
}


@pytest.mark.parametrize(("name", "busy", "found"), ADDRESSED.values(), ids=ADDRESSED)
def test_of_several_engines_only_the_one_that_was_asked_can_be_found(name, busy, found):
    """A canary without an address reached one of them."""
    canaries = {65: ended("unanswered", engine=name), 80: ended("unanswered", engine=name)}
    said = said_of([pair(s, busy, canaries.get(s)) for s in range(0, 200, 5)])
    firing = {v.engine for _, verdicts in said for v in verdicts if v.state == "firing"}
    assert firing == ({found} if found else set())


def wanted_after(observations):
    watch = Watch("x")
    for observation in observations:
        watch.observe(observation)
    return watch.canary_wanted


ASLEEP = {"awake": 0.0, "weights_offloaded": 1.0}
WANTED = {
    "idle": (looks({}), {"0": False}),
    "connections pile up while the gauges say idle": (
        [idle(s, fds=50.0 + max(0, s - 100)) for s in range(0, 120, 5)], {"0": True},
    ),
    "one went unanswered": (looks({295: NO}), {"0": True}),
    "two did: it is known, and asked in its turn": (looks({280: NO, 295: NO}), {"0": False}),
    "... while connections pile up": (
        [idle(s, fds=50.0 + max(0, s - 100), canary=NO if s in (280, 295) else None) for s in range(0, 300, 5)],
        {"0": False},
    ),
    "work": ([seen(s) for s in range(0, 60, 5)], {}),
    "a step a moment ago": ([*looks({}), idle(300, 1001)], {}),
    "at first sight": ([idle(0)], {}),
    "asleep": (looks({}, engine_sleep_state=ASLEEP), {}),
    "paused": ([seen(s, engine(1000, running=0.0), paused=True) for s in range(0, 60, 5)], {}),
    "silent": ([*looks({}), silent(300, "read_timeout")], {}),
    "gone": ([*looks({}), silent(300)], {}),
    "of two the idle one": ([pair(s, True, None) for s in range(0, 60, 5)], {"1": False}),
    "... though connections pile up": (
        [pair(s, True, None, fds=50.0 + s) for s in range(0, 60, 5)], {"1": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("observations", "wanted"), WANTED.values(), ids=WANTED)
def test_of_whom_a_canary_is_wanted(observations, wanted):
    """Of who looks idle, and soon of who is suspected; never of who works, sleeps or is not heard."""
    assert wanted_after(observations) == wanted


def test_replicas_behind_one_address_are_not_called_wedged():
    """A canary was answered by another replica: its step is not seen, its answer is heard."""
    observations = looks({s: ended("ok", 0.1) for s in range(60, 300, 60)})
    assert last(said_of(observations), "0").state == "clear"
