"""Every field that a vLLM offers is read, whatever its release calls it, and none is made up."""

import time
import tracemalloc
import weakref
from dataclasses import fields
from math import inf
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from vllm_watch.samples.engine import FIELDS, EngineSample, Histogram, Kind
from vllm_watch.sources import exposition
from vllm_watch.sources.exposition import Parser
from vllm_watch.sources.reading import (
    BUCKETS_MAX,
    ENGINES_MAX,
    LABEL_VALUES_MAX,
    NAME_CHARACTERS_MAX,
    Reader,
)

CAPTURES = {path.stem: path for path in sorted((Path(__file__).parent / "captures").glob("*.txt"))}
WITHOUT_VLLM = ("0.33.0-v1-disable-log-stats", "0.5.4-v0-default-no-vllm-metrics")


def read(name):
    return Reader().read(CAPTURES[name].read_text(), openmetrics="openmetrics" in name)


def wire(name):
    """(series name, labels, value) of a capture, as prometheus_client reads it."""
    parse = parse_openmetrics if "openmetrics" in name else parse_text
    return [s for family in parse(CAPTURES[name].read_text()) for s in family.samples]


@pytest.mark.parametrize("name", CAPTURES)
def test_every_family_of_a_capture_has_a_field_with_its_value(name):
    """Nothing of vLLM's is left out: each series' number is found in the field that is its own; V0 and V1 are told apart."""
    reading, samples = read(name), wire(name)

    assert reading.unknown_families == ()
    assert reading.engine_kind == (
        None if name in WITHOUT_VLLM else "V0" if "-v0" in name else "V1"
    )
    for field_name, field in FIELDS.items():
        for engine in reading.engines:
            expected = expected_value(field, engine.engine, samples)
            assert plain(getattr(engine, field_name)) == pytest.approx(expected), field_name


def expected_value(field, engine, samples):
    """The field's value by the plainest reading of the wire: first name that is there, all its series."""
    if field.kind is Kind.FAMILIES:
        rows = [s for s in samples if s.labels.get("engine", engine) == engine]
        found = {
            name.removeprefix("vllm:").removesuffix("_total"): s.value
            for name in field.names
            for s in rows
            if s.name in (name, name + "_count")
        }
        return found or None
    for name in field.names:
        rows = [
            s for s in samples
            if s.name in (name, name + "_sum", name + "_count", name + "_bucket")
            and (s.labels.get("engine", engine) == engine or field.kind is Kind.INFO)
        ]  # fmt: skip
        if not rows or any("pid" in s.labels for s in rows):
            continue
        match field.kind:
            case Kind.SUM:
                return sum(s.value for s in rows)
            case Kind.MAX:
                return max(s.value for s in rows)
            case Kind.LABELLED:
                values = {s.labels[field.label] for s in rows}
                return {v: sum(s.value for s in rows if s.labels[field.label] == v) for v in values}
            case Kind.HISTOGRAM:
                of = {
                    s.name.removeprefix(name): s.value
                    * (1 if s.name.endswith("_count") else field.scale)
                    for s in rows
                }
                return {"count": of["_count"], "sum": of["_sum"]}
        newest = max(rows, key=lambda s: s.value)
        return {k: v for k, v in newest.labels.items() if k != "engine"}
    return None


def plain(value):
    return {"count": value.count, "sum": value.sum} if isinstance(value, Histogram) else value


def test_data_parallel_engines_are_engines_of_their_own():
    """Each engine label is an engine; what has no such label stands on each."""
    reading = read("0.33.0-v1-dp2")

    assert [engine.engine for engine in reading.engines] == ["0", "1"]
    assert len({engine.generation_tokens for engine in reading.engines}) == 2
    assert reading.engines[0].http == reading.engines[1].http != {}


def test_an_engine_of_which_only_the_configuration_is_left_is_not_invented():
    """vLLM 0.9.2 loses all data-parallel engines' series but the last one's."""
    reading = read("0.9.2-v1-dp2-bug")

    assert [engine.engine for engine in reading.engines] == ["1"]
    assert reading.engines[0].cache_config_info["num_gpu_blocks"] == "27880"


