"""Each story shows what its title says, in the records that virtual time hands out."""

import pytest

from benchmarks.lab.virtual import EPOCH, observations
from vllm_watch.lab.stories import STORIES

HEALTHY_T, TROUBLE_T, END_T = 110, 290, 700  # just before the trouble, late in it, long after it


def seen(story, t, seed=1):
    """The looks at the only server of a story up to `t`, every 5 s."""
    return list(observations(story, t + 0.1, seed=seed))


def engine(observation, index=0):
    return observation.reading.engines[index]


def at(looks, t):
    return next(look for look in reversed(looks) if look.t - EPOCH <= t)


def tokens_per_second(looks, begin_t, end_t):
    first, last = engine(at(looks, begin_t)), engine(at(looks, end_t))
    return (last.generation_tokens - first.generation_tokens) / (end_t - begin_t)


@pytest.mark.parametrize("story", STORIES)
def test_a_seed_determines_a_story(story):
    """Two tellings with one seed are equal to the last digit, and another seed differs."""
    told = list(observations(story, 150))
    assert told == list(observations(story, 150))
    if story != "cold_start":
        assert told != list(observations(story, 150, seed=2))


@pytest.mark.parametrize("story", STORIES)
def test_counters_only_grow_between_restarts(story):
    """Of one process and one set of counters no number ever falls."""
    last = {}
    for look in observations(story, END_T):
        for each in look.reading.engines if look.reading else ():
            life = (look.target, each.engine, each.created_time, each.process_start_time)
            now = (
                each.prompt_tokens, each.generation_tokens, each.preemptions,
                each.iteration_tokens.count, *each.inter_token_latency.cumulative,
                sum((each.request_success or {}).values()),
            )  # fmt: skip
            before = last.get(life, now)
            assert all(a <= b for a, b in zip(before, now, strict=True)), life
            last[life] = now


def test_sleep_levels_and_wake():
    """The sleep state says which level holds, and no request runs meanwhile."""
    looks = seen("sleep_wake", 720)
    states = {t: engine(at(looks, t)).engine_sleep_state for t in (100, 300, 400, 650)}

    assert [max(state, key=state.get) for state in states.values()] == [
        "awake", "weights_offloaded", "awake", "discard_all",
    ]  # fmt: skip
    assert at(looks, 300).reading.server.sleeping
    assert engine(at(looks, 300)).requests_running == 0
    assert tokens_per_second(looks, 200, 350) == 0
    assert tokens_per_second(looks, 380, 460) > 100
    gpus = {t: at(looks, t).gpus[0].memory_used_bytes for t in (100, 300)}
    assert gpus[300] < 0.1 * gpus[100]


def test_elastic_scale_up_counts_anew_in_the_same_process():
    """Four engines instead of two; counters from zero; the process is the old one."""
    looks = seen("elastic_scale_up", 200)
    before, after = at(looks, HEALTHY_T), at(looks, 130)

    assert [len(look.reading.engines) for look in (before, after)] == [2, 4]
    assert engine(after).generation_tokens < engine(before).generation_tokens
    assert engine(after).created_time > engine(before).created_time
    assert after.reading.server.process_start_time == before.reading.server.process_start_time
    assert all(each.generation_tokens > 0 for each in looks[-1].reading.engines)


def test_sigterm_update_lingers_behind_a_closed_port():
    """Refused with requests in flight, while the same process lives on; then another one loads."""
    looks = list(observations("sigterm_update", 260, 1.0))
    number = next(i for i, look in enumerate(looks) if look.scrape.outcome == "refused")
    last, first, later = looks[number - 1], looks[number], looks[number + 60]

    assert engine(last).requests_running >= 1
    assert (first.process.pid, first.process.alive) == (last.process.pid, True)
    assert (later.process.pid, later.process.alive) == (last.process.pid + 1, True)
    assert looks[-1].scrape.outcome == "ok"


def test_demo_shows_every_kind_of_server_and_a_fault_within_half_a_minute():
    """Data parallel, V0, and one that hangs after 20 s and recovers."""
    looks = list(observations("demo", 100, interval_s=1.0))
    last = {look.target: look for look in looks if look.t - EPOCH < 60}

    assert {name: look.reading.engine_kind for name, look in last.items()} == {
        "chat": "V1", "search": "V1", "batch": "V1", "legacy": "V0",
    }  # fmt: skip
    assert len(last["search"].reading.engines) == 2
    tokens = {
        t: max(
            engine(k).generation_tokens for k in looks if k.target == "batch" and k.t - EPOCH < t
        )
        for t in (22, 60, 100)
    }
    assert tokens[22] == tokens[60] < tokens[100]


def test_shutdown_timeout_update_finishes_and_aborts():
    """What runs ends, what comes is counted as aborted, and then nothing listens."""
    looks = list(observations("shutdown_timeout_update", 260, 1.0))
    number = next(i for i, look in enumerate(looks) if look.scrape.outcome == "refused")
    drained, before = engine(looks[number - 1]), engine(at(looks, HEALTHY_T))

    assert drained.request_success["abort"] > before.request_success["abort"] == 0
    assert drained.requests_running <= 1
    assert drained.requests_waiting == 0
    assert looks[-1].scrape.outcome == "ok"
