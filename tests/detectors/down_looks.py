"""Looks at a server that goes away, and what `engine_down` said of them."""

from tests.detectors.looks import DEAD, T, engine, judge, seen, silent
from vllm_watch.detectors.engine_down import Detector, Settings
from vllm_watch.samples.observation import ProcessState

UP = [seen(s) for s in range(0, 60, 5)]


IDLE = [seen(s, engine(1000, running=0.0)) for s in range(0, 60, 5)]


def downs(observations):
    return judge(Detector(Settings()), observations)


def gone(outcome, start, end, **fields):
    return [silent(s, outcome, **fields) for s in range(start, end, 5)]


def inside(start, end):
    """Its core is dead: /health fails, and not a token moves."""
    return [
        seen(s, engine(2195 if start > 60 else 1550), health=DEAD) for s in range(start, end, 5)
    ]


def served(second, *, done, running=4.0, waiting=0.0, aborted=0, prompts=None, **fields):
    """A server that has finished `done` requests of a hundred prompt tokens each, or `prompts` of them."""
    one = engine(
        100 + 10 * second, running=running, waiting=waiting,
        request_success={"stop": done, "abort": aborted},
        prompt_tokens=100.0 * (done if prompts is None else prompts),
    )  # fmt: skip
    return seen(second, one, **fields)


def used(seconds=600, every=5, **fields):
    """Two requests a second."""
    return [served(s, done=2 * s, **fields) for s in range(0, seconds, every)]


def emptied(seconds, running=0.0, **fields):
    """... and then, for so long, none any more."""
    return [
        served(s, done=1200 + 4, prompts=1200, running=running, **fields)
        for s in range(600, 600 + seconds, 5)
    ]


def seldom(begin, idle_s):
    """Ten minutes of one request in half a minute, and then, for so long, none any more."""
    looks = [served(begin + s, done=s // 30) for s in range(0, 600, 5)]
    return [*looks, *(served(begin + 600 + s, done=20, running=0.0) for s in range(0, idle_s, 5))]


def process(start, *, alive=True, pid=7):
    return ProcessState(pid=pid, start_time=start, alive=alive)


OLD, NEW = T - 86400, T + 600


def spell(begin, absent):
    """Five minutes of work, five of nothing, and gone."""
    work = [
        served(s, done=2 * (s - begin), process_start_time=T + begin)
        for s in range(begin, begin + 300, 5)
    ]
    idle = [
        served(s, done=600, running=0.0, process_start_time=T + begin)
        for s in range(begin + 300, begin + 600, 5)
    ]
    return [*work, *idle, *gone("refused", begin + 600, begin + 600 + absent)]
