"""Failures of a serving engine.

Sources: the NVIDIA driver and NVIDIA's catalogue of Xid errors, ROCm's HSA status codes, CANN's error codes
(vllm-ascend #16649, #5135), vllm/v1/engine and vllm/v1/core/sched of vLLM 0.8 to 0.32, vllm #43920 and #30346
(grammars), #30320 and #43884 (assertions).
"""

import re

from vllm_watch.diagnosis.report import UNKNOWN, Fix
from vllm_watch.diagnosis.rule import (
    WHOLE,
    Facts,
    Failure,
    Rank,
    Told,
    Variant,
    check,
    cure,
    rule,
    when,
)

_AMD = r"HSA_|\bhip[A-Z]|HIP (?:error|out of memory)|HIP_|amdgpu|\bplatform rocm"
_XID = re.compile(r"[Xx][Ii][Dd][^:]{0,40}?:? ?(\d{1,3})\b")
_BEFORE = re.compile(r"caused by previous Xid (\d{1,3})\b")
_NVRM = re.compile(r"Xid \((?:PCI:)?[^)]{0,40}\): (\d{1,3})\b")
_LONG = re.compile(rf"maximum context length is ({WHOLE}) tokens.{{0,40}}?requested (?:about )?({WHOLE}) (?:output )?tokens")  # fmt: skip
_PROMPT = re.compile(rf"prompt contains (?:at least )?({WHOLE}) input tokens")

# Xids seen on inference hosts. The meanings are from NVIDIA's catalogue.
MEANING = {
    13: "a kernel's exception: usually software",
    31: "a kernel's page fault: usually software",
    43: "a program error ended its channel: usually software",
    45: "work was cancelled, for example after another error or a kill",
    48: "a double-bit ECC error: hardware",
    62: "an internal GPU fault: reset the GPU",
    63: "a memory row was remapped, or a page retired",
    64: "remapping a memory row, or retiring a page, failed: hardware",
    69: "a graphics engine exception",
    74: "an NVLink error: links or hardware",
    79: "the GPU has fallen off the bus: reboot, then hardware",
    92: "many single-bit ECC errors",
    94: "a contained ECC error: restart the program",
    95: "an uncontained ECC error: reset the GPU",
    109: "a context switch timed out",
    119: "the GPU system processor timed out: reset the GPU",
    120: "the GPU system processor failed: reset the GPU",
    154: "the driver requests a recovery action: the line names it (reset, reboot, drain)",
    **dict.fromkeys(range(144, 151), "an NVLink error: links, switches or hardware"),
}


def _xid(text: str, facts: Facts) -> Told:
    if "SXid" in text:
        return Told("An SXid is of an NVSwitch, not of a GPU.")
    limit = facts.get("config_max_model_len")
    if limit and "Assertion `" in text:
        return Told("", (Fix("limit requests to the context length of the model's config", f"--max-model-len {limit}"),))  # fmt: skip
    found = _BEFORE.search(text) or _NVRM.search(text) or _XID.search(text)
    if not found:
        return Told()
    number = int(found[1])
    meaning = MEANING.get(number, "see NVIDIA's catalogue of Xid errors")
    return Told(f"Xid {number}: {meaning}.")


def _context(text: str, facts: Facts) -> Told:
    found = _LONG.search(text)
    if not found:
        return Told()
    limit, wanted = found.groups()
    prompt = _PROMPT.search(text)
    if prompt:
        left = max(0, int(limit) - int(prompt[1]))
        said = f"{prompt[1]} prompt tokens and {wanted} output tokens; the limit is {limit}."
        fix = Fix("limit the output to the remaining tokens", f"max_tokens={left}")
        return Told(said, (fix,) if left else ())
    return Told(f"{wanted} tokens; the limit is {limit}.")


XID = "xid_or_gpu_lost"
NPU = "npu_operator_failed"
CONTEXT = "context_length_exceeded"
GRAMMAR = "grammar_failed"
BUG = "assertion_failed"
HANG = "engine_hang"
DEAD = "engine_dead"

