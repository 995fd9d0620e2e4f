"""How a server ended: what is known of it by what was seen before, and what that grants it."""

from dataclasses import replace

import pytest

from tests.detectors.looks import (
    DEAD,
    UP,
    T,
    downs,
    emptied,
    first_firing,
    gone,
    gpu,
    inside,
    last,
    seen,
    seldom,
    served,
    silent,
    spell,
    used,
)
from vllm_watch.samples.observation import ProcessState


def test_one_that_was_emptied_and_then_lost_from_sight_was_stopped():
    """Nothing was asked of it any more when the way to it broke: so it is known how it ended."""
    way = [*gone("connect_timeout", 660, 960), *gone("refused", 960, 1100)]
    refused = [v for s, (v,) in downs([*used(), *emptied(60), *way]) if s >= 960]
    assert {v.state for v in refused} == {"unknown"}
    assert all("no request had arrived" in v.summary for v in refused[1:])


def test_an_absence_before_grants_no_time_to_one_that_is_in_use():
    """It was away unused for a quarter of an hour once; now it goes while one request runs, and is looked at."""
    one = [
        served(s, done=2 * (s - 1600), running=1.0, process_start_time=T + 1600)
        for s in range(1600, 2200)
    ]
    said = downs([*spell(0, 1000), *one, *(silent(s) for s in range(2200, 2600))])  # fmt: skip
    paged = (s for s, (v,) in said if (v.severity, v.state) == ("page", "firing") and s >= 2200)
    assert next(paged) == 2380


def test_at_a_look_a_second_three_without_an_answer_are_no_hang_yet():
    """A large prompt may block its event loop for as long; after five seconds it is told."""
    looks = [*(seen(s) for s in range(60)), *(silent(s, "read_timeout") for s in range(60, 80))]
    assert first_firing(downs(looks))[0] == 64
    looks = [*(seen(s) for s in range(60)), *(silent(s, "dns") for s in range(60, 90))]
    assert first_firing(downs(looks))[0] == 74


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
