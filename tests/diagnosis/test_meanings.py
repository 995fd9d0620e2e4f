"""Errors without a class: each known meaning has a message, and is given to no other's.

Messages as vLLM 0.10 to 0.32, PyTorch, JAX, Kubernetes and clients write them; those with a number are from public issues.
"""

import pytest

from tests.diagnosis.whole_log import diagnose
from vllm_watch.diagnosis.families.unclassified import MEANINGS
from vllm_watch.diagnosis.report import UNKNOWN

EXAMPLES: dict[str, str] = {
    "a worker looked up a layer that it does not have": "KeyError: 'language_model.model.layers.20.linear_attn'",
    "a value is not supported: the message names the supported ones and the one that it got": "ValueError: Currently, async scheduling only supports `mp` or `uni` distributed executor backend, but you choose `ray`.",
    "the message names a setting or feature, and the condition that it needs": "ValueError: limit_mm_per_prompt is only supported for multimodal models.",
    "the code does not implement a combination or feature; the message names it": "NotImplementedError: Hybrid models with more than one KV cache type are not supported yet.",
    "a check in compiled code failed: the line has the two values that it compared": "tvm.error.InternalError: Check failed: output.size(0) == tokens (84 vs. 83) : ",
    "a kernel stack has a call of the GPU driver": "[<0>] uvm_spin_loop+0xb4/0x100 [nvidia_uvm]",
    "a compiled operator was called with more arguments than its build accepts": 'RuntimeError: _vllm_fa2_C::varlen_fwd() expected at most 21 argument(s) but received 22 argument(s).',
    'a process waits for the lock file of a build that another process started or left behind': '(Worker_TP2) [aiter] waiting for baton release at /tmp/aiter_configs/tuned_fmoe.csv.lock',
    'this model has layers of several types and needs the hybrid KV cache manager, which is disabled': 'ValueError: Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one unified type.',
    'the environment has a variable that this vLLM does not read, and a setting rejects such variables': 'ValueError: Unknown vLLM environment variable detected: VLLM_OLD_SWITCH',
    "a file cannot be executed: it was built for another CPU architecture, or it is not a program (such as a script without a #! line)": 'exec /usr/bin/vllm: exec format error',
    'this process lacks permission to bind its memory to a NUMA node': 'mbind: Operation not permitted',
    'the program expected a number and read text': "ValueError: invalid literal for int() with base 10: '6.5'",
    'two sizes do not divide evenly: the message names both, and the first must be a multiple of the second': 'AssertionError: n_slots=130 must be divisible by ep_size=4',
    "a compiled kernel got an out-of-range index: the last number is the limit": "terminate called after throwing an instance of 'std::runtime_error'\n  what():  kernel, /tmp/x.cpp:12, index out of bounds: 0 <= tmp3 < 32000L",
    "the bytes of an image cannot be decoded as an image": 'PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f00>',
    'a program that vLLM or a library runs is not in PATH': 'Traceback (most recent call last):\n  File "/usr/lib/python3.12/subprocess.py", line 9, in _execute_child\nFileNotFoundError: [Errno 2] No such file or directory: \'ffmpeg\'',
    'host memory could not be pinned': 'Traceback (most recent call last):\n  File "/x/pool.py", line 12, in __init__\n    self.host = torch.empty(size, dtype=torch.uint8, pin_memory=True)\nRuntimeError: CUDA error: invalid argument',
    "a compiled library made a CUDA call that was rejected": 'CUDA error (/build/flash-attention/hopper/flash_fwd_launch_template.h:166): invalid argument',
    "an operation that is not allowed during CUDA graph capture was called, such as the first load of a kernel": 'RuntimeError: Triton Error [CUDA]: operation not permitted when stream is capturing',
    "a Gaudi module could not be acquired": 'RuntimeError: synStatus=8 [Device not found] Device acquire failed.',
    "an image, video or audio could not be fetched from its URL": 'Traceback (most recent call last):\n  File "/x/vllm/multimodal/media/connector.py", line 150, in load_from_url_async\n  File "/x/vllm/connections.py", line 93, in async_get_bytes\naiohttp.client_exceptions.ClientResponseError: 403, message=\'Forbidden\', url=\'https://x.test/a.png\'',
    "the loaded cuDNN is not the one that this PyTorch was built with": 'RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 10, 2) but found runtime version (9, 8, 0). Looks like your LD_LIBRARY_PATH contains incompatible version of cudnn.',
    'a client requested a model name that this server does not serve': "ERROR 03-18 09:02:03 [serving_chat.py:133] Error with model object='error' message='The model `QwQ` does not exist.' type='NotFoundError' param=None code=404",
    'a client requested tool calls, and this server was started without them': 'ERROR 05-05 10:00:00 [serving_chat.py:9] Error in preprocessing: "auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    'a request has more images, videos or audio inputs than this server allows': 'ValueError: At most 1 image(s) may be provided in one prompt.',
    'a request has images, video or audio, and this model accepts only text': 'ValueError: /models/x is not a multimodal model',
    "images, video or audio could not be converted to tokens": "(APIServer pid=1) ERROR 09-01 10:10:10 [serving.py:311] ValueError: Failed to apply Qwen2VLProcessor on data={'text': '...', 'images': [...]} with kwargs={}",
    "a prompt has another number of image, video or audio placeholders than of embeddings": 'ERROR 08-01 10:00:00 [core.py:515] ValueError: Attempted to assign 120 = 120 multimodal tokens to 121 placeholders',
    'Docker does not know the requested runtime, so the container was not started': 'docker: Error response from daemon: unknown or invalid runtime name: nvidia.',
    "the model's output could not be parsed as a tool call": '(APIServer pid=1) ERROR 09-01 10:10:10 [hermes_tool_parser.py:120] Error in extracting tool call from response.',
    'a host name could not be resolved': 'httpx.ConnectError: [Errno -3] Temporary failure in name resolution',
    "this host (or container) does not have the address that a socket must use": 'OSError: [Errno 99] Cannot assign requested address',
    "a container image could not be pulled, so its container did not start": 'Error: ErrImagePull: manifest for vllm/vllm-openai:v0.99 not found',
    "the pod was not scheduled: the line has the reasons, and one is that a node has too few free GPUs": 'Warning  FailedScheduling  2m  default-scheduler  0/5 nodes are available: 5 Insufficient nvidia.com/gpu. preemption: 0/5 nodes are available',
    "a volume of the pod could not be mounted, and its containers start only with it": 'Warning  FailedMount  2m  kubelet  MountVolume.SetUp failed for volume "model-pvc" : rpc error: timed out waiting for the condition',
    'a process is blocked in the kernel (uninterruptible wait)': '[ 5454.123456] INFO: task VLLM::Worker:1234 blocked for more than 122 seconds.',
    "a client reports that its connection to a server failed": 'openai.APIConnectionError: Connection error.',
    'the shell finds no vllm in the directories of PATH': 'bash: vllm: command not found',
    'the container could not be started; vLLM did not run': "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'",
    "the processor (of images, video or audio) lacks an attribute that other code uses": "AttributeError: 'Qwen3VLProcessor' object has no attribute '_get_num_multimodal_tokens'",
    'a worker failed, and this line only forwards its message': "RuntimeError: Worker failed with error 'Expected a size', please check the stack trace above",
    "the GPU runtime reported an error, and this line only explains it": '(EngineCore pid=168) ERROR 06-23 15:08:34 [core.py:1138] CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.',
    "requests failed with a server error (500), and no error line in this log gives the reason": '(APIServer pid=1) INFO:     10.0.0.1:5555 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',
    "a gpt-oss model's output did not follow its format (Harmony), and the parser rejected it": '(APIServer pid=1) ERROR 09-01 10:10:10 [serving_chat.py:257] openai_harmony.HarmonyError: Unexpected token 200002 while expecting start token 200006',
    "the gpt-oss vocabulary (Harmony) could not be downloaded or loaded": 'openai_harmony.HarmonyError: error downloading or loading vocab file: failed to download or load vocab file',
    "a variable that must be a number has an address, as Kubernetes sets it for each Service (VLLM_PORT for one named vllm)": "ValueError: invalid literal for int() with base 10: 'tcp://10.0.0.1:8000'",
    "this vLLM does not know the connector that a transfer setting (such as --kv-transfer-config) names": 'ValueError: Unsupported connector type: LMCacheConnectorV1',
    "asynchronous scheduling is incompatible with this model, this platform or another setting; the message names it": 'ValueError: Currently, async scheduling is only supported with EAGLE/MTP/Draft Model kind of speculative decoding',
    "speculative decoding, or one of its settings, is incompatible with this model, this draft model or another setting; the message names it": 'ValueError: Speculative decoding with draft model is not supported yet. Please consider using other speculative decoding methods such as ngram, medusa, eagle, or mtp.',
    'expert load balancing (EPLB) is incompatible with this model or these settings': 'ValueError: num_redundant_experts is only supported with EPLB enabled',
    "a call for memory that the GPUs share (symmetric memory, multicast) failed": '(Worker_TP0 pid=12) ERROR 07-11 10:00:00 [multiproc_executor.py:822] RuntimeError: [SymmDeviceMemory] Device does not support multicasting.',
    "the TPU ran out of memory (HBM)": 'jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 2.00G. That was not possible. There are 1.10G free.; (0x0x0_HBM0)',
    "the device in the message (TPU or other accelerator) is already in use": 'jaxlib._jax.XlaRuntimeError: UNKNOWN: TPU initialization failed: open(/dev/vfio/1): Device or resource busy',
    'JAX could not use the TPU': "RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: Failed to get global TPU topology.",
    "the GPUs cannot map each other's memory (P2P), and a call requested it": "RuntimeError: CUDA error: peer access is not supported between these two devices",
    "the probabilities of the next token contain NaN, infinity or a negative number, so no token could be sampled": "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
    "a NaN or infinite value was to be sent as JSON, which cannot represent it": "ValueError: Out of range float values are not JSON compliant: nan",
    "an operation got tensors on two devices; the message names them": "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "the disk that holds Ray's session directory is nearly full": "(raylet) file_system_monitor.cc:111: /tmp/ray/session is over 95% full, available space: 12.3 GB; capacity: 500 GB. Object creation will fail if spilling is required.",
    "a GPU runtime or driver call failed or was rejected": 'torch.AcceleratorError: CUDA error: operation not supported',
    'a vLLM environment variable has a value that this release does not accept': "ValueError: Invalid value 'FLASHINFER_MLAX' for VLLM_ATTENTION_BACKEND. Valid options: ['FLASH_ATTN', ...]",
    "--max-num-batched-tokens is smaller than the block size in the message": 'AssertionError: In Mamba cache align mode, block_size (528) must be <= max_num_batched_tokens (512).',
    "the block or page size of the KV cache does not suit this model's layers or the attention backend": '(EngineCore pid=1) ERROR 01-01 10:10:10 [core.py:866] ValueError: Block size 16 is not supported by the attention backend FLASHMLA',
    "context parallelism, or its size, is incompatible with this model, the attention backend or another setting": 'AssertionError: DCP not support reorder_batch_threshold > 1 now.',
    "this device or platform does not support a feature; the message names it": 'ValueError: Sparse MLA attention is not supported on compute capability 12.0',
    "a tensor has another size than an operation needs": 'RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 1 but got size 2 for tensor number 1 in the list.',
    "a shared memory segment of Python processes is gone (or left over)": "FileExistsError: [Errno 17] File exists: '/psm_12345'",
    'a connection was refused: no process listens at the other end': 'ConnectionRefusedError: [Errno 111] Connection refused',
    "the other end of a pipe or connection was closed": 'BrokenPipeError: [Errno 32] Broken pipe',
    "the system reported an input/output error or a stale file handle": 'OSError: [Errno 5] Input/output error',
    "a list of visible devices has UUIDs, and the code expects numbers": "ValueError: invalid literal for int() with base 10: 'GPU-1b2c3d4e'",
    "object storage could not be used": 'botocore.exceptions.NoCredentialsError: Unable to locate credentials',
    "a call of cuBLAS or cuDNN failed": 'RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED',
    "a compiled kernel (CUTLASS, GEMM or TMA) rejected its call": 'RuntimeError: cutlass_scaled_mm: Error Internal',
    "a call to the Intel GPU's runtime (SYCL, Level Zero) failed": 'RuntimeError: level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)',
    "the encoder cache does not have an image, video or audio input that a request needs": "AssertionError: Encoder cache miss for 1a2b.",
    "the multimodal processor caches of the server's processes disagree": "AssertionError: Expected a cached item for mm_hash='1a2b'",
    "the tokenizer lacks the tokens that the configured tool call or reasoning parser needs": 'RuntimeError: Gemma4ReasoningParser reasoning parser could not locate think start/end tokens in the tokenizer!',
    "vLLM needs pinned host memory that the GPU can address (UVA), and does not use pinned memory here": 'RuntimeError: UVA is not available',
    "a TPU kernel needs more of the chip's scratch memory (VMEM) than is available": 'RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space vmem. Used 32.42M of 16.00M vmem.',
    "a JAX device has no coordinates, so it is not a TPU as tpu_inference expects it": "AttributeError: 'jaxlib._jax.Device' object has no attribute 'coords'",
    "the parent process used CUDA before it forked this one": "ERROR 05-05 10:00:00 [core.py:866] RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
    'the script starts vLLM outside `if __name__ == "__main__"`': '        An attempt has been made to start a new process before the\n        current process has finished its bootstrapping phase.\nRuntimeError: \n        An attempt has been made to start a new process before the current process has finished its bootstrapping phase',
    "a server rejected one request (4xx)": '{"error": {"message": "There is no such file.", "type": "NotFoundError", "code": 404}}',
    'requests without a body were rejected (4xx): their client requested another protocol, usually HTTP/2': '(APIServer pid=1) WARNING:  Unsupported upgrade request.\n{"error":{"message":"1 error: {\'loc\': (\'body\',), \'msg\': \'Field required\'}","code":400}}',
    "the process at the other end (remote in the line) closed its connection": '[rank3]:[W111 00:54:10.9 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=9, addr=[::ffff:10.0.0.2]:38760, remote=[::ffff:10.0.0.1]:42643): Failed to recv, got 0 bytes',
    "a command of the container runtime failed": "docker: Error response from daemon: could not select a device driver",
    "two settings or features are incompatible; the message names them and the change to make": "ValueError: MODE.A is not supported with CutlassXBuilder; please use mode=B",
    "a function was called with arguments that it does not accept": "TypeError: check_grammar() missing 1 required positional argument: 'text'",
    'this process reached its limit of open files': 'OSError: [Errno 24] Too many open files',
    'this process cannot start more threads or processes': "RuntimeError: can't start new thread",
}  # fmt: skip