RULES = (
    rule(XID, "Xid", pattern=r"NVRM: .{0,20}Xid|\bS?Xid \(PCI|XID error|\bXid[ :]+[1-9]", quiet=True),
    rule(XID, "Engine reset: engine_class", "GPU HANG: ", "UR_RESULT_ERROR_DEVICE_LOST", "ZE_RESULT_ERROR_DEVICE_LOST", quiet=True),
    rule(XID, "device critical error", pattern=r"detected a device critical error", rank=Rank.GENERAL),
    rule(XID, " exceeds bound", pattern=r"\bindex value \d+ exceeds bounds? \d", rank=Rank.GENERAL),
    rule(XID, ".cu:", ": block: [", pattern=r"(?:\.cuh?:\d+: .{0,400}|: block: \[[\d,]{1,40}\], thread: \[[\d,]{1,40}\] )Assertion `(?:\w*(?:[Ii]ndex|[Ii]dx|ind)\w* .{0,120}|.{0,200}index out of bounds.{0,20})failed", rank=Rank.GENERAL),
    rule(XID, "amdgpu", pattern=r"amdgpu\b.{0,80}(?:MES (?:failed|might be)|failed to remove hardware queue|page fault \(|ring \S{1,40} timeout|GPU reset begin|VRAM is lost)", quiet=True),
    rule(XID, "fallen off the bus", "Unable to determine the device handle for", "HW Exception by GPU", "GPU is lost", "uncorrectable ECC error", "Uncorrectable ECC", "NVML_ERROR_GPU_IS_LOST", "Memory access fault by GPU", "Memory critical error by agent", "HSA_STATUS_ERROR_MEMORY_APERTURE", "HSA_STATUS_ERROR_EXCEPTION", "HSA_STATUS_ERROR_MEMORY_FAULT", "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION", "GPU reset", "CUDBG_EXCEPTION_"),
    rule(XID, "illegal memory access was", "unspecified launch failure", "device-side assert triggered", "misaligned address", "illegal instruction was", "the launch timed out and was", "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_INTERNAL_ERROR", "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorIllegalAddress", "cudaErrorLaunchFailure", "invalid program counter", "hardware stack error", "CUDA_ERROR_ECC", "cudaErrorECC", "NVLink error", "invalid address space", rank=Rank.GENERAL, quiet=True),
    rule(NPU, "aclnn", "acl", "ERR0", "EZ", "EE", "EH", "EK", "E19999", "507", "NPU function error", "ACL stream", "Inner error is reported", pattern=r"Inner error is reported as above|NPU function error|ACL stream synchronize failed|operator name is aclnn\w+|\baclnn\w{1,60}.{0,80}(?:fail|error)|call (?:aclnn|acl) ?\w{0,60} (?:api )?failed|\bERR0[01]\d\d\d\b|\bE[ZEHK]\d{4}\b:|\bE19999\b|aclrt\w{1,40}.{0,60}error code|error code is (?:507|161|561|207)\d{3}", rank=Rank.GENERAL, numeric=True, header=True),
    rule(NPU, ": [PID", pattern=r"\bE(?!Z9999|19999|39999|L0004|[IJ])[A-Z]\d{4}\)?: ?\[PID", numeric=True),
    rule(NPU, "Aicpu kernel execute failed", numeric=True),
    rule(NPU, "there is an exception of ", pattern=r"there is an exception of \w.{0,60}error", numeric=True),
    rule(BUG, "Assertion error csrc", rank=Rank.GENERAL),
    rule(UNKNOWN, "TVM_FFI_", pattern=r"\bTVM_FFI_I?CHECK\w{0,20}\(.{1,300}\) << \"", rank=Rank.MESSAGE),
    rule(BUG, "Assertion error (", pattern=r"Assertion error \((?!\S{0,200}/jit/\w{1,40}\.hpp)\S{0,200}\.(?:hpp|cuh|cpp|h):\d+\)", rank=Rank.GENERAL),
    rule(BUG, "AssertionError", pattern=r"AssertionError\s*$", rank=Rank.GENERAL, needs=when(r"AssertionError")),
    rule(GRAMMAR, "rammar", "regex_converter", "structural_tag", "xgrammar", "outlines", "llguidance", "json_schema", "structured_output", pattern=r"(?:(?<!Import)(?<!ModuleNotFound)(?<!Attribute)(?<!File)Error|Exception): (?!.{0,300}\.so: cannot open).{0,300}(?:xgrammar|llguidance|outlines|compile_grammar|compile_json_schema|grammar_matcher|EBNF|[Gg]rammar (?:is|has|error|compil|init|rejected)|[Ff]ailed to (?:advance|convert|compile).{0,40}(?:FSM|[Gg]rammar|schema))|(?:xgrammar|grammar|json_schema|regex_converter|structural_tag)\S{0,80}\.cc:\d+:? .{0,200}(?:[Ee]rror|[Cc]heck failed|EBNF|[Ii]nvalid|[Uu]nsupported)", rank=Rank.GENERAL),
    rule(GRAMMAR, "Failed to advance FSM", rank=Rank.REQUEST, heals=True),
    rule(CONTEXT, "aximum context length", "context length is only", "maximum model length", "is too long and exceeds", pattern=r"[Tt]his model's maximum context length is|the model's context length is only \d|maximum context length (?:of|is|\()|longer than the maximum model length|is too long and exceeds (?:limit of|the capacity)|exceeds? (?:the )?model's maximum (?:context|model) length", rank=Rank.REQUEST, quiet=True),
    rule(CONTEXT, "max_model_len", "max_tokens", "max_completion_tokens", "encoder cache size", "prompt", pattern=r"(?:prompt|input|request)\b.{0,120}(?:exceeds?|longer than|greater than|more than) .{0,30}max_model_len|max_(?:completion_)?tokens\W.{0,60}(?:too large|exceeds)|max_tokens must be at least 1, got -|exceeds the pre-allocated encoder cache size|prompt is too long", rank=Rank.REQUEST, quiet=True),
    rule(DEAD, "EngineCore", "ngine core", "out waiting for engine", pattern=r"EngineCore encountered (?:a fatal error|an issue)|EngineCore failed to start|EngineCore hit an exception|[Ww]aiting for engine core proc|Engine core initialization failed|[Tt]imed out waiting for engines? to send|EngineCore.{0,40}died|[Ee]ngine core proc .{0,60}died", rank=Rank.DEATH),
    rule(DEAD, "EngineDeadError", "EngineGenerateError", "ngine process", "Engine loop", "ngine is dead", "ngine is already dead", "Task finished unexpectedly", "ackground loop", "Engine iteration timed out", "Engine background task failed", pattern=r"Engine background task failed|\b\w*EngineDeadError|EngineGenerateError|[Ee]ngine process .{0,40}(?:died|failed to start)|Engine loop (?:is not running|has died)|[Ee]ngine is (?:already )?dead|Task finished unexpectedly|[Bb]ackground loop (?:has errored|is not running|is stopped)|Engine iteration timed out", rank=Rank.DEATH),
    rule(DEAD, "failed liveness probe", "failed startup probe", rank=Rank.DEATH, quiet=True),
    rule(DEAD, "probe failed: ", "Back-off restarting failed container", "CrashLoopBackOff", pattern=r"(?:Startup|Readiness|Liveness) probe failed: |Back-off restarting failed container|CrashLoopBackOff", rank=Rank.DEATH, quiet=True, needs=when(lacks=r"failed (?:liveness|startup) probe")),
    rule(DEAD, "GET /health", pattern=r'"GET /health(?:\?\S*)? HTTP/[\d.]+" 503', rank=Rank.DEATH, quiet=True, heals=True),
    rule(DEAD, ".service: ", pattern=r"\.service: (?:Main process exited, code=(?:exited, status=[1-9]|dumped)|(?:Start operation|State '\S+') timed out|Failed to locate executable|Failed at step)", rank=Rank.DEATH, quiet=True),
    rule(DEAD, "Exit Code: ", "Exited (", pattern=r"^\s*Exit Code: +[12]\s*$|Exited \((?:[12]|13[2-69])\)", rank=Rank.DEATH, quiet=True, numeric=True),
    rule(DEAD, "died with exit code", pattern=r"Process \S+ \(PID: \d+\) died with exit code", rank=Rank.DEATH),
    rule(DEAD, "terminate called after throwing", "Segfault encountered", rank=Rank.DEATH),
    rule(DEAD, "code", "Code", pattern=r"[Ee]xit(?:ed)?(?: with)?(?: exit)? [Cc]ode:? {0,8}13[2-9]\b", rank=Rank.DEATH, quiet=True, numeric=True),
    rule(UNKNOWN, "pciehp", "nvidia-modeset", "mlx5_core", "device inaccessible", "AER: ", "blocked for more than", pattern=r"nvidia-modeset: ERROR|mlx5_core .{0,200}failed|pciehp .{0,80}(?:Link Down|Card not present)|device inaccessible|AER: .{0,60}[Uu]ncorrect|task \S+ blocked for more than \d+ seconds", rank=Rank.SYMPTOM, quiet=True),
    rule(UNKNOWN, "[Hardware Error]", rank=Rank.SYMPTOM, quiet=True, needs=when(lacks=r"corrected by h/w|(?:severity|type): corrected")),
    rule(UNKNOWN, "NVRM: ", pattern=r"NVRM: .{0,200}(?:[Ff]ailed|[Ee]rror|NV_ERR_)", rank=Rank.SYMPTOM, quiet=True),
    rule(DEAD, "segfault at ", " trap ", "general protection", pattern=r"(?:VLLM|vllm|pt_main_thread|python|EngineCor)\S{0,40}\[\d+\]:? (?:segfault at |trap |general protection)", rank=Rank.DEATH, quiet=True),
    rule(DEAD, "orker", "WorkerProc", pattern=r"WorkerProc (?:initialization failed|failed to start|hit an exception)|Worker proc \S+ died unexpectedly|Worker \S+ pid \d+ died|[Oo]ne of the worker processes died|worker process died", rank=Rank.DEATH),
    rule(DEAD, "RuntimeError: cancelled", "output_handler failed", "Terminating server process", "rror in calling", "Error in model execution", "Segmentation fault", "SIGSEGV", "SIGBUS", "Bus error", "Aborted (core dumped)", "core dumped", "SIGABRT", "Fatal Python error", "double free or corruption", "corrupted size vs. prev_size", "free(): invalid", "malloc(): ", "munmap_chunk(): ", rank=Rank.DEATH),
)  # fmt: skip

