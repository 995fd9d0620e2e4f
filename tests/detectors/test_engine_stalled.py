"""Stalls: work without steps, by several witnesses; and all that only looks like one."""

import pytest

from tests.detectors.looks import (
    HEALTHY,
    Heard,
    T,
    engine,
    first_firing,
    frozen,
    gpu,
    judge,
    last,
    seen,
    silent,
    stalls,
)
from vllm_watch.detectors.base import Around
from vllm_watch.detectors.engine_stalled import Detector, Settings
from vllm_watch.samples.observation import EngineCpu
from vllm_watch.samples.record import changed
from vllm_watch.signals import stored
from vllm_watch.story.base import ADVISED_AFTER
from vllm_watch.story.engine_stalled import STORY
from vllm_watch.watch.watch import Watch

DEFERRED = {
    "requests_waiting_by_reason": {"capacity": 1.0, "deferred": 4.0},
    "external_prefix_cache_queries": 9000.0,
}


STORIES = {
    "steps go on": (HEALTHY, None),
    "no step for less than the notice": ([*HEALTHY, *frozen(60, 66)], None),
    "no step with several running": ([*HEALTHY, *frozen(60, 120)], (70, "hang")),
    "at one look in 30 s the first look without a step": (
        [*[seen(s) for s in range(0, 300, 30)], *frozen(300, 400, 30)],
        (330, "hang"),
    ),
    "a single request is one witness: it takes longer": (
        [*HEALTHY, *frozen(60, 120, running=1.0)],
        (80, "hang"),
    ),
    "... unless connections pile up": (
        [*HEALTHY, *frozen(60, 120, running=1.0, fds_rise=1.0)],
        (70, "hang"),
    ),
    "... or no GPU computes": (
        [*HEALTHY, *frozen(60, 120, running=1.0, gpus=(gpu(utilization_ratio=0.0),))],
        (70, "hang"),
    ),
    "... a computing GPU is no second witness": (
        [*HEALTHY, *frozen(60, 120, running=1.0, gpus=(gpu(utilization_ratio=1.0),))],
        (80, "hang"),
    ),
    "idle: nothing to do": ([*HEALTHY, *frozen(60, 600, running=0.0, kv=0.0)], None),
    "idle by its gauges, while users pile up outside": (
        [*HEALTHY, *frozen(60, 200, running=0.0, kv=0.0, fds_rise=0.4)],
        (130, "hang"),
    ),
    "idle, and a proxy opened its pool at once": (
        [*HEALTHY, *[seen(s, engine(1600, running=0.0), fds=250.0) for s in range(60, 400, 5)]],
        None,
    ),
    "none running, some waiting, cache empty": (
        [*HEALTHY, *frozen(60, 180, running=0.0, waiting=5.0, kv=0.0)],
        (120, "admission_deadlock"),
    ),
    "the same while the queue grows": (
        [
            *HEALTHY,
            *[seen(s, engine(1600, running=0.0, waiting=float(s), kv=0.0)) for s in range(60, 180, 5)],
        ],
        (120, "admission_deadlock"),
    ),
    "none running, some waiting, cache full: not that": (
        [*HEALTHY, *frozen(60, 180, running=0.0, waiting=5.0, kv=0.9)],
        (120, "hang"),
    ),
    "those who wait hang up, and those who run get no token": (
        [
            *HEALTHY,
            *[
                seen(s, engine(1600, waiting=200.0 - s, request_success={"abort": float(s)}))
                for s in range(60, 120, 5)
            ],
        ],
        (70, "hang"),
    ),
    "they wait for KV blocks from another host": (
        [*HEALTHY, *frozen(60, 180, running=0.0, waiting=5.0, kv=0.5, **DEFERRED)],
        (120, "peer_wait"),
    ),
    "requests wait, and others are finished": (
        [seen(s, engine(1000 + s, running=0.0, waiting=3.0, kv=0.0)) for s in range(0, 300, 5)],
        None,
    ),
    "the cache moves: the scheduler lives": (
        [*HEALTHY, *[seen(s, engine(1600, kv=0.3 + s / 1000)) for s in range(60, 180, 5)]],
        None,
    ),
    "no step counter: one prefill may be one step": (
        [seen(0, engine(0, counted=False)), *frozen(5, 100, counted=False)],
        (35, "hang"),
    ),
    "asleep": (
        [*HEALTHY, *frozen(60, 300, engine_sleep_state={"awake": 0.0, "weights_offloaded": 1.0})],
        None,
    ),
    "asleep with requests, and awake again": (
        [*HEALTHY, *frozen(60, 300, engine_sleep_state={"awake": 0.0, "weights_offloaded": 1.0}), *frozen(300, 400)],
        (330, "hang"),
    ),
    "none running, some waiting, how full the cache is is not told": (
        [*HEALTHY, *frozen(60, 180, running=0.0, waiting=5.0, kv=None)],
        (120, "admission_deadlock"),
    ),
    "no step counter, while users pile up outside": (
        [*[seen(s, engine(10 * s, counted=False, request_success={"stop": 2.0 * s})) for s in range(0, 60, 5)],
         *frozen(60, 150, counted=False, fds_rise=2.0, request_success={"stop": 120.0})],
        (90, "hang"),
    ),
    "no answer in between: the silence counts": (
        [*HEALTHY, *frozen(60, 66), silent(70, "read_timeout"), *frozen(75, 90)],
        (75, "hang"),
    ),
}  # fmt: skip


