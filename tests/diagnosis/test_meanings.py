"""Errors without a class: each known meaning has a message, and is given to no other's.

Messages as vLLM 0.10 to 0.32, PyTorch, JAX, Kubernetes and clients write them; those with a number are from public issues.
"""

import pytest

from tests.diagnosis.whole_log import diagnose
from vllm_watch.diagnosis.families.unclassified import MEANINGS
from vllm_watch.diagnosis.report import UNKNOWN

EXAMPLES: dict[str, str] = {
    "a worker looked up a layer that it does not have": "KeyError: 'language_model.model.layers.20.linear_attn'",
    "two settings do not go together: the message names the value that one needs, and the value that it got": "ValueError: Currently, async scheduling only supports `mp` or `uni` distributed executor backend, but you choose `ray`.",
    "a setting was given that goes only with another model, platform or setting; the message names it": "ValueError: limit_mm_per_prompt is only supported for multimodal models.",
    "this release has not implemented a combination that the model or the settings ask for; the message names it": "NotImplementedError: Hybrid models with more than one KV cache type are not supported yet.",
    "the code around a compiled kernel checked its arguments, and two values differ": "tvm.error.InternalError: Check failed: output.size(0) == tokens (84 vs. 83) : ",
    "a process is inside a call of the GPU's driver": "[<0>] uvm_spin_loop+0xb4/0x100 [nvidia_uvm]",
    'a compiled extension and the Python code that calls it are of different builds': 'RuntimeError: _vllm_fa2_C::varlen_fwd() expected at most 21 argument(s) but received 22 argument(s).',
    'a process waits for the lock file of a build that another process began or left behind': '(Worker_TP2) [aiter] waiting for baton release at /tmp/aiter_configs/tuned_fmoe.csv.lock',
    'this model has layers of several kinds and needs the hybrid KV cache manager, which is off': 'ValueError: Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one unified type.',
    'the environment has a variable that this vLLM does not read, and a setting refuses such variables': 'ValueError: Unknown vLLM environment variable detected: VLLM_OLD_SWITCH',
    'the program was built for another kind of processor than this machine has, so it did not start': 'exec /usr/bin/vllm: exec format error',
    'this process may not bind its memory to a NUMA node': 'mbind: Operation not permitted',
    'a text stands where vLLM reads a number': "ValueError: invalid literal for int() with base 10: '6.5'",
    'two sizes do not fit each other: the message names both, and the first must be a multiple of the second': 'AssertionError: n_slots=130 must be divisible by ep_size=4',
    'a compiled kernel got an index that is out of range: the last number is the size of its table': "terminate called after throwing an instance of 'std::runtime_error'\n  what():  kernel, /tmp/x.cpp:12, index out of bounds: 0 <= tmp3 < 32000L",
    'the bytes that a request sent as an image are not an image that can be read': 'PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f00>',
    'a program that vLLM or a library starts is not in PATH': 'Traceback (most recent call last):\n  File "/usr/lib/python3.12/subprocess.py", line 9, in _execute_child\nFileNotFoundError: [Errno 2] No such file or directory: \'ffmpeg\'',
    'host memory could not be pinned': 'Traceback (most recent call last):\n  File "/x/pool.py", line 12, in __init__\n    self.host = torch.empty(size, dtype=torch.uint8, pin_memory=True)\nRuntimeError: CUDA error: invalid argument',
    'a compiled kernel library could not run its kernel on this GPU': 'CUDA error (/build/flash-attention/hopper/flash_fwd_launch_template.h:166): invalid argument',
    'a kernel did something that is not allowed while CUDA graphs are captured, such as being loaded for the first time': 'RuntimeError: Triton Error [CUDA]: operation not permitted when stream is capturing',
    'a Gaudi module could not be acquired; usually another process holds it': 'RuntimeError: synStatus=8 [Device not found] Device acquire failed.',
    'an image, video or sound of a request could not be fetched from its address': 'Traceback (most recent call last):\n  File "/x/vllm/multimodal/media/connector.py", line 150, in load_from_url_async\n  File "/x/vllm/connections.py", line 93, in async_get_bytes\naiohttp.client_exceptions.ClientResponseError: 403, message=\'Forbidden\', url=\'https://x.test/a.png\'',
    'another cuDNN is loaded than the one that came with this PyTorch': 'RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 10, 2) but found runtime version (9, 8, 0). Looks like your LD_LIBRARY_PATH contains incompatible version of cudnn.',
    'a client asked for a model name that this server does not serve': "ERROR 03-18 09:02:03 [serving_chat.py:133] Error with model object='error' message='The model `QwQ` does not exist.' type='NotFoundError' param=None code=404",
    'a client asked for tool calls, and this server was started without them': 'ERROR 05-05 10:00:00 [serving_chat.py:9] Error in preprocessing: "auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    'a request has more images, videos or sounds than this server allows': 'ValueError: At most 1 image(s) may be provided in one prompt.',
    'a request has images, video or sound, and this model reads only text': 'ValueError: /models/x is not a multimodal model',
    'the images, video or sound of a request could not be turned into tokens': "(APIServer pid=1) ERROR 09-01 10:10:10 [serving.py:311] ValueError: Failed to apply Qwen2VLProcessor on data={'text': '...', 'images': [...]} with kwargs={}",
    'a request has another number of placeholders for images, video or sound in its prompt than of embeddings': 'ERROR 08-01 10:00:00 [core.py:515] ValueError: Attempted to assign 120 = 120 multimodal tokens to 121 placeholders',
    'Docker does not know the runtime that was named, so the container was not started': 'docker: Error response from daemon: unknown or invalid runtime name: nvidia.',
    "the model's output could not be read as a tool call": '(APIServer pid=1) ERROR 09-01 10:10:10 [hermes_tool_parser.py:120] Error in extracting tool call from response.',
    'a host name could not be resolved': 'httpx.ConnectError: [Errno -3] Temporary failure in name resolution',
    'an address was named that this host (or container) does not have': 'OSError: [Errno 99] Cannot assign requested address',
    "the container's image could not be pulled, so vLLM did not start": 'Error: ErrImagePull: manifest for vllm/vllm-openai:v0.99 not found',
    'no node has as many free GPUs as the pod asks for, so it was not started': 'Warning  FailedScheduling  2m  default-scheduler  0/5 nodes are available: 5 Insufficient nvidia.com/gpu. preemption: 0/5 nodes are available',
    'a volume of the pod could not be mounted, so vLLM did not start': 'Warning  FailedMount  2m  kubelet  MountVolume.SetUp failed for volume "model-pvc" : rpc error: timed out waiting for the condition',
    'a process waits in the kernel and does not come back': '[ 5454.123456] INFO: task VLLM::Worker:1234 blocked for more than 122 seconds.',
    'a client could not connect: nothing listens at the address that it was given': 'openai.APIConnectionError: Connection error.',
    'the shell does not find vllm': 'bash: vllm: command not found',
    'the container could not be started; vLLM did not run': "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'",
    "the model's processor (images, sound) lacks a part that this vLLM uses": "AttributeError: 'Qwen3VLProcessor' object has no attribute '_get_num_multimodal_tokens'",
    'a worker failed, and this line only passes its message on': "RuntimeError: Worker failed with error 'Expected a size', please check the stack trace above",
    "the GPU's runtime reported an error, and the line that names it is not in this log": '(EngineCore pid=168) ERROR 06-23 15:08:34 [core.py:1138] CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.',
    'requests were answered with an error of the server (500); the reason is not in this log': '(APIServer pid=1) INFO:     10.0.0.1:5555 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',
    'the output of a gpt-oss model did not follow its format (Harmony), and its parser refused it': '(APIServer pid=1) ERROR 09-01 10:10:10 [serving_chat.py:257] openai_harmony.HarmonyError: Unexpected token 200002 while expecting start token 200006',
    'the vocabulary of gpt-oss (Harmony) could not be downloaded, and is not in the cache': 'openai_harmony.HarmonyError: error downloading or loading vocab file: failed to download or load vocab file',
    'Kubernetes set VLLM_PORT to an address, because a Service is called vllm': "ValueError: invalid literal for int() with base 10: 'tcp://10.0.0.1:8000'",
    'this vLLM does not know the KV connector that --kv-transfer-config names': 'ValueError: Unsupported connector type: LMCacheConnectorV1',
    'asynchronous scheduling does not work with another setting of this server': 'ValueError: Currently, async scheduling is only supported with EAGLE/MTP/Draft Model kind of speculative decoding',
    'speculative decoding does not work with this model, this draft model or another setting': 'ValueError: Speculative decoding with draft model is not supported yet. Please consider using other speculative decoding methods such as ngram, medusa, eagle, or mtp.',
    'the balancing of experts (EPLB) does not work with this model or these settings': 'ValueError: num_redundant_experts is only supported with EPLB enabled',
    'the GPUs could not share memory for fast all-reduce (symmetric memory, multicast)': '(Worker_TP0 pid=12) ERROR 07-11 10:00:00 [multiproc_executor.py:822] RuntimeError: [SymmDeviceMemory] Device does not support multicasting.',
    "the TPU's memory (HBM) ran out": 'jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 2.00G. That was not possible. There are 1.10G free.; (0x0x0_HBM0)',
    'another process holds the device (TPU or other accelerator)': 'jaxlib._jax.XlaRuntimeError: UNKNOWN: TPU initialization failed: open(/dev/vfio/1): Device or resource busy',
    'JAX could not use the TPU': "RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: Failed to get global TPU topology.",
    "the GPUs cannot access each other's memory directly (P2P), and a call asked for it": "RuntimeError: CUDA error: peer access is not supported between these two devices",
    "the model's output had values that are no numbers (NaN or infinity), so no token could be chosen": "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
    "an answer has a value that is NaN or infinite, which JSON cannot express": "ValueError: Out of range float values are not JSON compliant: nan",
    "a step mixed tensors of two devices (two GPUs, or a GPU and the CPU)": "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "the disk that holds Ray's session is nearly full": "(raylet) file_system_monitor.cc:111: /tmp/ray/session is over 95% full, available space: 12.3 GB; capacity: 500 GB. Object creation will fail if spilling is required.",
    "a call of the GPU's runtime or driver failed or was refused": 'torch.AcceleratorError: CUDA error: operation not supported',
    'an environment variable of vLLM has a value that this release does not take': "ValueError: Invalid value 'FLASHINFER_MLAX' for VLLM_ATTENTION_BACKEND. Valid options: ['FLASH_ATTN', ...]",
    "--max-num-batched-tokens is smaller than a block of this hybrid model's state cache": 'AssertionError: In Mamba cache align mode, block_size (528) must be <= max_num_batched_tokens (512).',
    "the KV caches of this model's layers cannot be laid out in common blocks with these settings": '(EngineCore pid=1) ERROR 01-01 10:10:10 [core.py:866] ValueError: Block size 16 is not supported by the attention backend FLASHMLA',
    'context parallelism does not work with this model or another setting': 'AssertionError: DCP not support reorder_batch_threshold > 1 now.',
    "this GPU's generation does not have a feature that was asked for; the message names it": 'ValueError: Sparse MLA attention is not supported on compute capability 12.0',
    'two tensors have sizes that do not fit each other': 'RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 1 but got size 2 for tensor number 1 in the list.',
    "a piece of shared memory between vLLM's processes is gone (or left from before)": "FileExistsError: [Errno 17] File exists: '/psm_12345'",
    'a connection was refused: nothing listens at the other end': 'ConnectionRefusedError: [Errno 111] Connection refused',
    'the process at the other end of a pipe or connection is gone': 'BrokenPipeError: [Errno 32] Broken pipe',
    'a disk or a network file system failed': 'OSError: [Errno 5] Input/output error',
    'CUDA_VISIBLE_DEVICES names GPUs by UUID, and this release reads numbers there': "ValueError: invalid literal for int() with base 10: 'GPU-1b2c3d4e'",
    'the weights could not be read from object storage': 'botocore.exceptions.NoCredentialsError: Unable to locate credentials',
    'cuBLAS or cuDNN refused a call': 'RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED',
    'a kernel for matrices could not run on this GPU': 'RuntimeError: cutlass_scaled_mm: Error Internal',
    "the Intel GPU's runtime (Level Zero) failed a call": 'RuntimeError: level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)',
    "the caches of processed images, video or sound in the server's processes disagree": "AssertionError: Expected a cached item for mm_hash='1a2b'",
    'the parser of tool calls or reasoning that was named is not for this model: the tokenizer lacks its tokens': 'RuntimeError: Gemma4ReasoningParser reasoning parser could not locate think start/end tokens in the tokenizer!',
    'the model runner needs pinned host memory that the GPU can address (UVA), and vLLM does not use any here': 'RuntimeError: UVA is not available',
    "a TPU kernel needs more of the chip's scratch memory (vmem) than there is": 'RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space vmem. Used 32.42M of 16.00M vmem.',
    "JAX's devices here are no TPUs as tpu_inference expects them": "AttributeError: 'jaxlib._jax.Device' object has no attribute 'coords'",
    'CUDA was used in the parent process before vLLM forked its workers': "ERROR 05-05 10:00:00 [core.py:866] RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
    'the script starts vLLM outside `if __name__ == "__main__"`': '        An attempt has been made to start a new process before the\n        current process has finished its bootstrapping phase.\nRuntimeError: \n        An attempt has been made to start a new process before the current process has finished its bootstrapping phase',
    'the server refused one request (4xx), and lives on': '{"error": {"message": "There is no such file.", "type": "NotFoundError", "code": 404}}',
    'requests without a body were refused (4xx): their client asked for another protocol, usually HTTP/2': '(APIServer pid=1) WARNING:  Unsupported upgrade request.\n{"error":{"message":"1 error: {\'loc\': (\'body\',), \'msg\': \'Field required\'}","code":400}}',
    'a process on another host closed its connection': '[rank3]:[W111 00:54:10.9 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=9, addr=[::ffff:10.0.0.2]:38760, remote=[::ffff:10.0.0.1]:42643): Failed to recv, got 0 bytes',
    'the container runtime refused a command': "docker: Error response from daemon: could not select a device driver",
    'a setting was refused, because it does not go with another setting or with the backend that is named with it': "ValueError: MODE.A is not supported with CutlassXBuilder; please use mode=B",
    'a function was called with other arguments than the installed version of it has': "TypeError: check_grammar() missing 1 required positional argument: 'text'",
    'this process may not open more files': 'OSError: [Errno 24] Too many open files',
    'this process may not start more threads or processes': "RuntimeError: can't start new thread",
}  # fmt: skip

