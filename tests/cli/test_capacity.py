"""`vllm-watch capacity`: where a model is found, what is printed, and how it ends."""

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.capacity.models import (
    LLAMA_31_8B,
    LLAMA_33_70B,
    QWEN3_06B,
    QWEN3_32B,
    QWEN35_27B,
    Config,
)
from tests.nvml_stub import GIB, NvmlStub, h200
from vllm_watch.__main__ import main

CONTRACT = {
    "fits", "kv_cache_tokens", "kv_cache_bytes_per_gpu", "kv_bytes_per_token_per_gpu",
    "weights_bytes_per_gpu", "num_gpu_blocks", "block_size", "max_concurrency",
    "max_model_len_that_fits", "assumptions", "suggestions",
}  # fmt: skip


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "llama", LLAMA_31_8B)


def folder_of(folder: Path, config: Config) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main(["capacity", *map(str, arguments)])
    out = capsys.readouterr()
    return status, out.out, out.err


def test_json_has_all_of_the_contract(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(
        capsys, "--model", llama, "--gpu-name", "H100", "--json", "--max-model-len", "32K"
    )
    said = json.loads(out)
    assert status == 0
    assert said.keys() >= CONTRACT
    assert said["kv_bytes_per_token_per_gpu"] == pytest.approx(131072)
    assert said["kv_cache_tokens"] == said["num_gpu_blocks"] * said["block_size"]
    assert said["max_model_len"] == 32768


def test_does_not_fit_is_status_3(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, llama, "--gpu-name", "RTX 4090", "--json")
    said = json.loads(out)
    assert (status, said["fits"]) == (3, False)
    assert said["suggestions"][0].keys() == {"flag", "value", "why"}


def test_json_says_why_it_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(QWEN35_27B))
    words = ["capacity", str(tmp_path), "--gpu-name", "H100", "--max-model-len", "131072"]
    assert main([*words, "--json"]) == 3
    why = json.loads(capsys.readouterr().out)["obstacle"]
    assert why.startswith("1024 sequences (--max-num-seqs) each need a block")
    assert main(words) == 3
    assert capsys.readouterr().out.startswith(f"DOES NOT START: {why}")
    (tmp_path / "config.json").write_text("{}")
    assert main([*words, "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "fits": None,
        "error": {
            "cause": "the config has no num_hidden_layers",
            "remedy": "give the config.json of a text model (of a multimodal one, with its text_config)",
        },
    }
    assert "the config has no num_hidden_layers" in err


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_one_screen_for_people(llama: Path, columns: int) -> None:
    """The verdict first, the numbers in columns, no line too wide, 32 lines at most on 80 columns."""
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", "capacity", llama, "--gpu-name", "RTX 4090"],
        env={**os.environ, "COLUMNS": str(columns)}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.returncode == 3
    assert lines[0].startswith("DOES NOT FIT: ")
    assert "16.00 GiB of KV cache" in lines[0]
    assert max(map(len, lines[1:])) <= max(columns, 100)
    if columns >= 80:
        assert len(lines) <= 32
    assert len({line.find(" GiB") for line in lines[2:9]}) == 1


def test_weights_are_those_of_the_checkpoint(
    llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The index says it; without one the files do; both before counting, --weights-gib before all."""

    def weights(*arguments: str) -> int:
        out = run(capsys, llama, "--gpu-name", "H100", "--json", *arguments)[1]
        return int(json.loads(out)["weights_bytes_per_gpu"])

    assert weights() == pytest.approx(16.06e9, rel=0.001)
    (llama / "model-00001.safetensors").write_bytes(b"x" * 5000)
    (llama / "consolidated.safetensors").write_bytes(b"x" * 5000)
    assert weights() == 5000
    index = {"metadata": {"total_size": 7000}, "weight_map": {}}
    (llama / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weights() == 7000
    assert weights("--weights-gib", "1.5") == 1.5 * GIB


@pytest.mark.parametrize(
    ("variable", "below"),
    [("HF_HOME", "hub"), ("HF_HUB_CACHE", "."), ("XDG_CACHE_HOME", "huggingface/hub")],
)
def test_model_in_the_hub_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    variable: str, below: str,
) -> None:  # fmt: skip
    """By its name on the hub: the snapshot of main, not another; wherever the hub's client keeps it."""
    entry = tmp_path / below / "models--Qwen--Qwen3-0.6B"
    folder_of(entry / "snapshots" / "bbb", QWEN3_06B)
    newer = folder_of(entry / "snapshots" / "aaa", LLAMA_31_8B)
    os.utime(newer, (4e9, 4e9))
    os.utime(newer / "config.json", (4e9, 4e9))
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text("bbb")
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    out = run(capsys, "Qwen/Qwen3-0.6B", "--gpu-name", "H100", "--json")[1]
    assert json.loads(out)["weights_bytes_per_gpu"] == pytest.approx(1.19e9, rel=0.01)


class Hub(http.server.BaseHTTPRequestHandler):
    """Two files of one model; all else is gated."""

    def do_GET(self) -> None:
        found = {
            "/org/model/resolve/main/config.json": LLAMA_31_8B,
            "/org/model/resolve/main/model.safetensors.index.json": {
                "metadata": {"total_size": 4096}
            },
        }.get(self.path)
        body = json.dumps(found).encode()
        self.send_response(200 if found else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    yield url
    server.shutdown()
    server.server_close()


def test_hub_is_asked_only_on_request(hub: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --from-hub a name that is not cached is an error that names the flag."""
    status, _, err = run(capsys, "org/model", "--gpu-name", "H100")
    assert status == 2
    assert "--from-hub" in err
    out = run(capsys, "org/model", "--gpu-name", "H100", "--from-hub", "--json")[1]
    assert json.loads(out)["weights_bytes_per_gpu"] == 4096


def test_length_that_fits_is_found(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(
        capsys, llama, "--gpu-name", "RTX 4090", "--max-model-len", "auto", "--json"
    )
    said = json.loads(out)
    assert (status, said["fits"]) == (0, True)
    assert said["max_model_len"] == said["max_model_len_that_fits"] == 44480


def test_gated_model_and_no_network(
    hub: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = run(capsys, "org/gated", "--gpu-name", "H100", "--from-hub")
    assert (status, "answers 401" in err, "gated" in err) == (2, True, True)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    status, _, err = run(capsys, "org/model", "--gpu-name", "H100", "--from-hub")
    assert (status, "cannot be reached" in err) == (2, True)


def test_this_machines_gpu(llama: Path, library: Path) -> None:
    """Without a name NVML is asked: what CUDA offers is all but the driver's reserve."""
    stub = NvmlStub(library)
    stub.set_state(gpus={0: h200(0), 1: h200(1)})
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", "capacity", llama, "--json"],
        env={**os.environ, **stub.env()}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert said["memory_bytes_per_gpu"]["total"] == 140 * GIB
    assert any("140.00 GiB as NVML reports it" in each for each in said["assumptions"])


V1 = """\
(APIServer pid=1) INFO 10-07 14:02:31 [api_server.py:1839] vLLM API server version 0.11.0
(APIServer pid=1) INFO 10-07 14:02:31 [utils.py:233] non-default args: {{'model': 'a/b', 'max_model_len': 16000, 'block_size': 128, 'tensor_parallel_size': {ranks}}}
(EngineCore_DP0 pid=77) INFO 10-07 14:03:12 [gpu_model_runner.py:2653] Model loading took {weights} GiB and 20.108 seconds
(EngineCore_DP0 pid=77) INFO 10-07 14:03:40 [gpu_worker.py:298] Available KV cache memory: {kv} GiB
(APIServer pid=1) INFO:     Application startup complete.
"""
V0 = """\
INFO 11-21 09:12:02 api_server.py:585] vLLM API server version 0.6.4
INFO 11-21 09:12:10 llm_engine.py:249] Initializing an LLM engine (v0.6.4) with config: model='a/b', dtype=torch.bfloat16, max_seq_len=29000, tensor_parallel_size=1, quantization=None
INFO 11-21 09:12:31 model_runner.py:1077] Loading model weights took 14.9888 GB
"""
PROFILED = "INFO 11-21 09:12:37 worker.py:232] Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.49GiB peak_torch_memory=17.97GiB memory_usage_post_profile=15.54GiB non_torch_memory=0.35GiB kv_cache_size=2.89GiB gpu_memory_utilization=0.90\n"
BLOCKS = "INFO 11-21 09:12:37 gpu_executor.py:113] # GPU blocks: 1478, # CPU blocks: 2048\n"
H100 = ("--gpu-name", "H100", "--gpu-memory-gib", "79.18", "--vllm-version", "0.11.0", "--max-model-len", "16000", "--block-size", "128")  # fmt: skip
TWO = (*H100, "--gpus", "2", "--tensor-parallel-size", "2")
RTX_3090 = ("--gpu-name", "RTX 3090", "--vllm-version", "0.6.4", "--max-model-len", "20000", "--weights-gib", "14.9888")  # fmt: skip

# The log of one start, the model of another on the same kind of GPU, and the KV cache that it really had, in GiB.
# Measured: docs/empirical-vllm-memory-results.md of llm-d-incubation/llm-d-planner, and vLLM's issue 10517.
STARTS: dict[str, tuple[str, Config, Config, tuple[str, ...], float]] = {
    "a small model for a large one": (
        V1.format(ranks=1, weights=1.12, kv=64.45), QWEN3_06B, QWEN3_32B, (*H100, "--weights-gib", "61.03"), 4.45,
    ),
    "a large model for a small one": (
        V1.format(ranks=1, weights=61.03, kv=4.45), QWEN3_32B, QWEN3_06B, (*H100, "--weights-gib", "1.12"), 64.45,
    ),
    "two GPUs, and weights in fp8": (
        V1.format(ranks=2, weights=30.59, kv=34.49), QWEN3_32B, LLAMA_33_70B, (*TWO, "--weights-gib", "33.88"), 32.0,
    ),
    "V0, another context": (V0 + PROFILED + BLOCKS, LLAMA_31_8B, LLAMA_31_8B, RTX_3090, 3.81),
    "blocks alone": (V0 + BLOCKS, LLAMA_31_8B, LLAMA_31_8B, RTX_3090, 3.81),
}  # fmt: skip


@pytest.mark.parametrize(
    ("log", "logged", "asked", "flags", "real_gib"), STARTS.values(), ids=STARTS
)
def test_a_real_start_tells_of_another(
    log: str, logged: Config, asked: Config, flags: tuple[str, ...], real_gib: float,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Within 2 % of the KV cache that was really there."""
    file = tmp_path / "vllm.log"
    file.write_text(log)
    anchor, model = folder_of(tmp_path / "logged", logged), folder_of(tmp_path / "asked", asked)
    _, out, err = run(
        capsys, model, *flags, "--json", "--from-log", file, "--from-log-model", anchor
    )
    assert err == ""
    found_gib = json.loads(out)["memory_bytes_per_gpu"]["kv_cache"] / GIB
    assert found_gib == pytest.approx(real_gib, rel=0.02)


def test_a_log_that_ended_before_its_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, model = tmp_path / "vllm.log", folder_of(tmp_path / "model", LLAMA_31_8B)
    file.write_text(V0)
    status, _, err = run(capsys, model, *RTX_3090, "--from-log", file, "--from-log-model", model)
    assert (status, "'Available KV cache memory'" in err) == (2, True)
    file.write_text(V1.format(ranks=1, weights=1.12, kv=4.0))
    status, _, err = run(capsys, model, *H100, "--from-log", file)
    assert (status, "--from-log-model" in err) == (2, True)
    assert run(capsys, model, *H100)[0] == 0


def test_modelopt_keeps_its_quantization_apart(
    llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """hf_quant_config.json beside the config counts."""
    plain = json.loads(run(capsys, llama, "--gpu-name", "H100", "--json")[1])
    (llama / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "NVFP4"}}')
    quantized = json.loads(run(capsys, llama, "--gpu-name", "H100", "--json")[1])
    assert quantized["weights_bytes_per_gpu"] < 0.5 * plain["weights_bytes_per_gpu"]


def test_draft_layers_of_the_checkpoint_and_of_a_draft_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MTP adds the checkpoint's own layers, a draft model all of its own, n-grams none."""
    target = folder_of(tmp_path / "target", QWEN35_27B)
    draft = folder_of(tmp_path / "draft", QWEN3_06B)

    def per_token(config: object) -> float:
        out = run(
            capsys, target, "--gpu-name", "H200", "--json", "--max-model-len", "262144",
            *(("--speculative-config", json.dumps(config)) if config else ()),
        )[1]  # fmt: skip
        return float(json.loads(out)["kv_bytes_per_token_per_gpu"])

    alone = per_token(None)
    assert per_token({"method": "ngram", "num_speculative_tokens": 3}) == pytest.approx(
        alone, rel=0.05
    )
    assert per_token({"method": "mtp", "num_speculative_tokens": 2}) == pytest.approx(
        alone * 17 / 16, rel=0.08
    )
    own = 28 * 2 * 8 * 128 * 2
    drafted = per_token({"model": str(draft), "num_speculative_tokens": 2})
    assert drafted == pytest.approx(alone + own, rel=0.4)


def test_a_card_that_is_sold_in_two_sizes_is_asked_for(
    llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An A100 has 40 or 80 GiB; a name that says which is taken at its word."""
    status, _, err = run(capsys, llama, "--gpu-name", "A100")
    assert (status, "this card has 40 or 80 GiB" in err) == (2, True)
    _, out, _ = run(capsys, llama, "--gpu-name", "A100-SXM4-40GB", "--json")
    assert json.loads(out)["memory_bytes_per_gpu"]["total"] < 40 * GIB


def test_fits_is_said_first(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With how many requests of that length."""
    status, out, _ = run(capsys, llama, "--gpu-name", "H100", "--max-model-len", "8k")
    assert status == 0
    assert out.splitlines()[0].startswith("FITS: ")
    assert "requests of that length at once" in out.splitlines()[0]


def test_what_is_missing_is_no_negative_cache(
    llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "short by"; and flags that only help together are one line to copy."""
    _, out, _ = run(capsys, llama, "--gpu-memory-gib", "15.5", "--gpu-name", "RTX 4080")
    assert "  short by" in out
    assert not re.search(r" -\d", out)
    _, out, _ = run(capsys, "--model", llama, "--gpu-memory-gib", "18.5", "--gpu-name", "L4")
    assert "together with" not in out
