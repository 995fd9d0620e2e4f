"""Logs and lines of public reports of 2025 and 2026, judged before they were first run.

Each has its report, the classes that are right, what the root line must hold, and a pattern of advice that
would be harmful.
"""

REPORTS: dict[str, tuple[str, set[str], str, str]] = {
    'noonghunna/club-3090#58: club3090-58 serving': (
        '(APIServer pid=1) INFO 05-05 12:36:40 [loggers.py:271] Engine 000: Avg prompt throughput: 812.0 tokens/s, Avg generation throughput: 41.2 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 34.3%, Prefix cache hit rate: 72.7%\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] EngineCore encountered a fatal error.\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] Traceback (most recent call last):\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1129, in run_engine_core\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     engine_core.run_busy_loop()\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1209, in _process_engine_step\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     outputs, model_executed = self.step_fn()\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB. GPU 0 has a total capacity of 23.56 GiB of which 56.88 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use.\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [async_llm.py:699] AsyncLLM output_handler failed.\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [serving.py:1173] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n',
        {'oom_runtime'}, 'OutOfMemoryError', 'tensor-parallel|quantized',
    ),
    'noonghunna/club-3090#58: club3090-58 line': (
        'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB. GPU 0 has a total capacity of 23.56 GiB of which 56.88 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use.\n',
        {'out_of_memory'}, 'OutOfMemoryError', 'tensor-parallel|enforce-eager|max-num-batched',
    ),
    'vllm#26863: 26863 line': (
        'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 232.00 MiB. GPU 0 has a total capacity of 23.57 GiB of which 154.25 MiB is free. Including non-PyTorch memory, this proce\n'
        'ss has 23.40 GiB memory in use. Of the allocated memory 22.88 GiB is allocated by PyTorch, and 188.29 MiB is reserved by PyTorch but unallocated.\n',
        {'oom_runtime', 'out_of_memory'}, 'OutOfMemoryError', 'tensor-parallel|enforce-eager',
    ),
    'ms-swift#9613: swift-9613 foreign': (
        'CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:119\n'
        'Traceback (most recent call last):\n'
        '    return func(*args, **kwargs)\n'
        '           ^^^^^^^^^^^^^^^^^^^^^\n'
        'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 7 has a total capacity of 79.11 GiB of which 66.43 GiB is free. Including non-PyTorch memory, this process has 0 bytes memory in use. Of the allocated memory 8.51 GiB is allocated by PyTorch, and 856.16 MiB is reserved by PyTorch but unallocated.\n',
        {'out_of_memory', 'unknown'}, 'cumem_allocator|OutOfMemory', 'tensor-parallel|lower --gpu-memory|enforce-eager|quantized|smaller',
    ),
    'vllm#13941: cumem wake 13941': (
        '  File "/usr/local/lib/python3.10/dist-packages/vllm/executor/executor_base.py", line 216, in wake_up\n'
        '    self.collective_rpc("wake_up")\n'
        '  File "/usr/local/lib/python3.10/dist-packages/vllm/device_allocator/cumem.py", line 75, in create_and_map\n'
        '    python_create_and_map(*allocation_handle)\n'
        'RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62\n',
        {'oom_runtime', 'out_of_memory'}, 'cumem_allocator', 'tensor-parallel|enforce-eager|lower --gpu-mem',
    ),
    'llm-d-fma#746: cumem http 746': (
        'I0902 00:55:35.305769       1 inference-server.go:2282] "HTTP call done" worker=1 method="POST" url="http://10.131.8.254:8006/wake_up" statusCode=500 err="HTTP POST \\"http://10.131.8.254:8006/wake_up\\" returned unexpected status 500; responseBody={\\"error\\":{\\"message\\":\\"Call to wake_up method failed: CUDA Error: out of memory at <path>:163\\",\\"type\\":\\"InternalServerError\\",\\"code\\":500}}"\n',
        {'oom_runtime', 'out_of_memory'}, 'wake_up', 'tensor-parallel|enforce-eager',
    ),
    'vllm#12981: cumem 12981': (
        'CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:56\n'
        'CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:57\n'
        'CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:64\n'
        'Segmentation fault (core dumped)\n',
        {'oom_runtime', 'out_of_memory'}, 'cumem_allocator.cpp:56', 'tensor-parallel|enforce-eager',
    ),
    'vllm#28714: sleep illegal 28714': (
        '(EngineCore_DP0 pid=1778746) INFO 11-14 15:11:23 [device_allocator/cumem.py:239] CuMemAllocator: sleep freed 34.06 GiB memory in total, of which 7.56 GiB is backed up in CPU and the rest 26.51 GiB is discarded directly.\n'
        '(APIServer pid=1778096) INFO:     127.0.0.1:50356 - "POST /sleep HTTP/1.1" 200 OK\n'
        '(EngineCore_DP0 pid=1778746) ERROR 11-14 15:11:23 [core.py:842] EngineCore encountered a fatal error.\n'
        '(EngineCore_DP0 pid=1778746) ERROR 11-14 15:11:23 [core.py:842] torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n',
        {'xid_or_gpu_lost'}, 'illegal memory', 'ECC|drain',
    ),
    'vllm#18679: spark sampler 18679': (
        'ERROR 05-25 18:32:52 [core.py:343]     raise RuntimeError(\n'
        'ERROR 05-25 18:32:52 [core.py:343] RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n'
        'CRITICAL 05-25 18:32:52 [core_client.py:269] Got fatal signal from worker processes, shutting down. See stack trace above for root cause issue.\n',
        {'oom_cuda_graph_capture'}, 'warming up sampler', 'tensor-parallel',
    ),
    'jetson-containers#795: jetson Killed': (
        'INFO 01-23 07:32:42 model_runner.py:1071] Loading model weights took 4.3752 GB\n'
        'INFO 01-23 07:34:26 gpu_executor.py:122] # GPU blocks: 11836, # CPU blocks: 4681\n'
        'INFO 01-23 07:34:26 gpu_executor.py:126] Maximum concurrency for 200 tokens per request: 946.88x\n'
        'Killed\n',
        {'cpu_ram_oom_killed'}, 'Killed', 'tensor-parallel|shm',
    ),
    'pytorch#175666: ctx free 175666': (
        '(EngineCore_DP0 pid=6940) ValueError: Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n',
        {'gpu_occupied_by_other_process'}, 'Free memory on device', 'tensor-parallel',
    ),
    'kvcached#110: kvcached 110': (
        'ValueError: Free memory on device (67.24/79.25 GiB) on startup is less than desired GPU memory utilization (0.9, 71.33 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n',
        {'gpu_occupied_by_other_process'}, '67.24', '',
    ),
    'vllm#48140: uma 48140': (
        'INFO 07-09 10:00:00 [cuda.py:1] GPU 0: NVIDIA GB10\n'
        '(EngineCore pid=6940) ERROR 07-09 10:00:09 [core.py:1233] EngineCore failed to start.\n'
        '(EngineCore pid=6940) ERROR 07-09 10:00:09 [core.py:1233] ValueError: Free memory on device cuda:0 (70.1/121.69 GiB) on startup is less than desired GPU memory utilization (0.8, 97.35 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n',
        {'gpu_occupied_by_other_process'}, '70.1', '',
    ),
    'vllm-deepseek-v4-sm89#54: dsv4 kv 54': (
        "start.py:1395 (EngineCore pid=1713) ValueError: To serve at least one request with the model's max seq len (131072), (1.34 GiB KV cache is needed, which is larger than the available KV cache memory (0.3 GiB). Based on the available memory, the estimated maximum model length is 720. Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing `max_model_len` when initializing the engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details.\n",
        {'kv_cache_too_small'}, '720', '',
    ),
    'vllm#44376: dsv4 gh200 44376': (
        "(EngineCore pid=2739502) ERROR 06-03 14:24:40 [core.py:1165] ValueError: To serve at least one request with the model's max seq len (30000), (6.66 GiB KV cache is needed, which is larger than the available KV cache memory (5.44 GiB). Based on the available memory, the estimated maximum model length is 13528. Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing `max_model_len` when initializing the engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details.\n",
        {'kv_cache_too_small'}, '13528', '',
    ),
    'ramalama#758: flag temperature': (
        'WARNING 04-10 22:41:05 [argparse_utils.py:191] With `vllm serve`, you should provide the model as a positional argument or in a config file instead of via the `--model` option. The `--model` option will be removed in v0.13.\n'
        'usage: vllm [-h] [-v]\n'
        '            {chat,complete,serve,launch,bench,collect-env,run-batch} ...\n'
        'vllm: error: unrecognized arguments: --temperature 0.8\n',
        {'unknown_flag'}, '--temperature', 'upgrade|download',
    ),
    'vllm#34545: flag omni': (
        'usage: vllm [-h] [-v] {chat,complete,serve,bench,collect-env,run-batch} ...\n'
        'vllm: error: unrecognized arguments: --omni\n',
        {'unknown_flag'}, '--omni', '',
    ),
    'vllm#46325: flag lmo': (
        'vllm: error: unrecognized arguments: -language-model-only\n',
        {'unknown_flag'}, '-language-model-only', '',
    ),
    'vllm#27347: flag all2all': (
        'vllm: error: unrecognized arguments: --all2all-backend deepep_low_latency\n',
        {'unknown_flag'}, 'all2all', '',
    ),
    'vllm#18538: flag reasoning': (
        'vllm: error: unrecognized arguments: --enable-reasoning --reasoning-parser deepseek_r1\n',
        {'unknown_flag'}, 'enable-reasoning', '',
    ),
    'worker-vllm#324: flag partial prefills': (
        'vllm: error: unrecognized arguments: --max-num-partial-prefills 2 --max-long-partial-prefills 1\n',
        {'unknown_flag'}, 'partial', '',
    ),
    'vllm-omni#1592: flag tts': (
        'vllm: error: unrecognized arguments: --stage-configs-path /all_nvme/nvme3/lk/model/server/vllm-omni/vllm_omni/model_executor/stage_configs/qwen3_tts.yaml --omni\n',
        {'unknown_flag'}, 'stage-configs-path', '',
    ),
    'flashinfer-windows#6: nvcc single input': (
        'nvcc fatal   : A single input file is required for a non-link phase when an outputfile is specified\n'
        'ninja: build stopped: subcommand failed.\n'
        'RuntimeError: Ninja build failed. Ninja output:\n',
        {'compile_failure'}, 'nvcc fatal', 'enforce-eager|fp8|download',
    ),
    'llm-compressor#1803: ct Linear': (
        '(EngineCore_0 pid=38879) ERROR 09-07 07:24:58 [core.py:700] EngineCore failed to start.\n'
        '(EngineCore_0 pid=38879) ERROR 09-07 07:24:58 [core.py:700] Traceback (most recent call last):\n'
        '(EngineCore_0 pid=38879) ERROR 09-07 07:24:58 [core.py:700]   File "/x/vllm/model_executor/models/llama4.py", line 288, in __init__\n'
        '(EngineCore_0 pid=38879) ERROR 09-07 07:24:58 [core.py:700]   File "/x/vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors_moe.py", line 101, in get_moe_method\n'
        '(EngineCore_0 pid=38879) ERROR 09-07 07:24:58 [core.py:700]     weight_quant = quant_config.target_scheme_map["Linear"].get("weights")\n'
        "(EngineCore_0 pid=38879) ERROR 09-07 07:24:58 [core.py:700] KeyError: 'Linear'\n",
        {'quantization_unsupported', 'unknown'}, "KeyError: 'Linear'", 'download|--dtype',
    ),
    'vllm-ascend#14283: popleft assert': (
        '(APIServer pid=1) INFO 05-05 12:36:40 [loggers.py:271] Engine 000: Avg prompt throughput: 812.0 tokens/s, Avg generation throughput: 41.2 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 34.3%, Prefix cache hit rate: 72.7%\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] EngineCore encountered a fatal error.\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] Traceback (most recent call last):\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1129, in run_engine_core\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     engine_core.run_busy_loop()\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1209, in _process_engine_step\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     outputs, model_executed = self.step_fn()\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/vllm-workspace/vllm/vllm/v1/core/kv_cache_utils.py", line 300, in popleft_n\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     assert curr_block is not None\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]            ^^^^^^^^^^^^^^^^^^^^^^\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] AssertionError\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [async_llm.py:699] AsyncLLM output_handler failed.\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [serving.py:1173] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n',
        {'assertion_failed'}, 'AssertionError', 'tensor-parallel|utilization|download',
    ),
    'vllm#55503: offload assert': (
        '(APIServer pid=1) INFO 05-05 12:36:40 [loggers.py:271] Engine 000: Avg prompt throughput: 812.0 tokens/s, Avg generation throughput: 41.2 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 34.3%, Prefix cache hit rate: 72.7%\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] EngineCore encountered a fatal error.\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] Traceback (most recent call last):\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1129, in run_engine_core\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     engine_core.run_busy_loop()\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1209, in _process_engine_step\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     outputs, model_executed = self.step_fn()\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/kv_offload/scheduler.py", line 812, in _build_store_jobs\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     assert len(offload_keys) == len(offload_block_ids)\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]            ^^^^^^^^^^^^^^^^^^^^^^\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] AssertionError\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [async_llm.py:699] AsyncLLM output_handler failed.\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [serving.py:1173] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n',
        {'assertion_failed'}, 'AssertionError', 'tensor-parallel|utilization|download',
    ),
    'vllm#12233: mqllm dead': (
        "ERROR 01-22 00:13:32 client.py:282] RuntimeError('Engine process (pid 77) died.')\n"
        'ERROR 01-22 00:13:32 client.py:282] NoneType: None\n'
        'CRITICAL 01-22 00:13:36 launcher.py:99] MQLLMEngine is already dead, terminating server process\n',
        {'engine_dead'}, 'died|dead', 'utilization|tensor',
    ),
    'vllm#8177: watchdog illegal': (
        '[rank0]:[E219 12:14:43.351647859 ProcessGroupNCCL.cpp:1595] [PG ID 2 PG GUID 3 Rank 0] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n'
        'CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n',
        {'xid_or_gpu_lost'}, 'illegal memory', 'NCCL_|drain',
    ),
    'vllm#24383: invalid argument load': (
        '(EngineCore_0 pid=99) ERROR 09-07 02:31:33 [core.py:700] EngineCore failed to start.\n'
        '(EngineCore_0 pid=99) ERROR 09-07 02:31:33 [core.py:700] torch.AcceleratorError: CUDA error: invalid argument\n'
        'CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n',
        {'driver_cuda_mismatch', 'unknown', 'xid_or_gpu_lost'}, 'invalid argument', 'reinstall|utilization',
    ),
    'vllm-ascend#8360: ascend EL0003': (
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        '  what():  [Rank 7] HCCL watchdog thread terminated with exception:\n'
        '[ERROR] 2026-05-08-03:20:32 (PID:651, Device:7, RankID:-1) ERR02005 DIST internal error\n'
        '[704] [2026-05-08 03:20:32:273] torch.distributed: [ERROR] [805] Find exception when finishedNPUExecutionInternal, query:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:61 NPU function error: acl::AclQueryEventRecordedStatus(event_, &currStatus), error code is 507011\n'
        '[ERROR] 2026-05-08-03:20:32 (PID:704, Device:8, RankID:-1) ERR00100 PTA call acl api failed\n'
        '[Error]: Model execution failed.\n'
        '        Rectify the fault based on the error information in the ascend log.\n',
        {'nccl_init_failure', 'npu_operator_failed'}, '507011|ERR0|HCCL', 'NCCL_|nvidia',
    ),
    'vllm-ascend#2349: ascend 507035': (
        'ERROR 08-28 02:33:28 [core.py:634]     valid_sampled_token_ids = sampled_token_ids.tolist()\n'
        'ERROR 08-28 02:33:28 [core.py:634] RuntimeError: ACL stream synchronize failed, error code:507035\n'
        'ERROR 08-28 02:33:28 [async_llm.py:416] AsyncLLM output_handler failed.\n',
        {'npu_operator_failed'}, '507035', 'nvidia|NCCL_',
    ),
    'vllm-ascend#5135: ascend 300I': (
        'ERROR 12-17 09:31:58 [engine.py:458] [ERROR] 2025-12-17-09:31:53 (PID:53769, Device:0, RankID:-1) ERR02200 DIST call hccl api failed.\n'
        'ERROR 12-17 09:31:58 [engine.py:458] EH9999: Inner Error!\n'
        'ERROR 12-17 09:31:58 [engine.py:458] EH9999: [PID: 53769] 2025-12-17-09:31:39.804.969 rtSetStreamFailureMode failed, runtime result = 207000.[FUNC:ReportCallError][FILE:log_inner.cpp][LINE:161]\n',
        {'nccl_init_failure', 'npu_operator_failed'}, 'hccl|EH9999|ERR02200', 'nvidia-smi|NCCL_P2P',
    ),
    'vllm-ascend#5695: ascend 561103': (
        'RuntimeError: call aclnnSwinAttentionScoreQuant failed, error no is 561103 & error msg is ERR00100 PTA call acl api failed. EZ9999: Inner Error!\n',
        {'npu_operator_failed'}, '561103', 'nvidia',
    ),
    'vllm-ascend#3162: ascend EI0009': (
        '[rank1]: EI0009: [PID: 2225827] 2025-09-24-20:59:48.119.066 Transport init error. Reason: [Create][DestLink]Create Dest error! createLink para:rank[1]-localUserrank[1]-localIpAddr[172.16.0.114], dst_rank[0]-remoteUserrank[0]-remote_ip_addr[172.16.0.114]\n'
        "[rank1]:         Solution: Check other NPUs that are not reporting errors, or check if there are any abnormalities on the other end's NPU.\n",
        {'nccl_init_failure', 'npu_operator_failed'}, 'EI0009', 'nvidia|NCCL_P2P',
    ),
    'ROCm#5814: hip illegal': (
        '(EngineCore_DP0 pid=211) ERROR 12-25 10:00:00 [core.py:866] torch.AcceleratorError: HIP error: an illegal memory access was encountered\n'
        "Search for `hipErrorIllegalAddress' in https://rocm.docs.amd.com/projects/HIP/en/latest/index.html for more information.\n",
        {'xid_or_gpu_lost'}, 'illegal memory', 'xid|nvidia-smi|CUDA_LAUNCH',
    ),
    'ROCm#5245: hip invalid fn': (
        'torch.AcceleratorError: HIP error: invalid device function\n'
        'HIP kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n'
        'For debugging consider passing AMD_SERIALIZE_KERNEL=3\n',
        {'driver_cuda_mismatch'}, 'invalid device function', 'nvidia-smi|CUDA_LAUNCH|nvcc',
    ),
    'ROCm#5824: hip memfault': (
        'Memory access fault by GPU node-1 (Agent handle: 0x1b376c50) on address 0x7f762a667000. Reason: Page not present or supervisor privilege.\n'
        'Aborted (core dumped)\n',
        {'xid_or_gpu_lost'}, 'Memory access fault', 'nvidia|xid',
    ),
    'ROCm#6186: amdgpu dmesg': (
        '[ 1234.500001] amdgpu 0000:bd:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:153 vmid:8 pasid:2634)\n'
        '[ 1234.500002] amdgpu 0000:bd:00.0: amdgpu:  in process python3 pid 5748 thread python3 pid 5748)\n'
        '[ 1234.500010] amdgpu 0000:bd:00.0: amdgpu: PERMISSION_FAULTS: 0x3\n',
        {'xid_or_gpu_lost'}, 'page fault', 'nvidia|NVML',
    ),
    'vllm#47312: xgrammar tvm': (
        '(APIServer pid=1) INFO 05-05 12:36:40 [loggers.py:271] Engine 000: Avg prompt throughput: 812.0 tokens/s, Avg generation throughput: 41.2 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 34.3%, Prefix cache hit rate: 72.7%\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] EngineCore encountered a fatal error.\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] Traceback (most recent call last):\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1129, in run_engine_core\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     engine_core.run_busy_loop()\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1209, in _process_engine_step\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     outputs, model_executed = self.step_fn()\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/structured_output/__init__.py", line 184, in _create_grammar\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     return self.backend.compile_grammar(request_type, grammar_spec)\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "python/tvm_ffi/cython/function.pxi", line 929, in tvm_ffi.core.Function.__call__\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] RuntimeError: [20:33:13] /project/cpp/json_schema_converter.cc:2012: Check failed: (schema.is<picojson::object>()) is false: Schema should be an object or bool\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [async_llm.py:699] AsyncLLM output_handler failed.\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [serving.py:1173] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n',
        {'grammar_failed'}, 'json_schema_converter|Schema', 'enforce-eager|utilization',
    ),
    'vllm-ascend#5148: ascend type text': (
        '(APIServer pid=1) INFO 05-05 12:36:40 [loggers.py:271] Engine 000: Avg prompt throughput: 812.0 tokens/s, Avg generation throughput: 41.2 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 34.3%, Prefix cache hit rate: 72.7%\n'
        '(EngineCore_DP0 pid=415) ERROR 05-05 12:36:59 [core.py:1138] EngineCore encountered a fatal error.\n'
        '(EngineCore_DP0 pid=415) ERROR 05-05 12:36:59 [core.py:1138] Traceback (most recent call last):\n'
        '(EngineCore_DP0 pid=415) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1129, in run_engine_core\n'
        '(EngineCore_DP0 pid=415) ERROR 05-05 12:36:59 [core.py:1138]     engine_core.run_busy_loop()\n'
        '(EngineCore_DP0 pid=415) ERROR 05-05 12:36:59 [core.py:1138]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1209, in _process_engine_step\n'
        '(EngineCore_DP0 pid=415) ERROR 05-05 12:36:59 [core.py:1138]     outputs, model_executed = self.step_fn()\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]   File "/vllm-workspace/vllm/vllm/v1/structured_output/__init__.py", line 128, in _async_create_grammar\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138]     key = request.structured_output_request.structured_output_key\n'
        '(EngineCore pid=104) ERROR 05-05 12:36:59 [core.py:1138] ValueError: No valid structured output parameter found\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [async_llm.py:699] AsyncLLM output_handler failed.\n'
        '(APIServer pid=1) ERROR 05-05 12:36:59 [serving.py:1173] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n',
        {'grammar_failed', 'unknown'}, 'No valid structured', 'enforce-eager|utilization',
    ),
    'vllm#41834: dsv4 hang': (
        '(APIServer pid=741833) INFO:     Application startup complete.\n'
        '(APIServer pid=741833) INFO 05-19 18:58:17 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 34.3%, Prefix cache hit rate: 72.7%\n'
        '(EngineCore pid=741915) INFO 05-19 19:00:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 19:01:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 19:02:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 19:03:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 19:04:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 19:05:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n',
        {'engine_hang', 'shm_broadcast_hang'}, 'shm_broadcast|throughput', '',
    ),
    'vllm#43420: idle shm ok': (
        '(APIServer pid=1) INFO:     Application startup complete.\n'
        '(APIServer pid=1) INFO 05-23 18:48:17 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 72.7%\n'
        '(EngineCore pid=741915) INFO 05-19 18:50:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 18:51:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 18:52:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 18:53:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 18:54:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=741915) INFO 05-19 18:55:04 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n',
        {'benign_warning_noise', 'healthy'}, '', 'restart',
    ),
    'Qwen3-VL#1793: qwen3vl timeout': (
        '(EngineCore_DP0 pid=557903) ERROR 11-11 12:38:53 [core.py:710] EngineCore encountered a fatal error.\n'
        '(EngineCore_DP0 pid=557903) ERROR 11-11 12:38:53 [core.py:710] Traceback (most recent call last):\n'
        '(EngineCore_DP0 pid=557903) ERROR 11-11 12:38:53 [core.py:710]   File "/x/qwen_env/lib/python3.11/site-packages/vllm/distributed/device_communicators/shm_broadcast.py", line 460, in acquire_read\n'
        '(EngineCore_DP0 pid=557903) ERROR 11-11 12:38:53 [core.py:710]     raise TimeoutError\n'
        '(EngineCore_DP0 pid=557903) ERROR 11-11 12:38:53 [core.py:710] TimeoutError\n',
        {'shm_broadcast_hang'}, 'TimeoutError', 'utilization|tensor-parallel',
    ),
    'transformers#32577: transf gguf arch': (
        'ValueError: Architecture gemma4 not supported\n',
        {'unsupported_architecture'}, 'gemma4', 'download again',
    ),
    'vllm#9712: LlamaForCausalLM win': (
        "ERROR 10-26 11:35:32 registry.py:267] Error in inspecting model architecture 'LlamaForCausalLM'\n"
        "ERROR 10-26 11:35:32 registry.py:267] subprocess.CalledProcessError: Command '['python.exe', '-m', 'vllm.model_executor.models.registry']' returned non-zero exit status 1.\n"
        "ValueError: Model architectures ['LlamaForCausalLM'] are not supported for now. Supported architectures: ['AquilaModel', 'LlamaForCausalLM']\n",
        {'missing_dependency_or_import_error', 'unknown', 'unsupported_architecture'}, '', 'upgrade vLLM|install a newer vLLM',
    ),
    'vllm#12865: gpt2 lcuda': (
        '/usr/bin/ld: cannot find -lcuda: No such file or directory\n'
        'collect2: error: ld returned 1 exit status\n'
        "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpz/main.c', '-O3', '-shared', '-lcuda']' returned non-zero exit status 1.\n",
        {'compile_failure'}, 'cannot find -lcuda', '',
    ),
    'vllm#51884: dg unknown SF chain': (
        '(Worker_TP0 pid=9) ERROR 08-11 10:00:00 [multiproc_executor.py:880]   File "/x/vllm/model_executor/kernels/linear/scaled_mm/deep_gemm.py", line 96, in process_weights_after_loading\n'
        '(Worker_TP0 pid=9) ERROR 08-11 10:00:00 [multiproc_executor.py:880]   File "/x/vllm/utils/deep_gemm.py", line 494, in transform_sf_into_required_layout\n'
        '(Worker_TP0 pid=9) ERROR 08-11 10:00:00 [multiproc_executor.py:880] RuntimeError: Assertion error (/workspace/.deps/deepgemm-src/csrc/apis/layout.hpp:60): Unknown SF transformation\n',
        {'assertion_failed', 'compile_failure', 'quantization_unsupported'}, 'Unknown SF', 'enforce-eager|download|upgrade',
    ),
    'vllm#47436: dg SF line': (
        'RuntimeError: Assertion error (/workspace/.deps/deepgemm-src/csrc/apis/layout.hpp:59): Unknown SF transformation\n',
        {'assertion_failed', 'compile_failure', 'quantization_unsupported', 'unknown'}, 'Unknown SF', 'enforce-eager|download',
    ),
    'DeepGEMM#324: dg recipe line': (
        'RuntimeError: Assertion error (/workspace/.deps/deepgemm-src/csrc/apis/../jit_kernels/impls/../heuristics/../../utils/layout.hpp:76): Unknown recipe\n',
        {'assertion_failed', 'compile_failure', 'quantization_unsupported'}, 'Unknown recipe', 'enforce-eager|download|cache',
    ),
    'sglang#25877: dg arch tvm': (
        'tvm.error.InternalError: Assertion error (/deepgemm/csrc/apis/hyperconnection.hpp:56): Unsupported architecture\n',
        {'assertion_failed', 'compile_failure', 'unknown'}, 'Unsupported architecture', 'enforce-eager|transformers|supported models|upgrade',
    ),
    'aiconfigurator#975: dg gemm arch': (
        'RuntimeError: Assertion error (/x/deep_gemm/csrc/apis/gemm.hpp:376): Unsupported architecture\n',
        {'assertion_failed', 'compile_failure', 'unknown'}, 'Unsupported architecture', 'transformers|supported models',
    ),
    'aiconfigurator#975: sparse attn': (
        'RuntimeError: Sparse Attention Forward Kernel is only supported on SM90a and SM100f architectures.\n',
        {'attention_backend_unavailable'}, 'Sparse Attention', '',
    ),
    'llm-d#1269: dg exit_code': (
        '(Worker pid=749) (Worker_TP0 pid=749) ERROR 04-27 19:04:42 [multiproc_executor.py:880]   File "/opt/vllm-source/vllm/utils/deep_gemm.py", line 211, in fp8_gemm_nt\n'
        '(Worker pid=749) (Worker_TP0 pid=749) ERROR 04-27 19:04:42 [multiproc_executor.py:880] RuntimeError: Assertion error (csrc/apis/../jit_kernels/impls/../../jit/kernel_runtime.hpp:45): exit_code == 0\n',
        {'compile_failure'}, 'exit_code', 'enforce-eager',
    ),
    'vllm#49064: mamba short': (
        'ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (969).\n',
        {'kv_cache_too_small'}, '969', 'tensor-parallel|max-model-len',
    ),
    'vllm#38632: mamba worker': (
        "(EngineCore_DP0 pid=10078) RuntimeError: Worker failed with error 'max_num_seqs (1024) exceeds available Mamba cache blocks (600). Each decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most 600 or increase gpu_memory_utilization.', please check the stack trace above for the root cause\n",
        {'kv_cache_too_small'}, '600', 'tensor-parallel|max-model-len',
    ),
    'home-ops#13226: mamba paraphrase': (
        'exceeds available Mamba cache blocks (95). Each decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed.\n',
        {'kv_cache_too_small'}, '95', '',
    ),
    'vllm#32599: lora base_layer': (
        '(EngineCore_DP0 pid=14469) ERROR 01-19 20:41:34 [core.py:918]     result = method(*self._convert_msgspec_args(method, args))\n'
        '(EngineCore_DP0 pid=14469) ERROR 01-19 20:41:34 [core.py:918] ValueError: base_model.model.lm_head.base_layer.weight is unsupported LoRA weight\n',
        {'lora_mismatch'}, 'unsupported LoRA weight', 'max-lora-rank',
    ),
    'recipes#551: capture image': (
        '(EngineCore pid=7) INFO 06-15 10:00:00 [gpu_model_runner.py:5000] Model loading took 28.5 GiB memory and 20.0 seconds\n'
        'Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  88%|████████▊ | 45/51 [00:04<00:00,  9.30it/s]CUDA error: device kernel image is invalid\n',
        {'benign_warning_noise', 'engine_dead', 'healthy', 'oom_cuda_graph_capture', 'unknown'}, '', 'reinstall|wheels|nvidia-smi --query-gpu|built for',
    ),
    'vllm#6689: bus err 6689': (
        '(vllm_env) user@host:~$ python -m vllm.entrypoints.openai.api_server --model x --tensor-parallel-size 2\n'
        '\n'
        'Bus error\n',
        {'engine_dead'}, 'Bus error', 'utilization',
    ),
    'vllm#28440: perm cutlass': (
        "Failed to generate Cutlass kernels: [Errno 13] Permission denied: '/home/.cache/flashinfer'\n",
        {'folder_not_writable'}, 'Permission denied', 'chmod 777',
    ),
    'vllm#9094: stream capturing': (
        'RuntimeError: CUDA error: operation not permitted when stream is capturing\n'
        'CUDA kernel errors might be asynchronously reported at some other API call\n',
        {'oom_cuda_graph_capture', 'unknown'}, 'stream is capturing', 'reinstall|utilization',
    ),
    'vllm#36734: opt chunk': (
        'AssertionError: In Mamba cache align mode, block_size (2096) must be <= max_num_batched_tokens (2048).\n',
        {'assertion_failed', 'rope_or_config_mismatch', 'unknown', 'wrong_flag_value'}, 'block_size', 'download|tensor-parallel',
    ),
    'vllm#14992: no blocks': (
        'ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n',
        {'oom_kv_alloc_or_profiling'}, 'No available memory', 'tensor-parallel',
    ),
    'vllm#18390: 405B hit exc': (
        'INFO 05-19 06:22:40 [monitor.py:33] torch.compile takes 142.00 s in total\n'
        'ERROR 05-19 06:22:41 [core.py:390] EngineCore hit an exception: Traceback (most recent call last):\n'
        'ERROR 05-19 06:22:41 [core.py:390]   File "/x/vllm/v1/engine/core.py", line 128, in _initialize_kv_caches\n'
        'ERROR 05-19 06:22:41 [core.py:390]     raise ValueError("No available memory for the cache blocks. "\n'
        'ERROR 05-19 06:22:41 [core.py:390] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n',
        {'oom_kv_alloc_or_profiling'}, 'ValueError: No available', '',
    ),
    'vllm: wsl pin': (
        '(EngineCore_DP0 pid=212) ERROR 02-02 10:00:00 [core.py:866] torch.AcceleratorError: CUDA error: unknown error\n'
        "Search for `cudaErrorUnknown' in https://docs.nvidia.com/cuda\n",
        {'driver_cuda_mismatch', 'unknown', 'xid_or_gpu_lost'}, 'unknown error', 'utilization',
    ),
    'Qwen3-Coder#461: h20e smem': (
        '(VllmWorker rank=1 pid=2421044) ERROR 07-29 14:10:52 [multiproc_executor.py:590]   File "/home/devops/vllm/vllm/model_executor/layers/fused_moe/fused_moe.py", line 1485, in fused_experts_impl\n'
        '(VllmWorker rank=1 pid=2421044) ERROR 07-29 14:10:52 [multiproc_executor.py:590] triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 263168, Hardware limit: 232448. Reducing block sizes or `num_stages` may help.\n',
        {'compile_failure'}, 'OutOfResources', 'shm|ipc=host|utilization|enforce-eager',
    ),
    'pascal-pkgs-ci#25: pascal smem short': (
        "ERROR 05-20 16:28:24 [engine.py:161] OutOfResources(98304, 49152, 'shared memory')\n",
        {'compile_failure'}, 'OutOfResources', 'shm|ipc=host|utilization',
    ),
    'vllm#51297: triton illegal': (
        '2026-08-05T18:06:55.025789474Z (Worker_TP0 pid=809) WARNING 08-05 18:06:55 [jit_monitor.py:103] Triton kernel JIT compilation during inference: _zero_kv_blocks_kernel. This causes a latency spike; consider extending warmup to cover this shape/config.\n'
        '2026-08-05T18:07:01.000000000Z (Worker_TP0 pid=809) ERROR 08-05 18:07:01 [multiproc_executor.py:960] RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered\n'
        '2026-08-05T18:08:03.094359898Z (EngineCore pid=610) INFO 08-05 18:08:03 [shm_broadcast.py:705] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n',
        {'xid_or_gpu_lost'}, 'illegal memory', 'enforce-eager|shm',
    ),
    'vllm#12957: mooncake mount': (
        '2025-04-17 19:46:42.566927 ERROR    [975] [coro_rpc_client.hpp:978] read rpc body failed, error msg:End of file. close the socket.\n'
        'E0417 19:46:42.567027   481 master_client.cpp:192] Failed to mount segment due to rpc error\n'
        'E0417 19:46:42.567034   481 store_py.cpp:191] Failed to mount segment: UNKNOWN_ERROR\n',
        {'kv_transfer', 'unknown'}, 'segment|rpc', 'utilization',
    ),
    'vllm-ascend#4866: mooncake ascend': (
        'E1210 03:24:54.778028 2548307 ascend_direct_transport.cpp:820] Failed to connect to target: 172.16.100.99:25389, status: 103900\n'
        'E1210 03:24:54.778062 2548307 ascend_direct_transport.cpp:581] Failed to connect to segment: 172.16.100.99:16381\n'
        '(Worker_DP0_TP5 pid=2543213) ERROR 12-10 03:24:54 [mooncake_connector.py:410] Mooncake transfer failed for request cmpl-09be0283-e039-40ce-aefa-da0f36c8cd46-0\n',
        {'kv_transfer'}, 'segment|Mooncake transfer|connect', 'utilization|NCCL_',
    ),
    'Mooncake#436: llvm slice': (
        'INFO 05-31 09:09:41 [engine.py:310] Added request cmpl-035fe3060f0a4520825d69c4b3c23457-0.\n'
        'LLVM ERROR: Failed to compute parent layout for slice layout.\n'
        "ERROR 05-31 09:09:48 [client.py:305] RuntimeError('Engine process (pid 65) died.')\n",
        {'compile_failure'}, 'LLVM ERROR', 'utilization|download',
    ),
    'vllm#5283: 804': (
        'vllm-openai_1  | (RayWorkerWrapper pid=3487) ERROR 06-05 16:30:08 worker_base.py:148] RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non supported HW\n',
        {'driver_cuda_mismatch'}, '804', 'get_arch_list',
    ),
    'vllm#19596: 5060ti': (
        'RuntimeError: CUDA error: no kernel image is available for execution on the device\n'
        '2025-06-12 20:49:44 CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n',
        {'driver_cuda_mismatch'}, 'no kernel image', '',
    ),
    'vllm#26161: minicpm json': (
        'pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n'
        "  Value error, Expecting value: line 1 column 1 (char 0) [type=value_error, input_value=ArgsKwargs((), {'model': ...rocessor_plugin': None}), input_type=ArgsKwargs]\n"
        '    For further information visit https://errors.pydantic.dev/2.12/v/value_error\n',
        {'hf_not_found_or_offline', 'rope_or_config_mismatch', 'unknown'}, 'Expecting value|validation', 'tensor-parallel',
    ),
    'vllm-omni#2170: omni no arch': (
        '(APIServer pid=835044) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n'
        "(APIServer pid=835044)   Value error, No model architectures are specified [type=value_error, input_value=ArgsKwargs((), {'model': ...rocessor_plugin': None}), input_type=ArgsKwargs]\n",
        {'rope_or_config_mismatch', 'unknown', 'unsupported_architecture'}, 'No model architectures', 'download again|rope',
    ),
    'worker-vllm#257: rope runpod': (
        'engine.py           :170  2026-02-03 12:50:43,752 Error initializing vLLM engine: 1 validation error for ModelConfig\n'
        "  Value error, rope_scaling should have a 'rope_type' key [type=value_error, input_value=ArgsKwargs((), {'model': ...rocessor_plugin': None}), input_type=ArgsKwargs]\n",
        {'rope_or_config_mismatch'}, 'rope_type', '',
    ),
    'vllm#46366: cohere moe key': (
        '(EngineCore pid=52260) Process EngineCore:\n'
        '(EngineCore pid=52260) Traceback (most recent call last):\n'
        '(EngineCore pid=52260)   File "/usr/local/lib/python3.12/dist-packages/vllm/model_executor/models/cohere2_moe.py", line 300, in load_weights\n'
        "(EngineCore pid=52260) KeyError: 'layers.0.mlp.experts.w13_weight'\n",
        {'rope_or_config_mismatch', 'unsupported_architecture'}, 'KeyError', '--quantization|utilization',
    ),
    'vllm#54125: gb10 dg fault': (
        '(EngineCore pid=7) ERROR 08-28 10:00:00 [core.py:1333] RuntimeError: CUDA driver error (csrc/apis/../jit_kernels/impls/../../jit/handle.hpp:120): 719 (CUDA_ERROR_LAUNCH_FAILED, unspecified launch failure)\n',
        {'compile_failure', 'xid_or_gpu_lost'}, 'LAUNCH_FAILED', 'ECC|drain',
    ),
    'vllm#51986: mnnvl tail': (
        '(EngineCore pid=2025) INFO 08-13 11:27:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=2025) INFO 08-13 11:28:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n'
        '(EngineCore pid=2025) INFO 08-13 11:29:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).\n',
        {'shm_broadcast_hang'}, 'shm_broadcast', 'utilization',
    ),
    'vllm-ascend#5087: ascend shm 27313': (
        '(EngineCore_DP1 pid=235461) INFO 12-16 08:25:51 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation\n',
        {'benign_warning_noise', 'shm_broadcast_hang'}, 'shm_broadcast', 'restart the engine',
    ),
}  # fmt: skip
