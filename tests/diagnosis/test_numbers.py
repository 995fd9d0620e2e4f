"""What is advised is computed from this very log."""

import pytest

from tests.diagnosis.whole_log import diagnose

KV = "ValueError: To serve at least one request with the model's max seq len ({}), ({} GiB KV cache is needed, which is larger than the available KV cache memory ({} GiB). {}"

STORIES = {
    "vLLM's own estimate, in whole blocks": (
        KV.format(8192, 2.63, 1.64, "the estimated maximum model length is 5090."), "--max-model-len 5088",
    ),
    "no estimate: in proportion": (KV.format(8192, 2.0, 1.0, ""), "--max-model-len 4096"),
    "V0 counts tokens": (
        "ValueError: The model's max seq len (16384) is larger than the maximum number of tokens that can be stored in KV cache (14528).",
        "--max-model-len 14528",
    ),
    "a share that would do": (
        "total_gpu_memory (80.00GiB) x gpu_memory_utilization (0.80) = 64.00GiB\n" + KV.format(8192, 10.0, 6.0, ""),
        "--gpu-memory-utilization 0.85",
    ),
    "what was free": (
        "ValueError: Free memory on device cuda:0 (52.81/95.01 GiB) on startup is less than desired GPU memory utilization (0.9, 85.51 GiB).",
        "--gpu-memory-utilization 0.54",
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
    log = "total_gpu_memory (80.00GiB) x gpu_memory_utilization (0.90) = 72.00GiB\n"
    fixes = diagnose((log + KV.format(8192, 16.0, 6.0, "")).encode()).fixes
    assert [fix.command for fix in fixes if "0.9" in (fix.command or "")] == [
        "--gpu-memory-utilization 0.95"  # the general advice
    ]


def test_an_xid_is_named():
    """Its number says whether hands are needed."""
    found = diagnose(b"[8.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    assert "Xid 79: the GPU has fallen off the bus" in found.explanation


def test_a_cut_off_message_still_gives_its_class():
    """Numbers that are missing are not made up."""
    found = diagnose(KV[:60].encode())
    assert found.failure == "kv_cache_too_small"
    assert all("None" not in (fix.command or "") for fix in found.fixes)
