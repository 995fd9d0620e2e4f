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
    rule(CACHE, "Permission denied", "Errno 13", "Read-only file system", "Errno 30", "uid not found", pattern=r"PermissionError: \[Errno 13\]|\[Errno 13\] Permission denied|(?:Error|ERROR)\b(?!.{0,200}(?:pidfd|ptrace)).{0,120}Permission denied|\[Errno 30\] Read-only|Read-only file system: '|getpwuid\(\): uid not found"),
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

NOT_CUDA = r"(?i)rocm|hip|amd|npu|ascend|jetson|tegra|xpu|habana|macos|dylib|aarch64|_cpu"
_OUTSIDE = r"(?:^|\s)/(?:usr/local/(?!lib)|opt/(?!venv|conda))(?:(?!-packages/)[\w.+/-]){1,200}\.so[.\d]{0,12}: undefined symbol"
_INSTALL = (
    check("check which Python runs vLLM, and whether it has the package", "which -a python vllm; python -m pip list | grep -i NAME"),
    cure("install setuptools in a version that still has pkg_resources", "python -m pip install 'setuptools<81'", when(r"pkg_resources")),
    cure("install the package that the message names into this Python (its name on PyPI may differ: cv2 is opencv-python-headless), or start the Python that has it", None, when(r"(?i)no module|install|required|found", lacks=r"No module named '(?:pkg_resources|triton)")),
    cure("on a machine with NVIDIA or AMD GPUs, install vLLM into a fresh environment, which brings Triton; other platforms have none, and the code that imports it is at fault", None, when(r"No module named 'triton")),
)  # fmt: skip
_CHECK = check("see which packages do not fit each other", "python -m pip check")

_EXTENSION = re.compile(
    r"-packages/(?!vllm/|torch\w*/)([A-Za-z]\w{1,60})(?:/\S{0,200}|\.cpython\S{0,60})\.so\S{0,80}: undefined symbol"
)


_OF_PIP = {"flash_attn_2_cuda": "flash-attn", "flash_attn_3": "flash-attn"}


def _built_for_another(text: str, facts: Facts) -> Told:
    found = _EXTENSION.search(text)
    if found is None:
        return Told()
    name = _OF_PIP.get(found[1], found[1])
    what = f"install a release of {name} that was built for this PyTorch, or build it in this environment"
    return Told(f"It is {found[1]}.", (Fix(what, f"python -m pip show {name} torch vllm"),))


