"""NVIDIA NIM gives vLLM's series without their prefix (its documentation's list); they are read as vLLM's."""

from tests.detectors.looks import OK
from vllm_watch.config import load
from vllm_watch.samples.observation import Observation
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.watch import Watch

BODY = """\
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


def test_its_names_are_vllms() -> None:
    reading = Reader().read(BODY)
    assert (reading.vllm, reading.engine_kind) == (True, None)
    (engine,) = reading.engines
    assert (engine.engine, engine.model_name) == ("0", "meta/llama-3.1-8b-instruct")
    assert (engine.requests_running, engine.requests_waiting, engine.kv_cache_usage) == (3.0, 1.0, 0.25)  # fmt: skip
    assert (engine.prompt_tokens, engine.generation_tokens) == (1000.0, 2000.0)
    assert engine.request_success == {"stop": 10.0, "abort": 2.0}
    assert engine.ttft is not None
    assert engine.inter_token_latency is not None
    assert (engine.ttft.count, engine.inter_token_latency.sum) == (12.0, 4.0)


def test_it_is_watched_as_a_vllm() -> None:
    watch = Watch("nim")
    for n in range(3):
        body = BODY.replace("2000.0", str(2000.0 + 100 * n))
        reading = Reader(judged_only=True).read(body)
        watch.observe(Observation(t=5.0 * n, target="nim", scrape=OK, reading=reading))
    assert watch.signals is not None
    assert watch.signals.state == "serving"
    assert watch.signals.engines["0"].generation_tokens_per_second == 20.0


def test_beside_vllms_own_names_nothing_is_renamed() -> None:
    """A gateway's counters may be called the same."""
    both = BODY + 'vllm:num_requests_running{engine="0",model_name="m"} 7.0\n'
    (engine,) = Reader().read(both).engines
    assert (engine.requests_running, engine.generation_tokens) == (7.0, None)


def test_another_servers_tokens_are_not_vllms() -> None:
    assert not Reader().read("prompt_tokens_total 5.0\ngeneration_tokens_total 6.0\n").vllm


def test_its_metrics_lie_below_v1() -> None:
    """Written out, that is no mistake."""
    (target,) = load(None, targets=["nim=http://host:8000/v1/metrics"], environ={}).targets
    assert target.url == "http://host:8000/v1"
