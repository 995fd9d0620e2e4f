"""Lines that report a failure in words that no rule knows, and the reasons beside a summary."""

import pytest

from tests.diagnosis.whole_log import diagnose

BANNER = "INFO 11-21 03:00:00 [api_server.py:1805] vLLM API server version 0.10.1\n"
READY = "INFO:     Application startup complete.\n"
DEAD = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}\n"
NO_OP = "(EngineCore pid=2) ERROR 11-21 03:00:09 [core.py:9] AttributeError: '_OpNamespace' '_C' object has no attribute 'my_op'\n"
BACKENDS = "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=64). Reasons: {{FLASH_ATTN: [{0}], TRITON_ATTN: [{1}, head_size not supported]}}.\n"
KILLING = (
    "  Normal   Killing    1m    kubelet  Container a failed liveness probe, will be restarted\n"
)
PROBED = '  Warning  Unhealthy  2m    kubelet  Liveness probe failed: Get "http://10.0.0.1:8000/health": {}\n  Warning  BackOff    10s   kubelet  Back-off restarting failed container a\n'
TOO_SMALL = "ValueError: To serve at least one request with the models's max seq len (4096), (4.00 GiB KV cache is needed, which is larger than the available KV cache memory (2.00 GiB).\n"
WORKER = "(Worker pid=7) "
WAITS = "INFO 11-21 03:00:09 [a.py:4] Waiting for creating a placement group of specs for 10 seconds. specs=[{'GPU': 1.0}, {'GPU': 1.0}].\n"
NIXL = WORKER + "ERROR 11-21 03:00:09 [a.py:4] NIXL transfer failure: handshake_setup_failed\n"
ADVANCE = "ERROR 11-21 03:00:09 [a.py:4] Failed to advance FSM for request a for tokens 1.\n"

