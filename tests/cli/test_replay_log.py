"""replay vllm.log: lines about throughput, as vLLM writes them, of the lab's engine under faults."""

import gzip
import json
import time
from datetime import UTC, datetime
from random import Random

import pytest

from vllm_watch.__main__ import main
from vllm_watch.lab.faults import FAULTS
from vllm_watch.lab.reading import read
from vllm_watch.lab.scripts import L40S
from vllm_watch.lab.stories import load
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.sources import log_history, log_pieces

V1 = "(APIServer pid=7) INFO {at} [loggers.py:127] Engine 000: Avg prompt throughput: {p:.1f} tokens/s, Avg generation throughput: {g:.1f} tokens/s, Running: {r} reqs, Waiting: {w} reqs, GPU KV cache usage: {kv:.1f}%, Prefix cache hit rate: 0.0%"
V0 = "INFO {at} metrics.py:467] Avg prompt throughput: {p:.1f} tokens/s, Avg generation throughput: {g:.1f} tokens/s, Running: {r} reqs, Swapped: 0 reqs, Pending: {w} reqs, GPU KV cache usage: {kv:.1f}%, CPU KV cache usage: 0.0%."
BEGAN_T = 1_760_000_000.0
ACCESS = 'INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK'


def log_of(form, fault=None, minutes=40):
    """Lines as V1 writes them: none after a line of zeros until work is done again. Other lines have a time too."""
    vllm = SimulatedVllm("vllm", workload=load(Random(1), 2.0), config=L40S)
    lines, before, silent = [], (0.0, 0.0), False
    for step in range(1, minutes * 6):
        if fault and step == minutes * 3:
            FAULTS[fault].begin(vllm)
        vllm.advance(step * 10.0)
        at = time.strftime("%m-%d %H:%M:%S", time.gmtime(BEGAN_T + step * 10))
        (engine,) = read(vllm).engines
        now = (engine.prompt_tokens, engine.generation_tokens)
        p, g = ((a - b) / 10 for a, b in zip(now, before, strict=True))
        before = now
        if p or g or not silent or form is V0:
            lines.append(form.format(
                at=at, p=p, g=g, r=int(engine.requests_running), w=int(engine.requests_waiting), kv=engine.kv_cache_usage * 100
            ))  # fmt: skip
        silent = not (p or g)
        lines.append(f"INFO {at} [api_server.py:1] heartbeat")
        lines.append(ACCESS)
    return "\n".join(lines) + "\n"


def events(file, capsys):
    assert main(["replay", str(file), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("form", [V1, V0], ids=["V1", "V0"])
def test_a_hang_is_seen(tmp_path, capsys, form):
    """Requests run and nothing is generated, though V1 falls silent about it."""
    file = tmp_path / "vllm.log"
    file.write_text(log_of(form, "hang"))
    found = [e for e in events(file, capsys) if e["event"] == "opened"]
    assert [(e["kind"], e["cause"], e["engine"]) for e in found] == [
        ("engine_stalled", "hang", "0")
    ]


def test_a_healthy_engine_has_no_incident(tmp_path, capsys):
    """Packed, and with docker's JSON around each line."""
    file = tmp_path / "vllm.log.gz"
    lines = [json.dumps({"log": line + "\n"}, separators=(",", ":")) for line in log_of(V1).splitlines()]  # fmt: skip
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert events(file, capsys) == []


def test_numbers_of_a_line():
    """Both engines' lines, in our fields; the counters are the rates added up."""
    history = log_history._History("x", datetime(2026, 1, 2, tzinfo=UTC))
    first = "INFO 12-31 10:00:00 [loggers.py:1] Engine 001: Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 10.0tokens/s, Running: 3 reqs, Waiting: 2 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 98.6%"
    (look,) = history.line(first)
    (engine,) = look.reading.engines
    assert time.gmtime(look.t)[:6] == (2025, 12, 31, 10, 0, 0)
    assert (engine.engine, engine.requests_running, engine.requests_waiting) == ("1", 3, 2)
    assert (engine.kv_cache_usage, engine.prompt_tokens, engine.generation_tokens) == (0.125, 1000, 100)  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_no_text_is_refused_at_its_beginning(tmp_path, capsys, monkeypatch, packed):
    """A disk's image, an archive: its end is never read."""
    noise = bytes(range(256)) * (4 << 10)
    file = tmp_path / "vllm.log"
    file.write_bytes(gzip.compress(noise * 40, 1) if packed else noise * 40)
    lengths = []
    reading = log_pieces._read

    def counted(opened):
        for piece in reading(opened):
            lengths.append(len(piece))
            yield piece

    monkeypatch.setattr(log_pieces, "_read", counted)
    assert main(["replay", str(file)]) == 2
    assert "is not a log" in capsys.readouterr().err
    assert sum(lengths) <= 1 << 20


def test_a_log_without_such_a_line_is_refused(tmp_path, capsys):
    """It says what reads it."""
    file = tmp_path / "vllm.log"
    file.write_text("INFO 12-31 10:00:00 [x.py:1] hello\n")
    assert main(["replay", str(file)]) == 2
    assert "vllm-watch diagnose" in capsys.readouterr().err
