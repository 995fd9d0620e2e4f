"""`capacity --from-log`: one real start on a GPU makes the answer for other models there."""

import json
from pathlib import Path

import pytest

from tests.capacity.models import LLAMA_31_8B, LLAMA_33_70B, QWEN3_06B, QWEN3_32B, Config
from tests.cli.test_capacity import folder_of, run
from tests.nvml_stub import GIB

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
    """Says which lines are missing."""
    file, model = tmp_path / "vllm.log", folder_of(tmp_path / "model", LLAMA_31_8B)
    file.write_text(V0)
    status, _, err = run(capsys, model, *RTX_3090, "--from-log", file, "--from-log-model", model)
    assert (status, "'Available KV cache memory'" in err) == (2, True)