FAILURES = (
    Failure(
        slug=IMPORT,
        sentence="a Python package or library is missing or of the wrong version",
        why="The package is not installed in this environment, or is of another version than its user expects.",
        cures=(_CHECK,),
        deterministic=True,
        numbers=_built_for_another,
        variants=(
            Variant(
                when=when(r"module 'torch' has no attribute '(?:\w{0,12}fp\d|int\d|nf4|\w{0,20}float\d)\w{0,20}'"),
                sentence="a setting names a data type that PyTorch does not have",
                why="The code takes the value of a setting, such as a data type, for a name of PyTorch. No other version of the package helps if the type is one of vLLM's own.",
                cures=(check("check which setting has this value (--kv-cache-dtype, --dtype, a connector's), and the values that this release takes", flags.HELP, when(r"has no attribute")),),
            ),
            Variant(
                when=when(r"No module named 'triton", facts=("device",)),
                sentence="the code imports Triton, which is not made for this platform",
                why="vLLM for CPUs and other platforms runs without Triton, so this import is a fault of the release or of the code that asks for it.",
                cures=(cure("use the build of vLLM that is made for this platform, in another release", None, when(r"triton")), check("search vLLM's issues for the frames of this import and the platform")),
            ),
            Variant(
                when=when(r"/(?:nvidia|torch)/\S{0,200}\.so\S{0,20}: undefined symbol: __nvJitLink|\blibcu\w{1,20}\.so\S{0,20}: undefined symbol: \w{0,20}(?:nvJitLink|cublasLt)"),
                sentence="a CUDA library of PyTorch was loaded together with one of another version",
                why="The wheels of PyTorch bring their own CUDA libraries. Folders in LD_LIBRARY_PATH (a CUDA toolkit, conda, a module system) are searched first.",
                cures=(check("see which folders come first, and the versions that pip installed", "echo $LD_LIBRARY_PATH; python -m pip list | grep -i nvidia"), cure("start without them", "env -u LD_LIBRARY_PATH vllm serve …", when(r"undefined symbol"))),
            ),
            Variant(
                when=when(r"(?:Building wheel for|ailed building wheel for|Failed to build) \S"),
                sentence="pip could not build a package from its source; the line names it",
                why="There is no wheel of it for this Python, system and processor, and the build needs tools that are missing or fails. vLLM was not started.",
                cures=(cure("use a version of Python for which the package has wheels (vLLM's installation page lists those that it supports)", "python -V", when(r"wheel|build")), cure("else read the build's own first error above")),
            ),
            Variant(
                when=when(r"No module named '(?:uvloop|fcntl|resource|pwd|grp|termios|triton|vllm\._C)\b", frames=r"^[A-Za-z]:\\.{0,250}\\vllm\\"),
                sentence="this vLLM runs on Windows itself, where it is not supported, and the module is not made for Windows",
                why="Most such modules cannot be installed on Windows, and the next one would be missing, too.",
                cures=(cure("run vLLM on Linux: in WSL 2, or in a container there", None, when(r"No module named")),),
            ),
            Variant(
                when=when(r"No module named '?vllm\._C|\(unknown location\)|partially initialized module 'vllm\b|module '\w+' has no attribute '(?:LLM|SamplingParams|__version__)'"),
                sentence="the package that Python finds under this name is not the complete one",
                why="Most often a folder or script of the same name (for vLLM: vllm.py, or a checkout of its source) is in the working directory or in PYTHONPATH; else the package was installed without its compiled part, or imports itself in a circle.",
                cures=(check("check from where it is imported, in the same directory and in another one", "python -c 'import vllm; print(vllm.__path__)'; cd /tmp && python -c 'import vllm; print(vllm.__path__)'; echo $PYTHONPATH"), cure("if the two differ, start from another directory, or rename the script or folder", None, when(r"\w")), cure("if they do not, build the source with its extension, or install the wheel", "uv pip install --force-reinstall vllm", when(r"vllm", lacks=NOT_CUDA))),
            ),
            Variant(
                when=when(r"active driver\(s\) found"),
                sentence="Triton is missing or switched off for this vLLM, and this code needs it",
                why='vLLM puts an empty module in the place of Triton if Triton is not installed or does not find exactly one GPU driver ("Triton is installed but N active driver(s) found"). With 0 the process sees no GPU; with 2 a second driver (NVIDIA beside AMD, for example) is visible.',
                cures=(check("check the drivers that Triton finds", "python -c 'from triton.backends import backends; print({n: b.driver.is_active() for n, b in backends.items()})'"), cure("hide the driver that this vLLM is not built for, or pass its devices out of the container", None, when(r"\b[2-9] active driver"))),
            ),
            Variant(
                when=when(r"_OpNamespace"), sentence="an operator is missing: this build or platform does not have it, or its compiled extension was not loaded or is of another release",
                why="If a line before this error reports a failed import of the extension, that line has the reason (missing_library in the facts: the extension was not built, or not installed with its library).",
                cures=(cure("build or install the package of the extension again for the installed versions, or use its own image", "python -m pip show -f PACKAGE | grep '\\.so'", when(facts=("missing_library",))), check("see which packages do not fit each other", "python -m pip check", when(facts=("!missing_library",))), cure("if some do not, install vLLM into a fresh environment, which brings the versions that fit", "uv venv && uv pip install vllm", when(lacks=NOT_CUDA)), cure("if all do, search vLLM's issues for the operator and this platform", None, when(r"_OpNamespace"))),
            ),
            Variant(
                when=when(r"libc\.so\.6: version `GLIBC_"),
                sentence="the C library (glibc) of this system is older than the one that a compiled package was built for",
                why="glibc belongs to the system, so another Python environment has the same.",
                cures=(check("check its version", "ldd --version"), cure("use a container image or a newer system, or a build of the package for this glibc", None, when(r"GLIBC_"))),
            ),
            Variant(
                when=when(r"version `(?:GLIBCXX|CXXABI)_"),
                sentence="the C++ library (libstdc++) that was loaded is older than the one that a compiled package was built for",
                why="The system's, or that of a conda environment, may be the older one: the first that is loaded is used for all. Packages of Python need no change.",
                cures=(check("check which versions each has", "for f in $(find / -name 'libstdc++.so.6' 2>/dev/null); do echo $f; strings $f | grep GLIBCXX_ | sort -V | tail -1; done"), cure("if another one has the version that the message names, put its folder first", "LD_LIBRARY_PATH=/folder/of/it:$LD_LIBRARY_PATH", when(r"GLIBCXX|CXXABI")), cure("else use a newer system or image, or (conda) a newer libstdcxx-ng", None, when(r"GLIBCXX|CXXABI"))),
            ),
            Variant(
                when=when(r"numpy\.dtype size|NumPy 1"), sentence="a compiled package was built for another version of NumPy than is installed",
                why="The traceback names the package that is imported.",
                cures=(check("check which NumPy the packages require", "python -m pip check; python -m pip show numpy"), cure("install a release of that package for this NumPy, or the NumPy that vLLM requires", "python -m pip install 'numpy<2'   (only if vLLM allows it)", when(r"NumPy|numpy"))),
            ),
            Variant(
                when=when(r"undefined symbol|torchvision::nms|GLIBC|module 'torchvision' has no attribute 'extension'"),
                sentence="a compiled library was built against another version of PyTorch, CUDA or the system than is installed",
                cures=(check("see which packages do not fit each other", "python -m pip check", when(lacks="undefined symbol")), check("check which PyTorch is installed, and for which one the library was built", "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.version.hip)'", when(r"undefined symbol", lacks=_OUTSIDE)), check("compare the release of that library with the one that its user was built for: pip did not install it", "ls -l FOLDER", when(_OUTSIDE)), cure("install vLLM into a fresh environment, which brings the versions that fit", "uv venv && uv pip install vllm", when(r"undefined symbol|nms|torchvision", lacks=rf"{NOT_CUDA}|{_EXTENSION.pattern}|{_OUTSIDE}"))),
            ),
            Variant(
                when=when(r"lib(?:cudart|cublas\w*|nvrtc|cusparse\w*|cufft|curand|cupti|nvJitLink|cudnn)\.so\.\d+: cannot open"),
                sentence="a library of the CUDA runtime is missing, of the version for which a package was built",
                why="A wheel for one CUDA beside a PyTorch for another makes this error: the number after .so is the CUDA (or cuDNN) that the package wants.",
                cures=(
                    check("compare it with the CUDA of the installed PyTorch", "python -c 'import torch; print(torch.__version__, torch.version.cuda)'"),
                    cure("install vLLM and PyTorch for the same CUDA (a link of another version's name does not help)", "uv pip install vllm --torch-backend=auto", when(r"\.so\.\d+: cannot open", lacks=NOT_CUDA)),
                ),
            ),
            Variant(
                when=when(r"\bBecause \S|ERROR: (?:Could not find a version|Cannot install )|No solution found when"), sentence="the installer (uv, pip) found no versions that it can install here, and installed nothing",
                why="vLLM may not have been started. Nightly releases and builds for one CUDA have packages that only an index of their own has; other versions of Python or other systems may have none.",
                cures=(check("check that the version in the line exists on an index that the installer uses, for this Python and system", "pip index versions PACKAGE"), cure("let uv choose the index of PyTorch, or use a stable release of vLLM in a fresh environment", "uv pip install vllm --torch-backend=auto", when(r"(?i)vllm|torch|xformers|cu1\d\d", lacks=NOT_CUDA))),
                deterministic=False,
            ),
            Variant(
                when=when(r", but you have "), sentence="installed packages do not fit each other (pip's report; vLLM may not have been started yet)",
                cures=(_CHECK, cure("install vLLM into a fresh environment, which brings the versions that fit", "uv venv && uv pip install vllm", when(r"vllm \S+ requires (?:torch|transformers|numpy)"))),
            ),
            Variant(
                when=when(r"is not available or outdated"), sentence="a package that this setting needs is not installed, or is too old",
                cures=(check("see its version, and the one that this vLLM requires", "python -m pip list | grep -i -E 'gemm|flashinfer|vllm'; python -m pip check"), cure("multiply without DeepGEMM", "VLLM_USE_DEEP_GEMM=0", when(r"DeepGEMM|deep_gemm", lacks=r"(?i)V3[._]?2|Dsa|mqa_logits|sparse|indexer"))),
            ),
            Variant(
                when=when(r"does not match flashinfer version"), sentence="FlashInfer's packages are of different versions",
                why="flashinfer-python, flashinfer-cubin and flashinfer-jit-cache must be of one version.",
                cures=(check("see them, and install all in the version that this vLLM requires", "python -m pip list | grep -i flashinfer; python -m pip check"),),
            ),
            Variant(
                when=when(r"NIXL is not available|import kv connector"), sentence="the package of the KV connector is not installed, or cannot be imported",
                cures=(check("check whether it can be imported by the Python that runs vLLM (and for which CUDA it was built)", "python -c 'import nixl'; python -m pip list | grep -i -E 'nixl|lmcache|mooncake'"),),
            ),
            Variant(
                when=when(r"lib(?:ascend|hccl|acl|atb|ge_)\w*\.so\S*: cannot open"), sentence="a library of the NPU's driver or of CANN is not found",
                why="CANN's set_env.sh puts its libraries on the path; those of the driver come from the host.",
                cures=(cure("load CANN's settings, and see whether the driver is there", "source /usr/local/Ascend/ascend-toolkit/set_env.sh; ls /usr/local/Ascend/driver/lib64"), cure("load the settings of NNAL, which has this library", "source /usr/local/Ascend/nnal/atb/set_env.sh", when(r"libatb")), cure("in a container, mount the driver and the devices", "docker run --device /dev/davinci0 --device /dev/davinci_manager -v /usr/local/Ascend/driver:/usr/local/Ascend/driver …", when(r"cannot open"))),
            ),
            Variant(
                when=when(r"\(deleted\): cannot open"), sentence="a library was replaced or removed while the process that uses it ran",
                cures=(cure("if packages were installed meanwhile, start vLLM again, from an environment that nothing changes while it runs", None, when(r"deleted")),),
                deterministic=False,
            ),
            Variant(
                when=when(r"(?:torch_extensions|[/\\]\.cache[/\\])\S{0,300}\.so: cannot open"), sentence="a library that is compiled at its first use is not in its cache: its build failed, was interrupted, or is another process's",
                why="No package has it, so neither an installation nor LD_LIBRARY_PATH helps.",
                cures=(cure("stop the engine, delete the folder that the line names, and start again; the first build needs nvcc and ninja", "which nvcc ninja; ls -l ~/.cache/torch_extensions", when(r"\.so: cannot open")),),
                deterministic=False,
            ),
            Variant(
                when=when(r"lib(?:amdhip|hip|roc|rccl|MIOpen|amd_smi)\w*\.so\S*: cannot open"), sentence="a library of ROCm is not found",
                why="The package was built for AMD GPUs. ROCm is not installed here, or in another version than the number after .so: a build for ROCm on a machine without it, too.",
                cures=(check("check which ROCm is here, and for which one PyTorch was built", "ls -d /opt/rocm*; python -c 'import torch; print(torch.version.hip, torch.version.cuda)'"), cure("use the image or wheel of vLLM for this ROCm; on NVIDIA GPUs, the build for CUDA", None, when(r"cannot open"))),
            ),
            Variant(
                when=when(r"lib(?:torch|c10)_(?:cuda|hip|xpu)\.so: cannot open"), sentence="a compiled package needs a part of PyTorch that the installed PyTorch does not have",
                why="The installed PyTorch is a build for another platform (often for CPUs), or it was not imported before the package.",
                cures=(check("check which build of PyTorch is installed", "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.version.hip)'"), cure("if it is one for CPUs, install vLLM into a fresh environment, which brings the PyTorch that fits", "uv venv && uv pip install vllm --torch-backend=auto", when(r"_cuda\.so", lacks=NOT_CUDA))),
            ),
            Variant(
                when=when(r"cannot open shared object file"), sentence="a shared library is not found",
                cures=(check("see which libraries are missing", "ldd $(python -c 'import torch,os; print(os.path.dirname(torch.__file__))')/lib/libtorch_cuda.so | grep 'not found'", when(r"cuda|cu\w*\.so|nccl|torch")), check("check whether the library is there at all", "ldconfig -p | grep NAME; find / -name 'NAME*' 2>/dev/null"), cure("if it is, add its folder to LD_LIBRARY_PATH; else install the package that has it (of the system: apt, dnf)", None, when(r"cannot open shared"))),
            ),
            Variant(
                when=when(r"cannot import name .{1,100} from '(?:partially initialized module )?'?vllm\b", frames=r"-packages/(?!vllm/)"),
                sentence="another package imports from vLLM a name that this vLLM does not have",
                why="The traceback shows which package: it was written for another release of vLLM, and vLLM itself is whole.",
                cures=(check("see which vLLM that package supports", "python -m pip show vllm PACKAGE"), cure("install releases of the two that fit each other", None, when(r"cannot import name"))),
            ),
            Variant(
                when=when(r"cannot import name", frames=r"-packages/(?!vllm/)\S+ <module>$"), sentence="a package imports a name that the installed version of another package does not have",
                why="The innermost file of the traceback belongs to the package that imports, and the message names the other one. vLLM itself may be whole.",
                cures=(check("check which version the importing package requires", "python -m pip show IMPORTER PACKAGE; python -m pip check"), cure("use a release of the importing package that goes with the other one, or install the version that it requires", "python -m pip install 'PACKAGE==VERSION'", when(r"cannot import name"))),
            ),
            Variant(
                when=when(r"cannot import name|has no attribute"),
                sentence="a module lacks a name that other code uses",
                why="Most often one of the two is too old or too new; the requirements of the package that uses the name list the versions that fit. If they are met, the code that uses it has a bug on this platform.",
                cures=(_CHECK, cure("install the version that this vLLM requires", "python -m pip show vllm; python -m pip install 'PACKAGE==VERSION'", when(r"^(?!.{0,400}from 'vllm\b).{0,400}(?:cannot import name|has no attribute)")), cure("if the file that imports the name is another package's, use a release of it that goes with this vLLM; if it is vLLM's own, install vLLM into a fresh environment", "python -m pip show vllm PACKAGE", when(r"cannot import name .{1,100} from 'vllm\b"))),
            ),
            Variant(
                when=when(r"No module named '\w+\.[\w.]+'"),
                sentence="an installed package lacks a module that its user imports: it is of another version, or only partly installed",
                cures=(_CHECK, check("compare the version of the package with the requirements of the one that imports it", "python -m pip show PACKAGE", when(r"No module named"))),
            ),
            Variant(
                when=when(r"install \S{1,60}[<>=]="), sentence="a Python package is not installed in this environment, or is of another version than is needed",
                cures=_INSTALL,
            ),
            Variant(
                when=when(r"No module named|Please install|is required to load|working triton|not found in your environment|[:`] ?pip install \S|PackageNotFound|No package metadata|ModuleNotFound"),
                sentence="a Python package is not installed in this environment",
                cures=_INSTALL,
            ),
        ),
    ),
    Failure(
        slug=DISK,
        sentence="a disk (or its quota) is full",
        why="Weights, compiled kernels, /dev/shm and /tmp are written at the start.",
        cures=(
            check("see which", "df -h / /tmp /dev/shm ~/.cache; df -i ~/.cache"),
            cure("put Hugging Face's cache where there is room", "HF_HOME=/data/huggingface", when(seen=r"huggingface|hub/|snapshot|safetensors|download|hf_|xet")),
            cure("put compiled files on a disk with room", "VLLM_CACHE_ROOT=/data/vllm TRITON_CACHE_DIR=/data/triton", when(seen=r"torch_compile_cache|inductor|triton|\.cache/vllm|flashinfer")),
            cure("give the container shared memory", "docker run --ipc=host …   (or --shm-size=16g)", when(seen=r"[/]dev/shm|psm_|shared memory|shm")),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"low on resource: "), sentence="Kubernetes evicted the pod, because the node was low on disk",
                why="Caches and logs in a container's own file system take the node's disk and the pod's limit of ephemeral storage.",
                cures=(check("check the pod's and the node's events", "kubectl describe pod POD; kubectl describe node NODE"), cure("put the caches of the model and of compiled files on a volume (PVC), or request more ephemeral storage", None, when(r"low on resource"))),
            ),
            Variant(
                when=when(r"</?torch_\d|[/]dev/shm\S*.{0,120}(?:No space|Errno 28)|No space left on device\S{0,8}: '[/]dev/shm"),
                sentence="the shared memory (/dev/shm) is full, not a disk",
                why="It is too small, or segments of earlier processes that crashed are still in it: a pod keeps them when only its container restarts.",
                cures=(
                    check("check its size and its files from inside the container", "df -h /dev/shm; ls -l /dev/shm"),
                    cure("if no process uses them, delete the old segments, or delete the pod instead of restarting its container", None, when(r"[/]dev/shm|</?torch_")),
                    cure("give the container more (Kubernetes: an emptyDir with medium Memory at /dev/shm)", "docker run --ipc=host …   (or --shm-size=16g)", when(r"[/]dev/shm|</?torch_")),
                ),
            ),
        ),
    ),
    Failure(
        slug=CACHE,
        sentence="a file or folder may not be written, read or run by the user that vLLM runs as",
        why="",
        cures=(
            check("see user and rights, from inside the container", "id; ls -ld PATH"),
            cure("if it may not read the model: change owner or rights, run as the user that owns it (docker --user, Kubernetes runAsUser or fsGroup), or mount with :z under SELinux", None, when(r"Permission denied: '/(?!root/|tmp/|\.)\S{0,300}(?:json|safetensors|gguf|model)")),
            cure("give it a home that it may write", "HOME=/tmp/vllm", when(seen=r"'/\.\w|/root/|\.cache|\.triton|\.config")),
            cure("name cache folders that it may write", "HF_HOME=… VLLM_CACHE_ROOT=… TRITON_CACHE_DIR=… TORCHINDUCTOR_CACHE_DIR=… FLASHINFER_WORKSPACE_BASE=…", when(seen=r"cache|triton|inductor|flashinfer|huggingface")),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"/dev/(?:kfd|dri|nvidia|davinci|accel)\w*"), sentence="the user that vLLM runs as may not open the device",
                why="The device files of GPUs belong to groups; in a container, those groups must be passed in.",
                cures=(check("check the groups of the device and of the user, from inside the container", "ls -l /dev/kfd /dev/dri /dev/nvidia* 2>/dev/null; id"), cure("add the user to the group (AMD: video and render)", "docker run --device /dev/kfd --device /dev/dri --group-add video --group-add render …", when(r"/dev/(?:kfd|dri)"))),
            ),
            Variant(
                when=when(r"Permission denied: '[^']{0,300}/(?:ptxas|nvcc|ninja|cuobjdump|nvdisasm|ld|gcc|g\+\+|cc1plus)\S{0,12}'"), sentence="a program that compiles kernels may not be run by this user",
                why="Its file is not executable (a copy or an image may lose this right), or its folder is mounted noexec.",
                cures=(check("check its rights, and the mount", "ls -l FILE; findmnt -T FILE"), cure("if the right is missing, give it", "chmod a+x FILE", when(r"Permission denied"))),
            ),
            Variant(
                when=when(r"Read-only file system|Errno 30"), sentence="a file or folder may not be written: its file system is mounted read-only",
                why="Rights do not change that: the mount refuses each write.",
                cures=(check("check the mount, from inside the container", "findmnt -T PATH"), cure("mount it writable (docker: no :ro, Kubernetes: no readOnly), or name cache folders elsewhere", "HF_HOME=… VLLM_CACHE_ROOT=…", when(r"Read-only|Errno 30"))),
            ),
            Variant(
                when=when(r"ZMQError|\bin bind\b|attempting to bind"), sentence="this user may not listen on this address or port",
                cures=(cure("listen on a port of 1024 or more", "--port 8000", when(r"bind|:\d{1,3}\b")),),
            ),
            Variant(
                when=when(r"uid not found"), sentence="the user that vLLM runs as has no entry in /etc/passwd, and PyTorch asks for its name",
                cures=(cure("name it, or give it an entry", "USER=vllm LOGNAME=vllm TORCHINDUCTOR_CACHE_DIR=/tmp/inductor", when(r"uid not found")),),
            ),
        ),
    ),
)  # fmt: skip
