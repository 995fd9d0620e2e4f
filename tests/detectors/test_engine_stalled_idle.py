"""An engine that looks idle by its gauges: who waits outside, or elsewhere, and when that is a stall."""

import pytest

from tests.detectors.looks import (
    HEALTHY,
    busy,
    engine,
    first_firing,
    frozen,
    judge,
    seen,
    stalls,
)
from vllm_watch.detectors.base import Around
from vllm_watch.detectors.engine_stalled import Detector, Settings
from vllm_watch.samples.observation import CanaryCall
from vllm_watch.samples.record import changed


def behind_idle_gauges(rate, rise, end=400):
    still = engine(1950, running=0.0, kv=0.0, request_success={"stop": rate * 95.0})
    idle = [seen(s, still, fds=50.0 + rise * (s - 95)) for s in range(100, end, 5)]
    return first_firing(stalls([*busy(0, 100, rate), *idle]), "0")


IDLE_GAUGES = {
    "as many come as ever, and none is through": (2.0, 2.0, 15.0),
    "half of them on connections of their own": (2.0, 1.1, 15.0),
    "most reuse their connections: it takes a minute": (2.0, 0.3, 160.0),
    "ten that should have been through are enough": (1.2, 2.0, 15.0),
    "one in ten seconds: none through is chance for long": (0.1, 0.4, 160.0),
    "nobody comes any more": (2.0, 0.0, None),
}


@pytest.mark.parametrize(("rate", "rise", "within_s"), IDLE_GAUGES.values(), ids=IDLE_GAUGES)
def test_a_hang_behind_idle_gauges(rate, rise, within_s):
    """The gauges read 0 running while requests pile up outside."""
    found = behind_idle_gauges(rate, rise)
    if within_s is None:
        assert found is None
    else:
        second, verdict = found
        assert verdict.cause == "hang"
        assert second - 95 <= within_s


def test_connections_that_pile_up_before_an_idle_engine_are_not_clear():
    """They may be a hang's first sign, which is told a minute later."""
    said = stalls([*HEALTHY, *frozen(60, 100, running=0.0, kv=0.0, fds_rise=1.0)])
    assert [verdict.state for _, (verdict,) in said[-3:]] == ["unknown"] * 3


@pytest.mark.parametrize(("steps", "found"), [(0, {"0", "1"}), (10, set())])
def test_connections_tell_of_an_idle_engine_only_where_none_of_its_server_moves(steps, found):
    """They are the server's: whoever opens them may be served by the other."""
    looks = [
        seen(s, engine(1000 + steps * s, running=4.0 if steps else 0.0), engine(50, name="1", running=0.0), fds=50.0 + s)
        for s in range(0, 200, 5)
    ]  # fmt: skip
    firing = {v.engine for _, verdicts in stalls(looks) for v in verdicts if v.state == "firing"}
    assert firing == found


def waited_for(looks, settings=None):
    """What is said of one whose KV another waits for."""

    class Asked:
        def __init__(self):
            self.detector = Detector(settings or Settings())

        def update(self, view):
            return self.detector.update(changed(view, around=Around(waited_for=("decode",))))

    return judge(Asked(), looks)


def still(start, end, canaries=(), **fields):
    """It looks idle, and does nothing; canaries go unanswered at these seconds."""
    fields = {"running": 0.0, "kv": 0.0} | fields
    no = CanaryCall(ok=False, latency_s=10.0, outcome="unanswered")
    return [
        seen(s, engine(1550, **fields), canary=no if s in canaries else None)
        for s in range(start, end, 5)
    ]


WAITED_FOR = {
    "it does nothing for a minute": (still(60, 200), (115, "idle_wedged")),
    "its cache moves": ([look for s in range(60, 200, 5) for look in still(s, s + 1, kv=s / 1000)], None),
    "it is one of two, and the other works": (
        [seen(s, engine(1000 + 10 * s), engine(50, name="1", running=0.0)) for s in range(0, 200, 5)], None,
    ),
    "it has requests of its own that run": (still(60, 200, running=4.0, kv=0.3), (65, "hang")),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "expected"), WAITED_FOR.values(), ids=WAITED_FOR)
def test_one_that_others_wait_for(looks, expected):
    """It looks idle, while others wait for KV that only it has: only where it does nothing at all."""
    said = waited_for([*(HEALTHY if len(looks[0].reading.engines) == 1 else ()), *looks])
    found = first_firing(said, "0") or first_firing(said, "1")
    assert (found and (found[0], found[1].cause)) == expected


def test_requests_of_its_own_are_given_their_time_though_others_wait():
    """Whoever is granted longer pauses is granted them here, too."""
    settings = Settings(notice_seconds=100.0)
    looks = [*HEALTHY, *still(60, 200, running=4.0, kv=0.3)]
    found = first_firing(waited_for(looks, settings=settings), "0")
    assert (found[0], found[1].cause) == (155, "hang")


def test_unanswered_canaries_are_told_before_others_have_waited_for_a_minute():
    looks = [*HEALTHY, *still(60, 200, canaries=(70, 85))]
    second, verdict = first_firing(waited_for(looks), "0")
    assert (second, verdict.cause) == (85, "idle_wedged")
    assert "2 one-token requests in a row unanswered" in verdict.summary


