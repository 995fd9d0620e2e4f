"""From looks to advice: over minutes, across restarts, anew under another configuration, GPUs where certain."""

from dataclasses import replace

import pytest

from tests.signals.holders.series import core, gpu, process
from vllm_watch.advice.adviser import JUDGE_SECONDS, SPAN_SECONDS, Tally, host_gpus
from vllm_watch.advice.rules import AttentionBackend, Evidence, HostGpus, attention_of
from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.observation import Call, Observation, Reading, ServerSample
from vllm_watch.watch.watch import Watch

GIB = 1 << 30
T = 1_770_000_000.0
CONFIG = {"gpu_memory_utilization": "0.5", "block_size": "16", "num_gpu_blocks": "2500"}
STEP = 5.0
SILENT = Observation(t=T, target="x", scrape=Call(outcome="refused", error="refused"))


def engine(second, *, usage=1.0, waiting=4.0, config=CONFIG, rate=2.0, name="0"):
    """An engine that has finished `rate` requests a second of 300 + 100 tokens since its start."""
    done = rate * second
    return EngineSample(
        engine=name, requests_running=90.0, requests_waiting=waiting, kv_cache_usage=usage,
        generation_tokens=100 * done, prompt_tokens=300 * done, preemptions=0.0,
        request_success={"stop": done}, cache_config_info=config,
        request_prompt_tokens=Histogram(done, 300 * done, (500.0, float("inf")), (done, done)),
        request_generation_tokens=Histogram(done, 100 * done, (100.0, float("inf")), (done, done)),
    )  # fmt: skip


def look(t, *engines, gpus=None):
    reading = Reading(vllm=True, engine_kind="V1", engines=engines, server=ServerSample(max_model_len=4096))  # fmt: skip
    return Observation(
        t=t, target="x", scrape=Call(outcome="ok", status=200), reading=reading, gpus=gpus
    )


HALF_EMPTY = (gpu(core(gib=40)),)


def advised(watch, begin, end, make=engine, gpus=HALF_EMPTY):
    """Rules that speak after looks from `begin` to `end` seconds."""
    second = begin
    while second <= end:
        watch.observe(look(T + second, make(second), gpus=gpus))
        second += STEP
    return [each.rule for each in watch.signals.advice]


def test_it_takes_minutes():
    """Nothing at first; then the flag; and it stays while the server is silent."""
    watch = Watch("x", detectors={})
    assert advised(watch, 0, 540) == []
    assert advised(watch, 545, 600 + JUDGE_SECONDS) == ["kv_starved"]
    watch.observe(replace(SILENT, t=T + 700))
    assert [each.rule for each in watch.signals.advice] == ["kv_starved"]


def test_old_work_is_forgotten():
    """After a span it is counted anew; until the new count has seen enough, the old one speaks."""
    watch = Watch("x", detectors={})
    assert advised(watch, 0, SPAN_SECONDS + 400) == ["kv_starved"]
    calm = lambda second: engine(second, usage=0.3, waiting=0.0)  # noqa: E731
    assert advised(watch, SPAN_SECONDS + 405, SPAN_SECONDS + 9 * 3600, calm) == []


LIVE = (
    ("XFormers", ["attention_fallback"]), ("TORCH_SDPA", ["attention_fallback"]),
    ("Flash Attention", []), (None, []),
)  # fmt: skip


@pytest.mark.parametrize(("named", "rules"), LIVE)
def test_attention_kernels_that_the_log_names_while_it_runs(named, rules):
    """In vLLM's own name or in its words; a log that is silent leaves the rule silent."""
    watch = Watch("x", detectors={})
    for second in range(0, 200, 5):
        watch.observe(replace(look(T + second, engine(second)), attention_backend=named))
    assert [each.rule for each in watch.signals.advice] == rules


def test_a_server_that_answers_without_a_series_has_lost_no_engine():
    """It has just started: what was seen before is evidence still."""
    watch = Watch("x", detectors={})
    assert advised(watch, 0, 700) == ["kv_starved"]
    watch.observe(look(T + 705))
    assert advised(watch, 710, 800) == ["kv_starved"]


