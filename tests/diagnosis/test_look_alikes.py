"""Messages that resemble another failure: the sentence and the cures are of what the line shows."""

import pytest

from tests.diagnosis.whole_log import diagnose

UP = "INFO 06-22 19:30:00 [api_server.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000\nINFO:     Application startup complete.\n"
STATS = "(APIServer pid=1) INFO 06-22 19:{0}:09 [v1/metrics/loggers.py:273] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {1} tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.3%, Prefix cache hit rate: 0.0%\n"
CORE = "(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9] "
IN_ANSWER = "({0} pid=1) ERROR 03-03 10:00:00 [serving.py:9] Error in chat completion stream generator.\n({0} pid=1) ERROR 03-03 10:00:00 [serving.py:9] LookupError: no such call\n"
REFUSED = (
    '(APIServer pid=1) INFO:     10.0.0.1:5555 - "POST /v1/completions HTTP/1.1" {} Bad Request\n'
)
CASES = {
    "a library that this user may not read": (
        "python3: error while loading shared libraries: /root/.local/lib/libpython3.12.so.1.0: cannot open shared object file: Permission denied",
        "folder_not_writable", "id; ls -ld PATH", "LD_LIBRARY_PATH",
    ),
    "a layer that a worker does not own": (
        CORE + "KeyError: 'model.layers.30.self_attn.attn'",
        "unknown", "No rule knows this error", "checkpoint",
    ),
    "a weight that the model does not have": (
        CORE + "KeyError: 'model.layers.30.self_attn.q_norm.weight'",
        "unsupported_architecture", "checkpoint", "No rule",
    ),
    "what an API server reports after the engine's death": (
        "(APIServer pid=1) ERROR 07-15 01:39:25 [serving.py:820] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n(APIServer pid=1) ERROR 07-15 01:39:25 [serving.py:1007] ValidationError: 2 validation errors for Chunk",
        "engine_dead", "get the whole log", "No rule",
    ),
    "an optional module that was probed": (
        "WARNING [import_utils.py:408] Module vllm.third_party.deep_gemm was found but failed to import\nImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
        "benign_warning_noise", "below level ERROR", "install",
    ),
    "a module that is needed": (
        "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
        "missing_dependency_or_import_error", "for the same CUDA", "below level ERROR",
    ),
    "a traceback that ends before its exception": (
        CORE + 'File "/x/vllm/v1/structured_output/backend_xgrammar.py", line 82, in compile_grammar\n' + CORE + "ctx = self.compiler.compile_json_schema(",
        "unknown", "give more of the log", "does not show that the server came up",
    ),
    "a download without file descriptors": (
        "RuntimeError: Data processing error: CAS service error : IO Error: Too many open files (os error 24)",
        "unknown", "ulimit -n", "download",
    ),
    "an engine before this one in the same process": (
        "init_snapshot = free_memory=9.50GiB, total_memory=22.05GiB, torch_memory=11.20GiB, non_torch_memory=0.25GiB\nValueError: Free memory on device cuda:0 (9.50/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB).",
        "gpu_occupied_by_other_process", "free the earlier engine first", "Something else",
    ),
    "a setting that needs another": (
        "1 validation error for CacheConfig\n  Value error, --a-size can only be set with --enable-b [type=value_error, input_value=A, input_type=B]",
        "rope_or_config_mismatch", "the message names both", "values that the flag takes",
    ),
    "a kernel that the driver refused": (
        "RuntimeError: CUDA driver error (/x/deep_gemm/jit/handle.hpp:14): 200 (CUDA_ERROR_INVALID_IMAGE, device kernel image is invalid)",
        "compile_failure", "VLLM_USE_DEEP_GEMM=0", "has no code for this GPU",
    ),
    "a proxy's log": (
        "07:05:32 - LiteLLM Proxy:DEBUG: utils.py:1028 - config\nINFO:     Application startup complete.\nERROR:    [Errno 99] error while attempting to bind on address ('::1', 8000): cannot assign requested address",
        "not_a_vllm_log", "This is a log of LiteLLM", "It came up",
    ),
    "a program that begins each line with its name": (
        "\n".join(f"ds9: {each}" for each in ("model loaded", "cache ready", "graph ready", "prompt read", "cache alloc failed: out of memory", "synchronize failed: an illegal memory access was encountered")),
        "not_a_vllm_log", "This is a log of ds9", "dmesg",
    ),
    "a program that vLLM's workers also write of": (
        "\n".join(f"worker: {each}" for each in range(6)) + "\n" + CORE + "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "xid_or_gpu_lost", "dmesg", "This is a log of",
    ),
    "llama.cpp with times": (
        '0.08.996.496 W srv  server_chat_: unsupported tool type\n0.09.011.796 W srv    operator(): got exception: {"error":{"code":400,"message":"no parser"}}',
        "not_a_vllm_log", "llama.cpp", "No rule",
    ),
    "a stop of a server whose start is not in the log": (
        "(EngineCore pid=9) INFO 07-07 19:14:41 [core.py:12] [shutdown] EngineCore: trigger received signal=SIGTERM\nINFO:     Application shutdown complete.\n",
        "healthy", "begins after the start", "before it came up",
    ),
    "an assertion below the count of errors": (
        "(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n(APIServer pid=1)   Assertion failed, in align mode, block_size (900) must be <= max_num_batched_tokens (512). [type=assertion_error, input_value=A]",
        "unknown", "raise it", "the message names it",
    ),
    "a piece larger than the GPU": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 9.00 GiB is free.",
        "oom_kv_alloc_or_profiling", "larger than the whole GPU", "nvidia-smi",
    ),
    "an allocation that PyTorch warns of, and no other reason": (
        "Capturing CUDA graphs (PIECEWISE):  98%|xx| 50/51 [00:38<00:00,  1.29it/s]\n[rank3]:[W814 16:06:55.4 CUDACachingAllocator.cpp:39] memory allocation failed with OOM on device 3 while trying to allocate 3177185280 bytes (free: 1, total: 8).\n" + CORE + "WorkerProc hit an exception.",
        "oom_cuda_graph_capture", "lower --gpu-memory-utilization", "does not show why",
    ),
    "shapes that torch.compile met first": (
        CORE + "torch._dynamo.exc.TorchRuntimeError: RuntimeError when making fake tensor call\n" + CORE + "  -> RuntimeError('a and b must have same reduction dim, but got [s1, 8] X [9, 4].')",
        "compile_failure", "fails without torch.compile", "--enforce-eager",
    ),
    "a child's exit code and its parent's end of file": (
        CORE + "Rank 2 is dead.\n" + CORE + "Exit code: -9\n" + CORE + "EOFError",
        "cpu_ram_oom_killed", "was killed (SIGKILL)", "end of a pipe",
    ),
    "a transport without RDMA": (
        "W0807 09:15:21.4  1204 topology.cpp:152] No RDMA devices found, check your device installation\n" + UP + CORE + "Mooncake transfer failed for request r1, ret: -1",
        "kv_transfer", "no RDMA device on this host", "the other side: whether it runs",
    ),
    "a compiler that is not where CUDA_HOME says": (
        CORE + "subprocess.CalledProcessError: Command '['ninja', '-v', '-f', 'build.ninja']' returned non-zero exit status 1.\n" + CORE + "RuntimeError: Ninja build failed. Ninja output:\n" + CORE + "/bin/sh: 1: :/usr/local/cuda-12.8/bin/nvcc: not found",
        "compile_failure", "it has a colon", "read the compiler's own",
    ),
    "causes that a message only guesses": (
        CORE + "The actor is dead because its worker process has died. Some common causes include: (1) the process was killed by the OOM killer, (2) ray stop was called.",
        "ray_failure", "A worker process died", "ran out of memory",
    ),
    "a flag whose value names another trouble": (
        'vllm: error: unrecognized arguments: --rope-scaling={"rope_type":"yarn"}',
        "unknown_flag", "It does not know --rope-scaling", "config.json",
    ),
    "a check whose own figures are equal": (
        CORE + "AssertionError: Error in memory profiling. Initial free memory 12.5 GiB, current free memory 12.5 GiB. This happens when other processes release GPU memory.",
        "gpu_occupied_by_other_process", "no process freed memory", "another process took",
    ),
    "a check whose figures differ": (
        CORE + "AssertionError: Error in memory profiling. Initial free memory 12.5 GiB, current free memory 13.5 GiB. This happens when other processes release GPU memory.",
        "gpu_occupied_by_other_process", "another process took or freed", "no process freed memory",
    ),
    "much more free than was asked for": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 9.50 GiB. GPU 0 has a total capacity of 96.00 GiB of which 14.00 GiB is free.",
        "oom_kv_alloc_or_profiling", "share one memory", "in which phase",
    ),
    "a little more free than was asked for": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 9.50 GiB. GPU 0 has a total capacity of 96.00 GiB of which 9.70 GiB is free.",
        "oom_kv_alloc_or_profiling", "in which phase", "was not out of memory",
    ),
    "a compiler that was killed": (
        CORE + "RuntimeError: Ninja build failed. Ninja output:\n" + CORE + "FAILED: [code=137] moe.cuda.o\n" + CORE + "Killed",
        "compile_failure", "MAX_JOBS", "nvcc --version",
    ),
    "a compiler that failed": (
        CORE + "RuntimeError: Ninja build failed. Ninja output:\n" + CORE + "FAILED: [code=1] cached_ops/moe.cuda.o\n" + CORE + "ninja: build stopped",
        "compile_failure", "nvcc --version", "MAX_JOBS",
    ),
    "a kernel that was built and not loaded": (
        CORE + "RuntimeError: Assertion error (csrc/jit/kernel_runtime.hpp:45): exit_code == 0",
        "compile_failure", "cuobjdump", "compiler's own",
    ),
    "a limit below zero": (
        "1 validation error for SchedulerConfig\n  Value error, max_num_scheduled_tokens is set to -900, which does not allow any tokens [type=value_error, input_value=(), input_type=A]",
        "rope_or_config_mismatch", "lower --max-num-seqs", "the message names it",
    ),
    "FP8 where the KV cache is not": (
        "INFO 05-12 03:20:44 [core.py:105] Initializing a V1 LLM engine with config: model='/m', kv_cache_dtype=bfloat16\nValueError: type fp8e4nv not supported in this architecture.",
        "dtype_unsupported", "not in FP8: search", "--kv-cache-dtype auto",
    ),
    "FP8 where the KV cache is": (
        "INFO 05-12 03:20:44 [core.py:105] Initializing a V1 LLM engine with config: model='/m', kv_cache_dtype=fp8\nValueError: type fp8e4nv not supported in this architecture.",
        "dtype_unsupported", "--kv-cache-dtype auto", "not in FP8: search",
    ),
    "a request's grammar that failed while others are answered": (
        UP + "(EngineCore pid=2) ERROR 03-03 10:00:00 [x.py:1] Failed to advance FSM for request r1 for tokens 5.\n" + STATS.format(30, "80.0"),
        "benign_warning_noise", "The server went on", "structured",
    ),
    "requests that wait": (
        UP + "".join((STATS.format(each, "5.4").replace("Waiting: 0", "Waiting: 9")) for each in (30, 31)),
        "healthy", "1 running and 9 waiting requests, no prompt was read", "refused",
    ),
    "a web server's missing file": (
        '2026/03/03 10:00:00 [error] 7#7: *1 open() "/srv/www/favicon.ico" failed (2: No such file or directory)',
        "unknown", "No line has the format of vLLM", "not a log",
    ),
    "a timeout of Ray and the engine's death": (
        CORE + "ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read.\n(APIServer pid=1) ERROR 03-03 10:00:02 [api.py:7] EngineDeadError: EngineCore died unexpectedly",
        "ray_failure", "not a death", "ray status",
    ),
    "logits of a whole prompt": (
        UP + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in _get_prompt_logprobs_dict\n' + CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB.",
        "oom_runtime", "leave prompt_logprobs", "logits do not",
    ),
    "logits of a step": (
        UP + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in execute_model\n' + CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB.",
        "oom_runtime", "a step needed more", "prompt_logprobs",
    ),
    "a library that the system does not find, below its wrapper": (
        "OSError: libfoo.so.2: cannot open shared object file: No such file or directory\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\nOSError: Could not load plugin /x/plugin.bin",
        "missing_dependency_or_import_error", "add its folder to LD_LIBRARY_PATH", "no rule",
    ),
    "a library that was caught, and another error": (
        "(Worker pid=3) ERROR 03-03 10:00:00 [w.py:1] OSError: libfoo.so.2: cannot open shared object file: No such file or directory\n(Worker pid=4) ERROR 03-03 10:00:01 [w.py:1] LookupError: no mesh\n",
        "unknown", "No rule knows this error.", "it is the first",
    ),
    "an operator whose extension was not loaded": (
        "WARNING 03-03 10:00:00 [x.py:1] Failed to import my_plugin_C:libmy_ops.so: cannot open shared object file: No such file or directory. One feature is off.\nINFO 03-03 10:00:09 [x.py:1] go\nERROR 03-03 10:00:10 [core.py:9] AttributeError: '_OpNamespace' '_C_mine' object has no attribute 'swap'",
        "missing_dependency_or_import_error", "build or install the package of the extension again", "pip check",
    ),
    "an operator without a warning": (
        "ERROR 03-03 10:00:10 [core.py:9] AttributeError: '_OpNamespace' '_C_mine' object has no attribute 'swap'",
        "missing_dependency_or_import_error", "pip check", "build or install the package of the extension again",
    ),
    "no platform is a failure at any level": (
        "DEBUG 03-03 10:00:00 [__init__.py:120] ROCm platform is not available because: No module named 'amdsmi'\nINFO 03-03 10:00:00 [__init__.py:220] No platform detected, vLLM is running on UnspecifiedPlatform\n",
        "driver_cuda_mismatch", "the reason for your kind of device", "install",
    ),
    "no platform of a server that came up": (
        "INFO 03-03 10:00:00 [__init__.py:220] No platform detected, vLLM is running on UnspecifiedPlatform\n" + UP,
        "benign_warning_noise", "the line is harmless", "no device",
    ),
    "a loader of one format proves no missing files": (
        'Traceback (most recent call last):\n  File "/x/site-packages/vllm/tokenizers/mistral.py", line 9, in from_pretrained\nValueError: No tokenizer file found in directory: /models/qwen',
        "tokenizer_mismatch_or_missing_chat_template", "--tokenizer-mode hf", "missing, damaged",
    ),
    "the usual loader does": (
        'Traceback (most recent call last):\n  File "/x/site-packages/transformers/tokenization_utils.py", line 9, in from_pretrained\nValueError: No tokenizer file found in directory: /models/qwen',
        "tokenizer_mismatch_or_missing_chat_template", "missing, damaged", "--tokenizer-mode hf",
    ),
    "experts that cannot be divided": (
        "AssertionError: n_slots=130 must be divisible by ep_size=4. Adjust num_redundant_experts.",
        "unknown", "num_redundant_experts", "leave --enable-eplb",
    ),
    "a device that another process holds": (
        "chip init failed: open(/dev/vfio/3): Device or resource busy",
        "unknown", "lsof /dev/vfio", "HBM",
    ),
    "a failure with a reason, in no format": (
        "chip init failed: open(/dev/chip0): Input/output error",
        "unknown", "no rule knows this error", "not a log",
    ),
    "a step's limit is no context": (
        "WARNING 02-13 07:19:11 scheduler.py:949] Input prompt (9000 tokens) is too long and exceeds limit of 4096",
        "context_length_exceeded", "--max-num-batched-tokens N", "model's context",
    ),
    "Gloo is not NCCL": (
        CORE + "RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:5] Read error [10.1.2.3]:4000: Connection reset by peer",
        "nccl_init_failure", "GLOO_SOCKET_IFNAME", "NCCL_DEBUG",
    ),
    "a store of torch is not NCCL": (
        CORE + "torch.distributed.DistStoreError: wait timeout after 60s, keys: /default_pg/0",
        "nccl_init_failure", "first error of every rank", "NCCL_DEBUG",
    ),
    "a timeout is no death": (
        "INFO 06-12 10:00:00 [ray_executor.py:5] RAY_CGRAPH_get_timeout is set to 300\n" + CORE + "ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read.",
        "ray_failure", "ray_timeout_s", "ray status",
    ),
    "a timeout after a death": (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n" + CORE + "ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read.",
        "ray_failure", "ray status", "not a death",
    ),
    "a request without its schema": (
        "(APIServer pid=1) WARNING 02-26 11:57:44 [protocol.py:53] The following fields were present in the request but ignored: {'foo'}\n"
        '(APIServer pid=1)   File "/x/vllm/entrypoints/openai/protocol.py", line 42, in to_sampling_params\n(APIServer pid=1)     assert spec.name is not None\n(APIServer pid=1) AssertionError',
        "assertion_failed", "at `assert spec.name is not None`", "two settings",
    ),
    "an assertion of the engine is of no request": (
        "(APIServer pid=1) WARNING 02-26 11:57:44 [protocol.py:53] The following fields were present in the request but ignored: {'foo'}\n"
        + CORE + '  File "/x/vllm/v1/worker/utils.py", line 42, in to_tensor\n' + CORE + "    assert spec.name is not None\n" + CORE + "AssertionError",
        "assertion_failed", "two settings", "only this request",
    ),
    "the text of a C++ exception is known": (
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  CUDA error: an illegal memory access was encountered",
        "xid_or_gpu_lost", "a kernel on it", "C++",
    ),
    "the text of a C++ exception is not known": (
        "terminate called after throwing an instance of 'std::logic_error'\n  what():  no slot left in table",
        "unknown", "no rule knows this error", "read the line",
    ),
    "data that a client sent": (
        '(APIServer pid=1) ERROR 11-05 03:37:40 [chat.py:2]   File "/x/site-packages/soundfile.py", line 8, in open\n(APIServer pid=1) ERROR 11-05 03:37:40 [chat.py:2] soundfile.LibsndfileError: Format not recognised.\n(APIServer pid=1) INFO:     10.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request',
        "unknown", "check the data of this request", "pip show",
    ),
    "an interface of a package": (
        CORE + '  File "/cachelib/cachelib/v1/adapter.py", in build\n' + CORE + "AttributeError: 'Meta' object has no attribute 'resumed'",
        "unknown", "pip show cachelib vllm", "vllm/v1",
    ),
    "an index of a package": (
        CORE + '  File "/x/site-packages/vllm/v1/worker/w.py", line 5, in loop\n' + CORE + '  File "/cachelib/cachelib/v1/disk.py", in load\n' + CORE + "LookupError: key 5",
        "unknown", "It comes from load (cachelib/v1/disk.py)", "pip show",
    ),
    "a message below its exception": (
        "RuntimeError:\nThe table of pages\nis full.\n\nMore text.",
        "unknown", "Its message: The table of pages is full.", "More text",
    ),
    "no message below its exception": (
        CORE + "RuntimeError:\n(APIServer pid=1) ERROR 03-03 10:00:02 [api.py:7] The server ends.",
        "unknown", "no rule knows", "Its message",
    ),
    "a device file that oneCCL does not find": (
        "RuntimeError: oneCCL: ze_x.cpp:214 fill: EXCEPTION: open failed: fd: -1, errno: No such file or directory",
        "nccl_init_failure", "/dev/dri/by-path", "CCL_LOG_LEVEL",
    ),
    "a crash that printed its stack": (
        "Caught signal 11 (Segmentation fault: invalid permissions)\n==== backtrace (tid: 7) ====\n 0  /x/libucs.so.0",
        "engine_dead", "the printed stack", "PYTHONFAULTHANDLER",
    ),
    "a driver's word is no full GPU": (
        '(EngineCore pid=5) INFO 03-03 10:00:00 [default_loader.py:1] Loading weights took 3.10 seconds\n(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9]   File "/x/vllm/_custom_ops.py", line 9, in awq_marlin_repack\n(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9] RuntimeError: CUDA driver error: out of memory',
        "oom_loading_weights", "if PYTORCH_CUDA_ALLOC_CONF sets expandable_segments", "WSL",
    ),
    "under WSL even less": (
        "(EngineCore pid=5) WARNING 03-03 09:59:00 [interface.py:1] Using 'pin_memory=False' as WSL is detected.\nRuntimeError: CUDA driver error: out of memory",
        "out_of_memory", "memory limit of WSL", "nvidia-smi --query",
    ),
    "a step after the weights is not loading": (
        '(EngineCore pid=5) INFO 03-03 10:00:00 [default_loader.py:1] Loading weights took 3.10 seconds\n(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9]   File "/x/vllm/model_executor/models/qwen.py", line 9, in forward\n(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.',
        "oom_kv_alloc_or_profiling", "measured its peak", "were loaded",
    ),
    "an allocator's sums are": (
        "(EngineCore pid=5) INFO 03-03 10:00:00 [default_loader.py:1] Loading weights took 3.10 seconds\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.60 GiB of which 5.00 MiB is free. Process 17 has 23.50 GiB memory in use. Of the allocated memory 23.10 GiB is allocated by PyTorch",
        "oom_loading_weights", "--tensor-parallel-size", "nvidia-smi",
    ),
    "a small share is raised first": (
        "INFO 03-03 10:00:00 [u.py:1] non-default args: {'gpu_memory_utilization': 0.55}\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        "oom_kv_alloc_or_profiling", "--gpu-memory-utilization 0.9", "memory ran out",
    ),
    "the usual share is not": (
        "INFO 03-03 10:00:00 [u.py:1] non-default args: {'gpu_memory_utilization': 0.9}\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        "oom_kv_alloc_or_profiling", "leaves nothing for the KV cache", "--gpu-memory-utilization 0",
    ),
    "the sampler is not loading": (
        "    probs, order = logits.sort(dim=-1)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.10 GiB. GPU 0 has a total capacity of 47.40 GiB of which 900.00 MiB is free. Of the allocated memory 40.10 GiB is allocated by PyTorch, and 12.10 MiB is reserved by PyTorch but unallocated.",
        "oom_cuda_graph_capture", "in the sampler", "loading",
    ),
    "an engine with graphs has loaded": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.10 GiB. GPU 0 has a total capacity of 47.40 GiB of which 900.00 MiB is free. Of the allocated memory 40.10 GiB is allocated by PyTorch, with 120.00 MiB allocated in private pools (e.g., CUDA Graphs), and 12.10 MiB is reserved by PyTorch but unallocated.",
        "out_of_memory", "does not show in which phase", "numbers look like loading",
    ),
    "pools without memory prove no graphs": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.10 GiB. GPU 0 has a total capacity of 47.40 GiB of which 900.00 MiB is free. Of the allocated memory 40.10 GiB is allocated by PyTorch, with 0 bytes allocated in private pools (e.g., CUDA Graphs), and 12.10 MiB is reserved by PyTorch but unallocated.",
        "oom_loading_weights", "numbers look like loading", "sampler",
    ),
    "an unhandled error is not NCCL's reason": (
        "h:7:7 [0] NCCL INFO cudaDriverVersion 12040\nh:7:7 [0] init.cc:40 NCCL WARN Cuda failure 'operation not supported'\n(Worker pid=8) ERROR 03-03 10:00:00 [x.py:1] RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "nccl_init_failure", "virtual", "NCCL_DEBUG",
    ),
    "NCCL's log is on and has no reason": (
        "h:7:7 [0] NCCL INFO cudaDriverVersion 12040\n(Worker pid=8) ERROR 03-03 10:00:00 [x.py:1] RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "nccl_init_failure", "first error of every rank", "NCCL_DEBUG",
    ),
    "NCCL's log is off": (
        "(Worker pid=8) ERROR 03-03 10:00:00 [x.py:1] RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "nccl_init_failure", "NCCL_DEBUG=INFO vllm serve", "virtual",
    ),
    "a rendezvous is not NCCL": (
        "[E303 10:00:00 socket.cpp:1] [c10d] The client socket has timed out after 300000ms while trying to connect to (10.1.2.3, 29400).",
        "nccl_init_failure", "nc -vz 10.1.2.3 29400", "NCCL_DEBUG",
    ),
    "a machine without driver has no wrong PyTorch": (
        "DEBUG 03-03 10:00:00 [__init__.py:9] TPU platform is not available because: No module named 'libtpu'\nDEBUG 03-03 10:00:00 [__init__.py:9] CUDA platform is not available because: NVML Shared Library Not Found\nx.py:9: UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\nRuntimeError: Failed to infer device type",
        "driver_cuda_mismatch", "--gpus all", "build of PyTorch",
    ),
    "checks of platforms before a start are no start": (
        "DEBUG 03-03 10:00:00 [__init__.py:9] ROCm platform is not available because: AMDSMI_STATUS_NOT_INIT\nINFO 03-03 10:00:00 [cpu_worker.py:118] OMP threads binding of Process 2: 0-9\nINFO 03-03 10:00:01 [api_server.py:1] vLLM API server version 0.19.1\n(EngineCore pid=2) INFO 03-03 10:09:12 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds.",
        "shm_broadcast_hang", "py-spy", "xid",
    ),
    "a warning alone excludes it": (
        "x.py:9: UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\nRuntimeError: Failed to infer device type",
        "driver_cuda_mismatch", "--gpus all", "build of PyTorch",
    ),
    "a worker that vanished": (
        STATS.format(39, "12.5") + "(EngineCore pid=2) ERROR 06-22 19:40:00 [x.py:1] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.",
        "engine_dead", "vanished", "get the whole log",
    ),
    "a worker whose end begins the log": (
        "(EngineCore pid=2) ERROR 06-22 19:40:00 [x.py:1] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.",
        "engine_dead", "get the whole log", "vanished",
    ),
    "a name of the Hub is no folder": (
        "  Value error, Invalid repository ID or local directory specified: 'acme/tiny-model'.",
        "hf_not_found_or_offline", "exists and has config.json", "ls -l",
    ),
    "a name without quotes is one, too": (
        "OSError: acme/tiny-model is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        "hf_not_found_or_offline", "exists and has config.json", "ls -l",
    ),
    "a folder is no name of the Hub": (
        "  Value error, Invalid repository ID or local directory specified: './acme/tiny-model'.",
        "hf_not_found_or_offline", "ls -l", "exists and has config.json",
    ),
    "a parser belongs to a model": (
        "KeyError: 'invalid tool call parser: brandnew (chose from { hermes, phi4_mini_json })'",
        "wrong_flag_value", "later release", "argparse",
    ),
    "a value of a list is no parser": (
        "vllm serve: error: argument --load-format: invalid choice: 'fast' (choose from 'auto', 'dummy')",
        "wrong_flag_value", "a value of the list", "JSON",
    ),
    "a program that is missing is no wrong library": (
        '(Worker pid=9) ERROR 03-03 10:00:00 [x.py:6]   File "/x/site-packages/flashinfer/jit/core.py", line 9, in build\n(Worker pid=9) ERROR 03-03 10:00:00 [x.py:6]   File "/usr/lib/python3.12/subprocess.py", line 9, in _execute_child\n(Worker pid=9) ERROR 03-03 10:00:00 [x.py:6] FileNotFoundError: [Errno 2] No such file or directory: \'cmake\'',
        "unknown", "add its folder to PATH", "flashinfer",
    ),
    "a file that is missing is no program": (
        '(Worker pid=9) ERROR 03-03 10:00:00 [x.py:6]   File "/x/site-packages/trainer/load.py", line 9, in read\n(Worker pid=9) ERROR 03-03 10:00:00 [x.py:6] FileNotFoundError: [Errno 2] No such file or directory: \'labels\'',
        "unknown", "trainer", "PATH",
    ),
    "Triton's compiler is not that of CUDA_HOME": (
        "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\nptxas fatal   : Value 'sm_150' is not defined for option 'gpu-name'\nRepro command: /x/triton/backends/nvidia/bin/ptxas --gpu-name=sm_150 a.ptx",
        "compile_failure", "TRITON_PTXAS_PATH", "export CUDA_HOME",
    ),
    "nvcc is not Triton's": (
        "nvcc fatal   : Unsupported gpu architecture 'compute_150'",
        "compile_failure", "export CUDA_HOME", "TRITON_PTXAS_PATH",
    ),
    "a library that is not found comes before its user": (
        "libhccl.so: cannot open shared object file: No such file or directory\nRuntimeError: Failed to load the backend extension: torch_npu. You can disable extension auto-loading with TORCH_DEVICE_BACKEND_AUTOLOAD=0.",
        "missing_dependency_or_import_error", "those of the driver come from the host", "AUTOLOAD",
    ),
    "a TPU's main memory is a class": (
        "RuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 9.00G of 8.00G hbm.",
        "out_of_memory", "the TPU's memory (HBM)", "nvidia",
    ),
    "a length that fits comes first": (
        "ValueError: To serve at least one request with the model's max seq len (8192), 2.0 GiB KV cache is needed, which is larger than the available KV cache memory (0.40 GiB). Based on the available memory, the estimated maximum model length is 1632.",
        "kv_cache_too_small", "the numbers are in the message) None check whether another process", "--max-model-len 1632",
    ),
    "a time-out of something else does not silence the workers": (
        "WARNING 06-22 19:29:00 [x.py:1] Failed to fetch the usage: timed out\n(EngineCore pid=3) INFO 08-13 11:14:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 seconds.",
        "shm_broadcast_hang", "py-spy", "came first",
    ),
    "a colon in the path of a program that Python starts": (
        "FileNotFoundError: [Errno 2] No such file or directory: ':/usr/local/cuda/bin/nvcc'",
        "compile_failure", "it has a colon", "install the CUDA toolkit",
    ),
    "a full disk beside NCCL's shared memory": (
        "(APIServer pid=1) ERROR 03-10 15:23:29 [x.py:1] OSError: [Errno 28] No space left on device: '/root/.cache/x'\n[0] misc/shmutils.cc:88 NCCL INFO /dev/shm/nccl-1 opened",
        "disk_full", "a disk (or its quota) is full", "not a disk",
    ),
    "a package written for another vLLM": (
        'Traceback (most recent call last):\n  File "/x/site-packages/trainer/rollout.py", line 9, in <module>\nImportError: cannot import name \'OldParams\' from \'vllm.sampling_params\' (/x/site-packages/vllm/sampling_params.py)',
        "missing_dependency_or_import_error", "vLLM itself is whole", "version that this vLLM requires",
    ),
    "a driver's line proves no failed step": (
        STATS.format(39, "12.5") + "kernel: NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359",
        "oom_runtime", "does not show that the engine failed", "while requests were served",
    ),
    "workers that go on were busy": (
        "(EngineCore pid=3) INFO 02-22 23:21:42 [shm_broadcast.py:548] No available shared memory broadcast block found in 60 seconds.\n(Worker_TP1 pid=9) INFO 02-22 23:22:09 [monitor.py:35] torch.compile takes 70.1 s in total",
        "benign_warning_noise", "busy, not stuck", "py-spy",
    ),
    "workers that stay silent after their progress are not": (
        "(Worker_TP1 pid=9) INFO 02-22 23:22:09 [monitor.py:35] torch.compile takes 70.1 s in total\n(EngineCore pid=3) INFO 02-22 23:23:42 [shm_broadcast.py:548] No available shared memory broadcast block found in 60 seconds.",
        "shm_broadcast_hang", "py-spy", "busy",
    ),
    "a time-out that was warned of comes before the silence": (
        "(Worker_TP4 pid=5) WARNING 08-13 11:11:59 [x.py:85] Failed to set up the exchange: timed out connecting to 10.0.0.2:7000\n(EngineCore pid=3) INFO 08-13 11:14:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 seconds.",
        "shm_broadcast_hang", "the time-out at line 1 came first", "fuse_allreduce",
    ),
    "a tool call that could not be read is named although the server went on": (
        UP + "(APIServer pid=1) ERROR 06-22 19:39:54 [pythonic_tool_parser.py:101] Error in extracting tool call from response.\n(APIServer pid=1) ERROR 06-22 19:39:54 [pythonic_tool_parser.py:101] ValueError: not a list\n" + STATS.format(40, "12.5"),
        "benign_warning_noise", "--tool-call-parser", "restart",
    ),
    "the kernel killed another process": (
        "[Thu Aug 27 00:39:44 2026] Out of memory: Killed process 812 (redis-server) total-vm:81kB\n" + UP + STATS.format(40, "12.5"),
        "benign_warning_noise", "killed process 812 (redis-server)", "harmless",
    ),
    "a step of an engine that sleeps is no broken GPU": (
        UP + STATS.format(39, "12.5") + "(EngineCore pid=4) INFO 06-22 19:40:00 [executor_base.py:211] It took 1.5 seconds to fall asleep.\n(EngineCore pid=4) ERROR 06-22 19:40:00 [core.py:9] EngineCore encountered a fatal error.\n(EngineCore pid=4) ERROR 06-22 19:40:00 [core.py:9] torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "xid_or_gpu_lost", "before POST /sleep", "CUDA_LAUNCH_BLOCKING",
    ),
    "one that was woken up sleeps no more": (
        UP + STATS.format(39, "12.5") + "(EngineCore pid=4) INFO 06-22 19:40:00 [executor_base.py:211] It took 1.5 seconds to fall asleep.\n(EngineCore pid=4) INFO 06-22 19:41:00 [executor_base.py:228] It took 0.5 seconds to wake up tags {'weights', 'kv_cache'}.\n(EngineCore pid=4) ERROR 06-22 19:50:00 [core.py:9] EngineCore encountered a fatal error.\n(EngineCore pid=4) ERROR 06-22 19:50:00 [core.py:9] torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "xid_or_gpu_lost", "CUDA_LAUNCH_BLOCKING", "sleep",
    ),
    "an error that a library printed before the death": (
        "(EngineCore pid=4) INFO 05-01 21:14:15 [core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: model='m'\nJIT error: No device found\n(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 255}",
        "unknown", "the engine died", "does not show why",
    ),
    "a checkpoint's names are not a trainer's": (
        'Traceback (most recent call last):\n  File "/x/vllm/model_executor/model_loader/default_loader.py", line 300, in load_model\n  File "/x/vllm/model_executor/models/qwen3_moe.py", line 642, in load_weights\nKeyError: \'layers.0.mlp.w.bias\'',
        "unsupported_architecture", "safetensors.index.json", "trainer",
    ),
    "a trainer's names are not the checkpoint's": (
        'Traceback (most recent call last):\n  File "/x/trainer/worker.py", line 30, in update_weights\n  File "/x/vllm/model_executor/models/qwen3_moe.py", line 642, in load_weights\nKeyError: \'layers.0.mlp.w.bias\'',
        "unsupported_architecture", "from the trainer", "safetensors.index.json",
    ),
    "a colon in CUDA_HOME is no missing toolkit": (
        "/bin/sh: 1: /usr/local/cuda:/usr/local/cuda-13.0/bin/nvcc: not found\nninja: build stopped: subcommand failed.",
        "compile_failure", "it has a colon", "install the CUDA toolkit",
    ),
    "a missing toolkit is no colon": (
        "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found\nninja: build stopped: subcommand failed.",
        "compile_failure", "install the CUDA toolkit", "colon",
    ),
    "a model named by place to a program of flags": (
        "api_server.py: error: unrecognized arguments: /models/m",
        "unknown_flag", "--model MODEL", "give the model once",
    ),
    "no GPU at all is not one too few": (
        "AssertionError: local_world_size (2) must be less than or equal to the number of visible devices (0).",
        "tp_exceeds_gpus", "sees no GPU", "--tensor-parallel-size",
    ),
    "a full /dev/shm is no full disk": (
        "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'",
        "disk_full", "not a disk", "HF_HOME",
    ),
    "memory that ran out before anything was loaded": (
        'Traceback (most recent call last):\n  File "/x/vllm/v1/worker/gpu_worker.py", line 284, in init_device\n  File "/x/torch/cuda/memory.py", line 894, in mem_get_info\ntorch.AcceleratorError: CUDA error: out of memory',
        "gpu_occupied_by_other_process", "before anything was loaded", "--gpu-memory-utilization",
    ),
    "a draft model is not the model": (
        "ValueError: Model architectures ['Eagle3MistralForCausalLM'] are not supported for now.",
        "unsupported_architecture", "draft model", "made after the model",
    ),
    "a GPU newer than the build is not too old": (
        "NotImplementedError: No compiled cutlass_moe_mm: no cutlass_scaled_mm kernel for CUDA device capability: 121.",
        "quantization_unsupported", "newer than the build", "this GPU does not compute",
    ),
    "a torchrun's port is not the server's": (
        'Traceback (most recent call last):\n  File "/x/torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py", line 67, in next_rendezvous\ntorch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, code: -98, name: EADDRINUSE',
        "port_in_use", "sport = :29500", "NIXL",
    ),
    "parts of 80 in groups of 128, at a known size": (
        "INFO 05-05 10:00:00 [u.py:1] non-default args: {'tensor_parallel_size': 8}\nValueError: The output_size of gate's and up's weight = 80 is not divisible by weight quantization block_n = 128.",
        "tp_not_dividing_heads", "--tensor-parallel-size 1", "divide --tensor",
    ),
    "no smaller size gives groups of 128": (
        "INFO 05-05 10:00:00 [u.py:1] non-default args: {'tensor_parallel_size': 2}\nValueError: The input_size of down's weight = 720 is not divisible by weight quantization block_k = 128.",
        "tp_not_dividing_heads", "no smaller tensor parallel size", "take a smaller",
    ),
    "NPUs of a Ray cluster are not asked of nvidia-smi": (
        "WARNING 01-06 02:10:13 [ray_utils.py:351] The number of required NPUs exceeds the total number of available NPUs in the placement group.",
        "tp_exceeds_gpus", "ray status", "nvidia-smi",
    ),
    "a number of an NPU that a container lacks": (
        "RuntimeError: init:x.cpp:292 NPU function error: aclrtGetDeviceCount(&device_count), error code is 207004\nEE1001: The argument is invalid.Reason: set ASCEND_RT_VISIBLE_DEVICES:8 error, input data rang[0-8)",
        "tp_exceeds_gpus", "names an NPU", "driver, CANN",
    ),
    "an image for a newer CUDA than the driver's": (
        "docker: Error response from daemon: failed to create task: OCI runtime create failed: error running prestart hook\nnvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9, please update your driver to a newer version",
        "driver_cuda_mismatch", "driver is older", "nvidia-ctk",
    ),
    "an image's libcuda is not an old driver": (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination",
        "driver_cuda_mismatch", "does not belong to the host's kernel driver", "older than",
    ),
    "input is no NPU": (
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:275, unhandled cuda error, NCCL version 2.20.5\n    torch.distributed.all_reduce(input_, group=self.device_group)",
        "nccl_init_failure", "between the GPUs", "NPU",
    ),
    "any free port is not the API's port": (
        'Traceback (most recent call last):\n  File "/x/vllm/utils.py", line 572, in get_open_port\n    s.bind(("", 0))\nOSError: [Errno 98] Address already in use',
        "port_in_use", "No free port was left", "--port N",
    ),
    "a probe with a wrong path": (
        "Warning  Unhealthy  25m  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 404\nNormal  Killing  25m  kubelet  Container vllm failed liveness probe, will be restarted",
        "engine_dead", "the probe is wrong", "startupProbe",
    ),
    "an instruction that the CPU lacks is a cause": (
        "INFO 05-24 11:12:51 [api_server.py:1043] vLLM API server version 0.8.5\n/bin/bash: line 1: 17 Illegal instruction (core dumped) vllm serve m",
        "engine_dead", "this CPU does not have", "only the consequences",
    ),
    "memory that RDMA cannot register is not the peer": (
        "[1.8] [w:37 :0] ib_md.c:307 UCX  ERROR ibv_reg_mr(address=0x7f) failed: Bad address\nnixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND",
        "kv_transfer", "could not be set up on this host", "other side",
    ),
    "a transport that this side lacks is not the peer": (
        "[1746.9] [n:611 :0] ucp_context.c:1268 UCX  WARN  transports 'cuda_ipc','cuda_copy' are not available, please use one or more of: mm, tcp\nERROR 05-08 00:47:57 [core.py:396] EngineCore failed to start.\nERROR 05-08 00:47:57 [core.py:396]   File \"/x/nixl/_api.py\", line 243, in register_memory\nERROR 05-08 00:47:57 [core.py:396] nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND",
        "kv_transfer", "this side cannot register its memory", "UCX_TLS=tcp",
    ),
    "blocks that expired are not lost on the way": (
        "WARNING 08-16 08:09:07 [worker.py:2967] Releasing expired KV blocks for request r1 which were retrieved by 0 remote worker(s) before lease expired.",
        "kv_transfer", "released before the decode server fetched them", "computed again",
    ),
    "a Ray cluster whose GPUs are held": (
        "ValueError: Current node has no GPU available. current_node_resource={'accelerator_type:T4': 1.0, 'CPU': 112.0}. vLLM engine cannot start without GPU.",
        "tp_exceeds_gpus", "no free GPU for this engine", "--gpus all",
    ),
    "an address is no port": (
        "(Worker_TP11 pid=355) ERROR 08-10 23:02:41 [multiproc_executor.py:962] zmq.error.ZMQError: Address already in use (addr='tcp://10.20.0.12:40043')",
        "port_in_use", "Port 40043", "Port 02",
    ),
    "an adapter's missing folder is a reason": (
        'ValueError: Loading lora ["table_qc failed: No adapter found for /x/checkpoint-57"]',
        "lora_mismatch", "not in the place that vLLM reads", "has no reason",
    ),
    "a KV cache that has no room is not a large step": (
        'ERROR 05-08 11:47:02 [core.py:1136]   File "/x/abstract.py", line 123, in initialize_from_config\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.95 GiB. GPU 0 has a total capacity of 127.00 GiB of which 11.55 GiB is free.',
        "oom_kv_alloc_or_profiling", "while the KV cache was allocated", "--max-num-batched-tokens",
    ),
    "an Intel GPU has no CUDA context": (
        "xe 0000:03:00.0: [drm] GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id=24",
        "xid_or_gpu_lost", "of the Intel GPU", "CUDA",
    ),
    "vLLM itself names the phase": (
        "ERROR 01-05 20:46:36 [gpu_model_runner.py:3797] Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization. (original error: CUDA out of memory. Tried to allocate 384.00 MiB.)",
        "oom_loading_weights", "while the weights were loaded", "no line of this log shows",
    ),
    "a start that was terminated": (
        "INFO 04-29 15:02:39 [config.py:1] Initializing a V1 LLM engine (v0.8.5) with config\nWARNING 04-29 15:02:40 [logger.py:202] VLLM_TRACE_FUNCTION is enabled.\nKeyboardInterrupt: terminated",
        "unknown", "stopped from outside", "only warnings",
    ),
    "another server's memory is not vLLM's": (
        "Feb 21 01:41:02 h ollama[4]: ggml_backend_cuda_buffer_type_alloc_buffer: allocating 81656.95 MiB on device 0: cudaMalloc failed: out of memory\nFeb 21 01:41:16 h ollama[4]: llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "not_a_vllm_log", "a log of Ollama", "--",
    ),
    "SGLang imports vLLM's code": (
        '[2026-05-21 16:41:11 TP7] Scheduler hit an exception: Traceback (most recent call last):\n  File "/x/sglang/srt/managers/scheduler.py", line 9, in run\n  File "/x/site-packages/vllm/distributed/parallel_state.py", line 9, in f\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.',
        "not_a_vllm_log", "a log of SGLang", "--gpu-memory-utilization",
    ),
    "vLLM beside another server in one journal": (
        "Feb 21 01:41:02 h ollama[4]: ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory\nFeb 21 01:42:02 h vllm[9]: ERROR 02-21 01:42:02 [core.py:390] ValueError: Unknown quantization method: foo. Must be one of [awq]",
        "quantization_unsupported", "quantization", "memory ran out",
    ),
    "what a dead process leaves is no cause": (
        "(VllmWorker rank=0 pid=247) [2025-06-07 20:33:02,563] LMCache INFO: Creating LMCacheEngine instance vllm-instance (cache_engine.py:783:lmcache.v1.cache_engine)\n/usr/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 5 leaked shared_memory objects to clean up at shutdown",
        "unknown", "no line shows that the server came up", "only warnings",
    ),
    "NCCL's wrapper is not its reason": (
        "torch.distributed.DistBackendError: NCCL error in: x.hpp:317, unhandled system error, NCCL version 2.21.5\nncclSystemError: System call failed.\nLast error:\nError while creating shared memory segment /dev/shm/nccl-F9ffgB (size 9637888)",
        "nccl_init_failure", "/dev/shm is full, too small", "NCCL_SOCKET_IFNAME",
    ),
    "a server that is not up yet has not failed": (
        'Warning  Unhealthy  3s (x3 over 13s)  kubelet  Startup probe failed: Get "http://10.244.0.13:8000/health": dial tcp 10.244.0.13:8000: connect: connection refused',
        "engine_dead", "do not show a failure", "died",
    ),
    "a kernel of AITER is no broken GPU": (
        "Queue 0x7e aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: beyond the largest legal address. code: 0x29\nKernel Name: _ZN5aiter50fmoe_bf16_blockscaleFp8_g1u1",
        "xid_or_gpu_lost", "VLLM_ROCM_USE_AITER=0", "AMD_SERIALIZE_KERNEL",
    ),
    "a dump of the scheduler is no place of an error": (
        '(EngineCore pid=2) ERROR 11-10 09:28:06 [dump_input.py:79] Dumping scheduler output: kv_connector_metadata=None\n(EngineCore pid=2) ERROR 11-10 09:28:06 [core.py:827]   File "/x/dist-packages/vllm/v1/attention/backends/mla/common.py", line 1590, in _context\n(EngineCore pid=2) ERROR 11-10 09:28:06 [core.py:827] AssertionError',
        "assertion_failed", "attention", "KV connector",
    ),
    "a compose file is no log": (
        "services:\n  vllm:\n    image: vllm/vllm-openai:latest\n    volumes:\n    - ./vllm/huggingface:/root/.cache/huggingface\n    command:\n    - serve\n",
        "not_a_vllm_log", "not a log", "came up",
    ),
    "an answer of 500 is not health": (
        UP + '(APIServer pid=1) INFO:     10.0.0.1:5555 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error\n',
        "unknown", "error of the server (500)", "nothing failed",
    ),
    "words with dashes in a value are no flags": (
        'vllm: error: unrecognized arguments: --reasoning-config {"reasoning_end_str":" -- Answer now.</think>"}',
        "unknown_flag", "--reasoning-config", "--additional-config",
    ),
    "a worker of vLLM is told from what its parent relays": (
        "subprocess.CalledProcessError: Command '['/usr/bin/python3', '-m', 'vllm.model_executor.models.registry']' returned non-zero exit status 1.\nKeyError: 'getpwuid(): uid not found: 1000910000'",
        "folder_not_writable", "/etc/passwd", "architecture",
    ),
    "an unknown error names its package": (
        '(EngineCore pid=4) ERROR 04-04 02:11:09 [core.py:866]   File "/app/.venv/lib/python3.11/site-packages/vllm_plugin/utils.py", line 205, in mesh\n(EngineCore pid=4) ERROR 04-04 02:11:09 [core.py:866] LookupError: no mesh',
        "unknown", "It comes from mesh (vllm_plugin/utils.py)", "CUDA",
    ),
    "an adapter's error below the report": (
        "ERROR 10-11 18:33:12 engine.py:157] RuntimeError('Error in model execution: Loading lora /a/notes failed')\nERROR 10-11 18:33:12 engine.py:157] Traceback (most recent call last):\nERROR 10-11 18:33:12 engine.py:157] ValueError: base_model.model.lm_head.weight is unsupported LoRA weight",
        "lora_mismatch", "other than LoRA matrices", "stands",
    ),
    "a build for another platform is no missing GPU": (
        "WARNING 11-20 18:31:55 [_custom_ops.py:20] Failed to import from vllm._C with ImportError('libcudart.so.12: cannot open shared object file: No such file or directory')\nRuntimeError: Failed to infer device type",
        "driver_cuda_mismatch", "build for another platform", "--gpus",
    ),
    "sampling is no attention": (
        '(Worker pid=9) ERROR 09-26 11:20:11 [x.py:6]   File "/x/dist-packages/flashinfer/sampling.py", line 980, in top_k\n(Worker pid=9) ERROR 09-26 11:20:11 [x.py:6] ValueError: odd logits',
        "unknown", "sampling", "attention",
    ),
    "a compiler that is missing is no missing model": (
        "(Worker pid=9) ERROR 09-26 11:20:11 [x.py:6] FileNotFoundError: [Errno 2] No such file or directory: '/usr/bin/nvcc'",
        "compile_failure", "no nvcc is found", "model",
    ),
    "a call that was given up is no wait, and a CPU has no Xid": (
        "INFO 06-08 09:01:02 [cpu_worker.py:118] OMP threads binding of Process 2288: 0-95\n" + "(EngineCore pid=2) INFO 06-08 09:09:12 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds.\n" * 12 + "(EngineCore pid=2) ERROR 06-08 09:12:15 [core.py:1138] EngineCore encountered a fatal error.\n(EngineCore pid=2) ERROR 06-08 09:12:15 [core.py:1138] TimeoutError: RPC call to execute_model timed out.",
        "shm_broadcast_hang", "did not answer a call", "xid",
    ),
    "an engine that died has not lost one request only": (
        "ERROR 08-20 10:55:31 [core.py:515] EngineCore encountered a fatal error.\nERROR 08-20 10:55:31 [core.py:515] ValueError: Attempted to assign 40 = 40 multimodal tokens to 41 placeholders",
        "unknown", "number of placeholders", "only this request",
    ),
    "NCCL's own log is on, and has the reason": (
        "h:17:19 [0] NCCL INFO Connect res=0\nh:17:19 [0] misc/ibvwrap.cc:206 NCCL WARN Call to ibv_modify_qp failed with error No such device errno 19\nh:17:19 [0] NCCL INFO transport/net_ib.cc:937 -> 2\nERROR 03-23 23:10:38 [engine.py:448] RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "nccl_init_failure", "RDMA network", "NCCL_DEBUG",
    ),
    "a TPU's memory is not a GPU's": (
        "RESOURCE_EXHAUSTED: Error loading program 'jit_step': Attempting to reserve 3.02G at the bottom of memory. That was not possible.",
        "unknown", "a smaller --gpu-memory-utilization", "nvidia",
    ),
    "a critical error at the end is not health": (
        UP + STATS.format(39, "12.5") + "tpu_driver: unrecoverable error on chip 3, killing process\n",
        "unknown", "a critical error was reported right before the log ends", "nothing failed",
    ),
    "a critical error before answers is not the end": (
        UP + "tpu_driver: unrecoverable error on chip 3, killing process\n" + STATS.format(39, "12.5"),
        "healthy", "nothing failed", "critical",
    ),
    "a Gaudi that failed is no NVIDIA GPU": (
        UP + STATS.format(39, "12.5") + "Synapse detected a device critical error that requires a restart. Killing process in 5 seconds (hl: 1) 19:39:11 [No progress error]\n",
        "xid_or_gpu_lost", "critical error of the device", "xid",
    ),
    "an index that is out of range is no broken GPU": (
        UP + STATS.format(39, "12.5") + "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [7,0,0], thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n(EngineCore pid=4) ERROR 06-22 19:40:00 [core.py:9] torch.AcceleratorError: CUDA error: device-side assert triggered\n",
        "xid_or_gpu_lost", "index that is out of range", "xid",
    ),
    "a body that was lost with an upgrade": (
        UP + "WARNING:  Unsupported upgrade request.\n" + REFUSED.format(400) + STATS.format(39, "12.5"), "healthy", "HTTP/1.1", "the client's answer",
    ),
    "a name that is not served, after an upgrade": (
        UP + "WARNING:  Unsupported upgrade request.\n" + REFUSED.format(404) + STATS.format(39, "12.5"), "healthy", "not served", "HTTP/1.1",
    ),
    "an error in one answer": (
        UP + IN_ANSWER.format("APIServer"), "unknown", "One request failed with it", "engine died",
    ),
    "an error in one request, before others are answered": (
        UP + "(APIServer pid=1) ERROR:    Exception in ASGI application\n(APIServer pid=1) LookupError: no such frame\n" + STATS.format(39, "12.5"), "benign_warning_noise", "One request failed with it", "may have ended",
    ),
    "an error of the API server that no request met": (
        UP + "(APIServer pid=1) LookupError: no such frame\n" + STATS.format(39, "12.5"), "benign_warning_noise", "may have ended a request", "One request failed",
    ),
    "an error in one answer, and the engine's death": (
        UP + IN_ANSWER.format("APIServer") + CORE + "EngineCore encountered a fatal error.\n", "unknown", "engine died", "One request failed",
    ),
    "an error in the engine": (UP + IN_ANSWER.format("EngineCore"), "unknown", "no rule", "One request failed"),
    "minutes without a token are not health": (
        UP + STATS.format(39, "12.5") + "".join(STATS.format(each, "0.0") for each in (40, 41)) + STATS.format(41, "0.0"),
        "unknown", "no tokens", "nothing failed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("log", "slug", "has", "lacks"), CASES.values(), ids=CASES)
def test_a_look_alike_is_not_taken_for_the_other(log, slug, has, lacks):
    found = diagnose(log.encode())
    told = " ".join(
        (
            found.sentence,
            found.explanation,
            *(f"{each.what} {each.command}" for each in found.fixes),
        )
    )
    assert found.failure == slug, told
    assert has.lower() in told.lower()
    assert lacks.lower() not in told.lower()


def test_an_error_that_the_server_survived_is_not_called_harmless():
    log = (
        UP
        + "(APIServer pid=1) ERROR 03-10 15:23:29 [serving.py:311] Error in preprocessing prompt inputs\n"
        + STATS.format(40, "12.5")
    )
    found = diagnose(log.encode())
    assert (found.failure, found.sentence) == (
        "benign_warning_noise",
        "the server went on after this error",
    )
