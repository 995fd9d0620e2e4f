"""What to change: the order of the flags, and what else would do (test_every_suggestion.py tries them)."""

from dataclasses import replace

import pytest

from tests.capacity.models import LLAMA_31_8B, LLAMA_33_70B, QWEN3_32B, QWEN35_27B, Config
from tests.capacity.planning import named_rows, plan
from vllm_watch.capacity.assumptions import assumptions
from vllm_watch.capacity.plan import Plan, with_flags
from vllm_watch.capacity.release import parse_release
from vllm_watch.capacity.suggestions import other_ways, suggestions

# Story, plan, flags that are suggested in order, how the other ways begin.
STORIES: tuple[tuple[str, Plan, tuple[str, ...], tuple[str, ...]], ...] = (
    ("a little is missing", plan(LLAMA_31_8B, gpu="RTX 4090", gpus=1, max_model_len=46000),
     ("--gpu-memory-utilization", "--max-model-len", "--max-num-seqs", "--kv-cache-dtype", "--enforce-eager", "--quantization"), ()),
    ("a context four times too long", plan(LLAMA_31_8B, gpu="RTX 4090", gpus=1, max_model_len=131072), ("--max-model-len",), ("--kv-cache-dtype fp8 --quantization fp8", "2 such GPUs: --tensor-parallel-size 2", "GPUs of 35.")),
    ("a second GPU is idle", plan(QWEN3_32B, gpus=2, max_model_len=40960), ("--gpu-memory-utilization", "--max-model-len", "--kv-cache-dtype", "--tensor-parallel-size", "--quantization"), ()),
    ("as many GPUs as it takes", plan(LLAMA_33_70B, max_model_len=8192), ("--tensor-parallel-size",), ("GPUs of 148.", "a 4-bit checkpoint")),
    ("the weights that are named are of each GPU", plan(LLAMA_33_70B, weights_gib=131.4, max_model_len=8192), (), ("--quantization fp8", "2 such GPUs: --tensor-parallel-size 2 --weights-gib 65.7", "GPUs of 148.", "a 4-bit checkpoint")),
    ("more ranks than GPUs", plan(LLAMA_33_70B, gpus=2, tensor_parallel_size=4, max_model_len=8192), ("--tensor-parallel-size",), ()),
    ("ranks that do not divide the heads, on GPUs that are too small", plan(LLAMA_33_70B, gpu="RTX 4090", gpus=3, tensor_parallel_size=3), (), ("16 such GPUs: --tensor-parallel-size 16", "GPUs of 97.0 GiB, with --tensor-parallel-size 2")),
    ("nothing helps but memory", plan(LLAMA_33_70B | {"num_hidden_layers": 2000}, gpu="RTX 3090", max_model_len=8192), (), ("GPUs of 3609.",)),
)  # fmt: skip


@named_rows("planned, flags, others", STORIES)
def test_flags_in_order(planned: Plan, flags: tuple[str, ...], others: tuple[str, ...]) -> None:
    """What costs nothing first, then quality and speed, then length, then hardware; then what no one flag does."""
    assert not planned.fits
    assert tuple(each.flag for each in suggestions(planned)) == flags
    # Above 0.95 CUDA graphs and fragmentation find no room.
    assert all(float(each.value) <= 0.95 for each in suggestions(planned) if each.flag == "--gpu-memory-utilization")  # fmt: skip
    found = other_ways(planned, suggestions(planned))
    assert len(found) == len(others)
    for each, beginning in zip(found, others, strict=True):
        assert each.change.startswith(beginning)


NOTES: tuple[tuple[Config, dict[str, object], str], ...] = (
    (LLAMA_31_8B, {"version": "0.99.0"}, "rules as of vLLM 0.32.0: newer ones were not checked"),
    (LLAMA_31_8B, {"version": "0.11.0"}, "CUDA graphs (0.1 to 1 GiB) come on top of the budget in this release"),
    (LLAMA_31_8B, {"kv_cache_memory_bytes": 1 << 30}, "the KV cache is as given: --gpu-memory-utilization has no effect"),
    (LLAMA_31_8B, {}, "CUDA graphs: 0.25 (0.07 to 0.5) GiB and 0.0058 (0.003 to 0.015) for each of 102"),
)  # fmt: skip


@pytest.mark.parametrize(("config", "flags", "note"), NOTES)
def test_assumptions_are_said(config: Config, flags: dict[str, object], note: str) -> None:
    """What is taken for granted stands in the output, with its spread."""
    assert note in assumptions(plan(config, **flags))  # type: ignore[arg-type]


def test_sequences_need_blocks_for_their_states() -> None:
    """vLLM refuses more sequences than blocks of a hybrid model, and names the largest number; so do we."""
    planned = plan(QWEN35_27B, gpu="RTX 5090", weights_gib=24.5, kv_cache_dtype="fp8", max_model_len=32768, version="0.27.0")  # fmt: skip
    assert not planned.fits
    assert planned.kv_bytes > 0
    first = suggestions(planned)[0]
    assert (first.flag, first.value) == ("--max-num-seqs", str(planned.num_blocks))
    flags = planned.settings.flags
    assert with_flags(planned, replace(flags, enforce_eager=True)).fits
    assert with_flags(planned, replace(flags, release=parse_release("0.19.1"))).fits


def test_a_cache_that_is_named_must_have_room() -> None:
    """--kv-cache-memory-bytes and --num-gpu-blocks-override make no memory."""
    named = plan(LLAMA_31_8B, gpu="RTX 4090", max_model_len=8192, kv_cache_memory_bytes=4 << 30)
    flags = named.settings.flags
    assert named.fits
    assert not with_flags(named, replace(flags, kv_cache_memory_bytes=20 << 30)).fits
    assert not with_flags(named, replace(flags, num_gpu_blocks_override=10000)).fits
    small = with_flags(named, replace(flags, kv_cache_memory_bytes=1 << 20))
    assert next((each.flag, each.value) for each in suggestions(small)) == ("--kv-cache-memory-bytes", "1075838976")  # fmt: skip
