"""Software below vLLM.

Sources: PyTorch, Triton, NVCC, FlashInfer's and DeepGEMM's JIT, the loader; vllm/model_executor/layers/quantization
and vllm/platforms of vLLM 0.6 to 0.32; flashinfer #5064 (-lcudart), #3493 (headers), vllm #36077 (nvcc),
#49051 and #43954 (DeepGEMM), #28440 (cache folders), ROCm/TheRock #7472 (HSA).
"""

import re

from vllm_watch.diagnosis.report import UNKNOWN, Fix
from vllm_watch.diagnosis.rule import Facts, Failure, Rank, Told, Variant, cure, rule, when

QUANTIZATION = "quantization_unsupported"
DTYPE = "dtype_unsupported"
ATTENTION = "attention_backend_unavailable"
DRIVER = "driver_cuda_mismatch"
IMPORT = "missing_dependency_or_import_error"
COMPILE = "compile_failure"
DISK = "disk_full"
CACHE = "folder_not_writable"

RULES = (
    rule(QUANTIZATION, "uantiz", pattern=r"different quantization (?:scheme|config)|[Uu]nsupported \w+ quantization|quantization with \w+ .{0,40}not supported|(?:[Uu]nknown|[Ii]nvalid|[Uu]nsupported) quantization|quantization (?:method )?\S{0,60} ?(?:is )?(?:currently )?not supported|[Qq]uantization (?:method|scheme).{0,120}(?:not supported|does not match|is deprecated)|does not support .{0,40}quantization|quantization is (?:currently )?not supported|[Cc]annot find (?:any|the config file) .{0,100}quantiz|weight quantization is supported for|quantization (?:config|method).{0,80}(?:unsupported|not found)|requires? .{0,60}for quantization"),
    rule(QUANTIZATION, "itsAndBytes", "itsandbytes", "GGUF", "gguf", "AWQ", "GPTQ", "awq", "gptq", "arlin", pattern=r"(?:BitsAndBytes|bitsandbytes|AWQ|GPTQ|[Mm]arlin|GGUF|gguf|awq|gptq)\b.{0,80}(?:not supported|does not support|unsupported|only supports?|is not implemented)"),
    rule(QUANTIZATION, "compute capability", "No kernel", "scaled_mm", "NVFP4", "nvfp4", "MXFP4", "mxfp4", "FP8", "fp8", "No compiled", pattern=r"_scaled_mm is only supported|(?:NVFP4|MXFP4|nvfp4|mxfp4|FP8|fp8|W8A8|w8a8|INT8|int8)\b.{0,100}(?:not supported|unsupported|requires? (?:compute capability|SM)|only supported on|requires Blackwell|requires Hopper)|No (?:compiled|kernel).{0,60}(?:fp[48]|cutlass_scaled_mm|quant)|No valid quant", rank=Rank.GENERAL),
    rule(QUANTIZATION, "Failed to find a kernel that can implement", "weight_scale", "qweight", "qzeros", "g_idx", "Minimum capability", "Min capability", "KeyError: '", "config file for", pattern=r"Failed to find a kernel that can implement|KeyError: '[\w.]{0,200}(?:weight_scale\w{0,40}|weight_zero_point|weight_shape|input_scale|qweight|qzeros|g_idx|scales?|weight_packed|absmax|quant_state\w{0,40})'|[Cc]annot find the config file for \w*(?:awq|gptq|quant)|[Mm]in(?:imum)? capability:? \d+"),
    rule(QUANTIZATION, "MoE backend", pattern=r"No \w{1,40} MoE backend supports the deployment|\w{1,40} MoE backend '\w{1,60}' does not support the deployment"),
    rule(DTYPE, "float16", "float32", "bf16", "Bfloat16", "Half", "fp8e4nv", "dtype", "data type", "expected scalar type", pattern=r"Bfloat16 is only supported on|does not support (?:bfloat16|float16|fp16|bf16)|torch\.b?float(?:16|32) is not supported for|not implemented for '(?:Half|BFloat16|Float8\w*)'|expected scalar type \w+ but found|to have the same dtype, but got|type fp8e4nv not supported|[Uu]nknown dtype|[Uu]nsupported (?:data type|dtype)|dtype .{0,40}(?:is )?not supported|data type .{0,40}not supported|KV cache is not supported by the Triton"),
    rule(DTYPE, "compute capability", "below 7.0", pattern=r"GPUs with compute capability below|only supported on GPUs with compute capability of at least"),
    rule(ATTENTION, "lash", pattern=r"FlashAttention(?:-?[234])? (?:only supports|requires|is only supported|forward only supports|does not support|is not supported)|[Ff]lash[- ]?[Aa]tt(?:entio)?n? (?:build|version|backend|package).{0,80}(?:not support|not available|not installed|unsupported|requires|is not found)|Flash(?:Infer|MLA|infer)\b.{0,80}(?:is not (?:available|supported|installed|compatible)|only supports?|requires|not supported|unavailable|is only supported)|This flash attention build"),
    rule(ATTENTION, "ead size", "head_size", "ead dimension", "headdim", pattern=r"[Hh]ead[ _]size:? ?\S{1,6} is not supported|[Uu]nsupported head[ _](?:size|dim)|only supports? head dim|headdim not being"),
    rule(ATTENTION, "backend", "Backend", "does not support attention", pattern=r"No valid (?:MLA )?(?:prefill )?attention backend|[Nn]o valid .{0,20}prefill backend|[Ss]elected .{0,40}backend .{0,60}(?:is not valid|is not MLA type|does not support)|(?:[Ii]nvalid|[Uu]nknown|[Uu]nsupported) (?:MLA )?attention backend|not supported for attention backend|[Aa]ttention backend .{0,60}(?:not supported|has been removed|is not available|does not support|unsupported)|Backend \S+ is not supported for vit attention|(?:SDPA|[Xx]Formers|[Pp]allas|IPEX|PagedAttention|Triton[Aa]ttention|TRITON_\w{1,40}|FLASH\w{1,40})\b.{0,60}(?:does not support(?! the deployment)|doesn't support|is not available|not supported)"),
    rule(ATTENTION, "inks are only supported", "logits_soft_cap", "BatchPrefillWith", "BatchDecodeWith", "xFormers wasn't build", "memory_efficient_attention_forward", "FA3", "MLA is not supported", "Kernel is only supported on", pattern=r"[Ss]inks are only supported|logits_soft_cap.{0,60}(?:not support|Flashinfer)|Batch(?:Prefill|Decode)With\w+ failed|xFormers wasn't build|No operator found for `memory_efficient|FA3 (?:is|not) (?:not )?supported|MLA is not supported|Attention \w{1,20} Kernel is only supported on", rank=Rank.GENERAL),
    rule(DRIVER, "no kernel image is available", "driver version is insufficient", "NVIDIA driver on your system is too old", "Found no NVIDIA driver on your system", "forward compatibility was attempted", "unsupported toolchain", "orward compatible", "No CUDA GPUs are available", "not compiled with CUDA enabled", "Failed to infer device type", "system not yet initialized", "CUDA unknown error", "Driver/library version mismatch", "driver/library version mismatch", "Can't initialize NVML", "no GPUs found!", "invalid device function", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "unsatisfied condition: cuda", "libcuda.so.1: cannot open", "libcuda.so: cannot open", "HIP error: no kernel", "unsupported display driver", "No HIP GPUs are available", "No XPU devices are available", "get GPU arch from rocminfo failed"),
    rule(DRIVER, "device kernel image is invalid", needs=when(lacks=r"Capturing .{0,200}device kernel image is invalid")),
    rule(UNKNOWN, "device kernel image is invalid", rank=Rank.GENERAL),
    rule(DRIVER, "HSA_STATUS_ERROR", "hipError", "No compatible code objects", pattern=r"No compatible code objects found|HSA_STATUS_ERROR_(?:OUT_OF_RESOURCES|INVALID_ISA|INCOMPATIBLE\w*|INVALID_CODE_OBJECT)|hipErrorNoBinaryForGpu|hipErrorInvalidImage|hipErrorNoDevice"),
    rule(DRIVER, "not compatible with the current PyTorch installation", rank=Rank.GENERAL, quiet=True),
    rule(DRIVER, "NVML", "CUDA", "nvidia", "device driver", "rror 80", "cudaGetDeviceCount", "please update your driver", pattern=r"Failed to initialize NVML|[Uu]nexpected error from cudaGetDeviceCount|NVMLError_(?:LibraryNotFound|DriverNotLoaded|LibRmVersionMismatch)|NVML Shared Library Not Found|could not select device driver|nvidia-container-cli: .{0,80}(?:error|requirement)|detected CUDA version .{0,60}mismatches|cuda>=\S+, please update your driver|CUDA error: (?:initialization error|no CUDA-capable device|CUDA-capable device\(s\) is/are busy)|no CUDA-capable device is detected"),
    rule(DRIVER, "CUDA initialization: ", pattern=r"CUDA initialization: (?:Unexpected|CUDA|The)", quiet=True),
    rule(COMPILE, "torch._inductor.exc", "torch._dynamo.exc", "BackendCompilerFailed", "InductorError", "CppCompileError", "InvalidCxxCompiler", "TorchRuntimeError", "InternalTorchDynamoError", "ConstraintViolationError", "LoweringException", "FakeTensorError", "DynamicOutputShapeException", pattern=r"(?:torch\._(?:inductor|dynamo)\.exc\.\w+|BackendCompilerFailed|InductorError|CppCompileError|InvalidCxxCompiler|TorchRuntimeError|InternalTorchDynamoError|ConstraintViolationError|LoweringException)\b(?!.{0,200}(?:CUDA|HIP) error: )", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "ptxas", pattern=r"ptxas(?:-\w{1,20})? {0,3}(?:fatal|/\S+|error|info.{0,800}error)|ptxas.{0,60}(?:failed|not found|exit)"),
    rule(COMPILE, "PTXAS error", "Internal Triton PTX codegen error", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "C compiler", "C++ compiler", "working compiler", "Python.h", "cuda_runtime.h", "math.h", pattern=r"Failed to find C compiler|(?:Python|cuda_runtime|cuda|math|stdlib|omp)\.h: No such file|[Nn]o working compiler|C\+\+ compiler .{0,40}not found"),
    rule(COMPILE, "No working C++ compiler", rank=Rank.GENERAL),
    rule(COMPILE, "error:", "error #", pattern=r"\.(?:h|hpp|cuh|cu|cpp|cc|c|inl)(?::\d+(?::\d+)?|\(\d+\)): (?:fatal |catastrophic )?error\b"),
    rule(COMPILE, "cannot find -l", "ld returned", pattern=r"cannot find -l\w+"),
    rule(COMPILE, "ld returned", pattern=r"ld returned \d+ exit status", rank=Rank.GENERAL),
    rule(COMPILE, "nvcc", "NVCC", "Unsupported gpu architecture", pattern=r"nvcc fatal|nvcc(?:['\"]|:)? {0,4}(?:not found|compilation failed)|(?:[Cc]ould not|[Ff]ailed to) find nvcc|/nvcc.{0,40}(?:not found|No such)|NVCC compilation failed|NVCC version should be|Unsupported gpu architecture"),
    rule(COMPILE, "inja", "rror building extension", "rror compiling objects", pattern=r"[Nn]inja build failed|ninja: build stopped|Error building extension|Error compiling objects", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "Assertion error (", pattern=r"Assertion error \(\S{0,200}/jit/\w{1,40}\.hpp:\d+\)", rank=Rank.GENERAL),
    rule(COMPILE, "No supported CUDA architectures found", "synStatus", pattern=r"No supported CUDA architectures found|(?:failed|Failed).{0,80}synStatus", rank=Rank.GENERAL),
    rule(COMPILE, "requires CUDA >=", pattern=r"SM \d+\.\w requires CUDA >= ?\d", rank=Rank.GENERAL),
    rule(COMPILE, "CUDA_HOME", "cuda_home", "cpp_extension", "JIT", "NVRTC", "nvrtc", pattern=r"CUDA_HOME environment variable is not set|JIT compilation failed|NVRTC_ERROR|nvrtc: error"),
    rule(COMPILE, "triton.compiler.errors", "triton.runtime.errors", "OutOfResources", "out of resource: shared memory", "CompilationError", "PassManager::run failed", "failed to legalize operation", "failed to compile the model", "LLVM ERROR", "error: linker", "CompiledKernel", "DSLRuntimeError", "TVMError", "tvm.error", "Triton compilation failed", "is not a recognized processor", "layout conversion is only supported", pattern=r"Triton compilation failed|is not a recognized processor|layout conversion is only supported|triton\.(?:compiler|runtime)\.errors|OutOfResources|out of resource: shared memory|\bCompilationError\b|PassManager::run failed|failed to legalize|vLLM failed to compile the model|LLVM ERROR|error: linker|DSLRuntimeError|(?:tvm\.error|TVMError)(?!.{0,60}Assertion error \()", rank=Rank.GENERAL, header=True),
    rule(DISK, "o space left", "Errno 28", "isk space", "isk quota", "Errno 122", pattern=r"[Nn]o space left on device|\[Errno 28\]|[Nn]ot enough (?:free )?disk space|[Dd]isk quota exceeded|\[Errno 122\]"),
    rule(DISK, "low on resource: ", pattern=r"low on resource: (?:ephemeral-storage|nodefs|imagefs|inodes)", rank=Rank.SYMPTOM, quiet=True),
    rule(CACHE, "Permission denied", "Errno 13", "Read-only file system", "Errno 30", "uid not found", pattern=r"PermissionError: \[Errno 13\]|\[Errno 13\] Permission denied|(?:Error|ERROR)\b(?!.{0,200}(?:pidfd|ptrace)).{0,120}Permission denied|\[Errno 30\] Read-only|Read-only file system: '|getpwuid\(\): uid not found"),
    rule(COMPILE, "CalledProcessError", pattern=r"CalledProcessError: .{0,60}(?:gcc|g\+\+|clang|nvcc|ptxas|ninja|/cc)\b"),
    rule(COMPILE, "returned non-zero exit status", pattern=r"Command '\['[^']{0,200}(?:gcc|g\+\+|clang|clang\+\+|nvcc|ninja|/cc)'.{0,8000}returned non-zero exit status", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "torch_compile_cache", "corrupted compilation artifact", pattern=r"corrupted compilation artifact|torch_compile_cache.{0,800}(?:corrupt|EOFError|UnpicklingError|truncated)", deterministic=False),
    rule(IMPORT, "undefined symbol", "cannot open shared object file", pattern=r"undefined symbol: \w+|\.so\S{0,40}(?: \(deleted\))?: cannot open shared object file", rank=Rank.IMPORT),
    rule(IMPORT, "ModuleNotFoundError", "ImportError", "PackageNotFoundError", "No module named", pattern=r"(?:ModuleNotFoundError|ImportError|PackageNotFoundError)\b:? ?\S|No module named ['\w]", rank=Rank.IMPORT),
    rule(IMPORT, ", but you have ", pattern=r" requires \S{1,80}, but you have \S{1,60} \S{1,40} which is incompatible", rank=Rank.IMPORT),
    rule(IMPORT, "is not available or outdated", "does not match flashinfer version", "NIXL is not available", "Failed to import kv connector", rank=Rank.IMPORT),
    rule(IMPORT, "cannot import name", "partially initialized module", "packages that were not found in your environment", "operator torchvision::nms does not exist", "No package metadata was found", "DistributionNotFound", "is not installed. Please install", "is required to load C++ extensions", rank=Rank.IMPORT),
    rule(IMPORT, "has no attribute", pattern=r"AttributeError: (?:partially initialized )?module '[\w.]+' has no attribute|'_OpNamespace' '\w+' object has no attribute", rank=Rank.IMPORT),
    rule(IMPORT, "GLIBC", "GLIBCXX", "numpy.dtype size changed", "compiled using NumPy 1.x", pattern=r"version `GLIBC(?:XX)?_\S+' not found|numpy\.dtype size changed|A module that was compiled using NumPy 1", rank=Rank.IMPORT),
)  # fmt: skip

