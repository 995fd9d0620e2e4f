"""A server that is silent when the watcher comes back: what earlier runs saw says whether it should answer."""

import json

import pytest

from tests.detectors.looks import T, emptied, engine, seen, silent, used
from tests.told import said
from vllm_watch.detectors.engine_down import Detector, Settings
from vllm_watch.samples.observation import ProcessState
from vllm_watch.watch.watch import Watch

HOUR = 3600
OLD, NEW = T - 86400, T + 900  # when a process began: that of `seen`, and one that it never met
HERE, THERE = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


def up(start, end):
    return [seen(s, engine(1000 + 10 * s)) for s in range(start, end, 5)]


def gone(start, end, outcome="read_timeout", **fields):
    return [silent(s, outcome, **fields) for s in range(start, end, 5)]


def process(start):
    return ProcessState(pid=7, start_time=start, alive=True)


def run(looks, kept=None, address=HERE):
    """One run of the watcher: (what it keeps, what it told)."""
    watch = Watch("x", detectors={"engine_down": Detector(Settings())})
    watch.address = address
    if kept is not None:
        assert watch.restore(kept, looks[0].t) == []
    told = [event for look in looks for event in said(watch.observe(look))]
    assert watch.failures == {}
    return json.loads(json.dumps(watch.export_state(), allow_nan=False)), told


def first(told, began):
    """(second since the watcher came back, cause, severity, is a restart advised) of what was told first."""
    opened = [each for each in told if each["event"] == "opened"]
    if not opened:
        return None
    (one,) = opened
    return one["t"] - T - began, one["cause"], one["severity"], one["restart_advised"]


def test_what_was_in_flight_when_one_ended_that_nobody_watched_is_not_known():
    """Whether it was in use at its end, or emptied before: it is a ticket at first, and a page when it stays away."""
    for looks in (used(), [*used(), *emptied(60)]):
        end = round(looks[-1].t - T)
        kept, _ = run(looks)
        told = run(gone(end + 30, end + 400, "refused"), kept)[1]
        assert [(each["t"] - T - end, each["severity"]) for each in told] == [
            (35, "ticket"),
            (210, "page"),
        ]


WELL = up(0, 600)
STARTED = [*gone(0, 60, "refused"), *up(60, 600)]
PROXIED = [*STARTED[:-12], *gone(540, 570, "http", status=502), *up(570, 600)]
BACK = 600 + 1500  # nobody watched for 25 minutes
SILENT = gone(BACK, BACK + 2400)
HANGS = (180, "api_hang", "page", True)
SEEMS_TO_HANG = (1800, "api_hang", "page", False)

STORIES = {  # what was seen before, what is met when the watcher is back, what is told of it
    "a start was seen to refuse here": (STARTED, SILENT, HANGS),
    "the process that answered still lives": (
        WELL, gone(BACK, BACK + 2400, process=process(OLD)), HANGS,
    ),
    "no start was seen here: it may be one, behind something that holds connections": (
        WELL, SILENT, SEEMS_TO_HANG,
    ),
    "... and another process lives": (
        WELL, gone(BACK, BACK + 2400, process=process(NEW)), SEEMS_TO_HANG,
    ),
    "a proxy has spoken for it since": (PROXIED, SILENT, SEEMS_TO_HANG),
    "a proxy speaks for it, and then nobody": (
        STARTED,
        [*gone(BACK, BACK + 900, "http", status=502), *gone(BACK + 900, BACK + 2600)],
        None,
    ),
    "something answers in another tongue, and then nobody": (
        STARTED,
        [*gone(BACK, BACK + 900, "garbled"), *gone(BACK + 900, BACK + 2600)],
        (900 + 180, "api_hang", "page", True),
    ),
    "something answers in another tongue now and then": (
        STARTED,
        [silent(s, "read_timeout" if s % 120 else "garbled") for s in range(BACK, BACK + 2400, 5)],
        None,
    ),
    "its backlog is full soon": (
        STARTED,
        [*gone(BACK, BACK + 20), *gone(BACK + 20, BACK + 400, "connect_timeout")],
        HANGS,
    ),
    "for less than that": (STARTED, [*gone(BACK, BACK + 175), *up(BACK + 175, BACK + 400)], None),
    "one answer in between": (
        STARTED,
        [*gone(BACK, BACK + 150), *up(BACK + 150, BACK + 155), *gone(BACK + 155, BACK + 160)],
        None,
    ),
    "connections are closed at once: a proxy without a server": (
        STARTED, gone(BACK, BACK + 2400, "disconnected"), None,
    ),
    "... now and then": (
        STARTED, [*gone(BACK, BACK + 60, "disconnected"), *gone(BACK + 60, BACK + 2400)], None,
    ),
    "no way there": (STARTED, gone(BACK, BACK + 2400, "connect_timeout"), None),
    "never seen to answer": (gone(0, 600), SILENT, None),
    "seen last a day and an hour ago": (
        STARTED, gone(25 * HOUR + 600, 26 * HOUR), None,
    ),
    "seen well five minutes ago": (
        STARTED, gone(900, 1000), (10, "api_hang", "page", True),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "met", "expected"), STORIES.values(), ids=STORIES)
def test_silent_when_the_watcher_comes_back(before, met, expected):
    """It pages where it is known to be up, later where it may be a start, never where it may not be vLLM."""
    kept, told = run(before)
    assert [each for each in told if each["event"] == "opened"] == []
    _, told = run(met, kept)
    assert first(told, round(met[0].t - T)) == expected


def test_what_answered_at_another_address_says_nothing_of_this_one():
    """A target keeps its name and moves: whoever is silent at the new address was never seen there."""
    kept, _ = run(STARTED)
    _, told = run(SILENT, kept, address=THERE)
    assert told == []


def test_the_wait_goes_on_over_a_restart_of_the_watcher():
    """It comes back, is restarted after a minute and a half, and comes back again."""
    kept, _ = run(STARTED)
    kept, told = run(gone(BACK, BACK + 90), kept)
    assert told == []
    _, told = run(gone(BACK + 120, BACK + 400), kept)
    assert first(told, BACK) == HANGS


def test_what_an_earlier_version_kept_says_nothing():
    """Its state lacks what this rests on: the server is one that was never seen, and nothing is lost."""
    kept, _ = run(STARTED)
    memory = kept["detectors"]["engine_down"]
    del kept["address"], memory["earlier"]
    for name in ("_lately", "_step_s", "_blind_s"):
        del memory["demand"][name]
    assert run(SILENT, kept)[1] == []


def test_a_server_that_never_answered_is_given_a_start_by_each_run_of_the_watcher():
    """It refused an hour ago, when the watcher ended: what it did since is not known."""
    kept, _ = run(gone(0, 600, "refused"))
    _, told = run(gone(4200, 6300, "refused"), kept)
    assert first(told, 4200) == (1800, "unknown", "ticket", False)


def test_it_says_what_it_rests_on():
    """When it last answered, and why it should."""
    kept, _ = run(STARTED)
    told = run(SILENT, kept)[1][0]
    texts = [each["text"] for each in told["evidence"]["for"]]
    assert texts[1] == (
        "it last answered 25 min before that, to an earlier run of the watcher; "
        "a starting server has refused connections here"
    )