@pytest.mark.parametrize(("canaries", "advised"), [((), False), ((70,), True)])
def test_that_others_wait_advises_a_restart_only_with_a_canary_that_went_unanswered(
    canaries, advised
):
    """The network between may be broken; one that gives no token to us either is ill itself."""
    said = waited_for([*HEALTHY, *still(60, 300, canaries=canaries)])
    assert any(verdict.restart_advised for _, (verdict,) in said) is advised
    assert any(verdict.state == "firing" for _, (verdict,) in said)


def idle_with(opened, *, start=60, step=5):
    """Idle looks; so many connections were open at each, more than at first, and the last for long."""
    opened = (0, *opened, *[opened[-1]] * 40)
    return [
        seen(start + step * n, engine(1550, running=0.0, kv=0.0), fds=50.0 + each)
        for n, each in enumerate(opened)
    ]


OPENED = {
    "ten users, one after the other": ((2, 4, 6, 8, 10), True),
    "a pool that is opened in three steps": ((4, 8, 12), False),
    "... in four": ((3, 6, 9, 12), True),
    "seven": ((1, 2, 3, 4, 5, 6, 7), False),
}


@pytest.mark.parametrize(("opened", "found"), OPENED.values(), ids=OPENED)
def test_who_waits_outside_an_idle_engine_comes_one_by_one(opened, found):
    """A pool of connections opens at once, and a few may be anybody's."""
    assert (first_firing(stalls([*HEALTHY, *idle_with(opened)]), "0") is not None) is found


@pytest.mark.parametrize(("opened", "found"), [((4, 8, 12, 15), False), ((8, 16, 24, 30), True)])
def test_as_many_connections_as_it_had_in_idle_times_are_none_that_wait(opened, found):
    """Ten more were open in one that ended: twice as many say something."""
    before = [
        seen(60 + 5 * n, engine(1550, running=0.0, kv=0.0), fds=50.0 + 2 * n) for n in range(6)
    ]
    work = [seen(s, engine(1000 + 10 * s)) for s in range(90, 120, 5)]
    still = [changed(each, reading=changed(each.reading, engines=(engine(2150, running=0.0, kv=0.0),)))
             for each in idle_with(opened, start=120)]  # fmt: skip
    assert (first_firing(stalls([*HEALTHY, *before, *work, *still]), "0") is not None) is found


def visits(*lasting, every=15, canary=None, steps=1950):
    """Idle by its gauges; clients connect one after the other, every ten minutes, each for so many seconds."""
    still = engine(steps, running=0.0, kv=0.0)
    return [
        seen(s, still, canary=canary if s and s % 300 == 0 else None,
             fds=50.0 + any(0 <= s - 600 * (n + 1) < lasts for n, lasts in enumerate(lasting)))
        for s in range(100, 600 * (len(lasting) + 2), every)
    ]  # fmt: skip


@pytest.mark.parametrize("every", [1, 5, 15])
def test_clients_who_give_up_one_after_the_other_show_a_hang(every):
    """A few requests an hour: each waits for two minutes, and nothing is done. A ticket, and no restart."""
    found = first_firing(stalls([*busy(0, 100, 0.1), *visits(120, 120, 120, every=every)]), "0")
    second, verdict = found
    assert (verdict.cause, verdict.severity, verdict.restart_advised) == ("hang", "ticket", False)
    assert 1920 <= second <= 1920 + every
    assert verdict.summary.startswith("Engine hung: no scheduler step for 30 min")
    assert verdict.summary.endswith("; 3 clients in turn waited over a minute and got no token")


LINGER = {
    "connections that ask for the models": (10, 10, 10, 10, 10, 10),
    "one or two that linger": (120, 0, 120),
}


@pytest.mark.parametrize("lasting", LINGER.values(), ids=LINGER)
def test_connections_that_ask_for_no_token_are_no_sign(lasting):
    assert first_firing(stalls([*busy(0, 100, 0.1), *visits(*lasting)]), "0") is None


def test_what_lingered_in_an_idle_time_that_a_step_ended_is_usual():
    """A proxy keeps a spare connection for minutes: that was no hang, nor is it the next time."""
    first = visits(120, 120)
    again = [changed(each, t=each.t + 2300) for each in visits(120, 120, 120, steps=3000)]
    looks = [*busy(0, 100, 0.1), *first, *again]
    assert first_firing(stalls(looks), "0") is None


@pytest.mark.parametrize(("count", "found"), [(5, False), (6, True)])
def test_twice_as_many_clients_that_leave_as_in_an_idle_time_show_a_hang(count, found):
    """Three left before a step ended that time."""
    first, many = visits(120, 120, 120), visits(*[120] * count, steps=3000)
    again = [changed(each, t=each.t + 2900) for each in many]
    said = [
        s
        for s, verdicts in stalls([*busy(0, 100, 0.1), *first, *again])
        if s >= 3000 and verdicts[0].state == "firing"
    ]
    assert bool(said) is found
