"""Facts are read from the start-up lines of every release."""

import pytest

from tests.diagnosis.whole_log import diagnose
from vllm_watch.diagnosis.report import FACTS, to_json

LOGS = {
    "a CPU, and a build that does not fit": (
        "INFO 06-08 09:01:02 [cpu_worker.py:118] OMP threads binding of Process 2288: 0-95\n"
        "WARNING 11-20 18:31:55 [_custom_ops.py:20] Failed to import from vllm._C with ImportError('libcudart.so.13: cannot open shared object file: No such file or directory')\n",
        {"device": "cpu", "missing_library": "libcudart.so.13"},
    ),
    "lengths with a unit, and an error that only names a flag": (
        "vllm serve a/b --max-model-len 50k --max-num-batched-tokens 8K\nvllm: error: ambiguous option: --model could match --model-impl\n",
        {"model": "a/b", "max_model_len": 50000, "max_num_batched_tokens": 8192},
    ),
    "0.2": (
        "INFO 01-21 01:28:30 llm_engine.py:70] Initializing an LLM engine with config: model='a/b', tokenizer='a/b', dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=2, quantization=None, seed=0)\n"
        "INFO 01-21 01:28:57 llm_engine.py:275] # GPU blocks: 10974, # CPU blocks: 4096\n",
        {"engine": "V0", "model": "a/b", "dtype": "bfloat16", "max_model_len": 32768, "tensor_parallel_size": 2, "num_gpu_blocks": 10974, "kv_cache_tokens": 175584},
    ),
    "0.7 V0": (
        "INFO 02-13 15:56:20 [worker.py:267] the current vLLM instance can use total_gpu_memory (14.74GiB) x gpu_memory_utilization (0.60) = 8.78GiB\n"
        "INFO 02-13 15:56:20 [worker.py:267] model weights take 5.35GiB; non_torch_memory takes 0.05GiB; PyTorch activation peak memory takes 0.74GiB; the rest of the memory reserved for KV Cache is 2.64GiB.\n"
        "INFO 02-13 15:56:21 executor_base.py:110] # CUDA blocks: 1353, # CPU blocks: 1024\n"
        "INFO 02-13 15:56:21 executor_base.py:115] Maximum concurrency for 512 tokens per request: 42.28x\n"
        "INFO 02-13 15:57:03 model_runner.py:1562] Graph capturing finished in 41 secs, took 0.58 GiB\n"
        "INFO 02-13 15:57:03 llm_engine.py:431] init engine (profile, create kv cache, warmup model) took 54.71 seconds\n",
        {"engine": "V0", "gpu_memory_total_gib": 14.74, "gpu_memory_utilization": 0.6, "weights_gib": 5.35, "kv_cache_gib": 2.64, "num_gpu_blocks": 1353, "kv_cache_tokens": 21648, "max_concurrency": 42.28, "graph_capture_seconds": 41.0, "graph_capture_gib": 0.58, "engine_init_seconds": 54.71},
    ),
    "0.10 V1": (
        "(APIServer pid=9) INFO 09-10 23:26:12 [api_server.py:1805] vLLM API server version 0.10.1.1\n"
        "(APIServer pid=9) INFO 09-10 23:26:12 [utils.py:326] non-default args: {'model_tag': 'gpt', 'port': 8081, 'model': 'gpt', 'max_model_len': 16384, 'tensor_parallel_size': 4, 'gpu_memory_utilization': 0.8}\n"
        "(APIServer pid=9) INFO 09-10 23:26:29 [__init__.py:711] Resolved architecture: GptOssForCausalLM\n"
        "(EngineCore_0 pid=10) INFO 09-10 23:27:00 [cuda.py:260] Using FLASH_ATTN attention backend\n"
        "(EngineCore_0 pid=10) INFO 09-10 23:27:10 [gpu_model_runner.py:1] Model loading took 15.1 GiB and 33.902026 seconds\n"
        "(EngineCore_0 pid=10) INFO 09-10 23:27:20 [gpu_worker.py:359] Available KV cache memory: 52.36 GiB\n"
        "(EngineCore_0 pid=10) INFO 09-10 23:27:20 [kv_cache_utils.py:1286] GPU KV cache size: 686,320 tokens\n",
        {"vllm_version": "0.10.1.1", "model": "gpt", "port": 8081, "max_model_len": 16384, "tensor_parallel_size": 4, "gpu_memory_utilization": 0.8, "architecture": "GptOssForCausalLM", "engine": "V1", "attention_backend": "FLASH_ATTN", "weights_gib": 15.1, "weights_load_seconds": 33.902026, "kv_cache_gib": 52.36, "kv_cache_tokens": 686320},
    ),
    "0.32": (
        "(APIServer pid=9) INFO 11-21 03:01:23 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0\n"
        "(EngineCore pid=6706) INFO 11-21 03:02:25 [kv_cache_utils.py:2327] CPU KV cache size: 2,097,152 tokens, Maximum concurrency for 4,096 tokens per request: 512.00x\n",
        {"vllm_version": "0.32.0", "engine": "V1", "kv_cache_tokens": 2097152, "max_concurrency": 512.0},
    ),
    "a command line": (
        "+ vllm serve org/model --tensor-parallel-size 8 --max-model-len 128000 --gpu-memory-utilization 0.85 --kv-cache-dtype fp8\n",
        {"model": "org/model", "tensor_parallel_size": 8, "max_model_len": 128000, "gpu_memory_utilization": 0.85, "kv_cache_dtype": "fp8"},
    ),
    "a banner without its logo": ("(APIServer pid=9) INFO 11-21 03:01:23 [utils.py:301]  version 0.19.1\n", {"vllm_version": "0.19.1"}),
    "advice in an error is no setting": (
        "ERROR 11-21 03:01:23 [x.py:1] ValueError: 100 is odd. Consider running with --quantization awq.\n",
        {},
    ),
    "a refused value is no setting": ("vllm serve: error: argument --quantization: invalid choice: 'x' (choose from 'awq')\n", {}),
    "a setting at the end of a sentence": ("The command was: vllm serve a/b --quantization awq.\n", {"model": "a/b", "quantization": "awq"}),
    "nothing": ("EngineCore\n", {"engine": "V1"}),
}  # fmt: skip


