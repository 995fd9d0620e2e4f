"""More reports, as in fresh_reports.py: the log, the classes, the root line, what is never advised.

Search results cut some reports off: the last lines of several are written from the report's own description; `composed` marks those without a line of the report.
"""

MORE_REPORTS: dict[str, tuple[str, set[str], str, str]] = {
    'posttrainarena#46: car': (
        '(Worker pid=77) INFO 09-22 10:01:02 [pynccl.py:111] vLLM is using nccl==2.28.9\n'
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'\n"
        '(EngineCore pid=9) ERROR 09-22 10:01:09 [core.py:1233] EngineCore failed to start.\n'
        '(EngineCore pid=9) ERROR 09-22 10:01:09 [core.py:1233] RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n',
        {'nccl_init_failure'},
        'custom_all_reduce', 'NCCL_P2P|shm-size|memory',
    ),
    'composed after vllm#28390: size': (
        '(EngineCore_DP0 pid=196) ERROR 11-10 15:20:18 [core.py:845] EngineCore encountered a fatal error.\n'
        '(EngineCore_DP0 pid=196) ERROR 11-10 15:20:18 [core.py:845]   File "/x/vllm/v1/worker/gpu_model_runner.py", line 2400, in execute_model\n'
        '(EngineCore_DP0 pid=196) ERROR 11-10 15:20:18 [core.py:845] RuntimeError: The size of tensor a (768) must match the size of tensor b (797) at non-singleton dimension 0\n'
        '(APIServer pid=1) INFO:     10.0.0.2:4422 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error\n',
        {'unknown'},
        'size of tensor', 'revision|config.json',
    ),
    'composed, in the form of NCCL: nccl oom line': (
        "Cuda failure 2 'out of memory'\n",
        {'out_of_memory'},
        'out of memory', 'tensor-parallel|enforce-eager|utilization',
    ),
    'dgx-spark-playbooks#97: dmesg': (
        '[  812.554311] NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359\n'
        '[  812.554330] NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359\n',
        {'out_of_memory'},
        'NV_ERR_NO_MEMORY', 'RMA|replace|drain',
    ),
    'GLM-5.3-Flash-EXL3-2x-DGX-Sparks#47: report': (
        'ValueError: Free memory on device cuda:0 (101.3/121.69 GiB) on startup is less than desired GPU memory utilization (0.87, 105.87 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n',
        {'gpu_occupied_by_other_process'},
        'Free memory on device', 'nvidia-smi --query',
    ),
    'vllm#22072: serve twice': (
        'usage: api_server.py [-h] [--headless] [--host HOST]\n'
        'api_server.py: error: unrecognized arguments: serve HuggingFaceTB/SmolLM3-3B --dtype auto --max-model-len 16384\n',
        {'unknown_flag'},
        'unrecognized', 'drop|upgrade',
    ),
    'triton#8539: report': (
        'triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n'
        '`ptxas` stderr:\n'
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n"
        '\n'
        'Repro command: /home/xxxx/lib/python3.10/site-packages/triton/backends/nvidia/bin/ptxas -lineinfo -v --gpu-name=sm_121a /tmp/tmpkw7ug6t8.ptx -o /tmp/tmpkw7ug6t8.ptx.o\n',
        {'compile_failure'},
        'ptxas fatal', 'enforce-eager',
    ),
    'gpustack#4372: report': (
        '(EngineCore_DP0 pid=73)     raise RuntimeError(f"Failed to run autotuning code block: {e}") from e\n'
        '(EngineCore_DP0 pid=73) torch._inductor.exc.InductorError: RuntimeError: Failed to run autotuning code block: No valid triton configs. PTXASError: PTXAS error: Internal Triton PTX codegen error\n'
        '(EngineCore_DP0 pid=73) `ptxas` stderr:\n'
        "(EngineCore_DP0 pid=73) ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n"
        '(EngineCore_DP0 pid=73) \n'
        '(EngineCore_DP0 pid=73) Repro command: /x/ptxas -lineinfo --gpu-name=sm_121a\n',
        {'compile_failure'},
        'ptxas fatal', 'enforce-eager',
    ),
    'vllm-ascend#6935: exit noise': (
        '(APIServer pid=1)     raise RuntimeError(\n'
        '(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n'
        '[ERROR] 2026-03-02-15:44:05 (PID:1, Device:-1, RankID:-1) ERR99999 UNKNOWN applicaiton exception\n',
        {'engine_dead'},
        'Engine core init|ERR99999', 'driver|drain',
    ),
    'composed after vllm#40926: zero tok': (
        '(APIServer pid=851) INFO 04-28 22:10:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:11:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:12:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:13:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:14:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:15:52 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 6.5%, Prefix cache hit rate: 92.0%\n',
        {'engine_hang'},
        'Running: 2', 'PID_OF_WORKER|skip-mm',
    ),
    'composed after HAMi-core#261: report': (
        'INFO 08-09 21:13:40 [api_server.py:1995] vLLM API server version 0.25.0\n'
        '(Worker pid=958) INFO 08-09 21:13:57 [distributed/parallel_state.py:1607] world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://127.0.0.1:43615 backend=nccl\n'
        'DEBUG 08-09 21:14:06 [v1/engine/utils.py:1200] Waiting for 1 local, 0 remote core engine proc(s) to start.\n'
        'DEBUG 08-09 21:24:06 [v1/engine/utils.py:1200] Waiting for 1 local, 0 remote core engine proc(s) to start.\n',
        {'engine_hang'},
        '', 'memory',
    ),
    'open-gpu-kernel-modules#829: xid120': (
        '[605633.376794] NVRM: Xid (PCI:0000:06:00): 120, GSP task exception: store access page fault (cause:0xf) @ pc:0x13ebd80, partition:2#0, task:3\n'
        '[605633.376800] NVRM:     Reported by libos partition:2#4 kernel v3.1 [0] @ ts:1770232285\n',
        {'xid_or_gpu_lost'},
        'Xid', 'replace',
    ),
    'gpud#1174: xid94': (
        '[ 1.5] NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error\n',
        {'xid_or_gpu_lost'},
        'Xid', 'replace',
    ),
    'open-gpu-kernel-modules#1150: xid45/149': (
        'kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149\n'
        'kernel: NVRM: Xid (PCI:0000:ed:00): 45, pid=1818992, name=python3, Ch 0000000c caused by previous Xid 145\n',
        {'xid_or_gpu_lost'},
        'Xid', 'ECC',
    ),
    'composed after runpod#199: report': (
        '0s0n9esxgd0u45[error]worker exited with exit code 136\n'
        '0s0n9esxgd0u45[info]INFO 07-23 16:43:22 [async_llm_engine.py:210] Added request 192c6636b44048959880183d076fb20f.\n',
        {'engine_dead'},
        '', 'memory',
    ),
    'llm-scaler#391: slow': (
        '(APIServer pid=851) INFO 04-28 22:54:10 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.0%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:54:20 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.1%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:54:30 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.2%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:54:40 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.3%, Prefix cache hit rate: 92.0%\n'
        '(APIServer pid=851) INFO 04-28 22:54:50 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.4%, Prefix cache hit rate: 92.0%\n',
        {'healthy'},
        '', 'restart',
    ),
    'vllm#41257: flex': (
        '(EngineCore pid=22349) ERROR 04-29 16:04:08 [v1/engine/core.py:1138] EngineCore encountered a fatal error.\n'
        '(EngineCore pid=22349) ERROR 04-29 16:04:08 [v1/engine/core.py:1138]     engine_core.run_busy_loop()\n'
        '(EngineCore pid=22349) ERROR 04-29 16:04:08 [v1/engine/core.py:1138] torch._dynamo.exc.InternalTorchDynamoError: AcceleratorError: CUDA error: misaligned address\n',
        {'xid_or_gpu_lost'},
        'misaligned', 'enforce-eager',
    ),
    'Hyperloom#837: tail': (
        'usage: vllm [-h] [-v] {chat,complete,serve,launch,bench,collect-env,run-batch} ...\n'
        'vllm: error: unrecognized arguments: -f /dev/null\n',
        {'unknown_flag'},
        'unrecognized', 'write --f',
    ),
    'Kubernetes events: liveness': (
        '  Warning  Unhealthy  2m (x9 over 4m)  kubelet  Liveness probe failed: Get "http://10.1.2.3:8000/health": dial tcp 10.1.2.3:8000: connect: connection refused\n'
        '  Normal   Killing    2m  kubelet  Container vllm failed liveness probe, will be restarted\n',
        {'engine_dead'},
        'probe', 'memory',
    ),
    'flashinfer: curand': (
        '(EngineCore pid=8727) RuntimeError: Ninja build failed. Ninja output:\n'
        '(EngineCore pid=8727) [1/3] c++ -MMD sampling.o\n'
        '(EngineCore pid=8727) /opt/vllm/lib/python3.12/site-packages/flashinfer/data/include/flashinfer/sampling.cuh:20:10: fatal error: curand.h: No such file or directory\n'
        '(EngineCore pid=8727) ninja: build stopped: subcommand failed.\n',
        {'compile_failure'},
        'curand.h', 'enforce-eager',
    ),
}  # fmt: skip
