"""What must never be advised, and what must be: messages that look alike and need different things."""

import re

import pytest

from tests.diagnosis.examples import EXAMPLES
from tests.diagnosis.whole_log import diagnose
from tests.for_each import for_each
from vllm_watch.diagnosis.catalogue import FAILURES
from vllm_watch.diagnosis.report import Check, Diagnosis
from vllm_watch.diagnosis.rule import Cure, Failure

NEVER: dict[str, str] = {
    "kv_cache_too_small": r"--max-model-len \d|--tensor-parallel-size|--gpu-memory-utilization|restart",
    "out_of_memory": r"--tensor-parallel-size|--max-model-len|--gpu-memory-utilization|--enforce-eager|quantized",
    "oom_loading_weights": r"--gpu-memory-utilization|--enforce-eager|--max-model-len",
    "oom_runtime": r"--tensor-parallel-size|quantized|--enforce-eager|--max-model-len",
    "oom_cuda_graph_capture": r"--tensor-parallel-size|quantized",
    "gpu_occupied_by_other_process": r"--gpu-memory-utilization 0\.[0-5]|--max-model-len|--tensor-parallel-size|quantized",
    "host_memory_not_pinned": r"--gpu-memory-utilization|--enforce-eager|CUDA graphs|--max-num-seqs",
    "unknown_flag": r"pip install|[Dd]ownload|revision|upgrade",
    "wrong_flag_value": r"pip install|[Dd]ownload|revision|upgrade",
    "compile_failure": r"--enforce-eager|rm -rf ~/\.triton|pip install -U",
    "missing_dependency_or_import_error": r"pip install -U|install --upgrade|newest vllm|docker run",
    "tokenizer_mismatch_or_missing_chat_template": r"pip install -U",
    "lora_mismatch": r"--max-lora-rank",
    "dtype_unsupported": r"pip install -U",
    "quantization_unsupported": r"--dtype half|pip install -U",
    "unsupported_architecture": r"pip install -U",
    "hf_not_found_or_offline": r"pip install",
    "nccl_init_failure": r"NCCL_P2P_DISABLE|restart the engine",
    "nccl_timeout": r"NCCL_P2P_DISABLE",
    "cpu_ram_oom_killed": r"--swap-space",
    "xid_or_gpu_lost": r"--attention-backend|--enforce-eager|pip install",
    "engine_dead": r"[Rr]estart it",
    "shm_broadcast_hang": r"NCCL_P2P_DISABLE",
    "assertion_failed": r"pip install -U|--enforce-eager",
    "disk_full": r"--gpu-memory|prune",
    "folder_not_writable": r"--privileged|chmod 777|--user root",
    "ptrace_denied": r"--privileged",
}
"""By class, what its look-alikes would be harmed by: none of it without a condition that was read in the log."""

ALLOWED: dict[str, str] = {
    "LoRA rank": r"--max-lora-rank",
    "torch._dynamo.exc": r"--enforce-eager",
    "torch._inductor.exc": r"--enforce-eager",
    "TorchRuntimeError": r"--enforce-eager",
    "warming up sampler": r"--max-num-seqs",
    "MPS backend": r"quantized|--max-model-len",
    "METAL": r"quantized|--max-model-len",
    "80.81/95.01": r"--gpu-memory-utilization 0\.84",
}
"""Messages that name the condition, so that for them it is right."""

QUEUE = (
    'Traceback (most recent call last):\n  File "/x/vllm/distributed/device_communicators/shm_broadcast.py", line 9, in __init__\n    self.remote_socket.bind(socket_addr)\n  File "/x/zmq/sugar/socket.py", line 8, in bind\n    super().bind(addr)\n'
    '  File "zmq/backend/cython/_zmq.py", line 7, in zmq.backend.cython._zmq.Socket.bind\n  File "zmq/backend/cython/_zmq.py", line 6, in zmq.backend.cython._zmq._check_rc\n'
)

