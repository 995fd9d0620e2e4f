"""Failures caused by packages, disks and folders.

Sources: the loader, pip, huggingface_hub; vllm #28440 (cache folders), #44548 (a user without a name).
"""

import re

from vllm_watch.diagnosis.families import flags
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Facts, Failure, Rank, Told, Variant, check, cure, rule, when

IMPORT = "missing_dependency_or_import_error"
DISK = "disk_full"
CACHE = "folder_not_writable"

RULES = (
    rule(DISK, "o space left", "Errno 28", "isk space", "isk quota", "Errno 122", pattern=r"[Nn]o space left on device|\[Errno 28\](?! inotify)|[Nn]ot enough (?:free )?disk space|[Dd]isk quota exceeded|\[Errno 122\]"),
    rule(DISK, "low on resource: ", pattern=r"low on resource: (?:ephemeral-storage|nodefs|imagefs|inodes)", rank=Rank.SYMPTOM, quiet=True),
    rule(CACHE, "object file: Permission denied"),
    rule(CACHE, "Permission denied", "Errno 13", "Read-only file system", "Errno 30", "uid not found", pattern=r"PermissionError: \[Errno 13\]|\[Errno 13\] Permission denied|(?:Error|ERROR)\b(?!.{0,200}(?:pidfd|ptrace|publickey|\bibv_|\b403\b|\bconnect\b|denied on )).{0,120}Permission denied|\[Errno 30\] Read-only|Read-only file system: '|getpwuid\(\): uid not found"),
    rule(IMPORT, "undefined symbol", "cannot open shared object file", pattern=r"undefined symbol: \w+|\.so\S{0,40}(?: \(deleted\))?: cannot open shared object file(?!: Permission denied)", rank=Rank.IMPORT),
    rule(IMPORT, "ModuleNotFoundError", "ImportError", "PackageNotFoundError", "No module named", pattern=r"(?:ModuleNotFoundError|ImportError|PackageNotFoundError)\b:? ?\S|No module named ['\w]", rank=Rank.IMPORT),
    rule(IMPORT, ", but you have ", pattern=r" requires \S{1,80}, but you have \S{1,60} \S{1,40} which is incompatible", rank=Rank.IMPORT),
    rule(IMPORT, "Because ", pattern=r"^\W{0,12}Because (?:there (?:is|are) no versions? of \S|only \S{1,200} is available|only the following versions of|the current Python version|\S{1,200} (?:was|were) not found in|\S{1,200} has no wheels|\S{1,80}[=<>]\S{1,80} depends on)", rank=Rank.IMPORT),
    rule(IMPORT, "ERROR: ", pattern=r"ERROR: (?:Could not find a version that satisfies the requirement \S|Cannot install .{1,300} because these package versions have conflicting)", rank=Rank.IMPORT),
    rule(IMPORT, "uilding wheel for", pattern=r"(?:×|ERROR:|error:) .{0,20}[Bb]uilding wheel for \S+", rank=Rank.IMPORT),
    rule(IMPORT, "No solution found when resolving", rank=Rank.SYMPTOM),
    rule(IMPORT, "NIXL is not available", pattern=r"Error: NIXL is not available"),
    rule(IMPORT, "is not available or outdated", "does not match flashinfer version", "NIXL is not available", "Failed to import kv connector", rank=Rank.IMPORT),
    rule(IMPORT, "cannot import name", "partially initialized module", "packages that were not found in your environment", "operator torchvision::nms does not exist", "No package metadata was found", "DistributionNotFound", "is not installed. Please install", "is required to load C++ extensions", "Cannot find a working triton installation", rank=Rank.IMPORT),
    rule(IMPORT, "has no attribute", pattern=r"AttributeError: (?:partially initialized )?module '[\w.]+' has no attribute|'_OpNamespace' '\w+' object has no attribute", rank=Rank.IMPORT),
    rule(IMPORT, "active driver(s) found", quiet=True, rank=Rank.IMPORT, needs=when(seen=r"module 'triton\b")),
    rule(IMPORT, "GLIBC", "GLIBCXX", "numpy.dtype size changed", "compiled using NumPy 1.x", pattern=r"version `GLIBC(?:XX)?_\S+' not found|numpy\.dtype size changed|A module that was compiled using NumPy 1", rank=Rank.IMPORT),
)  # fmt: skip