@pytest.mark.parametrize(("log", "facts"), LOGS.values(), ids=LOGS)
def test_facts_of_a_start(log, facts):
    """Just these: what is not said is not there."""
    text = log + "ValueError: No available memory for the cache blocks.\n"
    assert diagnose(text.encode()).facts == facts


def test_published_facts_are_always_there():
    """null is unknown."""
    said = to_json(diagnose(b"ValueError: No available memory for the cache blocks."))["facts"]
    assert said == dict.fromkeys(FACTS)


def test_a_new_start_has_facts_of_its_own():
    """What an earlier start was told does not count for the next."""
    first = "INFO 11-21 03:00:00 [a.py:1] vLLM API server version 0.9.0\nINFO 11-21 03:00:01 [a.py:2] Using max model len 4096\nINFO 11-21 03:00:02 [m.py:1] Starting to load model x...\n"
    second = "INFO 11-21 04:00:00 [a.py:1] vLLM API server version 0.9.1\nINFO 11-21 04:00:01 [a.py:2] Using max model len 8192\n"
    facts = diagnose((first + second).encode()).facts
    assert (facts["vllm_version"], facts["max_model_len"]) == ("0.9.1", 8192)


def test_the_block_size_of_a_connector_is_not_the_engines():
    log = (
        'vllm serve a --kv-transfer-config \'{"kv_connector_extra_config": {"block_size": 256}}\'\n'
    )
    assert "block_size" not in diagnose(log.encode()).facts
    assert diagnose(b"INFO 11-21 03:00:00 [a.py:1] block_size=32\n").facts["block_size"] == 32
