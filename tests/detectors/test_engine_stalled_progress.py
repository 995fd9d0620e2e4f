"""Output, signs of life and silence: when requests in the engine are served, and when they only look so."""

import pytest

from tests.detectors.looks import engine, seen
from vllm_watch.detectors.engine_stalled import Detector, Settings
from vllm_watch.samples.engine import Histogram
from vllm_watch.samples.observation import CanaryCall
from vllm_watch.samples.record import changed
from vllm_watch.watch.watch import Watch

EVERY = pytest.mark.parametrize("every", [1, 5, 15])
CACHE = {"block_size": "16", "num_gpu_blocks": "16384", "kv_cache_size_tokens": "262144"}
ALL_OF_IT = CACHE | {
    "kv_cache_max_concurrency": "1.0"
}  # one request of full length fills the cache
SHORT = {"running": "requests_running", "waiting": "requests_waiting", "kv": "kv_cache_usage"}
RATE = 5000.0  # prompt tokens a second


def served(second, *, done=None, **fields):
    """An engine that has answered one request a second with 4,000 tokens of prompt, computed at RATE."""
    done = float(second if done is None else done)
    named = {name: fields.pop(short) for short, name in SHORT.items() if short in fields}
    told = {
        "prompt_tokens": 4000.0 * done,
        "request_success": {"stop": done, "abort": 0.0},
        "request_prompt_tokens": Histogram(done, 4000.0 * done),
        "prefill_time": Histogram(done, 4000.0 * done / RATE),
        "ttft": Histogram(done, done),
        "cache_config_info": ALL_OF_IT,
    }
    return changed(engine(1000 + 10 * int(done)), **(told | named | fields))


class Told:
    """What a whole Watch told of it."""

    def __init__(self, observations):
        self.watch = Watch("x", detectors={"engine_stalled": Detector(Settings())})
        self.found, self.states = [], {}
        for each in observations:
            for event in self.watch.observe(each):
                self.found.append((each.t - 1_700_000_000.0, event))
            self.states[each.t - 1_700_000_000.0] = self.watch.signals.state
        assert self.watch.failures == {}

    def first(self):
        """(second, kind, cause, severity at its worst) of the first incident."""
        if not self.found:
            return None
        second, event = self.found[0]
        first = event.incident
        worst = min(
            each.incident.severity for _, each in self.found if each.incident.id == first.id
        )
        return second, first.kind, first.cause, worst

    @property
    def advised(self):
        return any(event.incident.restart_advised for _, event in self.found)


def healthy(until, every):
    return [seen(s, served(s, running=2.0)) for s in range(0, until, every)]


def saw(second, start, cycle=45.0):
    """KV usage of a prompt that is thrown away each time before its first token."""
    return 0.02 + 0.96 * (((second - start) % cycle) / cycle)


@EVERY
@pytest.mark.parametrize("cycle", [20.0, 45.0, 70.0])
@pytest.mark.parametrize("chunks_counted", [False, True])
def test_a_prompt_that_is_computed_again_and_again_is_a_livelock(every, cycle, chunks_counted):
    """Only the KV usage moves, or also the count of steps: no token comes out, and everybody waits behind it."""
    looks = healthy(300, every)
    for s in range(300, 800, every):
        fields = {"running": 1.0, "waiting": float(s > 400), "kv": saw(s, 300, cycle)}
        if chunks_counted:
            fields["iteration_tokens"] = Histogram(4000.0 + s, 1.0)
        looks.append(seen(s, served(s, done=300, **fields)))
    told = Told(looks)
    second, *found = told.first()
    assert found == ["engine_stalled", "livelock", "page"]
    assert second - 300 <= 4 * cycle
    assert not told.advised
    assert len({event.incident.id for _, event in told.found}) == 1
    assert told.states[795 if every > 1 else 799] == "stalled"


@EVERY
@pytest.mark.parametrize("known", [True, False])
def test_prompts_without_a_token_are_a_livelock(every, known):
    """Prompt tokens are counted for half an hour; the cache is as full as ever."""
    fields = {"running": 3.0, "kv": 0.4, "cache_config_info": ALL_OF_IT if known else None}
    looks = healthy(300, every)
    looks += [
        seen(s, served(s, done=300, prompt_tokens=1.2e6 + 4000.0 * (s - 300), **fields))
        for s in range(300, 1200, every)
    ]
    told = Told(looks)
    second, *found = told.first()
    assert found == ["engine_stalled", "livelock", "page"]
    longest = 262144 / RATE * (1 + 262144 / 60_000) if known else 600.0
    assert longest <= second - 300 <= longest + 2 * every
    assert not told.advised