NOT_CUDA = r"(?i)rocm|hip|amd|aiter|npu|ascend|jetson|tegra|xpu|habana|macos|dylib|aarch64|_cpu"
_OUTSIDE = r"(?:^|\s)/(?:usr/local/(?!lib)|opt/(?!venv|conda))(?:(?!-packages/)[\w.+/-]){1,200}\.so[.\d]{0,12}: undefined symbol"
_INSTALL = (
    check("check which Python runs vLLM and whether it has the package", "which -a python vllm; python -m pip list | grep -i NAME"),
    cure("install setuptools in a version that still has pkg_resources", "python -m pip install 'setuptools<81'", when(r"pkg_resources")),
    cure("install the package that the message names into this Python, unless it is a script or folder of your own (the PyPI name may differ: cv2 is opencv-python-headless), or run vLLM with the Python that has it", None, when(r"(?i)no module|install|required|found", lacks=r"No module named '(?:pkg_resources|triton)")),
    cure("on NVIDIA or AMD GPUs, install vLLM into a fresh environment, which brings Triton", None, when(r"No module named 'triton")),
)  # fmt: skip
_CHECK = check("check for incompatible packages", "python -m pip check")

_EXTENSION = re.compile(
    r"-packages/(?!vllm/|torch\w*/)([A-Za-z]\w{1,60})(?:/\S{0,200}|\.cpython\S{0,60})\.so\S{0,80}: undefined symbol"
)


_OF_PIP = {"flash_attn_2_cuda": "flash-attn", "flash_attn_3": "flash-attn"}


def _built_for_another(text: str, facts: Facts) -> Told:
    found = _EXTENSION.search(text)
    if found is None:
        return Told()
    name = _OF_PIP.get(found[1], found[1])
    what = f"install a release of {name} built for this PyTorch, or build it in this environment"
    return Told(
        f"The library belongs to {found[1]}.", (Fix(what, f"python -m pip show {name} torch vllm"),)
    )


