"""`vllm-watch advise`: of a real daemon's server, of a recording, of an engine's log."""

import asyncio
import io
import json
import subprocess
import sys

from vllm_watch.__main__ import main
from vllm_watch.board.board import Board
from vllm_watch.export.server import Server
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import Advice, TargetSignals
from vllm_watch.sources.trace_line import to_line

STARVED = Advice(
    "kv_starved", "0", "--gpu-memory-utilization", "0.9", "the KV cache was full", "gives 30 GiB more", 3600.0,
)  # fmt: skip
CACHING = Advice("prefix_caching_off", "1", "--enable-prefix-caching", None, "it is off", "reads once", 900.0)  # fmt: skip
BODY = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} 40
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} 5
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.99
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{engine="0",model_name="m"}} {preemptions}
# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} {done}
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{{engine="0",le="1000.0",model_name="m"}} {done}
vllm:request_prompt_tokens_bucket{{engine="0",le="+Inf",model_name="m"}} {done}
vllm:request_prompt_tokens_sum{{engine="0",model_name="m"}} {prompts}
vllm:request_prompt_tokens_count{{engine="0",model_name="m"}} {done}
# TYPE vllm:request_generation_tokens histogram
vllm:request_generation_tokens_bucket{{engine="0",le="1000.0",model_name="m"}} {done}
vllm:request_generation_tokens_bucket{{engine="0",le="+Inf",model_name="m"}} {done}
vllm:request_generation_tokens_sum{{engine="0",model_name="m"}} {done}
vllm:request_generation_tokens_count{{engine="0",model_name="m"}} {done}
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1500"}} 1.0
"""
OK = Call(outcome="ok", status=200)


def run(capsys, *arguments):
    status = main(["advise", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def asked(advice, *arguments):
    """What the command says of a daemon's real server whose board holds that advice."""

    async def ask():
        board = Board()
        board.add_target(Target(name="chat", url="http://x"), 5.0)
        board.publish(TargetSignals(target="chat", t=1.0, up=True, outcome="ok", state="serving", state_text="", advice=advice))  # fmt: skip
        server = Server(board, host="127.0.0.1", port=0, ready=lambda: None)
        await server.start()
        try:
            command = [sys.executable, "-m", "vllm_watch", "advise", "--url", f"http://127.0.0.1:{server.port}", *arguments]  # fmt: skip
            return await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=600, check=True
            )
        finally:
            await server.stop()

    return asyncio.run(ask()).stdout


def test_of_a_daemon():
    assert asked((STARVED,)) == (
        "chat: the KV cache was full\n  → --gpu-memory-utilization 0.9: gives 30 GiB more\n"
    )
    assert asked((STARVED, CACHING)).splitlines()[2:] == [
        "chat, engine 1: it is off", "  → --enable-prefix-caching: reads once",
    ]  # fmt: skip
    assert asked(()) == "chat: no advice yet: 0 of 10 minutes observed: ask again later\n"


def test_as_json():
    said = json.loads(asked((STARVED,), "--json"))
    assert said == {"targets": [{"target": "chat", "advice": [{
        "rule": "kv_starved", "engine": "0", "flag": "--gpu-memory-utilization", "value": "0.9",
        "text": "the KV cache was full", "why": "gives 30 GiB more", "evidence_seconds": 3600.0,
    }], "too_early": "0 of 10 minutes observed: ask again later"}]}  # fmt: skip


def test_of_a_recording(tmp_path, capsys):
    path = tmp_path / "thrash.jsonl"

    def record(seconds):
        lines = []
        for second in range(0, seconds, 5):
            body = BODY.format(preemptions=second, done=2 * second, prompts=1800 * second)
            lines.append(to_line(Observation(t=1.7e9 + second, target="http://x", scrape=OK), body).strip())  # fmt: skip
        path.write_bytes(b"\n".join(lines) + b"\n")

    record(300)
    assert run(capsys, "--trace", path)[:2] == (0, "http://x: no advice yet: 5 of 10 minutes observed: ask again later\n")  # fmt: skip
    record(900)
    status, out, _ = run(capsys, "--trace", path, "--json")
    (target,) = json.loads(out)["targets"]
    assert (status, target["target"]) == (0, "http://x")
    assert [(each["rule"], each["flag"], each["value"]) for each in target["advice"]] == [
        ("preemptions", "--max-num-seqs", "36")
    ]


def test_of_an_engines_log(tmp_path, capsys, monkeypatch):
    path = tmp_path / "vllm.log"
    path.write_text("INFO Using XFormers backend.\n")
    assert "→ --attention-backend FLASH_ATTN" in run(capsys, "--engine-log", path)[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO("Using Flash Attention backend on V1 engine.\n"))
    assert (
        run(capsys, "--engine-log", "-")[1] == "-: no advice: the settings suit the observed load\n"
    )