LOOK_ALIKES = {
    "ValueError: The tokenizer of the draft and the target must match": "a tensor has another size than an operation needs",
    'INFO 05-05 10:00:00 [x.py:1] {"message": "ok", "code": 200}': "a server rejected one request (4xx)",
    "[rank3]:[W111 00:54:10.9 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=9, addr=[localhost]:38760, remote=[localhost]:42643): failed to recv, got 0 bytes": "the process at the other end (remote in the line) closed its connection",
    '{"error":{"message":"1 error: {\'loc\': (\'body\',), \'msg\': \'Field required\'}","code":400}}': "requests without a body were rejected (4xx): their client requested another protocol, usually HTTP/2",
    "Error: the daemon is not running": "a command of the container runtime failed",
    "ValueError: fp8 is not supported with this layer": "two settings or features are incompatible; the message names them and the change to make",
    "TypeError: unsupported operand type(s) for +: 'int' and 'str'": "a function was called with arguments that it does not accept",
    "ValueError: the base 10 of these numbers": "the program expected a number and read text",
    "ValueError: EPLB needs num_redundant_experts=2, and (130 + 2) must be divisible by ep_size=4": "expert load balancing (EPLB) is incompatible with this model or these settings",
    "ValueError: the batch must be divisible by the group": "two sizes do not divide evenly: the message names both, and the first must be a multiple of the second",
    "IndexError: index out of bounds: 5": "a compiled kernel got an out-of-range index: the last number is the limit",
    "AttributeError: module 'PIL.Image' has no attribute 'ANTIALIAS'": "the bytes of an image cannot be decoded as an image",
    "libnrt: failed to open /sys/neuron: Device or resource busy": "the device in the message (TPU or other accelerator) is already in use",
    "RuntimeError: CUDA error: invalid argument": "host memory could not be pinned",
    "RuntimeError: operation not permitted on a stream": "an operation that is not allowed during CUDA graph capture was called, such as the first load of a kernel",
    "PIL.UnidentifiedImageError: cannot identify image file": "an image, video or audio could not be fetched from its URL",
    "RuntimeError: Gemma4 has no such layer": "a compiled kernel (CUTLASS, GEMM or TMA) rejected its call",
    "zmq.error.Again: Resource temporarily unavailable": "this process cannot start more threads or processes",
    "INFO 05-05 10:00:00 [x.py:1] speculative decoding must be fast": "speculative decoding, or one of its settings, is incompatible with this model, this draft model or another setting; the message names it",
    "RuntimeError: the tokens of the tokenizer are odd": "images, video or audio could not be converted to tokens",
    "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'": "a program that vLLM or a library runs is not in PATH",
    "ValueError: invalid literal for int() with base 10: 'eight'": "a variable that must be a number has an address, as Kubernetes sets it for each Service (VLLM_PORT for one named vllm)",
}  # fmt: skip


@pytest.mark.parametrize(("sentence", "line"), EXAMPLES.items(), ids=EXAMPLES)
def test_a_message_has_its_meaning(sentence: str, line: str) -> None:
    """Sentence and a next step, and a class is not claimed."""
    found = diagnose(line.encode())
    assert (found.failure, found.sentence) == (UNKNOWN, sentence)
    assert found.fixes


@pytest.mark.parametrize(("line", "sentence"), LOOK_ALIKES.items(), ids=LOOK_ALIKES)
def test_a_look_alike_has_another(line: str, sentence: str) -> None:
    """A message that shares words with another."""
    assert diagnose(line.encode()).sentence != sentence


def test_every_meaning_has_a_message() -> None:
    """Each meaning has a message that it fits."""
    assert {each.sentence for each in MEANINGS} == set(EXAMPLES)
