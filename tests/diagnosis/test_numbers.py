"""What is advised is computed from this very log."""

import pytest

from tests.diagnosis.whole_log import diagnose

SUMS = "total_gpu_memory (80.00GiB) x gpu_memory_utilization ({:.2f}) = x\nmodel weights take 60.00GiB; the rest of the memory reserved for KV Cache is 6.00GiB.\n"
"""Of a log whose own sums show that the engine itself used its share."""

KV = "ValueError: To serve at least one request with the model's max seq len ({}), ({} GiB KV cache is needed, which is larger than the available KV cache memory ({} GiB). {}"

STORIES = {
    "vLLM's own estimate, in whole blocks": (
        SUMS.format(0.9) + KV.format(8192, 2.63, 1.64, "the estimated maximum model length is 5090."), "--max-model-len 5088",
    ),
    "no estimate: in proportion": (SUMS.format(0.9) + KV.format(8192, 2.0, 1.0, ""), "--max-model-len 4096"),
    "V0 counts tokens": (
        SUMS.format(0.9) + "ValueError: The model's max seq len (16384) is larger than the maximum number of tokens that can be stored in KV cache (14528).",
        "--max-model-len 14528",
    ),
    "a share that would do": (
        SUMS.format(0.85) + KV.format(8192, 10.0, 6.0, ""),
        "--gpu-memory-utilization 0.9",
    ),
    "state blocks": (
        "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (600). Each decode sequence requires one Mamba cache block",
        "--max-num-seqs 600",
    ),
    "an adapter's rank": ("ValueError: LoRA rank 40 is greater than max_lora_rank 16.", "--max-lora-rank 64"),
    "of a pasted line": ("Cannot split tensors evenly. tensor_parallel_size=4 but only 2 GPUs available", "--tensor-parallel-size 2"),
    "what was free": (
        "ValueError: Free memory on device cuda:0 (80.81/95.01 GiB) on startup is less than desired GPU memory utilization (0.9, 85.51 GiB).",
        "--gpu-memory-utilization 0.84",
    ),
    "GPUs there are": (
        "ValueError: World size (8) is larger than the number of available GPUs (4) in this node.", "--tensor-parallel-size 4",
    ),
    "the next size that divides": (
        "ValueError: Total number of attention heads (52) must be divisible by tensor parallel size (8).", "--tensor-parallel-size 4",
    ),
    "of a layer's width": ("AssertionError: 32768 is not divisible by 3", "--tensor-parallel-size 2"),
    "the port": (
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use", "ss -ltnp 'sport = :8000'",
    ),
    "what is left for the answer": (
        "This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your prompt contains at least 62466 input tokens",
        "max_tokens=65534",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("log", "command"), STORIES.values(), ids=STORIES)
def test_fix_from_the_log(log, command):
    """It stands before the general advice."""
    commands = [fix.command for fix in diagnose(log.encode()).fixes]
    assert command in commands[:2]


def test_no_share_above_the_limit_is_advised():
    """To ask for nearly all of a GPU trades one failed start for another."""
    fixes = diagnose((SUMS.format(0.9) + KV.format(8192, 16.0, 6.0, "")).encode()).fixes
    assert not [fix for fix in fixes if "utilization" in (fix.command or "")]


def test_a_share_far_below_what_was_asked_for_is_not_advised():
    """Half of a GPU does not hold a model that was to have nine tenths of it."""
    log = "ValueError: Free memory on device cuda:0 (47.1/95.01 GiB) on startup is less than desired GPU memory utilization (0.9, 85.51 GiB)."
    assert not [fix for fix in diagnose(log.encode()).fixes if "utilization" in (fix.command or "")]


def test_an_xid_is_named():
    """Its number says whether hands are needed."""
    found = diagnose(b"[8.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    assert "Xid 79: the GPU has fallen off the bus" in found.explanation


def test_a_cut_off_message_still_gives_its_class():
    """Numbers that are missing are not made up."""
    found = diagnose(KV[:60].encode())
    assert found.failure == "kv_cache_too_small"
    assert all("None" not in (fix.command or "") for fix in found.fixes)
