"""The flags as vLLM settles them: its defaults by release and GPU, and what it refuses."""

import pytest

from tests.capacity.models import DEEPSEEK_V3, LLAMA_31_8B
from tests.capacity.planning import named_rows, plan
from vllm_watch.capacity.gpus import cuda_memory_bytes, find_gpu
from vllm_watch.capacity.read_config import length_limit
from vllm_watch.capacity.release import NEWEST, Release, parse_release
from vllm_watch.capacity.suggestions import suggestions
from vllm_watch.errors import WatchError

GIB = 1 << 30
# Story, release, GPU, max_model_len → engine, tokens of a batch, sequences, utilization.
DEFAULTS = (
    ("V0 batches a whole context", "0.6.4", "A100", 29000, ("V0", 29000, 256, 0.9)),
    ("and at least 2048 tokens", "0.6.4", "A100", 512, ("V0", 2048, 256, 0.9)),
    ("a long context is chunked", "0.6.4", "A100", 65536, ("V0", 2048, 256, 0.9)),
    ("in smaller chunks before 0.6.4", "0.6.0", "A100", 65536, ("V0", 512, 256, 0.9)),
    ("the first V1 takes many sequences", "0.8.1", "RTX 3090", 4096, ("V1", 2048, 1024, 0.9)),
    ("V1 on a large card", "0.11.0", "H100", 32768, ("V1", 8192, 1024, 0.9)),
    ("but the A100", "0.11.0", "A100", 32768, ("V1", 2048, 256, 0.9)),
    ("old cards kept V0", "0.8.5", "T4", 4096, ("V0", 4096, 256, 0.9)),
    ("the largest cards today", "0.32.0", "B200", 32768, ("V1", 16384, 1024, 0.92)),
    ("a CPU", "0.32.0", "cpu", 4096, ("V1", 2048, 128, 0.92)),
)


@named_rows("release, gpu, length, expected", DEFAULTS)
def test_defaults(
    release: str, gpu: str, length: int, expected: tuple[str, int, int, float]
) -> None:
    settings = plan(
        LLAMA_31_8B, version=release, gpu=gpu, gib=None if gpu != "cpu" else 8, max_model_len=length
    ).settings
    assert (
        settings.engine,
        settings.max_num_batched_tokens,
        settings.max_num_seqs,
        settings.gpu_memory_utilization,
    ) == expected


def test_block_sizes() -> None:
    """16 tokens; 64 where MLA has kernels of its own; as given; what the CPU has."""
    found = [
        plan(LLAMA_31_8B).settings.block_size,
        plan(DEEPSEEK_V3, tensor_parallel_size=8).settings.block_size,
        plan(LLAMA_31_8B, block_size=128).settings.block_size,
        plan(LLAMA_31_8B, gpu="cpu", gib=8).settings.block_size,
        plan(DEEPSEEK_V3, gpu="cpu", gib=8, block_size=32).settings.block_size,
    ]
    assert found == [16, 64, 128, 128, 16]


OBSTACLES = (
    ({"tensor_parallel_size": 3}, "--tensor-parallel-size 3 does not divide the model's 32 attention heads", "--tensor-parallel-size 2"),
    ({"pipeline_parallel_size": 33}, "--pipeline-parallel-size 33 is more than the model's 32 layers", "--pipeline-parallel-size 32"),
    ({"decode_context_parallel_size": 2}, "--decode-context-parallel-size 2 does not divide --tensor-parallel-size 1", "--decode-context-parallel-size 1"),
    ({"max_model_len": 400_000}, "--max-model-len 400000 is more than the 131,072 tokens that the model's config allows", "--max-model-len 131072"),
    ({"max_num_seqs": 1024, "max_num_batched_tokens": 512}, "--max-num-seqs 1024 is more than --max-num-batched-tokens 512", "--max-num-seqs 512"),
    ({"max_num_seqs": 10_000}, "--max-num-seqs 10000 is more than --max-num-batched-tokens 8192, the default here", "--max-num-seqs 8192"),
)  # fmt: skip