_FLASHINFER = r"flashinfer|FlashInfer|cached_ops"
_DEEP_GEMM = r"deep_gemm|DeepGEMM|jit_kernels|fp8_gemm_nt|/jit/(?:compiler|kernel_runtime)\.hpp"
_BY_INDUCTOR = r"torch\._(?:inductor|dynamo)|BackendCompilerFailed|InductorError|torch_compile_cache|TorchRuntimeError|failed to compile the model|LoweringException|ConstraintViolation"
_SAMPLER = cure("sample without FlashInfer's kernels (the only ones that failed)", "VLLM_USE_FLASHINFER_SAMPLER=0", when(seen=r"cached_ops/sampling|topk_topp_sampler|_dummy_sampler_run|flashinfer/sampling"))  # fmt: skip
_SWITCHES = (
    _SAMPLER,
    cure("serve with another attention backend", "--attention-backend FLASH_ATTN   (or TRITON_ATTN)", when(seen=r"cached_ops/\w*(?:prefill|decode|mla|attention)|get_batch_(?:prefill|decode)_module|backends/flashinfer")),
    cure("compute experts without FlashInfer's kernels", "VLLM_USE_FLASHINFER_MOE_FP16=0 VLLM_USE_FLASHINFER_MOE_FP8=0 VLLM_USE_FLASHINFER_MOE_FP4=0", when(seen=r"cached_ops/\w*fused_moe|flashinfer/fused_moe")),
    cure("multiply without DeepGEMM", "VLLM_USE_DEEP_GEMM=0", when(seen=_DEEP_GEMM)),
)  # fmt: skip
_CACHES = (
    cure("after the toolchain is right, its earlier builds lie in ~/.cache/flashinfer (deleting that alone does not help)", None, when(seen=r"\.cache/flashinfer|cached_ops")),
    cure("after the toolchain is right, its earlier builds lie in ~/.deep_gemm or ~/.cache/vllm/deep_gemm", None, when(seen=r"\.deep_gemm|cache/\S{0,80}deep_gemm")),
)  # fmt: skip
_EAGER = cure("start without torch.compile, to serve meanwhile", "--enforce-eager", when(_BY_INDUCTOR, lacks=rf"C(?:\+\+)? compiler|ptxas|nvcc|gcc|[Tt]riton|{_FLASHINFER}|{_DEEP_GEMM}|[Nn]inja|Python\.h"))  # fmt: skip
_NOT_CUDA = r"(?i)rocm|hip|amd|npu|ascend|jetson|tegra|xpu|habana|macos|dylib|aarch64|_cpu"
_CHECK = cure("see which packages do not fit each other", "python -m pip check")

