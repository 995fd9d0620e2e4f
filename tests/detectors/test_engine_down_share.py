"""One API server process of several hangs: a part of the calls gets no answer, and those between are answered at once."""

from dataclasses import replace
from random import Random

import pytest

from tests.detectors.looks import OK, T, engine, seen, silent
from tests.detectors.made_up_engine import SIGNALS
from vllm_watch.detectors.base import View
from vllm_watch.detectors.engine_down import Detector, Settings
from vllm_watch.samples.observation import Call
from vllm_watch.signals import stored

HELD = Call(outcome="read_timeout", latency_s=4.0)


def calls(seconds, share, *, every=5, seed=1, begin=0, health=None, **fields):
    """Scrapes of which that share gets no answer."""
    rng = Random(seed)
    return [
        silent(s, "read_timeout", health=health) if rng.random() < share else seen(s, health=health, **fields)
        for s in range(begin, begin + seconds, every)
    ]  # fmt: skip


def judge(detector, observations):
    """[(second, verdict)] of all scrapes."""
    views = (
        View(at_s=each.t - T, known=True, observation=each, signals=SIGNALS)
        for each in observations
    )
    return [(view.at_s, *detector.update(view)) for view in views]


def firing(said):
    return [(second, one) for second, one in said if one.state == "firing" and one.present]


def shares(said):
    """What is said of one process among several."""
    return [(second, one) for second, one in firing(said) if one.summary.startswith("one of its")]


@pytest.mark.parametrize(("of", "every", "within"), [(2, 5, 180), (4, 5, 240), (8, 5, 900), (4, 1, 120), (4, 15, 900)])  # fmt: skip
@pytest.mark.parametrize("seed", range(5))
def test_one_process_of_several_hangs(of, every, within, seed):
    """A page whose incident stays open as long as it hangs, then the advice to restart; and it ends."""
    hangs = calls(3600, 1 / of, every=every, seed=seed, begin=600)
    said = judge(Detector(Settings()), [*calls(600, 0.0, every=every), *hangs])
    paged = [second for second, _ in shares(said)]
    assert paged[0] - 600 <= within
    of_it = [one for second, one in said if second >= paged[0]]
    assert {(one.cause, one.severity) for one in of_it if one.state == "firing"} == {
        ("api_hang", "page")
    }
    assert sum(one.state == "firing" for one in of_it) >= 0.95 * len(of_it)
    assert any(one.restart_advised for _, one in shares(said)) is (every < 15)
    judged = Detector(Settings())
    assert (
        judge(judged, [*hangs, *calls(3600, 0.0, every=every, begin=4200)])[-1][1].state == "clear"
    )


def busy(rng, seconds, every, *, late):
    """An event loop that is busy for 4 to 25 s every 400 s; `late`: what comes near its end is answered late."""
    looks, free_s, busy_s = [], 0.0, rng.expovariate(1 / 400)
    for s in range(0, seconds, every):
        while s >= busy_s:
            free_s = busy_s + rng.uniform(4.0, 25.0)
            busy_s = free_s + rng.expovariate(1 / 400)
        left_s = max(0.0, free_s - s)
        looks.append(
            silent(s, "read_timeout")
            if left_s > 4.0
            else seen(s, latency_s=max(0.01, left_s if late else 0.0))
        )
    return looks  # fmt: skip


def lossy(second, rng, share):
    """TCP sends again after 1, 2 and 4 s to connect, and after 0.2, 0.4 and 0.8 s later on."""
    waited_s = []
    for first_s in (1.0, 0.2, 0.2):
        times = 0
        while rng.random() < share:
            times += 1
        waited_s.append(first_s * (2**times - 1))
    if waited_s[0] > 2.0:
        return silent(second, "connect_timeout")
    return (
        silent(second, "read_timeout")
        if sum(waited_s) > 4.0
        else seen(second, latency_s=0.01 + sum(waited_s))
    )


