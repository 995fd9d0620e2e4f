"""Silence: what it means depends on how it comes, for how long, and on what was there before."""

from dataclasses import replace

import pytest

from tests.detectors.looks import (
    DEAD,
    IDLE,
    NEW,
    OK,
    OLD,
    UP,
    T,
    downs,
    emptied,
    engine,
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
from vllm_watch.samples.observation import SCALING, ProcessState, Reading
from vllm_watch.watch.watch import Watch

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
    "... for half an hour": (
        [*UP, *gone("refused", 60, 2000, process=ProcessState(pid=8, alive=True))],
        (1860, "crash", "page"),
    ),
    "refused, and then something else answers there": (
        [*UP, silent(60), *gone("garbled", 65, 300)],
        None,
    ),
    "never seen to answer: it starts": (gone("refused", 0, 1800), None),
    "never seen to answer for half an hour": (
        gone("refused", 0, 1900),
        (1800, "unknown", "ticket"),
    ),
    "never seen to answer, and silent": (gone("read_timeout", 0, 300), None),
    "no answer twice": ([*UP, *gone("read_timeout", 60, 70), seen(70)], None),
    "no answer three times": ([*UP, *gone("read_timeout", 60, 90)], (70, "api_hang", "ticket")),
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
        [*UP, *gone("read_timeout", 60, 70), *gone("connect_timeout", 70, 90)],
        (70, "api_hang", "ticket"),
    ),
    "the way there breaks while an answer is under way": (
        [*UP, silent(60, "read_timeout"), *gone("connect_timeout", 65, 120)],
        (70, "unreachable", "page"),
    ),
    "no way there": ([*UP, *gone("connect_timeout", 60, 120)], (70, "unreachable", "page")),
    "no way there for some seconds": ([*UP, *gone("dns", 60, 70), seen(70)], None),
    "dead inside": (
        [*UP, *inside(60, 70)],
        (65, "engine_dead", "page"),
    ),
    "/health says 503 while it serves": (
        [*UP, *[seen(s, health=DEAD) for s in range(60, 300, 5)]],
        (70, "health_failing", "ticket"),
    ),
    "... and the last tokens arrive just after": (
        [*UP, seen(60, health=DEAD), *inside(65, 80)],
        (75, "engine_dead", "page"),
    ),
    "... and health is asked less often": (
        [*UP, *[seen(s, health=DEAD if s % 30 == 0 else None) for s in range(60, 300, 5)]],
        (70, "health_failing", "ticket"),
    ),
    "dead inside, /metrics broken too": (
        [*UP, *gone("http", 60, 75, status=500, health=DEAD)],
        (65, "engine_dead", "page"),
    ),
    "one failed health check": ([*UP, seen(60, health=DEAD), seen(65)], None),
    "garbled": ([*UP, *gone("garbled", 60, 300)], None),
    "garbled, and once no answer": (
        [*UP, *gone("garbled", 60, 120), silent(120, "read_timeout"), *gone("garbled", 125, 300)],
        None,
    ),
    "no answer three times between what cannot be read": (
        [*UP, *gone("garbled", 60, 120), *gone("read_timeout", 120, 140)],
        (130, "api_hang", "page"),
    ),
    "the watcher itself cannot ask": ([*UP, *gone("watcher", 60, 600)], None),
    "... and then it is refused once": ([*UP, *gone("watcher", 60, 600), silent(600)], None),
    "... and then it is refused twice": (
        [*UP, *gone("watcher", 60, 90), *gone("refused", 90, 105)],
        (95, "crash", "page"),
    ),
}


@pytest.mark.parametrize(("observations", "expected"), STORIES.values(), ids=STORIES)
def test_a_story(observations, expected):
    """When it is first said, of what cause, and whether somebody is woken; and at each look for how long it is so."""
    said = downs(observations)
    found = first_firing(said)
    assert (found and (found[0], found[1].cause, found[1].severity)) == expected
    assert_ages(observations, said)