RAY = """\
# TYPE ray_vllm_num_requests_running gauge
ray_vllm_num_requests_running{model_name="m",engine="0",WorkerId="w1",ReplicaId="r1"} 4.0
ray_vllm_num_requests_running{model_name="m",engine="0",WorkerId="w2",ReplicaId="r2"} 5.0
# TYPE ray_vllm_generation_tokens counter
ray_vllm_generation_tokens{model_name="m",engine="0",WorkerId="w1",ReplicaId="r1"} 100.0
ray_vllm_generation_tokens{model_name="m",engine="0",WorkerId="w2",ReplicaId="r2"} 200.0
ray_vllm_time_to_first_token_seconds_bucket{model_name="m",engine="0",ReplicaId="r1",le="0.1"} 1.0
ray_vllm_time_to_first_token_seconds_bucket{model_name="m",engine="0",ReplicaId="r1",le="+Inf"} 2.0
ray_vllm_time_to_first_token_seconds_sum{model_name="m",engine="0",ReplicaId="r1"} 0.3
ray_vllm_time_to_first_token_seconds_count{model_name="m",engine="0",ReplicaId="r1"} 2.0
ray_node_cpu_count 8.0
"""


def test_rays_agent_is_read_with_its_prefix():
    """Names with Ray's prefix and without the colon, counters without _total, one engine a replica."""
    reading = Reader().read(RAY)

    assert reading.vllm
    assert {e.engine: (e.requests_running, e.generation_tokens) for e in reading.engines} == {
        "r1/0": (4.0, 100.0), "r2/0": (5.0, 200.0),
    }  # fmt: skip
    assert reading.engines[0].ttft == Histogram(2.0, 0.3, (0.1, inf), (1.0, 2.0))


def test_several_served_models_on_one_engine_are_added():
    """Two model names on one engine share its queue; ratios are not added."""
    body = "".join(
        f'vllm:num_requests_running{{engine="0",model_name="{m}"}} {n}\n'
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="{m}"}} 0.{n}\n'
        for m, n in (("a", 2), ("b", 3))
    )
    engine = Reader().read(body).engines[0]
    assert (engine.requests_running, engine.kv_cache_usage) == (5.0, 0.3)


def test_labels_without_end_are_summed():
    """A server that invents reasons at every scrape cannot fill memory or the metrics."""
    body = "".join(
        f'vllm:request_success_total{{engine="0",finished_reason="r{n}"}} 1\n' for n in range(1000)
    )
    success = Reader().read(body).engines[0].request_success
    assert len(success) == LABEL_VALUES_MAX + 1
    assert (sum(success.values()), success["other"]) == (1000, 1000 - LABEL_VALUES_MAX)


def test_thousands_of_engines_are_read_in_part_and_quickly():
    """The first so many engines are read; what the others say costs next to nothing."""
    body = "".join(f'vllm:num_requests_running{{engine="{n}"}} 1\n' for n in range(5000))
    began = time.process_time()
    assert len(Reader().read(body).engines) == ENGINES_MAX
    assert time.process_time() - began < 3  # it took 7 s when each engine looked at all rows


def test_the_newest_lora_series_is_the_one_that_holds():
    """Old label sets stay on the wire for ever; the value is the time at which each was set."""
    body = """\
vllm:num_requests_running{engine="0"} 1
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1.7e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="new,other",waiting_lora_adapters="x"} 1.8e+09
"""
    assert Reader().read(body).engines[0].lora_requests_info == {
        "max_lora": "4", "running_lora_adapters": "new,other", "waiting_lora_adapters": "x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "the body has no series at all"),
        ("# nothing\n", "the body has no series at all"),
        (CAPTURES["0.33.0-v1-disable-log-stats"].read_text(), "vLLM runs with --disable-log-stats"),
        (
            CAPTURES["0.5.4-v0-default-no-vllm-metrics"].read_text(),
            "vLLM 0.5.4 with its default front end",
        ),
        ('sglang:num_running_reqs{model_name="m"} 1\n', "the metrics of SGLang, not of vLLM"),
        (
            "node_load1 0.5\nnode_boot_time_seconds 1\n",
            "none of its series is vLLM's (it has 2 names, the first is 'node_load1')",
        ),
    ],
)
def test_metrics_that_are_not_vllms_say_so_in_words(body, words):
    """What cannot be read says why, so that a wrong URL or a switched-off vLLM is found at once."""
    reading = Reader().read(body)
    assert not reading.vllm
    assert words in reading.why_not


def test_statistics_switched_off_still_show_the_front_end():
    engine = read("0.33.0-v1-disable-log-stats").engines[0]
    assert engine.http["requests"]["2xx"] > 0
    assert engine.http["request_duration_seconds"]["count"] > 0
    assert engine.process_start_time is not None
    assert engine.requests_running is None