FAILURES = (
    Failure(
        slug=IMPORT,
        sentence="an import failed, or a Python package, a library or a part of one is missing or unsuitable",
        why="",
        cures=(_CHECK,),
        deterministic=True,
        numbers=_built_for_another,
        variants=(
            Variant(
                when=when(r"module 'torch' has no attribute '(?:\w{0,12}fp\d|int\d|nf4|\w{0,20}float\d)\w{0,20}'"),
                sentence="code uses a data type that this PyTorch does not have",
                cures=(check("check whether a setting has this value (--kv-cache-dtype, --dtype, a connector's), and which values this release accepts", flags.HELP, when(r"has no attribute")),),
            ),
            Variant(
                when=when(r"No module named 'triton", facts=("device",)),
                sentence="the code imports Triton, which vLLM's CPU builds do not include",
                cures=(check("search vLLM's issues for this import's stack frames and the platform"),),
            ),
            Variant(
                when=when(r"/(?:nvidia|torch)/\S{0,200}\.so\S{0,20}: undefined symbol: __nvJitLink|\blibcu\w{1,20}\.so\S{0,20}: undefined symbol: \w{0,20}(?:nvJitLink|cublasLt)"),
                sentence="PyTorch's CUDA libraries are mixed with a CUDA library of another version",
                why="PyTorch's wheels ship their own CUDA libraries. The loader may find others first, in the directories of LD_LIBRARY_PATH.",
                cures=(check("check which directories come first, and which versions pip installed", "echo $LD_LIBRARY_PATH; python -m pip list | grep -i nvidia"), cure("if one has other CUDA libraries, start without it", "env -u LD_LIBRARY_PATH vllm serve …", when(r"undefined symbol"))),
            ),
            Variant(
                when=when(r"(?:Building wheel for|ailed building wheel for|Failed to build) \S"),
                sentence="a package could not be built from source; the line names it",
                cures=(check("read the build's first error, near this line, and compare the Python version with the ones that the package has wheels for", "python -V"),),
            ),
            Variant(
                when=when(r"No module named '(?:uvloop|fcntl|resource|pwd|grp|termios|triton|vllm\._C)\b", frames=r"^[A-Za-z]:\\.{0,250}\\vllm\\"),
                sentence="this vLLM runs natively on Windows, which it does not support, and the module does not exist for Windows",
                why="Most of these modules cannot be installed on Windows, and the next one would be missing as well.",
                cures=(cure("run vLLM on Linux: in WSL 2, or in a container", None, when(r"No module named")),),
            ),
            Variant(
                when=when(r"No module named '?vllm\._C|\(unknown location\)|partially initialized module 'vllm\b|module '\w+' has no attribute '(?:LLM|SamplingParams|__version__)'"),
                sentence="the package that Python finds under this name lacks this part or name",
                cures=(check("check the path it is imported from, in the same directory and in another one", "python -c 'import vllm; print(vllm.__path__)'; cd /tmp && python -c 'import vllm; print(vllm.__path__)'; echo $PYTHONPATH"), cure("if the paths differ, start from another directory, or rename the script or folder", None, when(r"\w")), cure("if the paths match, build the source with its extension, or install the wheel", "uv pip install --force-reinstall vllm", when(r"vllm", lacks=NOT_CUDA))),
            ),
            Variant(
                when=when(r"active driver\(s\) found"),
                sentence="Triton is missing or disabled in this vLLM, and this code needs it",
                why='vLLM replaces Triton with an empty placeholder module if Triton is not installed or does not find exactly one GPU driver ("Triton is installed but N active driver(s) found"). With 0, the process sees no GPU; with 2, a second driver is visible (for example, NVIDIA next to AMD).',
                cures=(check("check which drivers Triton finds", "python -c 'from triton.backends import backends; print({n: b.driver.is_active() for n, b in backends.items()})'"), cure("hide the driver that this vLLM is not built for, or remove its devices from the container", None, when(r"\b[2-9] active driver"))),
            ),
            Variant(
                when=when(r"_OpNamespace"), sentence="an operator is missing: no compiled extension that was loaded has it (this build or platform does not have it, or the extension was not loaded)",
                why="If an earlier line reports a failed import of the extension, that line has the reason.",
                cures=(cure("rebuild or reinstall the extension's package for the installed versions, or use its own image", "python -m pip show -f PACKAGE | grep '\\.so'", when(facts=("missing_library",))), check("check for incompatible packages", "python -m pip check", when(facts=("!missing_library",))), cure("if some are incompatible, install vLLM into a fresh environment, which brings compatible versions", "uv venv && uv pip install vllm", when(lacks=NOT_CUDA)), check("search vLLM's issues for the operator and this platform")),
            ),
            Variant(
                when=when(r"libc\.so\.6: version `GLIBC_"),
                sentence="this system's C library (glibc) is older than the one that a compiled package was built for",
                why="glibc is part of the system, so another Python environment has the same one.",
                cures=(check("check the glibc version", "ldd --version"), cure("use a container image, a newer system, or a build of the package for this glibc", None, when(r"GLIBC_"))),
            ),
            Variant(
                when=when(r"version `(?:GLIBCXX|CXXABI)_"),
                sentence="the loaded C++ library (libstdc++) is older than the one that a compiled package was built for",
                why="The whole process uses the libstdc++ that is loaded first. Python packages need no change.",
                cures=(check("check the versions that each libstdc++ provides", "for f in $(find / -name 'libstdc++.so.6' 2>/dev/null); do echo $f; strings $f | grep GLIBCXX_ | sort -V | tail -1; done"), cure("if another libstdc++ has the version that the message names, put its directory first", "LD_LIBRARY_PATH=/folder/of/it:$LD_LIBRARY_PATH", when(r"GLIBCXX|CXXABI")), cure("otherwise use a newer system or image, or (conda) a newer libstdcxx-ng", None, when(r"GLIBCXX|CXXABI"))),
            ),
            Variant(
                when=when(r"numpy\.dtype size|NumPy 1"), sentence="a compiled package was built for another NumPy version than the installed one",
                why="The traceback names the imported package.",
                cures=(check("check which NumPy version the packages require", "python -m pip check; python -m pip show numpy"), cure("install a release of that package for this NumPy, or the NumPy version that both allow", None, when(r"NumPy|numpy"))),
            ),
            Variant(
                when=when(r"undefined symbol|torchvision::nms|GLIBC|module 'torchvision' has no attribute 'extension'"),
                sentence="a compiled library was built for another version of a library that it needs (such as PyTorch or CUDA) than the loaded one",
                cures=(check("check for incompatible packages", "python -m pip check", when(lacks="undefined symbol")), check("check which PyTorch is installed and which one the library was built for", "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.version.hip)'", when(r"undefined symbol", lacks=_OUTSIDE)), check("compare that library's release with the one that the code using it was built for: pip did not install the library", "ls -l FOLDER", when(_OUTSIDE)), cure("install vLLM into a fresh environment, which brings compatible versions", "uv venv && uv pip install vllm", when(r"undefined symbol|nms|torchvision", lacks=rf"{NOT_CUDA}|{_EXTENSION.pattern}|{_OUTSIDE}"))),
            ),
            Variant(
                when=when(r"lib(?:cudart|cublas\w*|nvrtc|cusparse|cufft|curand|cupti|nvJitLink|cudnn)\.so\.\d+: cannot open"),
                sentence="the loader does not find a CUDA library in the version that a package was built for",
                why="The number after .so is the major version of CUDA (or cuDNN) that the package needs.",
                cures=(
                    check("compare it with the CUDA version of the installed PyTorch", "python -c 'import torch; print(torch.__version__, torch.version.cuda)'"),
                    cure("if they differ, install vLLM and PyTorch for the same CUDA version (a symlink to another version does not help)", "uv pip install vllm --torch-backend=auto", when(r"\.so\.\d+: cannot open", lacks=NOT_CUDA)),
                ),
            ),
            Variant(
                when=when(r"\bBecause \S|ERROR: (?:Could not find a version|Cannot install )|No solution found when"), sentence="the installer (uv, pip) found no versions that it can install here, and installed nothing",
                why="Some packages of nightly releases and of builds for one CUDA version are only in their own index.",
                cures=(check("check that an index the installer uses has the version in this line, for this Python and OS", "pip index versions PACKAGE"), cure("let uv choose the PyTorch index, or install a stable vLLM release into a fresh environment", "uv pip install vllm --torch-backend=auto", when(r"(?i)vllm|torch|xformers|cu1\d\d", lacks=NOT_CUDA))),
                deterministic=False,
            ),
            Variant(
                when=when(r", but you have "), sentence="installed packages are incompatible with each other (pip's report; vLLM may not have been started yet)",
                cures=(_CHECK, cure("install vLLM into a fresh environment, which brings compatible versions", "uv venv && uv pip install vllm", when(r"vllm \S+ requires (?:torch|transformers|numpy)", lacks=NOT_CUDA))),
            ),
            Variant(
                when=when(r"is not available or outdated"), sentence="a package that this setting needs is not available or is too old",
                cures=(check("check its version and the version that this vLLM requires", "python -m pip list | grep -i -E 'gemm|flashinfer|vllm'; python -m pip check"), cure("run matrix multiplications without DeepGEMM", "VLLM_USE_DEEP_GEMM=0", when(r"DeepGEMM|deep_gemm", lacks=r"(?i)V3[._]?2|Dsa|mqa_logits|sparse|indexer"))),
            ),
            Variant(
                when=when(r"does not match flashinfer version"), sentence="FlashInfer's packages have different versions",
                why="flashinfer-python, flashinfer-cubin and flashinfer-jit-cache must have the same version.",
                cures=(check("check their versions, and install all of them in the version that this vLLM requires", "python -m pip list | grep -i flashinfer; python -m pip check"),),
            ),
            Variant(
                when=when(r"NIXL is not available|import kv connector"), sentence="the KV connector's package is not installed or cannot be imported",
                cures=(check("check whether the Python that runs vLLM can import it (and which CUDA version it was built for)", "python -c 'import nixl'; python -m pip list | grep -i -E 'nixl|lmcache|mooncake'"),),
            ),
            Variant(
                when=when(r"lib(?:ascend|hccl|acl_|atb|ge_)\w*\.so\S*: cannot open"), sentence="a library of the NPU driver or of CANN is not found",
                why="CANN's set_env.sh adds its libraries to the library path; the driver's libraries come from the host.",
                cures=(cure("source CANN's environment, and check whether the driver is present", "source /usr/local/Ascend/ascend-toolkit/set_env.sh; ls /usr/local/Ascend/driver/lib64"), cure("source NNAL's environment, which has this library", "source /usr/local/Ascend/nnal/atb/set_env.sh", when(r"libatb")), cure("in a container, mount the driver and the devices", "docker run --device /dev/davinci0 --device /dev/davinci_manager -v /usr/local/Ascend/driver:/usr/local/Ascend/driver …", when(r"libascend_hal"))),
            ),
            Variant(
                when=when(r"\(deleted\): cannot open"), sentence="a library was replaced or removed while the process was using it",
                cures=(cure("if packages were installed meanwhile, start vLLM again, from an environment that does not change while it runs", None, when(r"deleted")),),
                deterministic=False,
            ),
            Variant(
                when=when(r"(?:torch_extensions|[/\\]\.cache[/\\](?!uv|pip))(?!\S{0,300}-packages)\S{0,300}\.so: cannot open"), sentence="a library that is compiled on first use is not in its cache",
                why="No package contains it, so neither installing a package nor setting LD_LIBRARY_PATH helps.",
                cures=(cure("stop the engine, delete the folder that the line names, and start again; the first build needs a compiler (nvcc or hipcc) and ninja", "which nvcc ninja; ls -l ~/.cache/torch_extensions", when(r"\.so: cannot open")),),
                deterministic=False,
            ),
            Variant(
                when=when(r"lib(?:amdhip|hip|roc(?!ks)|rccl|MIOpen|amd_smi)\w*\.so\S*: cannot open"), sentence="a ROCm library is not found",
                why="The package was built for AMD GPUs; the number after .so is the library's version.",
                cures=(check("check which ROCm version is installed and which one PyTorch was built for", "ls -d /opt/rocm*; python -c 'import torch; print(torch.version.hip, torch.version.cuda)'"), cure("use the vLLM image or wheel for this ROCm version; on NVIDIA GPUs, the CUDA build", None, when(r"cannot open"))),
            ),
            Variant(
                when=when(r"lib(?:torch|c10)_(?:cuda|hip|xpu)\.so: cannot open"), sentence="the loader does not find a part of PyTorch that a compiled package needs",
                cures=(check("check which PyTorch build is installed", "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.version.hip)'"), cure("if it is a CPU build, install vLLM into a fresh environment, which brings the matching PyTorch", "uv venv && uv pip install vllm --torch-backend=auto", when(r"_cuda\.so", lacks=NOT_CUDA))),
            ),
            Variant(
                when=when(r"cannot open shared object file"), sentence="a shared library is not found",
                cures=(check("list the missing libraries", "ldd $(python -c 'import torch,os; print(os.path.dirname(torch.__file__))')/lib/libtorch_cuda.so | grep 'not found'", when(r"cuda|cu\w*\.so|nccl|torch")), check("check whether the library exists on this system", "ldconfig -p | grep NAME; find / -name 'NAME*' 2>/dev/null"), cure("if it exists, add its directory to LD_LIBRARY_PATH; otherwise install the package that contains it (system packages: apt, dnf)", None, when(r"cannot open shared"))),
            ),
            Variant(
                when=when(r"cannot import name .{1,100} from '(?:partially initialized module )?'?vllm\b", frames=r"-packages/(?!vllm/)"),
                sentence="code imports a name from vLLM that this vLLM does not have",
                why="The traceback shows which package imports it.",
                cures=(check("check which vLLM version that package supports", "python -m pip show vllm PACKAGE"),),
            ),
            Variant(
                when=when(r"cannot import name", frames=r"-packages/(?!vllm/)\S+ <module>$"), sentence="a package imports a name that the installed version of its source does not have",
                why="The innermost file of the traceback belongs to the importing package, and the message names the other package.",
                cures=(check("check which version the importing package requires", "python -m pip show IMPORTER PACKAGE; python -m pip check"), cure("if they are incompatible, use a release of the importing package that supports the installed version, or install the version that it requires", "python -m pip install 'PACKAGE==VERSION'", when(r"cannot import name"))),
            ),
            Variant(
                when=when(r"module 'transformers_modules\."),
                sentence="the model's own code (from its repository or directory) lacks a name that its config or other code uses",
                why="No installed package is involved.",
                cures=(check("compare auto_map in the model's config files with the names in its Python files", "grep -A6 auto_map /path/to/model/*config.json"),),
            ),
            Variant(
                when=when(r"cannot import name|has no attribute"),
                sentence="a module lacks a name that other code uses",
                cures=(_CHECK, check("compare the versions of the two packages with the requirements of the one that uses the name", "python -m pip show vllm PACKAGE")),
            ),
            Variant(
                when=when(r"No module named '\w+\.[\w.]+'"),
                sentence="the package that Python finds lacks a module that other code imports",
                cures=(_CHECK, check("compare the package's version with the requirements of the package that imports it", "python -m pip show PACKAGE", when(r"No module named"))),
            ),
            Variant(
                when=when(r"No module named|install \S{1,60}[<>=]=|Please install|is required to load|working triton|not found in your environment|[:`] ?pip install \S|PackageNotFound|No package metadata|ModuleNotFound"),
                sentence="Python does not find a package that the code needs, or not in the version that it needs",
                cures=_INSTALL,
            ),
        ),
    ),
    Failure(
        slug=DISK,
        sentence="a disk (or its quota) is full, or has too little space for a file",
        why="vLLM writes weights, compiled kernels, /dev/shm and /tmp at startup.",
        cures=(
            check("check which file system is full", "df -h / /tmp /dev/shm ~/.cache; df -i ~/.cache"),
            cure("move the Hugging Face cache to a disk with free space", "HF_HOME=/data/huggingface", when(r"huggingface|hub/|snapshot|safetensors|download|hf_|xet")),
            cure("move the compile caches to a disk with free space", "VLLM_CACHE_ROOT=/data/vllm TRITON_CACHE_DIR=/data/triton", when(r"torch_compile_cache|inductor|triton|\.cache/vllm|flashinfer")),
            cure("give the container more shared memory", "docker run --ipc=host …   (or --shm-size=16g)", when(frames=r"shared_memory|shm_broadcast|multiprocessing/(?:synchronize|heap)")),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"low on resource: "), sentence="Kubernetes evicted the pod because the node was low on disk",
                why="Caches and logs in a container's own file system count against the node's disk and the pod's ephemeral-storage limit.",
                cures=(check("check the pod's and the node's events", "kubectl describe pod POD; kubectl describe node NODE"), cure("put the model cache and the compile caches on a volume (PVC), or request more ephemeral storage", None, when(r"low on resource"))),
            ),
            Variant(
                when=when(r"</?torch_\d|[/]dev/shm\S*.{0,120}(?:No space|Errno 28)|No space left on device\S{0,8}: '[/]dev/shm"),
                sentence="shared memory (/dev/shm) is full, not a disk",
                why="A pod keeps the segments of processes that crashed when only its container restarts.",
                cures=(
                    check("check its size and its files from inside the container", "df -h /dev/shm; ls -l /dev/shm"),
                    cure("if no process uses the old segments, delete them, or delete the pod instead of restarting its container", None, when(r"[/]dev/shm|</?torch_")),
                    cure("give the container more shared memory (Kubernetes: an emptyDir with medium: Memory at /dev/shm)", "docker run --ipc=host …   (or --shm-size=16g)", when(r"[/]dev/shm|</?torch_")),
                ),
            ),
        ),
    ),
    Failure(
        slug=CACHE,
        sentence="a file or folder cannot be written, read or executed: permission is denied",
        why="",
        cures=(
            check("check the user and the permissions, from inside the container", "id; ls -ld PATH"),
            cure("if vLLM cannot read the model: change its owner or permissions, run as the user that owns it (docker --user, Kubernetes runAsUser or fsGroup), or mount with :z under SELinux", None, when(r"Permission denied: '/(?!root/|tmp/|\.)\S{0,300}(?:json|safetensors|gguf|model)")),
            cure("set HOME to a writable directory", "HOME=/tmp/vllm", when(r"denied: '/(?:\.\w|root/)")),
            cure("set the cache directories to writable ones", "HF_HOME=… VLLM_CACHE_ROOT=… TRITON_CACHE_DIR=… TORCHINDUCTOR_CACHE_DIR=… FLASHINFER_WORKSPACE_BASE=…", when(r"denied: '[^']{0,300}(?:cache|triton|inductor|flashinfer|huggingface)")),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"/dev/(?:kfd|dri|nvidia|davinci|accel)\w*"), sentence="the device in the message cannot be opened: permission is denied",
                cures=(check("check the groups of the device and of the user, from inside the container", "ls -l /dev/kfd /dev/dri /dev/nvidia* 2>/dev/null; id"), cure("add the user to the device's group (AMD: video and render)", "docker run --device /dev/kfd --device /dev/dri --group-add video --group-add render …", when(r"/dev/(?:kfd|dri)"))),
            ),
            Variant(
                when=when(r"Permission denied: '[^']{0,300}/(?:ptxas|nvcc|ninja|cuobjdump|nvdisasm|ld(?!config)|gcc|g\+\+|cc1plus)\S{0,12}'"), sentence="a program that compiles kernels cannot be run: permission is denied",
                cures=(check("check its permissions and the mount", "ls -l FILE; findmnt -T FILE"), cure("if the execute permission is missing, add it", "chmod a+x FILE", when(r"Permission denied"))),
            ),
            Variant(
                when=when(r"Read-only file system|Errno 30"), sentence="a file or folder is not writable: its file system is mounted read-only",
                why="Permissions do not change that: the mount refuses every write.",
                cures=(check("check the mount, from inside the container", "findmnt -T PATH"), cure("mount it writable (Docker: no :ro, Kubernetes: no readOnly)", None, when(r"Read-only|Errno 30")), cure("or move the cache directories elsewhere", "HF_HOME=… VLLM_CACHE_ROOT=…", when(r"cache|huggingface|triton|inductor"))),
            ),
            Variant(
                when=when(r"ZMQError|\bin bind\b|attempting to bind"), sentence="this process has no permission to listen on this address or port",
                cures=(cure("listen on a port of 1024 or more", "--port 8000", when(r"tcp://\S{1,80}:\d{1,3}\b|', \d{1,3}\)")),),
            ),
            Variant(
                when=when(r"uid not found"), sentence="the user that runs vLLM has no entry in /etc/passwd, and the code asks for its name",
                cures=(cure("set the user name in the environment, or add an entry", "USER=vllm LOGNAME=vllm TORCHINDUCTOR_CACHE_DIR=/tmp/inductor", when(r"uid not found")),),
            ),
        ),
    ),
)  # fmt: skip