def assert_ages(observations, said):
    """A finding is as old as the silence that it is about, of which nothing else was heard; its evidence says so."""
    begin, outcomes = None, set()
    for look, (second, (verdict,)) in zip(observations, said, strict=True):
        if look.reading is not None:
            begin, outcomes = None, set()
            continue
        begin = second if begin is None else begin
        outcomes.add(look.scrape.outcome)
        if verdict.cause in ("crash", "api_hang", "unreachable") and len(outcomes) == 1:
            assert second - begin <= verdict.since_seconds <= second - begin + 5
            assert verdict.measure == verdict.since_seconds == verdict.evidence_for[0].value
            assert verdict.evidence_for[0].unit == "s"


def test_what_was_stopped_on_purpose_does_not_page_when_its_address_goes():
    """A pod that is scaled to zero refuses first; then its address answers nobody, or the network fails."""
    for away in ("connect_timeout", "dns"):
        said = downs([*used(), *emptied(60), *gone("refused", 660, 700), *gone(away, 700, 3000)])
        assert {v.severity for _, (v,) in said if v.state == "firing"} <= {"ticket"}, away
        said = downs([*used(), *gone("refused", 600, 610), *gone(away, 610, 900)])
        assert (last(said).cause, last(said).severity) == ("crash", "page"), (
            "cut off, it is a crash"
        )


ENDS = {
    "in use": (used(), {}, (605, "page")),
    "two at a time": (used(running=2.0), {}, (605, "page")),
    "emptied first": ([*used(), *emptied(20)], {}, (800, "ticket")),
    "... and /health said that it was dead": (
        [*used(), *emptied(15), emptied(20, health=DEAD)[-1]], {}, (620, "page"),
    ),
    "... with one long answer to finish": ([*used(), *emptied(20, running=1.0)], {}, (800, "ticket")),
    "... with as many running as before": ([*used(), *emptied(20, running=4.0)], {}, (625, "page")),
    "... with a queue": ([*used(), *emptied(20, waiting=3.0)], {}, (625, "page")),
    "silent for less than chance explains": (
        [*used(), *emptied(5)], {}, (610, "ticket"),
    ),
    "it aborts what comes and finishes the rest": (
        [*used(), served(600, done=1203, prompts=1196, aborted=5, running=2.0)], {},
        (785, "ticket"),
    ),
    "its process lives on behind a closed port": (used(), {"process": process(OLD)}, None),
    "another process loads already: it crashed": (used(), {"process": process(NEW)}, (605, "page")),
    "its process has ended": (used(), {"process": process(OLD, alive=False)}, (600, "page")),
    "nobody had looked for ten minutes": ([*used(0 + 60)], {}, (605, "ticket")),
}  # fmt: skip


@pytest.mark.parametrize(("before", "fields", "expected"), ENDS.values(), ids=ENDS)
def test_an_end_that_was_asked_for_is_told_from_a_crash(before, fields, expected):
    """By what came before it, and by its process; gone for a quarter of an hour, it is at least a ticket."""
    began = max(600, round(before[-1].t - T) + 5)
    said = downs([*before, *gone("refused", began, began + 900, **fields)])
    found = first_firing(said)
    assert (found and (found[0], found[1].severity)) == expected


def at_work(every, last, *, stopped=0, running=4.0, began=0, rate=2):
    """Requests come to the last look but `stopped` seconds; that one meets `last` of them in flight."""
    end = 600 - stopped
    looks = [
        served(s, done=rate * (min(s, end) - began), prompts=rate * (min(s, end) - began) + 1,
               running=running if s < end else last)
        for s in range(began, 601, every)
    ]  # fmt: skip
    return [*looks, *(silent(s) for s in range(600 + every, 900, every))]


