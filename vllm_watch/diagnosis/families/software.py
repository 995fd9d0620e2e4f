"""What vLLM is built on: kernels, data types, quantization, compilers, packages, driver."""

from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Failure, Rank, rule

QUANTIZATION = "quantization_unsupported"
DTYPE = "dtype_unsupported"
ATTENTION = "attention_backend_unavailable"
DRIVER = "driver_cuda_mismatch"
IMPORT = "missing_dependency_or_import_error"
COMPILE = "compile_failure"

RULES = (
    rule(QUANTIZATION, "uantiz", pattern=r"different quantization (?:scheme|config)|[Uu]nsupported \w+ quantization|quantization with \w+ .{0,40}not supported|(?:[Uu]nknown|[Ii]nvalid|[Uu]nsupported) quantization|quantization (?:method )?\S{0,60} ?(?:is )?(?:currently )?not supported|[Qq]uantization (?:method|scheme).{0,120}(?:not supported|does not match|is deprecated)|does not support .{0,40}quantization|quantization is (?:currently )?not supported|[Cc]annot find (?:any|the config file) .{0,100}quantiz|weight quantization is supported for|quantization (?:config|method).{0,80}(?:unsupported|not found)|requires? .{0,60}for quantization"),
    rule(QUANTIZATION, "itsAndBytes", "itsandbytes", "GGUF", "gguf", "AWQ", "GPTQ", "awq", "gptq", "arlin", pattern=r"(?:BitsAndBytes|bitsandbytes|AWQ|GPTQ|[Mm]arlin|GGUF|gguf|awq|gptq)\b.{0,80}(?:not supported|does not support|unsupported|only supports?|is not implemented)"),
    rule(QUANTIZATION, "compute capability", "scaled_mm", "NVFP4", "nvfp4", "MXFP4", "mxfp4", "FP8", "fp8", "No compiled", pattern=r"_scaled_mm is only supported|(?:NVFP4|MXFP4|nvfp4|mxfp4|FP8|fp8|W8A8|w8a8|INT8|int8)\b.{0,100}(?:not supported|unsupported|requires? (?:compute capability|SM)|only supported on|requires Blackwell|requires Hopper)|No (?:compiled|kernel).{0,60}(?:fp8|cutlass_scaled_mm|quant)|No valid quant", rank=Rank.GENERAL),
    rule(QUANTIZATION, "Failed to find a kernel that can implement", "weight_scale", "qweight", "qzeros", "g_idx", "Minimum capability", "Min capability", "KeyError: '", "config file for", pattern=r"Failed to find a kernel that can implement|KeyError: '[\w.]{0,200}(?:weight_scale\w{0,40}|qweight|qzeros|g_idx|scales?|weight_packed|absmax|quant_state\w{0,40})'|[Cc]annot find the config file for \w*(?:awq|gptq|quant)|[Mm]in(?:imum)? capability:? \d+"),
    rule(DTYPE, "float16", "float32", "bf16", "Bfloat16", "Half", "fp8e4nv", "dtype", "data type", "expected scalar type", pattern=r"Bfloat16 is only supported on|does not support (?:bfloat16|float16|fp16|bf16)|torch\.b?float(?:16|32) is not supported for|not implemented for '(?:Half|BFloat16|Float8\w*)'|expected scalar type \w+ but found|to have the same dtype, but got|type fp8e4nv not supported|[Uu]nknown dtype|[Uu]nsupported (?:data type|dtype)|dtype .{0,40}(?:is )?not supported|data type .{0,40}not supported|KV cache is not supported by the Triton"),
    rule(DTYPE, "compute capability", "below 7.0", pattern=r"GPUs with compute capability below|only supported on GPUs with compute capability of at least"),
    rule(ATTENTION, "lash", pattern=r"FlashAttention(?:-?[234])? (?:only supports|requires|is only supported|forward only supports|does not support|is not supported)|[Ff]lash[- ]?[Aa]tt(?:entio)?n? (?:build|version|backend|package).{0,80}(?:not support|not available|not installed|unsupported|requires|is not found)|Flash(?:Infer|MLA|infer)\b.{0,80}(?:is not (?:available|supported|installed|compatible)|only supports?|requires|not supported|unavailable|is only supported)|This flash attention build"),
    rule(ATTENTION, "ead size", "head_size", "ead dimension", "headdim", pattern=r"[Hh]ead[ _]size:? ?\S{1,6} is not supported|[Uu]nsupported head[ _](?:size|dim)|only supports? head dim|headdim not being"),
    rule(ATTENTION, "backend", "Backend", pattern=r"No valid (?:MLA )?(?:prefill )?attention backend|[Nn]o valid .{0,20}prefill backend|[Ss]elected .{0,40}backend .{0,60}(?:is not valid|is not MLA type|does not support)|(?:[Ii]nvalid|[Uu]nknown|[Uu]nsupported) (?:MLA )?attention backend|not supported for attention backend|[Aa]ttention backend .{0,60}(?:not supported|has been removed|is not available|does not support|unsupported)|Backend \S+ is not supported for vit attention|(?:SDPA|[Xx]Formers|[Pp]allas|IPEX|PagedAttention|Triton[Aa]ttention|TRITON_\w{1,40}|FLASH\w{1,40})\b.{0,60}(?:does not support|doesn't support|is not available|not supported)"),
    rule(ATTENTION, "inks are only supported", "logits_soft_cap", "BatchPrefillWith", "BatchDecodeWith", "xFormers wasn't build", "memory_efficient_attention_forward", "FA3", "MLA is not supported", pattern=r"[Ss]inks are only supported|logits_soft_cap.{0,60}(?:not support|Flashinfer)|Batch(?:Prefill|Decode)With\w+ failed|xFormers wasn't build|No operator found for `memory_efficient|FA3 (?:is|not) (?:not )?supported|MLA is not supported", rank=Rank.GENERAL),
    rule(DRIVER, "no kernel image is available", "driver version is insufficient", "NVIDIA driver on your system is too old", "Found no NVIDIA driver on your system", "forward compatibility was attempted", "unsupported toolchain", "orward compatible", "No CUDA GPUs are available", "not compiled with CUDA enabled", "Failed to infer device type", "system not yet initialized", "CUDA unknown error", "Driver/library version mismatch", "driver/library version mismatch", "Can't initialize NVML", "no GPUs found!", "Unsupported gpu architecture", "invalid device function", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "unsatisfied condition: cuda", "device kernel image is invalid", "libcuda.so.1: cannot open", "libcuda.so: cannot open", "HIP error: no kernel", "unsupported display driver"),
    rule(DRIVER, "not compatible with the current PyTorch installation", rank=Rank.GENERAL, quiet=True),
    rule(DRIVER, "NVML", "CUDA", "nvidia", "device driver", "rror 80", "cudaGetDeviceCount", "please update your driver", pattern=r"Failed to initialize NVML|[Uu]nexpected error from cudaGetDeviceCount|NVMLError_(?:LibraryNotFound|DriverNotLoaded|LibRmVersionMismatch)|NVML Shared Library Not Found|CUDA initialization: (?:Unexpected|CUDA|The)|could not select device driver|nvidia-container-cli: .{0,80}(?:error|requirement)|detected CUDA version .{0,60}mismatches|cuda>=\S+, please update your driver|CUDA error: (?:initialization error|no CUDA-capable device|CUDA-capable device\(s\) is/are busy)|no CUDA-capable device is detected", quiet=True),
    rule(COMPILE, "torch._inductor.exc", "torch._dynamo.exc", "BackendCompilerFailed", "InductorError", "CppCompileError", "InvalidCxxCompiler", "TorchRuntimeError", "InternalTorchDynamoError", "ConstraintViolationError", "LoweringException", "FakeTensorError", "DynamicOutputShapeException", pattern=r"torch\._(?:inductor|dynamo)\.exc\.\w+|(?:BackendCompilerFailed|InductorError|CppCompileError|InvalidCxxCompiler|TorchRuntimeError|InternalTorchDynamoError|ConstraintViolationError|LoweringException)\b", rank=Rank.GENERAL),
    rule(COMPILE, "ptxas", pattern=r"ptxas (?:fatal|/\S+|error|info.{0,800}error)|ptxas.{0,60}(?:failed|error|not found|exit)|PTXAS error"),
    rule(COMPILE, "C compiler", "C++ compiler", "working compiler", "Python.h", "cuda_runtime.h", "math.h", pattern=r"Failed to find C compiler|(?:Python|cuda_runtime|cuda|math|stdlib|omp)\.h: No such file|[Nn]o working compiler|C\+\+ compiler .{0,40}not found"),
    rule(COMPILE, "No working C++ compiler", rank=Rank.GENERAL),
    rule(COMPILE, "nvcc", "inja", "CUDA_HOME", "cuda_home", "cpp_extension", "JIT", "NVRTC", "nvrtc", "rror building extension", "rror compiling objects", pattern=r"nvcc fatal|nvcc (?:not found|compilation failed)|[Cc]ould not find nvcc|/nvcc.{0,40}(?:not found|No such)|NVCC compilation failed|[Nn]inja build failed|ninja: build stopped|Error building extension|Error compiling objects|CUDA_HOME environment variable is not set|JIT compilation failed|NVRTC_ERROR|nvrtc: error"),
    rule(COMPILE, "triton.compiler.errors", "triton.runtime.errors", "OutOfResources", "out of resource: shared memory", "CompilationError", "PassManager::run failed", "failed to legalize operation", "failed to compile the model", "LLVM ERROR", "error: linker", "CompiledKernel", "DSLRuntimeError", "TVMError", "tvm.error", "Triton compilation failed", "is not a recognized processor", "layout conversion is only supported", pattern=r"Triton compilation failed|is not a recognized processor|layout conversion is only supported|triton\.(?:compiler|runtime)\.errors|OutOfResources|out of resource: shared memory|\bCompilationError\b|PassManager::run failed|failed to legalize|vLLM failed to compile the model|LLVM ERROR|error: linker|DSLRuntimeError|tvm\.error|TVMError", rank=Rank.GENERAL),
    rule(COMPILE, "CalledProcessError", pattern=r"CalledProcessError: .{0,60}(?:gcc|g\+\+|clang|nvcc|ptxas|ninja|/cc)\b"),
    rule(COMPILE, "torch_compile_cache", "corrupted compilation artifact", pattern=r"corrupted compilation artifact|torch_compile_cache.{0,800}(?:Error|corrupt)", deterministic=False),
    rule(IMPORT, "undefined symbol", "cannot open shared object file", pattern=r"undefined symbol: \w+|\.so\S{0,40}: cannot open shared object file", rank=Rank.IMPORT),
    rule(IMPORT, "ModuleNotFoundError", "ImportError", "PackageNotFoundError", "No module named", pattern=r"(?:ModuleNotFoundError|ImportError|PackageNotFoundError)\b:? ?\S|No module named ['\w]", rank=Rank.IMPORT),
    rule(IMPORT, "cannot import name", "partially initialized module", "packages that were not found in your environment", "operator torchvision::nms does not exist", "No package metadata was found", "DistributionNotFound", "is not installed. Please install", rank=Rank.IMPORT),
    rule(IMPORT, "has no attribute", pattern=r"AttributeError: (?:partially initialized )?module '[\w.]+' has no attribute|'_OpNamespace' '\w+' object has no attribute", rank=Rank.IMPORT),
    rule(IMPORT, "GLIBC", "GLIBCXX", "numpy.dtype size changed", "compiled using NumPy 1.x", pattern=r"version `GLIBC(?:XX)?_\S+' not found|numpy\.dtype size changed|A module that was compiled using NumPy 1", rank=Rank.IMPORT),
)  # fmt: skip