HEALTHY = {
    "one of two hundred unanswered": lambda rng, every: calls(14_400, 0.005, every=every, seed=rng.random()),
    "busy for seconds": lambda rng, every: busy(rng, 14_400, every, late=False),
    "busy for seconds, and late": lambda rng, every: busy(rng, 14_400, every, late=True),
    "thousands wait": lambda rng, every: [
        silent(s, "read_timeout") if rng.random() < 0.2 else seen(s, engine(1000 + s, waiting=2000.0)) for s in range(0, 3600, every)],
    "one packet in five is lost": lambda rng, every: [lossy(s, rng, 0.2) for s in range(0, 14_400, every)],
    "the watcher's host is short of CPU": lambda rng, every: [
        silent(s, "watcher") if rng.random() < 0.3 else seen(s) for s in range(0, 3600, every)],
    "/metrics alone is silent": lambda rng, every: [silent(s, "read_timeout", health=OK) for s in range(0, 3600, every)],
    "kept connections are lost": lambda rng, every: [
        kept(silent(s, "read_timeout") if rng.random() < 0.2 else seen(s))
        for s in range(0, 3600, every)],
}  # fmt: skip


def kept(observation):
    return replace(observation, scrape=replace(observation.scrape, kept=True))


def silences(rng, seconds, every, *, lasting, between):
    """One event loop that is silent now and then, and prompt in between; calls wait for 4 s."""
    looks, free_s, silent_s = [], 0.0, rng.expovariate(1 / between)
    for s in range(0, seconds, every):
        while s >= silent_s:
            free_s = silent_s + rng.uniform(*lasting)
            silent_s = free_s + rng.expovariate(1 / between)
        left_s = max(0.0, free_s - s)
        late = seen(s, latency_s=max(0.01, left_s))
        looks.append(late if left_s <= 4.0 else silent(s, "read_timeout"))
    return looks


@pytest.mark.parametrize("every", [1, 5, 15])
@pytest.mark.parametrize("between", [100, 300, 900])
@pytest.mark.parametrize("seed", range(5))
def test_a_loop_that_is_silent_for_minutes_now_and_then_is_one_process(seed, between, every):
    """It answers its next poll promptly: no restart. Polls that are close meet late answers, and show that it is one."""
    looks = silences(Random(seed), 14_400, every, lasting=(100.0, 200.0), between=between)
    said = shares(judge(Detector(Settings()), looks))
    assert not any(one.restart_advised for _, one in said)
    assert every == 15 or said == []


@pytest.mark.parametrize("lasting", [(5.0, 30.0), (20.0, 60.0)])
@pytest.mark.parametrize("seed", range(5))
def test_polls_that_are_far_apart_advise_nothing(seed, lasting):
    """Silences that are shorter than the time between two polls look like one process of several: no restart."""
    looks = silences(Random(seed), 14_400, 15, lasting=lasting, between=120)
    assert not any(one.restart_advised for _, one in shares(judge(Detector(Settings()), looks)))


def test_health_that_gets_no_answer_beside_metrics_shows_two_processes():
    """However far apart the polls are: both are asked at the same moment."""
    rng = Random(1)
    looks = [
        seen(s, health=HELD if rng.random() < 0.25 else OK) if rng.random() > 0.25 else silent(s, "read_timeout", health=OK)
        for s in range(0, 7200, 15)
    ]  # fmt: skip
    assert any(one.restart_advised for _, one in shares(judge(Detector(Settings()), looks)))


@pytest.mark.parametrize("every", [1, 5, 15])
@pytest.mark.parametrize("looks", HEALTHY.values(), ids=HEALTHY)
def test_what_looks_alike(looks, every):
    """No page, and no advice."""
    said = judge(Detector(Settings()), looks(Random(3), every))
    assert shares(said) == []


def test_health_on_another_connection_tells_as_much():
    """/metrics is asked on a connection that is kept, to a process that answers."""
    rng = Random(1)
    looks = [kept(seen(s, health=HELD if rng.random() < 0.25 else OK)) for s in range(0, 600, 5)]
    assert shares(judge(Detector(Settings()), looks))


def test_the_next_run_of_the_watcher_goes_on():
    """The incident does not end because the watcher was restarted."""
    before, after = Detector(Settings()), Detector(Settings())
    assert shares(judge(before, calls(900, 0.25)))
    kept_state = before.export_state(900.0)
    after.restore(stored.mapping(kept_state), 5.0)
    ((_, verdict), *_) = judge(after, calls(5, 0.0, begin=905))
    assert (verdict.state, verdict.cause) == ("firing", "api_hang")


def test_a_total_hang_is_told_as_ever():
    """Calls in a row without an answer are one silence."""
    said = judge(
        Detector(Settings()),
        [*calls(600, 0.0), *[silent(s, "read_timeout") for s in range(600, 700, 5)]],
    )
    (second, verdict), *_ = firing(said)
    assert (second, verdict.severity) == (610, "ticket")
    assert "accepted connections but answered none" in verdict.summary