@pytest.mark.parametrize(("flags", "why", "instead"), OBSTACLES)
def test_what_vllm_refuses_does_not_fit(flags: dict[str, object], why: str, instead: str) -> None:
    found = plan(LLAMA_31_8B, **flags)  # type: ignore[arg-type]
    first = suggestions(found)[0]
    assert (found.fits, found.obstacle) == (False, why)
    assert (f"{first.flag} {first.value}", first.why) == (instead, why)


def test_no_length_or_batch_is_suggested_that_vllm_refuses() -> None:
    long = plan(LLAMA_31_8B, max_model_len=1 << 20)
    assert (long.longest, [each.value for each in suggestions(long)]) == (131072, ["131072"])
    assert plan(LLAMA_31_8B, max_model_len=400_000, allow_long=True).fits
    wide = plan(LLAMA_31_8B, gpu="RTX 4090", gpus=1, max_num_seqs=2500, max_num_batched_tokens=65536, max_model_len=8192)  # fmt: skip
    offered = {each.flag: each.value for each in suggestions(wide)}
    assert offered["--max-num-batched-tokens"] == "2500"


# Story, keys, the longest length that vLLM accepts.
LENGTHS: tuple[tuple[str, dict[str, object], int | None], ...] = (
    ("nothing said", {}, None),
    ("the smallest of the keys", {"max_position_embeddings": 8192, "seq_length": 2048}, 2048),
    ("an override", {"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
    ("linear scaling", {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
    ("Llama 3 names the scaled length", {"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
    ("yarn over the original", {"max_position_embeddings": 131072, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}}, 131072),
    ("Gemma 3 names the scaled length", {"model_type": "gemma3_text", "max_position_embeddings": 131072, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 131072),
    ("per kind of layer", {"max_position_embeddings": 4096, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}}, 8192),
)  # fmt: skip


@named_rows("keys, limit", LENGTHS)
def test_longest_accepted_length(keys: dict[str, object], limit: int | None) -> None:
    assert length_limit(keys) == limit


REFUSED = (
    ({"kv_cache_dtype": "fp5"}, "--kv-cache-dtype fp5 is not known here"),
    ({"dtype": "int3"}, "--dtype int3 is not known here"),
    ({"version": "latest"}, "'latest' is not a vLLM release"),
    ({"version": "0.5.5"}, "vLLM 0.5.5 is older than 0.6.0, the first release that is planned for"),
)


@pytest.mark.parametrize(("flags", "cause"), REFUSED)
def test_refused(flags: dict[str, object], cause: str) -> None:
    """What no number can be given for is named with its value and a remedy."""
    with pytest.raises(WatchError) as refused:
        plan(LLAMA_31_8B, **flags)  # type: ignore[arg-type]
    assert refused.value.cause == cause
    assert refused.value.remedy


def test_releases_are_read_as_people_write_them() -> None:
    """Tags, post releases and nightly builds; a minor alone is its last patch; nothing the newest known."""
    said = ("v0.8.5.post1", "0.26.1rc1.dev608+g12ab", "0.6.0", "0.6", "0.25", None)
    assert [parse_release(text) for text in said] == [
        Release(0, 8, 5), Release(0, 26, 1), Release(0, 6, 0), Release(0, 6, 6), Release(0, 25, 0), NEWEST,
    ]  # fmt: skip


GPUS = (
    ("the catalogue's size of a named card", "RTX 4090", 24, 23.6),
    ("a measured size", "RTX 3090", 23.58, 23.58),
    ("a card that comes in two sizes", "NVIDIA A100-SXM4", 40, 39.39),
    ("a catalogue's size of no card", "some card", 48, 47.28),
    ("H20 is no H200", "NVIDIA H20", 96, 95.08),
)


@named_rows("name, given, offered", GPUS)
def test_memory_that_cuda_offers(name: str, given: float, offered: float) -> None:
    memory, _ = cuda_memory_bytes(given, find_gpu(name, given))
    assert memory / GIB == pytest.approx(offered, abs=0.01)
