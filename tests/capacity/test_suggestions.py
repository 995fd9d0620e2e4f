"""What to change: each suggestion is enough by itself, and the first is the one that costs least."""

from dataclasses import replace

import pytest

from tests.capacity.models import LLAMA_31_8B, LLAMA_33_70B, QWEN3_4B, QWEN3_32B, Config
from tests.capacity.planning import plan
from vllm_watch.capacity.assumptions import assumptions
from vllm_watch.capacity.plan import Plan, with_flags
from vllm_watch.capacity.suggestions import Suggestion, suggestions

# Story, plan, flags that are suggested in order (values in the tests below).
STORIES: tuple[tuple[str, Plan, tuple[str, ...]], ...] = (
    ("a little is missing", plan(LLAMA_31_8B, gpu="RTX 4090", max_model_len=46000),
     ("--gpu-memory-utilization", "--max-model-len", "--max-num-seqs", "--kv-cache-dtype", "--enforce-eager", "--quantization")),
    ("a context four times too long", plan(LLAMA_31_8B, gpu="RTX 4090", max_model_len=131072), ("--max-model-len", "--kv-cache-dtype", "--quantization")),
    ("a second GPU is idle", plan(QWEN3_32B, gpus=2, max_model_len=40960), ("--gpu-memory-utilization", "--max-model-len", "--kv-cache-dtype", "--tensor-parallel-size", "--quantization")),
    ("weights alone are too many", plan(LLAMA_33_70B, max_model_len=8192), ("--tensor-parallel-size", "--model")),
    ("more ranks than GPUs", plan(LLAMA_33_70B, gpus=2, tensor_parallel_size=4), ("--tensor-parallel-size",)),
    ("eight small cards", plan(LLAMA_33_70B, gpu="RTX 3090", max_model_len=8192), ("--tensor-parallel-size",)),
    ("nothing helps", plan(LLAMA_33_70B | {"num_hidden_layers": 2000}, gpu="RTX 3090", max_model_len=8192), ("--gpu-memory-gib",)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("planned", "flags"), [row[1:] for row in STORIES], ids=[row[0] for row in STORIES]
)
def test_flags_in_order(planned: Plan, flags: tuple[str, ...]) -> None:
    """What costs nothing first, then quality and speed, then length, then hardware."""
    assert not planned.fits
    assert tuple(each.flag for each in suggestions(planned)) == flags


def applied(planned: Plan, each: Suggestion) -> Plan:
    flags = planned.settings.flags
    name = each.flag.removeprefix("--").replace("-", "_")
    kept = getattr(flags, name, None)
    value: object = True if each.flag == "--enforce-eager" else each.value
    if name == "gpu_memory_utilization":
        value = float(each.value)
    elif (isinstance(kept, int) and not isinstance(kept, bool)) or name in (
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_model_len",
    ):
        value = int(each.value)
    if name == "tensor_parallel_size":
        planned = replace(planned, machine=replace(planned.machine, count=max(int(each.value), planned.machine.count)))  # fmt: skip
    return with_flags(planned, replace(flags, **{name: value}))


@pytest.mark.parametrize(
    "planned", [row[1] for row in STORIES[:4]], ids=[row[0] for row in STORIES[:4]]
)
def test_each_is_enough(planned: Plan) -> None:
    """Applied alone, it fits; unless it says with what."""
    for each in suggestions(planned):
        if each.flag == "--model":  # another checkpoint: the weights of this one are given
            continue
        assert applied(planned, each).fits == ("; together with" not in each.why), each


def test_utilization_is_never_raised_beyond_the_safe_share() -> None:
    """Above 0.95 CUDA graphs and fragmentation find no room."""
    for planned in [row[1] for row in STORIES]:
        for each in suggestions(planned):
            if each.flag == "--gpu-memory-utilization":
                assert float(each.value) <= 0.95


def test_longest_context_is_the_longest() -> None:
    """One block more than suggested does not fit."""
    planned = STORIES[1][1]
    length = int(suggestions(planned)[0].value)
    flags = planned.settings.flags
    assert with_flags(planned, replace(flags, max_model_len=length)).fits
    assert not with_flags(planned, replace(flags, max_model_len=length + 17)).fits


def test_flags_that_only_help_together() -> None:
    """Where no flag alone is enough, several are named, and with all of them it fits."""
    planned = plan(QWEN3_4B, gpu="?", gib=9.5, max_model_len=40960)
    found = [each for each in suggestions(planned) if each.together]
    assert len(found) > 1
    for each in found:
        assert "; together with --" in each.why
        planned = applied(planned, each)
    assert planned.fits


def test_room_to_spare_is_named() -> None:
    """One request of 1,024 tokens can never fill 17 GiB: the utilization that is enough, or more to serve.

    The case of https://github.com/vllm-project/vllm/issues/33263.
    """
    planned = plan(QWEN3_4B, gpu="RTX 4090", max_model_len=1024, max_num_seqs=1)
    found = {each.flag: each.value for each in suggestions(planned)}
    assert list(found) == ["--gpu-memory-utilization", "--max-model-len", "--max-num-seqs"]
    lower = with_flags(
        planned,
        replace(
            planned.settings.flags, gpu_memory_utilization=float(found["--gpu-memory-utilization"])
        ),
    )
    assert lower.fits
    assert lower.concurrency >= 1


def test_nothing_is_suggested_where_it_is_right() -> None:
    """It fits, and the requests that are allowed could fill the cache."""
    assert suggestions(plan(LLAMA_31_8B, max_model_len=32768)) == ()


NOTES: tuple[tuple[Config, dict[str, object], str], ...] = (
    (LLAMA_31_8B, {"version": "0.99.0"}, "rules as of vLLM 0.32.0: newer ones were not checked"),
    (LLAMA_31_8B, {"version": "0.11.0"}, "CUDA graphs (0.1 to 1 GiB) come on top of the budget in this release"),
    (LLAMA_31_8B, {"kv_cache_memory_bytes": 1 << 30}, "the KV cache is as given: --gpu-memory-utilization has no say"),
    (LLAMA_31_8B, {}, "CUDA graphs: 0.25 (0.07 to 0.5) GiB and 0.0058 (0.003 to 0.015) for each of 102"),
)  # fmt: skip


@pytest.mark.parametrize(("config", "flags", "note"), NOTES)
def test_assumptions_are_said(config: Config, flags: dict[str, object], note: str) -> None:
    """What is taken for granted stands in the output, with its spread."""
    assert note in assumptions(plan(config, **flags))  # type: ignore[arg-type]


def test_more_gpus_are_first_where_the_weights_do_not_fit() -> None:
    """As few as will do, and only a split that the heads allow: 28 query and 4 key heads take 2 or 4, never 8."""
    planned = plan(LLAMA_33_70B, max_model_len=8192)
    assert next((each.flag, each.value) for each in suggestions(planned)) == ("--tensor-parallel-size", "2")  # fmt: skip
    odd = LLAMA_33_70B | {"num_attention_heads": 28, "num_key_value_heads": 4, "head_dim": 128, "hidden_size": 3584}  # fmt: skip
    for gpus in range(1, 9):
        for each in suggestions(plan(odd, gpu="RTX 3090", gpus=gpus, max_model_len=8192)):
            assert (each.flag, each.value) not in {("--tensor-parallel-size", str(n)) for n in (8, 16)}  # fmt: skip


def test_no_flag_makes_a_4_bit_checkpoint() -> None:
    """--quantization awq on weights in 16 bits is an error of vLLM's: another checkpoint is what helps."""
    found = suggestions(plan(LLAMA_33_70B, gpu="L40S", max_model_len=4096))
    assert all((each.flag, each.value) != ("--quantization", "awq") for each in found)
