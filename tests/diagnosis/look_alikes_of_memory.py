"""Logs of memory that ran out and resemble others: as in look_alikes.py."""

from tests.diagnosis.look_alikes import CORE, UP

MEMORY_LOOK_ALIKES: dict[str, tuple[str, str, str, str]] = {
    "a negative rest": (
        "INFO 03-03 10:00:00 [gpu_worker.py:1] Available KV cache memory: -0.87 GiB",
        "oom_kv_alloc_or_profiling", "leaves nothing for the KV cache", "no error",
    ),
    "memory that ran out under a caller's generate": (
        CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 192.00 MiB. GPU 0 has a total capacity of 23.56 GiB of which 83.25 MiB is free.\n  File \"/x/job.py\", line 70, in main\n    outputs = llm.generate(prompts)",
        "oom_runtime", "The KV cache is allocated at startup", "weights",
    ),
    "an engine before this one in the same process": (
        "init_snapshot = free_memory=9.50GiB, total_memory=22.05GiB, torch_memory=11.20GiB, non_torch_memory=0.25GiB\nValueError: Free memory on device cuda:0 (9.50/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB).",
        "gpu_occupied_by_other_process", "in a process of its own", "Something else",
    ),
    "a piece larger than the GPU": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 9.00 GiB is free.",
        "oom_kv_alloc_or_profiling", "larger than the whole GPU", "nvidia-smi",
    ),
    "an allocation that PyTorch warns of, and no other reason": (
        "Capturing CUDA graphs (PIECEWISE):  98%|xx| 50/51 [00:38<00:00,  1.29it/s]\n[rank3]:[W814 16:06:55.4 CUDACachingAllocator.cpp:39] memory allocation failed with OOM on device 3 while trying to allocate 3177185280 bytes (free: 1, total: 8).\n" + CORE + "WorkerProc hit an exception.",
        "oom_cuda_graph_capture", "lower --gpu-memory-utilization", "does not show why",
    ),
    "a child's exit code and its parent's end of file": (
        CORE + "Rank 2 is dead.\n" + CORE + "Exit code: -9\n" + CORE + "EOFError",
        "cpu_ram_oom_killed", "was killed (SIGKILL)", "end of a pipe",
    ),
    "a check whose own figures are equal": (
        CORE + "AssertionError: Error in memory profiling. Initial free memory 12.5 GiB, current free memory 12.5 GiB. This happens when other processes release GPU memory.",
        "gpu_occupied_by_other_process", "no process freed memory", "another process took",
    ),
    "a check whose figures differ": (
        CORE + "AssertionError: Error in memory profiling. Initial free memory 12.5 GiB, current free memory 13.5 GiB. This happens when other processes release GPU memory.",
        "gpu_occupied_by_other_process", "takes or frees memory on this GPU", "no process freed memory",
    ),
    "much more free than was asked for": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 9.50 GiB. GPU 0 has a total capacity of 96.00 GiB of which 14.00 GiB is free.",
        "oom_kv_alloc_or_profiling", "much more free memory than it requested", "in which phase",
    ),
    "a little more free than was asked for": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 9.50 GiB. GPU 0 has a total capacity of 96.00 GiB of which 9.70 GiB is free.",
        "oom_kv_alloc_or_profiling", "in which phase", "although its message shows",
    ),
    "logits of a whole prompt": (
        UP + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in _get_prompt_logprobs_dict\n' + CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB.",
        "oom_runtime", "without prompt_logprobs", "logits do not",
    ),
    "logits of a step": (
        UP + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in execute_model\n' + CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB.",
        "oom_runtime", "The KV cache is allocated at startup", "prompt_logprobs",
    ),
    "a driver's word is no full GPU": (
        '(EngineCore pid=5) INFO 03-03 10:00:00 [default_loader.py:1] Loading weights took 3.10 seconds\n(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9]   File "/x/vllm/_custom_ops.py", line 9, in awq_marlin_repack\n(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9] RuntimeError: CUDA driver error: out of memory',
        "oom_loading_weights", "if PYTORCH_CUDA_ALLOC_CONF sets expandable_segments", "WSL",
    ),
    "under WSL even less": (
        "(EngineCore pid=5) WARNING 03-03 09:59:00 [interface.py:1] Using 'pin_memory=False' as WSL is detected.\nRuntimeError: CUDA driver error: out of memory",
        "out_of_memory", "WSL's memory limit", "nvidia-smi --query",
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
    "what failed stands above the error": (
        "ERROR 03-03 10:00:00 [gpu_model_runner.py:1] Failed to load model - not enough GPU memory.\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB.",
        "oom_loading_weights", "while the weights were loaded", "no line shows",
    ),
    "memory that ran out while the peak was measured": (
        "INFO 03-03 10:00:00 [u.py:1] non-default args: {'gpu_memory_utilization': 0.85}\n(EngineCore pid=5) INFO 03-03 10:00:00 [m.py:1] Model loading took 12.0 GiB and 20.1 seconds\n" + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in profile_run\n' + CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB. GPU 0 has a total capacity of 23.60 GiB of which 1.10 GiB is free.",
        "oom_kv_alloc_or_profiling", "smaller steps need less memory", "--gpu-memory-utilization 0",
    ),
    "memory that ran out in a measured sampler": (
        '(EngineCore pid=5) INFO 03-03 10:00:00 [m.py:1] Model loading took 12.0 GiB and 20.1 seconds\n' + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in profile_run\n' + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in _dummy_sampler_run\n' + CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB.",
        "oom_kv_alloc_or_profiling", "--max-num-seqs", "lower --gpu-memory-utilization",
    ),
    "a peak that takes the share of a KV cache": (
        "INFO 03-03 09:59:00 [a.py:1] vLLM API server version 0.15.1\nINFO 03-03 10:00:00 [u.py:1] non-default args: {'gpu_memory_utilization': 0.9}\nModel loading took 8.0 GiB and 9 seconds\nAvailable KV cache memory: 1.20 GiB\nx total_gpu_memory (23.60GiB)\n" + CORE + "ValueError: To serve at least one request with the model's max seq len (32768), (1.75 GiB KV cache is needed, which is larger than the available KV cache memory (1.20 GiB).",
        "kv_cache_too_small", "lower the peak of a step", "start again with a larger",
    ),
    "other processes that a release of 0.8 counts": (
        "INFO 03-03 09:59:00 [a.py:1] vLLM API server version 0.8.5\nINFO 03-03 10:00:00 [u.py:1] non-default args: {'gpu_memory_utilization': 0.9}\nModel loading took 8.0 GiB and 9 seconds\nAvailable KV cache memory: 1.20 GiB\nx total_gpu_memory (23.60GiB)\n" + CORE + "ValueError: To serve at least one request with the model's max seq len (32768), (1.75 GiB KV cache is needed, which is larger than the available KV cache memory (1.20 GiB).",
        "kv_cache_too_small", "another process held", "--max-model-len 2",
    ),
    "a driver's error in the capture": (
        "INFO 03-03 10:00:00 [u.py:1] non-default args: {'gpu_memory_utilization': 0.9}\n" + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in capture_model\n' + CORE + "RuntimeError: CUDA driver error: out of memory",
        "oom_cuda_graph_capture", "nearly full", "--gpu-memory-utilization 0",
    ),
    "graphs that are only measured": (
        "INFO 03-03 10:00:00 [u.py:1] non-default args: {'gpu_memory_utilization': 0.9}\n" + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in profile_cudagraph_memory\n' + CORE + '  File "/x/vllm/compilation/cuda_graph.py", line 9, in capture_graph\n' + CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 MiB.",
        "oom_cuda_graph_capture", "fewer batch sizes", "--gpu-memory-utilization 0",
    ),
    "a worker that Ray's own monitor killed": (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "cpu_ram_oom_killed", "RAY_memory_usage_threshold", "dmesg",
    ),
    "a pod that was evicted": (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi.",
        "cpu_ram_oom_killed", "kubectl describe node", "dmesg",
    ),
    "an array larger than any host": (
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 14.0 TiB for an array with shape (1, 2) and data type float32",
        "cpu_ram_oom_killed", "requested 10 TB or more", "free -g",
    ),
    "memory that may not be locked": (
        "RuntimeError: mlock failed: Cannot allocate memory",
        "cpu_ram_oom_killed", "--ulimit memlock", "largest shard",
    ),
    "pinned memory of no offload": (
        CORE + "RuntimeError: Failed to pin memory for weights: cudaHostRegister failed: out of memory",
        "host_memory_not_pinned", "ulimit -l", "for the offload",
    ),
    "a cuBLAS that could not be initialized": (
        CORE + "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "out_of_memory", "a cuBLAS from a different CUDA release", "GPU memory ran out",
    ),
    "no room for a single token": (
        "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. Try increasing `gpu_memory_utilization`.",
        "oom_kv_alloc_or_profiling", "leaves nothing for the KV cache", "memory ran out",
    ),
    "memory of a GPU that changed where memory is shared": (
        "INFO 03-03 10:00:00 [x.py:1] NVIDIA GB10\n" + CORE + "AssertionError: Error in memory profiling. Initial free memory 82.9 GiB, current free memory 90.1 GiB. This happens when other processes release GPU memory.",
        "gpu_occupied_by_other_process", "drop_caches", "less memory is free",
    ),
    "memory that another process holds": (
        CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 39.39 GiB of which 900.81 MiB is free. Process 11 has 30.10 GiB memory in use. Including non-PyTorch memory, this process has 8.30 GiB memory in use.",
        "gpu_occupied_by_other_process", "check that each gets a GPU of its own", "on startup",
    ),
    "the memory of a Mac": (
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.95 GiB, other allocations: 1.2 GiB, max allowed: 18.13 GiB). Tried to allocate 1.00 GiB on private pool.",
        "out_of_memory", "this Mac", "nvidia-smi",
    ),
    "a GPU with memory of its own beside Grace": (
        "INFO 03-03 10:00:00 [u.py:1] NVIDIA GB200, non-default args: {'gpu_memory_utilization': 0.9}\n" + CORE + '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in capture_model\n' + CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 MiB. GPU 0 has a total capacity of 184.00 GiB of which 100.00 MiB is free.",
        "oom_cuda_graph_capture", "--gpu-memory-utilization 0.85", "share one memory",
    ),
    "page cache in the memory of a GPU beside Grace": (
        "INFO 03-03 10:00:00 [u.py:1] NVIDIA GH200 480GB\n" + CORE + "ValueError: Free memory on device cuda:0 (60.10/94.50 GiB) on startup is less than desired GPU memory utilization (0.9, 85.05 GiB).",
        "gpu_occupied_by_other_process", "numactl -H", "share one memory",
    ),
    "a service that systemd saw killed": (
        "systemd[1]: vllm.service: Failed with result 'oom-kill'.",
        "cpu_ram_oom_killed", "MemoryMax", "the kernel killed a process",
    ),
    "memory that ran out in a warm-up": (
        'File "/x/vllm/model_executor/warmup/deep_gemm_warmup.py", line 262, in _warmup\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 666.00 MiB. GPU 3 has a total capacity of 95.10 GiB of which 145.94 MiB is free.',
        "oom_cuda_graph_capture", "lower --gpu-memory-utilization", "no line",
    ),
    "the OOM killer beside a line of the driver": (
        "NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY]\nVLLM::Worker_TP invoked oom-killer: gfp_mask=0x102cc2",
        "cpu_ram_oom_killed", "host", "while everything works",
    ),
    "graphs' pools in an allocator's message": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 126.00 MiB. GPU 0 has a total capacity of 31.36 GiB of which 111.94 MiB is free. Including non-PyTorch memory, this process has 31.24 GiB memory in use. Of the allocated memory 25.40 GiB is allocated by PyTorch, with 217.88 MiB allocated in private pools (e.g., CUDA Graphs), and 1.04 GiB is reserved by PyTorch but unallocated.",
        "oom_runtime", "the weights were loaded", "quantized",
    ),
}  # fmt: skip
