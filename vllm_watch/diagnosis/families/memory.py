"""GPU memory: the KV cache does not fit, the weights do not, or another process holds it; and host memory."""

from vllm_watch.diagnosis.families import memory_numbers
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Failure, Rank, rule

KV = "kv_cache_too_small"
LOADING = "oom_loading_weights"
PROFILING = "oom_kv_alloc_or_profiling"
CAPTURE = "oom_cuda_graph_capture"
RUNTIME = "oom_runtime"
OCCUPIED = "gpu_occupied_by_other_process"
HOST = "cpu_ram_oom_killed"
SWAP = "swap_space_too_large"

OOM = "out_of_memory"
"""Not a class: an out-of-memory error whose phase is still to be found (`phases.py`)."""

RULES = (
    rule(KV, "max seq len", pattern=r"max seq len\s*\(?\d*\)?,? (?:\(?[\d.]+ Gi?B KV|is larger than the max)"),
    rule(KV, "To serve at least one request with"),
    rule(KV, "tokens that can be stored in KV cache", "available KV cache memory", pattern=r"larger than the (?:maximum number of tokens that can be stored in KV cache|available KV cache memory)"),
    rule(KV, "is needed, which is larger than the", "estimated maximum model length", rank=Rank.GENERAL),
    rule(KV, "available Mamba cache blocks"),
    rule(PROFILING, "No available memory for the cache blocks", "not enough GPU memory available to serve even a single token", "No usable cache memory left"),
    rule(OCCUPIED, "on startup is less than desired", pattern=r"(?:Free|Available) memory on (?:device|node) .{0,800}on startup is less than desired (?:GPU|CPU) memory utilization"),
    rule(OCCUPIED, "Free memory on device", pattern=r"Free memory on device .{0,20}\([\d.]+/[\d.]+ GiB\)"),
    rule(OCCUPIED, "Error in memory profiling.", "on kv cache allocation is less than requested", "Externally held weights on device"),
    rule(OOM, "of memory", "cudaErrorMemoryAllocation", "OF_DEVICE_MEMORY", "OUT_OF_MEMORY", pattern=r"(?:CUDA|HIP|XPU|NPU) out of memory|CUDA error: out of memory|hipErrorOutOfMemory|torch\.(?:cuda\.)?OutOfMemoryError: .{0,800}out of memory|OUT_OF_(?:DEVICE_)?MEMORY\b(?!_)|cudaErrorMemoryAllocation|cudaMalloc failed: out of memory|CUDA_ERROR_OUT_OF_MEMORY"),
    rule(OOM, "OutOfMemoryError", pattern=r"torch\.(?:cuda\.)?OutOfMemoryError\b"),
    rule(OOM, "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", rank=Rank.GENERAL),
    rule(SWAP, "Too large swap space"),
    rule(HOST, "Killed process", pattern=r"(?:Out of memory|[Mm]emory cgroup out of memory).{0,20}Killed process"),
    rule(HOST, "oom-kill:", "OOMKilled", "oom_kill_process", "invoked oom-killer", quiet=True),
    rule(HOST, "due to memory pressure", "running low on memory", pattern=r"killed due to (?:memory pressure|the node running low on memory)"),
    rule(HOST, "DefaultCPUAllocator", pattern=r"DefaultCPUAllocator: (?:can't|not enough)"),
    rule(HOST, "Cannot allocate memory", "std::bad_alloc", "MemoryError: Unable to allocate", "_ArrayMemoryError", rank=Rank.GENERAL),
    rule(HOST, "exit", "Exit", "/KILL", pattern=r"[Ee]xit ?[Cc]ode:?\s*\(?(?:-9|137)\b|exited with code 137|status=9/KILL", rank=Rank.SYMPTOM, numeric=True),
    rule(HOST, "SIGKILL", "signal", "Killed", pattern=r"killed by signal:? (?:9|SIGKILL|KILL)|terminated by signal (?:9|SIGKILL)|\(SIGKILL\)|^\s*(?:\S+: line \d+:\s+\d+ )?Killed\b", rank=Rank.SYMPTOM, numeric=True),
)  # fmt: skip