PAIRS: dict[str, tuple[str, str, str]] = {
    "a GPU that this process fills alone": (
        "ERROR 11-05 12:19:32 [linear.py:210] Failed to create unquantized linear weights: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 93.09 GiB of which 739.81 MiB is free. Including non-PyTorch memory, this process has 92.34 GiB memory in use.\n"
        '  File "/x/vllm/model_executor/layers/linear.py", line 202, in create_weights',
        r"if there are more GPUs", r"nvidia-smi",
    ),
    "a GPU that others may share": (
        "ERROR 11-05 12:19:32 [linear.py:210] Failed to create unquantized linear weights: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 93.09 GiB of which 739.81 MiB is free. Including non-PyTorch memory, this process has 80.10 GiB memory in use.\n"
        '  File "/x/vllm/model_executor/layers/linear.py", line 202, in create_weights',
        r"nvidia-smi[\s\S]*if no other process holds memory", r"--enforce-eager",
    ),
    "a fork": (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
        r"VLLM_WORKER_MULTIPROC_METHOD=spawn", r"dmesg",
    ),
    "a module that Windows does not have": (
        'Traceback (most recent call last):\n  File "C:\\x\\Lib\\site-packages\\vllm\\entrypoints\\cli\\serve.py", line 6, in <module>\n    import uvloop\nModuleNotFoundError: No module named \'uvloop\'',
        r"WSL 2", r"install the package",
    ),
    "a module that Linux lacks": (
        'Traceback (most recent call last):\n  File "/x/site-packages/vllm/entrypoints/cli/serve.py", line 6, in <module>\n    import uvloop\nModuleNotFoundError: No module named \'uvloop\'',
        r"install the package", r"WSL",
    ),
    "an address that is its own": (
        "RuntimeError: Gloo connectFullMesh failed with [x/pair.cc:144] no error, remote=[127.0.0.1]:14215",
        r"loopback[\s\S]*getent hosts[\s\S]*GLOO_SOCKET_IFNAME", r"NCCL_DEBUG",
    ),
    "an address of another host": (
        "RuntimeError: Gloo connectFullMesh failed with [x/pair.cc:144] no error, remote=[10.0.0.7]:14215",
        r"GLOO_SOCKET_IFNAME", r"loopback|NCCL_DEBUG",
    ),
    "buffers that a card refuses": (
        "n1:318:3584 [5] misc/ibvwrap.cc:183 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
        r"NCCL_BUFFSIZE[\s\S]*if the limit is not", r"too low|--gpu-memory",
    ),
    "GPUs of one host of several": (
        "WARNING 12-16 19:14:46 [ray_utils.py:331] Tensor parallel size (16) exceeds available GPUs (8). This may result in Ray placement group allocation failures.\n"
        "(autoscaler +5s) Error: No available node types can fulfill resource request {'GPU': 1.0, 'node:10.0.0.5': 0.001}.",
        r"no node with the address", r"--tensor-parallel-size",
    ),
    "an index of a compiled kernel": (
        "/x/_inductor/runtime/compile_tasks.py:45: <module>: block: [3,0,0], thread: [1,0,0] Assertion `index out of bounds: 0 <= tmp10 < 4096` failed.",
        r"out-of-range index", r"xid|max-model-len",
    ),
    "an index beyond the config's positions": (
        "WARNING 05-09 17:02:11 [config.py:2756] User-specified max_model_len (32768) is greater than the derived max_model_len (max_position_embeddings=4096 or model_max_length=None in model's config.json).\n"
        "/x/_inductor/runtime/compile_tasks.py:45: <module>: block: [3,0,0], thread: [1,0,0] Assertion `index out of bounds: 0 <= tmp10 < 4096` failed.",
        r"--max-model-len 4096", r"xid|MAX_MODEL_LEN=1",
    ),
    "a port of the network, and the error after it": (
        "n2:311:405 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_2:1 Got async error event: port error\nRuntimeError: BAD_STATUS",
        r"an RDMA device[\s\S]*NCCL_IB_HCA", r"NCCL_DEBUG",
    ),
    "blocks that an accelerator has no memory for": (
        "torch._dynamo.exc.BackendCompilerFailed: backend='_rbln_backend' raised:\nRuntimeError: SYS_EBUSY: Lack of device memory. (code: -16)\n"
        "Not enough memory for 24 blocks of KV cache.\nTry reducing the number of blocks by setting --num-gpu-blocks-override.",
        r"--num-gpu-blocks-override", r"enforce-eager|nvidia-smi",
    ),
    "a worker's own error before its relay": (
        '(VllmWorker rank=3 pid=412) ERROR 06-26 00:04:52 [multiproc_executor.py:527] RuntimeError: size_k is odd\n'
        "ERROR 06-26 00:04:52 [core.py:517] RuntimeError: Worker failed with error 'size_k is odd', please check the stack trace above for the root cause",
        r"no rule matches", r"forwards its message",
    ),
    "pinned memory that the system refuses": (
        'Traceback (most recent call last):\n  File "/x/site-packages/flashinfer/decode.py", line 752, in __init__\n    self._pin_memory_int_workspace_buffer = torch.empty(\ntorch.AcceleratorError: CUDA error: OS call failed or operation not supported on this OS',
        r"could not be pinned[\s\S]*ulimit -l", r"flashinfer-python version is compatible|--gpu-memory",
    ),
    "state blocks are no length": (
        "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (600). Please lower max_num_seqs to at most 600 or increase gpu_memory_utilization.",
        r"--max-num-seqs 600", r"--max-model-len|maximum length",
    ),
    "a length that was short by another's memory": (
        "ValueError: To serve at least one request with the model's max seq len (8192), 2.0 GiB KV cache is needed, which is larger than the available KV cache memory (0.40 GiB). Based on the available memory, the estimated maximum model length is 1632.",
        r"start again unchanged", r"--max-model-len 1632|--tensor-parallel-size",
    ),
    "a large piece, in a phase that no line shows": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 5.00 GiB is free.",
        r"no line of this log shows in which phase", r"--max-num-batched-tokens|--max-model-len|--gpu-memory-utilization",
    ),
    "a large piece of the profiling run": (
        "INFO 02-26 10:00:00 [gpu_model_runner.py:1] Model loading took 14.9 GiB and 3.1 seconds\n"
        "ERROR 02-26 10:00:10 [core.py:300] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB.",
        r"--max-num-batched-tokens 2048", r"no line of this log shows",
    ),
    "a tokenizer of transformers 5": (
        "ValueError: Tokenizer class TokenizersBackend does not exist or is not currently imported.",
        r"transformers 5[\s\S]*tokenizer_class", r"chat.template",
    ),
    "a base model without template": (
        "ValueError: As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer does not define one.",
        r"--chat-template", r"transformers 5|tokenizer_class",
    ),
    "modules of an adapter": (
        "ValueError: base_model.model.lm_head.base_layer.weight is unsupported LoRA weight",  # vllm #32599
        r"target_modules", r"--max-lora-rank|--enable-lora",
    ),
    "FP8 on a card without": (
        "ValueError: type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')",  # vllm #18182
        r"not FP8", r"--dtype half",
    ),
    "bfloat16 on a card without": (
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5.",
        r"--dtype half", r"FP8|AWQ",
    ),
    "a package that is too new": (
        "ImportError: cannot import name 'ALLOWED_LAYER_TYPES' from 'transformers.configuration_utils'",  # vllm-metal #83
        r"requirements of the one that uses the name", r"pip install -U|--upgrade|does not find a package",
    ),
    "a package that is missing": (
        "ModuleNotFoundError: No module named 'flash_attn'", r"does not find a package", r"requirements of the one",
    ),
    "nvcc against its headers": (
        "RuntimeError: Ninja build failed. Ninja output:\nninja: Entering directory `/root/.cache/flashinfer/0.6.16/120f/cached_ops/sampling'\ncuda_toolkit.h:41:8: error: #error \"CUDA compiler and CUDA toolkit headers are incompatible\"\nninja: build stopped: subcommand failed.",
        r"same minor version[\s\S]*VLLM_USE_FLASHINFER_SAMPLER=0", r"--enforce-eager|VLLM_USE_DEEP_GEMM",
    ),
    "DeepGEMM's compiler": (
        "ERROR 04-27 19:04:42 [m.py:880]   File \"/x/vllm/utils/deep_gemm.py\", line 211, in fp8_gemm_nt\nERROR 04-27 19:04:42 [m.py:880] RuntimeError: Assertion error (csrc/apis/../jit/compiler.hpp:187): false and \"NVCC version should be >= 12.3\"",
        r"VLLM_USE_DEEP_GEMM=0", r"--enforce-eager|FLASHINFER_SAMPLER",
    ),
    "compiling with torch": (
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised: KeyError: 'x'", r"--enforce-eager", r"VLLM_USE_",
    ),
    "torch's compilation without a C compiler": (
        "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        r"build-essential", r"--enforce-eager",
    ),
    "unified memory": (
        "(EngineCore pid=1) ERROR 07-09 07:35:19 [core.py:1] ValueError: Free memory on device cuda:0 (61.3/121.69 GiB) on startup is less than desired GPU memory utilization (0.87, 105.87 GiB).",  # vllm #48140
        r"drop_caches", r"--gpu-memory-utilization 0\.49|vllm-watch gpus",
    ),
    "the hub's limit": (
        "RuntimeError: Data processing error: CAS service error : Error : single flight error: Real call failed: ReqwestError(reqwest::Error { kind: Status(429) }, \"https://transfer.xethub.hf.co/xorbs/default/99\")",  # huggingface_hub #3158
        r"wait a few minutes", r"check the repository's name|mount",
    ),
    "a flag that was dropped, of a release that is not known": (
        "vllm: error: unrecognized arguments: --disable-log-requests", r"drop --disable-log-requests[\s\S]*0\.16", r"pip install|[Dd]ownload",
    ),
    "a flag that this release dropped": (
        "INFO 04-17 09:00:00 [x.py:1] vLLM API server version 0.12.0\nvllm: error: unrecognized arguments: --num-scheduler-steps 8",
        r"drop --num-scheduler-steps: removed in vLLM 0\.1", r"pip install|spelling",
    ),
    "a flag that is misspelt": ("vllm: error: unrecognized arguments: --max-num-seq 4", r"use --max-num-seqs", r"drop|removed"),
    "a request's setting as a flag": (
        "vllm: error: unrecognized arguments: --temperature 0.8", r"request parameter", r"spelling|removed in",  # ramalama #758
    ),
    "a template that fails on a message": (
        "jinja2.exceptions.UndefinedError: 'dict object' has no attribute 'content'", r"failed on the messages", r"pip|of different times",
    ),
    "a name that does not exist": (
        "OSError: qwen/nope is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        r"check the repository's name", r"docker run -v",
    ),
    "killed by somebody": (
        "ERROR 10-21 15:37:40 x.py:120] Worker VllmWorkerProcess pid 7 died, exit code: -9", r"does not show by whom", r"raise the memory limit",
    ),
    "an actor of an earlier session": (
        "ray.exceptions.ActorHandleNotFoundError: ActorHandle objects are not valid across Ray sessions. It was created in job 1.",
        r"earlier error[\s\S]*show ray vllm", r"worker process died|ray status",
    ),
    "an actor that died": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.", r"Ray reported a failure", r"earlier Ray session|show ray vllm",
    ),
    "a port that vLLM chose": (
        QUEUE + 'zmq.error.ZMQError: Address already in use (addr=\'tcp://10.0.0.1:41001\')',
        r"VLLM_PORT", r"remains of an earlier|SIDE_CHANNEL|serve on another port",
    ),
    "a port that a user named": (
        QUEUE.replace("distributed/device_communicators/shm_broadcast", "distributed/kv_transfer/nixl_connector") + 'zmq.error.ZMQError: Address already in use (addr=\'tcp://10.0.0.1:5600\')',
        r"SIDE_CHANNEL_PORT", r"VLLM_PORT",
    ),
    "the devices of a stage": (
        "(Worker pid=5) ERROR 07-01 09:00:00 [m.py:9] AssertionError: DP adjusted local rank 1 is out of bounds for 1 devices.\n(StageEngineCoreProc_stage2_replica0 pid=4) INFO 07-01 09:00:00 [m.py:4] exit",
        r"needs 2 devices[\s\S]*size of the failed stage", r"nvidia-smi|CUDA_VISIBLE_DEVICES",
    ),
    "the devices of an engine": (
        "AssertionError: DP adjusted local rank 2 is out of bounds for 2 devices.", r"needs 3 devices[\s\S]*parallel size[\s\S]*nvidia-smi", r"of the failed stage",
    ),
    "a packed weight": (
        "AssertionError: Tried to load weights of size torch.Size([32768, 1])to a parameter of size torch.Size([512, 128])", r"4-bit form[\s\S]*unquantized", r"ls -lL|revision, and",
    ),
    "a packed weight of another loader": (
        "ValueError: Attempted to load weight (torch.Size([32768, 1])) into parameter (torch.Size([128, 512]))", r"4-bit form", r"ls -lL",
    ),
    "a weight of another shape": (
        "AssertionError: Tried to load weights of size torch.Size([65536, 1])to a parameter of size torch.Size([512, 128])", r"ls -lL", r"4-bit",
    ),
    "an installer that finds no version": (
        "  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no version of mylib==2.0+abc\n      and vllm==0.30.0 depends on mylib==2.0+abc, we can conclude that vllm==0.30.0 cannot be used.",
        r"installed nothing[\s\S]*index versions", r"no rule|nvidia-smi",
    ),
    "an error in a checkout of another package": (
        'Traceback (most recent call last):\n  File "/home/me/LMCache/lmcache/v1/store.py", line 6, in pick\n    raise LookupError("no store")\nLookupError: no store', r"pick \(lmcache/v1/store\.py\)[\s\S]*issues of lmcache", r"search vLLM's issues",
    ),
    "an error in a checkout of vLLM": (
        'Traceback (most recent call last):\n  File "/home/me/vLLM/vllm/v1/pick.py", line 6, in pick\n    raise LookupError("no store")\nLookupError: no store', r"pick \(vllm/v1/pick\.py\)[\s\S]*search vLLM's issues", r"issues of vllm and",
    ),
    "an attribute that torch did not find": (
        'Traceback (most recent call last):\n  File ".../model_executor/models/mine.py", line 6, in head\n    return self.head\n  File ".../torch/nn/modules/module.py", line 9, in __getattr__\nAttributeError: \'Mine\' object has no attribute \'head\'',
        r"head \(model_executor/models/mine\.py\): this model's implementation", r"__getattr__",
    ),
    "a package that imports a name": (
        'Traceback (most recent call last):\n  File "/x/site-packages/vllm_mine/runner.py", line 2, in <module>\n    from tools.cache import Box\nImportError: cannot import name \'Box\' from \'tools.cache\'',
        r"vllm_mine/runner\.py[\s\S]*show IMPORTER", r"that this vLLM requires",
    ),
    "vLLM that imports a name": (
        'Traceback (most recent call last):\n  File "/x/site-packages/vllm/runner.py", line 2, in <module>\n    from tools.cache import Box\nImportError: cannot import name \'Box\' from \'tools.cache\'',
        r"vllm/runner\.py[\s\S]*requirements of the one that uses the name", r"IMPORTER",
    ),
    "waking up": (
        "ERROR 02-26 10:00:00 [core.py:300]     create_and_map(handle)\nRuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
        r"sleep-mode allocator", r"--tensor-parallel-size|--enforce-eager|trainer",
    ),
}  # fmt: skip