_EXTENSION = re.compile(
    r"-packages/(?!vllm/|torch\w*/)([A-Za-z]\w{1,60})(?:/\S{0,200}|\.cpython\S{0,60})\.so\S{0,80}: undefined symbol"
)


def _built_for_another(text: str, facts: Facts) -> Told:
    """Name a package that was built for other versions."""
    found = _EXTENSION.search(text)
    if found is None:
        return Told()
    what = f"install a release of {found[1]} that was built for this PyTorch, or build it in this environment"
    return Told(f"It is {found[1]}.", (Fix(what, f"python -m pip show {found[1]} torch vllm"),))


FAILURES = (
    Failure(
        slug=QUANTIZATION,
        sentence="this quantization does not work with this model, GPU or vLLM",
        why="The method is unknown to this release, not implemented for the architecture, at odds with the model's own config, or needs a newer GPU.",
        cures=(
            cure("leave --quantization out: vLLM reads the method from the model's config", None, when(r"does not match the quantization|annot find the config file|Unknown quantization method|Invalid quantization method|specified in the `?quantization`? argument")),
            cure("see which quantizations this release takes on this GPU, in vLLM's table of quantization support"),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"MoE backend"),
                sentence="no kernel for mixtures of experts takes this quantization together with this activation, GPU and these settings",
                why="The line, or one before it at level DEBUG, has the reason for each backend.",
                cures=(
                    cure("let vLLM choose the backend: leave --moe-backend out", None, when(r"MoE backend '\w+' does not support")),
                    cure("see which settings rule backends out (VLLM_BATCH_INVARIANT, VLLM_USE_FLASHINFER_MOE_…, expert parallelism)", "VLLM_LOGGING_LEVEL=DEBUG vllm serve …", when(r"MoE backend")),
                ),
            ),
            Variant(
                when=when(r"(?i)kv.?cache"),
                sentence="the KV cache cannot be stored in this type on this GPU, or with this model or attention backend",
                cures=(cure("keep the KV cache in the model's own type", "--kv-cache-dtype auto", when(r"(?i)kv.?cache")),),
            ),
            Variant(
                when=when(r"capability|Blackwell|Hopper|_scaled_mm|is not supported on this GPU|for the current GPU|current platform|SM ?\d\d"),
                sentence="this GPU does not compute this quantization",
                why="The kernels need a newer generation than this GPU's.",
                cures=(cure("take a version of the model in a format that this GPU computes (AWQ or GPTQ run from compute capability 7.5 or 8.0 on)", None, when(r"capability|Blackwell|Hopper|_scaled_mm|GPU|platform|SM", lacks=_NOT_CUDA)),),
            ),
            Variant(
                when=when(r"KeyError: '|qweight|qzeros|g_idx|weight_scale"),
                sentence="the checkpoint's quantization weights are not those that this vLLM expects for the model",
                cures=(cure("compare quantization_config in config.json with the names in the weights", "grep -A8 quantization_config config.json"), cure("see which vLLM release the model's page asks for")),
            ),
        ),
    ),
    Failure(
        slug=DTYPE,
        sentence="the GPU or the model does not support this data type",
        why="",
        cures=(),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"Bfloat16 is only supported|bf(?:loat)?16.{0,80}(?:compute capability|only supported)"),
                sentence="this GPU does not compute bfloat16, which needs compute capability 8.0 (Ampere)",
                cures=(cure("serve in half precision", "--dtype half", when(r"Bfloat16 is only supported|bf(?:loat)?16")),),
            ),
            Variant(
                when=when(r"fp8e4nv|Float8|fp8|FP8"),
                sentence="this GPU, or the attention backend, does not compute FP8 (E4M3), which needs compute capability 8.9",
                why="--dtype does not change it: FP8 comes from the weights or from --kv-cache-dtype.",
                cures=(
                    cure("keep the KV cache in the model's own type", "--kv-cache-dtype auto", when(seen=r"kv.?cache|KV cache|kv_cache_dtype")),
                    cure("take a version of the model that is not in FP8 (AWQ, GPTQ, or 16 bits)", None, when(r"fp8e4nv|Float8|fp8|FP8", lacks=r"kv.?cache|KV cache")),
                ),
            ),
            Variant(
                when=when(r"does not support float16|Numerical instability"),
                sentence="this model does not compute in float16",
                cures=(cure("serve it in bfloat16 (or float32 on a GPU without)", "--dtype bfloat16", when(r"does not support float16|Numerical")),),
            ),
            Variant(
                when=when(r"for quantization method"),
                sentence="this quantization does not take the data type that was asked for",
                cures=(cure("take the type that the message lists", "--dtype half", when(r"Supported dtypes: \[torch\.float16\]")), cure("take a type that the message lists", "--dtype …", when(r"Supported dtypes", lacks=r"Supported dtypes: \[torch\.float16\]"))),
            ),
            Variant(
                when=when(r"."),
                sentence="two data types do not fit each other, or one is not supported here",
                why="Which one is in the message: weights, activations, KV cache or an adapter.",
                cures=(cure("leave --dtype and --kv-cache-dtype out, if they are set", None, when(r"dtype|data type|scalar type|implemented for")),),
            ),
        ),
    ),
    Failure(
        slug=ATTENTION,
        sentence="the attention backend does not work on this GPU or for this model",
        why="The chosen backend is not installed, not made for this GPU, or does not know this head size or feature; the message names it.",
        cures=(
            cure("if --attention-backend or VLLM_ATTENTION_BACKEND is set, leave it out: vLLM chooses", "unset VLLM_ATTENTION_BACKEND", when(r"[Ss]elected|[Uu]nknown|[Ii]nvalid|removed|not valid|is not available", lacks=r"No valid")),
            cure("choose the one that the message names", "--attention-backend FLASHINFER", when(r"Please use Flashinfer")),
            cure("compare head size, data type and GPU with vLLM's table of attention backends"),
        ),
        deterministic=True,
    ),
    Failure(
        slug=DRIVER,
        sentence="driver, CUDA (or ROCm) and the build of PyTorch or vLLM do not fit this GPU, or no GPU is seen",
        why="",
        cures=(cure("see driver and GPU as this process does", "nvidia-smi", when(lacks=r"HSA_|hip|HIP|gfx|rocm|XPU")), cure("see GPU and driver as this process does", "rocminfo | grep -i gfx; rocm-smi", when(seen=r"HSA_|hip|HIP|gfx"))),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"no kernel image|not compatible with the current PyTorch|device kernel image is invalid|NO_BINARY|invalid device function|NoBinaryForGpu|No compatible code objects|INVALID_ISA|InvalidImage|HIP error: no kernel"),
                sentence="the installed build of PyTorch or vLLM has no code for this GPU",
                cures=(cure("see which GPUs PyTorch was built for", "python -c 'import torch; print(torch.version.cuda, torch.cuda.get_arch_list())'"), cure("take wheels or an image that name this GPU's architecture")),
            ),
            Variant(
                when=when(r"[Ee]rror 803|unsupported display driver|SYSTEM_DRIVER_MISMATCH"),
                sentence="the CUDA driver library that is loaded (libcuda) does not belong to the host's kernel driver",
                why="CUDA's error 803 is a mismatch within the driver: the compatibility libraries of an image, or a driver update without a reboot, hide the libcuda of this driver. The driver may be new enough.",
                cures=(cure("compare the loaded library with the kernel's driver", "ldconfig -p | grep libcuda; cat /proc/driver/nvidia/version"), cure("if it is in a cuda-compat folder, take that folder out of LD_LIBRARY_PATH and of ld.so.conf.d", None, when(r"803|display driver|DRIVER_MISMATCH"))),
            ),
            Variant(
                when=when(r"driver version is insufficient|driver on your system is too old|forward compat|unsupported toolchain|please update your driver|unsatisfied condition|[Ee]rror 804|older than what this build"),
                sentence="the NVIDIA driver is older than the CUDA that PyTorch (or the image) was built for",
                cures=(cure("see the driver's version, and the newest CUDA it takes", "nvidia-smi"), cure("renew the driver, or take wheels (an image) for a CUDA that it takes", None, when(r"driver|compat|toolchain|cuda|[Ee]rror 80"))),
            ),
            Variant(
                when=when(r"ibrary version mismatch"),
                sentence="the NVIDIA driver was renewed while its old kernel module is still loaded",
                cures=(cure("reload the module, or restart the host", "cat /proc/driver/nvidia/version; nvidia-smi"),),
            ),
            Variant(
                when=when(r"No HIP GPUs|rocminfo failed|hipErrorNoDevice"),
                sentence="this process sees no AMD GPU, or not which one it is",
                why="It needs /dev/kfd and /dev/dri, and a user who may use them.",
                deterministic=False,
                cures=(
                    cure("see the GPUs and the rights as this process does", "rocminfo | grep -i gfx; ls -l /dev/kfd /dev/dri; id; env | grep VISIBLE_DEVICES"),
                    cure("in a container, pass the devices through", "docker run --device /dev/kfd --device /dev/dri --group-add video …", when(r"No HIP GPUs|rocminfo|NoDevice")),
                ),
            ),
            Variant(
                when=when(r"No XPU devices"),
                sentence="this process sees no Intel GPU",
                why="It needs /dev/dri, and a user who may use it.",
                deterministic=False,
                cures=(cure("see the devices and the rights as this process does", "ls -l /dev/dri; id; env | grep ZE_AFFINITY_MASK"), cure("in a container, pass them through", "docker run --device /dev/dri …", when(r"No XPU devices"))),
            ),
            Variant(
                when=when(r"No CUDA GPUs|no NVIDIA driver|Found no NVIDIA|no CUDA-capable|NVML|nvml|libcuda\.so|select device driver|no GPUs found|infer device type|HIP GPUs|hipErrorNoDevice|not compiled with CUDA"),
                sentence="this process sees no GPU, or no driver",
                deterministic=False,
                cures=(
                    cure("see driver and GPU as this process does", "nvidia-smi; echo $CUDA_VISIBLE_DEVICES"),
                    cure("in a container, pass the GPUs through (NVIDIA's container toolkit must be installed)", "docker run --gpus all …", when(r"No CUDA GPUs|no NVIDIA driver|Found no NVIDIA|select device driver|libcuda|NVML|nvml|device type")),
                    cure("install the build of PyTorch that has CUDA", "python -c 'import torch; print(torch.__version__, torch.version.cuda)'", when(r"not compiled with CUDA|device type")),
                ),
            ),
            Variant(
                when=when(r"system not yet initialized|[Ee]rror 802"),
                sentence="the GPUs are not initialized yet: on machines with NVSwitch, the fabric manager must run first",
                cures=(cure("see whether it runs, with the driver's version", "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric"),),
                deterministic=False,
            ),
            Variant(
                when=when(r"CUDA unknown error|are busy|initialization error"),
                sentence="CUDA could not be initialized",
                why="A driver that was just renewed, a GPU that another process holds alone, or a process that forked after CUDA was used, are the usual causes.",
                cures=(cure("see driver and GPU as this process does", "nvidia-smi"),),
                deterministic=False,
            ),
            Variant(
                when=when(r"HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
                sentence="the HSA runtime could not set up this AMD GPU",
                why="Its code object does not fit the GPU (HSA_OVERRIDE_GFX_VERSION, a build for another gfx), or the process may not use /dev/kfd.",
                cures=(cure("see the GPU's gfx, an override, and the rights", "rocminfo | grep -i gfx; env | grep HSA; ls -l /dev/kfd /dev/dri"),),
            ),
        ),
    ),
    Failure(
        slug=IMPORT,
        sentence="a Python package or library is missing or of the wrong version",
        why="The package is not installed in this environment, or is of another version than its user expects.",
        cures=(_CHECK,),
        deterministic=True,
        numbers=_built_for_another,
        variants=(
            Variant(
                when=when(r"undefined symbol|_OpNamespace|torchvision::nms|vllm\._C|GLIBC|numpy\.dtype size|NumPy 1"),
                sentence="a compiled library was built against another version of PyTorch, CUDA or the system than is installed",
                cures=(_CHECK, cure("install vLLM into a fresh environment, which brings the versions that fit", "uv venv && uv pip install vllm", when(r"undefined symbol|_OpNamespace|nms|vllm\._C|NumPy|numpy", lacks=rf"{_NOT_CUDA}|{_EXTENSION.pattern}"))),
            ),
            Variant(
                when=when(r"lib(?:cudart|cublas\w*|nvrtc|cusparse\w*|cufft|curand|cupti|nvJitLink|cudnn)\.so\.\d+: cannot open"),
                sentence="a library of the CUDA runtime is missing, of the version for which a package was built",
                why="A wheel for one CUDA beside a PyTorch for another makes this error: the number after .so is the CUDA (or cuDNN) that the package wants.",
                cures=(
                    cure("compare it with the CUDA of the installed PyTorch", "python -c 'import torch; print(torch.__version__, torch.version.cuda)'"),
                    cure("install vLLM and PyTorch for the same CUDA (a link of another version's name does not help)", "uv pip install vllm --torch-backend=auto", when(r"\.so\.\d+: cannot open", lacks=_NOT_CUDA)),
                ),
            ),
            Variant(
                when=when(r", but you have "),
                sentence="installed packages do not fit each other (pip's report; vLLM may not have been started yet)",
                cures=(_CHECK, cure("install vLLM into a fresh environment, which brings the versions that fit", "uv venv && uv pip install vllm", when(r"vllm \S+ requires (?:torch|transformers|numpy)"))),
            ),
            Variant(
                when=when(r"is not available or outdated"),
                sentence="a package that this setting needs is not installed, or is too old",
                cures=(cure("see its version, and the one that this vLLM requires", "python -m pip list | grep -i -E 'gemm|flashinfer|vllm'; python -m pip check"), cure("multiply without DeepGEMM", "VLLM_USE_DEEP_GEMM=0", when(r"DeepGEMM|deep_gemm"))),
            ),
            Variant(
                when=when(r"does not match flashinfer version"),
                sentence="FlashInfer's packages are of different versions",
                why="flashinfer-python, flashinfer-cubin and flashinfer-jit-cache must be of one version.",
                cures=(cure("see them, and install all in the version that this vLLM requires", "python -m pip list | grep -i flashinfer; python -m pip check"),),
            ),
            Variant(
                when=when(r"NIXL is not available|import kv connector"),
                sentence="the package of the KV connector is not installed, or cannot be imported",
                cures=(cure("see whether it can be imported by the Python that runs vLLM (and for which CUDA it was built)", "python -c 'import nixl'; python -m pip list | grep -i -E 'nixl|lmcache|mooncake'"),),
            ),
            Variant(
                when=when(r"lib(?:ascend|hccl|acl|ge_)\w*\.so\S*: cannot open"),
                sentence="a library of the NPU's driver or of CANN is not found",
                why="CANN's set_env.sh puts its libraries on the path; those of the driver come from the host.",
                cures=(cure("load CANN's settings, and see whether the driver is there", "source /usr/local/Ascend/ascend-toolkit/set_env.sh; ls /usr/local/Ascend/driver/lib64"), cure("in a container, mount the driver and the devices", "docker run --device /dev/davinci0 --device /dev/davinci_manager -v /usr/local/Ascend/driver:/usr/local/Ascend/driver …", when(r"cannot open"))),
            ),
            Variant(
                when=when(r"\(deleted\): cannot open"),
                sentence="a library was replaced or removed while the process that uses it ran",
                cures=(cure("if packages were installed meanwhile, start vLLM again, from an environment that nothing changes while it runs", None, when(r"deleted")),),
                deterministic=False,
            ),
            Variant(
                when=when(r"cannot open shared object file"),
                sentence="a shared library is not found",
                cures=(cure("see which libraries are missing", "ldd $(python -c 'import torch,os; print(os.path.dirname(torch.__file__))')/lib/libtorch_cuda.so | grep 'not found'", when(r"cuda|cu\w*\.so|nccl|torch")), cure("install the package that has it, or add its folder to LD_LIBRARY_PATH", None, when(r"cannot open shared"))),
            ),
            Variant(
                when=when(r"cannot import name|has no attribute|partially initialized"),
                sentence="an installed package lacks a name that its user imports: it is of another version, often a newer one",
                why="Installing the newest of everything makes such errors; the version that fits is named in the requirements of the package that imports it.",
                cures=(_CHECK, cure("install the version that this vLLM requires", "python -m pip show vllm; python -m pip install 'PACKAGE==VERSION'", when(r"cannot import name|has no attribute"))),
            ),
            Variant(
                when=when(r"No module named '\w+\.[\w.]+'"),
                sentence="an installed package lacks a module that its user imports: it is of another version, or only partly installed",
                cures=(_CHECK, cure("compare the version of the package with the requirements of the one that imports it", "python -m pip show PACKAGE", when(r"No module named"))),
            ),
            Variant(
                when=when(r"No module named|Please install|is required to load|not found in your environment|PackageNotFound|No package metadata|ModuleNotFound"),
                sentence="a Python package is not installed in this environment",
                cures=(cure("see which Python runs vLLM, and install the package that the message names into it", "which -a python vllm"),),
            ),
        ),
    ),
    Failure(
        slug=COMPILE,
        sentence="compiling kernels failed",
        why="",
        cures=(_EAGER, *_SWITCHES, cure("read the compiler's own lines: the first `error` in its output", None, when(seen=r"[Nn]inja|nvcc|g\+\+|gcc|clang|ptxas|error:"))),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"compiler and CUDA toolkit headers are incompatible|cuda_toolkit\.h"),
                sentence="the CUDA compiler (nvcc) and the CUDA headers that it finds are of different versions",
                why="pip may install nvidia-cuda-nvcc of a later minor version than nvidia-cuda-runtime; kernels are compiled at run time with both.",
                cures=(
                    cure("install nvcc of the same minor version as the runtime's headers (nvidia-cuda-nvcc, -crt and -nvvm as nvidia-cuda-runtime)", "python -m pip list | grep -i -E 'cuda-(nvcc|crt|runtime|nvvm)|nvvm'", when(r"headers are incompatible|cuda_toolkit")),
                    *_SWITCHES,
                    *_CACHES,
                ),
            ),
            Variant(
                when=when(r"cannot find -lcuda\b"),
                sentence="the linker does not find libcuda, the driver's library",
                why="A kernel that is compiled at run time is linked with it; the CUDA toolkit has a stub of it in lib64/stubs.",
                cures=(cure("see where it is, and add its folder to the linker's path", "ldconfig -p | grep libcuda; ls $CUDA_HOME/lib64/stubs; export LIBRARY_PATH=FOLDER", when(r"-lcuda\b")), *_SWITCHES),
            ),
            Variant(
                when=when(r"cannot find -l"),
                sentence="the linker does not find a CUDA library that a kernel compiled at run time is linked with",
                why="CUDA from pip has its libraries in lib/ (not lib64/) and without the plain name (libcudart.so) that the linker searches for.",
                cures=(
                    cure("add the folder to the linker's path, with a link of the plain name", "ln -s libcudart.so.13 DIR/libcudart.so; export LIBRARY_PATH=DIR", when(r"-lcudart")),
                    cure("or install the CUDA toolkit that PyTorch was built for, and name it", "export CUDA_HOME=/usr/local/cuda", when(r"cannot find -l(?:cu|nv)")),
                    *_SWITCHES,
                ),
            ),
            Variant(
                when=when(r"requires CUDA >=|nvcc fatal {0,3}: Unknown option|Unsupported gpu architecture|NVCC version should be|sm_\d+a?' is not defined|not defined for option 'gpu-name'|is not a recognized processor"),
                sentence="the CUDA compiler is older than this GPU (or than the library) needs",
                why="nvcc or ptxas of CUDA_HOME is used, not the CUDA that PyTorch was built with.",
                cures=(
                    cure("see which compiler is found", "which -a nvcc ptxas; nvcc --version; echo $CUDA_HOME"),
                    cure("install a CUDA toolkit that knows this GPU, and name it", "export CUDA_HOME=/usr/local/cuda", when(r"requires CUDA|Unknown option|Unsupported gpu|NVCC version|not defined|recognized")),
                    cure("let Triton take that toolkit's ptxas", "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas", when(r"ptxas")),
                    *_SWITCHES,
                ),
            ),
            Variant(
                when=when(r"nvcc.{0,60}(?:not found|No such)|[Cc]ould not find nvcc|CUDA_HOME environment variable is not set|find nvcc"),
                sentence="a kernel is compiled at run time, and no nvcc is found",
                cures=(
                    cure("install the CUDA toolkit that PyTorch was built for, and name it (a stray colon in CUDA_HOME breaks it)", "export CUDA_HOME=/usr/local/cuda; $CUDA_HOME/bin/nvcc --version", when(r"nvcc|CUDA_HOME")),
                    *_SWITCHES,
                ),
            ),
            Variant(
                when=when(r"No supported CUDA architectures found"),
                sentence="FlashInfer has no such kernel for this GPU's generation",
                why="The setting or the model asks for it, or the installed FlashInfer is too old for this GPU.",
                cures=(cure("see its version and the GPU's compute capability", "python -m pip list | grep -i flashinfer; nvidia-smi --query-gpu=name,compute_cap --format=csv"), *_SWITCHES),
            ),
            Variant(
                when=when(r"synStatus"),
                sentence="Gaudi's compiler (Synapse) could not compile a graph of this model",
                why="Driver, Synapse and vllm-gaudi must be of one release; some models compile only in some of them.",
                cures=(cure("see the versions", "hl-smi; python -m pip list | grep -i -E 'habana|vllm|torch'"), cure("search vllm-gaudi's issues for the model and the release")),
            ),
            Variant(
                when=when(r"Failed to find C compiler|Python\.h|[Nn]o working (?:C\+\+ )?compiler|C\+\+ compiler.{0,40}not found|(?:stdlib|math|omp)\.h"),
                sentence="there is no C compiler, or Python's headers are missing",
                cures=(cure("install them", "apt-get install -y build-essential python3-dev", when(r"compiler|\.h")),),
            ),
            Variant(
                when=when(r"OutOfResources|out of resource: shared memory"),
                sentence="a Triton kernel needs more shared memory than this GPU has",
                cures=(cure("if the kernel is one of attention, serve with another attention backend", "--attention-backend NAME", when(seen=r"attention|attn")), cure("search vLLM's issues for the kernel's name in the traceback")),
            ),
            Variant(
                when=when(r"PassManager|Triton compilation failed|triton\.compiler|failed to legalize"),
                sentence="Triton could not compile a kernel",
                why="The traceback names it; most often Triton is of another version than vLLM was tried with, or does not know this GPU well.",
                cures=(cure("see which versions of torch and Triton are installed, and which vLLM requires", "python -m pip check; python -m pip show torch triton"),),
            ),
            Variant(
                when=when(r"corrupted compilation artifact|torch_compile_cache.{0,800}(?:corrupt|EOFError|UnpicklingError|truncated)"),
                sentence="files compiled by an earlier start cannot be read",
                cures=(cure("delete it: it is made again", "rm -rf ~/.cache/vllm/torch_compile_cache", when(r"corrupted compilation|torch_compile_cache")),),
                deterministic=None,
            ),
            Variant(
                when=when(seen=rf"{_FLASHINFER}|{_DEEP_GEMM}"),
                sentence="a library's kernel could not be compiled at run time (JIT)",
                why="FlashInfer and DeepGEMM compile with the nvcc that they find; the compiler's own first error has the reason.",
                cures=(cure("read the compiler's own lines: the first `error` in its output"), cure("see which compiler is found", "which -a nvcc; nvcc --version; echo $CUDA_HOME"), *_SWITCHES, *_CACHES),
            ),
        ),
    ),
    Failure(
        slug=DISK,
        sentence="a disk (or its quota) is full",
        why="Weights, compiled kernels, /dev/shm and /tmp are written at the start.",
        cures=(
            cure("see which", "df -h / /tmp /dev/shm ~/.cache; df -i ~/.cache"),
            cure("put Hugging Face's cache where there is room", "HF_HOME=/data/huggingface", when(seen=r"huggingface|hub/|snapshot|safetensors|download|hf_|xet")),
            cure("put compiled files on a disk with room", "VLLM_CACHE_ROOT=/data/vllm TRITON_CACHE_DIR=/data/triton", when(seen=r"torch_compile_cache|inductor|triton|\.cache/vllm|flashinfer")),
            cure("give the container shared memory", "docker run --ipc=host …   (or --shm-size=16g)", when(seen=r"[/]dev/shm|psm_|shared memory|shm")),
        ),
        deterministic=False,
    ),
    Failure(
        slug=CACHE,
        sentence="a file or folder may not be written (or read) by the user that vLLM runs as",
        why="",
        cures=(
            cure("see user and rights, from inside the container", "id; ls -ld PATH"),
            cure("give it a home that it may write", "HOME=/tmp/vllm", when(seen=r"'/\.\w|/root/|\.cache|\.triton|\.config")),
            cure("name cache folders that it may write", "HF_HOME=… VLLM_CACHE_ROOT=… TRITON_CACHE_DIR=… TORCHINDUCTOR_CACHE_DIR=… FLASHINFER_WORKSPACE_BASE=…", when(seen=r"cache|triton|inductor|flashinfer|huggingface")),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"ZMQError|\bin bind\b|attempting to bind"),
                sentence="this user may not listen on this address or port",
                cures=(cure("listen on a port of 1024 or more", "--port 8000", when(r"bind|:\d{1,3}\b")),),
            ),
            Variant(
                when=when(r"uid not found"),
                sentence="the user that vLLM runs as has no entry in /etc/passwd, and PyTorch asks for its name",
                cures=(cure("name it, or give it an entry", "USER=vllm LOGNAME=vllm TORCHINDUCTOR_CACHE_DIR=/tmp/inductor", when(r"uid not found")),),
            ),
        ),
    ),
)  # fmt: skip