_IMAGE = Fix(
    "use the release's own container image, in which the versions fit",
    "docker run --gpus all vllm/vllm-openai:latest …",
)
_EAGER = Fix("start without compilation, to serve meanwhile", "--enforce-eager")

FAILURES = (
    Failure(
        slug=QUANTIZATION,
        sentence="this quantization does not work with this model, GPU or vLLM",
        why="The method is unknown to this release, not implemented for the architecture, at odds with the model's own config, or needs a newer GPU.",
        fixes=(Fix("leave --quantization out: vLLM reads the method from the model's config"), Fix("take a version of the model in another format (AWQ, GPTQ, FP8) that the GPU supports"), Fix("take a newer vLLM", "pip install -U vllm")),
        deterministic=True,
    ),
    Failure(
        slug=DTYPE,
        sentence="the GPU or the model does not support this data type",
        why="bfloat16 needs compute capability 8.0 (Ampere), FP8 8.9 (Ada, Hopper); some methods and models take only one type.",
        fixes=(Fix("on GPUs older than Ampere", "--dtype half"), Fix("store the KV cache in the model's own type", "--kv-cache-dtype auto")),
        deterministic=True,
    ),
    Failure(
        slug=ATTENTION,
        sentence="the attention backend does not work on this GPU or for this model",
        why="The chosen backend is not installed, not made for this GPU, or does not know this head size or feature.",
        fixes=(Fix("let vLLM choose: unset what forces one", "unset VLLM_ATTENTION_BACKEND"), Fix("or choose one that works nearly everywhere", "--attention-backend TRITON_ATTN")),
        deterministic=True,
    ),
    Failure(
        slug=DRIVER,
        sentence="driver, CUDA and the build of PyTorch or vLLM do not fit this GPU, or no GPU is seen",
        why="Either the driver is older than the CUDA the wheels were built for, or the wheels hold no code for this GPU, or the GPU is not passed to this process.",
        fixes=(Fix("see driver and GPU as this process does", "nvidia-smi"), Fix("see what PyTorch was built for", "python -c 'import torch; print(torch.version.cuda, torch.cuda.get_arch_list())'"), Fix("renew the driver, or take wheels for its CUDA version"), _IMAGE),
        deterministic=True,
    ),
    Failure(
        slug=IMPORT,
        sentence="a Python package or library is missing or of the wrong version",
        why="An import failed: the package is not installed in this environment, or was built against another version of PyTorch or CUDA.",
        fixes=(Fix("see which Python this is, and check what is installed", "python -m pip check"), Fix("install vLLM into a fresh environment, which brings matching versions", "uv venv && uv pip install vllm"), _IMAGE),
        deterministic=True,
    ),
    Failure(
        slug=COMPILE,
        sentence="compiling the model's kernels failed",
        why="torch.compile, Triton or a just-in-time build broke: no compiler or headers, a compiler older than the GPU, or a bug in one of them.",
        fixes=(_EAGER, Fix("give it a compiler and Python's headers", "apt-get install -y build-essential python3-dev"), Fix("drop what earlier versions compiled", "rm -rf ~/.cache/vllm/torch_compile_cache ~/.triton/cache"), _IMAGE),
        deterministic=True,
    ),
)  # fmt: skip