_KERNEL = r"illegal memory access|unspecified launch failure|device-side assert triggered|misaligned|illegal instruction|EXECUTION_FAILED|ILLEGAL_ADDRESS|LAUNCH_FAILED|LaunchFailure"

_INDEX = r"Assertion `\(?\w*(?:[Ii]ndex|[Ii]dx|ind)\w* |Assertion `.{0,200}index out of bounds|\bindex value \d+ exceeds bound"

_ANEW = cure("restart the engine", None, when(seen=r"EngineDead|fatal error|EngineCore encountered|Engine loop|died", serving=True))  # fmt: skip

_SPECULATES = r"(?i)spec_?decod|speculative(?!_config=None)"

FAILURES = (
    Failure(
        slug=XID,
        sentence="the GPU, or a kernel on it, failed",
        why="",
        cures=(
            check("check the driver's report and its Xid number", "dmesg -T | grep -i -E 'xid|nvrm'", when(r"\A(?![\s\S]{0,400}NVRM: )", lacks=rf"{_AMD}|Memory access fault by GPU|Memory critical error")),
            cure("drain the host, and reset the GPU or reboot; if the error returns, have the GPU, its power and its slot checked", "nvidia-smi -q -d ECC,PAGE_RETIREMENT", when(r"Xid.{0,40}: (?:48|64|79|95)\b|fallen off the bus|device handle for|GPU is lost|[Uu]ncorrectable ECC|GPU_IS_LOST|CUDA_ERROR_ECC|cudaErrorECC")),
            cure("reset the GPU when no process uses it; if that fails, reboot the host", "nvidia-smi --gpu-reset -i N", when(r"Xid.{0,40}: (?:(?:62|119|120)\b|154\b.{0,200} to 0x\w{1,8} \([^)]{0,40}Reset)")),
            check("check the errors of the NVLinks and the switches", "nvidia-smi nvlink -e", when(r"previous Xid (?:74|14[4-9]|150)\b")),
            check("search vLLM's issues for the model, the release and the function in the traceback", None, when(_KERNEL)),
            check("find the kernel: the traceback of a start with this variable shows the call", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(rf"{_KERNEL}|Xid.{{0,40}}: (?:13|31|43)\b")),
            check("find the earlier error: this Xid alone does not give the reason", "dmesg -T | grep -i xid", when(r"Xid.{0,40}: 45\b")),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"illegal memory access|ILLEGAL_ADDRESS|IllegalAddress", facts=("asleep",)),
                sentence="a step accessed memory that is not there while the engine was asleep (POST /sleep)",
                why="Sleep removes weights and KV cache from the GPU until the engine wakes up.",
                cures=(cure("let running requests finish (or abort them) before POST /sleep, and send none before POST /wake_up", None, when(facts=("asleep",))), cure("restart the engine", None, when(serving=True))),
            ),
            Variant(
                when=when(_INDEX, facts=("config_max_model_len",)),
                sentence="a GPU kernel got an out-of-range index, and max_model_len exceeds the limit in the model's config",
                why="A request longer than the positions in the config reads past the end of their table.",
                cures=(cure("remove VLLM_ALLOW_LONG_MAX_MODEL_LEN, which accepts a larger value", None, when(facts=("config_max_model_len",))),),
            ),
            Variant(
                when=when(_INDEX), sentence="a GPU kernel got an out-of-range index",
                why="This does not mean that the GPU is broken: the kernel itself checked an index against the size of its table, and stopped.",
                cures=(check("check whether the error returns without speculative decoding: remove --speculative-config", None, when(seen=_SPECULATES)), check("find the failing call", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(r"(?:\.cuh?:\d|: block: \[).{0,400}Assertion `")), check("search vLLM's issues for this assertion, with the model and the settings")),
            ),
            Variant(
                when=when(r"Xid.{0,40}: 63\b"), sentence="the driver recorded damaged GPU memory that it will replace (a row) or avoid (a page); this line alone is not a failure",
                why="The replacement takes effect at the next GPU reset; if an error ended a process, another Xid (48, 94 or 95) is logged next to it.",
                cures=(check("check whether a row is pending or failed", "nvidia-smi -q -d ROW_REMAPPER,ECC"), cure("if one is pending, reset the GPU when no process uses it", "nvidia-smi --gpu-reset -i N", when(r": 63\b"))),
            ),
            Variant(
                when=when(r"SXid|Xid.{0,40}: (?:74|14[4-9]|150)\b"), sentence="a link between GPUs (NVLink, NVSwitch) reported an error",
                cures=(check("check the links' errors and state", "nvidia-smi nvlink -e; nvidia-smi nvlink -s"), check("check the fabric's state", "nvidia-smi -q | grep -A3 Fabric; systemctl status nvidia-fabricmanager"), cure("if the counters of one link keep rising, drain the host, and have the link's hardware checked", None, when(r"Xid"))),
            ),
            Variant(
                when=when(r"device-side assert triggered"),
                sentence="a GPU kernel found an invalid value and stopped (device-side assert)",
                why="This does not mean that the GPU is broken. The kernel prints its check as a line with `Assertion … failed`, to the stderr of its process.",
                cures=(check("search the output of the whole server (stderr, all workers) for that line", "kubectl logs POD   (or docker logs, journalctl -u vllm) | grep -m3 Assertion"), check("find the failing call", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(lacks=_AMD)), check("find the failing call", "AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 vllm serve …", when(seen=_AMD))),
            ),
            Variant(
                when=when(r"launch timed out"), sentence="a kernel ran longer than the driver allows, and the driver killed it",
                why="The limit applies to a GPU that drives a display, and under Windows (WSL).",
                cures=(check("check whether a display uses the GPU", "nvidia-smi --query-gpu=index,name,display_active --format=csv"), cure("if one does, serve on another GPU, or without the desktop", None, when(r"timed out")), check("otherwise find the kernel", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(lacks=_AMD))),
            ),
            Variant(
                when=when(r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)", lacks=r"Xid|illegal memory access|device-side assert"), sentence="a call of cuBLAS (CUDA's library for matrix multiplications) failed on the GPU",
                cures=(check("check whether the GPU reported an error, and how much of its memory is free", "dmesg -T | grep -i -E 'xid|nvrm'; nvidia-smi"), check("check which cuBLAS is installed and which one is loaded", "echo $LD_LIBRARY_PATH; python -m pip list | grep -i -E 'cublas|^torch'"), check("find the first failing call", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(r"CUBLAS"))),
            ),
            Variant(
                when=when(r"device critical error"), sentence="the accelerator's runtime reported a critical device error and ended the process",
                cures=(check("check the driver's report, and the state of the devices", "dmesg -T | tail -50; hl-smi", when(r"Synapse|hl:")), check("check the driver's report", "dmesg -T | tail -50", when(lacks=r"Synapse|hl:"))),
            ),
            Variant(
                when=when(r"Engine reset: engine_class|GPU HANG: |_RESULT_ERROR_DEVICE_LOST"),
                sentence="the Intel GPU, or a kernel on it, hung or failed",
                cures=(check("check the driver's report", "dmesg -T | grep -i -E 'xe |i915'"),),
            ),
            Variant(
                when=when(r"amdgpu.{0,80}ring \S{1,40} timeout"), sentence="a job on the AMD GPU exceeded the driver's time limit for its ring",
                cures=(check("check in the driver's next lines which process it was, and whether a reset followed and succeeded"),),
            ),
            Variant(
                when=when(r"(?:HSA_STATUS|Memory access fault by GPU|hipError|HIP error)[\s\S]{0,600}[Kk]ernel.{0,40}aiter"),
                sentence="a kernel of AITER (AMD's kernel library) failed on the GPU",
                cures=(cure("run the experts without it", "VLLM_ROCM_USE_AITER_MOE=0", when(seen=r"(?i)aiter\S{0,40}moe")), cure("serve without AITER, or with another AITER release", "VLLM_ROCM_USE_AITER=0", when(seen=r"(?i)aiter"))),
            ),
            Variant(
                when=when(r"Memory access fault by GPU node-(\d+)\b.{0,400}\n.{0,200}Memory access fault by GPU node-(?!\1\b)\d"),
                sentence="a kernel accessed memory that does not belong to it, on several GPUs at once",
                cures=(check("find the kernel", "AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 vllm serve …", when(r"Memory access fault")), check("if VLLM_ROCM_USE_AITER is on, check whether the fault returns without it", "VLLM_ROCM_USE_AITER=0", when(r"Memory access fault"))),
            ),
            Variant(
                when=when(r"HSA_STATUS|Memory access fault by GPU|Memory critical error|hipError|HIP error|HW Exception by GPU|amdgpu"), sentence="the AMD GPU, or a kernel on it, failed",
                cures=(check("check the driver's report", "dmesg -T | grep -i -E 'amdgpu|kfd'"), check("check whether the error returns without AITER (AMD's kernel library)", "VLLM_ROCM_USE_AITER=0", when(r"HSA_STATUS|Memory access fault|hipError|HIP error", seen=r"(?i)aiter")), check("find the kernel", "AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 vllm serve …", when(r"HSA_|Memory access fault|HW Exception|hipError|HIP error"))),
            ),
        ),
        numbers=_xid,
    ),
    Failure(
        slug=NPU,
        sentence="an operator or a runtime call failed on the NPU (CANN)",
        why="",
        cures=(
            check("read the lines around it, and CANN's own log", "ls -t ~/ascend/log/debug/plog | head"),
            check("check whether the versions of driver, CANN, torch_npu and vllm-ascend match a combination in vllm-ascend's release notes", "npu-smi info; python -m pip list | grep -i -E 'torch|vllm|ascend'"),
            check("find the failing operator", "ASCEND_LAUNCH_BLOCKING=1 vllm serve …", when(r"aclnn|ERR0|error code")),
        ),
        deterministic=False,
    ),
    Failure(
        slug=CONTEXT,
        sentence="a request exceeds the model's context length",
        why="Prompt and requested output together must not exceed max_model_len; a server rejects such a request and keeps running.",
        cures=(cure("send a shorter prompt, or request fewer tokens (max_tokens)", None, when(r"max|long|exceed")), cure("or raise the limit, as far as the model and KV cache allow: increase --max-model-len", None, when(r"maximum (?:context|model) length|context length is only|max_model_len|exceeds limit|too long"))),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"longer than the maximum model length", seen=r"profile_run|_dummy_|determine_available_memory", serving=False), sentence="the largest image, video or audio input, which vLLM uses for profiling at startup, exceeds max_model_len",
                why="No request is the cause: vLLM measures its memory with the largest input that the settings allow.",
                cures=(cure("allow fewer or smaller inputs of each kind", "--limit-mm-per-prompt '{\"image\": 1, \"video\": 0}'", when(r"maximum model length")), cure("or raise --max-model-len, as far as the model and KV cache allow", None, when(r"maximum model length"))),
            ),
            Variant(
                when=when(r"exceeds limit of"), sentence="a prompt exceeds the scheduler's limit for one step",
                why="The limit is the smaller of max_model_len and max_num_batched_tokens. The API server had accepted the request; it ends with an empty response, and the server keeps running.",
                cures=(cure("unless the limit is max_model_len itself, raise the token limit of a step to the prompt's length", "--max-num-batched-tokens N", when(r"exceeds limit")), cure("or enable chunked prefill", "--enable-chunked-prefill", when(r"exceeds limit"))),
            ),
            Variant(
                when=when(r"exceeds the capacity"), sentence="a prompt is larger than the whole KV cache",
                cures=(cure("give the KV cache more memory, or send a shorter prompt", "a larger --gpu-memory-utilization", when(r"capacity")),),
            ),
            Variant(
                when=when(r"encoder cache"), sentence="an image, video or audio input of a request is larger than the encoder cache",
                why="vLLM rejects such a request and keeps running; --max-num-batched-tokens and --limit-mm-per-prompt determine the cache's size.",
                cures=(cure("send a smaller input, or change the flag that the message names", None, when(r"encoder cache")),),
            ),
        ),
        numbers=_context,
    ),
    Failure(
        slug=GRAMMAR,
        sentence="structured output (a grammar, a JSON schema or a regex) raised an error",
        why="In some releases such a request ends the engine for all requests.",
        cures=(
            check("find the request with this schema, regex or grammar"),
            _ANEW,
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"features (?:that are )?not supported by (?:xgrammar|outlines|guidance|lm-format-enforcer)"),
                sentence="a request's schema has features that the selected structured-output backend does not support, and the request was rejected",
                cures=(cure("let the server choose the backend per request: remove the setting that names a backend, or set it to auto", "--structured-outputs-config '{\"backend\": \"auto\"}'   (before 0.11: --guided-decoding-backend auto)", when(r"not supported by")), cure("or remove those features from the schema", None, when(r"not supported by"))),
            ),
            Variant(
                when=when(r"[Ff]ailed to advance FSM", seen=r"(?i)\b(?:grammar|structured outputs?)\b.{0,200}\b(?:not supported|will be ignored)\b"),
                sentence="a request's tokens do not follow its grammar; a warning in this log restricts structured output",
                cures=(cure("if the warning names a setting, turn it off, or send requests without structured output", None, when(r"advance FSM")),),
            ),
            Variant(
                when=when(r"[Ff]ailed to advance FSM"),
                sentence="a request's tokens do not follow its grammar, so its output may violate the requested format",
                why="The grammar itself was accepted.",
                cures=(
                    check("check whether it works without asynchronous scheduling (if this release has the flag)", "--no-async-scheduling", when(r"advance FSM")),
                    check("check whether it works without speculative decoding: remove --speculative-config", None, when(seen=_SPECULATES)),
                    check("search vLLM's issues for this message, with the release and the settings"),
                ),
            ),
            Variant(
                when=when(r"\A(?!.*(?i:grammar|schema|regex|outlines|guidance|structural))"),
                sentence="the structured-output code (grammars) raised an error that does not name a grammar",
                cures=(check("check whether the error occurs only with structured output, and whether it also occurs without speculative decoding and asynchronous scheduling"), check("search vLLM's issues for this message, with the release and the settings"), _ANEW),
            ),
        ),
    ),
    Failure(
        slug=BUG,
        sentence="an assertion failed in the code",
        why="",
        cures=(check("search vLLM's issues for the assertion and its file"),),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"Assertion error (?:csrc|\().{0,400}(?:contiguous|stride)"),
                sentence="a kernel library rejected the memory layout of an argument",
                cures=(check("search vLLM's issues for the assertion and the function that calls the library"),),
            ),
            Variant(
                when=when(r"Assertion error (?:csrc|\()", seen=r"deep_?gemm|csrc|jit_kernels|fp8_gemm"),
                sentence="an assertion failed in a kernel library; the path in the line names it",
                cures=(cure("run matrix multiplications without DeepGEMM", "VLLM_USE_DEEP_GEMM=0", when(seen=r"jit_kernels|deep_?gemm|fp8_gemm")), check("search the library's issues for the assertion and its file")),
            ),
            Variant(
                when=when(frames=r"/entrypoints/(?!llm\.py)\S{1,200} (?:to_|create_(?!server|engine|app|socket)|_?preprocess|render)\w*", lacks=r"fatal error|failed to start|\bdied\b"),
                sentence="an assertion failed while the API server handled a request",
                cures=(check("check the warning above this line: the server ignored the field that it names, so the request may have that field in the wrong place", None, when(facts=("ignored_fields",))), check("compare this request's parameters with vLLM's documentation"), check("search vLLM's issues for the assertion and its file")),
            ),
            Variant(
                when=when(frames=r"core/sched/|kv_cache_manager|kv_connector|kv_transfer|offload"),
                sentence="an assertion failed in the scheduler, the KV cache manager or a KV connector",
                cures=(
                    cure("restart the engine", None, when(serving=True)),
                    check("search vLLM's issues for the assertion and its file"),
                    check("check whether the error returns without the KV connector (offload, LMCache, NIXL)", None, when(frames=r"kv_connector|kv_transfer|offload|lmcache|nixl")),
                ),
            ),
        ),
    ),
    Failure(
        slug=HANG,
        sentence="the engine generates no tokens while requests run: it hangs",
        why="A working vLLM logs its throughput every ten seconds; the API server may still respond during a hang.",
        cures=(
            check("check the stacks of the engine core and the workers", "py-spy dump --pid PID_OF_ENGINE_CORE"),
            check("check whether a GPU reported an error", "dmesg -T | grep -i -E 'xid|amdgpu'", when(facts=("!device",))),
            cure("if the engine generates no tokens for minutes while requests run, restart the engine", None, when(serving=True)),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"Running: 0 reqs.{0,80}(?:Waiting|Pending): [1-9]"), sentence="requests are waiting and none is running: the scheduler admits no request",
                why="vLLM neither reads prompts nor generates tokens, so this is not slow work. A paused (POST /pause) or sleeping engine appears the same.",
                cures=(
                    check("check the stacks of the engine core and the workers", "py-spy dump --pid PID_OF_ENGINE_CORE"),
                    cure("if the engine is neither paused nor asleep and does not wait for KV from another server, restart it", None, when(r"Running: 0")),
                ),
            ),
            Variant(
                when=when(serving=False), sentence="startup did not finish",
                why="After this line the log shows only waiting; slow work that logs nothing appears the same.",
                cures=(
                    check("check the stacks of the engine core and the workers", "py-spy dump --pid PID_OF_WORKER"),
                    cure("if the stacks are in the profiling of images or videos, skip it", "--skip-mm-profiling", when(r"Encoder cache will be initialized")),
                    check("check whether vLLM is still reading weights (disk, network)", "iostat -x 5", when(phases=(1,))),
                    check("check how far the ranks get when they connect to each other", "NCCL_DEBUG=INFO vllm serve …", when(r"parallel_state|world_size|nccl|NCCL|rank \d")),
                    check("check whether direct GPU-to-GPU copies hang (IOMMU or ACS on the PCIe path breaks them)", "NCCL_P2P_DISABLE=1 vllm serve … --disable-custom-all-reduce", when(r"world_size=(?!1\b)|nccl==")),
                    check("check whether a compilation is still running", "top -H -p PID_OF_WORKER", when(r"compil|[Cc]apturing|torch\.compile|[Aa]utotun|Graph")),
                ),
            ),
        ),
    ),
    Failure(
        slug=DEAD,
        sentence="the engine died; this log does not show why",
        why="",
        variants=(
            Variant(
                when=when(r"Worker proc \S+ died unexpectedly|Worker \S+ pid \d+ died|worker process(?:es)? died", phases=(1, 2, 3, 4, 5)),
                sentence="a worker process died without leaving a message in this log",
                cures=(
                    check("check whether the kernel killed it, or the GPU driver reported an error", "dmesg -T | grep -i -E 'killed process|xid|segfault'"),
                    check("in Kubernetes, check restarts, events and the memory limit", "kubectl describe pod POD"),
                ),
            ),
            Variant(
                when=when(r"Back-off restarting|CrashLoopBackOff", lacks=r"failed (?:liveness|startup) probe"),
                sentence="Kubernetes keeps restarting a container that ends; events do not show why it ends",
                cures=(check("read the previous container's log", "kubectl logs --previous POD"), check("check its exit code and reason (OOMKilled, Error)", "kubectl describe pod POD")),
            ),
            Variant(
                when=when(r"(?:Startup|Readiness|Liveness) probe failed: ", lacks=r"failed (?:liveness|startup) probe|statuscode: (?:401|403|404|405)"),
                sentence="a Kubernetes probe of the server failed; the server may still be starting",
                why="This is normal while vLLM loads weights and compiles at startup.",
                cures=(
                    check("read the container's log: it shows the startup progress or the error", "kubectl logs POD; kubectl logs --previous POD"),
                    cure("if Kubernetes kills it before startup finishes, allow a longer startup (startupProbe: failureThreshold × periodSeconds)", None, when(r"probe failed")),
                ),
            ),
            Variant(
                when=when(r"failed (?:liveness|startup) probe|probe failed: ", seen=r"probe failed: HTTP probe failed with statuscode: (?:401|403|404|405)"),
                sentence="a Kubernetes probe requests a path that the server refuses",
                why="A server that responds with 401, 403, 404 or 405 is running.",
                cures=(check("compare the probe's path, port and headers with the server's: vLLM serves /health", "kubectl get pod POD -o jsonpath='{.spec.containers[*].livenessProbe}'"),),
            ),
            Variant(
                when=when(r"failed liveness probe", seen=r"Liveness probe failed: .{0,300}(?:deadline|Timeout) exceeded", serving=True),
                sentence="Kubernetes restarted the container: the server responded too slowly to its liveness probe",
                cures=(cure("increase the probe's timeout and the number of failures before a restart (timeoutSeconds, failureThreshold)", None, when(r"probe")), check("read the previous container's log", "kubectl logs --previous POD")),
            ),
            Variant(
                when=when(r"failed (?:liveness|startup) probe"), sentence="Kubernetes restarted the container: its probe failed",
                why="A probe that does not allow for the full startup time ends every startup.",
                cures=(
                    check("read the previous container's log", "kubectl logs --previous POD"),
                    cure("add a startupProbe that allows for the full startup time (failureThreshold × periodSeconds)", None, when(r"failed (?:liveness|startup) probe", serving=False)),
                ),
            ),
            Variant(
                when=when(r"core proc\(s\): \{[^}]{0,200}: -9\b"), sentence="the engine core was killed (SIGKILL); this log does not show the sender",
                cures=(check("check whether the kernel killed it", "dmesg -T | grep -i -E 'killed process|out of memory'"), check("check why the container ended", "kubectl describe pod POD   (or docker inspect)")),
            ),
            Variant(
                when=when(r"core proc\(s\): \{[^}]{0,200}: -(?:4|6|7|8|11)\b"),
                sentence="a signal ended the engine core: it crashed in native code",
                why="The number is the signal: -4 an instruction that the CPU does not have, -6 abort, -7 bus error, -8 an arithmetic error, -11 segmentation fault.",
                cures=(check("check the kernel log: for most crashes it names the library", "dmesg -T | tail -50"), check("capture the stack of the next crash", "PYTHONFAULTHANDLER=1 vllm serve …", when(r"core proc"))),
            ),
            Variant(
                when=when(r"(?:[Cc]ode:? {0,8}\(?|Exited \()13[2-69]\b"), sentence="a signal ended a process: it crashed in native code",
                why="The code is 128 plus the signal: 132 an instruction that the CPU does not have, 134 abort, 135 bus error, 136 an arithmetic error, 139 segmentation fault.",
                cures=(check("read the last lines of the previous container's log: an abort often has a message", "kubectl logs --previous POD   (or docker logs CONTAINER)"), check("check the kernel log, which names the library", "dmesg -T | grep -i -E 'segfault|trap|general protection'"), check("capture the stack of the next crash", "PYTHONFAULTHANDLER=1 vllm serve …", when(r"13[2-69]"))),
            ),
            Variant(
                when=when(r"\.service: (?:Start operation|State '\S+') timed out"),
                sentence="systemd killed the service because it took longer to start or stop than its unit allows",
                why="vLLM takes minutes to start.",
                cures=(cure("give the unit more time", "TimeoutStartSec=30min   TimeoutStopSec=5min", when(r"timed out")), check("check how far it got", "journalctl -u UNIT -n 200")),
            ),
            Variant(
                when=when(r"\.service: Failed (?:to locate|at step)"), sentence="systemd could not run the unit's command",
                cures=(check("check the command's path, the directories in it, and the unit's user and directory", "systemctl cat UNIT; namei -l /path/of/ExecStart"),),
            ),
            Variant(
                when=when(r"\.service: Main process exited"), sentence="the service's process ended; this line does not show why",
                cures=(check("read the lines that the process itself logged", "journalctl -u UNIT -o cat -n 300"),),
            ),
            Variant(
                when=when(r"segfault at |general protection| trap "),
                sentence="the kernel reports that a process crashed in native code; its line names the place, usually a library",
                cures=(check("check the versions of the library in this line and of the libraries it depends on", "python -m pip check; nvidia-smi", when(lacks=r"(?i)hip|rocm|amd")), check("capture the stack of the next crash", "PYTHONFAULTHANDLER=1 vllm serve …", when(r"segfault|general protection"))),
            ),
            Variant(
                when=when(r"Timed out waiting for engine(?: core|s? to send)"), sentence="the engine was not ready within the startup timeout",
                cures=(check("check in its log how far it got, and whether it was still making progress"), cure("if it was, increase the timeout", "VLLM_ENGINE_READY_TIMEOUT_S=SECONDS", when(r"VLLM_ENGINE_READY_TIMEOUT_S|Timed out waiting"))),
            ),
            Variant(
                when=when(r'/health\S* HTTP/[\d.]+" 503'), sentence="the server answers /health with 503, as vLLM does when its engine is dead",
                cures=(check("read the log above this line, from the first traceback on", "kubectl logs --previous POD   (or docker logs, journalctl -u vllm)"),),
            ),
            Variant(
                when=when(r"Segmentation fault|Segfault encountered|SIGSEGV|SIGABRT|core dumped|Fatal Python error|double free|corrupted size|free\(\): invalid|malloc\(\): |munmap_chunk", lacks=r"Illegal instruction|Bus error|SIGBUS|Fatal Python error: (?:pre)?(?:init|config)"),
                sentence="a process crashed in native code",
                cures=(check("check for incompatible packages", "python -m pip check", when(r"free|size|alloc|chunk")), check("read the lines around it, and the kernel log", "dmesg -T | tail -50"), check("capture the stack of the next crash", "PYTHONFAULTHANDLER=1 vllm serve …", when(lacks=r"== backtrace|Fatal Python error")), check("check the libraries in the printed stack, below libc's", None, when(r"== backtrace"))),
            ),
            Variant(
                when=when(r"terminate called after throwing"), sentence="a C++ exception ended a process",
                why="If the exception has a text, the `what():` line after it shows it.",
                cures=(check("read the line that begins with what()", None, when(r"terminate")), check("check whether a GPU reported an error", "dmesg -T | grep -i xid", when(r"CUDA|cuda|Accelerator"))),
            ),
            Variant(
                when=when(r"Illegal instruction|SIGILL"), sentence="the CPU refused an instruction of the process (SIGILL)",
                cures=(check("check this CPU's instruction sets (virtual machines may hide some)", "lscpu | grep -o -w -E 'avx2|avx512[a-z]*|amx[a-z_0-9]*' | sort -u"),),
            ),
            Variant(
                when=when(r"Bus error|SIGBUS"), sentence="a process died of a bus error (SIGBUS): it accessed memory that has nothing behind it, such as a shortened file",
                cures=(check("check how full /dev/shm and the disk are, from inside the container", "df -h /dev/shm /tmp"), cure("if /dev/shm is full, give the container more shared memory", "docker run --ipc=host …   (or --shm-size=16g)", when(r"Bus error|SIGBUS"))),
            ),
        ),
        cures=(check("get the full log, from the start to the first traceback of EngineCore or a worker", "kubectl logs --previous POD   (or docker logs, journalctl -u vllm)"), check("check whether it was killed", "dmesg -T | grep -i -E 'killed process|xid'", when(r"\A(?![\s\S]{0,400}(?:proc\(s\): \{[^}]{0,80}: 1\}|Exit Code: +[12]\b|Exited \([12]\)))"))),
        deterministic=False,
    ),
)  # fmt: skip
