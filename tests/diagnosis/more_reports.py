"""More reports, as in fresh_reports.py; most of the later ones were answered wrong, or with advice that their log does not support.

Search results cut some reports off: the last lines of several are written from the report's own description; `composed` marks those without a line of the report.
"""

MORE_REPORTS: dict[str, tuple[str, set[str], str, str]] = {
    'posttrainarena#46: car': (
        '(Worker pid=77) INFO 09-22 10:01:02 [pynccl.py:111] vLLM is using nccl==2.28.9\n'
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'\n"
        '(EngineCore pid=9) ERROR 09-22 10:01:09 [core.py:1233] EngineCore failed to start.\n'
        '(EngineCore pid=9) ERROR 09-22 10:01:09 [core.py:1233] RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n',
        {'nccl_init_failure'}, 'custom_all_reduce', 'NCCL_P2P|shm-size|memory',
    ),
    'composed after vllm#28390: size': (
        '(EngineCore_DP0 pid=196) ERROR 11-10 15:20:18 [core.py:845] EngineCore encountered a fatal error.\n'
        '(EngineCore_DP0 pid=196) ERROR 11-10 15:20:18 [core.py:845]   File "/x/vllm/v1/worker/gpu_model_runner.py", line 2400, in execute_model\n'
        '(EngineCore_DP0 pid=196) ERROR 11-10 15:20:18 [core.py:845] RuntimeError: The size of tensor a (768) must match the size of tensor b (797) at non-singleton dimension 0\n'
        '(APIServer pid=1) INFO:     10.0.0.2:4422 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error\n',
        {'unknown'}, 'size of tensor', 'revision|config.json',
    ),
    'composed, in the form of NCCL: nccl oom line': (
        "Cuda failure 2 'out of memory'\n",
        {'out_of_memory'}, 'out of memory', 'tensor-parallel|enforce-eager|utilization',
    ),
    'dgx-spark-playbooks#97: dmesg': (
        '[  812.554311] NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359\n'
        '[  812.554330] NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359\n',
        {'out_of_memory'}, 'NV_ERR_NO_MEMORY', 'RMA|replace|drain',
    ),
    'GLM-5.3-Flash-EXL3-2x-DGX-Sparks#47: report': (
        'ValueError: Free memory on device cuda:0 (101.3/121.69 GiB) on startup is less than desired GPU memory utilization (0.87, 105.87 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n',
        {'gpu_occupied_by_other_process'}, 'Free memory on device', 'nvidia-smi --query',
    ),
    'vllm#22072: serve twice': (
        'usage: api_server.py [-h] [--headless] [--host HOST]\n'
        'api_server.py: error: unrecognized arguments: serve HuggingFaceTB/SmolLM3-3B --dtype auto --max-model-len 16384\n',
        {'unknown_flag'}, 'unrecognized', 'drop|upgrade',
    ),
    'triton#8539: report': (
        'triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n'
        '`ptxas` stderr:\n'
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n"
        '\n'
        'Repro command: /home/xxxx/lib/python3.10/site-packages/triton/backends/nvidia/bin/ptxas -lineinfo -v --gpu-name=sm_121a /tmp/tmpkw7ug6t8.ptx -o /tmp/tmpkw7ug6t8.ptx.o\n',
        {'compile_failure'}, 'ptxas fatal', 'enforce-eager',
    ),
    'gpustack#4372: report': (
        '(EngineCore_DP0 pid=73)     raise RuntimeError(f"Failed to run autotuning code block: {e}") from e\n'
        '(EngineCore_DP0 pid=73) torch._inductor.exc.InductorError: RuntimeError: Failed to run autotuning code block: No valid triton configs. PTXASError: PTXAS error: Internal Triton PTX codegen error\n'
        '(EngineCore_DP0 pid=73) `ptxas` stderr:\n'
        "(EngineCore_DP0 pid=73) ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n"
        '(EngineCore_DP0 pid=73) \n'
        '(EngineCore_DP0 pid=73) Repro command: /x/ptxas -lineinfo --gpu-name=sm_121a\n',
        {'compile_failure'}, 'ptxas fatal', 'enforce-eager',
    ),
    'vllm-ascend#6935: exit noise': (
        '(APIServer pid=1)     raise RuntimeError(\n'
        '(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n'
        '[ERROR] 2026-03-02-15:44:05 (PID:1, Device:-1, RankID:-1) ERR99999 UNKNOWN applicaiton exception\n',
        {'engine_dead'}, 'Engine core init|ERR99999', 'driver|drain',
    ),
    'composed after vllm#40926: zero tok': (
        '(APIServer pid=851) INFO 04-28 22:10:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:11:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:12:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:13:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:14:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:15:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n',
        {'engine_hang'}, 'Running: 2', 'PID_OF_WORKER|skip-mm',
    ),
    'composed after HAMi-core#261: report': (
        'INFO 08-09 21:13:40 [api_server.py:1995] vLLM API server version 0.25.0\n'
        '(Worker pid=958) INFO 08-09 21:13:57 [distributed/parallel_state.py:1607] world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://127.0.0.1:43615 backend=nccl\n'
        'DEBUG 08-09 21:14:06 [v1/engine/utils.py:1200] Waiting for 1 local, 0 remote core engine proc(s) to start.\n'
        'DEBUG 08-09 21:24:06 [v1/engine/utils.py:1200] Waiting for 1 local, 0 remote core engine proc(s) to start.\n',
        {'engine_hang'}, '', 'memory',
    ),
    'open-gpu-kernel-modules#829: xid120': (
        '[605633.376794] NVRM: Xid (PCI:0000:06:00): 120, GSP task exception: store access page fault (cause:0xf) @ pc:0x13ebd80, partition:2#0, task:3\n'
        '[605633.376800] NVRM:     Reported by libos partition:2#4 kernel v3.1 [0] @ ts:1770232285\n',
        {'xid_or_gpu_lost'}, 'Xid', 'replace',
    ),
    'gpud#1174: xid94': (
        '[ 1.5] NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error\n',
        {'xid_or_gpu_lost'}, 'Xid', 'replace',
    ),
    'open-gpu-kernel-modules#1150: xid45/149': (
        'kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149\n'
        'kernel: NVRM: Xid (PCI:0000:ed:00): 45, pid=1818992, name=python3, Ch 0000000c caused by previous Xid 145\n',
        {'xid_or_gpu_lost'}, 'Xid', 'ECC',
    ),
    'composed after runpod#199: report': (
        '0s0n9esxgd0u45[error]worker exited with exit code 136\n'
        '0s0n9esxgd0u45[info]INFO 07-23 16:43:22 [async_llm_engine.py:210] Added request 192c6636b44048959880183d076fb20f.\n',
        {'engine_dead'}, '', 'memory',
    ),
    'llm-scaler#391: slow': (
        '(APIServer pid=851) INFO 04-28 22:54:10 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.0%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:54:20 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.1%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:54:30 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.2%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:54:40 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.3%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:54:50 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.4%, Prefix cache hit rate: 92.0%\n',
        {'healthy'}, '', 'restart',
    ),
    'vllm#41257: flex': (
        '(EngineCore pid=22349) ERROR 04-29 16:04:08 [v1/engine/core.py:1138] EngineCore encountered a fatal error.\n'
        '(EngineCore pid=22349) ERROR 04-29 16:04:08 [v1/engine/core.py:1138]     engine_core.run_busy_loop()\n'
        '(EngineCore pid=22349) ERROR 04-29 16:04:08 [v1/engine/core.py:1138] torch._dynamo.exc.InternalTorchDynamoError: AcceleratorError: CUDA error: misaligned address\n',
        {'xid_or_gpu_lost'}, 'misaligned', 'enforce-eager',
    ),
    'Hyperloom#837: tail': (
        'usage: vllm [-h] [-v] {chat,complete,serve,launch,bench,collect-env,run-batch} ...\n'
        'vllm: error: unrecognized arguments: -f /dev/null\n',
        {'unknown_flag'}, 'unrecognized', 'write --f',
    ),
    'Kubernetes events: liveness': (
        '  Warning  Unhealthy  2m (x9 over 4m)  kubelet  Liveness probe failed: Get "http://10.1.2.3:8000/health": dial tcp 10.1.2.3:8000: connect: connection refused\n'
        '  Normal   Killing    2m  kubelet  Container vllm failed liveness probe, will be restarted\n',
        {'engine_dead'}, 'probe', 'memory',
    ),
    'flashinfer: curand': (
        '(EngineCore pid=8727) RuntimeError: Ninja build failed. Ninja output:\n'
        '(EngineCore pid=8727) [1/3] c++ -MMD sampling.o\n'
        '(EngineCore pid=8727) /opt/vllm/lib/python3.12/site-packages/flashinfer/data/include/flashinfer/sampling.cuh:20:10: fatal error: curand.h: No such file or directory\n'
        '(EngineCore pid=8727) ninja: build stopped: subcommand failed.\n',
        {'compile_failure'}, 'curand.h', 'enforce-eager',
    ),
    'fsm assert': (
        '(EngineCore_DP0 pid=5) ERROR 05-01 10:00:00 [backend_xgrammar.py:160] Failed to advance FSM for request chatcmpl-1 for tokens 1234. Please file an issue.\n'
        '(EngineCore_DP0 pid=5) ERROR 05-01 10:00:00 [core.py:1100] EngineCore encountered a fatal error.\n'
        '(EngineCore_DP0 pid=5) ERROR 05-01 10:00:00 [core.py:1100] Traceback (most recent call last):\n'
        '(EngineCore_DP0 pid=5) ERROR 05-01 10:00:00 [core.py:1100]   File "/x/vllm/v1/core/sched/scheduler.py", line 900, in update_from_output\n'
        '(EngineCore_DP0 pid=5) ERROR 05-01 10:00:00 [core.py:1100] AssertionError\n',
        {'grammar_failed'}, 'FSM', '',
    ),
    'fsm alone': (
        '(EngineCore_DP0 pid=5) ERROR 05-01 10:00:00 [backend_xgrammar.py:160] Failed to advance FSM for request chatcmpl-1 for tokens 1234. Please file an issue.\n',
        {'grammar_failed'}, 'FSM', 'restart',
    ),
    'no module llguidance': (
        "ModuleNotFoundError: No module named 'llguidance'\n",
        {'missing_dependency_or_import_error'}, 'llguid', 'find the request',
    ),
    'zmq port': (
        "zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.1:5600')\n",
        {'port_in_use'}, '5600', '--port N\\b(?!.*NIXL)',
    ),
    'master port': (
        'torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n',
        {'port_in_use'}, '29500', 'serve on another port',
    ),
    'access 429': (
        '10.0.0.1 - - "POST /v1/chat/completions HTTP/1.1" 429 Too Many Requests\n',
        {'healthy', 'not_a_vllm_log', 'unknown'}, '', 'x^',
    ),
    'heads 28': (
        'ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).\n',
        {'tp_not_dividing_heads'}, '28', 'parallel-size [765321]\\b',
    ),
    'blk': (
        'ValueError: block_size 24 is not divisible by 16\n',
        {'unknown'}, '24', 'tensor',
    ),
    'gb10 blocks': (
        'INFO 09-01 10:00:00 [x.py:1] vLLM API server version 0.30.0\n'
        'INFO 09-01 10:00:00 [x.py:1] device NVIDIA GB10 gpu_memory_utilization=0.5\n'
        'INFO 09-01 10:00:10 [x.py:1] Model loading took 40.0 GiB memory and 65.2 seconds\n'
        'INFO 09-01 10:00:10 [x.py:1] total_gpu_memory (121.69GiB)\n'
        'ERROR 09-01 10:00:20 [core.py:1] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n',
        {'oom_kv_alloc_or_profiling'}, 'No available', '0\\.95',
    ),
    'request pydantic': (
        '(APIServer pid=1) ERROR 09-01 10:00:00 [serving.py:1] pydantic_core._pydantic_core.ValidationError: 1 validation error for ChatCompletionRequest\n'
        '(APIServer pid=1)   Value error, When using `tool_choice`, `tools` must be set. [type=value_error, input_value={}, input_type=dict]\n',
        {'unknown'}, 'ChatCompletionRequest', 'serve --help',
    ),
    'es-at-scale#41': (
        'ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, ray::ESNcclLLM.__init__() (pid=32617, ip=10.19.54.1)\n'
        '  File "/x/vllm/transformers_utils/tokenizer.py", line 96, in get_cached_tokenizer\n'
        '    tokenizer.all_special_tokens_extended)\n'
        'AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended\n',
        {'missing_dependency_or_import_error', 'tokenizer_mismatch_or_missing_chat_template'}, 'all_special_tokens_extended', 'ray status|--chat-template|upgrade transformers',
    ),
    'ascend#393': (
        'ERROR 04-10 11:26:01 engine.py:140]     x, _, residual = torch_npu.npu_add_rms_norm(x, residual, self.weight,\n'
        'ERROR 04-10 11:26:01 engine.py:140] RuntimeError: The Inner error is reported as above. The process exits for this inner error, and the current working operator name is SelfAttentionOperation.\n'
        'ERROR 04-10 11:26:01 engine.py:140] Since the operator is called asynchronously, the stacktrace may be inaccurate. If you want to get the accurate stacktrace, pleace set the environment variable ASCEND_LAUNCH_BLOCKING=1.\n'
        'ERROR 04-10 11:26:01 engine.py:140] [ERROR] 2025-04-10-11:26:01 (PID:294, Device:0, RankID:-1) ERR00100 PTA call acl api failed.\n',
        {'npu_operator_failed'}, 'Inner error|ERR00100', 'nvidia-smi',
    ),
    'rocm#6182 line': (
        'Memory critical error by agent node-0 (Agent handle: 0x55d0c0) on address 0x7f5e00000000. Reason: Memory in use.\n',
        {'unknown', 'xid_or_gpu_lost'}, 'Memory critical error', 'nvidia-smi|replace the GPU',
    ),
    'spark#5': (
        'vllm-mxfp4  | (APIServer pid=1)   File "/workspace/vllm/vllm/v1/engine/core_client.py", line 899, in get_output_async\n'
        'vllm-mxfp4  | (APIServer pid=1)     raise self._format_exception(outputs) from None\n'
        'vllm-mxfp4  | (APIServer pid=1) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n'
        'vllm-mxfp4  | [rank0]:[W224 19:04:56.322966893 CUDAGuardImpl.h:122] Warning: CUDA warning: an illegal memory access was encountered (function destroyEvent)\n'
        "vllm-mxfp4  | terminate called after throwing an instance of 'c10::AcceleratorError'\n"
        'vllm-mxfp4  |   what():  CUDA error: an illegal memory access was encountered\n'
        "vllm-mxfp4  | Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
        'vllm-mxfp4  | CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n',
        {'xid_or_gpu_lost'}, 'illegal memory access', 'hardware: drain',
    ),
    'shm 160': (
        '(EngineCore pid=62)   File "/x/vllm/distributed/device_communicators/shm_broadcast.py", line 491, in __init__\n'
        '(EngineCore pid=62)     self.buffer = ShmRingBuffer(n_local_reader, max_chunk_bytes, max_chunks)\n'
        '(EngineCore pid=62)   File "/x/vllm/distributed/device_communicators/shm_broadcast.py", line 244, in check_shm_free_space\n'
        '(EngineCore pid=62)     raise RuntimeError(\n'
        '(EngineCore pid=62) RuntimeError: Insufficient space in /dev/shm: 160 MiB required, 64 MiB free. Increase /dev/shm (e.g. --shm-size or --ipc=host).\n'
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}\n",
        {'cpu_ram_oom_killed', 'disk_full', 'unknown'}, 'Insufficient space', 'memory limit|HF_HOME|dmesg',
    ),
    'macos dlopen': (
        "WARNING 08-03 10:00:00 [cpu.py:459] Failed to import from vllm._C: ImportError('dlopen(/x/site-packages/vllm/_C.abi3.so, 0x0002): Symbol not found: __ZN3c104impl3cow23materialize_cow_storageERNS_11StorageImplE')\n"
        'ERROR 08-03 10:00:01 [multiproc_executor.py:912] WorkerProc failed to start.\n'
        'ERROR 08-03 10:00:01 [multiproc_executor.py:912]   File "/x/vllm/v1/worker/cpu_worker.py", line 71, in __init__\n'
        'ERROR 08-03 10:00:01 [multiproc_executor.py:912]     torch.ops._C.init_cpu_memory_env([memory_node])\n'
        "ERROR 08-03 10:00:01 [multiproc_executor.py:912] AttributeError: '_OpNamespace' '_C' object has no attribute 'init_cpu_memory_env'\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}\n",
        {'missing_dependency_or_import_error'}, 'init_cpu_memory_env|Symbol not found', 'uv pip install vllm',
    ),
    'cpu node': (
        '(Worker pid=12600) ERROR 06-13 18:37:31 [multiproc_executor.py:870] WorkerProc failed to start.\n'
        '(Worker pid=12600) ERROR 06-13 18:37:31 [multiproc_executor.py:870] ValueError: Available memory on node 0 (4.85/18.0 GiB) on startup is less than desired CPU memory utilization (0.92, 16.56 GiB). Decrease --gpu-memory-utilization or reduce CPU memory used by other processes.\n'
        '(EngineCore pid=12534) ERROR 06-13 18:37:33 [core.py:1202] EngineCore failed to start.\n',
        {'cpu_ram_oom_killed', 'gpu_occupied_by_other_process', 'kv_cache_too_small', 'unknown'}, 'Available memory on node', 'nvidia-smi|holds the GPU memory|vllm-watch gpus',
    ),
    'cudart deleted': (
        '(Worker_DP2_EP2 pid=175718) Traceback (most recent call last):\n'
        '(Worker_DP2_EP2 pid=175718) OSError: /data/vllm/.venv/lib/python3.12/site-packages/~orchvision.libs/libcudart.faf08d9a.so.13 (deleted): cannot open shared object file: No such file or directory\n',
        {'missing_dependency_or_import_error'}, 'deleted', 'nvidia-container|--gpus',
    ),
    'minimax assert': (
        '(Worker_TP0 pid=9) INFO 08-20 10:00:00 [gpu_model_runner.py:6000] Capturing CUDA graphs (decode, FULL):   0%|          | 0/51\n'
        '(Worker_TP0 pid=9) ERROR 08-20 10:00:01 [multiproc_executor.py:1007]   File "/x/vllm/v1/worker/gpu_model_runner.py", line 6011, in capture_model\n'
        '(Worker_TP0 pid=9) ERROR 08-20 10:00:01 [multiproc_executor.py:1007]   File "/x/models/minimax_m3/common/indexer.py", line 317, in build\n'
        '(Worker_TP0 pid=9) ERROR 08-20 10:00:01 [multiproc_executor.py:1007]     assert decode_query_len > 0\n'
        '(Worker_TP0 pid=9) ERROR 08-20 10:00:01 [multiproc_executor.py:1007] AssertionError\n'
        '(EngineCore pid=8) ERROR 08-20 10:00:02 [core.py:1330] EngineCore failed to start.\n',
        {'assertion_failed', 'unknown'}, 'AssertionError|assert decode', 'utilization|out of memory|DeepGEMM',
    ),
    'lcuda': (
        '/x/envs/tb/bin/ld: cannot find -lcuda: No such file or directory\n'
        'collect2: error: ld returned 1 exit status\n'
        'ninja: build stopped: subcommand failed.\n',
        {'compile_failure'}, 'cannot find -lcuda', 'libcudart|--enforce-eager',
    ),
    'omni index': (
        "(EngineCore_DP0 pid=15) ERROR 01-21 04:15:38 [v1/engine/core.py:940] RuntimeError: Worker failed with error 'index 1 is out of bounds for dimension 0 with size 1', please check the stack trace above for the root cause\n"
        '(Worker_TP1 pid=57) INFO 01-21 04:15:38 [v1/executor/multiproc_executor.py:707] Parent process exited, terminating worker\n'
        '(APIServer pid=15) ERROR 01-21 04:15:38 [v1/engine/async_llm.py:546] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n',
        {'unknown'}, 'index 1 is out of bounds', 'CUDA_VISIBLE|GPUs',
    ),
    'shape ascend': (
        '(VllmWorker rank=0 pid=281) ERROR 07-15 08:54:44 [multiproc_executor.py:522]   File "/vllm-workspace/vllm/vllm/model_executor/models/qwen3_moe.py", line 143, in forward\n'
        '(VllmWorker rank=0 pid=281) ERROR 07-15 08:54:44 [multiproc_executor.py:522]     return final_hidden_states.view(orig_shape)\n'
        "(VllmWorker rank=0 pid=281) ERROR 07-15 08:54:44 [multiproc_executor.py:522] RuntimeError: shape '[2048, 2048]' is invalid for input of size 16777216\n"
        'ERROR 07-15 08:54:44 [core.py:586] EngineCore failed to start.\n',
        {'unknown'}, 'invalid for input', 'revision|config\\.json',
    ),
    'wait line': (
        '(APIServer pid=1) INFO 03-07 10:05:00 [core_client.py:1] Waiting for 1 local, 0 remote core engine proc(s) to start.\n',
        {'engine_hang', 'unknown'}, '', 'works|nothing failed',
    ),
    'usage thread healthy': (
        '(APIServer pid=84) Exception in thread Thread-1 (_report_usage_worker):\n'
        "(APIServer pid=84) PermissionError: [Errno 13] Permission denied: '/.config'\n"
        '(APIServer pid=84) INFO:     Application startup complete.\n'
        '(APIServer pid=84) INFO:     10.0.0.9:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n',
        {'benign_warning_noise', 'healthy'}, '', 'HOME=',
    ),
    'DistStore echo': (
        '[rank1]:[W920 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=87, addr=[localhost]:50000, remote=[localhost]:29501): Failed to recv, got 0 bytes\n'
        '[rank1]: torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?\n'
        "(Worker_TP0 pid=2) ERROR 09-20 10:00:01 [multiproc_executor.py:944] KeyError: 'layers.7.mlp.gate.weight_scale_inv'\n",
        {'quantization_unsupported', 'unknown', 'unsupported_architecture'}, 'weight_scale_inv', 'IFNAME',
    ),
    'mistral template 400': (
        '(APIServer pid=1)     raise ValueError("chat_template is not supported for Mistral tokenizers.")\n'
        '(APIServer pid=1) ValueError: chat_template is not supported for Mistral tokenizers.\n'
        '(APIServer pid=1) INFO:     172.18.0.1:46756 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n'
        '(APIServer pid=1) ERROR:    Exception in ASGI application\n',
        {'tokenizer_mismatch_or_missing_chat_template', 'unknown'}, 'not supported for Mistral', '--chat-template|has no chat template',
    ),
    'encoder cache': (
        '(APIServer pid=1) ValueError: The decoder prompt contains a(n) image item with length 6105, which exceeds the pre-allocated encoder cache size 6084. Please reduce the input size or increase the encoder cache size by setting --limit-mm-per-prompt at startup.\n',
        {'context_length_exceeded'}, 'encoder cache size', 'raise --max-model-len',
    ),
    'ssu': (
        'container "inference" exited 1 (Error)\n'
        '(APIServer pid=1)   File "/usr/local/lib/python3.12/dist-packages/vllm/config/mamba.py", line 20, in __getitem__\n'
        '(APIServer pid=1)     raise ValueError(\n'
        "(APIServer pid=1) ValueError: Unknown Mamba SSU backend: 'CUDA'. Valid options are: TRITON, FLASHINFER\n",
        {'rope_or_config_mismatch', 'unknown', 'wrong_flag_value'}, 'Unknown Mamba SSU', 'ATTENTION_BACKEND',
    ),
    'lmc degraded': (
        'LMCache ERROR: Failed to initialize LMCacheManager components: . System will operate in degraded mode (recompute). (manager.py:200)\n',
        {'benign_warning_noise', 'kv_transfer', 'unknown'}, 'Failed to initialize LMCacheManager', 'other side xx',
    ),
    'pciehp': (
        '[ 9000.111111] pciehp 0000:80:01.1:pcie004: Slot(4): Link Down\n'
        '[ 9000.111112] pciehp 0000:80:01.1:pcie004: Slot(4): Card not present\n'
        '[ 9000.333333] nvidia 0000:81:00.0: Unable to change power state from D3cold to D0, device inaccessible\n',
        {'unknown', 'xid_or_gpu_lost'}, 'Link Down|device inaccessible|Card not', 'no GPU error',
    ),
    'prefetch midstart': (
        '(EngineCore pid=301) Starting to load model poolside/Laguna-S-2.1-NVFP4...\n'
        '(EngineCore pid=301) Checkpoint size: 92.85 GiB. Available RAM: 17.97 GiB.\n'
        'Auto-prefetch is disabled because the checkpoint exceeds 90% of available RAM.\n'
        '(EngineCore pid=301) Loading safetensors checkpoint shards:  22% Completed | 11/49 [04:29<18:47, 29.67s/it]\n',
        {'benign_warning_noise', 'healthy', 'unknown'}, '', 'works|nothing failed|memory ran out',
    ),
    'hf 401': (
        'huggingface_hub.errors.HfHubHTTPError: 401 Unauthorized\n',
        {'hf_gated_or_auth', 'hf_not_found_or_offline'}, '401', 'ls -l /path|mount',
    ),
    'offline mode': (
        'huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/Qwen/Qwen3-8B/resolve/main/config.json: offline mode is enabled. To disable it, please unset the `HF_HUB_OFFLINE` environment variable.\n',
        {'hf_not_found_or_offline'}, 'offline mode', 'curl -sI|cannot be reached',
    ),
    'zp': (
        '(EngineCore_DP0 pid=1570680) ERROR 01-16 16:36:26 [core.py:842] EngineCore failed to start.\n'
        '(EngineCore_DP0 pid=1570680) ERROR 01-16 16:36:26 [core.py:842]     param = params_dict[name]\n'
        "(EngineCore_DP0 pid=1570680) ERROR 01-16 16:36:26 [core.py:842] KeyError: 'layers.0.mlp.down_proj.weight_zero_point'\n",
        {'quantization_unsupported', 'unsupported_architecture'}, 'zero_point', 'pip install',
    ),
    'lora 500': (
        '2024-10-16T03:44:47.177951962Z INFO: 172.17.0.1:50230 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
        '2024-10-16T03:44:47.183535781Z INFO: Shutting down\n'
        "2024-10-16T03:44:47.190118292Z ERROR 10-15 20:44:47 engine.py:160] RuntimeError('Error in model execution: Loading lora /data/adapters/container/checkpoint-2000 failed')\n",
        {'lora_mismatch'}, 'Loading lora', 'max-lora-rank',
    ),
    'mooncake init': (
        '(Worker_TP0 pid=9) ERROR 08-26 12:16:15 [multiproc_executor.py:492] RuntimeError: Mooncake Transfer Engine initialization failed.\n',
        {'kv_transfer'}, 'Mooncake', 'utilization',
    ),
    'cut frames only': (
        '(EngineCore_DP0 pid=144) ERROR 01-20 13:03:52 [core.py:936] Traceback (most recent call last):\n'
        '(EngineCore_DP0 pid=144) ERROR 01-20 13:03:52 [core.py:936]   File "/x/vllm/v1/engine/core.py", line 927, in run_engine_core\n'
        '(EngineCore_DP0 pid=144) ERROR 01-20 13:03:52 [core.py:936]     engine_core = EngineCoreProc(*args, **kwargs)\n',
        {'engine_dead', 'unknown'}, '', 'nothing failed|[Nn]o error',
    ),
    'del pynccl': (
        '(RayWorkerVllm pid=14289) Exception ignored in: <function NCCLCommunicator.__del__ at 0x7f4d8c3212d0>\n'
        '(RayWorkerVllm pid=14289) Traceback (most recent call last):\n'
        '(RayWorkerVllm pid=14289)   File "/x/pynccl.py", line 264, in __del__\n'
        '(RayWorkerVllm pid=14289)     _c_ncclCommDestroy(self.comm)\n'
        "(RayWorkerVllm pid=14289) AttributeError: 'NCCLCommunicator' object has no attribute 'comm'\n"
        '(RayWorkerVllm pid=14289) ERROR 04-17 09:00:33 ray_utils.py:44] Error executing method init_device. This might cause deadlock in distributed execution.\n'
        '(RayWorkerVllm pid=14289) ERROR 04-17 09:00:34 ray_utils.py:44] RuntimeError: NCCL error: unhandled system error\n',
        {'nccl_init_failure'}, 'unhandled system error', 'pip check',
    ),
    'autotuner warn only': (
        '(Worker_PP0 pid=38385) 2025-11-11 06:41:27,319 - WARNING - autotuner.py:485 - flashinfer.jit: [Autotuner]: Skipping tactic <flashinfer.fused_moe.core.get_cutlass_fused_moe_module.<locals>.MoERunner object at 0x7c70ccce8350> 15, due to failure while profiling: [TensorRT-LLM][ERROR] Assertion failed: Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal (/workspace/flashinfer/csrc/x.generated.cu:60)\n',
        {'benign_warning_noise', 'healthy', 'unknown'}, '', 'works|bug|replace',
    ),
    'cancelled root': (
        '(EngineCore_DP0 pid=559) ERROR 10-20 03:20:46 [multiproc_executor.py:149] Worker proc VllmWorker-7 died unexpectedly, shutting down executor.\n'
        '(EngineCore_DP0 pid=559) ERROR 10-20 03:20:46 [core.py:1] EngineCore encountered a fatal error.\n'
        '(EngineCore_DP0 pid=559) ERROR 10-20 03:20:46 [core.py:1] RuntimeError: cancelled\n'
        '(APIServer pid=1) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n',
        {'engine_dead', 'unknown'}, 'died unexpectedly', '',
    ),
    'dmesg trap': (
        '[12345.1] traps: VLLM::Worker_TP[4242] trap divide error ip:7f0 sp:7ff error:0 in libflashinfer.so[7f0+1]\n',
        {'engine_dead', 'unknown'}, 'trap divide', 'memory',
    ),
    'softcap': (
        'ValueError: XFormers does not support attention logits soft capping.\n',
        {'attention_backend_unavailable'}, 'soft capping', 'dtype half',
    ),
    'cicc killed': (
        '[ 1000.1] Out of memory: Killed process 999 (cicc) total-vm:9kB, anon-rss:9kB, file-rss:0kB, shmem-rss:0kB, UID:0\n',
        {'cpu_ram_oom_killed'}, 'cicc', 'offload less|gpu-memory',
    ),
    'cumem load': (
        '(EngineCore pid=2) INFO 05-05 10:00:00 [gpu_model_runner.py:1] Starting to load model m...\n'
        '(EngineCore pid=2) ERROR 05-05 10:00:10 [core.py:1]   File "/x/vllm/model_executor/layers/quantization/mxfp4.py", line 300, in process_weights_after_loading\n'
        '(EngineCore pid=2) ERROR 05-05 10:00:10 [core.py:1]   File "/x/vllm/device_allocator/cumem.py", line 100, in python_malloc_callback\n'
        '(EngineCore pid=2) ERROR 05-05 10:00:10 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 93.10 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 92.00 GiB memory in use.\n',
        {'oom_loading_weights'}, '2.00 GiB', 'gave back was taken|trainer',
    ),
    'lora extra vocab': (
        "AttributeError: 'LoRAConfig' object has no attribute 'lora_extra_vocab_size'\n",
        {'missing_dependency_or_import_error', 'unknown'}, 'lora_extra_vocab', 'adapter|chat',
    ),
    'ray fs healthy': (
        'INFO 05-05 10:00:00 [api_server.py:1] vLLM API server version 0.20.0\n'
        '(APIServer pid=1) INFO:     Application startup complete.\n'
        '(raylet) [2025-12-07 03:27:39,873 E 1 1] (raylet) file_system_monitor.cc:111: /tmp/ray/session_x is over 95% full, available space: 40.1 GB; capacity: 900 GB. Object creation will fail if spilling is required.\n'
        '(APIServer pid=1) INFO 03-19 13:08:37 [loggers.py:259] Engine 000: Avg prompt throughput: 5.2 tokens/s, Avg generation throughput: 3.3 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%\n',
        {'benign_warning_noise', 'healthy', 'unknown'}, '', 'df',
    ),
    'img 403': (
        '(APIServer pid=1) ERROR 05-05 10:00:00 [serving.py:1] requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://upload.wikimedia.org/wikipedia/commons/x.jpg\n',
        {'unknown'}, '403', 'HF_TOKEN|licence',
    ),
    'cpu nvml debug': (
        'DEBUG 05-05 10:00:00 [__init__.py:100] Exception happens when checking CUDA platform: NVML Shared Library Not Found\n'
        'INFO 05-05 10:00:00 [__init__.py:200] Automatically detected platform cpu.\n',
        {'benign_warning_noise', 'healthy', 'unknown'}, '', 'gpus all',
    ),
    'arch sm': (
        'RuntimeError: Unsupported architecture: sm_75\n',
        {'attention_backend_unavailable', 'driver_cuda_mismatch', 'unknown'}, 'sm_75', 'list of supported models',
    ),
    'tf not compat': (
        'ImportError: transformers 5.0.0 is not compatible with vLLM 0.11.0\n',
        {'missing_dependency_or_import_error', 'unknown'}, 'not compatible', 'list of supported models',
    ),
    'nccl remote': (
        '(Worker_TP3 pid=9) ERROR 05-05 10:00:00 [x.py:1] torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or there was a network error, NCCL version 2.27.5\n'
        '(Worker_TP3 pid=9) ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n'
        '(Worker_TP0 pid=6) ERROR 05-05 10:00:01 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n',
        {'oom_runtime', 'out_of_memory'}, 'out of memory', 'tensor-parallel',
    ),
    'occ nearly all': (
        'ValueError: Free memory on device (22.9/23.5 GiB) on startup is less than desired GPU memory utilization (0.98, 23.03 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n',
        {'gpu_occupied_by_other_process'}, '22.9', 'max-model-len|something else already|vllm-watch gpus',
    ),
    'zmq perm': (
        "zmq.error.ZMQError: Permission denied (addr='tcp://0.0.0.0:80')\n",
        {'folder_not_writable', 'unknown'}, 'Permission denied', 'HOME=|CACHE|file or folder',
    ),
    'occ gb10': (
        'ValueError: Free memory on device cuda:0 (118.0/121.69 GiB) on startup is less than desired GPU memory utilization (0.98, 119.2 GiB).\n',
        {'gpu_occupied_by_other_process'}, '118', '--gpu-memory-utilization 0|configured to take a larger share',
    ),
}  # fmt: skip
