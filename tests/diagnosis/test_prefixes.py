"""The same failure is found whatever stands before, around and between its words."""

import json

import pytest

from tests.diagnosis.whole_log import diagnose

MESSAGE = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
)

WRAPPED = {
    "plain": MESSAGE,
    "vLLM's own": f"(EngineCore_DP0 pid=7) ERROR 11-21 03:00:00 [core.py:390] {MESSAGE}",
    "journald": f"Nov 21 03:00:00 gpu-7 vllm[4021]: ERROR 11-21 03:00:00 [core.py:390] {MESSAGE}",
    "kubectl --prefix": f"[pod/vllm-0/vllm] {MESSAGE}",
    "containerd": f"2026-11-21T03:00:00.123456789Z stderr F {MESSAGE}",
    "docker's file": json.dumps({"log": MESSAGE + "\n", "stream": "stderr"}, separators=(",", ":")),
    "compose": f"vllm-1  | {MESSAGE}",
    "Ray in colour": f"\x1b[36m(RayWorkerWrapper pid=343, ip=10.0.0.2)\x1b[0m {MESSAGE}",
    "coloured words": MESSAGE.replace("cache", "\x1b[1;31mcache\x1b[0m"),
    "after a progress bar": f"Loading:  50%|#####     | 1/2\rLoading: 100%|##########| 2/2\r{MESSAGE}",
    "Windows line ends": MESSAGE + "\r",
    "bytes that are no text": "\udcff\udcfe " + MESSAGE,
}


@pytest.mark.parametrize("line", WRAPPED.values(), ids=WRAPPED)
def test_around_a_message(line):
    """The class is found, and the line is shown without colours and bars."""
    raw = line.encode("utf-8", "surrogateescape")
    found = diagnose(b"INFO 11-21 02:59:00 [x.py:1] vLLM\n" + raw + b"\nend\n")
    assert (found.failure, found.line_number) == ("oom_kv_alloc_or_profiling", 2)
    assert found.root_cause_line is not None
    assert found.root_cause_line.endswith(MESSAGE)
    assert "\x1b" not in found.root_cause_line
    assert "50%" not in found.root_cause_line


def test_utf_16():
    """PowerShell's > writes UTF-16 with a byte order mark."""
    assert (
        diagnose(f"start\r\n{MESSAGE}\r\n".encode("utf-16")).failure == "oom_kv_alloc_or_profiling"
    )


@pytest.mark.parametrize(
    "line",
    [
        f"WARNING 11-21 03:00:00 [core.py:390] retry: {MESSAGE}",
        f"INFO 11-21 03:00:00 core.py:390] {MESSAGE}",
        f"(Worker pid=7) DEBUG 11-21 03:00:00 [core.py:390] {MESSAGE}",
        f"/usr/lib/python3/x.py:7: UserWarning: {MESSAGE}",
        f"[W1121 03:00:00.1 x.cpp:7] {MESSAGE}",
    ],
)
def test_what_was_lived_with_is_no_failure(line):
    """The same words at a lower level only tell what vLLM went on after."""
    assert not diagnose(f"INFO 11-21 02:59:00 [x.py:1] vLLM\n{line}\n".encode()).failed


def test_the_level_is_that_of_the_message_not_of_the_line():
    """Pagers and web pages join lines; what counts is the level nearest before the words."""
    line = f"INFO 11-21 03:00:00 [a.py:1] fine ERROR 11-21 03:00:01 [b.py:2] {MESSAGE}"
    assert diagnose(line.encode()).failed


def test_a_long_message_broken_by_a_terminal():
    """Its numbers are read from the lines after it."""
    log = (
        "ValueError: To serve at least one request with the models's max seq len\n"
        "(200000), (3.31 GiB KV cache is needed, which is larger than the\n"
        "available KV cache memory (2.19 GiB). Based on the available memory,\n"
        "the estimated maximum model length is 111456.\n"
    )
    found = diagnose(log.encode())
    assert (found.failure, found.line_number) == ("kv_cache_too_small", 1)
    assert "About 111,456 tokens would have fit" in found.explanation


def test_users_words_are_not_errors():
    """A prompt that speaks of an Xid is a prompt."""
    log = (
        "INFO 11-21 03:00:00 [logger.py:39] Received request cmpl-1: prompt: 'what is CUDA error: an illegal memory access, and NVRM: Xid (PCI:0000:3b:00): 79?', params\n"
        "INFO 11-21 03:00:01 [loggers.py:116] Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 5.0 tokens/s\n"
    )
    assert diagnose(log.encode()).failure == "healthy"