def test_a_family_without_a_field_is_named():
    """A vLLM newer than we know says so, instead of being read in part and in silence."""
    body = 'vllm:num_requests_running{engine="0"} 1\n# TYPE vllm:brand_new histogram\nvllm:brand_new_bucket{le="1"} 2\nvllm:brand_new_count 2\nvllm:also_new_total 1\n'
    assert Reader().read(body).unknown_families == ("vllm:also_new", "vllm:brand_new")


def test_reading_again_after_the_series_changed_binds_anew():
    """A LoRA adapter or an engine that appears or goes is seen at that very scrape."""
    reader = Reader()
    one = 'vllm:num_requests_running{engine="0"} 1\n'
    two = one + 'vllm:num_requests_running{engine="1"} 2\n'

    assert [len(reader.read(body).engines) for body in (one, two, one)] == [1, 2, 1]


def test_every_field_of_the_contract_is_a_field_of_the_sample():
    own = {"engine", "model_name", "http", "created_time"}
    assert set(FIELDS) == {f.name for f in fields(EngineSample)} - own


def test_what_a_stranger_names_and_counts_is_bounded():
    """Names are labels of all that we export, and buckets are kept for a window of minutes."""
    long, family = "x" * 7000, "vllm:time_to_first_token_seconds"
    body = f'vllm:num_requests_running{{engine="{long}",model_name="{long}"}} 1\n' + "".join(
        f'{family}_bucket{{engine="{long}",le="{n}"}} {n}\n' for n in range(3000)
    )
    [engine] = Reader().read(body).engines
    assert (len(engine.engine), len(engine.model_name)) == (NAME_CHARACTERS_MAX,) * 2
    assert (len(engine.ttft.bounds), engine.ttft.count) == (BUCKETS_MAX, 2999)
    invented = "".join(f"vllm:invented_{n} 1\n" for n in range(5000))
    assert len(Reader().read(invented).unknown_families) <= 100


def read_with_peak(body):
    """What a new reader makes of it, and how many bytes that took at most, the body aside."""
    reader = Reader(judged_only=True)
    tracemalloc.start()
    try:
        return reader.read(body), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_unknown_families_of_vllm_are_named_and_not_bound():
    """Thousands of names by its prefix, each with labels: no more than their names is taken."""
    body = "".join(f'vllm:made_{n}_up_total{{engine="{n}",id="{n}"}} 1\n' for n in range(20_000))
    body += 'vllm:num_requests_running{engine="0"} 3\n'
    kept = Parser().parse(body).layout  # so that only what is bound is counted
    reading, peak = read_with_peak(body)
    assert kept.heads
    assert len(reading.unknown_families) == 100
    assert [(each.engine, each.requests_running) for each in reading.engines] == [("0", 3.0)]
    assert peak < 10 * len(body)


def test_the_old_layout_goes_before_a_new_one_is_learnt(monkeypatch):
    """Both at once would be twice the memory, at each look at an engine that never repeats itself."""
    reader, alive = Reader(), []
    reader.read('vllm:num_requests_running{engine="0",id="first"} 1\n')
    (old,) = [weakref.ref(each) for each in exposition._shared.values() if "first" in each.heads[0]]
    learn = exposition._learn

    def learnt(lines):
        alive.append(old())
        return learn(lines)

    monkeypatch.setattr(exposition, "_learn", learnt)
    reader.read('vllm:num_requests_running{engine="0",id="second"} 1\n')
    assert alive == [None]


# What KV connectors, offload and operations export beside the captures: names as vLLM 0.33's source has them.
KV_BODY = """\
vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:nixl_num_failed_transfers_total{engine="0",model_name="m"} 3.0
vllm:nixl_num_kv_expired_reqs_total{engine="0",model_name="m"} 1.0
vllm:mooncake_num_failed_recvs_total{engine="0",model_name="m"} 2.0
vllm:nixl_xfer_time_seconds_bucket{engine="0",model_name="m",le="+Inf"} 40.0
vllm:nixl_xfer_time_seconds_count{engine="0",model_name="m"} 40.0
vllm:nixl_xfer_time_seconds_sum{engine="0",model_name="m"} 0.5
vllm:umbp_transfer_completed_total{engine="0",model_name="m"} 7.0
vllm:sleep_mode_operations_in_flight{engine="0",model_name="m"} 1.0
vllm:num_requests_running{engine="1",model_name="m"} 0.0
http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 4.0
http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"} 5.0
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 6.0
"""


