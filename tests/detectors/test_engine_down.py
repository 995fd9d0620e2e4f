"""Silence: what it means depends on how it comes, for how long, and on what was there before."""

import pytest

from tests.detectors.looks import DEAD, OK, T, engine, first_firing, gpu, judge, last, seen, silent
from vllm_watch.detectors.engine_down import Detector, Settings
from vllm_watch.samples.observation import ProcessState

UP = [seen(s) for s in range(0, 60, 5)]
IDLE = [seen(s, engine(1000, running=0.0)) for s in range(0, 60, 5)]


def downs(observations):
    return judge(Detector(Settings()), observations)


def gone(outcome, start, end, **fields):
    return [silent(s, outcome, **fields) for s in range(start, end, 5)]


STORIES = {
    "up": (UP, None),
    "refused twice": ([*UP, *gone("refused", 60, 80)], (65, "crash", "page")),
    "refused once": ([*UP, silent(60), *[seen(s) for s in range(65, 100, 5)]], None),
    "refused once, after /health said dead": (
        [*UP[:-1], seen(55, health=DEAD), silent(60)],
        (60, "crash", "page"),
    ),
    "refused once, and a GPU has gone": (
        [seen(0, gpus=(gpu(),)), *UP[1:], silent(60, gpus=())],
        (60, "crash", "page"),
    ),
    "refused once, and its process has ended": (
        [*UP, silent(60, process=ProcessState(pid=7, alive=False))],
        (60, "crash", "page"),
    ),
    "disconnected, then refused": (
        [*UP, silent(60, "disconnected"), silent(65)],
        (65, "crash", "page"),
    ),
    "gone while nobody used it": ([*IDLE, *gone("refused", 60, 230)], (65, "crash", "ticket")),
    "refused while its process lives": (
        [*UP, *gone("refused", 60, 900, process=ProcessState(pid=8, alive=True))],
        None,
    ),
    "never seen to answer: it starts": (gone("refused", 0, 1800), None),
    "never seen to answer for half an hour": (
        gone("refused", 0, 1900),
        (1800, "unknown", "ticket"),
    ),
    "never seen to answer, and silent": (gone("read_timeout", 0, 300), None),
    "no answer twice": ([*UP, *gone("read_timeout", 60, 70), seen(70)], None),
    "no answer three times": ([*UP, *gone("read_timeout", 60, 90)], (70, "api_hang", "page")),
    "no answer, but /health does": ([*UP, *gone("read_timeout", 60, 300, health=OK)], None),
    "no answer from a server with thousands waiting": (
        [*UP[:-1], seen(55, engine(2000, waiting=1700.0)), *gone("read_timeout", 60, 110)],
        None,
    ),
    "... for a minute": (
        [*UP[:-1], seen(55, engine(2000, waiting=1700.0)), *gone("read_timeout", 60, 200)],
        (115, "api_hang", "page"),
    ),
    "... with a thousand connections": (
        [*UP[:-1], seen(55, fds=1000.0), *gone("read_timeout", 60, 110)],
        None,
    ),
    "its backlog fills up: still accepted at first": (
        [*UP, silent(60, "read_timeout"), *gone("connect_timeout", 65, 90)],
        (70, "api_hang", "page"),
    ),
    "no way there": ([*UP, *gone("connect_timeout", 60, 120)], (70, "unreachable", "page")),
    "no way there for some seconds": ([*UP, *gone("dns", 60, 70), seen(70)], None),
    "dead inside": (
        [*UP, seen(60, health=DEAD), seen(65, health=DEAD)],
        (65, "engine_dead", "page"),
    ),
    "dead inside, /metrics broken too": (
        [*UP, *gone("http", 60, 75, status=500, health=DEAD)],
        (65, "engine_dead", "page"),
    ),
    "one failed health check": ([*UP, seen(60, health=DEAD), seen(65)], None),
    "garbled": ([*UP, *gone("garbled", 60, 300)], None),
}


@pytest.mark.parametrize(("observations", "expected"), STORIES.values(), ids=STORIES)
def test_a_story(observations, expected):
    """When it is first said, of what cause, and whether somebody is woken."""
    found = first_firing(downs(observations))
    assert (found and (found[0], found[1].cause, found[1].severity)) == expected


def test_gone_while_unused_it_pages_when_it_stays_away():
    """A restart on purpose takes less than three minutes; then it is none."""
    said = downs([*IDLE, *gone("refused", 60, 300)])
    assert next(s for s, (verdict,) in said if verdict.severity == "page") == 240


def test_its_own_load_time_is_learnt():
    """A server that needed six minutes to come back is given nine."""
    looks = [*IDLE, *gone("refused", 60, 420)]
    looks += [
        seen(s, engine(9, running=0.0), process_start_time=T + 60) for s in range(420, 1000, 5)
    ]
    said = downs([*looks, *gone("refused", 1000, 1600)])
    pages = [s for s, (verdict,) in said if s >= 1000 and verdict.severity == "page"]
    assert pages[0] == 1540


def crashes(*lives, down=60):
    """Lives of so many seconds, each of which ends in refused connections for a minute."""
    looks, now = [], 0
    for life in lives:
        looks += [seen(s, process_start_time=T + now) for s in range(now, now + life, 5)]
        looks += gone("refused", now + life, now + life + down)
        now += life + down
    return looks, now


@pytest.mark.parametrize(
    ("lives", "cause"),
    [
        ((600,), "crash"),
        ((600, 60), "crash"),
        ((600, 60, 60), "crash_loop"),
        ((600, 200, 200), "crash"),
        ((10, 60), "crash"),  # we may have come late into its first life
    ],
)
def test_a_loop_is_told_by_its_lives(lives, cause):
    """Two restarts that did not last add up; one may be bad luck."""
    said = downs(crashes(*lives)[0])
    assert last(said).cause == cause
    assert last(said).restart_advised is False


def test_a_loop_is_over_when_it_lives():
    """Answering is not enough where each life began so."""
    looks, now = crashes(600, 60, 60)
    said = downs([*looks, *[seen(s, process_start_time=T + now) for s in range(now, now + 200, 5)]])
    states = {round(s - now): verdict.state for s, (verdict,) in said}
    assert (states[0], states[115], states[120]) == ("unknown", "unknown", "clear")


def test_a_restart_of_a_silent_server_is_advised_late():
    """Half a minute, or twice the longest silence that ended by itself."""
    said = downs([*UP, *gone("read_timeout", 60, 120)])
    assert next(s for s, (verdict,) in said if verdict.restart_advised) == 85

    looks = [*UP, *gone("read_timeout", 60, 120), *[seen(s) for s in range(120, 200, 5)]]
    said = downs([*looks, *gone("read_timeout", 200, 400)])
    assert next(s for s, (v,) in said if s >= 200 and v.restart_advised) == 315


def test_a_dead_engine_is_to_be_restarted():
    """No fresh crash: the API server stays, and nothing restarts it."""
    assert last(downs([*UP, *[seen(s, health=DEAD) for s in (60, 65)]])).restart_advised


def test_a_failed_look_by_itself_is_neither_clear_nor_firing():
    """Missing data is unknown."""
    for outcome in ("refused", "read_timeout", "connect_timeout", "garbled", "tls"):
        assert last(downs([*UP, silent(60, outcome)])).state == "unknown"
    assert last(downs([*UP, silent(60), seen(65)])).state == "clear"
