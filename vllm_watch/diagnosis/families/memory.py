"""Failures to allocate GPU or host memory.

Sources: vllm/v1/core/kv_cache_utils.py, vllm/v1/worker/{gpu_worker,utils}.py, csrc/cumem_allocator.cpp and
vllm/v1/kv_offload of vLLM 0.8 to 0.32; vllm #51080, #55428 (pinning), #48140 (unified memory), #38270 (state
blocks), #13941 (waking up); PyTorch's CUDACachingAllocator.
"""

import re

from vllm_watch.diagnosis.families import memory_numbers
from vllm_watch.diagnosis.report import UNKNOWN
from vllm_watch.diagnosis.rule import Failure, Rank, Variant, check, cure, rule, when

KV = "kv_cache_too_small"
LOADING = "oom_loading_weights"
PROFILING = "oom_kv_alloc_or_profiling"
CAPTURE = "oom_cuda_graph_capture"
RUNTIME = "oom_runtime"
OOM = "out_of_memory"
OCCUPIED = "gpu_occupied_by_other_process"
PINNING = "host_memory_not_pinned"
HOST = "cpu_ram_oom_killed"
SWAP = "swap_space_too_large"

RULES = (
    rule(KV, "max seq len", pattern=r"max seq len\s*\(?\d*\)?,? (?:\(?[\d.]+ Gi?B KV|is larger than the max)"),
    rule(KV, "To serve at least one request with"),
    rule(KV, "tokens that can be stored in KV cache", "available KV cache memory", pattern=r"larger than the (?:maximum number of tokens that can be stored in KV cache|available KV cache memory)"),
    rule(KV, "is needed, which is larger than the", "estimated maximum model length", rank=Rank.GENERAL),
    rule(KV, "available Mamba cache blocks", "max_num_seqs (", pattern=r"exceeds? available (?:Mamba|state) cache blocks"),
    rule(KV, "max seq len", pattern=r"max seq len\W.{0,20}is larger than", rank=Rank.GENERAL),
    rule(PROFILING, "Available KV cache memory: -", "reserved for KV Cache is -", rank=Rank.SYMPTOM, quiet=True),
    rule(PROFILING, "No available memory for the cache blocks", "not enough GPU memory available to serve even a single token", "No usable cache memory left"),
    rule(OCCUPIED, "on startup is less than desired", pattern=r"(?:Free|Available) memory on (?:device|node) .{0,800}on startup is less than desired (?:GPU|CPU) memory utilization"),
    rule(OCCUPIED, "Free memory on device", pattern=r"Free memory on device .{0,20}\([\d.]+/[\d.]+ GiB\)"),
    rule(OCCUPIED, "on kv cache allocation is less than requested", pattern=r"on kv cache allocation is less than requested (?!memory for kv \(-)"),
    rule(KV, "memory for kv (-"),
    rule(OCCUPIED, "Error in memory profiling.", "Externally held weights on device"),
    rule(OOM, "of memory", "cudaErrorMemoryAllocation", "OF_DEVICE_MEMORY", "OUT_OF_MEMORY", pattern=r"(?:CUDA|HIP|XPU|NPU) out of memory|(?:CUDA|HIP)(?: driver)? [eE]rror: out of memory|hipErrorOutOfMemory|torch\.(?:cuda\.)?OutOfMemoryError: .{0,800}out of memory|OUT_OF_(?:DEVICE_)?MEMORY\b(?!_)|cudaErrorMemoryAllocation|cudaMalloc failed: out of memory|CUDA_ERROR_OUT_OF_MEMORY|Triton Error \[\w{1,8}\]: out of memory"),
    rule(OOM, "Lack of device memory", "Ran out of memory in memory space hbm"),
    rule(OOM, "MPS backend out of memory", "kIOGPUCommandBufferCallbackErrorOutOfMemory"),
    rule(OOM, "PT_DEVMEM Allocation failed for size"),
    rule(UNKNOWN, "cumem_allocator", pattern=r"CUDA Error: (?!out of memory)[\w ]{3,60} at \S{0,200}cumem_allocator"),
    rule(OOM, "NvMapMemAlloc", "NVML_SUCCESS == r", pattern=r"NvMapMemAlloc\w{0,40}: .{0,40}error 12|NVML_SUCCESS == r INTERNAL ASSERT FAILED"),
    rule(OOM, "Cuda failure", pattern=r"Cuda failure (?:\d+ )?'out of memory'", rank=Rank.SYMPTOM),
    rule(OOM, "memory allocation failed with OOM", rank=Rank.SYMPTOM, quiet=True, heals=True),
    rule(OOM, "NV_ERR_NO_MEMORY", rank=Rank.GENERAL, quiet=True, needs=when(lacks=r"oom.kill")),
    rule(OOM, "OutOfMemoryError", pattern=r"torch\.(?:cuda\.)?OutOfMemoryError\b"),
    rule(OOM, "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", rank=Rank.GENERAL),
    rule(PINNING, "cudaHostRegister", "hipHostRegister", "cuMemHostRegister", "cudaHostAlloc", "hipHostMalloc", pattern=r"(?:cudaHostRegister|hipHostRegister|cuMemHostRegister|cudaHostAlloc|hipHostMalloc)\b(?!.{0,200}(?:illegal|unspecified|device-side|already|driver version))(?=.{0,80}(?:fail|error|code ?=|not ))", quiet=True, needs=when(r"(?:Error|Exception)\b|ERROR")),
    rule(PINNING, "pin memory", "pin_memory", "pinned memory", "pinned host memory", pattern=r"(?:Error|ERROR)\b.{0,200}(?:[Ff]ailed to (?:allocate )?pin(?:ned)?(?: host)? memory|cannot pin)"),
    rule(SWAP, "Too large swap space"),
    rule(HOST, "in /dev/shm", "Not enough memory on the host", pattern=r"Insufficient (?:memory|space) in /dev/shm|Not enough memory on the host"),
    rule(HOST, "Killed process", pattern=r"(?:Out of memory|[Mm]emory cgroup out of memory).{0,20}Killed process"),
    rule(HOST, "oom-kill:", "result 'oom-kill'", "by the OOM killer", "OOMKilled", "oom_kill_process", "invoked oom-killer", pattern=r"oom-kill:|result 'oom-kill'|by the OOM killer|OOMKilled(?!\W{1,4}(?i:false))|oom_kill_process|invoked oom-killer", quiet=True),
    rule(HOST, "low on resource: memory", rank=Rank.SYMPTOM, quiet=True),
    rule(HOST, "ray-oom-prevention", quiet=True),
    rule(HOST, "due to memory pressure", "running low on memory", pattern=r"killed due to (?:memory pressure|the node running low on memory)"),
    rule(HOST, "DefaultCPUAllocator", pattern=r"DefaultCPUAllocator: (?:can't|not enough)"),
    rule(HOST, "Cannot allocate memory", "std::bad_alloc", "MemoryError: Unable to allocate", "_ArrayMemoryError", rank=Rank.GENERAL, needs=when(lacks=r"ibv_.{0,100}Cannot allocate memory")),
    rule(HOST, "exit", "Exit", "EXIT", "/KILL", pattern=r"Exited \(137\)|[Ee]xit ?[Cc]ode:?\s*\(?(?:-9|137)\b|\bEXIT:? 137\b|exited with code 137|status=9/KILL", rank=Rank.SYMPTOM, numeric=True),
    rule(OOM, "EL0004", pattern=r"\bEL0004\)?: ", numeric=True),
    rule(HOST, "SIGKILL", "signal", "Killed", pattern=r"killed by signal:? (?:9|SIGKILL|KILL)|terminated by signal (?:9|SIGKILL)|\(SIGKILL\)|^\s*(?:\S+: line \d+:\s+\d+ )?Killed\b", rank=Rank.SYMPTOM, numeric=True),
)  # fmt: skip

