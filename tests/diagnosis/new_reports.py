"""Logs and pasted lines of public reports of 2026, as in fresh_reports.py (`unknown` where nothing may be claimed, "." forbids all advice)."""

E = "(EngineCore_DP0 pid=7) ERROR 05-23 09:31:47 [core.py:396] "
TB = "".join(
    E + line + "\n"
    for line in (
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "/x/vllm/v1/engine/core.py", line 387, in run_engine_core',
        "    engine_core = EngineCoreProc(*args, **kwargs)",
    )
)
END = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}\n"
REPORTED = "".join(
    f"INFO 02-01 10:{m:02d}:{s:02d} [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 5 reqs, Waiting: 9 reqs, GPU KV cache usage: 71.0%\n"
    for m in range(4)
    for s in range(0, 60, 10)
)

NEW_REPORTS: dict[str, tuple[str, set[str], str, str]] = {
    'd1-death-first-cause-below': (
        TB + E + "AttributeError: 'Qwen3NextConfig' object has no attribute 'full_attention_interval'\n" + END,
        {'rope_or_config_mismatch', 'unknown'}, 'full_attention_interval', '',
    ),
    'd1-unknown-exc': (
        TB + E + "NotImplementedError: Could not run 'vllm::foo' with arguments from the 'CUDA' backend.\n" + END,
        {'missing_dependency_or_import_error', 'unknown'}, 'NotImplementedError', 'enforce-eager|download',
    ),
    'd1-only-death': (
        END,
        {'engine_dead'}, 'Engine core initialization failed', 'utilization|tensor-parallel',
    ),
    'd1-keyerror': (
        TB + E + "KeyError: 'layers.0.mlp.experts.w2_weight_scale_inv'\n" + END,
        {'quantization_unsupported', 'unknown', 'unsupported_architecture'}, 'w2_weight_scale_inv', '--enforce-eager',
    ),
    'd1-lora-fatal': (
        ''.join('ERROR 07-26 06:20:12 [core.py:634] ' + line + '\n' for line in ('EngineCore encountered a fatal error.', 'Traceback (most recent call last):', '  File "/vllm-workspace/vllm/vllm/lora/worker_manager.py", line 115, in _load_adapter', "ValueError: While loading /models/qwen3-8b-ft, expected target modules in {'o_proj', 'v_proj'} but received ['model.unembed_tokens']. Please verify that the loaded LoRA module is correct")),
        {'lora_mismatch'}, 'expected target modules', 'max-lora-rank|enable-lora',
    ),
    'd2-serving-tail': (
        'INFO 02-01 10:00:00 [loggers.py:257] Engine 000: Avg prompt throughput: 300.1 tokens/s, Avg generation throughput: 812.0 tokens/s, Running: 40 reqs, Waiting: 3 reqs, GPU KV cache usage: 71.0%\n'
        'ERROR 02-01 10:00:07 [core.py:710] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.11 GiB. GPU 0 has a total capacity of 44.40 GiB of which 1.90 GiB is free.\n',
        {'oom_runtime'}, 'Tried to allocate 3.11', 'tensor-parallel-size|quantized version',
    ),
    'd2-hip-line': (
        'torch.OutOfMemoryError: HIP out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 191.98 GiB of which 84.00 MiB is free.',
        {'oom_kv_alloc_or_profiling', 'oom_loading_weights', 'oom_runtime', 'out_of_memory'}, 'HIP out of memory', 'nvidia-smi|tensor-parallel-size|enforce-eager|utilization',
    ),
    'd2-npu-line': (
        'RuntimeError: NPU out of memory. Tried to allocate 1.16 GiB (NPU 0; 60.97 GiB total capacity; 57.10 GiB already allocated; 57.10 GiB current active; 731.02 MiB free; 58.01 GiB reserved in total by PyTorch)',
        {'oom_kv_alloc_or_profiling', 'oom_loading_weights', 'oom_runtime', 'out_of_memory'}, 'NPU out of memory', 'nvidia-smi|tensor-parallel-size|enforce-eager',
    ),
    'd2-sampler': (
        'WARNING x\n' + E + 'RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n',
        {'oom_cuda_graph_capture', 'oom_kv_alloc_or_profiling'}, 'warming up sampler', 'tensor-parallel',
    ),
    'd3-hostregister': (
        E + 'RuntimeError: cudaHostRegister failed: out of memory (size=549755813888)\n' + E + 'torch.AcceleratorError: CUDA error: out of memory\n',
        {'host_memory_not_pinned'}, 'cudaHostRegister', 'tensor-parallel|enforce-eager|gpu-memory-utilization',
    ),
    'd3-gb10': (
        'INFO 01-02 03:04:05 [x.py:1] NVIDIA GB10, compute capability 12.1\n'
        'ValueError: Free memory on device cuda:0 (61.0/119.6 GiB) on startup is less than desired GPU memory utilization (0.9, 107.7 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n',
        {'gpu_occupied_by_other_process'}, 'Free memory on device', 'utilization 0.4|utilization 0.5|vllm-watch gpus',
    ),
    'd3-cumem': (
        'CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:120\n',
        {'oom_runtime', 'out_of_memory'}, 'cumem_allocator', 'tensor-parallel|enforce-eager|utilization',
    ),
    'd3-race': (
        'ERROR 02-26 09:00:00 [core.py:300] AssertionError: Error in memory profiling. Initial free memory 77.2 GiB, current free memory 78.6 GiB. This happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization.\n',
        {'gpu_occupied_by_other_process'}, 'Error in memory profiling', 'utilization|tensor-parallel',
    ),
    'd4-removed': (
        'vllm: error: unrecognized arguments: --use-v2-block-manager\n',
        {'unknown_flag'}, '--use-v2-block-manager', 'download|upgrade',
    ),
    'd4-positional': (
        'usage: vllm [-h] [-v] {chat,complete,serve,bench,collect-env,run-batch} ...\n'
        'vllm: error: unrecognized arguments: serve /models/GLM-4.7-Flash-AWQ-4bit\n',
        {'unknown_flag'}, 'unrecognized arguments: serve', 'download',
    ),
    'd4-omni': (
        'vllm: error: unrecognized arguments: --omni\n',
        {'unknown_flag'}, '--omni', '--omni-',
    ),
    'd4-choice': (
        "api_server.py: error: argument --kv-cache-dtype: invalid choice: 'fp4' (choose from 'auto', 'fp8', 'fp8_e4m3', 'fp8_e5m2')\n",
        {'wrong_flag_value'}, 'invalid choice', 'kv-cache-dtype fp4',
    ),
    'd4-kwarg': (
        "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'num_scheduler_steps'\n",
        {'unknown_flag'}, 'num_scheduler_steps', 'pip install',
    ),
    'd4-expected': (
        'vllm serve: error: argument --max-model-len: expected one argument\n',
        {'wrong_flag_value'}, 'expected one argument', '',
    ),
    'd5-mamba': (
        E + 'ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (119). Each decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed.\n',
        {'kv_cache_too_small'}, 'Mamba cache blocks', 'max-model-len',
    ),
    'd6-nvcc-colon': (
        E + 'RuntimeError: Ninja build failed. Ninja output:\n' + E + "ninja: Entering directory `/root/.cache/flashinfer/0.6.4/89/cached_ops/batch_prefill'\n" + E + 'FAILED: batch_prefill_jit_binding.cuda.o\n' + E + '/bin/sh: 1: :/usr/local/cuda-12.8/bin/nvcc: not found\n' + E + 'ninja: build stopped: subcommand failed.\n',
        {'compile_failure'}, 'nvcc: not found', 'enforce-eager',
    ),
    'd6-single-input': (
        E + 'nvcc fatal   : A single input file is required for a non-link phase when an outputfile is specified\n' + E + '  File "/x/flashinfer/sampling.py", line 1547, in top_k_top_p_sampling_from_logits\n' + E + 'RuntimeError: Ninja build failed. Ninja output:\n',
        {'compile_failure'}, 'A single input file', 'enforce-eager',
    ),
    'd6-ptxas': (
        '(Worker_TP0 pid=9) ERROR 11-12 16:25:35 [multiproc_executor.py:711] triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n'
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n",
        {'compile_failure'}, 'ptxas|PTXAS', 'enforce-eager',
    ),
    'd6-deepgemm': (
        E + 'RuntimeError: Assertion error (csrc/apis/../jit/kernel_runtime.hpp:45): cubin_path.empty()\n',
        {'assertion_failed', 'compile_failure'}, 'Assertion error', 'enforce-eager|tensor-parallel',
    ),
    'd7-fp8-sm': (
        E + 'ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current capability: 75.\n',
        {'quantization_unsupported'}, 'not supported for the current GPU', 'dtype half',
    ),
    'd7-bf16-t4': (
        'ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5. You can use float16 instead by explicitly setting the `dtype` flag in CLI, for example: --dtype=half.\n',
        {'dtype_unsupported'}, 'Bfloat16', 'quantization',
    ),
    'd7-noadapter': (
        E + 'ValueError: Loading lora table_qc failed: No adapter found for /data/out/checkpoint-57\n',
        {'lora_mismatch'}, 'No adapter found', 'max-lora-rank|max-loras|enable-lora',
    ),
    'd7-unsupported-weight': (
        'ERROR 10-11 16:03:09 engine.py:157] ValueError: base_model.model.lm_head.weight is unsupported LoRA weight\n',
        {'lora_mismatch'}, 'unsupported LoRA weight', 'max-lora-rank|extra-vocab',
    ),
    'd7-import-new': (
        "ImportError: cannot import name 'Qwen2VLImageProcessorFast' from 'transformers.models.qwen2_vl' (/x/site-packages/transformers/models/qwen2_vl/__init__.py)\n",
        {'missing_dependency_or_import_error'}, 'cannot import name', 'pip install -U|--upgrade|newest',
    ),
    'd7-tokenizer': (
        "AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended. Did you mean: 'num_special_tokens_to_add'?\n",
        {'tokenizer_mismatch_or_missing_chat_template'}, 'all_special_tokens_extended', 'chat-template',
    ),
    'd8-disk': (
        "OSError: [Errno 28] No space left on device: '/root/.cache/vllm/torch_compile_cache/1dbb/rank_0_0/inductor_cache/x'\n",
        {'disk_full'}, 'No space left', 'enforce-eager',
    ),
    'd8-cache-perm': (
        "PermissionError: [Errno 13] Permission denied: '/.cache'\n",
        {'folder_not_writable'}, 'Permission denied', 'sudo|chmod 777',
    ),
    'd8-xet429': (
        'RuntimeError: Data processing error: CAS service error : ReqwestMiddleware Error: Request failed after 5 retries: HTTP status client error (429 Too Many Requests) for url (https://cas-server.xethub.hf.co/v1/reconstructions/x)\n',
        {'hf_not_found_or_offline'}, '429', 'mount|-v /models',
    ),
    'd8-ascend': (
        '(Worker_TP0 pid=415) ERROR 01-16 11:51:23 [multiproc_executor.py:671] RuntimeError: The Inner error is reported as above. The process exits for this inner error, and the current working operator name is aclnnRmsNorm.\n'
        '[ERROR] 2026-01-16-11:51:23 (PID:415, Device:0, RankID:-1) ERR00100 PTA call acl api failed.\n',
        {'npu_operator_failed'}, 'aclnnRmsNorm', 'nvidia-smi',
    ),
    'd8-sched': (
        'INFO 05-27 18:56:29 loggers.py:271] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 20.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs\n'
        '(EngineCore pid=463) ERROR 05-27 18:56:31 core.py:1142] EngineCore encountered a fatal error.\n'
        '(EngineCore pid=463) ERROR 05-27 18:56:31 core.py:1142] Traceback (most recent call last):\n'
        '(EngineCore pid=463) ERROR 05-27 18:56:31 core.py:1142]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/core/sched/async_scheduler.py", line 59, in _update_request_with_output\n'
        '(EngineCore pid=463) ERROR 05-27 18:56:31 core.py:1142]     assert request.num_output_placeholders >= 0\n'
        '(EngineCore pid=463) ERROR 05-27 18:56:31 core.py:1142] AssertionError\n',
        {'assertion_failed'}, 'AssertionError|assert request', 'tensor-parallel|utilization',
    ),
    'd8-cudart': (
        '/usr/bin/ld: cannot find -lcudart: No such file or directory\n'
        'collect2: error: ld returned 1 exit status\n',
        {'compile_failure'}, '-lcudart', 'enforce-eager',
    ),
    'd8-hsa': (
        'rocr::Runtime HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources.\n',
        {'driver_cuda_mismatch'}, 'HSA_STATUS', 'nvidia-smi|utilization',
    ),
    'd8-hccl': (
        '[ERROR] 2026-03-01-10:00:00 (PID:1, Device:0, RankID:0) ERR02200 DIST call hccl api failed.\n'
        'EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time.\n',
        {'nccl_init_failure'}, 'ERR02200|EI0006', 'NCCL_DEBUG|nvidia-smi',
    ),
    'd8-grammar': (
        '(EngineCore pid=3) ERROR 04-01 10:00:00 [core.py:900] EngineCore encountered a fatal error.\n'
        '(EngineCore pid=3) ERROR 04-01 10:00:00 [core.py:900] RuntimeError: [10:00:00] /project/cpp/grammar_parser.cc:42: EBNF parser error at line 1, column 7: Expect element, but got end of file\n',
        {'grammar_failed'}, 'EBNF', 'tensor-parallel',
    ),
    'd8-ptrace': (
        'RuntimeError: pidfd_getfd failed: Operation not permitted\n',
        {'ptrace_denied'}, 'pidfd_getfd', '--privileged',
    ),
    'd9-zero-tokens': (
        'INFO 02-01 09:59:50 [loggers.py:257] Engine 000: Avg prompt throughput: 30.0 tokens/s, Avg generation throughput: 80.0 tokens/s, Running: 5 reqs, Waiting: 9 reqs\n' + REPORTED,
        {'engine_hang'}, 'throughput', 'tensor-parallel',
    ),
    'd9-idle-healthy': (
        REPORTED.replace('Running: 5', 'Running: 0').replace('Waiting: 9', 'Waiting: 0'),
        {'benign_warning_noise', 'healthy'}, '', '.',
    ),
    'd9-start-stuck': (
        "INFO 02-01 10:00:00 [core.py:61] Initializing a V1 LLM engine (v0.11.0) with config: model='m'\nINFO 02-01 10:00:05 [gpu_model_runner.py:2000] Starting to load model m...\n" + ''.join(f'INFO 02-01 10:{m:02d}:05 [utils.py:500] Waiting for 1 local, 0 remote core engine proc(s) to start.\n' for m in range(1, 25)),
        {'engine_hang'}, 'Starting to load|load', '',
    ),
    'd10-empty': (
        '',
        {'not_a_vllm_log'}, '', '.',
    ),
    'd10-binary': (
        '\x7fELF\x02\x01\x01\x00\x00\x00' * 40,
        {'not_a_vllm_log'}, '', '.',
    ),
    'd10-dmesg-oom': (
        '[Fri Nov 27 10:00:00 2026] Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:90000000kB, anon-rss:60000000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n',
        {'cpu_ram_oom_killed'}, 'Killed process', '--gpu-memory-utilization',
    ),
    'd10-dmesg-cgroup': (
        '[123456.789012] Memory cgroup out of memory: Killed process 99 (python3) total-vm:1kB, anon-rss:1kB\n',
        {'cpu_ram_oom_killed'}, 'Memory cgroup', 'gpu-memory',
    ),
    'd10-dmesg-xid79': (
        "Nov 27 10:00:00 host kernel: NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
        {'xid_or_gpu_lost'}, '79', 'CUDA_LAUNCH_BLOCKING',
    ),
    'd10-dmesg-clean': (
        '[    0.000000] Linux version 6.1.0\n'
        '[    1.234567] pci 0000:00:1f.0: BAR 13\n',
        {'healthy'}, '', '.',
    ),
    'd10-exit137': (
        'vllm-1 exited with code 137\n',
        {'cpu_ram_oom_killed'}, '137', 'limit of the container',
    ),
    'd10-httplog': (
        '127.0.0.1 - - [27/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8"\n',
        {'not_a_vllm_log'}, '', '.',
    ),
    'd10-tp': (
        'ValueError: Cannot split tensors evenly. tensor_parallel_size=8 but only 4 GPUs available\n',
        {'tp_exceeds_gpus'}, 'only 4 GPUs', '',
    ),
    'd10-port': (
        "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use\n",
        {'port_in_use'}, 'Errno 98', '',
    ),
    'vllm#45169: terminate': (
        '(APIServer pid=36630) ERROR 06-10 15:50:56 [registry.py:961] RuntimeError: Error raised in subprocess:\n'
        "(APIServer pid=36630) ERROR 06-10 15:50:56 [registry.py:961] <frozen runpy>:128: RuntimeWarning: 'vllm.model_executor.models.registry' found in sys.modules after import of package 'vllm.model_executor.models', but prior to execution of 'vllm.model_executor.models.registry'; this may result in unpredictable behaviour\n"
        "(APIServer pid=36630) ERROR 06-10 15:50:56 [registry.py:961] terminate called after throwing an instance of 'tvm::ffi::Error'\n"
        '(APIServer pid=36630) ERROR 06-10 15:50:56 [registry.py:961]   what():  TypeAttr `__ffi_repr__` is already registered for type index 130.\n'
        '(APIServer pid=36630) ERROR 06-10 15:50:56 [registry.py:961] Fatal Python error: Aborted\n',
        {'unknown'}, 'what\\(\\)', 'transformers',
    ),
    'vllm#54350: capability -1': (
        'ValueError: The quantization method moe_wna16 + awq is not supported for the current GPU. Minimum capability: 75. Current capability: -1.\n',
        {'quantization_unsupported'}, 'capability: -1', 'half|need compute capability',
    ),
    'vllm#15073: xgrammar.so': (
        '    torch.ops.load_library(filepath)\n'
        '  File "/root/wangjianqiang/miniforge3/envs/QwQ/lib/python3.10/site-packages/torch/_ops.py", line 1350, in load_library\n'
        '    ctypes.CDLL(path)\n'
        '  File "/root/wangjianqiang/miniforge3/envs/QwQ/lib/python3.10/ctypes/__init__.py", line 374, in __init__\n'
        '    self._handle = _dlopen(self._name, mode)\n'
        'OSError: /root/.cache/torch_extensions/py310_cu124/xgrammar/xgrammar.so: cannot open shared object file: No such file or directory\n',
        {'missing_dependency_or_import_error'}, 'xgrammar.so', 'LD_LIBRARY_PATH|grammar',
    ),
    'vllm#53130: deferred': (
        '(APIServer pid=1) INFO 08-21 10:45:03 [loggers.py:284] Engine 000: Avg prompt throughput: 2210.4 tokens/s, Avg generation throughput: 53.3 tokens/s, Running: 29 reqs, Waiting: 92 reqs, GPU KV cache usage: 90.0%, Prefix cache hit rate: 77.0%\n'
        '(APIServer pid=1) INFO 08-21 10:57:13 [loggers.py:284] Engine 000: Avg prompt throughput: 1946.0 tokens/s, Avg generation throughput: 1.2 tokens/s, Running: 3 reqs, Waiting: 227 reqs, GPU KV cache usage: 20.9%, Prefix cache hit rate: 18.0%\n'
        '(APIServer pid=1) INFO 08-21 12:10:23 [loggers.py:284] Engine 000: Avg prompt throughput: 1946.0 tokens/s, Avg generation throughput: 0.5 tokens/s, Running: 4 reqs, Waiting: 487 reqs, GPU KV cache usage: 20.0%, Prefix cache hit rate: 18.0%\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 19.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="deferred"} 473.0\n'
        'vllm:num_preemptions_total{engine="0"} 0.0\n'
        '(APIServer pid=1) INFO:     127.0.0.1:41002 - "GET /health HTTP/1.1" 200 OK\n',
        {'unknown'}, 'Waiting: 487', 'memory must',
    ),
    'InferenceX#1360: baton': (
        '(Worker_TP0_EP0) [aiter] [fused_moe] using 1stage default for (256, 8192, 3072, 1536, 64, 8, ...)\n'
        '(Worker_TP0_EP0) [aiter] import [module_moe_sorting]\n'
        '(Worker_TP2_EP2) [aiter] waiting for baton release at /tmp/aiter_configs/tuned_fmoe.csv.lock\n'
        '(Worker_TP3_EP3) [aiter] waiting for baton release at /tmp/aiter_configs/tuned_fmoe.csv.lock\n'
        '(EngineCore) INFO ... [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds.\n'
        '(EngineCore) INFO ... [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds.\n',
        {'unknown'}, 'baton release', 'shm-size',
    ),
    'llm-scaler#148: corrected': (
        '[16004.940106] {468}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0\n'
        '[16004.940109] {468}[Hardware Error]: It has been corrected by h/w and requires no further action\n'
        '[16004.940111] {468}[Hardware Error]: event severity: corrected\n'
        '[16004.940112] {468}[Hardware Error]:  Error 0, type: corrected\n'
        '[16004.940114] {468}[Hardware Error]:   section_type: PCIe error\n',
        {'healthy'}, '', '.',
    ),
    'vllm#23378: one report': (
        '(APIServer pid=2019320) INFO 08-21 14:30:43 [loggers.py:123] Engine 004: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 255 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%\n',
        {'unknown'}, 'Running: 255', 'memory',
    ),
    'vllm#41339: block size 8': (
        'WARNING [cuda.py:324] --block-size 8 precluded higher-priority backend(s) FLASH_ATTN, FLASHINFER, TRITON_ATTN. Using FLEX_ATTENTION instead, which may result in reduced performance.\n'
        'File: torch/_inductor/runtime/triton_heuristics.py:810\n'
        'triton.compiler.errors.CompilationError: at 140:10:\n'
        '    acc = tl.dot(p.to(MATMUL_PRECISION), v, acc, ...)\n'
        '          ^\n'
        'AssertionError: Input shapes should have M >= 1, N >= 1 and K >= 16\n',
        {'compile_failure'}, 'CompilationError', 'triton',
    ),
    'vllm#53013: graphs estimate': (
        '(Worker_DP1_TP1_EP3 pid=3585771) INFO 08-19 05:56:57 [gpu_model_runner.py:6936] Estimated CUDA graph memory: 118.65 GiB total\n'
        '(EngineCore_DP0 pid=3584999) ERROR 08-19 05:56:57 [core.py:1346] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine (this flag also controls CPU memory reservation on the CPU backend, despite its name). See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details.\n',
        {'oom_kv_alloc_or_profiling'}, 'cache blocks', 'raise',
    ),
    'ai-on-eks-charts#13: true': (
        'vllm: error: unrecognized arguments: true\n',
        {'unknown_flag'}, 'true', 'image',
    ),
    'gpustack#4963: encoder': (
        '(EngineCore_DP0 pid=43)   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/worker/gpu_model_runner.py", line 5296, in profile_run\n'
        '(EngineCore_DP0 pid=43)     dummy_encoder_outputs = self.model.embed_multimodal(\n'
        '(EngineCore_DP0 pid=43)                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n'
        '(EngineCore_DP0 pid=43)   File "/usr/local/lib/python3.12/dist-packages/vllm/model_executor/models/qwen3_vl.py", line 2241, in embed_multimodal\n'
        '(EngineCore_DP0 pid=43)     image_embeddings = self._process_image_input(multimodal_input)\n'
        '(EngineCore_DP0 pid=43)                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n'
        '(EngineCore_DP0 pid=43)   File "/usr/local/lib/python3.12/dist-packages/vllm/model_executor/models/qwen3_vl.py", line 1560, in _process_image_input\n'
        '(EngineCore_DP0 pid=43)     image_embeds = self.visual(pixel_values, grid_thw=grid_thw)\n'
        '(EngineCore_DP0 pid=43)                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n'
        '(EngineCore_DP0 pid=43)   File "/usr/local/lib/python3.12/dist-packages/torch/nn/modules/module.py", line 1776, in _wrapped_call_impl\n'
        '(EngineCore_DP0 pid=43)     return self._call_impl(*args, **kwargs)\n'
        '(EngineCore_DP0 pid=43)            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n'
        '(EngineCore_DP0 pid=43)     output_i = F.scaled_dot_product_attention(q_i, k_i, v_i, dropout_p=0.0)\n'
        '(EngineCore_DP0 pid=43) torch.OutOfMemoryError: HIP out of memory. Tried to allocate 192.00 GiB.\n',
        {'oom_kv_alloc_or_profiling'}, '192.00', 'tensor-parallel|batched-tokens',
    ),
    'vllm#56283: no offloader': (
        "(APIServer pid=1) INFO 09-10 14:20:03 [api_utils.py:273] non-default args: {'model_tag': 'Qwen/QwQ-32B-AWQ', 'model': 'Qwen/QwQ-32B-AWQ', 'max_model_len': 4096, 'gpu_memory_utilization': 0.9, 'cpu_offload_gb': 8.0}\n"
        "(EngineCore pid=91) INFO 09-10 14:20:31 [core.py:114] Initializing a V1 LLM engine (v0.27.1) with config: model='Qwen/QwQ-32B-AWQ', speculative_config=None, tokenizer='Qwen/QwQ-32B-AWQ', dtype=torch.float16, max_seq_len=4096, tensor_parallel_size=1, quantization=awq_marlin, kv_cache_dtype=auto, device_config=cuda\n"
        '(EngineCore pid=91) INFO 09-10 14:20:34 [base.py:106] Offloader set to NoopOffloader\n'
        '(EngineCore pid=91) INFO 09-10 14:20:35 [model_runner.py:301] Loading model from scratch...\n'
        '(EngineCore pid=91) ERROR 09-10 14:20:41 [core.py:1332] EngineCore failed to start.\n'
        '(EngineCore pid=91) ERROR 09-10 14:20:41 [core.py:1332] Traceback (most recent call last):\n'
        '(EngineCore pid=91) ERROR 09-10 14:20:41 [core.py:1332]   File "/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 1323, in run_engine_core\n'
        '(EngineCore pid=91) ERROR 09-10 14:20:41 [core.py:1332]     engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)\n'
        '(EngineCore pid=91) ERROR 09-10 14:20:41 [core.py:1332]   File "/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu/model_runner.py", line 318, in load_model\n'
        '(EngineCore pid=91) ERROR 09-10 14:20:41 [core.py:1332]     self.model = model_loader.load_model(\n'
        '(EngineCore pid=91) ERROR 09-10 14:20:41 [core.py:1332] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. GPU 0 has a total capacity of 15.47 GiB of which 74.38 MiB is free. Including non-PyTorch memory, this process has 15.11 GiB memory in use. Of the allocated memory 14.79 GiB is allocated by PyTorch, and 41.52 MiB is reserved by PyTorch but unallocated.\n',
        {'oom_loading_weights'}, 'OutOfMemory', 'gpu-memory-utilization',
    ),
    'vllm#32468: end of a script': (
        'Adding requests: 100%|██████████| 4/4 [00:00<00:00, 21.37it/s]\n'
        'Processed prompts: 100%|██████████| 4/4 [00:00<00:00,  6.02it/s, est. speed input: 1213.40 toks/s, output: 0.00 toks/s]\n'
        '[[1.0, 0.789, 0.401, 0.655], [0.789, 1.0, 0.388, 0.702], [0.401, 0.388, 1.0, 0.361], [0.655, 0.702, 0.361, 1.0]]\n'
        'ERROR 01-16 17:16:49 [core_client.py:605] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n',
        {'benign_warning_noise'}, 'died unexpectedly', '.',
    ),
    'vllm#49182: beside the engine': (
        '[2026-07-15 03:22:46] Error in request: CUDA out of memory. Tried to allocate 3.74 GiB. GPU 0 has a total capacity of 139.81 GiB of which 3.68 GiB is free. Including non-PyTorch memory, this process has 11.35 GiB memory in use. Process 174 has 124.75 GiB memory in use. Of the allocated memory 7.01 GiB is allocated by PyTorch, and 3.98 GiB is reserved by PyTorch\n',
        {'oom_runtime'}, '124.75', 'that nothing needs',
    ),
    'strix-halo#63: carve-out': (
        'ValueError: Free memory on device cuda:0 (57.38/124.0 GiB) on startup is less than desired GPU memory utilization (0.8, 99.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n',
        {'gpu_occupied_by_other_process'}, '57.38', 'vllm-watch gpus',
    ),
    'vllm#45031: mla 256': (
        ' triton.compiler.errors.CompilationError: at 152:12:\n'
        'Apr 18 20:55:50 spark-5500 vllm[8121]: (EngineCore pid=8121)                     v = (v.to(tl.float32) * vs).to(q.dtype)\n'
        'Apr 18 20:55:50 spark-5500 vllm[8121]: (EngineCore pid=8121)             else:\n'
        'Apr 18 20:55:50 spark-5500 vllm[8121]: (EngineCore pid=8121)                 # MLA uses a single c_kv.\n'
        'Apr 18 20:55:50 spark-5500 vllm[8121]: (EngineCore pid=8121)                 # loading the same c_kv to interpret it as v is not necessary.\n'
        'Apr 18 20:55:50 spark-5500 vllm[8121]: (EngineCore pid=8121)                 # transpose the existing c_kv (aka k) for the dot product.\n'
        'Apr 18 20:55:50 spark-5500 vllm[8121]: (EngineCore pid=8121)                 v = tl.trans(k)\n'
        'Apr 18 20:55:50 spark-5500 vllm[8121]: (EngineCore pid=8121)             n_e_max = tl.maximum(tl.max(qk, 1), e_max)\n'
        "Apr 18 20:55:50 spark-5500 vllm[8121]: (EngineCore pid=8121) ValueError('Cannot make_shape_compatible: incompatible dimensions at index 1: 256 and 512')\n"
        'Apr 18 20:55:51 spark-5500 vllm[8102]: (APIServer pid=8102) ERROR 04-18 20:55:51 [async_llm.py:707] AsyncLLM output_handler failed.\n'
        'Apr 18 20:55:51 spark-5500 vllm[8102]: (APIServer pid=8102) ERROR 04-18 20:55:51 [async_llm.py:707] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n',
        {'compile_failure'}, '256 and 512', 'pip check',
    ),
    'llama.cpp#21724: ring': (
        'maj 08 19:27:35 RX-78-FPC kernel: amdgpu 0000:c2:00.0: ring gfx_0.0.0 timeout, signaled seq=166926, emitted seq=166928\n'
        'maj 08 19:27:35 RX-78-FPC kernel: amdgpu 0000:c2:00.0:  Process llama-server pid 12519 thread llama-server pid 12519\n'
        'maj 08 19:27:35 RX-78-FPC kernel: amdgpu 0000:c2:00.0: Starting gfx_0.0.0 ring reset\n'
        'maj 08 19:27:35 RX-78-FPC kernel: amdgpu 0000:c2:00.0: Ring gfx_0.0.0 reset succeeded\n'
        'maj 08 19:27:35 RX-78-FPC kernel: amdgpu 0000:c2:00.0: [drm] device wedged, but recovered through reset\n',
        {'xid_or_gpu_lost'}, 'ring gfx', 'dmesg',
    ),
    'vllm#40350: none accepted': (
        '(APIServer pid=73573) INFO 06-25 10:47:32 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.00, Accepted throughput: 0.00 tokens/s, Drafted throughput: 17.60 tokens/s, Accepted: 0 tokens\n'
        ' Drafted: 176 tokens, Per-position acceptance rate: 0.000, 0.000, Avg Draft acceptance rate: 0.0%\n'
        '(APIServer pid=73573) INFO 06-25 10:47:42 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 8.7 tokens/s, Running: 1 reqs, Waiting: 10 reqs, GPU KV cache usag\n'
        ': 22.9%, Prefix cache hit rate: 83.2%\n'
        '(APIServer pid=73573) INFO 06-25 10:47:42 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.00, Accepted throughput: 0.00 tokens/s, Drafted throughput: 17.40 tokens/s, Accepted: 0 tokens\n'
        ' Drafted: 174 tokens, Per-position acceptance rate: 0.000, 0.000, Avg Draft acceptance rate: 0.0%\n'
        '(APIServer pid=73573) INFO 06-25 10:47:52 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 8.7 tokens/s, Running: 1 reqs, Waiting: 10 reqs, GPU KV cache usag\n'
        ': 22.9%, Prefix cache hit rate: 83.2%\n',
        {'unknown'}, '', 'memory',
    ),
    'vllm-ascend#6018: aivector': (
        '[ERROR] RUNTIME(129510,all__):2026-01-20-09:48:14.622.900 [stars_engine.cc:1502]133843 ProcLogicCqReport:Task run failed, device_id=5, stream_id=1206, task_id=8029, sqe_type=7(notify wait), errType=0x20(sq sw status error), sqSwStatus=0x14db0028\n'
        '[ERROR] RUNTIME(129510,all__):2026-01-20-09:48:14.623.842 [device_error_core_proc.cc:333]133843 ProcessStarsCoreErrorInfo:report error module_type=5, module_name=EZ9999\n'
        '[ERROR] RUNTIME(129510,all__):2026-01-20-09:48:14.623.865 [device_error_core_proc.cc:333]133843 ProcessStarsCoreErrorInfo:The error from device(chipId:5, dieId:0), serial number is 59, there is an exception of fftsplus aivector error, core id is 8, error code = 0x10, dump info: pc start: 0x12c86e31cb04, current: 0x12c86e31dab0, vec error info: 0xf210372c02, mte error info: 0x7f060000d0, ifu error info: 0x14ee64580484\n',
        {'npu_operator_failed'}, 'aivector', 'nvidia',
    ),
    'dalle#104: api mismatch': (
        '[ 7386.259769] NVRM: API mismatch: the client has the version 515.48.07, but\n'
        '               NVRM: this kernel module has the version 510.73.05.  Please\n'
        '               NVRM: make sure that this kernel module and all NVIDIA driver\n'
        '               NVRM: components have the same version.\n',
        {'driver_cuda_mismatch'}, 'API mismatch', 'vllm serve',
    ),
    'vllm#57354: segfault banner': (
        'Warming up DeepSeek V4 sparse MLA attention for mixed tokens=16.\n'
        '!!!!!! Segfault encountered !!!!!!!\n'
        '  File "<unknown>", line 0, in 0xffffffffffffffff\n'
        'Worker proc VllmWorker-1 died unexpectedly (exit code: None), shutting down executor.\n'
        'EngineCore failed to start.\n',
        {'engine_dead'}, 'Segfault encountered', 'memory',
    ),
    'template that is no Jinja': (
        "jinja2.exceptions.TemplateSyntaxError: expected token 'end of print statement', got 'name'\n",
        {'tokenizer_mismatch_or_missing_chat_template'}, 'TemplateSyntaxError', 'roles',
    ),
}  # fmt: skip
