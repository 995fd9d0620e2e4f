"""Failures to compile kernels at run time.

Sources: PyTorch, Triton, NVCC, FlashInfer's and DeepGEMM's JIT; flashinfer #5064 (-lcudart), #3493 (headers), vllm
#36077 (nvcc), #49051 and #43954 (DeepGEMM), #50705 and #31740 (FlashInfer's architectures), vllm-gaudi #1734.
"""

from vllm_watch.diagnosis.rule import Failure, Rank, Variant, check, cure, rule, when

COMPILE = "compile_failure"

RULES = (
    rule(COMPILE, "triton.compiler.errors", "CompilationError", pattern=r"triton\.compiler\.errors(?!\.\w+: at \d+:\d+:\s*$)|(?<!errors\.)CompilationError(?!: at \d+:\d+:\s*$)", rank=Rank.GENERAL),
    rule(COMPILE, "Error: at ", pattern=r"CompilationError: at \d+:\d+:\s*$", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "rror('", pattern=r"(?:^|\) )(?:Value|Assertion|Type|Runtime)Error\('(?:Cannot (?:make_shape_compatible|broadcast)|(?:First )?[Ii]nput shapes? |.{0,100}incompatible dimensions|Shape element )"),
    rule(COMPILE, "torch._inductor.exc", "torch._dynamo.exc", "BackendCompilerFailed", "InductorError", "CppCompileError", "InvalidCxxCompiler", "TorchRuntimeError", "InternalTorchDynamoError", "ConstraintViolationError", "LoweringException", "FakeTensorError", "DynamicOutputShapeException", pattern=r"(?:torch\._(?:inductor|dynamo)\.exc\.\w+|BackendCompilerFailed|InductorError|CppCompileError|InvalidCxxCompiler|TorchRuntimeError|InternalTorchDynamoError|ConstraintViolationError|LoweringException)\b(?!.{0,200}(?:CUDA|HIP) error: )", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "ptxas", pattern=r"ptxas(?:-\w{1,20})? {0,3}(?:fatal|/\S+|error|info.{0,800}error)|ptxas.{0,60}(?:failed|not found|exit)|ptxas application .{0,80}\berror\b"),
    rule(COMPILE, "PTXAS error", "Internal Triton PTX codegen error", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "C compiler", "C++ compiler", "working compiler", "Python.h", "cuda_runtime.h", "math.h", pattern=r"Failed to find C compiler|(?:Python|cuda_runtime|cuda|math|stdlib|omp)\.h: No such file|[Nn]o working compiler|C\+\+ compiler .{0,40}not found"),
    rule(COMPILE, "No working C++ compiler", rank=Rank.GENERAL),
    rule(COMPILE, "error:", "error #", pattern=r"\.(?:h|hpp|cuh|cu|cpp|cc|c|inl)(?::\d+(?::\d+)?|\(\d+\)): (?:fatal |catastrophic )?error\b"),
    rule(COMPILE, "cannot find -l", "ld returned", pattern=r"cannot find -l\w+"),
    rule(COMPILE, "ld returned", pattern=r"ld returned \d+ exit status", rank=Rank.GENERAL),
    rule(COMPILE, "nvcc", "NVCC", "Unsupported gpu architecture", "directory: 'ninja'", pattern=r"nvcc fatal|nvcc(?:['\"]|:)? {0,4}(?:not found|compilation failed)|(?:[Cc]ould not|[Ff]ailed to) find nvcc|/nvcc.{0,40}(?:not found|No such)|No such file or directory: '(?:[^']{0,200}/)?nvcc'|No such file or directory: 'ninja'|'which', 'nvcc'|NVCC compilation failed|NVCC version should be|Unsupported gpu architecture"),
    rule(COMPILE, "detected in the compilation of", pattern=r"\d errors? detected in the compilation of", rank=Rank.GENERAL),
    rule(COMPILE, "FAILED: [code=", pattern=r"FAILED: \[code=137\] \S"),
    rule(COMPILE, "inja", "rror building extension", "rror compiling objects", pattern=r"[Nn]inja build failed|ninja: build stopped|Error building extension|Error compiling objects", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "Assertion error (", pattern=r"Assertion error \(\S{0,200}/jit/\w{1,40}\.hpp:\d+\)", rank=Rank.GENERAL),
    rule(COMPILE, "CUDA driver error (", pattern=r"CUDA driver error \(\S{0,200}/jit/\w{1,40}\.hpp:\d+\)", rank=Rank.GENERAL),
    rule(COMPILE, "No supported CUDA architectures found", "synStatus", pattern=r"No supported CUDA architectures found|compile failed.{0,80}synStatus", rank=Rank.GENERAL),
    rule(COMPILE, "requires GPUs with sm", pattern=r"FlashInfer requires GPUs with sm\d+", rank=Rank.GENERAL),
    rule(COMPILE, "requires CUDA >=", pattern=r"SM \d+\.\w requires CUDA >= ?\d", rank=Rank.GENERAL),
    rule(COMPILE, "CUDA_HOME", "cuda_home", "cpp_extension", "JIT", "NVRTC", "nvrtc", pattern=r"CUDA_HOME environment variable is not set|JIT compilation failed|NVRTC_ERROR|nvrtc: error"),
    rule(COMPILE, "triton.runtime.errors", "OutOfResources", "out of resource: shared memory", "PassManager::run failed", "failed to legalize operation", "failed to compile the model", "LLVM ERROR", "error: linker", "CompiledKernel", "DSLRuntimeError", "TVMError", "tvm.error", "Triton compilation failed", "is not a recognized processor", "layout conversion is only supported", pattern=r"Triton compilation failed|is not a recognized processor|layout conversion is only supported|triton\.(?:compiler|runtime)\.errors|OutOfResources|out of resource: shared memory|\bCompilationError\b|PassManager::run failed|failed to legalize|vLLM failed to compile the model|LLVM ERROR|error: linker|DSLRuntimeError|(?:tvm\.error|TVMError).{0,300}(?:compil|codegen|lower)", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "CalledProcessError", pattern=r"CalledProcessError: .{0,60}(?:gcc|g\+\+|clang|nvcc|ptxas|/cc)\b"),
    rule(COMPILE, "returned non-zero exit status", pattern=r"Command '\['[^']{0,200}(?:gcc|g\+\+|clang|clang\+\+|nvcc|ninja|/cc)'.{0,8000}returned non-zero exit status", rank=Rank.GENERAL, header=True),
    rule(COMPILE, "torch_compile_cache", "corrupted compilation artifact", pattern=r"corrupted compilation artifact|torch_compile_cache.{0,800}(?:corrupt|EOFError|UnpicklingError|truncated)", deterministic=False),
)  # fmt: skip