_LESS_CONTEXT = Fix("allow shorter requests: lower --max-model-len", "--max-model-len N")
_FP8_KV = Fix("store the KV cache in 8 bits: twice the tokens", "--kv-cache-dtype fp8")
_MORE_GPUS = Fix("spread the model over more GPUs", "--tensor-parallel-size 2")
_QUANTIZED = Fix(
    "serve a quantized version of the model (AWQ, GPTQ, FP8): half or a quarter of the weights"
)
_HOLDERS = Fix(
    "see who else holds memory on this GPU",
    "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv",
)
_MORE_UTILIZATION = Fix(
    "give vLLM more of the GPU, not above 0.95", "--gpu-memory-utilization 0.95"
)
_SMALLER_STEP = Fix(
    "profile with smaller steps: fewer tokens and requests at once",
    "--max-num-batched-tokens 2048 --max-num-seqs 64",
)

FAILURES = (
    Failure(
        slug=KV,
        sentence="the KV cache is smaller than one request of the full context length",
        why="After weights, activations and CUDA graphs too little memory is left for one request of max_model_len tokens.",
        fixes=(_LESS_CONTEXT, _FP8_KV, _MORE_UTILIZATION, _MORE_GPUS),
        deterministic=True,
        numbers=memory_numbers.kv_too_small,
    ),
    Failure(
        slug=LOADING,
        sentence="the weights do not fit into GPU memory",
        why="GPU memory ran out while the weights were loaded; gpu_memory_utilization does not help here, since it bounds only what comes after.",
        fixes=(_MORE_GPUS, _QUANTIZED, _HOLDERS, Fix("keep a part of the weights in host memory (slow)", "--cpu-offload-gb 10")),
        deterministic=True,
        numbers=memory_numbers.out_of_memory,
    ),
    Failure(
        slug=PROFILING,
        sentence="GPU memory ran out while vLLM measured its peak or set the KV cache up",
        why="The weights fit, but what they leave does not hold the activations of the largest step and a KV cache.",
        fixes=(_SMALLER_STEP, _LESS_CONTEXT, _MORE_UTILIZATION, _MORE_GPUS, _QUANTIZED),
        deterministic=True,
        numbers=memory_numbers.out_of_memory,
    ),
    Failure(
        slug=CAPTURE,
        sentence="GPU memory ran out while CUDA graphs were captured or the sampler was warmed up",
        why="Graphs and warm-up need memory beside the share that gpu_memory_utilization gives to weights and KV cache.",
        fixes=(
            Fix("leave more memory free for it", "--gpu-memory-utilization 0.85"),
            Fix("capture fewer graphs and warm up with fewer requests", "--max-num-seqs 64"),
            Fix("do without CUDA graphs (slower decoding)", "--enforce-eager"),
        ),
        deterministic=True,
        numbers=memory_numbers.out_of_memory,
    ),
    Failure(
        slug=RUNTIME,
        sentence="GPU memory ran out while requests were served",
        why="The engine came up, and a step needed more than was left: a larger batch, images, long prompts' log-probabilities, or another process on the GPU.",
        fixes=(
            Fix("leave more memory outside the KV cache", "--gpu-memory-utilization 0.85"),
            Fix("make steps smaller", "--max-num-batched-tokens 2048 --max-num-seqs 64"),
            _HOLDERS,
        ),
        deterministic=False,
        numbers=memory_numbers.out_of_memory,
    ),
    Failure(
        slug=OCCUPIED,
        sentence="something else already holds the GPU memory that vLLM was told to take",
        why="At the start less memory was free than gpu_memory_utilization asks for, or what was free changed while vLLM measured it.",
        fixes=(_HOLDERS, Fix("end what is left of an earlier vLLM, if nothing needs it", "vllm-watch gpus"), Fix("ask for no more than is free", "--gpu-memory-utilization N")),
        deterministic=False,
        numbers=memory_numbers.occupied,
    ),
    Failure(
        slug=HOST,
        sentence="the host ran out of memory, or the process was killed for it",
        why="A process of vLLM was ended by SIGKILL or could not get host memory. Loading needs room for the largest shard per worker, pinned buffers and swap space.",
        fixes=(
            Fix("ask the kernel whether it killed it", "dmesg -T | grep -i -E 'killed process|out of memory'"),
            Fix("raise the memory limit of the container or pod"),
            Fix("need less: no CPU swap or offload", "--swap-space 0"),
        ),
        deterministic=False,
    ),
    Failure(
        slug=SWAP,
        sentence="more CPU swap space was asked for than the host has memory",
        why="--swap-space is per GPU and is pinned at the start.",
        fixes=(Fix("ask for less", "--swap-space 0"),),
        deterministic=True,
    ),
)  # fmt: skip