@pytest.mark.parametrize("judged", [False, True])
def test_families_of_one_field_are_kept_apart(judged: bool) -> None:
    """By name; what this engine does not export is not there; an engine without any has none; none is unknown."""
    reading = Reader(judged_only=judged).read(KV_BODY)
    one, two = reading.engines
    assert reading.unknown_families == ()
    if not judged:
        assert one.kv_transfers == {"nixl_xfer_time_seconds": 40.0, "umbp_transfer_completed": 7.0}
        assert one.operations_in_flight == {"sleep_mode_operations_in_flight": 1.0}
    failed = {"nixl_num_failed_transfers": 3.0, "nixl_num_kv_expired_reqs": 1.0, "mooncake_num_failed_recvs": 2.0}  # fmt: skip
    assert one.kv_failures == failed
    assert one.http_responses == two.http_responses == {"5xx": 9.0, "2xx": 6.0}
    assert two.kv_failures is None


# NVIDIA NIM gives vLLM's series without their prefix (its documentation's list); they are read as vLLM's.
NIM_BODY = """\
# TYPE num_requests_running gauge
num_requests_running{model_name="meta/llama-3.1-8b-instruct"} 3.0
num_requests_waiting{model_name="meta/llama-3.1-8b-instruct"} 1.0
num_request_max{model_name="meta/llama-3.1-8b-instruct"} 256.0
gpu_cache_usage_perc{model_name="meta/llama-3.1-8b-instruct"} 0.25
prompt_tokens_total{model_name="meta/llama-3.1-8b-instruct"} 1000.0
generation_tokens_total{model_name="meta/llama-3.1-8b-instruct"} 2000.0
time_to_first_token_seconds_bucket{model_name="meta/llama-3.1-8b-instruct",le="+Inf"} 12.0
time_to_first_token_seconds_count{model_name="meta/llama-3.1-8b-instruct"} 12.0
time_to_first_token_seconds_sum{model_name="meta/llama-3.1-8b-instruct"} 1.5
time_per_output_token_seconds_count{model_name="meta/llama-3.1-8b-instruct"} 200.0
time_per_output_token_seconds_sum{model_name="meta/llama-3.1-8b-instruct"} 4.0
request_finish_total{finished_reason="stop",model_name="meta/llama-3.1-8b-instruct"} 10.0
request_finish_total{finished_reason="abort",model_name="meta/llama-3.1-8b-instruct"} 2.0
request_success_total{model_name="meta/llama-3.1-8b-instruct"} 10.0
request_failure_total{model_name="meta/llama-3.1-8b-instruct"} 2.0
process_start_time_seconds 1.7e+09
"""


def test_the_names_of_nim_are_vllms() -> None:
    reading = Reader().read(NIM_BODY)
    assert (reading.vllm, reading.engine_kind) == (True, None)
    (engine,) = reading.engines
    assert (engine.engine, engine.model_name) == ("0", "meta/llama-3.1-8b-instruct")
    assert (engine.requests_running, engine.requests_waiting, engine.kv_cache_usage) == (3.0, 1.0, 0.25)  # fmt: skip
    assert (engine.prompt_tokens, engine.generation_tokens) == (1000.0, 2000.0)
    assert engine.request_success == {"stop": 10.0, "abort": 2.0}
    assert engine.ttft is not None
    assert engine.inter_token_latency is not None
    assert (engine.ttft.count, engine.inter_token_latency.sum) == (12.0, 4.0)


def test_beside_vllms_own_names_nothing_of_nim_is_renamed() -> None:
    """A gateway's counters may be called the same."""
    both = NIM_BODY + 'vllm:num_requests_running{engine="0",model_name="m"} 7.0\n'
    (engine,) = Reader().read(both).engines
    assert (engine.requests_running, engine.generation_tokens) == (7.0, None)


def test_another_servers_tokens_are_not_vllms() -> None:
    assert not Reader().read("prompt_tokens_total 5.0\ngeneration_tokens_total 6.0\n").vllm


@pytest.mark.parametrize("name", ["stranger", "vllm:num_requests_running"])
def test_a_body_of_new_series_costs_a_few_times_its_length(name):
    """Besides its lines: what is not read has no labels, no label that is not read is kept, and equal ones are one."""
    body = "".join(
        f'{name}{{engine="{n % 64}",model_name="a model of some length",n="{n}"}} 1\n'
        for n in range(20_000)
    )
    assert read_with_peak(body)[1] < 8 * len(body)