_FLASHINFER = r"flashinfer|FlashInfer|cached_ops"
_DEEP_GEMM = r"deep_?gemm|DeepGEMM|jit_kernels|fp8_gemm_nt|/jit/(?:compiler|kernel_runtime)\.hpp"
_BY_INDUCTOR = r"torch\._(?:inductor|dynamo)|BackendCompilerFailed|InductorError|torch_compile_cache|TorchRuntimeError|failed to compile the model|LoweringException|ConstraintViolation"
_SAMPLER = cure("disable FlashInfer's sampling kernels", "VLLM_USE_FLASHINFER_SAMPLER=0", when(seen=r"cached_ops/sampling|topk_topp_sampler\.py \w|_dummy_sampler_run|flashinfer/sampling"))  # fmt: skip
_SWITCHES = (
    _SAMPLER,
    cure("serve with another attention backend", "--attention-backend FLASH_ATTN   (or TRITON_ATTN)", when(seen=r"cached_ops/\w*(?:prefill|decode|mla|attention)|get_batch_(?:prefill|decode)_module|backends/flashinfer")),
    cure("disable FlashInfer's MoE kernels", "VLLM_USE_FLASHINFER_MOE_FP16=0 VLLM_USE_FLASHINFER_MOE_FP8=0 VLLM_USE_FLASHINFER_MOE_FP4=0", when(seen=r"cached_ops/\w*fused_moe|flashinfer/fused_moe")),
    cure("compile with nvcc instead of NVRTC", "DG_JIT_USE_NVRTC=0", when(seen=r"(?:DeepGEMM|deep_gemm|DG_JIT).{0,300}NVRTC|NVRTC compilation failed", lacks=r"\bnvcc\b.{0,40}not found")),
    cure("disable DeepGEMM", "VLLM_USE_DEEP_GEMM=0", when(seen=_DEEP_GEMM)),
)  # fmt: skip
_CACHES = (
    cure("after you fix the toolchain, delete its earlier builds in ~/.cache/flashinfer (deleting them alone does not help)", None, when(seen=r"\.cache/flashinfer|cached_ops")),
    cure("after you fix the toolchain, delete its earlier builds in ~/.deep_gemm or ~/.cache/vllm/deep_gemm", None, when(seen=r"\.deep_gemm|cache/\S{0,80}deep_gemm")),
)  # fmt: skip
_EAGER = check("check whether it starts without torch.compile", "--enforce-eager", when(_BY_INDUCTOR, lacks=rf"C(?:\+\+)? compiler|ptxas|nvcc|gcc|[Tt]riton|{_FLASHINFER}|{_DEEP_GEMM}|[Nn]inja|Python\.h"))  # fmt: skip