def said(found: Diagnosis) -> str:
    """All that an operator reads."""
    fixes = "\n".join(f"{each.what} {each.command or ''}" for each in found.fixes)
    return f"{found.sentence}\n{found.explanation}\n{fixes}"


@pytest.mark.parametrize(("log", "must", "never"), PAIRS.values(), ids=PAIRS)
def test_what_fits_this_message(log, must, never):
    """What the message needs is said, and nothing of what its look-alike needs."""
    text = said(diagnose(log.encode()))
    assert re.search(must, text), text
    assert not re.search(never, text), text


def test_no_message_alone_is_advised_what_harms_its_look_alikes() -> None:
    """Of no example line, pasted alone, is what the table forbids among the things to do."""
    wrong = []
    for failure, lines in EXAMPLES.items():
        for line in lines:
            found = diagnose(line.encode())
            advice = "\n".join(f"{each.what} {each.command or ''}" for each in found.fixes)
            bad = re.search(NEVER.get(failure, r"(?!)"), advice)
            allowed = any(key in line and re.search(what, bad[0]) for key, what in ALLOWED.items()) if bad else False  # fmt: skip
            if bad and not allowed:
                wrong.append((failure, bad[0], line[:80]))
    assert wrong == []


CHANGES = re.compile(
    r"^(?:--|export |rm |apt|pip install|python -m pip install|[A-Z_]+=|docker run|sync)"
)


def changing(failure: Failure) -> list[Cure]:
    """Return the cures that change something."""
    every = (*failure.cures, *(each for variant in failure.variants for each in variant.cures))
    return [each for each in every if CHANGES.match(each.fix.command or "")]


@for_each(FAILURES)
def test_what_has_no_condition_only_looks(failure: Failure) -> None:
    """A variant's cures have its condition."""
    assert [each.fix.what for each in failure.cures if each.when.empty and not isinstance(each.fix, Check)] == []  # fmt: skip
    conditions = [each.when for each in failure.variants]
    assert [each for each in conditions if each.empty] == []


@for_each(FAILURES)
def test_no_cure_without_a_condition(failure: Failure) -> None:
    """What changes something says what must have been read for it; what only looks need not."""
    assert [each.fix for each in changing(failure) if each.when.empty] == []


def test_there_are_cures_with_conditions() -> None:
    """Else the test above could not fail."""
    assert sum(len(changing(each)) for each in FAILURES.values()) > 40