def test_what_is_deferred_otherwise_is_no_wait_for_kv():
    """A LoRA budget, a grammar: where there is no KV connector, and where vLLM says that nothing is fetched."""
    deferred = {"requests_waiting_by_reason": {"deferred": 3.0}}
    for fields in (deferred, deferred | {"num_requests_kv_fetch_by_stage": {"in_progress": 0.0}}):
        said = stalls([*HEALTHY, *frozen(60, 180, running=0.0, waiting=3.0, kv=0.0, **fields)])
        assert first_firing(said, "0")[1].cause == "admission_deadlock"


def test_one_or_two_that_are_deferred_may_wait_for_a_grammar():
    """After ten minutes it is a ticket without advice; before, a one-token request tells."""
    for count, fields in (
        (1.0, {}),
        (2.0, {"num_requests_kv_fetch_by_stage": {"in_progress": 0.0}}),
    ):
        reasons = {"requests_waiting_by_reason": {"capacity": 0.0, "deferred": count}}
        queue = frozen(60, 900, running=0.0, waiting=count, kv=0.0, **reasons | fields)
        said = stalls([*HEALTHY, *queue])
        second, verdict = first_firing(said, "0")
        assert (second, verdict.cause, verdict.severity) == (660, "admission_deadlock", "ticket")
        assert not any(each.restart_advised for _, found in said for each in found)
        detector = Detector(Settings())
        judge(detector, [*HEALTHY, *queue[:20]])
        assert detector.canary_wanted == {"0": True}


@pytest.mark.parametrize(
    "fields",
    [
        {"requests_waiting_by_reason": {"capacity": 1.0, "deferred": 1.0}},
        {"requests_waiting_by_reason": {"deferred": 2.0}, "external_prefix_cache_queries": 9e3, "num_requests_kv_fetch_by_stage": {"in_progress": 0.0}},
        {},
    ],
    ids=["not all are", "a KV connector may hold them", "not told"],
)  # fmt: skip
def test_a_queue_of_two_that_is_not_deferred_by_itself_is_stuck(fields):
    said = stalls([*HEALTHY, *frozen(60, 180, running=0.0, waiting=2.0, kv=0.0, **fields)])
    second, verdict = first_firing(said, "0")
    assert (second, verdict.cause, verdict.severity) == (120, "admission_deadlock", "page")


def under_way(start, end, **fields):
    doing = {"sleep_mode_operations_in_flight": 0.0, "rl_weight_update_operations_in_flight": 1.0}
    return frozen(start, end, operations_in_flight=doing, **fields)


def test_an_operation_under_way_is_no_stall():
    """For nine minutes requests wait and nothing steps; then it goes on."""
    watch = Watch("x")
    for each in [
        *HEALTHY,
        *under_way(60, 600, waiting=9.0),
        *[seen(s) for s in range(600, 900, 5)],
    ]:
        watch.observe(each)
        if each.t - T == 300:
            assert watch.signals.state == "sleeping"
            assert watch.signals.state_text.startswith("an update of its weights is under way")
    assert watch.opened == {}