CASES = {
    "a launcher's error": (
        "Copying files\nError: the container could not be prepared\nStopped.\n",
        "unknown", 2, "no line has vLLM's log format", "no error",
    ),
    "tests that all passed": ("10 passed, 0 failed\n", "not_a_vllm_log", None, "no known error", "no rule"),
    "a worker's own words": (
        BANNER + WORKER + "reader 0 failed: 'offsets'\n" + WORKER + "reader 1 skipped\n",
        "unknown", 2, "no rule matches", "no error",
    ),
    "a server that came up after them": (
        BANNER + WORKER + "reader 0 failed: 'offsets'\n" + READY,
        "healthy", None, "nothing failed", "no rule matches",
    ),
    "a warning of a failure": (
        BANNER + "WARNING 11-21 03:00:01 [a.py:1] Slow disk.\nWARNING 11-21 03:00:02 [a.py:2] The cache cannot be used.\n",
        "unknown", 3, "report a failure", "no error in this log",
    ),
    "a warning of nothing": (
        BANNER + "WARNING 11-21 03:00:01 [a.py:1] Slow disk.\n",
        "benign_warning_noise", 2, "only warnings", "report a failure",
    ),
    "an error marked by the runner": (
        BANNER + "[error]Please install vllm[audio]\n",
        "unknown", 2, "The message itself advises: Please install vllm[audio]", "no error",
    ),
    "advice below the message": (
        "[2026-01-01 00:00:00,1 W 3 3] (raylet) store.cc:8: The request exceeds memory available.\nYou may need to pass the flag '--shm-size' to docker.\n",
        "unknown", 1, "advises: You may need to pass the flag '--shm-size'", "not a log",
    ),
    "an option in the message": (
        "Cannot read this folder without `--allow-folder`.\n",
        "unknown", 1, "names the option --allow-folder", "advises",
    ),
    "a refusal before the death": (
        BANNER + "tool: Operation not permitted\n" + DEAD,
        "engine_dead", 2, "shows only the consequence", "does not show why",
    ),
    "a death without it": (BANNER + DEAD, "engine_dead", 2, "does not show why", "shows only the consequence"),
    "an extension with another ABI": (
        "WARNING: Failed to import from vllm._C with ImportError('/x/_C.abi3.so: undefined symbol: _Z1a')\n" + NO_OP,
        "missing_dependency_or_import_error", 1, "which PyTorch is installed", "pip check",
    ),
    "an import of another component": (
        "WARNING: Failed to import from vllm._moe with ImportError('/x/_moe.abi3.so: undefined symbol: _Z1a')\n" + NO_OP,
        "missing_dependency_or_import_error", 2, "operator is missing", "built for another",
    ),
    "a library that pip did not install": (
        "OSError: /usr/local/Ascend/lib/liba.so: undefined symbol: _Z1a\n",
        "missing_dependency_or_import_error", 1, "pip did not install the library", "pip check",
    ),
    "an old C library": (
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /x/a.so)\n",
        "missing_dependency_or_import_error", 1, "ldd --version", "pip check",
    ),
    "a read-only mount": (
        "OSError: [Errno 30] Read-only file system: '/data/a'\n",
        "folder_not_writable", 1, "mounted read-only", "ls -ld",
    ),
    "missing rights": (
        "PermissionError: [Errno 13] Permission denied: '/data/a'\n",
        "folder_not_writable", 1, "ls -ld", "mount",
    ),
    "one reason of all backends": (
        BACKENDS.format(*["kv_cache_dtype not supported"] * 2),
        "attention_backend_unavailable", 1, "All 2 backends are rejected for the same reason: kv_cache_dtype not supported", "nvidia-smi",
    ),
    "backends with different reasons": (
        BACKENDS.format("block_size not supported", "compute capability not supported"),
        "attention_backend_unavailable", 1, "does not support this model, GPU or setting", "same reason",
    ),
    "a CPU without room": (
        "INFO 11-21 03:00:00 [__init__.py:216] Automatically detected platform cpu.\n" + TOO_SMALL,
        "kv_cache_too_small", 2, "VLLM_CPU_KVCACHE_SPACE", "GPU",
    ),
    "a GPU without room": (TOO_SMALL, "kv_cache_too_small", 1, "nvidia-smi", "VLLM_CPU_KVCACHE_SPACE"),
    "the kubelet killed it": (
        PROBED.format("connection refused") + KILLING,
        "engine_dead", 3, "its probe failed", "do not show why",
    ),
    "the kubelet only restarts it": (
        PROBED.format("connection refused"), "engine_dead", 1, "do not show why", "startupProbe",
    ),
    "a probe that was too slow": (
        BANNER + READY + PROBED.format("context deadline exceeded") + KILLING,
        "engine_dead", 5, "too slowly", "startupProbe",
    ),
    "a kernel's message below its place": (
        "RuntimeError: /src/my_gemm.cu:5\n  the buffer is not ready.\n",
        "unknown", 1, "Its message: the buffer is not ready.", "generation",
    ),
    "a daemon's refusal": (
        "docker: Error response from daemon: hook failed\nThis mode is not known. Please set the mode (e.g. --mode=b) first\n",
        "unknown", 1, "advises: Please set the mode (e.g. --mode=b) first", "vLLM's log",
    ),
    "another program's command": (
        "me@a:~$ newtool serve /models/a --port 80\nValueError: GGUF architecture 'a1' is not supported (known: ['a2'])\n",
        "not_a_vllm_log", 2, "a log of newtool", "quantization",
    ),
    "another program's frames": (
        'Traceback (most recent call last):\n  File "/x/site-packages/newtool/cli.py", line 1, in <module>\nValueError: AWQ is not supported\n',
        "not_a_vllm_log", 3, "a log of newtool", "release takes",
    ),
    "frames of vLLM in another program": (
        'Traceback (most recent call last):\n  File "/x/site-packages/newtool/cli.py", line 1, in <module>\n  File "/x/site-packages/vllm/a.py", line 1, in f\nValueError: AWQ is not supported\n',
        "quantization_unsupported", 4, "quantization", "newtool",
    ),
    "an architecture in a file of one format": (
        "ValueError: GGUF architecture 'a1' is not supported (known: ['a2'])\n",
        "unsupported_architecture", 1, "architecture from a GGUF file", "table",
    ),
    "nothing free at all": (
        "ValueError: Free memory on device xpu:1 (0.0/15.9 GiB) on startup is less than desired GPU memory utilization (0.9, 14.3 GiB).\n",
        "gpu_occupied_by_other_process", 1, "xpu-smi ps", "nvidia-smi",
    ),
    "a little free": (
        "ValueError: Free memory on device cuda:0 (0.4/15.9 GiB) on startup is less than desired GPU memory utilization (0.9, 14.3 GiB).\n",
        "gpu_occupied_by_other_process", 1, "nvidia-smi", "reading is wrong",
    ),
    "an idle cluster of Ray": (
        WAITS + "Total Usage:\n 0.0/1.0 GPU\n",
        "ray_failure", 1, "requests 2 GPUs, and Ray has registered only 1", "actors",
    ),
    "a busy cluster of Ray": (WAITS + " 1.0/2.0 GPU\n", "ray_failure", 1, "has not provided the resources", "none is in use"),
    "a grammar that is ignored": (
        "WARNING: Structured outputs are not supported with mode A.\n" + ADVANCE,
        "grammar_failed", 2, "the warning names", "async",
    ),
    "a grammar that is not": (ADVANCE, "grammar_failed", 1, "async", "the warning names"),
    "arguments of another version": (
        '  File "/x/vllm/v1/structured_output/a.py", line 1, in f\n    g(b=1)\nTypeError: g() got an unexpected keyword argument \'b\'\n',
        "unknown", 3, "comes from f (vllm/v1/structured_output/a.py)", "schema",
    ),
    "an index beyond its table": (
        "the index value 9 exceeds bounds 4!\nRuntimeError: core exception\n",
        "xid_or_gpu_lost", 1, "does not mean that the GPU is broken", "CUDA_LAUNCH_BLOCKING",
    ),
    "a layout that a library refuses": (
        "RuntimeError: Assertion error (/a/deepgemm/csrc/apis/a.hpp:1): x.is_contiguous()\n",
        "assertion_failed", 1, "memory layout", "VLLM_USE_DEEP_GEMM",
    ),
    "a status and its reason": (
        NIXL + WORKER + "ERROR 11-21 03:00:09 [a.py:4] AssertionError: Block size 16 differs from 32.\n",
        "unknown", 2, "no rule", "side channel",
    ),
    "a status alone": (NIXL, "kv_transfer", 1, "side channel", "no rule"),
    "a kernel that the next line names": (
        "CUDA Exception: Warp Out-of-range Address\nKernel: newlib_matmul_128\n",
        "unknown", 1, "The kernel is newlib_matmul_128", "issues of vLLM",
    ),
    "a fatal line before the crash that follows from it": (
        "[pod-1:1] FATAL: library A was compiled with avx512 but this CPU lacks it.\n!!!!!!! Segfault encountered !!!!!!!\n",
        "engine_dead", 1, "earlier line may be the cause", "native code",
    ),
    "an error of C++ in a server that had come up": (
        "(APIServer pid=1) INFO:     Application startup complete.\n[rank1]:[E0302 06:31:02.635343200 ops.ts:44] AttentionOp setup went wrong!\n",
        "unknown", 2, "no rule", "nothing failed",
    ),
    "an exception below a heading": (
        "RuntimeError: the import of A failed:\nTraceback (most recent call last):\n" + '  File "/x/a.py", line 1, in <module>\n' * 9
        + "ImportError: cannot import name 'b' from partially initialized module 'c'\n",
        "missing_dependency_or_import_error", 12, "lacks a name", "no rule",
    ),
    "an exception with a suffix": (
        'Traceback (most recent call last):\n  File "/x/a.py", line 1, in f\nvllm.x.NVMLError_InvalidArgument: Invalid Argument\n',
        "unknown", 3, "no rule", "diagnose more of the log",
    ),
    "an error in the code of structured output": (
        '  File "/x/vllm/v1/structured_output/a.py", line 1, in f\nAssertionError: (-1, [-1, -1])\n',
        "grammar_failed", 2, "does not name a grammar", "grammar or schema of a structured-output request",
    ),
    "the driver's own error below one of NCCL": (
        "RuntimeError: NCCL error: unhandled cuda error\nHIP failure 'not in this state' at enqueue.cc:20\n",
        "nccl_init_failure", 2, "first error of every rank", "no rule",
    ),
    "an operator that a platform may not have": (
        "AttributeError: '_OpNamespace' '_C' object has no attribute 'op_1'\n",
        "missing_dependency_or_import_error", 1, "this build or platform does not have it", "lacks a name",
    ),
    "a branch that ModelScope does not have": (
        "modelscope.hub.errors.NotExistError: The model: a/b has no revision: main !\n",
        "hf_not_found_or_offline", 1, "no revision of this name", "neither a folder",
    ),
    "two settings with a rule of their own": (
        "ValueError: EPLB is not supported with model A, please set enable_eplb=False\n",
        "unknown", 1, "expert load balancing", "it is incompatible with",
    ),
    "a traceback in warnings": (
        BANNER + "".join(f"WARNING 11-21 03:00:02 [a.py:2] {each}\n" for each in ("Traceback (most recent call last):", '  File "/x/vllm/a.py", line 1, in f', "    a == b", "AssertionError")),
        "unknown", 5, "a == b", "not in this log",
    ),
    "a kernel and an architecture": (
        "RuntimeError: my_gemm does not support this arch\n",
        "unknown", 1, "rejected its call", "its message",
    ),
    "a compiler that is only asked for an option": (
        "clang (LLVM option parsing): Unknown command line argument '-amdgpu-ring=1'.\nfailed to execute:/opt/rocm/clang++ -mllvm -amdgpu-ring=1 -x hip -c /dev/null -o /dev/null",
        "unknown", 1, "No rule matches", "consequence",
    ),
    "NVLink SHARP without its fabric": (
        "h:1:1 [0] transport/nvls.cc:379 (nvlsAllocateMem) NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2 : CUDA error 802 'system not yet initialized'.\n(Worker pid=2) ERROR [pynccl_wrapper.py:417] raise RuntimeError(f\"NCCL error: {error_str}\")\n(Worker pid=2) ERROR RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "nccl_init_failure", 1, "NCCL_NVLS_ENABLE=0", "not initialized yet",
    ),
    "a library's own error before its summary": (
        "E0304 18:52:09.815541 libfabric_rail.cpp:455] fi_getinfo failed for rail 0: No data available\nnixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND",
        "unknown", 1, "No rule matches", "UCX",
    ),
    "an abort whose place is below": (
        "Abort was called at 84 line in file:\n../../neo/linear_stream.h",
        "unknown", 1, "No rule matches", "not a log",
    ),
    "a library's warning": (
        "(EngineCore pid=60) INFO 04-27 19:07:51 [worker.py:679] Registering KV_Caches.\nW0427 19:07:51.968335 60 ucx_utils.cpp:581] memory is detected as host",
        "benign_warning_noise", 2, "only warnings", "hangs",
    ),
    "a traceback that is cut in its first frame": (
        'INFO:     Application startup complete.\n(APIServer pid=78) INFO 02-05 08:06:45 [loggers.py:257] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 3.1 tokens/s, Running: 1 reqs, Waiting: 0 reqs\n(APIServer pid=78) ERROR 02-05 08:06:47 [serving_chat.py:13] Error in chat completion stream generator.\n(APIServer pid=78) ERROR 02-05 08:06:47 [serving_chat.py:13] Traceback (most recent call last):\n(APIServer pid=78) ERROR 02-05 08:06:47 [serving_chat.py:13] File "/x/vllm/serving_chat',
        "unknown", 4, "not in this log", "nothing failed",
    ),
    "a call stack is not advice": (
        "CMake Error at cmake/a.cmake:225 (find_library):\nCould not find OPEN_MP using the following names: gomp\nCall Stack (most recent call first):\n",
        "unknown", 1, "No rule matches", "advises",
    ),
    "an extension that could not be imported before": (
        "(Worker pid=5) WARNING 11-05 13:27:54 [camem.py:63] Failed to import vllm_ascend_C:/x/vllm_ascend_C.so: undefined symbol: _ZN2fe. Sleep mode will be disabled.\nERROR 11-05 13:27:55 [core.py:515] AssertionError: camem allocator is not available\n",
        "unknown", 2, "line 1 reported", "advises",
    ),
    "a compiler that only notices the end of its parent": (
        BANNER + "ERROR 06-02 17:15:30 [x.py:1] TBE Subprocess[task_distribute] raise error[], main process disappeared!\nERROR 06-02 17:15:31 [multiproc_executor.py:135] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.\n",
        "engine_dead", 3, "does not show why", "TBE",
    ),
    "a message in parentheses before its traceback": (
        "ERROR 02-21 03:07:52 engine.py:400] _ring_attention() takes 8 positional arguments but 10 were given\nERROR 02-21 03:07:52 engine.py:400] Traceback (most recent call last):\n",
        "unknown", 1, "No rule matches", "not in this log",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("log", "slug", "number", "has", "lacks"), CASES.values(), ids=CASES)
def test_what_a_line_reports_is_shown(log, slug, number, has, lacks):
    found = diagnose(log.encode())
    fixes = (f"{each.what} {each.command}" for each in found.fixes)
    told = " ".join((found.sentence, found.explanation, *fixes))
    assert (found.failure, found.line_number) == (slug, number), told
    assert has.lower() in told.lower(), told
    assert lacks.lower() not in told.lower(), told


def test_the_implementation_of_a_model_is_no_attention_backend():
    log = "INFO 11-12 13:42:16 [a.py:4] Using Transformers backend.\nINFO 11-12 13:42:17 [a.py:3] Using FlashInfer backend.\n"
    assert diagnose(log.encode()).facts["attention_backend"] == "FlashInfer"
