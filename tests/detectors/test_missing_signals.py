"""Whatever a vLLM does not export: no healthy engine is called ill for it, and no illness by another's name."""

from dataclasses import fields, replace
from functools import cache

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from benchmarks.lab.virtual import observations
from tests.examples import examples
from vllm_watch.incidents.incident import OPENED, RESOLVED
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import ServerSample
from vllm_watch.watch.host_watch import SiteWatch

ENGINE_FIELDS = (
    "requests_running", "requests_waiting", "kv_cache_usage", "preemptions", "prompt_tokens",
    "generation_tokens", "request_success", "iteration_tokens", "inter_token_latency", "ttft",
    "request_prompt_tokens", "request_generation_tokens", "prefix_cache_queries", "prefix_cache_hits",
    "cache_config_info", "created_time", "process_start_time", "engine_sleep_state",
)  # fmt: skip
SERVER_FIELDS = (
    "process_start_time", "process_open_fds", "process_resident_memory_bytes", "sleeping", "version",
)  # fmt: skip
LOOK_FIELDS = ("health", "gpus", "monotonic_s")
REMOVABLE = tuple(
    (scope, name)
    for scope, names in (("engine", ENGINE_FIELDS), ("server", SERVER_FIELDS), ("look", LOOK_FIELDS))
    for name in names
)  # fmt: skip
STORY_SECONDS = 400.0
HEALTHY = ("healthy", "pooling", "prefill_only", "legacy", "sleep_wake", "pause")
KIND_OF = {
    "slow": "throughput_collapse", "pinning": "throughput_collapse", "hang": "engine_stalled",
    "admission_deadlock": "engine_stalled", "crash": "engine_down", "api_hang": "engine_down",
    "overload": "overload",
}  # fmt: skip


@cache
def story(name):
    return tuple(observations(name, STORY_SECONDS, 5.0))


def without(observation, removed):
    """The look without some of what it carried."""
    gone = {
        scope: {n: None for s, n in removed if s == scope} for scope in ("engine", "server", "look")
    }
    reading = observation.reading
    if reading is not None:
        reading = replace(
            reading,
            engines=tuple(replace(each, **gone["engine"]) for each in reading.engines),
            server=replace(reading.server, **gone["server"]),
        )
    return replace(observation, reading=reading, **gone["look"])


def kinds(name, removed, from_look=0):
    """The kinds of incidents that are opened when some signals are gone from a look on."""
    watch, opened = SiteWatch(), []
    for number, observation in enumerate(story(name)):
        seen = without(observation, removed) if number >= from_look else observation
        opened += [e.incident.kind for e in watch.look(seen) if e.event == OPENED]
    assert watch.failures == {}
    return set(opened)


def causes(name, removed, from_look):
    """The causes that are ever given."""
    watch, given = SiteWatch(), set()
    for number, observation in enumerate(story(name)):
        seen = without(observation, removed) if number >= from_look else observation
        given |= {each.incident.cause for each in watch.look(seen)}
    return given


def test_the_fields_exist():
    """A field that was renamed would be removed from nothing."""
    assert set(ENGINE_FIELDS) <= {field.name for field in fields(EngineSample)}
    assert set(SERVER_FIELDS) <= {field.name for field in fields(ServerSample)}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("one", REMOVABLE, ids="-".join)
def test_one_signal_less_makes_no_incident(name, one):
    """Each alone, on engines that are well."""
    assert kinds(name, (one,)) == set()


@pytest.mark.parametrize("name", ["slow", "pinning", "hang", "crash"])
@pytest.mark.parametrize("one", REMOVABLE, ids="-".join)
def test_one_signal_less_gives_no_wrong_kind(name, one):
    """Each alone, on engines that are ill: found or not, but never under another name."""
    assert kinds(name, (one,)) - {"overload"} <= {KIND_OF[name]}


subsets = st.sets(st.sampled_from(REMOVABLE), max_size=8).map(sorted)


@given(name=st.sampled_from(HEALTHY), removed=subsets, from_look=st.integers(0, 60))
@examples(40, suppress_health_check=[HealthCheck.too_slow])
def test_any_signals_less_make_no_incident(name, removed, from_look):
    """Several at once, from the start or from some moment on."""
    assert kinds(name, removed, from_look) == set()


def of_engine(fields):
    return [("engine", field) for field in fields.split()]


BLIND = of_engine("generation_tokens kv_cache_usage prompt_tokens")
LIGHTER = of_engine("kv_cache_usage requests_waiting")
NO_PROMPTS = of_engine("kv_cache_usage prompt_tokens")
NO_HEARTBEAT = of_engine("generation_tokens iteration_tokens kv_cache_usage request_prompt_tokens")


@example(name="admission_deadlock", removed=BLIND, from_look=0)
@example(name="admission_deadlock", removed=LIGHTER, from_look=25)
@example(name="api_hang", removed=NO_PROMPTS, from_look=25)
@example(name="hang", removed=NO_PROMPTS, from_look=74)
@example(name="overload", removed=NO_PROMPTS, from_look=40)
@example(name="pinning", removed=NO_HEARTBEAT, from_look=15)
@given(name=st.sampled_from(sorted(KIND_OF)), removed=subsets, from_look=st.integers(0, 60))
@examples(40, suppress_health_check=[HealthCheck.too_slow])
def test_any_signals_less_give_no_wrong_kind(name, removed, from_look):
    """Several at once, from the start or from some moment on."""
    assert kinds(name, removed, from_look) - {"overload"} <= {KIND_OF[name]}


GONE_WITH = {
    "slow": "iteration_tokens inter_token_latency", "hang": "requests_running",
    "admission_deadlock": "requests_running", "overload": "requests_waiting", "pinning": "generation_tokens",
}  # fmt: skip


@pytest.mark.parametrize(("name", "gone"), GONE_WITH.items())
def test_what_is_not_seen_any_more_has_not_ended(name, gone):
    """An open incident whose signals vanish stays open: nobody saw it end."""
    removed = tuple(("engine", field) for field in gone.split())
    watch, opened_at, ended = SiteWatch(), None, []
    for number, observation in enumerate(story(name)):
        seen = observation if opened_at is None else without(observation, removed)
        events = watch.look(seen)
        if opened_at is None and any(
            e.incident.kind == KIND_OF[name] and e.event == OPENED for e in events
        ):
            opened_at = number
        ended += [e for e in events if e.event == RESOLVED and e.incident.kind == KIND_OF[name]]
    assert opened_at is not None
    assert ended == []


@pytest.mark.parametrize("from_look", [0, 20, 28, 31])
@pytest.mark.parametrize(
    "gone", ["kv_cache_usage", "requests_waiting", "kv_cache_usage requests_waiting"]
)
def test_a_pinned_engine_that_is_seen_in_part_is_not_named_a_slow_one(gone, from_look):
    """Few requests with long contexts take long steps: a restart would cost them, and cure nothing."""
    assert "slow_engine" not in causes("pinning", of_engine(gone), from_look)