FEW = {  # a server that serves four at a time, and few of them in flight at its last look
    "none at the last scrape": (at_work(1, 0.0), (602, "page")),
    "one at the last scrape": (at_work(1, 1.0), (602, "page")),
    "looked at every two seconds": (at_work(2, 1.0), (604, "page")),
    "nothing had come for three seconds: emptied, or chance": (
        at_work(1, 0.0, stopped=3), (602, "ticket"),
    ),
    "seldom asked: three seconds are nothing": (
        at_work(1, 0.0, stopped=3, rate=0.5), (602, "page"),
    ),
    "nobody saw its last five seconds": (at_work(5, 1.0), (610, "ticket")),
    "... and its process has ended": (
        [*at_work(5, 1.0)[:121],
         *gone("refused", 605, 900, process=ProcessState(pid=7, start_time=T - 86400, alive=False))],
        (605, "ticket"),
    ),
    "one at a time, all the while": (at_work(1, 1.0, running=1.0), (602, "ticket")),
    "it has just begun": (at_work(1, 1.0, began=590), (602, "ticket")),
    "nobody counts what ends": (
        [seen(s, engine(100 + s, running=4.0 if s < 600 else 1.0)) for s in range(601)]
        + [silent(s) for s in range(601, 900)],
        (602, "ticket"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "expected"), FEW.values(), ids=FEW)
def test_few_in_flight_at_the_last_look_of_a_server_at_work(looks, expected):
    """Where requests came until it went there was no time to empty it: it crashed. Else that shows later."""
    said = downs(looks)
    found = first_firing(said)
    assert (found[0], found[1].severity) == expected
    assert last(said).severity == "page"  # away for longer than a restart takes
    if expected[1] == "page":
        assert "in flight, and new ones still arrived" in found[1].summary


def test_after_a_gap_it_is_not_known_what_was_in_flight():
    """The monotonic clock says that nobody looked for two minutes: it may have been drained in them."""
    looks = [*used(), *gone("refused", 720, 1000)]
    said = downs([replace(look, monotonic_s=look.t) for look in looks])
    found = first_firing(said)
    assert (found[0], found[1].severity, last(said).severity) == (725, "ticket", "page")


def test_after_a_suspend_it_is_not_known_what_was_in_flight():
    """The monotonic clock stands still while the host sleeps; Unix time tells how long that was."""
    looks = [replace(look, monotonic_s=look.t) for look in used()]
    slept = [replace(look, monotonic_s=look.t - 595) for look in gone("refused", 1200, 1500)]
    said = downs([*looks, *slept])
    found = first_firing(said)
    assert (found[1].severity, last(said).severity) == ("ticket", "page")


def test_a_silence_that_is_usual_here_is_no_sign_of_draining():
    """Bursts with a minute of calm between them: who goes in a calm may well have crashed."""
    calm = [s for s in range(0, 1200, 5) if s % 60 >= 30]
    looks = [
        served(s, done=60 * (s // 60) + 2 * min(s % 60, 30), running=0.0 if s in calm else 4.0)
        for s in range(0, 1200, 5)
    ]
    said = downs([*looks, *gone("refused", 1200, 1500)])
    found = first_firing(said)
    assert (found[0], found[1].severity) == (1205, "ticket")
    assert last(said).severity == "page"


def test_it_pages_for_an_idle_server_that_outlived_longer_silences():
    """An autoscaler would have taken it then; the first time, it may be one that takes it now."""
    life = []
    for begin in range(0, 4000, 1000):  # 100 s of work, 900 s of nothing
        life += [
            served(s, done=begin // 5 + 2 * min(s - begin, 100))
            for s in range(begin, begin + 100, 5)
        ]
        life += [
            served(s, done=begin // 5 + 200, running=0.0)
            for s in range(begin + 100, begin + 1000, 5)
        ]
    work = [served(s, done=800 + 2 * (s - 4000)) for s in range(4000, 4100, 5)]
    lull = [served(s, done=1000, running=0.0) for s in range(4100, 4400, 5)]
    outlived = downs([*life, *work, *lull, *gone("refused", 4400, 4800)])
    assert last(outlived).severity == "page"
    assert next(s for s, (v,) in outlived if v.severity == "page") == 4580

    alone = [served(s - 4000, done=800 + 2 * (s - 4000)) for s in range(4000, 4100, 5)]
    alone += [served(s - 4000, done=1000, running=0.0) for s in range(4100, 4400, 5)]
    assert last(downs([*alone, *gone("refused", 400, 4400)])).severity == "ticket"


def test_an_absence_no_longer_than_a_start_grants_no_longer_one():
    """It says that the server was started anew, and not that it is taken away now and then."""
    said = downs([*spell(0, 170), *spell(770, 1000)])
    firing = [s for s, (verdict,) in said if verdict.state == "firing"]
    assert firing[0] == 770 + 600 + 180


def test_who_goes_unused_and_comes_back_may_do_so_again():
    """The first absence is a ticket; the next one is only when it is twice as long."""
    said = downs([*spell(0, 1000), *spell(1600, 3000)])
    firing = [s for s, (verdict,) in said if verdict.state == "firing"]
    assert firing[0] == 780
    assert next(s for s in firing if s > 1600) == 2200 + 2000
    assert {verdict.severity for _, (verdict,) in said if verdict.state == "firing"} == {"ticket"}


PROXY = {
    "behind a proxy, gone while in use": ([*used(), *gone("http", 600, 900, status=502)], (780, "page")),
    "... for as long as an update takes": ([*used(), *gone("http", 600, 700, status=503)], None),
    "... and its health, too": (
        [*used(), *gone("http", 600, 900, status=503, health=DEAD)], (780, "page"),
    ),
    "... emptied first": ([*used(), *emptied(20), *gone("http", 620, 900, status=503)], (800, "ticket")),
    "... when nobody had asked anything for a minute": (
        [*seldom(0, 80), *gone("http", 680, 900, status=503)], (860, "ticket"),
    ),
    "... when nobody had asked anything for a moment": (
        [*seldom(0, 20), *gone("http", 620, 900, status=503)], (800, "page"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "expected"), PROXY.values(), ids=PROXY)
def test_turned_away_is_not_dead(looks, expected):
    """A proxy's 503 says that nobody is behind it (vLLM's own, that it scales): not that an engine died."""
    found = first_firing(downs(looks))
    assert (found and (found[0], found[1].severity)) == expected
    assert found is None or (found[1].cause, found[1].restart_advised) == ("unreachable", False)


def test_elastic_scaling_is_no_outage_until_it_does_not_end():
    """vLLM says so itself: the state, too; what a proxy says of a server that is away is told after three minutes."""
    scales = [
        replace(each, scrape=replace(each.scrape, error=SCALING))
        for each in gone("http", 600, 1400, status=503, health=DEAD)
    ]
    second, verdict = first_firing(downs([*used(), *scales]))
    assert (second, verdict.cause, verdict.severity) == (1200, "operation_stuck", "page")
    assert not verdict.restart_advised
    watch = Watch("x")
    for each in (*used(), *scales[:20]):
        watch.observe(each)
    assert watch.signals.state == "sleeping"
    assert watch.signals.state_text == "elastic scaling is under way; it serves again afterwards"


@pytest.mark.parametrize(("lost_s", "patience_s"), [(30, 5), (300, 180), (900, 1800)])
def test_refused_when_the_way_is_back(lost_s, patience_s):
    """After a minute without a way it may have been restarted in its own time: that is a start's time from the first
    refusal on, the usual one, or after more than ten minutes the longest. What was told before stays until then."""
    back = 600 + lost_s
    way = [*gone("connect_timeout", 600, back), *gone("refused", back, back + 2000)]
    said = [(s, v) for s, (v,) in downs([*used(), *way])]
    before = [v for s, v in said if back <= s < back + patience_s]
    after = [v for s, v in said if s >= back + patience_s]
    assert {v.state for v in before} == {"unknown"}
    assert {(v.state, v.cause, v.severity) for v in after} == {("firing", "crash", "page")}


def test_a_suspended_watcher_does_not_take_its_pause_for_its_interval():
    """After one pause a lost way of three minutes is as long as ever: nothing is known of the end."""
    paused = [served(1300, done=2400), *gone("connect_timeout", 1305, 1485)]
    looks = [*used(), *paused, *gone("refused", 1485, 1600)]
    said = downs([replace(look, monotonic_s=look.t - T) for look in looks])
    assert {v.state for s, (v,) in said if s >= 1485} == {"unknown"}


def test_scaled_to_zero_without_a_way_to_see_it():
    """Nobody had asked anything for two minutes at its last answer: as when it had been seen to go."""
    unused = [served(s, done=1200, running=0.0) for s in range(600, 720, 5)]
    way = [*gone("connect_timeout", 720, 1020), *gone("refused", 1020, 3000)]
    refused = [v for s, (v,) in downs([*used(), *unused, *way]) if s >= 1020]
    assert {v.severity for v in refused if v.state == "firing"} == {"ticket"}


def test_refused_after_a_hang_is_no_lost_way():
    """It took connections before: whoever does that and refuses then has gone."""
    looks = [*gone("read_timeout", 600, 800), *gone("refused", 800, 810)]
    _, (verdict,) = downs([*used(), *looks])[-1]
    assert (verdict.cause, verdict.severity) == ("crash", "page")


def test_a_start_that_takes_longer_than_ever_is_said():
    """Learnt from the start before: a minute; now it takes ten."""
    looks = [*used(), *gone("refused", 600, 660)]
    looks += [served(s, done=s, process_start_time=NEW) for s in range(660, 1200, 5)]
    said = downs([*looks, *gone("refused", 1200, 1800)])
    texts = {round(s): verdict.summary for s, (verdict,) in said}
    assert (
        "down for 1 min 35 s and no new process seen yet; its longest start so far took 60 s"
        in texts[1295]
    )
    assert "took" not in texts[1250]


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
        ((600, 150, 150), "crash"),
        ((600, 150, 145), "crash_loop"),
        ((10, 60), "crash"),  # we may have come late into its first life
    ],
)
def test_a_loop_is_told_by_its_lives(lives, cause):
    """Two restarts that did not last add up; one may be bad luck."""
    said = downs(crashes(*lives)[0])
    assert last(said).cause == cause
    assert last(said).restart_advised is False


def test_a_loop_is_over_when_it_lives():
    """Answering is not enough where each life began so: it is found on, but is not there at the moment."""
    looks, now = crashes(600, 60, 60)
    said = downs([*looks, *[seen(s, process_start_time=T + now) for s in range(now, now + 200, 5)]])
    states = {round(s - now): (verdict.state, verdict.present) for s, (verdict,) in said}
    assert states[0] == states[115] == ("firing", False)
    assert states[120][0] == "clear"
    told = {round(s - now): verdict.summary for s, (verdict,) in said}
    assert told[40] == "up for 40 s, as it was before each crash"


def test_an_api_server_that_is_busy_for_seconds_pages_nobody():
    """Half a minute is granted; where it came back from longer silences by itself, twice as long."""
    first = [*UP, *gone("read_timeout", 60, 100), *[seen(s) for s in range(100, 130, 5)]]
    said = downs([*first, *gone("read_timeout", 130, 300)])
    paged = [
        s for s, (verdict,) in said if verdict.severity == "page" and verdict.state == "firing"
    ]
    assert (paged[0], next(s for s in paged if s > 100)) == (85, 205)


def test_the_silence_of_a_start_is_none_that_it_survived():
    """It was met starting, and had never answered: its first hang is told as any first one."""
    starting = gone("read_timeout", 0, 60)
    said = downs(
        [*starting, *[seen(s) for s in range(60, 200, 5)], *gone("read_timeout", 200, 300)]
    )
    paged = [s for s, (v,) in said if (v.state, v.severity) == ("firing", "page")]
    advised = [s for s, (v,) in said if v.restart_advised]
    assert (paged[0], advised[0]) == (225, 225)


def test_a_process_that_was_told_to_end_and_does_was_stopped():
    """Its port closed at once, and it lived on for a while: whoever dies does not do that."""
    alive, dead = process(OLD), process(OLD, alive=False)
    slow = [*gone("refused", 600, 605, process=alive), *gone("refused", 605, 800, process=dead)]
    assert first_firing(downs([*used(), *slow]))[0] == 605
    slow = [*gone("refused", 600, 610, process=alive), *gone("refused", 610, 800, process=dead)]
    second, verdict = first_firing(downs([*used(), *slow]))
    assert (second, verdict.severity) == (780, "page")
    assert "on purpose" in verdict.summary


def test_a_restart_of_a_silent_server_is_advised_late():
    """Half a minute, or twice the longest silence that ended by itself."""
    said = downs([*UP, *gone("read_timeout", 60, 120)])
    assert next(s for s, (verdict,) in said if verdict.restart_advised) == 85

    looks = [*UP, *gone("read_timeout", 60, 120), *[seen(s) for s in range(120, 200, 5)]]
    said = downs([*looks, *gone("read_timeout", 200, 400)])
    assert next(s for s, (v,) in said if s >= 200 and v.restart_advised) == 315

    shorter = [*gone("read_timeout", 200, 220), *[seen(s) for s in range(220, 300, 5)]]
    said = downs([*looks, *shorter, *gone("read_timeout", 300, 500)])
    assert next(s for s, (v,) in said if s >= 300 and v.restart_advised) == 415


def test_a_way_that_was_broken_puts_no_restart_off():
    """Only a silence of the server itself is one that it survived."""
    looks = [*UP, *gone("dns", 60, 120), *[seen(s) for s in range(120, 200, 5)]]
    said = downs([*looks, *gone("read_timeout", 200, 400)])
    assert next(s for s, (verdict,) in said if verdict.restart_advised) == 225


def test_an_engine_whose_tokens_flow_is_not_to_be_restarted():
    """Whatever /health says; once it stands still with work for a minute it is."""
    serves = [seen(s, health=DEAD) for s in range(60, 120, 5)]
    said = downs([*UP, *serves, *inside(120, 240)])
    advised = [s for s, (verdict,) in said if verdict.restart_advised]
    assert advised[0] == 180
    idle = [seen(s, engine(2195, running=0.0), health=DEAD) for s in range(120, 400, 5)]
    said = downs([*UP, *serves, *idle])
    assert not any(verdict.restart_advised for _, (verdict,) in said)


def test_a_dead_engine_that_serves_again():
    """At the first look with tokens the trouble is not there; at the next it is a ticket."""
    said = downs([*UP, *inside(60, 90), *[seen(s, health=DEAD) for s in range(90, 120, 5)]])
    found = {s: verdict for s, (verdict,) in said}
    assert (found[85].cause, found[85].present) == ("engine_dead", True)
    assert not found[90].present
    one = found[95]
    assert (one.cause, one.severity, one.restart_advised) == ("health_failing", "ticket", False)
    moved = one.evidence_for[1]
    assert (moved.name, moved.value, moved.expected) == ("tokens_moved", 1.0, 0.0)


def test_a_failed_look_by_itself_is_neither_clear_nor_firing():
    """Missing data is unknown."""
    for outcome in ("refused", "read_timeout", "connect_timeout", "garbled", "tls"):
        assert last(downs([*UP, silent(60, outcome)])).state == "unknown"
    assert last(downs([*UP, silent(60), seen(65)])).state == "clear"


@pytest.mark.parametrize(
    ("looks", "severity", "words"),
    [
        (1, "page", "12 requests were in flight"),
        (3, "page", "12 requests were in flight"),
        (8, "ticket", "0 requests were in flight"),
    ],
)
def test_a_crash_behind_a_half_dead_metrics_page_keeps_its_demand(looks, severity, words):
    """Its engine core is gone, and /metrics answers without it: what was in flight was lost all the same, unless that
    page goes on for half a minute."""
    half_dead = replace(seen(60), reading=Reading(vllm=False, why_not="no vLLM series"))
    end = 60 + 5 * looks
    said = downs([
        *(served(s, done=100 + s, running=12.0) for s in range(0, 60, 5)),
        *(replace(half_dead, t=T + s, monotonic_s=float(s)) for s in range(60, end, 5)),
        *gone("refused", end, end + 40),
    ])  # fmt: skip
    verdict = last(said)
    assert (verdict.state, verdict.cause, verdict.severity) == ("firing", "crash", severity)
    assert words in verdict.summary
