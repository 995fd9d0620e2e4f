"""One line per message that a rule knows, as vLLM, PyTorch, NCCL, Ray, Hugging Face or the kernel write it."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "kv_cache_too_small": (
        "The model's max seq len is larger than what fits",
        "ValueError: The model's max seq len (16384) is larger than the maximum number of tokens that can be stored in KV cache (14528). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        "ERROR 07-11 06:23:05 [core.py:390] ValueError: To serve at least one request with the models's max seq len (118000), (6.30 GiB KV cache is needed, which is larger than the available KV cache memory (6.11 GiB). Based on the available memory, the estimated maximum model length is 114432.",
        "ValueError: To serve at least one request with the model's max seq len (8192), (2.63 GiB KV cache is needed, which is larger than the available KV cache memory (1.64 GiB).",
        "tokens that no line before explains: larger than the maximum number of tokens that can be stored in KV cache (1936).",
        "the estimated maximum model length is 111456.",
        "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (100). Each decode sequence requires one Mamba cache block",
        "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache (2000). Try increasing `VLLM_CPU_KVCACHE_SPACE`",
    ),
    "oom_kv_alloc_or_profiling": (
        "INFO 03-03 10:00:00 [gpu_worker.py:1] Available KV cache memory: -2.30 GiB",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",
    ),
    "oom_cuda_graph_capture": (
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
    ),
    "oom_runtime": (
        "torch.OutOfMemoryError: Error in model execution (input dumped to /tmp/x.pkl): CUDA out of memory. Tried to allocate 1.93 GiB.",
    ),
    "oom_loading_weights": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 270.00 MiB (GPU 0; 23.70 GiB total capacity; 22.40 GiB already allocated; 247.50 MiB free; 22.40 GiB reserved in total by PyTorch)",
    ),
    "out_of_memory": (
        "RuntimeError: SYS_EBUSY: Lack of device memory. (code: -16)",  # RBLN-SW/vllm-rbln #1000
        "Cuda failure 2 'out of memory'",
        '[  812.554311] NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359',
        "[rank0]: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 224.00 MiB.",
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 96.00 MiB.",
        "torch.OutOfMemoryError",
        "RuntimeError: Triton Error [CUDA]: out of memory",
        "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "RuntimeError: cudaMalloc failed: out of memory",
        "(EngineCore pid=77) ERROR 05-05 07:35:19 [core.py:1136] RuntimeError: CUDA driver error: out of memory",  # noonghunna/club-3090 #60
        "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",  # vllm #13941
        "NvMapMemAllocInternalTagged: 1075072515 error 12",  # dusty-nv/jetson-containers #1568
        '[rank3]:[W814 16:06:55.4 CUDACachingAllocator.cpp:39] memory allocation failed with OOM on device 3 while trying to allocate 317 bytes',
    ),
    "host_memory_not_pinned": (
        "RuntimeError: cudaHostRegister failed: operation not supported (code=801)",  # vllm #55428
        "RuntimeError: Failed to allocate pinned host memory",
    ),
    "unknown_flag": (
        'vllm: error: ambiguous option: --enable could match --enable-lora, --enable-prefix-caching',
        "vllm: error: unrecognized arguments: --enable-foo",
        "vllm: error: unrecognized arguments: --stage-configs-path /x/qwen3_omni.yaml",  # vllm-omni #1081
        "api_server.py: error: unrecognized arguments: /root/models/Qwen3-8B",  # vllm #27389
        "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'disable_log_requests'",
    ),
    "wrong_flag_value": (
        'vllm serve: error: argument --speculative-config/-sc: Value {method: cannot be converted to <function loads at 0x7f2c>.',
        "vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp7' (choose from 'auto', 'fp8')",
        "KeyError: 'invalid tool call parser: qwen9 (chose from { deepseek_v3,hermes })'",
        "vllm serve: error: the following arguments are required: model_tag",  # vllm #13150
    ),
    "ptrace_denied": (
        "(EngineCore_DP1 pid=29) RuntimeError: pidfd_getfd(pidfd=164, fd=183) failed with errno 1: Operation not permitted. Permission denied. If running in a container, try adding --cap-add=SYS_PTRACE to your docker run command.",  # flashinfer #2394
        "RuntimeError: pidfd_getfd: Operation not permitted",  # verl #2846
    ),
    "disk_full": (
        "Warning  Evicted  12s  kubelet  The node was low on resource: ephemeral-storage. Threshold quantity: 1073741824, available: 541280Ki.",  # Kubernetes, eviction
        "OSError: [Errno 28] No space left on device",
        "RuntimeError: Data processing error: I/O error: No space left on device (os error 28)",
    ),
    "folder_not_writable": (
        "(EngineCore pid=12) ERROR 05-08 10:00:00 [core.py:1100] PermissionError: [Errno 13] Permission denied: '/.triton'",
        "RuntimeError: Failed to generate Cutlass kernels: [Errno 13] Permission denied: '/usr/local/lib/python3.12/dist-packages/flashinfer/data/csrc'",  # vllm #28440
        "KeyError: 'getpwuid(): uid not found: 1000'",  # HabanaAI/vllm-fork #929
        "OSError: [Errno 30] Read-only file system: '/root/.cache/vllm'",
        "python3: error while loading shared libraries: /root/x/libpython3.12.so.1.0: cannot open shared object file: Permission denied",
    ),
    "npu_operator_failed": (
        'ProcessStarsCoreErrorInfo:The error from device(chipId:5), there is an exception of fftsplus aivector error, core id is 8',
        "RuntimeError: call aclnnMatmul failed, detail:EZ1001: ...",
        "[ERROR] 2025-12-17-09:31:53 (PID:53769, Device:0, RankID:-1) ERR00100 PTA call acl api failed",
        "[rank1]: EH9999: Inner Error!",  # vllm-ascend #5135
        "RuntimeError: ACL stream synchronize failed, error code:507035",  # vllm-ascend #2349
    ),
    "grammar_failed": (
        "RuntimeError: [20:33:13] /project/cpp/grammar_compiler.cc:305: Check failed: (schema.is<object>()) is false",
        "ERROR 02-09 10:00:00 [backend_xgrammar.py:148] Failed to advance FSM for request cmpl-1 for tokens 11. Please file an issue.",
    ),
    "assertion_failed": (
        "ERROR 05-29 07:34:21 [core.py:491] AssertionError",  # llm-d-router #157
        "RuntimeError: Failed: Assertion error csrc/jit_kernels/impls/smxx_layout.hpp:136 'mn % 4 == 0 and num_groups == 1'",  # DeepGEMM #140
        'RuntimeError: Assertion error (/workspace/.deps/deepgemm-src/csrc/apis/layout.hpp:59): Unknown SF transformation',
    ),
    "gpu_occupied_by_other_process": (
        "ValueError: Free memory on device cuda:0 (52.81/95.01 GiB) on startup is less than desired GPU memory utilization (0.9, 85.51 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        "ValueError: Free memory on device (5.10/23.68 GiB) on startup",
        "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free memory 33.3 GiB. This happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 0.50 GiB is free. Process 4021 has 60.00 GiB memory in use. Including non-PyTorch memory, this process has 18.60 GiB memory in use.",
    ),
    "swap_space_too_large": (
        "ValueError: Too large swap space. 64.00 GiB out of the 62.81 GiB total CPU memory is allocated for the swap space.",
        'RuntimeError: Too large swap space. 128.00 GiB out of the 100.00 GiB total CPU memory is allocated for the swap space.',
    ),
    "cpu_ram_oom_killed": (
        "Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html.",  # Ray, memory monitor
        "Warning  Evicted  3s  kubelet  The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi.",  # Kubernetes, eviction
        "RuntimeError: Insufficient space in /dev/shm: 160 MiB required, 64 MiB free. Increase /dev/shm (e.g. --shm-size or --ipc=host).",
        "RuntimeError: Insufficient memory in /dev/shm: 64 MiB",
        "[81234.5] Out of memory: Killed process 4021 (python3) total-vm:98765432kB, anon-rss:65432100kB",
        "[81234.5] Memory cgroup out of memory: Killed process 4021 (VLLM::EngineCor) total-vm:98765432kB",
        "[81234.5] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=docker-1.scope",
        "(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 180355072 bytes.",
        "OSError: [Errno 12] Cannot allocate memory",
        "ERROR 10-21 15:37:40 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 29774 died, exit code: -9",
        "    Exit Code:    137",
        "vllm.service: Main process exited, code=killed, status=9/KILL",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL: killed by signal 9",
        "/start.sh: line 9:    57 Killed                  vllm serve $MODEL",
        'ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.',
    ),
    "tp_exceeds_gpus": (
        "Cannot split tensors evenly. tensor_parallel_size=4 but only 2 GPUs available",
        "ValueError: World size (8) is larger than the number of available GPUs (4) in this node. If this is intentional and you are using: - ray, set '--distributed-executor-backend ray'.",
        "ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group.",
        "WARNING 03-18 11:21:32 ray_utils.py:320] The number of required GPUs exceeds the total number of available GPUs in the placement group.",
        "AssertionError: please set tensor_parallel_size (4) to less than max local gpu count (2)",
        "RuntimeError: CUDA error: invalid device ordinal",
        "AssertionError: DP adjusted local rank 5 is out of bounds.",
        'AssertionError: local_world_size (4) must be less than or equal to the number of visible devices (2).',
        'EE1001: The argument is invalid.Reason: set ASCEND_RT_VISIBLE_DEVICES:8 error, input data rang[0-8)',
        'ValueError: Tensor parallel size (4) cannot be larger than the number of available GPUs (2).',
        'AssertionError: assert device >= 0 && device < num_gpus',
    ),
    "tp_not_dividing_heads": (
        "ValueError: Total number of attention heads (52) must be divisible by tensor parallel size (8).",
        "AssertionError: 32768 is not divisible by 3",
        "ValueError: The output size is not aligned with the quantized weight shape. This can be caused by too large tensor parallel size.",
        "ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight quantization block_n = 128.",
        'AssertionError: num_attention_heads (14) must be divisible by tensor-parallel world size (4).',
        'ValueError: Total number of hidden layers (61) must be divisible by pipeline parallel size (2).',
        'ValueError: Weight input_size_per_partition = 3424 is not divisible by min_thread_k = 128. Consider reducing tensor_parallel_size or running with --quantization gptq.',
        'ValueError: total_num_heads 40 is not divisible by tp_size 3.',
    ),
    "nccl_timeout": (
        "[rank3]:[E ProcessGroupNCCL.cpp:475] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4967570, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800542 milliseconds before timing out.",
        "[E ProcessGroupNCCL.cpp:489] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        'terminate called after throwing: [PG ID 2 Rank 1] Heartbeat monitor timed out! Process will be terminated after dumping debug info.',
    ),
    "nccl_init_failure": (
        "n2:311:405 [0] transport/net_ib.cc:182 NCCL WARN NET/IB : mlx5_2:1 async fatal event on QP (0x7f): local work queue catastrophic error",  # NCCL, net_ib.cc
        "host:17:19 [0] misc/ibvwrap.cc:206 NCCL WARN Call to ibv_modify_qp failed with error No such device errno 19",
        "nvshmem_init failed: modules/transport/ibgda/ibgda.cpp: NULL value get_device_list failed",  # vllm #28500
        "RuntimeError: DeepEP error: CPU recv timeout",  # deepseek-ai/DeepEP
        "oneCCL: ze_call.cpp:28 do_call: EXCEPTION: ze error at zeMemOpenIpcHandle,",  # vllm #41663
        "Error while creating shared memory segment /dev/shm/nccl-F9ffgB (size 9637888)",  # production-stack #276
        "2025-04-23T03:35:43.390Z  INFO dynamo_engine_vllm::worker: VLLM: Failed: /workspace/csrc/custom_all_reduce.cuh:368 'invalid argument'",  # ai-dynamo/dynamo #787
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
        "[rank1]: EI0009: [PID: 2225827] 2025-09-24-20:59:48.119.066 Transport init error. Reason: [Create][DestLink]Create Dest error!",  # vllm-ascend #3162
        "ERR02200 DIST call hccl api failed.",  # vllm-ascend #1704
        "(EngineCore_DP4 pid=1675) ncclInternalError: Internal check failed.",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691",
        "ERROR 05-30 22:22:26 [pynccl.py:153] ncclCommInitRank failed with error 3",
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
        "host:1673:9080 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<42123> failed : No route to host",
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "[E socket.cpp:957] [c10d] The client socket has timed out after 600s while trying to connect to (10.0.0.1, 29500).",
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'",
        'RuntimeError: NCCL Error 3: internal error - please report this issue to the NCCL developers',
        'torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (10.0.0.1, 29500).',
        'RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)',
    ),
    "shm_broadcast_hang": (
        "(EngineCore_DP0 pid=7498) INFO 11-10 11:42:48 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging.",
        "WARNING 06-14 20:31:12 shm_broadcast.py:386] No available block found in 60 second.",
        "TimeoutError: RPC call to sample_tokens timed out.",
        'TimeoutError: RPC call to execute_model timed out.',
    ),
    "ray_failure": (
        "IOError: [RayletClient] Unable to register worker with raylet. Failed to read data from the socket: End of file",
        "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to by setting `--address` flag",
        "ValueError: Ray does not allocate any GPUs on the driver node. Consider adjusting the Ray placement group",
        "(raylet) [2023-12-07 03:27:39,873 E 1 1] (raylet) file_system_monitor.cc:111: /tmp/ray/session is over 95% full, available space: 0",
        "ValueError: Cannot provide a placement group of 16 GPUs within 1800 seconds.",
        "INFO 03-18 11:21:42 ray_utils.py:214] Waiting for creating a placement group of specs for 10 seconds.",
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        "A worker died or was killed while executing a task by an unexpected system error. Worker exit type: SYSTEM_ERROR",
        "ray.exceptions.RayTaskError(TypeError): ray::RayWorkerWrapper.execute_method()",
        '2023-12-26 07:10:19,486\tWARNING worker.py:2074 -- A worker died or was killed while executing a task by an unexpected system error. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.',
        '(raylet) The node with node id: 0f219 and address: 10.0.0.51 has been marked dead because the detector has missed too many heartbeats from it.',
        '(raylet) Raylet is terminated. Termination is unexpected.',
        "KeyError: 'bundles'",
        'RuntimeError: Version mismatch: The cluster was started with:',
        'ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task',
        'ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.',
    ),
    "port_in_use": (
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:14579')",
        "OSError: [Errno 98]",
        'RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use',
        'Error starting userland proxy: listen tcp4 0.0.0.0:8000: bind: address already in use',
    ),
    "hf_gated_or_auth": (
        "huggingface_hub.errors.HfHubHTTPError: 401 Unauthorized",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error.",
        "Access to model meta-llama/Llama-2-7b-hf is restricted and you are not in the authorized list.",
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/api/models/x",
        'OSError: You are trying to access a gated repo.',
        'huggingface_hub.errors.LocalTokenNotFoundError: Token is required (`token=True`), but no token found.',
        'requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://huggingface.co/x/resolve/main/config.json',
    ),
    "hf_not_found_or_offline": (
        "huggingface_hub.errors.HfHubHTTPError: 504 Server Error: Gateway Time-out for url: https://huggingface.co/api/models/m",
        "OSError: org/x is not a local folder and is not a valid model identifier on Hugging Face",
        "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/Qwen/Qwen2.5-1.5B-Instruct",  # vllm #24541
        "RuntimeError: Data processing error: CAS service error: Error: single flight error: Real call failed: CasObjectError(InternalIOError(Custom { kind: Other }))",  # vllm #18701
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://huggingface.co/x",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/x'. Use `repo_type` argument if needed.",
        "HFValidationError raised elsewhere",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
        "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        "FileNotFoundError: [Errno 2] No such file or directory: '/models/llama/config.json'",
        "OSError: /models/x does not appear to have a file named config.json.",
        "OSError: Incorrect path_or_model_id: '/models/x'. Please provide either the path to a local folder or the repo_id of a model on the Hub.",
        "OSError: /models/x is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        'huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision on the local disk and outgoing traffic has been disabled.',
        'requests.exceptions.ConnectionError: (MaxRetryError("HTTPSConnectionPool(host=\'huggingface.co\', port=443): Max retries exceeded',
        'huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-6)',
        'RuntimeError: Cannot find any model weights with `/models/x`',
        'OSError: Consistency check failed: file should be of size 9976570304 but has size 9144672256 (model-00001.safetensors).',
        "ValueError: Invalid repository ID or local directory specified: '/models/x'.",
        'huggingface_hub.utils._errors.EntryNotFoundError: 404 Client Error.',
    ),
    "unsupported_architecture": (
        "ValueError: Model architectures ['MiniCPMO'] are not supported for now. Supported architectures: dict_keys(['LlamaForCausalLM'])",
        "ValueError: The checkpoint you are trying to load has model type `gemma4` but Transformers does not recognize this architecture.",
        "NotImplementedError: Pipeline parallelism is not supported for this model. Supported models implement the `SupportsPP` interface.",
        "NotImplementedError: The model class FooForCausalLM is not supported",
        "  config_class = CONFIG_MAPPING[config_dict['model_type']] KeyError: 'qwen9'",
        "ValueError: There is no module or parameter named 'visual' in Qwen2ForCausalLM",
        "KeyError: 'layers.0.self_attn.qkv_proj.weight'",
        'ValueError: Unsupported architecture: foo2',
        'ValueError: Architecture gemma4 not supported',
        'ValueError: FooForCausalLM has no vLLM implementation and the Transformers implementation is not compatible with vLLM.',
        'ValueError: Unrecognized model in /x. Should have a `model_type` key in its config.json',
        "ValueError: Unrecognized configuration class <class 'x'> for this kind of AutoModel",
        "ValueError: This model does not support the 'embed' task.",
        'ValueError: GGUF model with architecture qwen3moe is not supported yet.',
    ),
    "tokenizer_mismatch_or_missing_chat_template": (
        "ValueError: As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer does not define one.",
        "{'object': 'error', 'message': 'Conversation roles must alternate user/assistant/user/assistant/...', 'code': 400}",
        "ValueError: Tokenizer class QWenTokenizer does not exist or is not currently imported.",
        "Exception: data did not match any variant of untagged enum ModelWrapper at line 757281 column 3",
        "AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended",
        "RuntimeError: Failed to load the tokenizer. If the tokenizer is a custom tokenizer",
        'ValueError: Converting from Tiktoken failed, if a converter for SentencePiece is available, provide a model path',
        "OSError: Can't load tokenizer for '/models/x'. If you were trying to load it from 'https://huggingface.co/models'",
        "ValueError: Couldn't instantiate the backend tokenizer from one of:",
        'jinja2.exceptions.TemplateError: System role not supported',
        'ValueError: The supplied chat template (x.jinja) looks like a file path, but it failed to be opened.',
        'ValueError: Cannot use chat template functions because tokenizer.chat_template is not set and no template argument was passed!',
        'OSError: No tokenizer file found in directory: /models/mistral',
    ),
    "lora_mismatch": (
        "RuntimeError: Loading lora /a/notes failed",
        "ValueError: LoRA rank 64 is greater than max_lora_rank 16.",
        "ValueError: MiniMaxM2ForCausalLM does not support LoRA yet.",
        "ValueError: While loading /l, expected target modules in ['q_proj'] but received ['qkv_proj']. Please verify that the loaded LoRA module is correct",
        'ValueError: Model BaiChuanForCausalLM does not support LoRA, but LoRA is enabled. Support for this model may be added in the future.',
        'ValueError: Loading lora sql failed: No adapter found for /x',
        'ValueError: base.lm_head.weight is unsupported LoRA weight',
        'ValueError: Got lora_request LoRARequest(..) but LoRA is not enabled!',
        'RuntimeError: No free LoRA slots.',
        'ValueError: LoRA added vocab size 300 is greater than lora_extra_vocab_size 256.',
        'ValueError: Unsupported LoRA weight name',
    ),
    "rope_or_config_mismatch": (
        "ValueError: No model architectures are specified",  # vllm/config of 0.10
        "  Value error, num_speculative_tokens was provided but without speculative model. [type=value_error]",
        "ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len (max_position_embeddings=32768 or model_max_length=None in model's config.json).",
        "ValueError: `rope_scaling` must be a dictionary with two fields, `type` and `factor`, got {'rope_type': 'llama3'}",
        "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (4096). This effectively limits the maximum sequence length.",
        "AssertionError: Tried to load weights of size torch.Size([128256, 4096])to a parameter of size torch.Size([32064, 4096])",
        "AttributeError: 'Gemma3Config' object has no attribute 'vocab_size'",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "  Value error, rope_scaling should have a 'rope_type' key [type=value_error, input_value=ArgsKwargs((), {'model': ...",
        'AssertionError: assert "factor" in rope_scaling',
        'ValueError: Unknown RoPE scaling type llama3',
        "KeyError: 'rope_type'",
        "ValueError: rope_scaling must have a 'type' or 'rope_type' key.",
        '    assert param_data.shape == loaded_weight.shape',
        'ValueError: max_num_batched_tokens (512) must be greater than or equal to max_num_seqs (1024).',
    ),
    "quantization_unsupported": (
        "ValueError: Unknown quantization method: gptq. Must be one of ['awq', 'squeezellm'].",
        "AttributeError: Model GptOssForCausalLM does not support BitsAndBytes quantization yet. No 'packed_modules_mapping' found.",
        "ValueError: AWQ Marlin is not supported on this GPU",
        "RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+",
        "KeyError: 'layers.12.mlp.experts.w2_weight_scale'",
        'NotImplementedError: No compiled cutlass_moe_mm: no cutlass_scaled_mm kernel for CUDA device capability: 121. Required capability: 90, 100, or 120',
        'NotImplementedError: No MXFP4 MoE backend supports the deployment configuration.',
        "ValueError: NvFp4 MoE backend 'FLASHINFER_CUTLASS' does not support the deployment configuration since kernel does not support MoEActivation.SWIGLUSTEP activation.",
        "KeyError: 'layers.32.self_attn.qkv_proj.k_scale'",
        "KeyError: 'layers.10.feed_forward.experts.0.activation_fn.scales'",
        "KeyError: 'layers.0.mlp.down_proj.weight.absmax'",
        'ValueError: The quantization method gptq_marlin is not supported for the current GPU. Minimum capability: 80. Current capability: 75.',
        'ValueError: Quantization method specified in the model config (gptq) does not match the quantization method specified in the `quantization` argument (awq).',
        'RuntimeError: Quantization scheme is not supported for the current GPU. Min capability: 80. Current capability: 70.',
        'ValueError: Cannot find the config file for awq',
        'ValueError: Currently, only 4-bit weight quantization is supported for AWQ, but got 8 bits.',
        'ValueError: Invalid quantization method: foo',
        'ValueError: Found different quantization schemes for the shards of q. vLLM requires all to use the same scheme.',
        'ValueError: Failed to find a kernel that can implement the WNA16 linear layer.',
        'ValueError: Current platform does not support NVFP4 quantization. Please use Blackwell and above.',
        'NotImplementedError: Unsupported GGUF quantization type: 39',
        'ValueError: BitAndBytes quantization with TP or PP is not supported yet.',
    ),
    "dtype_unsupported": (
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla V100-SXM2-32GB GPU has compute capability 7.0.",
        "RuntimeError: GPUs with compute capability below 7.0 are not supported",
        "ValueError: type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')",
        'RuntimeError: Unsupported data type of kv cache: fp8',
        'RuntimeError: expected scalar type BFloat16 but found Float',
        'RuntimeError: "addmm_impl_cpu_" not implemented for \'Half\'',
        'ValueError: torch.bfloat16 is not supported for quantization method awq. Supported dtypes: [torch.float16]',
        "ValueError: The model type 'gemma3' does not support float16. Reason: Numerical instability.",
        'RuntimeError: expected mat1 and mat2 to have the same dtype, but got: c10::BFloat16 != c10::Half',
    ),
    "attention_backend_unavailable": (
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        "ValueError: Head size 8 is not supported by PagedAttention. Supported head sizes are: [64, 80, 96]",
        "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=576). Reasons: {}.",
        "AssertionError: Sinks are only supported in FlashAttention 3",
        'RuntimeError: Sparse Attention Forward Kernel is only supported on SM90a and SM100f architectures.',
        "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. Reason: ['kv_cache_dtype not supported']",
        'RuntimeError: FlashInfer backend is not available. Please install the package to enable FlashInfer kernels',
        "ValueError: Unknown attention backend: 'FOO'. Valid options are: FLASH_ATTN",
        "ValueError: Attention backend 'XFORMERS' has been removed (See PR #29262 for details). Please select a supported attention backend.",
        'ValueError: FLASHMLA is not supported on this GPU',
        'ValueError: Head size 160 is not supported by FlashAttention. Supported head sizes are: [32, 64].',
        'RuntimeError: FlashAttention forward only supports head dimension at most 256',
        'RuntimeError: This flash attention build does not support headdim not being a multiple of 32.',
        'AssertionError: FlashMLA is only supported on Hopper devices.',
        'ValueError: Please use Flashinfer backend for models with logits_soft_cap (i.e., Gemma-2). Otherwise, the output might be wrong. Set Flashinfer backend by export VLLM_ATTENTION_BACKEND=FLASHINFER.',
    ),
    "driver_cuda_mismatch": (
        "x.py:11: UserWarning: cudaGetDeviceCount() returned cudaErrorNotSupported, likely using older driver",
        '[ 7386.259769] NVRM: API mismatch: the client has the version 515.48.07, but',
        "INFO 09-10 10:00:00 [__init__.py:220] No platform detected, vLLM is running on UnspecifiedPlatform",
        "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination",  # pytorch: cudaErrorSystemDriverMismatch
        ":1:hip_fatbin.cpp :687 : 114369963532 us:  No compatible code objects found for: gfx1152, value of HIP_FORCE_SPIRV_CODEOBJECT: 0",
        "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources.",  # ROCm/TheRock #7472
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "NVIDIA Thor with CUDA capability sm_110 is not compatible with the current PyTorch installation.",
        "UserWarning: CUDA initialization: The driver is older than what this build of PyTorch needs (found version 12020).",
        'This kernel only supports sm100f.',
        '[ERROR] the socversion Ascend310P1 of bin package does not match the current device socverison Ascend910B4.',
        'RuntimeError: Get GPU arch from rocminfo failed "Unknown GPU architecture: gfx1036. Supported architectures: [\'native\', \'gfx942\']"',
        'torch.AcceleratorError: CUDA error: device kernel image is invalid',
        'RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda driver combination',
        'RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW',
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        'RuntimeError: Failed to infer device type',
        'RuntimeError: The NVIDIA driver on your system is too old (found version 12020).',
        'RuntimeError: No CUDA GPUs are available',
        'pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found',
        'Failed to initialize NVML: Driver/library version mismatch',
        'Failed to initialize NVML: Unknown Error',
        'AssertionError: Torch not compiled with CUDA enabled',
        'RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.',
        'ImportError: libcuda.so.1: cannot open shared object file: No such file or directory',
        'RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.1).',
    ),
    "missing_dependency_or_import_error": (
        "  × Building wheel for ring (pyproject.toml) did not run successfully.",
        "Triton is installed but 2 active driver(s) found (expected 1), so module 'triton' has no attribute 'ring'",
        "vllm 0.11.0 requires torch==2.8.0, but you have torch 2.9.1 which is incompatible.",  # pip
        "RuntimeError: flashinfer-cubin version (0.5.2) does not match flashinfer version (0.5.3). Please install the same version of both packages.",  # flashinfer/__init__.py of 0.5
        "  ╰─▶ Because there is no version of mylib==2.0+abc and vllm==0.30.0 depends on mylib==2.0+abc,",  # uv
        "  × No solution found when resolving dependencies:",
        "ERROR: Could not find a version that satisfies the requirement mylib==2.0 (from versions: 1.0)",  # pip
        "RuntimeError: NIXL is not available",  # vllm, nixl_connector.py of 0.10
        "OSError: /x/site-packages/~orchvision.libs/libcudart.faf08d9a.so.13 (deleted): cannot open shared object file: No such file or directory",
        "ImportError: /vllm/_C.abi3.so: undefined symbol: _ZNK3c1011StorageImpl27throw_data_ptr_access_errorEv",
        "ModuleNotFoundError: No module named 'vllm._C'",
        "cannot import name 'ActionFind' from 'openai.types.responses'",
        "AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'",
        "OSError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found",
        'importlib.metadata.PackageNotFoundError: No package metadata was found for vllm',
        'RuntimeError: operator torchvision::nms does not exist',
        'ImportError: This modeling file requires the following packages that were not found in your environment: flash_attn. Run `pip install flash_attn`',
        'ImportError: libcudart.so.12: cannot open shared object file: No such file or directory',
        'ImportError: Please install bitsandbytes>=0.45.3 via `pip install bitsandbytes>=0.45.3` to use bitsandbytes quantizer.',
        'ImportError: libGL.so.1: cannot open shared object file: No such file or directory',
    ),
    "compile_failure": (
        'triton.compiler.errors.UnsupportedLanguageConstruct: at 4:5: chained',
        "ValueError('Cannot make_shape_compatible: incompatible dimensions at index 1: 256 and 512')",
        "RuntimeError: FlashInfer requires GPUs with sm75 or higher",  # vllm #48956
        "RuntimeError: No supported CUDA architectures found for major versions [10].",  # vllm #31740
        "[rank0]: RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].",  # vllm-gaudi #1734
        "(EngineCore pid=4140) Failed to get device capability: SM 12.x requires CUDA >= 12.9.",  # vllm #50705
        "ptxas-blackwell fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",  # Triton's own ptxas
        'cuda_toolkit.h:41:8: error: #error "CUDA compiler and CUDA toolkit headers are incompatible, please check your include paths"',  # flashinfer #3493
        "/usr/bin/x86_64-linux-gnu-ld.bfd: cannot find -lcudart: No such file or directory",  # flashinfer #5064
        "collect2: error: ld returned 1 exit status",
        "nvcc fatal   : Unsupported gpu architecture 'compute_121a'",  # flashinfer #1657
        "/bin/sh: 1: :/usr/local/cuda-12.8/bin/nvcc: not found",  # vllm #36077
        "RuntimeError: Assertion error (csrc/apis/../jit_kernels/impls/../../jit/kernel_runtime.hpp:45): exit_code == 0",  # llm-d #1269
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        "InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')",
        "RuntimeError: Ninja build failed. Ninja output:",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
        "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpx/main.c', '-O3']' returned non-zero exit status 1.",
        "RuntimeError: vLLM failed to load it: a previous compilation failed, leading to a corrupted compilation artifact.",
        'triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error',
        "RuntimeError: Worker failed with error 'Command '['/usr/bin/clang++', '-x', 'c++-header', '/root/.triton/cache/Jd/precompiled.h', '-w']' returned non-zero exit status 1.', please check the stack trace above for the root cause",
        'Triton compilation failed: triton_poi_fused_0',
        "'sm_120' is not a recognized processor for this target (ignoring processor)",
        'Assertion `false && "mma -> mma layout conversion is only supported on Ampere"\' failed.',
        "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
        'fatal error: Python.h: No such file or directory',
        'torch._dynamo.exc.TorchRuntimeError: Failed running call_function',
        'triton.compiler.errors.CompilationError: at 114:24:',
        'OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.',
        "RuntimeError: Error building extension 'fused'",
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        "FAILED: [code=137] fused_moe.cuda.o",
        "RuntimeError: CUDA driver error (/x/deep_gemm/jit/handle.hpp:14): 200 (CUDA_ERROR_INVALID_IMAGE)",
        "ptxas application ptx input, line 9; error : Unexpected instruction types specified for 'mma'",
    ),
    "xid_or_gpu_lost": (
        "Index out of range: index value 151 exceeds bounds 129!",
        "Synapse detected a device critical error that requires a restart. Killing process in 5 seconds (hl: 2) 09:11:31 [No progress error]",
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [7,0,0], thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        "xe 0000:03:00.0: [drm] GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id=24",  # Intel xe
        "i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:84dffffb, in python3 [4242]",  # Intel i915
        "Memory critical error by agent node-0 (Agent handle: 0x55d0c0) on address 0x7f5e00000000. Reason: Memory in use.",
        "[81234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "[81234.5] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        'amdgpu 0000:03:00.0: amdgpu: MES failed to respond to msg=MISC (WAIT_REG_MEM)',
        'amdgpu 0000:03:00.0: amdgpu: failed to remove hardware queue from MES, doorbell=0x1202',
        '[ 1234.500001] amdgpu 0000:bd:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:153 vmid:8 pasid:2634)',
        'RuntimeError: CUDA error: device-side assert triggered',
        'RuntimeError: CUDA error: unspecified launch failure',
        'RuntimeError: CUDA error: uncorrectable ECC error encountered',
        'Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU',
        'Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f. Reason: Page not present.',
        'RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`',
    ),
    "context_length_exceeded": (
        "This model's maximum context length is 2048 tokens. However, you requested 2723 tokens (1699 in the messages, 1024 in the completion).",
        "WARNING 02-16 15:37:32 scheduler.py:947] Input prompt (2501 tokens) is too long and exceeds limit of 2048",
        "ValueError: the prompt has 9000 tokens, more than max_model_len=8192",
        '{"object":"error","message":"\'max_tokens\' or \'max_completion_tokens\' is too large: 8000. This model\'s maximum context length is 8192 tokens"}',
        'ValueError: The decoder prompt (length 9000) is longer than the maximum model length of 8192.',
        'ValueError: max_tokens must be at least 1, got -300.',
        "ValueError: Input length (9000) exceeds model's maximum context length (8192).",
        '\'message\': "max_tokens\' is too large: 5000."',
    ),
    "kv_transfer": (
        "(Worker pid=7) ERROR 05-01 15:00:23 [worker.py:702] NIXL transfer failure: handshake_failed",
        "(Worker_DP0_EP0 pid=2823482) ERROR 10-16 17:22:56 [nixl_connector.py:815] RuntimeError: Remote NIXL agent engine ID mismatch. Expected 46126a31-6b81_dp0,received 96b1c4ff-9edf_dp0.",  # vllm #27083
        "(Worker_TP0_EP0 pid=865) ERROR 05-01 15:00:23 [nixl_connector.py:1263] NIXL transfer failure: handshake_setup_failed | Context: {'failure_type': 'handshake_setup_failed', 'request_id': None, 'engine_id': 'c92321f8', 'remote_engine_id': 'b6b76ae8'}",
        "ERROR 01-09 12:04:06 [nixl_connector.py:2281] NIXL transfer setup/initiation failed for request r1. Marking blocks as invalid.",
        "ERROR 01-09 12:04:08 [nixl_connector.py:1184] Handshake with remote_engine failed",
        "nixl._bindings.nixlRemoteDisconnectError: NIXL_ERR_REMOTE_DISCONNECT",
        "nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND",
        "E0812 11:02:33.000000 genNotif: no specified or potential backend could send the inter-agent notifications",
        "[1744331142.240046] [gpu-51:2802612:a]  ib_mlx5_log.c:177  UCX  ERROR Transport retry count exceeded on mlx5_0:1/RoCE",
        # Real lines: LMCache #725, NIXL #1614's kind (sglang #27894), Mooncake #809 and #124, vllm-ascend #5635, LMCache #1938.
        "W0613 11:28:11.555796    7053 ucx_utils.cpp:43] Unexpected UCX error: Endpoint timeout",
        "E0717 07:30:06.719633  994396 ucx_utils.cpp:537] UCX endpoint create failed: failed to create ep",
        "[1749803291.555759] [vllm-lmcache-zxy-977866c79-jxjnw:7053 :0]          tcp_ep.c:1260 UCX  ERROR tcp_ep 0x3c502370 (state=CONNECTED): send(110) failed: Input/output error",
        "E0904 21:29:13.607991 31963 transfer_metadata_plugin.cpp:224] Error from http client, GET http://192.168.10.12:8080/metadata?key=mooncake%2Fram%2F192.168.10.12%3A12516 error: Failed initialization",
        "ERROR 02-27 20:00:22 engine.py:140] Exception: Transfer Return Error",
        "E20260106 06:43:02.966198  5793 ascend_direct_transport.cpp:581] Failed to connect to segment: 172.17.0.16:16584",
        "(EngineCore_DP0 pid=5704) ERROR 01-06 06:43:02 [mooncake_connector.py:419] Mooncake transfer failed for request cmpl-118b93ed-a3b2-4d9f-a26d-1d5dce6d7bf2-0",
        "LMCache WARNING: Remote connection failed in contains: [Errno 32] Broken pipe",
        "LMCache WARNING: Failed to initialize/re-establish remote connection: No adapter found for URL: lm://<CLUSTER_IP>:65432",
        "E0904 21:29:13.608029 31963 transfer_task.cpp:469] Failed to open segment 192.168.10.12:12516",
        "E0904 21:29:13.608035 31963 client.cpp:1112] Failed to submit transfer operation",
        "E0417 19:46:42.567027   481 master_client.cpp:192] Failed to mount segment due to rpc error",
        "(VllmWorker TP5 pid=15159) [2025-09-05 14:46:37,718] LMCache ERROR: Failed to connect to remote backend lm://store:65432",
        "(EngineCore_DP0 pid=37) ERROR 03-02 10:11:12 [scheduler.py:2204] Failing 3 request(s) due to KV load failure (failure_policy=fail, 4096 tokens affected).",
        "(EngineCore_DP0 pid=3747544) WARNING 09-24 16:35:21 [nixl_connector.py:1048] Releasing expired KV blocks for request cmpl-3da205a6 which were retrieved by 0 decode worker(s) within 120 seconds.",
    ),
    "engine_dead": (
        "double free or corruption (!prev)",  # kserve #5056
        '(APIServer pid=1) INFO:     10.0.0.1:5555 - "GET /health HTTP/1.1" 503 Service Unavailable',  # vllm, api_server.py of 0.11
        "terminate called after throwing an instance of 'c10::AcceleratorError'",  # libstdc++
        "systemd[1]: vllm.service: Main process exited, code=exited, status=1/FAILURE",  # systemd
        "      Exit Code:    1",  # kubectl describe
        'Warning  Unhealthy  3s (x3 over 13s)  kubelet  Startup probe failed: Get "http://10.244.0.13:8000/health": dial tcp 10.244.0.13:8000: connect: connection refused',  # aibrix #1054
        "11s  Warning  BackOff  pod/workspace-llama-0  Back-off restarting failed container workspace-llama in pod workspace-llama-0_default(9078)",  # kaito #1609
        "Bus error (core dumped)",
        "(EngineCore_DP0 pid=196) ERROR 12-01 15:20:18 [core.py:845] EngineCore encountered a fatal error.",
        "vllm.engine.async_llm_engine.AsyncEngineDeadError: Task finished unexpectedly. This should never happen!",
        "ERROR 05-04 12:23:00 [multiproc_executor.py:380] WorkerProc hit an exception.",
        "Segmentation fault (core dumped)",
        'vllm-1 exited with code 139',
        'Normal   Killing    2m  kubelet  Container vllm failed liveness probe, will be restarted',
        '[1234567.123456] pt_main_thread[4242]: segfault at 0 ip 00007f2c8 sp 00007ffd8 error 4 in libtorch_cuda.so[7f2c8]',
        'CRITICAL 01-22 00:13:36 launcher.py:99] MQLLMEngine is already dead, terminating server process',
        'vllm_server  | ERROR 04-15 02:01:15 [core.py:387] EngineCore hit an exception: Traceback (most recent call last):',
        'ERROR 05-01 async_llm_engine.py:43] Engine background task failed',
        'RuntimeError: Engine process failed to start. See stack trace for the root cause.',
        '(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}',
        'vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.',
        'vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already.',
        'Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.',
        'TimeoutError: Timed out waiting for engine core processes to start.',
    ),
}  # fmt: skip
"""Class → lines, each of which alone is diagnosed as that class."""