KILLED = re.compile(r"Killed process (\d{1,10} \([^()]{1,80}\))")

BY_DRIVER = re.compile(r"(?:CUDA|HIP) driver error: out of memory")
PINS = r"pin_memory ?= ?True|pin_memory\(\)|_pin_memory\w{0,40} ?= ?torch\."
SAMPLES = re.compile(r"\blogits(?:\.sort\(|_sort\b)|/sample/\w{0,40}sampler\.py ")

_OF_ENCODER = r"visual|vision|embed_multimodal|_process_(?:image|video|audio)|get_multimodal_embeddings|_execute_mm_encoder"
_FOR_ENCODER = '--limit-mm-per-prompt \'{"image": 1, "video": 0}\'   (Qwen-VL also: --mm-processor-kwargs \'{"max_pixels": N}\')'
_OF_BUDGET = r"No available memory for the cache blocks|Available KV cache memory: -|not enough GPU memory available to serve|No usable cache memory left"

_ON_ROCM = r"\bHIP\b(?! runtime version: N/A)|hipError|\bhip:\d|platform rocm|\+rocm\d"
_HOLDERS = check(
    "see which processes hold memory on this GPU", "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv",
    when(lacks=_ON_ROCM + r"|\bNPU\b|npu_|\bXPU\b|\bUR_RESULT|level_zero|ZE_RESULT|\bTPU\b|HBM|memory on node|CPU memory|(?i:rbln)|SYS_EBUSY|PT_DEVMEM|MPS backend|kIOGPU", facts=("!held_by_itself",)),
)  # fmt: skip
_HOLDERS_ELSEWHERE = (
    check("see which processes hold memory on this NPU", "npu-smi info", when(seen=r"\bNPU\b|npu_|\bnpu:\d")),
    check("see which processes hold memory on this GPU", "rocm-smi --showpids", when(seen=_ON_ROCM)),
    check("check which processes hold memory on this GPU", "xpu-smi ps", when(r"\bxpu:\d|XPU out of memory|UR_RESULT_ERROR_OUT_OF")),
    check("check which processes hold memory on this accelerator", "hl-smi", when(r"PT_DEVMEM")),
)  # fmt: skip
_COHERENT = cure("if no process holds it, the host's page cache may: this GPU's memory is also a NUMA node of the host; check it, and drop the cache", "numactl -H; sync; echo 3 > /proc/sys/vm/drop_caches", when(facts=("coherent_memory",)))  # fmt: skip
_LOOK = (_HOLDERS, *_HOLDERS_ELSEWHERE, _COHERENT)
_PAGE_CACHE = cure("drop the page cache right before you start vLLM: on unified memory, some releases count it as used GPU memory", "sync; echo 3 > /proc/sys/vm/drop_caches", when(facts=("unified_memory",)))  # fmt: skip
_SMALLER_STEP = cure("if --max-num-batched-tokens is larger than this, lower it: smaller steps need less memory (the largest image or video must still fit)", "--max-num-batched-tokens 2048", when(r"[Tt]ried to allocate [\d.]+ G", facts=("!unified_memory",), phases=(2, 5)))  # fmt: skip
_UNIFIED = "GPU and CPU share one memory here (unified memory). Some releases count the page cache as used memory until it is dropped."
_HBM = r"(?i:ran out of memory in memory space hbm)"
_OF_DRIVER = Variant(
    when=when(r"NVRM: .{0,200}NV_ERR_NO_MEMORY"), sentence="the GPU driver could not allocate memory; this line alone does not show that the engine failed because of it",
    why="The driver also logs such lines while everything works.",
    cures=(
        check("check the next lines of the engine's log and of the host's log", "journalctl --list-boots; journalctl -b -1 -n 50"),
        *_LOOK,
        cure("if failures accompany it, leave more memory free: lower --gpu-memory-utilization or --max-num-batched-tokens", None, when(r"NO_MEMORY", phases=(5,))),
    ),
)  # fmt: skip
_NOT_OUT = Variant(
    when=when(facts=("more_free_than_asked",)),
    sentence="an allocation on the GPU failed, although its message shows much more free memory than it requested",
    cures=(check("check whether an earlier error precedes it"), *_LOOK),
    deterministic=False,
)  # fmt: skip
_TOO_LARGE = Variant(
    when=when(facts=("more_than_the_gpu",)), sentence="one allocation was larger than the whole GPU: an empty GPU could not hold it either",
    cures=(cure("if the traceback is in the encoder of images or videos, allow fewer or smaller inputs", _FOR_ENCODER, when(seen=_OF_ENCODER)), check("check which attention backend the log names, and search vLLM's issues for the function in the traceback")),
)  # fmt: skip
_WAKING = Variant(
    when=when(seen=r"cumem_allocator|cumem\.py|create_and_map"), sentence="GPU memory ran out in vLLM's sleep-mode allocator (cumem)",
    why="In sleep mode, vLLM allocates weights and KV cache through it.",
    cures=(*_LOOK, cure("if another process (a trainer, a second model) holds memory, wake the engine only after that process has freed it", None, when(seen=r"wake_up"))),
    deterministic=False,
)  # fmt: skip
_OF_DRIVER_CALL = Variant(
    when=when(BY_DRIVER.pattern),
    sentence='a GPU driver call failed with "out of memory"; this log does not show how full the GPU was',
    why="PyTorch's allocator reported no memory totals. The driver also returns this error for pinned host memory and address ranges, so a smaller model or a lower --gpu-memory-utilization may not help.",
    cures=(
        check("check how much GPU memory is in use right before the error", "nvidia-smi"),
        cure("if it is nearly full, lower --gpu-memory-utilization by 0.05", None, when(BY_DRIVER.pattern, phases=(4, 5))),
        cure("under WSL, GPU memory may be free: disable expandable_segments, and check WSL's memory limit (.wslconfig)", "echo $PYTORCH_CUDA_ALLOC_CONF; export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False", when(BY_DRIVER.pattern, facts=("wsl",))),
        cure("if PYTORCH_CUDA_ALLOC_CONF sets expandable_segments, remove it", "echo $PYTORCH_CUDA_ALLOC_CONF", when(BY_DRIVER.pattern, facts=("!wsl",))),
    ),
    deterministic=False,
)  # fmt: skip
_ON_TPU = Variant(
    when=when(_HBM), sentence="the TPU's memory (HBM) ran out",
    why="Weights, KV cache, the compiled programs and the largest step share it.",
    cures=(cure("shard the model over more chips, or use a smaller or quantized model", "--tensor-parallel-size N", when(_HBM)),),
)  # fmt: skip
_OF_CUBLAS = Variant(
    when=when(r"CUBLAS_STATUS_NOT_INITIALIZED"), sentence="cuBLAS could not be initialized; this error alone does not show why",
    why="A full GPU has this effect; so have an earlier CUDA error in this process, and a cuBLAS from a different CUDA release than PyTorch's.",
    cures=(*_LOOK, cure("if memory is free, check for an earlier CUDA error in this log, and for another cuBLAS that is found first", "python -m pip list | grep -i -E '^torch |cublas'; echo $LD_LIBRARY_PATH", when(lacks=r"\bHIP\b|hipError|rocm|\bNPU\b"))),
    deterministic=False, confidence=0.6,
)  # fmt: skip
_METAL = r"MPS backend out of memory|kIOGPUCommandBufferCallbackErrorOutOfMemory"
_ON_METAL = Variant(
    when=when(_METAL), sentence="the GPU used up the memory that this Mac lets it use",
    why="GPU, CPU and all programs share it. A setting that lifts the limit can make the whole machine fail.",
    cures=(check("check how much memory other programs hold, and close those that nothing needs", "top -o mem -l 1 | head -30"), cure("serve a smaller or quantized model", None, when(_METAL))),
)  # fmt: skip
_ELSEWHERE = (_ON_TPU, _ON_METAL, _OF_DRIVER_CALL, _OF_CUBLAS)
_ON_UNIFIED = Variant(
    when=when(facts=("unified_memory",)),
    sentence="memory ran out on a machine whose GPU and CPU share one memory",
    why=_UNIFIED,
    cures=(_PAGE_CACHE, check("check the memory of the page cache and other processes", "free -g"), cure("if the weight files are larger than the memory available then, serve a smaller or quantized model", None, when(facts=("unified_memory",), phases=(1,)))),
    deterministic=False,
)  # fmt: skip
_BUDGET_ON_UNIFIED = Variant(
    when=when(_OF_BUDGET, facts=("unified_memory",)), sentence="vLLM's share of memory leaves nothing for the KV cache, on a machine whose GPU and CPU share one memory",
    why=_UNIFIED,
    cures=(_PAGE_CACHE, check("check how much memory is available; if it is more than vLLM's share, raise --gpu-memory-utilization in small steps, and leave the host several GiB", "free -g"), cure("or lower the peak: --max-num-batched-tokens, --max-num-seqs", None, when(_OF_BUDGET))),
    deterministic=False,
)  # fmt: skip

