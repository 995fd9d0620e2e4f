"""Each rule speaks where its story is told, in numbers, and is silent where anything it needs is unknown."""

from dataclasses import replace
from math import inf

import pytest

from vllm_watch.advice.rules import RULES, AttentionBackend, Evidence, HostGpus
from vllm_watch.samples.engine import Histogram

GIB = 1 << 30
CONFIG = {
    "gpu_memory_utilization": "0.5", "enable_prefix_caching": "True", "cache_dtype": "auto",
    "kv_cache_memory_bytes": "None", "num_gpu_blocks_override": "None",
}  # fmt: skip
BOUNDS = (1.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, inf)


def sizes(count, mean, *cumulative):
    return Histogram(count, count * mean, BOUNDS, tuple(float(each) for each in cumulative))


PROMPTS = sizes(1000, 300, 0, 300, 900, 1000, 1000, 1000, 1000)
GENERATIONS = sizes(1000, 100, 0, 500, 1000, 1000, 1000, 1000, 1000)
CALM = Evidence(
    engine="0", seconds=3600.0, scrapes=720, config=CONFIG, max_model_len=4096, capacity_tokens=40_000.0,
    full_ratio=0.0, waiting_ratio=0.0, short_ratio=0.0, running_full=None, running_max=20.0,
    finished=5000.0, preemptions=0.0, prompts=PROMPTS, generations=GENERATIONS,
    gpus=HostGpus(names=("NVIDIA H100",), total_bytes=80 * GIB, free_bytes=38 * GIB, idle=0),
)  # fmt: skip
STARVED = replace(CALM, full_ratio=0.4, short_ratio=0.3, waiting_ratio=0.3, running_full=90.0, running_max=110.0)  # fmt: skip
FULL_GPU = HostGpus(("NVIDIA H100",), 80 * GIB, 6 * GIB, 0)
THRASHED = replace(STARVED, preemptions=900.0, gpus=FULL_GPU, config=CONFIG | {"gpu_memory_utilization": "0.92"})  # fmt: skip
BEHIND = replace(CALM, waiting_ratio=0.8, gpus=HostGpus(("NVIDIA H100",), 80 * GIB, 6 * GIB, 3))
ALIKE = sizes(1000, 900, 0, 0, 5, 700, 1000, 1000, 1000)
OFF = replace(CALM, config=CONFIG | {"enable_prefix_caching": "False"})
UNUSED = replace(CALM, max_model_len=32_768)
XFORMERS = AttentionBackend("XFORMERS", "Cannot use FlashAttention-2 backend because the flash_attn package is not found")  # fmt: skip


def said(evidence):
    return [(advice.rule, advice.flag, advice.value) for rule in RULES for advice in rule(evidence)]


SPEAKS = {
    "a starved cache": (STARVED, ("kv_starved", "--gpu-memory-utilization", "0.89")),
    "starved, up to vLLM's own default": (
        replace(STARVED, gpus=replace(STARVED.gpus, free_bytes=70 * GIB)), ("kv_starved", "--gpu-memory-utilization", "0.92"),
    ),
    "thrash": (THRASHED, ("preemptions", "--max-num-seqs", "100")),
    "GPUs beside it": (BEHIND, ("gpus_idle", "--data-parallel-size", "4")),
    "GPUs beside a full one": (replace(BEHIND, full_ratio=0.5), ("gpus_idle", "--tensor-parallel-size", "4")),
    "prompts that begin alike": (replace(OFF, prompts=ALIKE), ("prefix_caching_off", "--enable-prefix-caching", None)),
    "images that repeat": (replace(OFF, media_hit_ratio=0.6), ("prefix_caching_off", "--enable-prefix-caching", None)),
    "prompts that another cache knew": (replace(OFF, external_hit_ratio=0.3), ("prefix_caching_off", "--enable-prefix-caching", None)),
    "a context that nobody uses": (UNUSED, ("context_unused", "--max-model-len", "3072")),
    "slow attention": (replace(CALM, attention=XFORMERS), ("attention_fallback", "--attention-backend", "FLASH_ATTN")),
}  # fmt: skip


@pytest.mark.parametrize(("evidence", "expected"), SPEAKS.values(), ids=SPEAKS)
def test_it_speaks(evidence, expected):
    """One advice, of that flag, with numbers in what was seen."""
    assert said(evidence) == [expected]
    (advice,) = (advice for rule in RULES for advice in rule(evidence))
    assert advice.why
    assert expected[0] == "attention_fallback" or any(each.isdigit() for each in advice.text)


SILENT = {
    "all is well": CALM,
    "starved for some minutes": replace(STARVED, seconds=500.0),
    "starved, and GPUs unknown": replace(STARVED, gpus=None),
    "starved, and the GPU full": replace(STARVED, gpus=FULL_GPU),
    "starved, by a size in bytes": replace(STARVED, config=CONFIG | {"kv_cache_memory_bytes": "1073741824"}),
    "starved, of several engines": replace(STARVED, engines=2),
    "starved, and no configuration": replace(STARVED, config={}),
    "starved by a little": replace(STARVED, config=CONFIG | {"gpu_memory_utilization": "0.9"}),
    "full without waiting": replace(CALM, full_ratio=0.9, running_full=90.0),
    "preemptions among very many": replace(THRASHED, finished=100_000.0),
    "preemptions of a few long requests": replace(THRASHED, running_full=40.0),
    "preemptions, and lengths without sums": replace(THRASHED, prompts=replace(PROMPTS, sum=None)),
    "preemptions, and lengths unknown": replace(THRASHED, prompts=None),
    "preemptions that no limit cures": replace(THRASHED, running_max=95.0),
    "preemptions unknown": replace(THRASHED, preemptions=None),
    "GPUs beside one that keeps up": replace(BEHIND, waiting_ratio=0.3),
    "GPUs beside two": replace(BEHIND, gpus=replace(BEHIND.gpus, names=("a", "a"))),
    "GPUs beside several engines": replace(BEHIND, engines=2),
    "prompts of all lengths": OFF,
    "prompts that begin alike, and caching is on": replace(CALM, prompts=ALIKE),
    "prompts that begin alike, and few": replace(OFF, prompts=replace(ALIKE, count=100.0)),
    "long prompts of all lengths": replace(OFF, prompts=sizes(1000, 3000, 0, 0, 5, 200, 400, 900, 1000)),
    "a model of states": replace(OFF, prompts=ALIKE, config=OFF.config | {"mamba_block_size": "512"}),
    "an unused context for some minutes": replace(UNUSED, seconds=1200.0),
    "an unused context that would hurt nobody": replace(UNUSED, capacity_tokens=400_000.0),
    "a context that is used": replace(UNUSED, prompts=replace(PROMPTS, cumulative=(0.0, 0.0, 0.0, 0.0, 0.0, 1000.0, 1000.0))),
    "a context beyond the last bound": replace(UNUSED, prompts=replace(PROMPTS, cumulative=(0.0,) * 6 + (1000.0,))),
    "slow attention on a card that has no other": replace(CALM, attention=XFORMERS, gpus=replace(CALM.gpus, names=("Tesla T4",))),
}  # fmt: skip


@pytest.mark.parametrize("evidence", SILENT.values(), ids=SILENT)
def test_it_is_silent(evidence):
    assert said(evidence) == []