def test_an_operation_that_ended_does_not_count_for_the_next():
    """Nine minutes of one, a minute of work, and nine of another."""
    between = [seen(s, engine(2000 + s)) for s in range(600, 660, 5)]
    looks = [*HEALTHY, *under_way(60, 600), *between, *under_way(660, 1200), *between]
    said = stalls([changed(look, t=T + 5 * n) for n, look in enumerate(looks)])
    assert first_firing(said, "0") is None


@pytest.mark.parametrize(("running", "severity"), [(4.0, "page"), (0.0, "ticket")])
def test_an_operation_that_does_not_end_is_told(running, severity):
    said = stalls([*HEALTHY, *under_way(60, 1500, running=running, kv=0.0)])
    second, verdict = first_firing(said, "0")
    assert (second, verdict.cause, verdict.severity) == (660, "operation_stuck", severity)
    assert "an update of its weights, for 10 min" in verdict.summary
    assert not any(each.restart_advised for _, verdicts in said for each in verdicts)


@pytest.mark.parametrize(("observations", "expected"), STORIES.values(), ids=STORIES)
def test_a_story(observations, expected):
    """When it is first said, and of what cause; and at each look for how long it is so."""
    said = stalls(observations)
    found = first_firing(said, "0")
    assert (found and (found[0], found[1].cause)) == expected
    ages = [(s, v.since_seconds, v.measure) for s, (v,) in said if v.state == "firing"]
    for number, (second, since_s, measure) in enumerate(ages):
        assert since_s == measure == ages[0][1] + second - ages[0][0]
        assert 0.0 < since_s <= second, number


def test_while_it_warms_up_a_minute_is_granted():
    """A process of some minutes that has hardly stepped compiles its kernels."""
    looks = [seen(s, engine(5 + (s > 0)), process_start_time=T - 100) for s in range(0, 120, 5)]
    second, _ = first_firing(stalls(looks), "0")
    assert second == 65


def test_a_restart_is_advised_only_later():
    """Noticed at once; acted upon when it has lasted a minute."""
    said = stalls([*HEALTHY, *frozen(60, 180)])
    advised = next(s for s, (verdict,) in said if verdict.restart_advised)
    assert (first_firing(said, "0")[0], advised) == (70, 120)


def test_what_it_has_survived_puts_the_advice_off():
    """After a stall of 100 s that healed itself, twice that is waited for."""
    looks = [*HEALTHY, *frozen(60, 161), *[seen(s) for s in range(165, 200, 5)]]
    looks += [seen(s, engine(9000)) for s in range(200, 500, 5)]
    said = [(s, v) for s, v in stalls(looks) if s >= 200]
    assert first_firing(said, "0")[0] == 210
    assert next(s for s, (verdict,) in said if verdict.restart_advised) == 400


def test_usual_pauses_put_the_notice_off():
    """An engine that pauses for 10 s again and again is not called stalled at 8."""
    looks, steps = [], 1000
    for second in range(0, 300, 5):
        steps += 0 if second % 15 else 500  # one step in three looks
        looks.append(seen(second, engine(steps)))
    looks += [seen(s, engine(steps)) for s in range(300, 400, 5)]
    said = [(s, v) for s, v in stalls(looks) if s > 100]
    assert first_firing(said, "0")[0] == 300  # 15 s after the last step