COUNTED = {  # how a chunk of a prompt shows in the count of steps
    "not at all": lambda s: 4000.0,
    "each": lambda s: 4000.0 + s,
    "once in each of four API servers": lambda s: 4.0 * (4000.0 + s // 4),
}


@EVERY
@pytest.mark.parametrize("count", COUNTED.values(), ids=COUNTED)
@pytest.mark.parametrize("rate", [RATE, RATE / 4])
def test_a_long_prompt_in_chunks_is_prefilled(every, count, rate):
    """Attention makes the tokens of a long prompt dearer than those of the short ones before."""
    looks = healthy(300, every)
    seconds = int(250_000 / rate)
    for s in range(300, 300 + seconds, every):
        steps = Histogram(count(s - 300), 1.0)
        kv = 0.95 * (s - 300) / seconds
        looks.append(seen(s, served(s, done=300, running=1.0, kv=kv, iteration_tokens=steps)))
    told = Told(looks)
    assert told.found == []
    shown = {word for s, word in told.states.items() if s >= 300 + 2 * every}
    assert shown == {"prefilling"}


def test_clients_that_give_up_before_their_first_token_do_not_fill_the_cache():
    """Each long prompt is cancelled after half a minute, and the next one is answered."""
    looks, aborted, done = healthy(300, 5), 0.0, 300
    for s in range(300, 900, 5):
        within = (s - 300) % 60
        aborted += within == 30
        done += within == 0
        kv = 0.05 + 0.5 * (within % 30) / 30
        ends = {"stop": float(done), "abort": aborted}
        looks.append(seen(s, served(s, done=done, running=1.0, kv=kv, request_success=ends)))
    assert Told(looks).found == []


FETCHED = {"num_requests_kv_fetch_by_stage": {"in_progress": 9.0}}
DEFERRED = {"requests_waiting_by_reason": {"deferred": 9.0}, "external_prefix_cache_queries": 9e3}
OFFLOADED = {"kv_transfers": {"kv_offload_load_bytes": 9e9}}
SET_UP = {"cache_config_info": CACHE | {"kv_offloading_size": "64.0"}}
NIXL = {"kv_transfers": {"nixl_xfer_time_seconds": 9.0}}
WAITS = {
    "0.32 and later, its own offload": (FETCHED | OFFLOADED, "admission_deadlock", True),
    "before, its own offload": (DEFERRED | OFFLOADED, "admission_deadlock", True),
    "its own offload by its configuration alone": (DEFERRED | SET_UP, "admission_deadlock", True),
    "another server, and its own offload": (
        FETCHED | {"kv_transfers": OFFLOADED["kv_transfers"] | NIXL["kv_transfers"]},
        "peer_wait",
        False,
    ),
    "another server": (FETCHED | NIXL, "peer_wait", False),
    "a connector without a name": (FETCHED, "peer_wait", False),
}


@EVERY
@pytest.mark.parametrize(("fields", "cause", "advised"), WAITS.values(), ids=WAITS)
def test_whether_another_server_is_waited_for(every, fields, cause, advised):
    """KV that was offloaded to this host comes from no other: then the scheduler has locked itself up."""
    looks = healthy(300, every)
    still = served(300, running=0.0, waiting=9.0, kv=0.0, **fields)
    looks += [seen(s, still) for s in range(300, 600, every)]
    told = Told(looks)
    _, *found = told.first()
    assert found == ["engine_stalled", cause, "page"]
    assert told.advised is advised


def test_an_offload_that_loads_slowly_is_no_deadlock():
    """None runs for two minutes while the KV of all that wait is read from a disk."""
    looks = healthy(300, 5)
    for s in range(300, 420, 5):
        loaded = {"kv_transfers": {"kv_offload_load_bytes": 1e9 * s}}
        looks.append(seen(s, served(300, running=0.0, waiting=9.0, kv=0.4, **loaded)))
    told = Told([*looks, *[seen(s, served(s - 120)) for s in range(420, 500, 5)]])
    assert told.found == []


def left(start, end, every, *, running, fds, responses, canary=None):
    """Gauges as they were at the last step; `fds` and `responses`: at each second since."""
    return [
        seen(
            s, served(start, running=running, kv=0.5, http_responses={"2xx": responses(s - start)}),
            fds=fds(s - start), canary=canary if s % 30 == 0 else None,
        )
        for s in range(start, end, every)
    ]  # fmt: skip


def busy(until, every, running):
    return [
        seen(s, served(s, running=running, kv=0.5, http_responses={"2xx": float(s)}), fds=50 + running)
        for s in range(0, until, every)
    ]  # fmt: skip


@EVERY
@pytest.mark.parametrize("running", [1.0, 4.0, 120.0])
def test_clients_that_leave_at_once_leave_an_idle_engine(every, running):
    """vLLM to 0.12 does not renew its gauges until the next step."""
    looks = busy(300, every, running)
    looks += left(300, 600, every, running=running, fds=lambda _: 50, responses=lambda _: 300 + running)  # fmt: skip
    told = Told(looks)
    assert told.found == []
    assert {word for s, word in told.states.items() if s >= 330} == {"idle"}
    assert told.watch.canary_wanted == {"0": True}


STAY = {
    "they stay": (lambda _: 110, lambda _: 300),
    "more come": (lambda s: 110 + s, lambda _: 300),
    "they give up one by one, each at its own timeout": (lambda s: max(50, 110 - s), lambda s: 300 + min(60, s)),
    "a pool stays open, and a gateway asks for models": (lambda _: 110, lambda s: 300 + s / 5),
}  # fmt: skip


@EVERY
@pytest.mark.parametrize(("fds", "responses"), STAY.values(), ids=STAY)
def test_a_hang_is_told_as_soon_as_ever_while_clients_are_there(every, fds, responses):
    looks = busy(300, every, 60.0)
    looks += left(300, 500, every, running=60.0, fds=fds, responses=responses)
    told = Told(looks)
    second, *found = told.first()
    assert found == ["engine_stalled", "hang", "page"]
    assert second - 300 <= max(10, every)
    assert told.advised


@pytest.mark.parametrize(("answer", "advised"), [(None, False), ("unanswered", True)])
def test_where_one_witness_says_that_clients_left_a_token_is_asked_before_a_restart_is_advised(
    answer, advised
):
    """All connections closed, as a pool's do, and HTTP has answered nobody."""
    canary = answer and CanaryCall(ok=False, latency_s=10.0, outcome=answer)
    looks = busy(300, 5, 60.0)
    looks += left(300, 600, 5, running=60.0, fds=lambda _: 50, responses=lambda _: 300, canary=canary)  # fmt: skip
    told = Told(looks)
    assert told.first()[1:] == ("engine_stalled", "hang", "page")
    assert told.advised is advised
    assert answer or told.watch.canary_wanted == {"0": True}


@EVERY
@pytest.mark.parametrize(
    ("fds", "advised"),
    [(lambda s: 50 + s, True), (lambda s: 50 + 9 * (s >= 60), False)],
    ids=["requests come one after the other", "an idle pool opens its connections"],
)
def test_new_clients_without_a_token_settle_who_left(every, fds, advised):
    """Clients closed their connections with the last step, and HTTP answered nobody; no canary is configured."""
    looks = busy(300, every, 60.0)
    looks += left(300, 900, every, running=60.0, fds=fds, responses=lambda _: 300)
    told = Told(looks)
    assert told.first()[1:] == ("engine_stalled", "hang", "page")
    assert told.advised is advised


WITNESSES = {"connections": (50, None), "responses": (None, 360)}


@pytest.mark.parametrize(("fds", "responses"), WITNESSES.values(), ids=WITNESSES)
def test_one_witness_is_enough_where_there_is_no_other(fds, responses):
    """Several API servers show no connections, and vLLM to 0.8.2 no responses."""
    looks = busy(300, 5, 60.0) + left(300, 600, 5, running=60.0, fds=lambda _: 50, responses=lambda _: 360)  # fmt: skip
    kept = [_without(each, fds=fds is None, responses=responses is None) for each in looks]
    assert Told(kept).found == []


@EVERY
def test_a_pool_that_goes_on_shrinking_in_a_hang_hides_nothing(every):
    """Connections of a burst close, two a second, and HTTP is not counted: nobody left with the last step."""
    looks = [
        _without(seen(s, served(min(s, 300), running=9.0, kv=0.5), fds=1000 - 2 * s), fds=False, responses=True)
        for s in range(0, 420, every)
    ]  # fmt: skip
    second, *found = Told(looks).first()
    assert found == ["engine_stalled", "hang", "page"]
    assert second - 300 <= max(10, 2 * every)


def test_clients_that_come_to_an_engine_that_was_left_are_not_served():
    """All left at once, it reads idle; others connect, and no step serves them."""
    looks = busy(300, 5, 60.0) + left(300, 420, 5, running=60.0, fds=lambda s: 50 if s < 60 else 50 + s, responses=lambda _: 360)  # fmt: skip
    second, *found = Told([_without(each, fds=False, responses=True) for each in looks]).first()
    assert found == ["engine_stalled", "hang", "page"]
    assert 360 <= second <= 375


def _without(look, *, fds, responses):
    server, (one,) = look.reading.server, look.reading.engines
    server = changed(server, process_open_fds=None) if fds else server
    one = changed(one, http_responses=None) if responses else one
    return changed(look, reading=changed(look.reading, server=server, engines=(one,)))


def test_connections_of_a_server_tell_nothing_of_one_of_its_engines():
    """Those of the other left, and it hangs."""
    looks = [changed(each, reading=changed(each.reading, engines=(*each.reading.engines, engine(1000 + s * 10, name="1"))))
             for s, each in enumerate(busy(300, 5, 6.0) + left(300, 400, 5, running=6.0, fds=lambda _: 20, responses=lambda _: 360))]  # fmt: skip
    assert Told(looks).first()[1:] == ("engine_stalled", "hang", "page")


@EVERY
@pytest.mark.parametrize("resumes", [0, 4, 9, 14])
def test_a_pause_ends_when_a_step_was_seen(every, resumes):
    """Requests are kept for ten minutes; steps begin some seconds after /resume."""
    held = served(300, running=4.0, waiting=9.0)
    looks = healthy(300, every)
    looks += [seen(s, held, paused=True) for s in range(300, 900, every)]
    looks += [
        seen(s, held if s < 900 + resumes else served(s - 600), paused=False)
        for s in range(900, 1200, every)
    ]
    told = Told(looks)
    assert told.found == []
    assert {word for s, word in told.states.items() if 300 <= s < 900} == {"sleeping"}


@EVERY
def test_an_engine_that_makes_no_step_after_its_pause_is_told(every):
    held = served(300, running=4.0, waiting=9.0)
    looks = healthy(300, every) + [seen(s, held, paused=True) for s in range(300, 900, every)]
    looks += [seen(s, held, paused=False) for s in range(900, 1000, every)]
    second, *found = Told(looks).first()
    assert found == ["engine_stalled", "hang", "page"]
    assert 930 <= second <= 930 + every


def test_a_livelock_goes_on_in_the_next_run_of_the_watcher():
    """It is told no later than if nobody had restarted it."""
    looks = healthy(300, 5)
    later = [
        seen(s, served(s, done=300, running=3.0, kv=0.4, prompt_tokens=1e6 + s)) for s in range(300, 900, 5)
    ]  # fmt: skip
    expected = Told([*looks, *later]).first()
    first, then, found = Watch("x"), Watch("x"), []
    for each in [*looks, *later[:20]]:
        first.observe(each)
    assert then.restore(first.export_state(), later[20].t) == []
    for each in later[20:]:
        found += [(each.t - 1_700_000_000.0, event) for event in then.observe(each)]
    second, event = found[0]
    assert (second, event.incident.cause) == (expected[0], "livelock")
    assert "gives no token for 4 min 45 s" in event.incident.summary


@pytest.mark.parametrize("away", [60, 300])
def test_an_engine_that_clients_left_is_idle_after_a_restart_of_the_watcher(away):
    """Some connections were closing before, and more since: that the clients left is not asked again."""
    looks = [
        seen(s, served(s, running=60.0, kv=0.5, http_responses={"2xx": float(s)}), fds=400 - s / 5)
        for s in range(0, 300, 5)
    ]  # fmt: skip
    later = left(300, 900, 5, running=60.0, fds=lambda s: 280 - s / 10, responses=lambda _: 360)
    first, then = Watch("x"), Watch("x")
    for each in [*looks, *later[:20]]:
        assert first.observe(each) == []
    begin = 20 + away // 5
    assert then.restore(first.export_state(), later[begin].t) == []
    for each in later[begin:]:
        assert then.observe(each) == []
    assert then.signals.state == "idle"


def test_a_step_counter_and_a_time_of_its_own_are_signs_of_life():
    """Names to be: the engine lives while either moves, though no other number does."""
    for name in ("engine_steps", "last_engine_iteration", "estimated_flops_per_gpu"):
        looks = healthy(300, 5)
        looks += [
            seen(s, served(300, running=2.0, kv=0.5, **{name: float(s)}))
            for s in range(300, 400, 5)
        ]
        assert Told(looks).found == [], name


def test_what_is_kept_of_another_form_begins_again():
    """A state file of an older version has no progress in it."""
    first, then = Watch("x"), Watch("x")
    for each in healthy(60, 5):
        first.observe(each)
    state = first.export_state()
    del state["engines"]["0"]["progress"]
    assert then.restore(state, 1_700_000_060.0) == []
    assert then.observe(changed(seen(60, served(60)))) == []


NO_TOKEN = CanaryCall(ok=False, latency_s=10.0, outcome="unanswered")


def never_moved(every, *, fds=lambda _: 50, canary=None, waiting=15.0):
    """A new watcher meets gauges that show work; nothing of the engine moves for half an hour."""
    still = served(300, running=106.0, waiting=waiting, kv=0.9)
    return [
        seen(s, still, fds=fds(s), canary=canary if s and s % 30 == 0 else None)
        for s in range(0, 1800, every)
    ]


@EVERY
def test_gauges_that_never_moved_prove_no_work(every):
    """vLLM to 0.12 does not renew its gauges after all clients left; nobody connects since."""
    told = Told(never_moved(every))
    assert told.watch.canary_wanted == {"0": True}
    assert {event.incident.severity for _, event in told.found} <= {"ticket"}
    assert not told.advised
    assert not told.found or told.found[0][0] >= 600
    assert {word for s, word in told.states.items() if 15 <= s < 600} == {"unknown"}


@EVERY
def test_gauges_that_never_moved_page_where_connections_are_unknown(every):
    """Neither a canary nor connections show if anybody waits: a page after ten minutes, and no restart."""
    told = Told([_without(each, fds=True, responses=True) for each in never_moved(every)])
    second, *found = told.first()
    assert found == ["engine_stalled", "hang", "page"]
    assert 600 <= second <= 600 + 2 * every
    assert not told.advised


@EVERY
def test_a_hang_first_met_is_found_by_its_canary(every):
    told = Told(never_moved(every, canary=NO_TOKEN))
    second, *found = told.first()
    assert found == ["engine_stalled", "hang", "page"]
    assert second <= 30
    assert told.advised


@EVERY
def test_a_hang_first_met_is_found_by_clients_that_come(every):
    told = Told(never_moved(every, fds=lambda s: 50 + s / 5))
    second, *found = told.first()
    assert found == ["engine_stalled", "hang", "page"]
    assert second <= 120
    assert told.advised


@EVERY
def test_an_engine_first_met_that_serves_later_was_idle(every):
    """A canary or a user gets its token after some minutes: the gauges are renewed."""
    looks = [each for each in never_moved(every) if each.t < 1_700_000_500.0]
    looks += [seen(s, served(s, running=0.0, kv=0.0)) for s in range(500, 900, every)]
    assert Told(looks).found == []


@EVERY
@pytest.mark.parametrize("lasts", [9, 12, 14])
def test_a_stop_that_ends_by_itself_is_a_ticket_at_most(every, lasts):
    """Every ten minutes all requests stop for some seconds; no user gives up, and nobody is woken."""
    looks, done = [], 0
    for s in range(3600):
        done += s % 600 >= lasts
        if s % every == 0:
            looks.append(seen(s, served(s, done=300 + done, running=9.0)))
    told = Told(looks)
    assert {event.incident.severity for _, event in told.found} <= {"ticket"}
