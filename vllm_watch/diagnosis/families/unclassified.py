"""Errors without a class of their own: the meaning of known messages, and the part of the software that raised the others.

Sources: vllm/entrypoints, vllm/multimodal, vllm/utils of vLLM 0.10 to 0.32; tpu-inference; CPython's multiprocessing.
"""

import re

from vllm_watch.diagnosis.report import UNKNOWN, Fix
from vllm_watch.diagnosis.rule import Rank, Variant, cure, rule, when

RULES = (
    rule(UNKNOWN, "does not exist", pattern=r"[Tt]he model `[^`]{1,300}` does not exist", rank=Rank.REQUEST, quiet=True, heals=True),
    rule(UNKNOWN, "m vllm.", "'-m', 'vllm.", "raised in subprocess", pattern=r"CalledProcessError: Command '\['[^']{1,200}', '-m', 'vllm\.|Error raised in subprocess:", rank=Rank.SYMPTOM, header=True),
    rule(UNKNOWN, "tool choice requires", "t most ", "is not a multimodal model", pattern=r'"auto" tool choice requires --enable-auto-tool-choice|At most \d+ \w{1,20}(?:\(s\))? may be provided in one|is not a multimodal model', rank=Rank.REQUEST, quiet=True, heals=True),
)  # fmt: skip

_REQUEST = "One request was refused; the server works."

MEANINGS = (
    Variant(
        when=when(r"[Tt]he model `[^`]+` does not exist"),
        sentence="a client asked for a model name that this server does not serve",
        why=_REQUEST,
        cures=(cure("compare the client's name with those that are served", "curl -s http://HOST:8000/v1/models"), cure("use that name, or serve under the client's", "--served-model-name NAME", when(r"does not exist"))),
    ),
    Variant(
        when=when(r"tool choice requires --enable-auto-tool-choice"),
        sentence="a client asked for tool calls, and this server was started without them",
        why=_REQUEST,
        cures=(cure("start with both flags, and the parser of this model", "--enable-auto-tool-choice --tool-call-parser NAME", when(r"enable-auto-tool-choice")),),
    ),
    Variant(
        when=when(r"may be provided in one"),
        sentence="a request has more images, videos or sounds than this server allows",
        why=_REQUEST,
        cures=(cure("send fewer, or allow more (each takes memory)", "--limit-mm-per-prompt …", when(r"may be provided")),),
    ),
    Variant(
        when=when(r"is not a multimodal model"),
        sentence="a request has images, video or sound, and this model reads only text",
        why=_REQUEST,
        cures=(cure("send text only, or serve a model that reads them", None, when(r"multimodal")),),
    ),
    Variant(
        when=when(r"Mismatch in `\w+` token count|Failed to apply \w*Processor|(?:image|video|audio|multimodal)\w* (?:tokens|placeholders?)\b.{0,80}(?:do(?:es)? not match|mismatch|found)"),
        sentence="the images, video or sound of a request could not be turned into tokens",
        why="The model's processor failed on this input, or cut its tokens off; only this request fails, unless the log shows that it came while the server started.",
        cures=(cure("send fewer or smaller ones, or limit their size", "--mm-processor-kwargs '{\"max_pixels\": N}'", when(r"token count|tokens")), cure("see whether the versions of vLLM and Transformers are those that the model's page asks for", "python -m pip show vllm transformers")),
    ),
    Variant(
        when=when(r"\bUVA is not available"),
        sentence="the model runner needs pinned host memory that the GPU can address (UVA), and vLLM does not use any here",
        why="vLLM does not pin memory under WSL by default.",
        cures=(
            cure("under WSL, allow it", "VLLM_WSL2_ENABLE_PIN_MEMORY=1", when(r"UVA")),
            cure("or take the model runner that does without", "VLLM_USE_V2_MODEL_RUNNER=0", when(r"UVA")),
        ),
    ),
    Variant(
        when=when(r"(?i)(?:/dev/(?:vfio|accel)\S*|TPU).{0,120}(?:resource busy|already in use)"),
        sentence="another process holds the TPU",
        why="A TPU chip serves one process; the remains of an earlier server keep it.",
        cures=(cure("see which process holds it, and end it if nothing needs it", "lsof /dev/vfio/* /dev/accel*"),),
    ),
    Variant(
        when=when(r"memory space vmem"),
        sentence="a TPU kernel needs more of the chip's scratch memory (vmem) than there is",
        why="The TPU's main memory (HBM) is not full: the kernel's blocks are too large for this chip.",
        cures=(cure("try smaller shapes", "a smaller --max-model-len or --max-num-batched-tokens", when(r"vmem")), cure("search tpu-inference's issues for this kernel and chip")),
    ),
    Variant(
        when=when(r"Device' object has no attribute 'coords'"),
        sentence="JAX's devices here are no TPUs as tpu_inference expects them",
        why="A device without coordinates is a CPU, or of another JAX than tpu_inference was made for.",
        cures=(cure("see the devices and versions", "python -c 'import jax; print(jax.devices())'; python -m pip list | grep -i -E 'jax|libtpu|tpu'"),),
    ),
    Variant(
        when=when(r"Cannot re-initialize CUDA in forked subprocess"),
        sentence="CUDA was used in the parent process before vLLM forked its workers",
        why="A forked process cannot use CUDA again.",
        cures=(cure("start workers as new processes", "VLLM_WORKER_MULTIPROCESSING_METHOD=spawn", when(r"forked")), cure("in a script, use no CUDA before LLM(…)", None, when(r"forked"))),
    ),
    Variant(
        when=when(r"current process has finished its\s*$|bootstrapping phase|freeze_support\(\)"),
        sentence="the script starts vLLM outside `if __name__ == \"__main__\"`",
        why="Workers are started as new processes, which import the script again.",
        cures=(cure("put the code that makes LLM(…) under if __name__ == \"__main__\":", None, when(r"bootstrapping|finished its|freeze_support")),),
    ),
    Variant(
        when=when(r"Too many open files|\[Errno 24\]"),
        sentence="this process may not open more files",
        why="Each connection and each shard takes a file descriptor.",
        cures=(cure("see the limit and raise it (systemd: LimitNOFILE, docker: --ulimit nofile=…)", "ulimit -n", when(r"open files|Errno 24")),),
    ),
    Variant(
        when=when(r"can't start new thread|pthread_create failed|Resource temporarily unavailable|thread creation failed"),
        sentence="this process may not start more threads or processes",
        why="A limit of the user, the container or the pod (pids) is reached.",
        cures=(cure("see the limits (docker: --pids-limit, Kubernetes: the kubelet's podPidsLimit)", "ulimit -u; cat /sys/fs/cgroup/pids.max; cat /sys/fs/cgroup/pids.current"), cure("let each process start fewer threads", "OMP_NUM_THREADS=1", when(r"thread"))),
    ),
)  # fmt: skip

