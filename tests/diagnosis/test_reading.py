"""Whatever comes in: empty, binary, cut off, gigantic, in pieces of any size; there is a clear answer."""

import io
import json
import os
import random
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.diagnosis.examples import EXAMPLES
from tests.diagnosis.whole_log import diagnose
from vllm_watch.diagnosis import reading, scanner
from vllm_watch.diagnosis.reading import LogReader

OOM = b"ValueError: No available memory for the cache blocks.\n"
START = b"INFO 11-21 03:00:00 [api_server.py:1805] vLLM API server version 0.10.1\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (b"", "It is empty"),
        (os.urandom(64) + bytes(5000), "It is binary"),
        (b"LPKSHHRH" + bytes(100), "journalctl"),
        (b"\x7fELF" + bytes(100), "program"),
        (b"(\xb5/\xfd" + bytes(100), "zstdcat"),
        (b"Dear diary,\nERROR in my ways today: none.\n" * 50, "No line has vLLM's log format"),
        (b"#!/bin/sh\nexec vllm serve model --port 8000\n", "No line has vLLM's log format"),
    ],
)  # fmt: skip
def test_what_is_no_log_of_vllm(log, words):
    """It says so, and what to do about it where that is known."""
    found = diagnose(log)
    assert found.failure == "not_a_vllm_log"
    assert words in found.explanation


def test_pieces_of_any_size():
    """A message cut anywhere by the reader's buffer is whole again; so is the last line without an end."""
    log = START + b"x\n" * 5 + OOM.rstrip()
    for size in (1, 2, 3, 7, 64, 1000):
        reader = LogReader()
        stream = io.BytesIO(log)
        while piece := stream.read(size):
            reader.feed(piece)
        reader.end()
        assert reader.diagnosis().line_number == 7


def test_a_line_without_end_fills_no_memory():
    """A hundred megabytes without a newline are taken in pieces."""
    reader, piece = LogReader(), b"x" * (1 << 20)
    tracemalloc.start()
    for _ in range(100):
        reader.feed(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * reading.LINE_BYTES_MAX


def test_many_shapes_fill_no_memory(monkeypatch):
    """Lines of which no two are alike are forgotten in turn, and the failure at the end is found."""
    monkeypatch.setattr(scanner, "SHAPES_MAX", 1000)
    reader = LogReader()
    tracemalloc.start()
    for n in range(60_000):
        word = "".join(chr(ord("g") + n // 16**k % 16) for k in range(5))
        reader.feed(f"{word} {word} {word}\n".encode())
    reader.feed(OOM)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reader.diagnosis().failure == "oom_kv_alloc_or_profiling"
    assert peak < 1 << 20


def test_lines_that_differ_only_in_digits():
    """A worker that was asked to end is no worker that was killed, though the lines are of one shape."""
    line = "ERROR 10-21 15:37:40 x.py:120] Worker VllmWorkerProcess pid {} died, exit code: -{}\n"
    assert diagnose((line.format(7, 15) * 3).encode()).failure == "engine_dead"
    assert (
        diagnose((line.format(7, 15) + line.format(8, 9)).encode()).failure == "cpu_ram_oom_killed"
    )


def test_a_failure_after_a_million_alike_lines():
    """What was seen often is not looked at again; what follows is."""
    line = b'INFO:     10.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    reader = LogReader()
    for _ in range(10):
        reader.feed(line * 10_000)
    reader.feed(b"ERROR 11-21 03:00:00 [c.py:7] torch.OutOfMemoryError: CUDA out of memory.\n")
    found = reader.diagnosis()
    assert (found.failure, found.line_number) == ("oom_runtime", 100_001)


@pytest.mark.parametrize(
    "head", [b"", b'{"model.layers.0.weight": {"dtype": "BF16"}},' * 2000]
)  # fmt: skip
def test_binary_is_refused_before_its_end(head):
    """Random bytes, or weights behind a header of text: nothing after the next piece is read."""
    reader = LogReader()
    if head:
        reader.feed(head)
    reader.feed(random.Random(1).randbytes(1 << 16))
    assert reader.refused


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "shift-jis"])
def test_old_encodings_are_text(encoding):
    """Chinese or Japanese text of an old code page has no controls."""
    reader = LogReader()
    reader.feed(("日本 error, 中国 warning: not a vLLM log at all\n" * 2000).encode(encoding))
    assert not reader.refused


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_have_an_answer(log):
    """No input breaks it."""
    assert diagnose(log).explanation


@given(
    st.sampled_from([line for lines in EXAMPLES.values() for line in lines]),
    st.integers(0, 300),
    st.binary(max_size=30),
)
@settings(max_examples=300, deadline=None)
def test_any_cut_of_any_message_has_an_answer(line, at, noise):
    """Messages cut off and with dirt in the cut are read without a fault."""
    assert diagnose(START + line.encode()[:at] + noise).explanation


def test_the_command_reads_standard_input(tmp_path):
    """As in `kubectl logs | vllm-watch diagnose`: JSON with every published key, and an exit status."""
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", "diagnose", "-", "--json"],
        input=START + OOM, capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert set(said) == {
        "class", "confidence", "root_cause_line", "line_number", "explanation", "fixes", "facts",
        "deterministic_start_failure",
    }  # fmt: skip
    assert (said["class"], said["line_number"]) == ("oom_kv_alloc_or_profiling", 2)
    assert said["facts"]["vllm_version"] == "0.10.1"
    assert set(said["fixes"][0]) == {"what", "command"}
