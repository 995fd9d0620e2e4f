"""How a server ended: what is known of it by what was seen before, and what that grants it."""

from dataclasses import replace

import pytest

from tests.detectors.looks import (
    DEAD,
    OK,
    OLD,
    UP,
    T,
    downs,
    emptied,
    first_firing,
    gone,
    gpu,
    inside,
    last,
    process,
    seen,
    seldom,
    served,
    silent,
    spell,
    used,
)
from vllm_watch.samples.observation import ProcessState


def test_one_that_nobody_used_is_told_to_end():
    """It was stopped on purpose and cut nothing off: nobody is woken for it, however long it is away."""
    unused = [served(s, done=s // 60, running=1.0) for s in range(0, 600, 5)]
    end = gone("refused", 600, 1500, process=process(OLD, alive=False))
    said = downs([*unused, *gone("refused", 600, 610, process=process(OLD)), *end[2:]])
    assert {v.severity for _, (v,) in said if v.state == "firing"} == {"ticket"}


def test_one_that_was_emptied_and_then_lost_from_sight_was_stopped():
    """Nothing was asked of it any more when the way to it broke: so it is known how it ended."""
    way = [*gone("connect_timeout", 660, 960), *gone("refused", 960, 1100)]
    refused = [v for s, (v,) in downs([*used(), *emptied(60), *way]) if s >= 960]
    assert {v.state for v in refused} == {"unknown"}
    assert all("no request had arrived" in v.summary for v in refused[1:])


def test_one_that_was_idle_and_then_lost_from_sight_crashed_unused():
    """Nobody used it when the way to it broke, so that it refuses afterwards is told at once, and wakes nobody."""
    idle = [served(s, done=600, running=0.0) for s in range(0, 1200, 5)]
    way = [*gone("connect_timeout", 1200, 1500), *gone("refused", 1500, 1800)]
    said = [(s, v) for s, (v,) in downs([*idle, *way]) if s >= 1500 and v.state == "firing"]
    assert said[0][0] == 1505
    assert {(v.cause, v.severity) for _, v in said} == {("crash", "ticket")}


def test_an_absence_before_grants_no_time_to_one_that_is_in_use():
    """It was away unused for a quarter of an hour once; now it goes while one request runs, and is looked at."""
    one = [
        served(s, done=2 * (s - 1600), running=1.0, process_start_time=T + 1600)
        for s in range(1600, 2200)
    ]
    said = downs([*spell(0, 1000), *one, *(silent(s) for s in range(2200, 2600))])  # fmt: skip
    assert (
        next(s for s, (v,) in said if s >= 2200 and v.severity == "page" and v.state == "firing")
        == 2380
    )


def test_the_longest_absence_is_what_is_usual():
    """A short one after it does not make it less."""
    said = downs([*spell(0, 1000), *spell(1600, 400), *spell(2600, 3000)])
    firing = [s for s, (verdict,) in said if verdict.state == "firing"]
    assert next(s for s in firing if s > 2600) == 3200 + 2000


def test_at_a_look_a_second_three_without_an_answer_are_no_hang_yet():
    """A large prompt may block its event loop for as long; after five seconds it is told."""
    looks = [*(seen(s) for s in range(60)), *(silent(s, "read_timeout") for s in range(60, 80))]
    assert first_firing(downs(looks))[0] == 64
    looks = [*(seen(s) for s in range(60)), *(silent(s, "dns") for s in range(60, 90))]
    assert first_firing(downs(looks))[0] == 74


def test_a_silence_that_was_survived_puts_the_page_off_by_two_minutes_at_most():
    """It came back after a hundred seconds; who waits for longer than two minutes has given up."""
    first = [*UP, *gone("read_timeout", 60, 160), *[seen(s) for s in range(160, 200, 5)]]
    said = downs([*first, *gone("read_timeout", 200, 600)])
    assert (
        next(s for s, (v,) in said if s >= 200 and v.severity == "page" and v.state == "firing")
        == 315
    )


def test_a_server_of_which_only_health_was_heard_is_not_taken_for_a_busy_one():
    """Its /metrics was never read; when /health is silent, too, it is said as soon as of any other."""
    looks = [silent(s, "read_timeout", health=OK) for s in range(0, 60, 5)]
    second, verdict = first_firing(downs([*looks, *gone("read_timeout", 60, 100)]))
    assert (second, verdict.cause, verdict.evidence_against) == (70, "api_hang", ())


def test_a_short_absence_after_a_look_without_an_answer_belongs_to_its_own_end():
    """Only the looks since the last answer count: what was lost before is over."""
    looks = [
        *used(),
        silent(600, "read_timeout"),
        *(served(s, done=2 * s) for s in range(605, 900, 5)),
    ]
    said = downs([*looks, *gone("refused", 900, 920)])
    assert (last(said).cause, last(said).severity) == ("crash", "page")


def test_an_absence_that_nobody_asked_for_is_learnt_where_nobody_was_hurt():
    """Unused, it was away for a quarter of an hour once; when it goes unseen it may be away for as long again."""
    looks = [
        *seldom(0, 20),
        *gone("refused", 620, 1620),
        *seldom(1620, 20),
        *gone("refused", 2740, 3400),
    ]
    said = downs([replace(look, monotonic_s=look.t) for look in looks])
    assert {v.severity for s, (v,) in said if s >= 2740 and v.state == "firing"} == {"ticket"}


def started(begin, count, every=20):
    """A process after the other refuses, each of which began a moment before."""
    return [
        silent(s, process=ProcessState(pid=100 + n, start_time=T + begin + n * every, alive=True))
        for n in range(count)
        for s in range(begin + n * every, begin + (n + 1) * every, 5)
    ]


@pytest.mark.parametrize(("count", "cause"), [(2, None), (3, "crash_loop")])
def test_one_that_was_stopped_on_purpose_and_never_comes_up_again(count, cause):
    """Two starts may be patience; the third that does not answer is a loop, whyever it was stopped."""
    found = first_firing(downs([*used(), *emptied(20), *started(620, count)]))
    assert (found and found[1].cause) == cause
    assert found is None or (found[0], found[1].severity) == (660, "page")


LOST = gone("connect_timeout", 600, 900)


BACK = {
    "its process has ended": ([silent(900, process=ProcessState(pid=7, alive=False))], 900),
    "its health failed": ([silent(900, health=DEAD)], 900),
    "its third start in a row": (started(900, 3), 940),
    "nothing else is known": (gone("refused", 900, 1000), None),
}


@pytest.mark.parametrize(("looks", "second"), BACK.values(), ids=BACK)
def test_who_refuses_when_the_way_is_back_has_crashed_where_anything_says_so(looks, second):
    """Else it may start: what was told of the way stays until then."""
    said = [(s, v) for s, (v,) in downs([*used(), *LOST, *looks]) if s >= 900]
    assert next((s for s, v in said if v.state == "firing"), None) == second


def test_that_it_was_idle_when_it_was_last_seen_is_not_known_to_be_so_at_its_end():
    """Nobody looked for two minutes; it may have been in use again when it went."""
    looks = [*seldom(0, 80), *gone("refused", 800, 1100)]
    said = downs([replace(look, monotonic_s=look.t) for look in looks])
    assert (first_firing(said)[1].severity, last(said).severity) == ("ticket", "page")


def test_a_dead_engine_whose_gpu_has_gone_is_not_to_be_restarted():
    """That cures nothing; which GPU it is is said."""
    looks = [replace(each, gpus=()) for each in inside(60, 75)]
    verdict = last(downs([seen(0, gpus=(gpu(),)), *UP[1:], *looks]))
    assert (verdict.cause, verdict.restart_advised) == ("engine_dead", False)
    assert "1 GPU lost on this host" in [each.text for each in verdict.evidence_for]


@pytest.mark.parametrize("outcome", ["connect_timeout", "dns", "read_timeout"])
def test_what_cannot_be_reached_is_not_to_be_restarted_however_long(outcome):
    """A server that takes connections and answers none hangs; one to which there is no way may serve others."""
    advised = {v.restart_advised for _, (v,) in downs([*UP, *gone(outcome, 60, 4000)])}
    assert advised == ({False, True} if outcome == "read_timeout" else {False})
