"""Messages that resemble another failure: the sentence and the cures are of what the line shows."""

import pytest

from tests.diagnosis.look_alikes import CORE, IN_ANSWER, LOOK_ALIKES, REFUSED, STATS, UP
from tests.diagnosis.look_alikes_of_memory import MEMORY_LOOK_ALIKES
from tests.diagnosis.look_alikes_of_models import MODEL_LOOK_ALIKES
from tests.diagnosis.whole_log import diagnose

CASES = LOOK_ALIKES | MEMORY_LOOK_ALIKES | MODEL_LOOK_ALIKES | {
    "an index that the kernel itself names": (
        '/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:111: operator(): block: [0,0,0], thread: [0,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.\nRuntimeError: CUDA error: device-side assert triggered',
        "xid_or_gpu_lost", "an out-of-range index", "xid|nvrm",
    ),
    "an assertion of a kernel is no broken GPU": (
        "RuntimeError: CUDA error: device-side assert triggered",
        "xid_or_gpu_lost", "does not mean that the GPU is broken", "xid|nvrm",
    ),
    "a kernel's fault on an AMD GPU": (
        "torch.AcceleratorError: HIP error: an illegal memory access was encountered",
        "xid_or_gpu_lost", "HIP_LAUNCH_BLOCKING=1", "CUDA",
    ),
    "a row that was remapped": (
        "NVRM: Xid (PCI:0000:3b:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
        "xid_or_gpu_lost", "this line alone is not a failure", "context is lost",
    ),
    "a device of this host": (
        "misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed",
        "nccl_init_failure", "RDMA device of this host", "two hosts",
    ),
    "NVLink SHARP that is not there": (
        "h:1:2 [7] transport/nvls.cc:157 NCCL WARN Cuda failure 1 'invalid argument'\nRuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "nccl_init_failure", "NCCL_NVLS_ENABLE=0", "could not set up (or lost)",
    ),
    "a kernel's fault that NCCL reports": (
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 700 'an illegal memory access was encountered'",
        "nccl_init_failure", "CUDA_LAUNCH_BLOCKING=1", "could not set up (or lost)",
    ),
    "a switch is no GPU": (
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20009, Non-fatal, Link 26 RX Short Error Rate",
        "xid_or_gpu_lost", "a link between GPUs", "context is lost",
    ),
    "an interface that is not on this host": (
        "ncclInternalError: Internal check failed.\nLast error:\nBootstrap : no socket interface found",
        "nccl_init_failure", "env | grep SOCKET_IFNAME", "py-spy",
    ),
    "two ranks on one GPU": (
        "torch.distributed.DistBackendError: NCCL error in: /x.cpp:317, internal error\nncclInternalError: Internal check failed.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
        "nccl_init_failure", "two ranks use the same GPU", "NCCL_DEBUG",
    ),
    "a rank that only reports another's end": (
        "RuntimeError: NCCL error: remote process exited or there was a network error",
        "nccl_init_failure", "first error of the other ranks", "could not set up",
    ),
    "an engine of several hosts without work": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        "nccl_timeout", "nothing to send", "xid",
    ),
    "a placement group that was not provided": (
        "RuntimeError: Cannot provide a placement group of placement_group_specs=[{'GPU': 1.0}] within 1800 seconds.",
        "ray_failure", "has not provided the resources", "worker process died",
    ),
    "a container that ended with a signal": (
        "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    139",
        "engine_dead", "segmentation fault", "killed process",
    ),
    "an exit with an error is no kill": (
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}",
        "engine_dead", "the first traceback", "killed process",
    ),
    "a schema that the backend does not take": (
        "ValueError: The provided JSON schema contains features not supported by xgrammar.",
        "grammar_failed", "let the server choose the backend", "ends the engine",
    ),
    "the test input of a start": (
        '(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9]   File "/x/vllm/v1/worker/gpu_model_runner.py", line 9, in profile_run\n(EngineCore pid=5) ERROR 03-03 10:00:01 [core.py:9] ValueError: The decoder prompt (length 40000) is longer than the maximum model length of 32768.',
        "context_length_exceeded", "No request is the cause", "keeps running",
    ),
    "a call that is no advice": (
        "ERROR 07-01 11:00:00 [core.py:400] Exception: Call to collective_rpc method failed: no reason",
        "unknown", "No rule matches", "advises",
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
        "wrong_flag_value", "a value from the list", "JSON",
    ),
    "a program that is missing is no wrong library": (
        '(Worker pid=9) ERROR 03-03 10:00:00 [x.py:6]   File "/x/site-packages/flashinfer/jit/core.py", line 9, in build\n(Worker pid=9) ERROR 03-03 10:00:00 [x.py:6]   File "/usr/lib/python3.12/subprocess.py", line 9, in _execute_child\n(Worker pid=9) ERROR 03-03 10:00:00 [x.py:6] FileNotFoundError: [Errno 2] No such file or directory: \'cmake\'',
        "unknown", "add its directory to PATH", "flashinfer",
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
        "missing_dependency_or_import_error", "the driver's libraries come from the host", "AUTOLOAD",
    ),
    "a TPU's main memory is a class": (
        "RuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 9.00G of 8.00G hbm.",
        "out_of_memory", "the TPU's memory (HBM)", "nvidia",
    ),
    "a length that fits comes first": (
        "ValueError: To serve at least one request with the model's max seq len (8192), 2.0 GiB KV cache is needed, which is larger than the available KV cache memory (0.40 GiB). Based on the available memory, the estimated maximum model length is 1632.",
        "kv_cache_too_small", "the message has the numbers) None check whether another process", "--max-model-len 1632",
    ),
    "a time-out of something else does not silence the workers": (
        "WARNING 06-22 19:29:00 [x.py:1] Failed to fetch the usage: timed out\n(EngineCore pid=3) INFO 08-13 11:14:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 seconds.",
        "shm_broadcast_hang", "py-spy", "came first",
    ),
    "a colon in the path of a program that Python starts": (
        "FileNotFoundError: [Errno 2] No such file or directory: ':/usr/local/cuda/bin/nvcc'",
        "compile_failure", "it contains a colon", "install the CUDA toolkit",
    ),
    "a full disk beside NCCL's shared memory": (
        "(APIServer pid=1) ERROR 03-10 15:23:29 [x.py:1] OSError: [Errno 28] No space left on device: '/root/.cache/x'\n[0] misc/shmutils.cc:88 NCCL INFO /dev/shm/nccl-1 opened",
        "disk_full", "a disk (or its quota) is full, or has too little space for a file", "not a disk",
    ),
    "a package written for another vLLM": (
        'Traceback (most recent call last):\n  File "/x/site-packages/trainer/rollout.py", line 9, in <module>\nImportError: cannot import name \'OldParams\' from \'vllm.sampling_params\' (/x/site-packages/vllm/sampling_params.py)',
        "missing_dependency_or_import_error", "which vLLM version that package supports", "requirements of the one",
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
        "shm_broadcast_hang", "the timeout in line 1 came first", "fuse_allreduce",
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
        "compile_failure", "it contains a colon", "install the CUDA toolkit",
    ),
    "a missing toolkit is no colon": (
        "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found\nninja: build stopped: subcommand failed.",
        "compile_failure", "install the CUDA toolkit", "colon",
    ),
    "a model named by place to a program of flags": (
        "api_server.py: error: unrecognized arguments: /models/m",
        "unknown_flag", "--model MODEL", "pass the model once",
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
        "quantization_unsupported", "if the GPU is newer", "this GPU does not support",
    ),
    "a torchrun's port is not the server's": (
        'Traceback (most recent call last):\n  File "/x/torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py", line 67, in next_rendezvous\ntorch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, code: -98, name: EADDRINUSE',
        "port_in_use", "sport = :29500", "NIXL",
    ),
    "parts of 80 in groups of 128, at a known size": (
        "INFO 05-05 10:00:00 [u.py:1] non-default args: {'tensor_parallel_size': 8}\nValueError: The output_size of gate's and up's weight = 80 is not divisible by weight quantization block_n = 128.",
        "tp_not_dividing_heads", "--tensor-parallel-size 1", "--tensor-parallel-size is divisible",
    ),
    "no smaller size gives groups of 128": (
        "INFO 05-05 10:00:00 [u.py:1] non-default args: {'tensor_parallel_size': 2}\nValueError: The input_size of down's weight = 720 is not divisible by weight quantization block_k = 128.",
        "tp_not_dividing_heads", "no smaller tensor parallel size", "use a smaller",
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
        "driver_cuda_mismatch", "does not match the host's kernel driver", "older than",
    ),
    "input is no NPU": (
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:275, unhandled cuda error, NCCL version 2.20.5\n    torch.distributed.all_reduce(input_, group=self.device_group)",
        "nccl_init_failure", "between the GPUs", "NPU",
    ),
    "any free port is not the API's port": (
        'Traceback (most recent call last):\n  File "/x/vllm/utils.py", line 572, in get_open_port\n    s.bind(("", 0))\nOSError: [Errno 98] Address already in use',
        "port_in_use", "any free port", "--port N",
    ),
    "a probe with a wrong path": (
        "Warning  Unhealthy  25m  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 404\nNormal  Killing  25m  kubelet  Container vllm failed liveness probe, will be restarted",
        "engine_dead", "a path that the server refuses", "startupProbe",
    ),
    "an instruction that the CPU lacks is a cause": (
        "INFO 05-24 11:12:51 [api_server.py:1043] vLLM API server version 0.8.5\n/bin/bash: line 1: 17 Illegal instruction (core dumped) vllm serve m",
        "engine_dead", "The CPU refused an instruction", "does not show why",
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
        "kv_transfer", "released before the decode server", "recomputed",
    ),
    "a Ray cluster whose GPUs are held": (
        "ValueError: Current node has no GPU available. current_node_resource={'accelerator_type:T4': 1.0, 'CPU': 112.0}. vLLM engine cannot start without GPU.",
        "tp_exceeds_gpus", "no free GPU (or NPU) for this engine", "--gpus all",
    ),
    "an address is no port": (
        "(Worker_TP11 pid=355) ERROR 08-10 23:02:41 [multiproc_executor.py:962] zmq.error.ZMQError: Address already in use (addr='tcp://10.20.0.12:40043')",
        "port_in_use", "Port 40043", "Port 02",
    ),
    "an adapter's missing folder is a reason": (
        'ValueError: Loading lora ["table_qc failed: No adapter found for /x/checkpoint-57"]',
        "lora_mismatch", "did not find the adapter", "does not give the reason",
    ),
    "a KV cache that has no room is not a large step": (
        'ERROR 05-08 11:47:02 [core.py:1136]   File "/x/abstract.py", line 123, in initialize_from_config\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.95 GiB. GPU 0 has a total capacity of 127.00 GiB of which 11.55 GiB is free.',
        "oom_kv_alloc_or_profiling", "while the KV cache was allocated", "--max-num-batched-tokens",
    ),
    "an Intel GPU has no CUDA context": (
        "xe 0000:03:00.0: [drm] GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id=24",
        "xid_or_gpu_lost", "the Intel GPU, or a kernel on it", "CUDA",
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
        "nccl_init_failure", "shared memory (in /dev/shm)", "NCCL_SOCKET_IFNAME",
    ),
    "a server that is not up yet has not failed": (
        'Warning  Unhealthy  3s (x3 over 13s)  kubelet  Startup probe failed: Get "http://10.244.0.13:8000/health": dial tcp 10.244.0.13:8000: connect: connection refused',
        "engine_dead", "may still be starting", "died",
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
        "unknown", "server error (500)", "nothing failed",
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
        "lora_mismatch", "does not accept as LoRA matrices", "stands",
    ),
    "a build for another platform is no missing GPU": (
        "WARNING 11-20 18:31:55 [_custom_ops.py:20] Failed to import from vllm._C with ImportError('libcudart.so.12: cannot open shared object file: No such file or directory')\nRuntimeError: Failed to infer device type",
        "driver_cuda_mismatch", "libcudart.so.N belongs to CUDA N", "--gpus",
    ),
    "sampling is no attention": (
        '(Worker pid=9) ERROR 09-26 11:20:11 [x.py:6]   File "/x/dist-packages/flashinfer/sampling.py", line 980, in top_k\n(Worker pid=9) ERROR 09-26 11:20:11 [x.py:6] ValueError: odd logits',
        "unknown", "sampling", "attention",
    ),
    "a compiler that is missing is no missing model": (
        "(Worker pid=9) ERROR 09-26 11:20:11 [x.py:6] FileNotFoundError: [Errno 2] No such file or directory: '/usr/bin/nvcc'",
        "compile_failure", "nvcc is not found", "model",
    ),
    "a call that was given up is no wait, and a CPU has no Xid": (
        "INFO 06-08 09:01:02 [cpu_worker.py:118] OMP threads binding of Process 2288: 0-95\n" + "(EngineCore pid=2) INFO 06-08 09:09:12 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds.\n" * 12 + "(EngineCore pid=2) ERROR 06-08 09:12:15 [core.py:1138] EngineCore encountered a fatal error.\n(EngineCore pid=2) ERROR 06-08 09:12:15 [core.py:1138] TimeoutError: RPC call to execute_model timed out.",
        "shm_broadcast_hang", "did not answer an RPC", "xid",
    ),
    "an engine that died has not lost one request only": (
        "ERROR 08-20 10:55:31 [core.py:515] EngineCore encountered a fatal error.\nERROR 08-20 10:55:31 [core.py:515] ValueError: Attempted to assign 40 = 40 multimodal tokens to 41 placeholders",
        "unknown", "audio placeholders than of embeddings", "only this request",
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
        "unknown", "the log ends right after a critical error", "nothing failed",
    ),
    "a critical error before answers is not the end": (
        UP + "tpu_driver: unrecoverable error on chip 3, killing process\n" + STATS.format(39, "12.5"),
        "healthy", "nothing failed", "critical",
    ),
    "a Gaudi that failed is no NVIDIA GPU": (
        UP + STATS.format(39, "12.5") + "Synapse detected a device critical error that requires a restart. Killing process in 5 seconds (hl: 1) 19:39:11 [No progress error]\n",
        "xid_or_gpu_lost", "critical device error", "xid",
    ),
    "an index that is out of range is no broken GPU": (
        UP + STATS.format(39, "12.5") + "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [7,0,0], thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n(EngineCore pid=4) ERROR 06-22 19:40:00 [core.py:9] torch.AcceleratorError: CUDA error: device-side assert triggered\n",
        "xid_or_gpu_lost", "out-of-range index", "xid",
    ),
    "a body that was lost with an upgrade": (
        UP + "WARNING:  Unsupported upgrade request.\n" + REFUSED.format(400) + STATS.format(39, "12.5"), "healthy", "HTTP/1.1", "the response to the client",
    ),
    "a name that is not served, after an upgrade": (
        UP + "WARNING:  Unsupported upgrade request.\n" + REFUSED.format(404) + STATS.format(39, "12.5"), "healthy", "not served", "HTTP/1.1",
    ),
    "an error in one answer": (
        UP + IN_ANSWER.format("APIServer"), "unknown", "One request failed with this error", "engine died",
    ),
    "an error in one request, before others are answered": (
        UP + "(APIServer pid=1) ERROR:    Exception in ASGI application\n(APIServer pid=1) LookupError: no such frame\n" + STATS.format(39, "12.5"), "benign_warning_noise", "One request failed with this error", "may have ended",
    ),
    "an error of the API server that no request met": (
        UP + "(APIServer pid=1) LookupError: no such frame\n" + STATS.format(39, "12.5"), "benign_warning_noise", "may have ended a request", "One request failed",
    ),
    "an error in one answer, and the engine's death": (
        UP + IN_ANSWER.format("APIServer") + CORE + "EngineCore encountered a fatal error.\n", "unknown", "engine died", "One request failed",
    ),
    "an error in the engine": (UP + IN_ANSWER.format("EngineCore"), "unknown", "no rule", "One request failed"),
    "AWQ on a GPU that is too old for it": (
        "ValueError: The quantization method awq is not supported for the current GPU. Minimum capability: 75. Current capability: 70.",
        "quantization_unsupported", "16-bit weights run", "AWQ or GPTQ need",
    ),
    "FP8 on a GPU that runs AWQ": (
        "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 80. Current capability: 75.",
        "quantization_unsupported", "AWQ or GPTQ need", "16-bit weights run",
    ),
    "a layer whose size no kernel takes": (
        "RuntimeError: Failed to find a kernel that can implement the WNA16 linear layer. Reasons:\n  MacheteLinearKernel requires capability 90, current compute  capability is 86\n  MarlinLinearKernel cannot implement due to: Weight output_size_per_partition = 2200 is not divisible by  min_thread_n = 64.",
        "quantization_unsupported", "--tensor-parallel-size", "this GPU does not support",
    ),
    "kernels for older GPUs than this one": (
        "NotImplementedError: No compiled cutlass_scaled_mm for a compute capability less than CUDA device capability: 120",
        "quantization_unsupported", "if the GPU is newer", "most often newer ones",
    ),
    "a quantization that a platform lacks": (
        "ValueError: awq_marlin quantization is currently not supported in rocm.",
        "quantization_unsupported", "remove it: vLLM", "needs a newer GPU",
    ),
    "shards of two quantizations": (
        "ValueError: Detected some but not all shards of model.layers.0.in_proj are quantized. All shards of fused layers to have the same precision.",
        "quantization_unsupported", "modules_to_not_convert", "newer GPU",
    ),
    "an FP8 cache beside FP8 weights": (
        "ValueError: fp8_e5m2 kv-cache is not supported with fp8 checkpoints.",
        "quantization_unsupported", "fp8_e4m3", "AWQ",
    ),
    "a scale that is no quantization's": (
        "KeyError: 'mlp1.layer_scale'",
        "unknown", "No rule", "quantization",
    ),
    "an operation that PyTorch lacks for FP8": (
        "RuntimeError: \"mul_cuda\" not implemented for 'Float8_e4m3fn'",
        "dtype_unsupported", "quantization_config", "8.9",
    ),
    "FlashAttention in float32": (
        "RuntimeError: FlashAttention only support fp16 and bf16 data type",
        "dtype_unsupported", "float16 and bfloat16", "8.9",
    ),
    "half precision on a CPU": (
        "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
        "dtype_unsupported", "on the CPU", "--kv-cache-dtype",
    ),
    "FP8 weights beside a cache that is not": (
        "INFO 05-12 03:20:44 [core.py:105] Initializing a V1 LLM engine with config: model='/m', kv_cache_dtype=auto\nValueError: type fp8e4nv not supported in this architecture.",
        "dtype_unsupported", "a checkpoint of the model that is not FP8", "--kv-cache-dtype auto",
    ),
    "one of many reasons of backends": (
        "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(kv_cache_dtype=fp8_e4m3, use_sparse=True). Reasons: {FLASH_ATTN_MLA: [kv_cache_dtype not supported, sparse not supported], FLASHMLA_SPARSE: [compute capability not supported]}.",
        "attention_backend_unavailable", "sparse attention has kernels only for some GPUs", "remove --kv-cache-dtype",
    ),
    "sinks on an older GPU": (
        "AssertionError: Sinks are only supported in FlashAttention 3",
        "attention_backend_unavailable", "TRITON_ATTN", "unset",
    ),
    "a compatibility library on a GPU that does not take it": (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW",
        "driver_cuda_mismatch", "remove that directory", "get_arch_list",
    ),
    "a kernel that a driver does not load": (
        "torch.AcceleratorError: CUDA error: device kernel image is invalid",
        "driver_cuda_mismatch", "the driver is older", "build of PyTorch or vLLM",
    ),
    "a host without a driver for containers": (
        "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
        "driver_cuda_mismatch", "on the host itself", "forked",
    ),
    "a GPU that the host does not have": (
        "nvidia-container-cli: device error: 7: unknown device: unknown",
        "driver_cuda_mismatch", "nvidia-smi -L", "build of PyTorch",
    ),
    "a container that lost its devices": (
        "Failed to initialize NVML: Unknown Error",
        "driver_cuda_mismatch", "compare the host with the container", "Kubernetes",
    ),
    "a PyTorch without CUDA": (
        "AssertionError: Torch not compiled with CUDA enabled",
        "driver_cuda_mismatch", "a build without CUDA", "sees no GPU",
    ),
    "a toolkit of another CUDA": (
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.4).",
        "driver_cuda_mismatch", "nvcc --version", "it sees no GPU",
    ),
    "an AMD GPU without free memory": (
        "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Code: 0x1008 Available Free mem : 0 MB",
        "driver_cuda_mismatch", "ran out of a resource", "HSA_OVERRIDE",
    ),
    "a GPU that Triton does not support": (
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nGPUTooOldForTriton: Found Tesla P100 which is too old to be supported by the triton GPU compiler.",
        "compile_failure", "older than Triton supports", "--enforce-eager",
    ),
    "NVRTC is not nvcc": (
        "nvrtc: error: invalid value for --gpu-architecture (-arch)",
        "compile_failure", "NVRTC, CUDA's run-time compiler", "CUDA_HOME",
    ),
    "a cache that something deleted": (
        "torch._inductor.exc.InductorError: FileNotFoundError: [Errno 2] No such file or directory: '/tmp/torchinductor_root/ab/x.py'",
        "compile_failure", "its own cache directories", "--enforce-eager",
    ),
    "ninja beside Python": (
        "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
        "compile_failure", "to PATH", "CUDA toolkit",
    ),
    "a guess at a damaged cache": (
        "RuntimeError: vLLM failed to compile the model. The most likely reason for this is that a previous compilation failed, leading to a corrupted compilation artifact. We recommend trying to remove ~/.cache/vllm/torch_compile_cache",
        "compile_failure", "only guesses", "cannot be read",
    ),
    "a Triton kernel with too many threads": (
        "triton.runtime.errors.OutOfResources: out of resource: threads, Required: 1024, Hardware limit: 512",
        "compile_failure", "names the resource", "more shared memory",
    ),
    "a headerless driver call of Triton": (
        "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', '/tmp/t/cuda_utils.c', '-O3', '-lcuda']' returned non-zero exit status 1.",
        "compile_failure", "Python.h", "--enforce-eager",
    ),
    "shapes of a request are no compiler's": (
        "Exception: Call to forward method failed: ValueError('operands could not be broadcast together with shapes (3,) (4,)')",
        "unknown", "No rule", "compiling kernels",
    ),
    "weights in FP8 that were not converted": (
        "RuntimeError: expected mat1 and mat2 to have the same dtype, but got: c10::BFloat16 != c10::Float8_e4m3fn",
        "dtype_unsupported", "quantization_config", "8.9",
    ),
    "a convolution in two types": (
        "RuntimeError: Input type (float) and bias type (c10::BFloat16) should be the same",
        "dtype_unsupported", "two data types do not match", "No rule",
    ),
    "bfloat16 for a model that takes no float16": (
        "INFO 05-12 03:20:44 [config.py:105] Resolved architecture of google/gemma-3-4b-it\nValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5.",
        "dtype_unsupported", "--dtype float32", "--dtype half",
    ),
    "a build without FlashMLA": (
        "ValueError: FlashMLA Sparse is not supported: vllm._flashmla_C is not available, likely was not compiled due to insufficient nvcc version or a supported arch was not in the list of target arches to compile for.",
        "attention_backend_unavailable", "this build has no FlashMLA", "install the one",
    ),
    "a kernel of the cache that takes no FP8": (
        CORE + "triton.compiler.errors.CompilationError: at 1:0:\n" + CORE + "def reshape_and_cache_kernel_flash(\n" + CORE + "^\n" + CORE + "ValueError(\"type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')\")",
        "dtype_unsupported", "--kv-cache-dtype auto", "a version of the model",
    ),
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
        "the server kept running after this error",
    )