def test_what_was_counted_before_a_restart_is_added():
    """Of counters and of histograms; what a histogram had counted before the first look is not."""
    tally = Tally(0.0)
    for second, of_life in ((0, 100), (5, 105), (10, 3), (15, 8)):
        tally.add(float(second), replace(engine(of_life), preemptions=float(of_life)))
    evidence = tally.evidence(Evidence(engine="0"))
    assert (evidence.seconds, evidence.finished, evidence.preemptions) == (15.0, 26.0, 13.0)
    assert (evidence.prompts.count, evidence.prompts.sum) == (26.0, 26 * 300.0)


OTHER = process(9, "python3", "train.py")
CERTAIN = {
    "one engine on one GPU, and one idle": (
        (gpu(core(gib=40)), gpu(index=1)), HostGpus(("NVIDIA H100",), int(79.5 * GIB), int(39.5 * GIB), 1),
    ),
    "another process beside it counts as used": (
        (gpu(core(gib=40), OTHER),), HostGpus(("NVIDIA H100",), int(79.5 * GIB), int(19.5 * GIB), 0),
    ),
    "a GPU of another kind is of no use": (
        (gpu(core(gib=40)), gpu(index=1, name="Tesla T4")), HostGpus(("NVIDIA H100",), int(79.5 * GIB), int(39.5 * GIB), 0),
    ),
    "two servers": ((gpu(core(gib=40)), gpu(core(5000, ppid=4999), index=1)), None),
    "no engine": ((gpu(OTHER),), None),
    "not all processes are seen": ((gpu(core(gib=40), processes_complete=False),), None),
    "unknown": (None, None),
}  # fmt: skip


@pytest.mark.parametrize(("gpus", "expected"), CERTAIN.values(), ids=CERTAIN)
def test_the_gpus_of_an_engine(gpus, expected):
    found = host_gpus(gpus)
    assert (found[0] if found else None) == expected


LOGS = {
    "Using XFormers backend.": AttentionBackend("XFORMERS"),
    "INFO 06-01 10:00:00 [cuda.py:275] Using Flash Attention backend on V1 engine.": AttentionBackend("FLASH_ATTN"),
    "(EngineCore) Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN']": AttentionBackend("FLASH_ATTN"),
    "Cannot use FlashAttention-2 backend for Volta and Turing GPUs.\nUsing XFormers backend.": AttentionBackend(
        "XFORMERS", "Cannot use FlashAttention-2 backend for Volta and Turing GPUs",
    ),
    "Starting vLLM API server": None,
}  # fmt: skip


@pytest.mark.parametrize(("log", "expected"), LOGS.items())
def test_the_kernels_that_a_log_names(log, expected):
    assert attention_of(log.splitlines()) == expected


def test_other_flags_are_judged_by_themselves():
    """What was seen under the old ones says nothing of the new ones."""
    watch = Watch("x", detectors={})
    assert advised(watch, 0, 700) == ["kv_starved"]
    other = CONFIG | {"gpu_memory_utilization": "0.6"}
    assert advised(watch, 705, 900, lambda second: engine(second - 700, config=other)) == []


def test_an_engine_that_is_gone_is_forgotten():
    watch = Watch("x", detectors={})
    for second in range(0, 300, 5):
        engines = [engine(second), *([engine(second, name="1")] if second < 200 else [])]
        watch.observe(replace(look(T + second, *engines), attention_backend="XFORMERS"))
        if second == 195:
            assert [each.engine for each in watch.signals.advice] == ["0", "1"]
    assert [each.engine for each in watch.signals.advice] == ["0"]


def test_what_is_absent_is_no_evidence():
    """An engine without these series gets no advice, and no error."""
    watch = Watch("x", detectors={})
    assert advised(watch, 0, 900, lambda second: EngineSample(engine="0")) == []
    assert watch.failures == {}