LOOK_ALIKES = {
    "ValueError: The tokenizer of the draft and the target must match": "two tensors have sizes that do not fit each other",
    'INFO 05-05 10:00:00 [x.py:1] {"message": "ok", "code": 200}': "the server refused one request (4xx), and lives on",
    "[rank3]:[W111 00:54:10.9 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=9, addr=[localhost]:38760, remote=[localhost]:42643): failed to recv, got 0 bytes": "a process on another host closed its connection",
    '{"error":{"message":"1 error: {\'loc\': (\'body\',), \'msg\': \'Field required\'}","code":400}}': "requests without a body were refused (4xx): their client asked for another protocol, usually HTTP/2",
    "Error: the daemon is not running": "the container runtime refused a command",
    "ValueError: fp8 is not supported with this layer": "a setting was refused, because it does not go with another setting or with the backend that is named with it",
    "TypeError: unsupported operand type(s) for +: 'int' and 'str'": "a function was called with other arguments than the installed version of it has",
    "ValueError: the base 10 of these numbers": "a text stands where vLLM reads a number",
    "ValueError: EPLB needs num_redundant_experts=2, and (130 + 2) must be divisible by ep_size=4": "the balancing of experts (EPLB) does not work with this model or these settings",
    "ValueError: the batch must be divisible by the group": "two sizes do not fit each other: the message names both, and the first must be a multiple of the second",
    "IndexError: index out of bounds: 5": "a compiled kernel got an index that is out of range: the last number is the size of its table",
    "AttributeError: module 'PIL.Image' has no attribute 'ANTIALIAS'": "the bytes that a request sent as an image are not an image that can be read",
    "libnrt: failed to open /sys/neuron: Device or resource busy": "another process holds the device (TPU or other accelerator)",
    "RuntimeError: CUDA error: invalid argument": "host memory could not be pinned",
    "RuntimeError: operation not permitted on a stream": "a kernel did something that is not allowed while CUDA graphs are captured, such as being loaded for the first time",
    "PIL.UnidentifiedImageError: cannot identify image file": "an image, video or sound of a request could not be fetched from its address",
    "RuntimeError: Gemma4 has no such layer": "a kernel for matrices could not run on this GPU",
    "zmq.error.Again: Resource temporarily unavailable": "this process may not start more threads or processes",
    "INFO 05-05 10:00:00 [x.py:1] speculative decoding must be fast": "speculative decoding does not work with this model, this draft model or another setting",
    "RuntimeError: the tokens of the tokenizer are odd": "the images, video or sound of a request could not be turned into tokens",
    "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'": "a program that vLLM or a library starts is not in PATH",
    "ValueError: invalid literal for int() with base 10: 'eight'": "Kubernetes set VLLM_PORT to an address, because a Service is called vllm",
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