def test_a_hang_that_comes_again_is_no_habit():
    """Three hangs of a minute teach nothing: the fourth is told as soon as the first."""
    looks, steps = [], 1000
    for second in range(0, 900, 5):
        hangs = 60 <= second % 180 < 120
        steps += 0 if hangs else 500
        looks.append(seen(second, engine(steps)))
    noticed = {s // 180: 0 for s in range(0, 900, 180)}
    for s, (verdict, *_) in stalls(looks):
        if verdict.state == "firing":
            noticed[int(s // 180)] = noticed[int(s // 180)] or s % 180
    assert set(noticed.values()) == {65.0}


def test_a_lost_gpu_is_no_reason_to_restart():
    """It comes back with its host, not with a process."""
    said = stalls([seen(0, gpus=(gpu(),)), *HEALTHY[1:], *frozen(60, 300, gpus=())])
    verdict = last(said, "0")
    assert (verdict.state, verdict.restart_advised) == ("firing", False)
    assert "1 GPU lost on this host" in [evidence.text for evidence in verdict.evidence_for]
    first = first_firing(said, "0")[1]  # nor is one said to be advised later on
    assert [each for each in first.evidence_against if each.name == ADVISED_AFTER] == []


def test_it_is_clear_when_steps_go_on():
    """The first step is enough; before it nothing is known to be well."""
    said = stalls([*HEALTHY, *frozen(60, 100), seen(100), seen(105)])
    assert [verdict.state for _, (verdict,) in said[-3:]] == ["firing", "clear", "clear"]


def test_of_several_engines_one_may_stall():
    """Each has a heartbeat of its own, and connections tell nothing of one while another moves."""
    looks = [
        seen(s, engine(1000 + s), engine(5000 + (s > 0), name="1", running=1.0), fds=50.0 + s)
        for s in range(0, 100, 5)
    ]
    said = stalls(looks)
    assert first_firing(said, "0") is None
    assert first_firing(said, "1")[0] == 25


def test_a_lost_gpu_that_is_found_to_be_anothers_is_no_reason_against_a_restart():
    """Its server is known from a look on at which the GPUs are as they were at the last."""
    heard, gpus = Heard(Detector(Settings())), (gpu("a"), gpu("b", lost=True))
    watch = Watch("x", detectors={"it": heard})
    for look in (*HEALTHY, *frozen(60, 200)):
        others = frozenset({"b"} if look.t - T >= 150 else ())
        watch.observe(changed(look, gpus=gpus), around=Around(others_gpus=others))
    assert next(s for s, verdicts in heard.said if verdicts[0].restart_advised) == 150


def test_across_lost_time_nothing_is_concluded():
    """After a clock step the silence begins anew."""
    said = stalls([*HEALTHY, *frozen(60, 66), *frozen(9000, 9008)])
    assert first_firing(said, "0") is None


def test_without_counters_nothing_is_known():
    """An engine that shows no counter of its work cannot be judged: unknown, not clear."""
    bare = seen(0).reading.engines[0].__class__(engine="0", requests_running=1.0)
    assert last(stalls([seen(s, bare) for s in range(0, 100, 5)]), "0").state == "unknown"


def test_an_engine_may_hang_that_does_not_say_how_many_run():
    """What waits is work, too."""
    queue = {"running": None, "waiting": 3.0}
    steps = [*range(0, 600, 50), *[600] * 30]
    said = stalls([seen(5 * i, engine(each, **queue)) for i, each in enumerate(steps)])
    verdict = last(said, "0")
    assert (verdict.cause, verdict.severity) == ("hang", "page")
    assert "3 waiting" in verdict.summary


class Remembers(Heard):
    """One whose memory is kept with that of its target."""

    def export_state(self, at_s):
        return self.detector.export_state(at_s)

    def restore(self, state, away_seconds):
        self.detector.restore(state, away_seconds)


def goes_on(before, after):
    """What the next run of the watcher says, which begins with what this one knew at its last look."""
    one, two = (Remembers(Detector(Settings())) for _ in range(2))
    first, then = (Watch("x", detectors={"it": each}) for each in (one, two))
    for each in before:
        first.observe(each)
    assert then.restore(first.export_state(), after[0].t) == []
    for each in after:
        then.observe(each)
    return two.said


LONG = [*HEALTHY, *frozen(60, 161), *[seen(s) for s in range(165, 200, 5)]]


@pytest.mark.parametrize(("away", "first"), [(20, 80), (590, 650), (610, None)])
def test_a_stall_goes_on_in_the_next_run_of_the_watcher(away, first):
    """Counters as they were: it stood still all the time, if that was not too long."""
    before = [*HEALTHY, *frozen(60, 61)]
    found = first_firing(goes_on(before, frozen(60 + away, 60 + away + 60)), "0")
    assert (found and found[0]) == first


@pytest.mark.parametrize(
    ("away", "model", "after"), [(20, "m", 200), (900, "m", 200), (900, "n", 60)]
)
def test_what_an_engine_survived_is_known_to_the_next_run(away, model, after):
    """A stall of 100 s that healed itself: twice that is waited for, of the same model."""
    named = lambda look, name: changed(look, reading=changed(look.reading, engines=tuple(  # noqa: E731
        changed(each, model_name=name) for each in look.reading.engines
    )))  # fmt: skip
    start = 200 + away
    later = [seen(s, engine(9000 + s)) for s in range(start, start + 100, 5)]
    later += [seen(s, engine(9000 + start + 95)) for s in range(start + 100, start + 400, 5)]
    said = goes_on([named(each, "m") for each in LONG], [named(each, model) for each in later])
    advised = next(s for s, (verdict,) in said if verdict.restart_advised)
    assert advised == start + 95 + after


def test_longer_than_twenty_minutes_no_restart_is_put_off():
    """It came back by itself after fifteen; twice that would be half an hour."""
    looks = [*HEALTHY, *frozen(60, 960), *[seen(s, engine(9000 + s)) for s in range(960, 1100, 5)]]
    looks += [seen(s, engine(9000 + 1095)) for s in range(1100, 2900, 5)]
    said = [(s, v) for s, (v,) in stalls(looks) if s >= 1100]
    assert next(s for s, verdict in said if verdict.restart_advised) == 1095 + 1200


def test_an_engine_that_is_gone_is_judged_no_more():
    """One of two; the other goes on to be followed."""
    looks = [seen(s, engine(1000 + s), engine(1000 + s, name="1")) for s in range(0, 60, 5)]
    looks += [seen(s, engine(1055)) for s in range(60, 100, 5)]
    said = stalls([*looks, silent(100)])
    assert {verdict.engine for verdict in said[-1][1]} == {"0"}
    assert first_firing(said, "0") is not None


QUEUES = {  # running; waiting at each look → is it known to be well at the last?
    "those who wait hang up, one by one": (0.0, (5.0, 4.0, 3.0), "clear"),
    "nobody is admitted": (0.0, (5.0, 5.0, 5.0), "unknown"),
    "more come": (0.0, (3.0, 4.0, 5.0), "unknown"),
    "those who wait hang up while others get no token": (4.0, (5.0, 4.0, 3.0), "unknown"),
    "all have gone": (0.0, (2.0, 1.0, 0.0), "clear"),
    "one that waits": (0.0, (1.0, 1.0, 1.0), "unknown"),
    "one that runs": (1.0, (0.0, 0.0, 0.0), "unknown"),
    "idle": (0.0, (0.0, 0.0, 0.0), "clear"),
}


@pytest.mark.parametrize(("running", "waiting", "state"), QUEUES.values(), ids=QUEUES)
def test_work_without_a_step_is_neither_well_nor_found_at_once(running, waiting, state):
    """Nor is it clear: an incident that is open stays open until something moves."""
    looks = [
        seen(60 + 2 * n, engine(1600, running=running, waiting=each))
        for n, each in enumerate(waiting)
    ]
    assert last(stalls([*HEALTHY[:-1], *looks]), "0").state == state


def test_one_look_without_a_step_is_not_clear():
    """The first already: a finding that is open must not end by it."""
    said = stalls([*HEALTHY, seen(60, engine(1550))])
    assert [verdict.state for _, (verdict,) in said[-2:]] == ["clear", "unknown"]


def created(look, at):
    """This look at an engine that began at Unix time `at`."""
    engines = tuple(changed(each, created_time=at) for each in look.reading.engines)
    return changed(look, reading=changed(look.reading, engines=engines))


def test_an_engine_that_was_started_anew_is_followed_from_then_on():
    """Its counters begin at what they were by chance: that it stood still before is not said of it."""
    old = [created(look, T) for look in [*HEALTHY, *frozen(60, 66)]]
    new = [created(look, T + 67) for look in frozen(70, 90)]
    assert first_firing(stalls([*old, *new]), "0")[0] == 80


def test_what_another_version_kept_is_left_out():
    """It is not taken for what it is not; nothing has changed by it."""
    detector = Detector(Settings())
    judge(detector, LONG)
    kept, fresh = detector.export_state(0.0), Detector(Settings())
    for take in (lambda state: fresh.restore(state, 0.0), fresh.inherit):
        with pytest.raises(stored.DAMAGE):
            take(kept | {"version": 1})
    assert fresh.export_state(0.0) == Detector(Settings()).export_state(0.0)


PAUSES = {  # seconds without a step, each of which ended by itself → after how many it is told
    "two are chance": ((10, 10), 8.0),
    "three are usual": ((10, 10, 10), 15.0),
    "... the third longest counts": ((19, 17, 10, 3), 15.0),
    "three that are short": ((4, 4, 4), 8.0),
}


@pytest.mark.parametrize(("pauses", "notice_s"), PAUSES.values(), ids=PAUSES)
def test_how_long_a_pause_is_usual_here(pauses, notice_s):
    """By half longer than three of the last ones were."""
    second, steps, looks = 0, 1000, []
    for pause_s in (*pauses, 40):
        for _ in range(5):
            second, steps = second + 1, steps + 10
            looks.append(seen(second, engine(steps)))
        began = second
        for _ in range(pause_s):
            second += 1
            looks.append(seen(second, engine(steps)))
    told = [s - began for s, (v,) in stalls(looks) if v.state == "firing" and s >= began]
    assert told[0] == notice_s


@pytest.mark.parametrize(("model", "after"), [("m", 200), ("n", 60)])
def test_what_an_engine_survived_is_known_after_its_restart(model, after):
    """As long as it serves the same."""

    def made(look, name, created):
        engines = tuple(
            changed(each, model_name=name, created_time=created) for each in look.reading.engines
        )
        return changed(look, reading=changed(look.reading, engines=engines))

    later = [seen(s, engine(9000 + min(s, 295))) for s in range(200, 700, 5)]
    said = stalls(
        [*(made(each, "m", T) for each in LONG), *(made(each, model, T + 197) for each in later)]
    )
    assert next(s for s, (verdict,) in said if s > 200 and verdict.restart_advised) == 295 + after


def test_the_core_that_hangs_is_named_with_its_pid():
    """As it was last seen: a look at its processes may fail. Another process's is not taken for it."""
    core = (EngineCpu(engine="0", waited_seconds=0.0, core="VLLM::EngineCore (PID 77)"),)
    named = [created(changed(look, cpu=core), T) for look in HEALTHY]
    _, verdict = first_firing(stalls([*named, *(created(look, T) for look in frozen(60, 90))]), "0")
    said = next(each for each in verdict.evidence_for if each.name == "engine_core")
    step = STORY.first_step_of("hang", advised=False, known=[said.text])
    assert "(py-spy dump --pid 77)" in step
    anew = [created(look, T + 61) for look in frozen(62, 90)]
    _, verdict = first_firing(stalls([*named, *anew]), "0")
    assert [each for each in verdict.evidence_for if each.name == "engine_core"] == []


@pytest.mark.parametrize("several", [False, True])
def test_a_core_that_only_the_driver_shows_is_the_only_engines(several):
    """It does not say of which engine a core is; of several the others run elsewhere."""
    heard = Heard(Detector(Settings()))
    watch = Watch("x", detectors={"it": heard})
    for look in (*HEALTHY, *frozen(60, 90)):
        (one,) = look.reading.engines
        engines = (one, changed(one, engine="1")) if several else (one,)
        seen_ = changed(look, reading=changed(look.reading, engines=engines))
        watch.observe(seen_, around=Around(core="VLLM::EngineCore (PID 9)"))
    _, verdict = first_firing(heard.said, "0")
    assert ("engine_core" in {each.name for each in verdict.evidence_for}) is not several


FETCHES = {
    "0.32 and later": {"num_requests_kv_fetch_by_stage": {"in_progress": 3.0}},
    "before": {"requests_waiting_by_reason": {"deferred": 3.0, "capacity": 0.0}, "kv_transfers": {"nixl_xfer_time_seconds": 9.0}},
}  # fmt: skip


@pytest.mark.parametrize("fields", FETCHES.values(), ids=FETCHES)
def test_who_waits_for_kv_from_another_server_is_not_to_be_restarted(fields):
    """A healthy decode whose prefill server stands still, for twenty minutes."""
    said = stalls([*HEALTHY, *frozen(60, 1260, running=0.0, waiting=3.0, kv=0.0, **fields)])
    second, verdict = first_firing(said, "0")
    assert (second, verdict.cause, verdict.severity) == (120, "peer_wait", "page")
    assert verdict.summary == "3 requests wait for KV from another server; none has run for 60 s"
    assert "waits_for_kv" in [each.name for each in verdict.evidence_for]
    assert not any(each.restart_advised for _, verdicts in said for each in verdicts)
    watch = Watch("x")
    for each in [*HEALTHY, *frozen(60, 75, running=0.0, waiting=3.0, kv=0.0, **fields)]:
        watch.observe(each)
    assert watch.signals.state == "prefilling"
    assert "wait for KV from another server" in watch.signals.state_text