_TOO_MANY_BLOCKS = Variant(
    when=when(r"reducing the number of blocks"), sentence="the device's memory is too small for this many KV cache blocks",
    cures=(cure("use fewer blocks, or limit the request length", "--num-gpu-blocks-override N   (or a smaller --max-model-len)", when(r"num-gpu-blocks-override")),),
    deterministic=True,
)  # fmt: skip
_IN_SAMPLER = Variant(
    when=when(seen=SAMPLES.pattern, lacks=r"warm_up|_dummy_sampler_run|warming up|capture"),
    sentence="GPU memory ran out in the sampler, during its warm-up or while requests were served",
    why="The sampler works on the logits of all requests in a step, in addition to the weights, the graphs and the KV cache.",
    cures=(
        cure("run fewer requests concurrently", "--max-num-seqs N", when(seen=SAMPLES.pattern)),
        cure("leave more memory free: lower --gpu-memory-utilization by 0.05", None, when(seen=SAMPLES.pattern, facts=("!gpu_memory_utilization",))),
    ),
)  # fmt: skip
_BESIDE = Variant(
    when=when(r"[Ee]rror in request.{0,600}Process \d+ has [\d.]+ GiB memory in use"), sentence="GPU memory ran out for one request, in a process other than the one that holds most of it",
    cures=(check("identify both processes, and do not kill this server's own engine", "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv"), cure("if the large process is the engine, leave room outside it: lower --gpu-memory-utilization", None, when(r"Process \d+ has"))),
)  # fmt: skip
_GRAPHS_ESTIMATE = Variant(
    when=when(_OF_BUDGET, facts=("graphs_overestimated",)), sentence="vLLM's memory estimate for CUDA graphs leaves nothing for the KV cache",
    why="vLLM's estimate (graph_estimate_gib) is far more than graphs take. A larger share of the GPU cannot make up for it.",
    cures=(
        cure("start without the estimate, and leave some room for the graphs", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 vllm serve … --gpu-memory-utilization 0.85", when(_OF_BUDGET, facts=("!unified_memory",))),
        cure("or test whether it starts without CUDA graphs (slower decoding)", "--enforce-eager", when(_OF_BUDGET)),
    ),
)  # fmt: skip
_ENCODER = Variant(
    when=when(r"ut of memory", frames=_OF_ENCODER, phases=(2, 3)), sentence="GPU memory ran out in the model's encoder (images, video, audio): at startup, vLLM runs it on the largest input that requests may have",
    why="Its memory grows with the size and number of inputs; without a fused attention kernel, with the square of the size. vLLM's share (--gpu-memory-utilization) does not limit it.",
    cures=(
        cure("allow fewer or smaller inputs", _FOR_ENCODER, when(r"ut of memory")),
        cure("for text-only serving, start without the encoder", "--limit-mm-per-prompt '{\"image\": 0, \"video\": 0}'", when(r"ut of memory")),
        check("check which attention backend the encoder uses: the log names it"),
    ),
)  # fmt: skip
_NOT_OFFLOADED = Variant(
    when=when(facts=("no_offload", "cpu_offload_gb")), sentence="GPU memory ran out while the weights were loaded, because --cpu-offload-gb had no effect: this engine set up no offloader",
    why="All weights went to the GPU. A larger value does not help as long as the log shows NoopOffloader.",
    cures=(check("search vLLM's issues for NoopOffloader"), cure("or test the previous model runner", "VLLM_USE_V2_MODEL_RUNNER=0 vllm serve …", when(frames=r"worker/gpu/model_runner")), *_LOOK),
)  # fmt: skip
_BUDGET = Variant(
    when=when(_OF_BUDGET), sentence="vLLM's share of GPU memory leaves nothing for the KV cache",
    why="The share (--gpu-memory-utilization) must hold the weights, the measured peak and the KV cache.",
    cures=(*_LOOK, cure("if no other process holds memory, raise --gpu-memory-utilization, or lower the peak: --max-num-batched-tokens, --max-num-seqs", None, when(_OF_BUDGET))),
)  # fmt: skip
_KV_STATE = Variant(
    when=when(r"(?:Mamba|state) cache blocks"), sentence="fewer state blocks fit than --max-num-seqs requires",
    why="A hybrid model (Mamba, linear attention) keeps one state block per running request, regardless of the request's length; the remaining memory holds fewer.",
    deterministic=True,
)  # fmt: skip
_KV_CPU = Variant(
    when=when(facts=("device",)), sentence="the KV cache on the CPU cannot hold one request of the maximum length",
    why="VLLM_CPU_KVCACHE_SPACE sets its size (GiB); without it, this release uses a default.",
    cures=(cure("give it more host memory (GiB)", "VLLM_CPU_KVCACHE_SPACE=N", when(r"VLLM_CPU_KVCACHE_SPACE|KV\s+cache")), cure("or limit requests to the length that fits", "--max-model-len N", when(r"KV\s+cache"))),
    deterministic=True,
)  # fmt: skip

_OFFLOADS = r"OffloadingConnector|kv_offload(?!ing_size['\"]?[=:] ?(?:None|0\b))|cpu_bytes_to_use|[Ll][Mm][Cc]ache|LMCACHE|cpu[-_]offload[-_]gb['\"]?[ =:]{1,2}['\"]?(?!0(?:\.0+)?\b)\d"
_PIN_CURES = (
    check("check the locked-memory limit, and how much memory there is", "ulimit -l; free -g; cat /sys/fs/cgroup/memory.max"),
    cure("if the locked-memory limit is small, raise it", "docker run --ulimit memlock=-1 …", when(seen=r"[Hh]ost(?:Register|Alloc|Malloc)|pin")),
    cure("offload less to host memory: lower cpu_bytes_to_use, --kv-offloading-size or LMCache's max_local_cpu_size", None, when(seen=r"[Hh]ost(?:Register|Alloc|Malloc)|pin")),
    cure("for 512 GiB or more, use a release that registers the region in pieces (vLLM pull request 51081)", None, when(r"[Hh]ostRegister", seen=r"kv_offload|shared_offload")),
)  # fmt: skip
_HOST_CURES = (
    check("check which process used it: the kernel log lists all of them, with their memory (rss)", "dmesg -T | grep -i -E 'killed process|oom-kill'", when(r"oom|OOM|[Oo]ut of memory")),
    cure("raise the memory limit of the container, pod or service", None, when(r"cgroup|OOMKilled|MEMCG")),
    cure("it was compiling: run fewer compilers in parallel", "MAX_JOBS=4", when(r"Killed process \d+ \((?:cicc|ptxas|nvcc|cudafe|cc1plus|ninja)")),
    cure("offload less to host memory", None, when(seen=_OFFLOADS)),
)  # fmt: skip
_REFUSED = r"annot allocate|Not enough memory on the host|bad_alloc|MemoryError|DefaultCPUAllocator"
_HOST_CHECK = check("check the host's memory, and this container's limit", "free -g; cat /sys/fs/cgroup/memory.max; ulimit -a", when(_REFUSED))  # fmt: skip
_OF_RAY_MONITOR = Variant(
    when=when(r"running low on memory|memory pressure|ray-oom-prevention"), sentence="Ray's memory monitor killed a worker, because the memory of its node was nearly full",
    why="Ray does this itself, by default at 95 % of the node's or container's memory; the kernel log has no entry for it.",
    cures=(
        check("check which processes use the node's memory: the lines around this one list the largest", "free -g; ps aux --sort=-rss | head"),
        cure("give the node, or its pod, more memory", None, when(r"memory")),
        cure("if enough memory is left at 95 %, raise Ray's threshold on this node", "RAY_memory_usage_threshold=0.98 ray start …", when(r"memory")),
        cure("offload less to host memory", None, when(seen=_OFFLOADS)),
    ),
)  # fmt: skip
_EVICTED = Variant(
    when=when(r"low on resource: memory"), sentence="Kubernetes evicted the pod, because its node had too little memory left",
    why="It first evicts pods that use more memory than they request.",
    cures=(check("check the node's memory pressure, and its pods' requests", "kubectl describe node NODE"), cure("request as much memory as the server uses (resources.requests.memory), so that the node is not overcommitted", None, when(r"low on resource"))),
)  # fmt: skip
_REFUSALS = (
    Variant(
        when=when(r"allocate (?:\d{2,6}(?:\.\d{1,3})? TiB|[\d.]{1,12} [PE]iB|\d{14,20} bytes)|tried to allocate \d{14,20} bytes"), sentence="a host memory allocation requested 10 TB or more",
        cures=(check("check whether the model's files are complete: compare their sizes with the repository's", "ls -lL MODEL_DIRECTORY"), cure("if they are, search vLLM's issues for the function in the traceback")),
    ),
    Variant(
        when=when(r"(?:mlock|memlock|locked memory|reg_mr|[Rr]egist).{0,120}Cannot allocate memory|Cannot allocate memory.{0,120}(?:ulimit|locked)"), sentence="memory could not be locked or registered",
        cures=(check("check the limit from inside the container", "ulimit -l"), cure("if it is not unlimited, raise it", "docker run --ulimit memlock=-1 …", when(r"Cannot allocate"))),
    ),
    Variant(
        when=when(r"bad_alloc"), sentence="a library could not allocate host memory: too little is left, or the requested size is wrong",
        why="The message gives no size.",
        cures=(_HOST_CHECK, cure("if much memory is free, check whether the model's files are complete, and search the issues of the library that the lines before it name")),
    ),
    Variant(
        when=when(_REFUSED, lacks=r"oom.kill|Killed process"), sentence="a process could not allocate the host memory that it requested",
        why="Kernel limits (ulimit -v, vm.overcommit_memory, vm.max_map_count) can refuse it while memory is free.",
        cures=(
            _HOST_CHECK,
            cure("if much memory is free, check these kernel limits", "sysctl vm.overcommit_memory vm.max_map_count", when(r"annot allocate")),
            cure("on the CPU, use a smaller KV cache (GiB)", "VLLM_CPU_KVCACHE_SPACE=N", when(_REFUSED, facts=("device",))),
            cure("offload less to host memory", None, when(seen=_OFFLOADS)),
        ),
    ),
)  # fmt: skip

_CAPTURES = (
    r"capture_model|capture_graph|_capture_cudagraphs|cuda/graphs\.py|capture_begin|capture_end"
)
_GRAPHS_MEASURED = Variant(
    when=when(r"ut of memory", facts=("graphs_measured",)), sentence="GPU memory ran out while vLLM measured the memory of CUDA graphs, before it allocated the KV cache",
    why="vLLM's share (--gpu-memory-utilization) does not limit this step.",
    cures=(
        *_LOOK,
        cure("capture graphs for fewer batch sizes", "--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8, 16, 32]}'", when(facts=("graphs_measured",))),
        cure("or start without CUDA graphs (slower decoding)", "--enforce-eager", when(facts=("graphs_measured",))),
    ),
)  # fmt: skip
_SAMPLER_MEASURED = Variant(
    when=when(r"ut of memory", seen=r"_dummy_sampler_run", lacks=r"compile_or_warm_up|capture_model", phases=(2,)), sentence="GPU memory ran out in the sampler's dummy run, while vLLM measured its peak memory",
    why="It computes logits for --max-num-seqs requests at once. vLLM's share (--gpu-memory-utilization) does not limit it.",
    cures=(*_LOOK, cure("if no other process holds memory, run fewer requests concurrently", "--max-num-seqs 64", when(seen=r"_dummy_sampler_run"))),
)  # fmt: skip
_ALLOCATES = r"initialize_kv_cache|_allocate_kv_cache|initialize_from_config|init_cache_engine|initialize_cache"
_NO_ROOM_FOR_CACHE = Variant(
    when=when(r"(?:CUDA|HIP|XPU|NPU) out of memory", seen=_ALLOCATES), sentence="GPU memory ran out while the KV cache was allocated",
    why="The cache gets the rest of vLLM's share (--gpu-memory-utilization) after the weights and the measured peak; less than that was free.",
    cures=(*_LOOK, cure("lower vLLM's share of GPU memory", "--gpu-memory-utilization 0.85   (0.90 is the default; otherwise subtract 0.05 from your value)", when(seen=_ALLOCATES, facts=("!unified_memory", "!gpu_memory_utilization", "!kv_cache_memory_set"))), cure("if no other process holds memory, lower vLLM's share: lower --gpu-memory-utilization by 0.05", None, when(seen=_ALLOCATES, facts=("!unified_memory", "gpu_memory_utilization", "!kv_cache_memory_set")))),
)  # fmt: skip

_KV_CURES = (
    cure("set --max-model-len to at most the length that fits (the message has the numbers)", None, when(r"estimated maximum model length|stored in KV\s+cache\s*\(|Gi?B KV\s+cache is needed")),
    check("check whether another process, such as the previous container, still holds GPU memory: if so, start again unchanged once it is freed; if not, a larger share of the GPU makes the KV cache larger", "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv"),
)  # fmt: skip

FAILURES = (
    Failure(
        slug=KV,
        sentence="the memory left for the KV cache is too small",
        why="",
        cures=_KV_CURES,
        deterministic=False,
        variants=(
            _KV_STATE,
            Variant(
                when=when(r"memory for kv \(-"), sentence="the weights and a step need the whole memory that the CPU backend was configured to use, and leave nothing for the KV cache",
                why="On the CPU, --gpu-memory-utilization is a share of the memory of one NUMA node.",
                cures=(cure("if enough host memory is free, raise the share, or set the KV cache size in GiB", "VLLM_CPU_KVCACHE_SPACE=N", when(r"for kv \(-")),),
            ),
            _KV_CPU,
            Variant(
                when=when(facts=("kv_cache_memory_set",)), sentence="the size that --kv-cache-memory-bytes gives the KV cache cannot hold one request of the maximum length",
                cures=(cure("raise or drop it, or set --max-model-len to a length that fits", None, when(facts=("kv_cache_memory_set",))),),
            ),
            Variant(
                when=when(facts=("memory_is_own",)), sentence="the memory left for the KV cache cannot hold one request of the maximum length",
                why="Weights, activations and graphs of this model take the rest of its share.",
                cures=(cure("if there are more GPUs, spread the model over them: each then holds a part of the weights", "--tensor-parallel-size N", when(facts=("memory_is_own",))), cure("if this GPU and its attention backend support it, store the KV cache in 8 bits: it then holds twice the tokens", "--kv-cache-dtype fp8", when(facts=("memory_is_own", "!kv_cache_dtype"))),),
            ),
            Variant(
                when=when(facts=("memory_of_others",)), sentence="the KV cache is too small, and neither it nor the weights took the missing memory", confidence=0.7,
                why="If another process held it, the same start works unchanged once it is freed.",
                cures=(*_LOOK, cure("if one does, start again unchanged once the memory is free", None, when(facts=("memory_of_others",))), cure("if no other process holds memory, lower the peak of a step: --max-num-batched-tokens, --max-num-seqs", None, when(facts=("memory_of_others",))), cure("for a model with image or video input, allow fewer or smaller inputs", _FOR_ENCODER, when(seen=r"(?i)multi_?modal|\bmm_|encoder cache|vision|\bVL\b|-VL-"))),
            ),
            Variant(
                when=when(r"max(?:imum)? (?:seq|model)|at least one request|stored in KV"), sentence="the memory left for the KV cache cannot hold one request of the maximum length",
                why="The cache gets the part of vLLM's share (--gpu-memory-utilization) that the weights, the measured peak of a step and the graphs leave.",
                cures=_KV_CURES,
            ),
        ),
        numbers=memory_numbers.kv_too_small,
    ),
    Failure(
        slug=LOADING,
        sentence="GPU memory ran out while the weights were loaded",
        why="--gpu-memory-utilization does not help here: it limits only the memory allocated after the weights.",
        cures=(
            *_LOOK,
            cure("if no other process holds memory, and there are more GPUs, spread the model over them", "--tensor-parallel-size N", when(phases=(1,), facts=("!held_by_itself",))),
            cure("if there are more GPUs, spread the model over them", "--tensor-parallel-size N", when(phases=(1,), facts=("held_by_itself",))),
            cure("or, if it is not quantized yet, serve a quantized version of the model (AWQ, GPTQ, FP8): its weights take half or a quarter of the memory", None, when(phases=(1,), facts=("!quantization",))),
            cure("if --quantization quantizes a 16-bit model at startup, use a pre-quantized checkpoint: some releases load the 16-bit weights first", None, when(phases=(1,), facts=("quantization",))),
            cure("if that is not possible, offload part of the weights to host memory (each token gets much slower)", "--cpu-offload-gb N", when(phases=(1,), facts=("!cpu_offload_gb", "!unified_memory"))),
        ),
        deterministic=False,
        variants=(*_ELSEWHERE, _NOT_OFFLOADED, _ON_UNIFIED, _NOT_OUT),
        numbers=memory_numbers.out_of_memory,
    ),
    Failure(
        slug=PROFILING,
        sentence="GPU memory ran out while vLLM measured its peak memory or set up the KV cache",
        why="",
        cures=(*_LOOK, _SMALLER_STEP),
        deterministic=False,
        variants=(*_ELSEWHERE, _ENCODER, _TOO_LARGE, _SAMPLER_MEASURED, _TOO_MANY_BLOCKS, _BUDGET_ON_UNIFIED, _ON_UNIFIED, _GRAPHS_ESTIMATE, _BUDGET, _NOT_OUT, _WAKING, _NO_ROOM_FOR_CACHE),
        numbers=memory_numbers.no_blocks,
    ),
    Failure(
        slug=CAPTURE,
        sentence="GPU memory ran out while CUDA graphs were captured or kernels were warmed up",
        why="Graphs and warm-up need memory in addition to the weights and the KV cache.",
        cures=(
            cure("warm up with fewer requests", "--max-num-seqs 64", when(seen=r"warming up sampler with|lowering `?max_num_seqs|_dummy_sampler_run")),
            cure("leave more memory free for it: lower --gpu-memory-utilization by 0.05", None, when(r"[Oo]ut of memory|OOM", facts=("!gpu_memory_utilization", "!unified_memory"))),
            cure("or capture graphs for fewer batch sizes", "--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8, 16, 32]}'", when(seen=_CAPTURES, facts=("!unified_memory",), lacks=r"HostRegister")),
            cure("or start without CUDA graphs (slower decoding)", "--enforce-eager", when(seen=_CAPTURES, facts=("!unified_memory",), lacks=r"HostRegister")),
        ),
        deterministic=False,
        variants=(*_ELSEWHERE, _GRAPHS_MEASURED, _IN_SAMPLER, _ON_UNIFIED, _NOT_OUT),
        numbers=memory_numbers.capture,
    ),
    Failure(
        slug=RUNTIME,
        sentence="GPU memory ran out while requests were served",
        why="The KV cache is allocated at startup and does not grow. A restart frees the memory.",
        cures=(*_LOOK, cure("send requests without prompt_logprobs (or echo with logprobs): the logits of the whole prompt need this memory", None, when(frames=r"prompt_logprobs")), cure("allow fewer or smaller images and videos in a request", _FOR_ENCODER, when(frames=_OF_ENCODER)), _SMALLER_STEP, cure("if the model is already loaded, lower --max-num-batched-tokens or --gpu-memory-utilization: both leave more memory for a step", None, when(r"allocated in private pools", facts=("!phase",))), cure("leave more memory outside the KV cache: lower --gpu-memory-utilization by 0.05", None, when(facts=("!unified_memory",), phases=(5,)))),
        deterministic=False,
        variants=(_OF_DRIVER, *_ELSEWHERE, _BESIDE, _TOO_LARGE, _ON_UNIFIED, _NOT_OUT, _WAKING),
        numbers=memory_numbers.out_of_memory,
    ),
    Failure(
        slug=OOM,
        sentence="GPU memory ran out; this log does not show in which phase",
        why="The fix differs between loading, profiling, capturing graphs and serving, and no line shows which it was.",
        cures=(*_LOOK, cure("its numbers include private pools: without --enable-sleep-mode these are CUDA graphs, and the weights were loaded; then lower --gpu-memory-utilization by 0.05", None, when(r"with (?!0 bytes|0\.0+ )\S{1,20} \w{1,5} allocated in private pools", facts=("!unified_memory",))), check("get the earlier lines of this log, from startup on", "kubectl logs --previous POD   (or docker logs, journalctl -u vllm)")),
        deterministic=False,
        variants=(_OF_DRIVER, *_ELSEWHERE, _TOO_LARGE, _ON_UNIFIED, _NOT_OUT, _WAKING),
        numbers=memory_numbers.out_of_memory,
    ),
    Failure(
        slug=OCCUPIED,
        sentence="less GPU memory is free than vLLM was configured to take",
        why="The same start works once enough memory is free.",
        cures=(
            *_LOOK,
            cure("end the processes that hold it and that nothing needs", "vllm-watch gpus", when(facts=("!unified_memory",))),
            cure("if the other processes must stay, use a free GPU (CUDA_VISIBLE_DEVICES); or, if the weights and a KV cache fit into the free memory, lower --gpu-memory-utilization below the share that is free", None, when(r"on startup", facts=("much_is_held", "!unified_memory"))),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"memory on node|CPU memory utilization"), sentence="less host memory is free than the CPU backend was configured to take",
                why="On the CPU, --gpu-memory-utilization is a share of the memory of one NUMA node.",
                cures=(check("check which processes hold it", "free -g; ps aux --sort=-rss | head"), cure("if the model and its KV cache fit, lower the share, or set the KV cache size in GiB", "VLLM_CPU_KVCACHE_SPACE=N", when(r"CPU memory"))),
            ),
            Variant(
                when=when(r"Free memory on device .{0,20}\(0(?:\.0{1,9})?/"), sentence="the device reported no free memory at all; the reading itself may be wrong", confidence=0.5,
                cures=(*_LOOK, cure("if no process holds it, compare the versions of the driver and runtime with those that this PyTorch requires")),
            ),
            Variant(
                when=when(r"out of memory", seen=r"init_device"),
                sentence="GPU memory ran out before anything was loaded",
                why="No memory or length setting of this server had taken effect yet.",
                cures=(*_LOOK, _PAGE_CACHE, check("check the memory of the page cache and other processes", "free -g")),
            ),
            Variant(
                when=when(r"out of memory"), sentence="GPU memory ran out, and another process holds more memory of this GPU than this one",
                why='The message lists it ("Process N has …"; in a container, N may be a PID of the host).',
                cures=(*_LOOK, cure("if it is a worker of this server, check that each gets a GPU of its own", "echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L", when(r"CUDA out of memory")), cure("if it must stay, use another GPU, or a model that fits into the remaining memory", None, when(r"out of memory"))),
            ),
            Variant(
                when=when(r"on startup is less than desired", facts=("torch_memory_gib",)), sentence="this process itself already holds GPU memory, and less is free than vLLM was configured to take",
                why="The memory snapshot counts PyTorch's memory in this process (torch_memory).",
                cures=(cure("free the process's earlier allocations first, or start the engine in a process of its own", None, when(r"on startup")),),
            ),
            Variant(
                when=when(facts=("nearly_free", "!unified_memory")), sentence="vLLM was configured to take a larger share of the GPU than was free, although nearly all of it was",
                why="The driver holds a little of each GPU.",
            ),
            Variant(
                when=when(r"on startup|Free memory on device", facts=("unified_memory",)),
                sentence="less memory is free than vLLM was configured to take, on a machine whose GPU and CPU share one memory",
                why=_UNIFIED, confidence=0.6,
                cures=(_PAGE_CACHE, check("check the memory of the page cache and other processes", "free -g"), cure("if the missing memory must stay in use, lower --gpu-memory-utilization below the share that is free", None, when(facts=("unified_memory",)))),
            ),
            Variant(
                when=when(r"Error in memory profiling.{0,40}[Ii]nitial free memory ([\d.]{1,20} ?\w*), current free memory (?:is )?\1\b"),
                sentence="vLLM's check of the free memory failed, although the free memory was the same before and after", confidence=0.6,
                why="Equal numbers mean that no process freed memory, contrary to the message: either the check or this device's reading is wrong.",
                cures=(check("search vLLM's issues for this message and this device; a newer release may accept equal numbers"),),
                deterministic=None,
            ),
            Variant(
                when=when(r"Error in memory profiling|Externally held weights|kv cache allocation is less"),
                sentence="the free GPU memory changed while vLLM measured it",
                why="This check fails if another process takes or frees memory on this GPU at that time.",
                cures=(*_LOOK, _PAGE_CACHE, cure("start servers that share a GPU one after the other", None, when(r"Error in memory profiling"))),
            ),
        ),
        numbers=memory_numbers.occupied,
    ),
    Failure(
        slug=PINNING,
        sentence="host memory could not be pinned for the GPU; a full GPU is not the cause",
        why="A later CUDA call may report the same error as its own.",
        cures=_PIN_CURES,
        deterministic=False,
        variants=(
            Variant(
                when=when(seen=r"(?:HostRegister|Host(?:Al|Mal)loc).{0,80}(?:\b801\b|[Nn]ot ?[Ss]upported)"), sentence="this platform does not support the requested pinning of host memory",
                why="Confidential computing does not allow it, nor do some virtual GPUs and WSL. The amount of memory does not matter.",
                cures=(check("check whether this is such a platform", "nvidia-smi conf-compute -f; nvidia-smi -q | grep -i virtualization", when(lacks=r"\bhip[A-Z]|\bHIP\b")), cure("if it is, serve without offloading to host memory", None, when(seen=r"Host"))),
            ),
            Variant(
                when=when(seen=_OFFLOADS + r"|shared_offload_region"), sentence="host memory for the offload could not be pinned; the GPU is not out of memory",
                why="CUDA keeps the error of the failed registration and reports it at the next call, wherever that is, as out of memory or invalid argument.",
                cures=_PIN_CURES,
            ),
        ),
    ),
    Failure(
        slug=HOST,
        sentence="host memory ran out or could not be allocated, or a process was killed",
        why="",
        cures=_HOST_CURES,
        deterministic=False,
        variants=(
            Variant(
                when=when(r"Insufficient (?:memory|space) in /dev/shm"), sentence="the shared memory (/dev/shm) has too little free space",
                cures=(cure("make it larger (Kubernetes: an emptyDir with medium Memory at /dev/shm)", "docker run --ipc=host …   (or --shm-size=16g)", when(r"Insufficient")),),
            ),
            Variant(
                when=when(r"result 'oom-kill'|by the OOM killer"), sentence="a process of this service was killed, because the host ran out of memory, or the service reached its memory limit",
                why="The line does not show which of the two it was.",
                cures=(check("check the service's memory limit and peak memory", "systemctl show UNIT -p MemoryMax,MemoryPeak"), *_HOST_CURES),
            ),
            _OF_RAY_MONITOR,
            _EVICTED,
            *_REFUSALS,
            Variant(
                when=when(r"cgroup|OOMKilled|MEMCG"), sentence="a container, pod or service reached its memory limit, and one of its processes was killed",
                why="Files in /dev/shm count, too.",
                cures=_HOST_CURES,
            ),
            Variant(
                when=when(r"Out of memory: Killed|oom_kill_process|invoked oom-killer|oom-kill:"),
                sentence="the host ran out of memory, and the kernel killed a process",
                why="The process that took the memory need not be the one that was killed.",
                cures=_HOST_CURES,
            ),
            Variant(
                when=when(r"(?:signal:? |SIG|[Cc]ode:?\s*\(?|status=|EXIT:? )(?:-?9\b|KILL|137)|with code 137|Exited \(137\)|^\S*: line \d+:\s+\d+ Killed|^\s*Killed", lacks=r"[Oo]ut of memory|oom|OOM|memory pressure|low on memory"),
                sentence="a process was killed (SIGKILL); this log does not show by whom",
                why="The kernel does this if the host or the container runs out of memory; so do a failed liveness probe, a stop that takes too long, and an operator.",
                cures=(check("check whether the kernel killed it", "dmesg -T | grep -i -E 'killed process|out of memory'"), check("check why the container exited", "kubectl describe pod POD   (or docker inspect)")),
            ),
        ),
    ),
    Failure(
        slug=SWAP,
        sentence="the requested CPU swap space takes too much of the host's memory",
        why="--swap-space (GiB) is per GPU, is pinned at startup, and may take at most 70 % of the memory.",
        cures=(cure("lower it", "--swap-space 0", when(r"Too large swap space")),),
        deterministic=True,
    ),
)  # fmt: skip