_SEARCH = check(
    "search the issues of vLLM and of the library in the traceback for the message and this GPU"
)

FAILURES = (
    Failure(
        slug=COMPILE,
        sentence="compiling code failed",
        why="",
        cures=(_EAGER, *_SWITCHES, check("read the first `error` in the compiler's own output", None, when(seen=r"[Nn]inja|nvcc|NVCC|g\+\+|gcc|clang|ptxas|error:|rror (?:compiling|building)|ompilation (?:failed|of \")")), _SEARCH),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"InductorError: (?:Attribute|Import)Error: .{0,200}(?:CompiledKernel|triton|Triton)"),
                sentence="PyTorch and Triton have incompatible versions",
                why="PyTorch's compiler uses Triton APIs that change between releases.",
                cures=(cure("install the Triton that this PyTorch requires", "python -m pip check; python -m pip show torch triton | grep -E '^(Name|Version|Requires)'", when(r"Error")),),
            ),
            Variant(
                when=when(r"compiler and CUDA toolkit headers are incompatible|cuda_toolkit\.h"),
                sentence="the CUDA compiler (nvcc) and the CUDA headers that it finds have different versions",
                cures=(
                    cure("use nvcc and headers of the same CUDA version (from pip: nvidia-cuda-nvcc, -crt and -nvvm of the same minor version as nvidia-cuda-runtime)", "python -m pip list | grep -i -E 'cuda-(nvcc|crt|runtime|nvvm)|nvvm'", when(r"headers are incompatible|cuda_toolkit")),
                    *_SWITCHES,
                    *_CACHES,
                ),
            ),
            Variant(
                when=when(r"(?i)GPUTooOldForTriton|too old to be supported by the triton"),
                sentence="this GPU is older than Triton supports: it needs compute capability 7.0 (Volta)",
                why="vLLM's own kernels need that, too, so another setting does not help.",
                cures=(check("check the GPU and its compute capability", "nvidia-smi --query-gpu=name,compute_cap --format=csv"), cure("use a newer GPU, or an engine that supports this one, such as llama.cpp")),
            ),
            Variant(
                when=when(r"TritonMissing|find a working triton installation"),
                sentence="PyTorch's compiler finds no working Triton",
                cures=(check("import it, and compare the versions", "python -c 'import triton; print(triton.__version__)'; python -m pip check; python -m pip show torch | grep -E '^(Version|Requires)'"), check("check that PyTorch sees the GPU", "python -c 'import torch; print(torch.cuda.is_available())'")),
            ),
            Variant(
                when=when(r"No such file or directory: 'ninja'"),
                sentence="code is to be compiled, but the program ninja is not found",
                cures=(check("check whether it is installed", "ls $(dirname $(which python))/ninja; which ninja"), cure("if it is, add that directory to PATH; otherwise install it", "python -m pip install ninja", when(r"ninja"))),
            ),
            Variant(
                when=when(r"No such file or directory: '[^']{0,200}ptxas"),
                sentence="the assembler ptxas is not found",
                why="Triton uses the ptxas of its own package unless TRITON_PTXAS_PATH names another.",
                cures=(check("check the variable and the file", "echo $TRITON_PTXAS_PATH; ls -l $TRITON_PTXAS_PATH"), cure("if the variable names a file that does not exist, unset it or set it to one that does", None, when(r"ptxas"))),
            ),
            Variant(
                when=when(r"FileNotFoundError[^\n]{0,200}(?:torchinductor|torch_compile_cache|\.triton/|cache/(?:\S{0,80}/)?triton/)"),
                sentence="a file in a cache of compiled kernels is missing",
                cures=(cure("if servers or hosts share the directory, or a job cleans it, give each server its own cache directories", "VLLM_CACHE_ROOT=DIR TORCHINDUCTOR_CACHE_DIR=DIR TRITON_CACHE_DIR=DIR", when(r"FileNotFound")), cure("start again: the start rebuilds the files")),
                deterministic=False,
            ),
            Variant(
                when=when(r"nvrtc: error: invalid value for --gpu-arch"),
                sentence="NVRTC, CUDA's run-time compiler, does not support this GPU's architecture",
                cures=(check("compare its version with the GPU", "python -m pip list | grep -i nvrtc; nvidia-smi --query-gpu=name,compute_cap --format=csv"), cure("use a vLLM (or an image) whose PyTorch comes with a CUDA version that supports this GPU (12.8 or later for compute capability 10.0 and 12.0)", None, when(r"nvrtc|NVRTC"))),
            ),
            Variant(
                when=when(r"(?:gcc|cc|clang)'[^\n]{0,300}(?:main|cuda_utils|hip_utils|driver|__triton_launcher)\.c\b", lacks=r"Python\.h|cannot find -l|\.h: No such"),
                sentence="the C compiler failed on a small program through which Triton calls the driver",
                why="The compiler's own lines, before this one, give the reason.",
                cures=(
                    check("check that Python's headers and the driver's library (libcuda) are there", "ls $(python -c 'import sysconfig; print(sysconfig.get_path(\"include\"))')/Python.h; ldconfig -p | grep libcuda", when(lacks=r"hip_utils|rocm")),
                    cure("install the headers of this Python version, or add libcuda's directory to LIBRARY_PATH, whichever is missing", "apt-get install -y python3-dev", when(r"gcc|cc|clang", lacks=r"hip_utils|rocm")),
                ),
            ),
            Variant(
                when=when(r"\bcuda(?:_runtime)?\.h: No such"),
                sentence="code is to be compiled with the CUDA headers, but they are not found",
                cures=(check("check where they are", "echo $CUDA_HOME; ls $CUDA_HOME/include/cuda_runtime.h; find / -name cuda_runtime.h 2>/dev/null"), cure("set CUDA_HOME to the toolkit that has them, or install its headers (cuda-cudart-dev)", "export CUDA_HOME=/usr/local/cuda", when(r"\.h: No such")), *_SWITCHES),
            ),
            Variant(
                when=when(r"cannot find -lcuda\b"),
                sentence="the linker does not find libcuda, the driver's library",
                why="The CUDA toolkit has a stub of it in lib64/stubs.",
                cures=(check("find it, and add its directory to the linker's path", "ldconfig -p | grep libcuda; ls $CUDA_HOME/lib64/stubs; export LIBRARY_PATH=FOLDER", when(r"-lcuda\b")), *_SWITCHES),
            ),
            Variant(
                when=when(r"cannot find -l"),
                sentence="the linker does not find a library: its name follows -l",
                cures=(
                    cure("if CUDA comes from pip, which has only the versioned name: create a symlink with the unversioned one, and add the directory to the linker's path", "ln -s libcudart.so.N DIR/libcudart.so; export LIBRARY_PATH=DIR", when(r"-lcudart")),
                    cure("or install the CUDA toolkit that PyTorch was built for, and set CUDA_HOME to it", "export CUDA_HOME=/usr/local/cuda", when(r"cannot find -l(?:cu|nv)")),
                    *_SWITCHES,
                ),
            ),
            Variant(
                when=when(r"not defined for option 'gpu-name'", seen=r"triton/backends/nvidia/bin/ptxas|PTXASError|Triton PTX"),
                sentence="the ptxas that Triton uses does not support this GPU's architecture",
                why="Triton uses the ptxas of its own package unless TRITON_PTXAS_PATH names another. CUDA_HOME does not change it.",
                cures=(
                    cure("set TRITON_PTXAS_PATH to the ptxas of a CUDA toolkit that supports this GPU", "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas; $TRITON_PTXAS_PATH --version", when(r"gpu-name")),
                    cure("or use releases of PyTorch and Triton that support this GPU", "python -m pip show torch triton"),
                ),
            ),
            Variant(
                when=when(r"requires CUDA >=|nvcc fatal {0,3}: Unknown option|Unsupported gpu architecture|NVCC version should be|sm_\d+a?' is not defined|not defined for option 'gpu-name'"),
                sentence="the CUDA compiler is not of a version that supports this GPU and the library",
                cures=(
                    check("check which compiler is found", "which -a nvcc ptxas; nvcc --version; echo $CUDA_HOME"),
                    cure("install a CUDA toolkit that supports this GPU, and set CUDA_HOME to it", "export CUDA_HOME=/usr/local/cuda", when(r"requires CUDA|Unknown option|Unsupported gpu|NVCC version|not defined")),
                    cure("make Triton use that toolkit's ptxas", "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas", when(r"ptxas", seen=r"[Tt]riton")),
                    *_SWITCHES,
                ),
            ),
            Variant(
                when=when(r"(?<![^\s'\"])[^\s'\"]{0,100}:/\S{0,100}/nvcc\b.{0,40}(?:not found|No such)|directory: '[^']{0,100}:/[^']{0,100}/nvcc'"),
                sentence="CUDA_HOME is not a single directory: it contains a colon",
                why="PATH joins directories with colons, CUDA_HOME does not; the nvcc after the colon may well exist.",
                cures=(cure("set it to one directory", "export CUDA_HOME=/usr/local/cuda; $CUDA_HOME/bin/nvcc --version", when(r"nvcc")), *_CACHES),
            ),
            Variant(
                when=when(r"nvcc.{0,60}(?:not found|No such)|directory: '[^']{0,200}nvcc'|[Cc]ould not find nvcc|CUDA_HOME environment variable is not set|find nvcc|'which', 'nvcc'"),
                sentence="code is to be compiled, but CUDA's compiler nvcc is not found",
                cures=(
                    check("check whether a CUDA toolkit is installed under another name", "which -a nvcc; ls -d /usr/local/cuda*; echo $CUDA_HOME"),
                    cure("if not, install FlashInfer's precompiled kernels (flashinfer-cubin, flashinfer-jit-cache) in FlashInfer's version: they do not need nvcc", "python -m pip list | grep -i flashinfer", when(seen=_FLASHINFER)),
                    cure("otherwise install the CUDA toolkit that PyTorch was built for, and set CUDA_HOME to it", "export CUDA_HOME=/usr/local/cuda; $CUDA_HOME/bin/nvcc --version", when(r"nvcc|CUDA_HOME")),
                    *_SWITCHES,
                ),
            ),
            Variant(
                when=when(r"requires GPUs with sm\d"),
                sentence="FlashInfer found no GPU generation that it can compile for",
                why="FlashInfer prints the same message for a GPU that is too old, for one that is newer than the CUDA compiler (SM 12.x needs 12.9), and if it sees no GPU.",
                cures=(
                    check("check which of these applies", "nvidia-smi --query-gpu=name,compute_cap --format=csv; which -a nvcc; nvcc --version; echo $CUDA_HOME"),
                    cure("if the GPU is newer than the compiler, install a CUDA toolkit that supports it, and set CUDA_HOME to it", "export CUDA_HOME=/usr/local/cuda", when(r"requires GPUs with sm")),
                    *_SWITCHES,
                ),
            ),
            Variant(
                when=when(r"No supported CUDA architectures found"),
                sentence="FlashInfer found no GPU generation that it can compile this kernel for",
                cures=(check("check the compiler first, then the list, the GPU and FlashInfer", "which -a nvcc; nvcc --version; echo $CUDA_HOME $FLASHINFER_CUDA_ARCH_LIST; nvidia-smi --query-gpu=name,compute_cap --format=csv; python -m pip list | grep -i flashinfer"), *_SWITCHES),
            ),
            Variant(
                when=when(r"synStatus"),
                sentence="Gaudi's compiler (Synapse) could not compile a graph of this model",
                cures=(check("check whether the versions are from one release", "hl-smi; python -m pip list | grep -i -E 'habana|vllm|torch'"), check("search vllm-gaudi's issues for the model and the release")),
            ),
            Variant(
                when=when(r"Failed to find C compiler|Python\.h|[Nn]o working (?:C\+\+ )?compiler|C\+\+ compiler.{0,40}not found|(?:stdlib|math|omp)\.h"),
                sentence="the C or C++ compiler, or headers that it needs, are missing",
                cures=(check("check which is missing", "which cc gcc g++; ls $(python -c 'import sysconfig; print(sysconfig.get_path(\"include\"))')/Python.h"), cure("install it; the headers must be those of this Python version", "apt-get install -y build-essential python3-dev", when(r"compiler|\.h")),),
            ),
            Variant(
                when=when(r"OutOfResources|out of resource: shared memory"),
                sentence="a Triton kernel needs more of a resource than the GPU has; the message names the resource (shared memory, threads)",
                cures=(cure("if it is an attention kernel, serve with another attention backend", "--attention-backend NAME", when(frames=r"attention|attn")), check("check that Triton has the version that PyTorch requires", "python -m pip check; python -m pip show torch triton | grep -E '^(Name|Version)'"), check("search vLLM's issues for the kernel's name in the traceback, and this GPU")),
            ),
            Variant(
                when=when(r"(?:[Ss]hapes?|[Ss]izes?|\bM\b|\bN\b|\bK\b).{0,40}should (?:have|be).{0,80}\d|incompatible dimensions"),
                sentence="a kernel does not support the sizes that it got",
                cures=(check("read the warnings before it: one may name the setting that chose this kernel"), _SEARCH),
            ),
            Variant(
                when=when(r"PassManager|Triton compilation failed|triton\.compiler|failed to legalize|layout conversion is only supported|LLVM ERROR"),
                sentence="Triton could not compile a kernel",
                cures=(check("check which versions of torch and Triton are installed, and which vLLM requires", "python -m pip check; python -m pip show torch triton"),),
            ),
            Variant(
                when=when(r"failed to compile the model.{0,120}most likely"),
                sentence="the model's compilation failed, and vLLM suspects files of an earlier compilation",
                why="The message only guesses: if the start without these files fails again, its error is the cause.",
                cures=(cure("delete them: vLLM rebuilds them", "rm -rf ~/.cache/vllm/torch_compile_cache", when(r"torch_compile_cache|corrupted")), cure("if it fails again, start without torch.compile as a workaround", "--enforce-eager", when(r"failed to compile the model"))),
                deterministic=None,
            ),
            Variant(
                when=when(r"corrupted compilation artifact|torch_compile_cache.{0,800}(?:corrupt|EOFError|UnpicklingError|truncated)"),
                sentence="compiled files of an earlier start cannot be read",
                cures=(cure("delete this cache: vLLM rebuilds it", "rm -rf ~/.cache/vllm/torch_compile_cache", when(r"corrupted compilation|torch_compile_cache")),),
                deterministic=None,
            ),
            Variant(
                when=when(r"[Ff]ake ?[Tt]ensor.{0,1500}(?:must (?:have same|match)|size mismatch|shapes? (?:cannot|mismatch))"),
                sentence="two shapes in the model's code do not match, as PyTorch's compiler sees them",
                cures=(cure("if a draft model was loaded last, serve without it: remove --speculative-config", None, when(seen=r"(?i)drafter|speculative(?!_config=None)|\bmtp\b|eagle")), check("search vLLM's issues for the model and the message")),
                deterministic=True,
            ),
            Variant(
                when=when(r"\[code=137\]|(?m:^\W{0,20}Killed$)|SIGKILL"),
                sentence="a compiler was killed while it worked",
                why="Exit code 137 is signal 9, which the kernel sends when memory is out. By default one compiler runs per core.",
                cures=(cure("if memory ran out, run fewer compilers in parallel", "MAX_JOBS=2", when(r"137|Killed|SIGKILL")), check("check whether the kernel killed it", "dmesg -T | grep -i -E 'killed process|oom-kill'")),
                deterministic=False,
            ),
            Variant(
                when=when(r"CUDA driver error \(\S{0,200}/jit/\S{0,80}\): (?:700|710|716|719)\b"),
                sentence="a DeepGEMM kernel compiled, ran, and failed on the GPU",
                why="An assertion of the kernel right before it, if there is one, names the cause.",
                cures=(cure("disable DeepGEMM (a setting of this start may force it on)", "VLLM_USE_DEEP_GEMM=0; env | grep -i deep_gemm", when(r"/jit/")), check("search the issues of DeepGEMM and vLLM for the assertion, this GPU and this model")),
                deterministic=False,
            ),
            Variant(
                when=when(r"CUDA driver error \(\S{0,200}/jit/"),
                sentence="the CUDA driver reported an error when DeepGEMM loaded or started a kernel",
                cures=(cure("disable DeepGEMM (a setting of this start may force it on)", "VLLM_USE_DEEP_GEMM=0; env | grep -i deep_gemm", when(r"/jit/")), check("search DeepGEMM's issues for this GPU")),
            ),
            Variant(
                when=when(r"/jit/kernel_runtime\.hpp:\d+\): exit_code"),
                sentence="DeepGEMM compiled a kernel, but a tool of the CUDA toolkit failed on it",
                why="DeepGEMM reads each new kernel with cuobjdump from CUDA_HOME.",
                cures=(check("check that the tool exists and works", "ls -l $CUDA_HOME/bin/cuobjdump; $CUDA_HOME/bin/cuobjdump --version"), *_SWITCHES),
            ),
            Variant(
                when=when(r"Data-dependent assertion failed|InternalTorchDynamoError:\s+\w"),
                sentence="an error in PyTorch's compiler (Dynamo), or in code that it traced",
                why='The message, or the lines below "from user code", show the error and its place.',
                cures=(check('read the lines below "from user code"'), _SEARCH),
            ),
            Variant(
                when=when(r"torch\._dynamo\.exc\.(?!Backend)\w"),
                sentence="PyTorch's compiler (Dynamo) could not trace code",
                why='The lines below "from user code" show the place. If the code itself raises an error there, it does so without the compiler, too.',
                cures=(check('read the lines below "from user code"'), _EAGER, _SEARCH),
            ),
            Variant(
                when=when(rf"{_FLASHINFER}|{_DEEP_GEMM}"),
                sentence="a library's kernel could not be compiled at run time (JIT)",
                why="FlashInfer and DeepGEMM compile with the nvcc that they find.",
                cures=(check("read the first `error` in the compiler's own output"), check("check which compiler is found", "which -a nvcc; nvcc --version; echo $CUDA_HOME"), *_SWITCHES, *_CACHES),
            ),
        ),
    ),
)  # fmt: skip