_AREAS = (
    (r"nixl|mooncake|lmcache|kv_transfer|kv_connector|/kv_offload", "the transfer or offload of KV (a KV connector)"),
    (r"/vllm/(?:multimodal|transformers_utils/processors)|mm_processor|preprocess", "the processing of images, video or sound"),
    (r"structured_output|xgrammar|llguidance|outlines", "structured output"),
    (r"spec_decode|eagle|medusa|draft_model|/mtp", "speculative decoding"),
    (r"/lora/|punica", "LoRA"),
    (r"/eplb", "the balancing of experts (EPLB)"),
    (r"tool_parser|reasoning_parser|/reasoning/", "the parser of tool calls or reasoning"),
    (r"layers/quantization|compressed_tensors", "the quantization"),
    (r"fused_moe|deep_ep|all2all", "the mixture of experts"),
    (r"/attention/|flash_attn|flashinfer", "attention"),
    (r"/vllm/compilation|torch/_(?:inductor|dynamo)", "torch.compile"),
    (r"model_loader|weight_utils", "the loading of weights"),
    (r"model_executor/models", "this model's implementation"),
    (r"transformers_utils|/transformers/|/vllm/config", "the reading of the model's config or of settings"),
    (r"/core/sched|kv_cache_manager|kv_cache_utils|block_pool", "the scheduler or the KV cache"),
    (r"/vllm/distributed|torch/distributed|parallel_state", "the communication between workers"),
    (r"/vllm/platforms", "the choice of the platform"),
    (r"/entrypoints/|serving_\w+\.py|api_server", "the API server"),
    (r"model_runner|gpu_worker|/v1/worker", "a step of the model, or its preparation"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), words) for pattern, words in _AREAS)
_PACKAGE = re.compile(r"(?:site|dist)-packages/([A-Za-z]\w{1,60})/(\S+) (\S+)")
_LOGGER = re.compile(r"\[([\w/]{1,80}\.py):\d+\]")
_BELOW = frozenset(("torch", "vllm", "asyncio", "uvloop", "pydantic", "numpy"))


def raised_in(frames: tuple[str, ...], line: str) -> tuple[str, tuple[Fix, ...]]:
    """Return a sentence on the place of an error, and the fixes that the place allows."""
    logger = _LOGGER.search(line)
    places = (*frames[:1], *(each for each in frames if "/vllm/" in each), *([logger[1]] if logger else ()))  # fmt: skip
    area = next((words for place in places for pattern, words in _COMPILED if pattern.search(place)), None)  # fmt: skip
    found = _PACKAGE.search(frames[0]) if frames else None
    said, fixes = [], []
    if found is not None:
        said.append(f"{found[3]} ({found[1]}/{found[2]}) raised it.")
        package = found[1]
        if package not in _BELOW:
            fixes.append(Fix(f"see whether {package} is of a version that goes with this vLLM, and search its issues for this message", f"python -m pip show {package} vllm"))  # fmt: skip
    if area is not None:
        said.append(f"It belongs to {area}.")
    if not fixes and (found is not None or area is not None):
        fixes.append(Fix("search vLLM's issues for this message, with the release"))
    return " ".join(said), tuple(fixes)
