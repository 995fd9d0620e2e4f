"""Logs that resemble others: text, class, words of the answer, words that it must not have."""

UP = "INFO 06-22 19:30:00 [api_server.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000\nINFO:     Application startup complete.\n"
STATS = "(APIServer pid=1) INFO 06-22 19:{0}:09 [v1/metrics/loggers.py:273] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {1} tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.3%, Prefix cache hit rate: 0.0%\n"
CORE = "(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9] "
IN_ANSWER = "({0} pid=1) ERROR 03-03 10:00:00 [serving.py:9] Error in chat completion stream generator.\n({0} pid=1) ERROR 03-03 10:00:00 [serving.py:9] LookupError: no such call\n"
REFUSED = (
    '(APIServer pid=1) INFO:     10.0.0.1:5555 - "POST /v1/completions HTTP/1.1" {} Bad Request\n'
)
LOOK_ALIKES: dict[str, tuple[str, str, str, str]] = {
    "host memory that could not be pinned": (
        "    return value.to(device=target).pin_memory()\ntorch.AcceleratorError: CUDA error: out of memory",
        "unknown", "host memory could not be pinned", "nvidia-smi",
    ),
    "a pasted line of another program": (
        "unable to start the runner: the image has no entry",
        "unknown", "No rule matches", "no known error",
    ),
    "a failure that the linker ignores": (
        "ERROR: ld.so: object '/usr/lib/liba.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.\n(EngineCore pid=3) INFO 06-22 19:29:00 [x.py:1] Loading",
        "benign_warning_noise", "does not show that the server came up", "No rule",
    ),
    "a failed operation before a worker that waits": (
        "(EngineCore pid=3) INFO 08-13 11:14:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 seconds.\nh:1:2 [0] p2p.cc:651 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<4> with status=IBV_WC_RETRY_EXC_ERR(12)",
        "nccl_init_failure", "RDMA", "py-spy",
    ),
    "NCCL without memory": (
        "torch.distributed.DistBackendError: NCCL error in: /x.cpp:3690, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
        "nccl_init_failure", "NCCL's own last error: Cuda failure 2 'out of memory'", "NCCL_DEBUG",
    ),
    "an error that a dead engine quotes": (
        "ERROR serving_chat.stream: Error in chat completion stream generator.\nTraceback (most recent call last):\nValueError: caught while processing: MQEngineDeadError: Engine loop is not running. Inspect the stacktrace to find the original error: RuntimeError('no slot for this sequence').",
        "unknown", "No rule matches", "does not show why",
    ),
    "a quantization that will be removed": (
        "Value error, ('The quantization method %s is deprecated and will be removed in future versions of vLLM. To bypass, set `--allow-deprecated-quantization`.', 'tpu_int8')",
        "quantization_unsupported", "--allow-deprecated-quantization", "GPU",
    ),
    "a warning of something deprecated after it": (
        "ValueError: Unknown quantization method: int3\nx.py:9: FutureWarning: this call is deprecated",
        "quantization_unsupported", "if the model's config names the method", "it is deprecated",
    ),
    "a plugin of vLLM above a kernel of PyTorch": (
        '(EngineCore pid=5) File "/x/site-packages/vllm_omni/worker.py", line 252, in run\n(EngineCore pid=5) RuntimeError: CUDA error: no kernel image is available for execution on the device',
        "driver_cuda_mismatch", "build of PyTorch or vLLM", "of a library",
    ),
    "a kernel of a library": (
        '(EngineCore pid=5) File "/x/site-packages/lmcache/v1/gpu_connector.py", line 252, in from_gpu\n(EngineCore pid=5) RuntimeError: CUDA error: no kernel image is available for execution on the device',
        "driver_cuda_mismatch", "lmcache/v1/gpu_connector.py", "build of PyTorch or vLLM",
    ),
    "a layer that a worker does not own": (
        CORE + "KeyError: 'model.layers.30.self_attn.attn'",
        "unknown", "not of a weight", "checkpoint",
    ),
    "what an API server reports after the engine's death": (
        "(APIServer pid=1) ERROR 07-15 01:39:25 [serving.py:820] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n(APIServer pid=1) ERROR 07-15 01:39:25 [serving.py:1007] ValidationError: 2 validation errors for Chunk",
        "engine_dead", "get the full log", "No rule",
    ),
    "an optional module that was probed": (
        "WARNING [import_utils.py:408] Module vllm.third_party.deep_gemm was found but failed to import\nImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
        "benign_warning_noise", "no error in this log that ends", "install",
    ),
    "a traceback that ends before its exception": (
        CORE + 'File "/x/vllm/v1/structured_output/backend_xgrammar.py", line 82, in compile_grammar\n' + CORE + "ctx = self.compiler.compile_json_schema(",
        "unknown", "diagnose more of the log", "does not show that the server came up",
    ),
    "a download without file descriptors": (
        "RuntimeError: Data processing error: CAS service error : IO Error: Too many open files (os error 24)",
        "unknown", "ulimit -n", "download",
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
        "healthy", "begins after startup", "before it came up",
    ),
    "an assertion below the count of errors": (
        "(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n(APIServer pid=1)   Assertion failed, in align mode, block_size (900) must be <= max_num_batched_tokens (512). [type=assertion_error, input_value=A]",
        "unknown", "raise it", "the message names it",
    ),
    "shapes that torch.compile met first": (
        CORE + "torch._dynamo.exc.TorchRuntimeError: RuntimeError when making fake tensor call\n" + CORE + "  -> RuntimeError('a and b must have same reduction dim, but got [s1, 8] X [9, 4].')",
        "compile_failure", "two shapes in the model's code", "--enforce-eager",
    ),
    "a transport without RDMA": (
        "W0807 09:15:21.4  1204 topology.cpp:152] No RDMA devices found, check your device installation\n" + UP + CORE + "Mooncake transfer failed for request r1, ret: -1",
        "kv_transfer", "no RDMA device on this host", "that the other side runs",
    ),
    "a compiler that is not where CUDA_HOME says": (
        CORE + "subprocess.CalledProcessError: Command '['ninja', '-v', '-f', 'build.ninja']' returned non-zero exit status 1.\n" + CORE + "RuntimeError: Ninja build failed. Ninja output:\n" + CORE + "/bin/sh: 1: :/usr/local/cuda-12.8/bin/nvcc: not found",
        "compile_failure", "it contains a colon", "read the first `error`",
    ),
    "causes that a message only guesses": (
        CORE + "The actor is dead because its worker process has died. Some common causes include: (1) the process was killed by the OOM killer, (2) ray stop was called.",
        "ray_failure", "Ray reported a failure", "ran out of memory",
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
    "FP8 where the KV cache is not": (
        "INFO 05-12 03:20:44 [core.py:105] Initializing a V1 LLM engine with config: model='/m', kv_cache_dtype=bfloat16\nValueError: type fp8e4nv not supported in this architecture.",
        "dtype_unsupported", "not FP8: search", "--kv-cache-dtype auto",
    ),
    "FP8 where the KV cache is": (
        "INFO 05-12 03:20:44 [core.py:105] Initializing a V1 LLM engine with config: model='/m', kv_cache_dtype=fp8\nValueError: type fp8e4nv not supported in this architecture.",
        "dtype_unsupported", "--kv-cache-dtype auto", "not FP8: search",
    ),
    "a request's grammar that failed while others are answered": (
        UP + "(EngineCore pid=2) ERROR 03-03 10:00:00 [x.py:1] Failed to advance FSM for request r1 for tokens 5.\n" + STATS.format(30, "80.0"),
        "benign_warning_noise", "The server kept running", "structured",
    ),
    "requests that wait": (
        UP + "".join((STATS.format(each, "5.4").replace("Waiting: 0", "Waiting: 9")) for each in (30, 31)),
        "healthy", "1 running and 9 waiting requests, vLLM read no prompt", "rejected",
    ),
    "a web server's missing file": (
        '2026/03/03 10:00:00 [error] 7#7: *1 open() "/srv/www/favicon.ico" failed (2: No such file or directory)',
        "unknown", "No line has vLLM's log format", "not a log",
    ),
    "a timeout of Ray and the engine's death": (
        CORE + "ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read.\n(APIServer pid=1) ERROR 03-03 10:00:02 [api.py:7] EngineDeadError: EngineCore died unexpectedly",
        "ray_failure", "not a death", "ray status",
    ),
    "a library that was caught, and another error": (
        "(Worker pid=3) ERROR 03-03 10:00:00 [w.py:1] OSError: libfoo.so.2: cannot open shared object file: No such file or directory\n(Worker pid=4) ERROR 03-03 10:00:01 [w.py:1] LookupError: no mesh\n",
        "unknown", "No rule matches this error.", "it is the first",
    ),
    "no platform is a failure at any level": (
        "DEBUG 03-03 10:00:00 [__init__.py:120] ROCm platform is not available because: No module named 'amdsmi'\nINFO 03-03 10:00:00 [__init__.py:220] No platform detected, vLLM is running on UnspecifiedPlatform\n",
        "driver_cuda_mismatch", "the reason for your kind of device", "install",
    ),
    "no platform of a server that came up": (
        "INFO 03-03 10:00:00 [__init__.py:220] No platform detected, vLLM is running on UnspecifiedPlatform\n" + UP,
        "benign_warning_noise", "the line is harmless", "no device",
    ),
    "experts that cannot be divided": (
        "AssertionError: n_slots=130 must be divisible by ep_size=4. Adjust num_redundant_experts.",
        "unknown", "num_redundant_experts", "remove --enable-eplb",
    ),
    "a device that another process holds": (
        "chip init failed: open(/dev/vfio/3): Device or resource busy",
        "unknown", "lsof /dev/vfio", "HBM",
    ),
    "a failure with a reason, in no format": (
        "chip init failed: open(/dev/chip0): Input/output error",
        "unknown", "no rule matches this error", "not a log",
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
        "assertion_failed", "an assertion failed in the code", "a request",
    ),
    "the text of a C++ exception is known": (
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  CUDA error: an illegal memory access was encountered",
        "xid_or_gpu_lost", "a kernel on it", "C++",
    ),
    "the text of a C++ exception is not known": (
        "terminate called after throwing an instance of 'std::logic_error'\n  what():  no slot left in table",
        "unknown", "no rule matches this error", "read the line",
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
        "unknown", "no rule matches", "Its message",
    ),
    "a device file that oneCCL does not find": (
        "RuntimeError: oneCCL: ze_x.cpp:214 fill: EXCEPTION: open failed: fd: -1, errno: No such file or directory",
        "nccl_init_failure", "/dev/dri/by-path", "CCL_LOG_LEVEL",
    ),
    "a crash that printed its stack": (
        "Caught signal 11 (Segmentation fault: invalid permissions)\n==== backtrace (tid: 7) ====\n 0  /x/libucs.so.0",
        "engine_dead", "the printed stack", "PYTHONFAULTHANDLER",
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
        "driver_cuda_mismatch", "--gpus all", "PyTorch build with CUDA",
    ),
    "checks of platforms before a start are no start": (
        "DEBUG 03-03 10:00:00 [__init__.py:9] ROCm platform is not available because: AMDSMI_STATUS_NOT_INIT\nINFO 03-03 10:00:00 [cpu_worker.py:118] OMP threads binding of Process 2: 0-9\nINFO 03-03 10:00:01 [api_server.py:1] vLLM API server version 0.19.1\n(EngineCore pid=2) INFO 03-03 10:09:12 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds.",
        "shm_broadcast_hang", "py-spy", "xid",
    ),
    "a warning alone excludes it": (
        "x.py:9: UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\nRuntimeError: Failed to infer device type",
        "driver_cuda_mismatch", "--gpus all", "PyTorch build with CUDA",
    ),
    "a worker that vanished": (
        STATS.format(39, "12.5") + "(EngineCore pid=2) ERROR 06-22 19:40:00 [x.py:1] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.",
        "engine_dead", "died without leaving a message", "get the full log",
    ),
    "a worker whose end begins the log": (
        "(EngineCore pid=2) ERROR 06-22 19:40:00 [x.py:1] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.",
        "engine_dead", "get the full log", "died without leaving a message",
    ),
    "an import that is optional": (
        "ERROR 01-28 06:35:44 [moe.py:34] Failed to import Triton kernels. Error: No module named 'triton_kernels.ring'",
        "benign_warning_noise", "continues after", "install",
    ),
    "a cache that could not be saved, for two chained reasons": (
        CORE + "Error saving model info cache.\n" + CORE + "Traceback (most recent call last):\n" + CORE + "FileNotFoundError: [Errno 2] No such file or directory: '/.cache/a'\n" + CORE + "During handling of the above exception, another exception occurred:\n" + CORE + "Traceback (most recent call last):\n" + CORE + "PermissionError: [Errno 13] Permission denied: '/.cache'",
        "benign_warning_noise", "continues after", "No rule",
    ),
    "an error after a cache that could not be saved": (
        CORE + "Error saving model info cache.\n" + CORE + "Traceback (most recent call last):\n" + CORE + "FileNotFoundError: [Errno 2] No such file or directory: '/.cache/a'\n" + CORE + "Traceback (most recent call last):\n" + CORE + "ValueError: the ring is broken",
        "unknown", "No rule matches", "harmless",
    ),
    "the text that PyTorch adds to every CUDA error": (
        CORE + "CUDA error: invalid argument\n" + CORE + "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "unknown", "was rejected", "Xid",
    ),
    "a check of sizes in compiled code": (
        'File "/x/flashinfer/data/csrc/ring.cu", line 9, in void flashinfer::Ring(tvm::ffi::TensorView)\ntvm.error.InternalError: Check failed: output.size(0) == tokens (84 vs. 83) : ',
        "unknown", "the two values", "nvcc",
    ),
    "a queue before a full cache": (
        UP + STATS.format(39, "12.5").replace("prompt throughput: 0.0", "prompt throughput: 9.0") + STATS.format(40, "12.5").replace("Waiting: 0", "Waiting: 4").replace("usage: 1.3", "usage: 98.4"),
        "healthy", "fill the KV cache (98.4 %)", "max_tokens",
    ),
    "a dump of an engine's input after a worker's end": (
        "multiproc_executor.py:149 Main - [ERROR] Worker proc VllmWorker-0 died unexpectedly, shutting down executor.\ndump_input.py:69 Main - [ERROR] Dumping input data for V1 LLM engine (v0.10.2) with config: model='/a'",
        "engine_dead", "does not show why", "No rule",
    ),
    "a message that begins after a place in the source": (
        CORE + "RuntimeError: dispatch, /x/csrc/scaled.hpp:34,\n" + CORE + "Ring not supported on SM120. Use another.\n",
        "unknown", "Ring not supported on SM120", "No rule",
    ),
    "Docker without the toolkit": (
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "driver_cuda_mismatch", "nvidia-ctk runtime configure", "docker run --gpus",
    ),
    "several GPUs that fault at once": (
        "Memory access fault by GPU node-8 on address 0x7f. Reason: Unknown.\nMemory access fault by GPU node-3 on address 0x7f. Reason: Unknown.",
        "xid_or_gpu_lost", "several GPUs at once", "the driver's report",
    ),
    "an opt-in before a refusal": (
        "$ export VLLM_ROCM_USE_AITER=1\nError: RuntimeError: MXFP4 quantization is not supported on gfx942",
        "quantization_unsupported", "Line 1 switches VLLM_ROCM_USE_AITER on", "Line 2",
    ),
    "a refusal on a host with several kinds of GPU": (
        "WARNING 11-12 17:39:23 [cuda.py:619] Detected different devices in the system: A, B. Please make sure to set `CUDA_DEVICE_ORDER=PCI_BUS_ID`.\nValueError: The quantization method mxfp4 is not supported for the current GPU. Minimum capability: 80. Current capability: 75.",
        "quantization_unsupported", "CUDA_VISIBLE_DEVICES=N", "docker",
    ),
    "a grammar that refused a token, before the line without a rule": (
        "(EngineCore pid=2) ERROR 06-18 22:46:00 [backend_xgrammar.py:162] Failed to advance FSM for request chatcmpl-1 for tokens 9.\n(EngineCore pid=2) ERROR 06-18 22:46:00 [scheduler.py:1547] Unexpected: the tokens [9] were rejected. Terminating request.",
        "grammar_failed", "follow its grammar", "No rule",
    ),
    "an exception as Python prints its object, after requests": (
        "INFO 06-17 16:37:49 [engine.py:317] Added request embd-1.\nERROR 06-17 16:37:49 [engine.py:165] AttributeError(\"'Manager' object has no attribute 'ring'\")\nERROR 06-17 16:37:49 [engine.py:165] Traceback (most recent call last):",
        "unknown", "No rule matches", "came up",
    ),
    "a traceback that the log's end cuts off, of a server that was up": (
        UP + CORE + "Traceback (most recent call last):\n" + CORE + 'File "/x/vllm/v1/engine/core.py", line 9, in step\n' + CORE + "    output = self.step()",
        "unknown", "diagnose more of the log", "Nothing failed",
    ),
    "a last report without tokens": (
        UP + STATS.format(39, "12.5") + STATS.format(40, "0.0"),
        "unknown", "a hang", "Nothing failed",
    ),
    "a dump of py-spy": (
        'Process 23: VLLM::EngineCore\nPython v3.12.7 (/usr/bin/python3)\n\nThread 23 (active): "MainThread"\n    sample (flashinfer/sampling.py:15)\n    compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:8)\n',
        "unknown", "a stack dump", "graph capture failed",
    ),
    "a dump of py-spy beside a death": (
        'Thread 23 (active): "MainThread"\n    sample (flashinfer/sampling.py:15)\n\n' + CORE + "EngineCore encountered a fatal error.\n    raise EngineDeadError",
        "engine_dead", "died", "no error",
    ),
    "a runtime that could not start, in a warning": (
        "x.py:11: UserWarning: cudaGetDeviceCount() returned cudaErrorNotSupported, likely using older driver",
        "driver_cuda_mismatch", "driver", "only warnings",
    ),
    "a kernel that was compiled and failed": (
        "CUDA driver error (/x/jit/handle.hpp:154): 719 CUDA_ERROR_LAUNCH_FAILED",
        "compile_failure", "ran, and failed", "refused",
    ),
    "a GPU that is too old for any quantization": (
        "ValueError: The quantization method bitsandbytes is not supported for the current GPU. Minimum capability: 70. Current capability: 52.",
        "quantization_unsupported", "older than vLLM's kernels", "AWQ",
    ),
    "a quantization beside another load format": (
        "ValueError: BitsAndBytes quantization and QLoRA adapter only support 'bitsandbytes' load format, but got auto",
        "quantization_unsupported", "--load-format bitsandbytes", "table of quantization",
    ),
    "a message below the name of its exception": (
        "RuntimeError:\nNo CUDA GPUs are available",
        "driver_cuda_mismatch", "sees no GPU", "No rule",
    ),
    "a backend of other hardware": (
        "ValueError: Unknown attention backend: 'ASCEND'. Valid options are: FLASH_ATTN, PALLAS",
        "attention_backend_unavailable", "plugin", "write PALLAS",
    ),
    "an assertion whose frame stands below": (
        'AssertionError\n  File "/x/vllm/v1/core/kv_cache_utils.py", line 1030, in unify_page_size',
        "assertion_failed", "unify_page_size", "its text",
    ),
    "a pasted frame without a traceback": (
        "vllm/distributed/kv_transfer/worker.py\nassert len(local_ids) == len(remote_ids)",
        "unknown", "No rule matches", "not a log",
    ),
    "a refusal without an exception's name": (
        "INFO 06-12 04:05:58 [gpu_model_runner.py:5087] Starting to load model /x...\nREJECTED: Currently supported cache is num_bits=8, however received num_bits=4",
        "unknown", "No rule matches", "it hangs",
    ),
    "a type that the platform casts": (
        "WARNING 02-06 00:09:44 cpu_executor.py:327] float16 is not supported on CPU, casting to bfloat16.\nValueError: torch.bfloat16 is not supported for quantization method gptq. Supported dtypes: [torch.float16]",
        "dtype_unsupported", "does not run here", "--dtype half",
    ),
    "a kernel of Triton that the driver does not load": (
        "RuntimeError: Triton Error [CUDA]: device kernel image is invalid",
        "driver_cuda_mismatch", "the driver is older", "get_arch_list",
    ),
    "a type that a message only names": (
        "ERROR 01-20 01:25:05 engine.py:366] Bfloat16 is only supported on GPUs with compute capability of at least 8.0. You can use float16 instead by explicitly setting the flag, for example: --dtype=half.",
        "dtype_unsupported", "--dtype half", "docker",
    ),
    "Triton's names that PyTorch does not find": (
        "torch._inductor.exc.InductorError: AttributeError: type object 'CompiledKernel' has no attribute 'ring'",
        "compile_failure", "incompatible versions", "compiling code failed",
    ),
    "the line of an assertion in a log of 0.7": (
        "ERROR 02-17 20:51:49 core.py:210]     assert is_supported(self.ring)\nERROR 02-17 20:51:49 core.py:210]            ^^^^^^^^^^^^\nERROR 02-17 20:51:49 core.py:210] AssertionError",
        "assertion_failed", "assert is_supported(self.ring)", "its text",
    ),
    "a kernel package that does not go with Triton": (
        "AttributeError: module 'triton.language' has no attribute 'ring_function'",
        "missing_dependency_or_import_error", "requirements of the one that uses the name", "disabled in this vLLM",
    ),
    "an access line alone": (
        '(APIServer pid=3) INFO:     127.0.0.1:46686 - "GET /v1/models HTTP/1.1" 401 Unauthorized',
        "healthy", "no API key", "does not show",
    ),
    "the end of a child beside a dead engine": (
        "(ApiServer_1 pid=4) ERROR 03-06 10:50:14 [serving.py:13] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\nERROR 03-06 10:50:14 [utils.py:289] RuntimeError: Process ApiServer_0 (PID: 404) died with exit code None",
        "engine_dead", "does not show why", "No rule",
    ),
    "an assertion at a cut traceback's end": (
        CORE + 'File "/x/vllm/layers/fp8.py", line 9, in apply\n' + CORE + "    assert self.block_quant is None",
        "unknown", "last statement", "No rule",
    ),
    "a message that goes on in the next line": (
        "ValueError: The checkpoint you are trying to load has model type\nring_unified but Transformers does not recognize this architecture.",
        "unsupported_architecture", "Transformers", "No rule",
    ),
    "a type that is none of PyTorch's": (
        "AttributeError: module 'torch' has no attribute 'nvfp4'",
        "missing_dependency_or_import_error", "whether a setting has this value", "pip check",
    ),
    "frames of C++ without a message": (
        "[Bug]: hipErrorCapturedEvent with LoRA\nframe #1: <unknown function> + 0x4bf9a (0x7220 in /x/libc10_hip.so)",
        "unknown", "No rule matches", "first of this log: frame",
    ),
    "NCCL's own warning before its internal error": (
        "host-0:1673:9080 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n...\n(EngineCore_DP4 pid=7) ncclInternalError: Internal check failed.\n(EngineCore_DP4 pid=7) Last error:\n(EngineCore_DP4 pid=7) ring 3 failed : 3",
        "nccl_init_failure", "no GPU memory was left for NCCL", "Line 2",
    ),
    "a cut traceback below the name of its exception": (
        "(EngineCore pid=7) WARNING 11-18 07:48:24 [worker.py:116] Exception in ring 235: AssertionError()\n(EngineCore pid=7) WARNING 11-18 07:48:24 [worker.py:116] Traceback (most recent call last):\n(EngineCore pid=7) WARNING 11-18 07:48:24 [worker.py:116]   File \"/x/vllm/v1/w.py\", line 114, in get",
        "unknown", "traceback is cut", "message is not in",
    ),
    "an error that the executor raises again": (
        CORE + '  File "/x/vllm/v1/engine/core.py", line 2, in step\n' + CORE + '  File "/x/vllm/v1/executor/multiproc_executor.py", line 9, in get_response\n' + CORE + "RuntimeError: Worker failed with error 'CUDA out of memory. Tried to allocate 2.00 GiB'",
        "out_of_memory", "GPU memory ran out", "get_response",
    ),
    "a warning about a setting that the error does not name": (
        "WARNING 05-01 10:00:00 [config.py:9] --ring-parsing is not tested.\n" + CORE + "ValueError: the square is round",
        "unknown", "No rule matches", "warned of a setting",
    ),
    "a warning about the setting that the error names": (
        "WARNING 05-01 10:00:00 [config.py:9] --ring-parsing is not tested.\n" + CORE + "ValueError: ring parsing failed",
        "unknown", "Line 1 warned of a setting", "reinstall",
    ),
    "a resolver with a hint of its own": (
        "  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no version of ring==0.1b1 and square==0.4 depends on ring==0.1b1, we can conclude that square==0.4 cannot be used.\n\n      hint: `ring` was requested with a pre-release marker, but pre-releases weren't enabled (try: `--prerelease=allow`)",
        "missing_dependency_or_import_error", "The tool's own hint: `ring` was requested", "docker",
    ),
    "an engine that sleeps": (
        "INFO 03-23 07:20:40 [api_server.py:9] Application startup complete.\n(EngineCore pid=1) INFO 03-23 07:20:41 [gpu_worker.py:140] Sleep mode freed 24.69 GiB memory, 16.27 GiB memory is still in use.\n(EngineCore pid=1) INFO 03-23 07:20:41 [abstract.py:312] It took 0.06 seconds to fall asleep.",
        "healthy", "16.27 GiB of GPU memory were still in use", "does not show",
    ),
    "a CPU backend whose own budget is used up": (
        "ValueError: Available memory on node 0 (4.66/18.0 GiB) on kv cache allocation is less than requested memory for kv (-0.39 GiB).",
        "kv_cache_too_small", "leave nothing for the KV cache", "lower the share",
    ),
    "a function whose name contains preprocess": (
        CORE + '  File "/x/vllm_ascend/attention/sfa_v1.py", line 9, in _sfa_preprocess_decode\n' + CORE + "RuntimeError: bIndex is out of range: 3068",
        "unknown", "sfa_v1.py", "image, video or audio",
    ),
    "a footer of Hydra": (
        "ValueError: the ring is flat\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.",
        "unknown", "No rule matches", "HYDRA",
    ),
    "vLLM's own extension that does not load": (
        "WARNING 10-29 12:33:18 [interface.py:171] Failed to import from vllm._C: ImportError('libarm_compute.so: cannot open shared object file: No such file or directory')",
        "unknown", "below level ERROR", "harmless",
    ),
    "a false assertion that Dynamo reports": (
        CORE + "torch._dynamo.exc.Unsupported: Data-dependent assertion failed (cannot compile partial graph)\n" + CORE + "from user code:\n" + CORE + "    assert positions.ndim == 2",
        "compile_failure", "in code that it traced", "enforce-eager",
    ),
    "a core dump of the CUDA debugger": (
        "[21:42:21.267000] coredump: Detected an exception of type CUDBG_EXCEPTION_WARP_ILLEGAL_ADDRESS (14)",
        "xid_or_gpu_lost", "GPU", "no line has",
    ),
    "the code of a model that lacks a class": (
        CORE + "AttributeError: module 'transformers_modules.Ring.processing_ring' has no attribute 'RingProcessor'",
        "missing_dependency_or_import_error", "auto_map", "pip check",
    ),
    "CANN's own reason below its wrapper": (
        CORE + "RuntimeError: The Inner error is reported as above. The process exits for this inner error, and the current working operator name is ring.\n" + CORE + "EE1001: [PID: 5] 2025-10-21-01:17:01.546.291 The argument is invalid.Reason: coreDim=66976 can't be greater than UINT16_MAX.",
        "npu_operator_failed", "the lines around it", "Line 1",
    ),
    "a handler of outputs whose traceback is cut": (
        '(APIServer pid=1) ERROR 10-07 11:17:01 [async_llm.py:480] AsyncLLM output_handler failed.\n(APIServer pid=1) ERROR 10-07 11:17:01 [async_llm.py:480] Traceback (most recent call last):\n(APIServer pid=1) ERROR 10-07 11:17:01 [async_llm.py:480]   File "/x/vllm/v1/engine/async_llm.py", line 474, in output_handler\n(APIServer pid=1) ERROR 10-07 11:17:01 [async_llm.py:480]     logger_manager.record(',
        "engine_dead", "ends inside the traceback", "lines above",
    ),
    "a pasted traceback without a head or an end": (
        'File "/x/vllm/v1/worker/gpu_worker.py", line 31, in\nfrom vllm.v1.ring import Ring\nFile "/x/vllm/attention/utils/fa_utils.py", line 56, in get_version\nif not is_supported(version):\n^^^^^^',
        "unknown", "message is not in this log", "No error",
    ),
    "a name that the quantization description lacks": (
        CORE + '  File "/x/vllm_ascend/quantization/quant_config.py", line 9, in is_layer_skipped_ascend\n' + CORE + "KeyError: 'model.layers.0.self_attn.q_proj.weight'",
        "unsupported_architecture", "quantization description", "index.json",
    ),
    "a checkpoint without a classification head": (
        "ValueError: Following weights were not initialized from checkpoint: {'score.weight'}",
        "unsupported_architecture", "classification head", "index.json",
    ),
    "the address of an object store": (
        "Repo id must be in the form 'repo_name' or 'namespace/repo_name': 's3://ring/m'. Use `repo_type` argument if needed.",
        "hf_not_found_or_offline", "runai_streamer", "spelling",
    ),
    "a dead engine before the cut traceback of its API server": (
        "(EngineCore pid=2) ERROR 03-06 10:50:14 [core.py:9] EngineCore encountered a fatal error.\n(EngineCore pid=2) ERROR 03-06 10:50:14 [core.py:9] Traceback (most recent call last):\n(APIServer pid=1) ERROR 03-06 10:50:15 [async_llm.py:480] Traceback (most recent call last):\n(APIServer pid=1) ERROR 03-06 10:50:15 [async_llm.py:480]   File \"/x/vllm/v1/engine/async_llm.py\", line 474, in output_handler",
        "engine_dead", "does not show why", "ends inside the traceback",
    ),
    "indices of another integer type": (
        "RuntimeError: Worker failed with error 'expected scalar type Long but found Int'",
        "unknown", "only forwards its message", "--dtype",
    ),
    "the input of a step that failed, and no exception": (
        "(EngineCore pid=5) ERROR 10-06 13:28:27 [dump_input.py:69] Dumping input data for V1 LLM engine (v0.11.1) with config: model='/a', dtype=torch.bfloat16",
        "unknown", "the exception is not in this log", "model=",
    ),
    "a step of the start that came later": (
        "(EngineCore pid=2) INFO 10-15 23:09:23 [backends.py:274] Compiling a graph for dynamic shape takes 41.40 s\n(EngineCore pid=2) INFO 10-15 23:17:21 [monitor.py:33] torch.compile takes 47.72 s in total\n(EngineCore pid=2) INFO 10-15 23:17:22 [x.py:9] Next",
        "unknown", "step is line 2.", "stays there",
    ),
    "an error that its library ignores": (
        "(Worker pid=7) Ignored error while writing commit hash to /root/refs/main: [Errno 13] Permission denied: '/root/refs/main'.\n(APIServer pid=1) INFO 05-19 02:40:32 [api_server.py:602] Starting vLLM server on http://0.0.0.0:8011",
        "healthy", "It came up", "permissions",
    ),
    "a cache whose size is set": (
        "(Worker pid=2) INFO 09-22 01:20:17 [gpu_worker.py:544] Initial free memory 93.95 GiB, reserved 4.0 GiB memory for KV Cache as specified by kv_cache_memory_bytes config and skipped memory profiling.\nValueError: To serve at least one request with the model's max seq len (1048576), 7.89 GiB KV cache is needed, which is larger than the available KV cache memory (4.0 GiB).",
        "kv_cache_too_small", "raise or drop it", "another process",
    ),
}  # fmt: skip
