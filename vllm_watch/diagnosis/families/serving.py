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
    43: "a program's fault ended its channel: usually software",
    45: "work was cancelled, as after another error or a kill",
    48: "a double-bit ECC error: hardware",
    62: "an internal fault of the GPU: reset it",
    63: "a memory row was remapped: reset when idle",
    64: "remapping a memory row failed: hardware",
    69: "a graphics engine exception",
    74: "an NVLink error: links or hardware",
    79: "the GPU has fallen off the bus: reboot, then hardware",
    92: "many single-bit ECC errors",
    94: "a contained ECC error: restart the program",
    95: "an uncontained ECC error: reset the GPU",
    109: "a context switch timed out: the GPU hung",
    119: "the GPU's system processor timed out: reset, renew the driver",
    120: "the GPU's system processor failed: reset, renew the driver",
    154: "the driver asks for a recovery: the line names it (reset, reboot, drain)",
    **dict.fromkeys(range(144, 151), "an NVLink error: links, switches or hardware"),
}


def _xid(text: str, facts: Facts) -> Told:
    if "SXid" in text:
        return Told("An SXid is of an NVSwitch, not of a GPU.")
    limit = facts.get("config_max_model_len")
    if limit and "Assertion `" in text:
        return Told("", (Fix("allow no longer requests than the model's config does", f"--max-model-len {limit}"),))  # fmt: skip
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
        said = f"{prompt[1]} tokens of prompt and {wanted} of output, of at most {limit}."
        fix = Fix("ask for no more than is left", f"max_tokens={left}")
        return Told(said, (fix,) if left else ())
    return Told(f"{wanted} tokens of at most {limit}.")


XID = "xid_or_gpu_lost"
NPU = "npu_operator_failed"
CONTEXT = "context_length_exceeded"
GRAMMAR = "grammar_failed"
BUG = "assertion_failed"
HANG = "engine_hang"
DEAD = "engine_dead"

RULES = (
    rule(XID, "Xid", pattern=r"NVRM: .{0,20}Xid|\bS?Xid \(PCI|XID error|\bXid[ :]+\d+", quiet=True),
    rule(XID, "Engine reset: engine_class", "GPU HANG: ", "UR_RESULT_ERROR_DEVICE_LOST", "ZE_RESULT_ERROR_DEVICE_LOST", quiet=True),
    rule(XID, "device critical error", pattern=r"detected a device critical error", rank=Rank.GENERAL),
    rule(XID, " exceeds bound", pattern=r"\bindex value \d+ exceeds bounds? \d", rank=Rank.GENERAL),
    rule(XID, ".cu:", ": block: [", pattern=r"(?:\.cuh?:\d+: .{0,400}|: block: \[[\d,]{1,40}\], thread: \[[\d,]{1,40}\] )Assertion `(?:\w*(?:[Ii]ndex|[Ii]dx|ind)\w* .{0,120}|.{0,200}index out of bounds.{0,20})failed", rank=Rank.GENERAL),
    rule(XID, "amdgpu", pattern=r"amdgpu\b.{0,80}(?:MES (?:failed|might be)|failed to remove hardware queue|page fault \(|ring \S{1,40} timeout|GPU reset begin|VRAM is lost)", quiet=True),
    rule(XID, "fallen off the bus", "Unable to determine the device handle for", "HW Exception by GPU", "GPU is lost", "uncorrectable ECC error", "Uncorrectable ECC", "NVML_ERROR_GPU_IS_LOST", "Memory access fault by GPU", "Memory critical error by agent", "HSA_STATUS_ERROR_MEMORY_APERTURE", "HSA_STATUS_ERROR_EXCEPTION", "HSA_STATUS_ERROR_MEMORY_FAULT", "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION", "GPU reset"),
    rule(XID, "illegal memory access", "unspecified launch failure", "device-side assert triggered", "misaligned address", "illegal instruction was", "launch timed out", "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_INTERNAL_ERROR", "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorIllegalAddress", "cudaErrorLaunchFailure", "invalid program counter", "hardware stack error", "CUDA_ERROR_ECC", "cudaErrorECC", "NVLink error", "invalid address space", rank=Rank.GENERAL, quiet=True),
    rule(NPU, "aclnn", "acl", "ERR0", "EZ", "EE", "EH", "EK", "E19999", "507", "NPU function error", "ACL stream", "Inner error is reported", pattern=r"Inner error is reported as above|NPU function error|ACL stream synchronize failed|operator name is aclnn\w+|\baclnn\w{1,60}.{0,80}(?:fail|error)|call (?:aclnn|acl) ?\w{0,60} (?:api )?failed|\bERR0[01]\d\d\d\b|\bE[ZEHK]\d{4}\b:|\bE19999\b|aclrt\w{1,40}.{0,60}error code|error code is (?:507|161|561|207)\d{3}", rank=Rank.GENERAL, numeric=True, header=True),
    rule(NPU, "there is an exception of ", pattern=r"there is an exception of \w.{0,60}error", numeric=True),
    rule(BUG, "Assertion error csrc", rank=Rank.GENERAL),
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
    rule(DEAD, "GET /health", pattern=r'"GET /health\S* HTTP/[\d.]+" 503', rank=Rank.DEATH, quiet=True, heals=True),
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

_ANEW = cure(
    "restart the engine: it died of one request, not of its state",
    None,
    when(seen=r"EngineDead|fatal error|EngineCore encountered|Engine loop|died"),
)

FAILURES = (
    Failure(
        slug=XID,
        sentence="the GPU, or a kernel on it, failed",
        why="The CUDA context is lost, and only a new process gets another.",
        cures=(
            check("see the driver's own report and its number", "dmesg -T | grep -i -E 'xid|nvrm'", when(r"\A(?![\s\S]{0,400}NVRM: )", lacks=rf"{_AMD}|Memory access fault by GPU|Memory critical error")),
            cure("most often that is hardware (the GPU, its power, its slot): drain the host, reset the GPU or reboot, and replace it if it comes again", "nvidia-smi -q -d ECC,PAGE_RETIREMENT", when(r"Xid.{0,40}: (?:48|64|79|95)\b|fallen off the bus|device handle for|GPU is lost|[Uu]ncorrectable ECC|GPU_IS_LOST|CUDA_ERROR_ECC|cudaErrorECC")),
            cure("reset the GPU once nothing runs on it; where that fails, reboot the host", "nvidia-smi --gpu-reset -i N", when(r"Xid.{0,40}: (?:62|94|109|119|120|154)\b")),
            check("see the links' errors, and the switches'", "nvidia-smi nvlink -e", when(r"previous Xid (?:74|14[4-9]|150)\b")),
            cure("without an Xid, or with Xid 13, 31, 43 or 45, it is usually a bug in a kernel; find which", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(_KERNEL, lacks=r"Xid")),
            check("search vLLM's issues for the model, the release and the function in the traceback", None, when(_KERNEL)),
            check("find the kernel: it is in the traceback of a start with this", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(r"Xid.{0,40}: (?:13|31|43)\b")),
            check("find the error before it: this Xid alone does not name the reason", "dmesg -T | grep -i xid", when(r"Xid.{0,40}: 45\b")),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"illegal memory access|ILLEGAL_ADDRESS|IllegalAddress", facts=("asleep",)),
                sentence="the engine was put to sleep, and then a step read memory that sleep had freed",
                why="Sleep takes weights and KV cache off the GPU until the engine is woken up; the GPU is not broken.",
                cures=(cure("let the running requests end (or abort them) before POST /sleep, and send none before POST /wake_up", None, when(facts=("asleep",))), cure("restart the engine", None, when(serving=True))),
            ),
            Variant(
                when=when(_INDEX, facts=("config_max_model_len",)),
                sentence="a kernel on the GPU got an index that is out of range, and max_model_len is larger than the model's config allows",
                why="A request that is longer than the config's positions reads beyond their table. The GPU is not broken.",
                cures=(cure("leave VLLM_ALLOW_LONG_MAX_MODEL_LEN out, which lets a larger value pass", None, when(facts=("config_max_model_len",))),),
            ),
            Variant(
                when=when(_INDEX), sentence="a kernel on the GPU got an index that is out of range",
                why="This does not mean that the GPU is broken: a token, position or block of a step had a number that its table does not have. This log does not show where the number came from; often it is a bug of vLLM for this model and these settings, or ids beyond the model's vocabulary.",
                cures=(cure("serve without speculative decoding, and see whether it comes again: leave --speculative-config out", None, when(seen=r"(?i)spec_?decod|speculative")), check("find the call", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(r"(?:\.cuh?:\d|: block: \[).{0,400}Assertion `")), check("search vLLM's issues for this assertion, with the model and the settings")),
            ),
            Variant(
                when=when(r"Xid.{0,40}: 63\b"), sentence="the GPU has replaced a damaged row of its memory with a spare one; this line is not a failure by itself",
                why="The running processes go on. The replacement takes effect at the next reset of the GPU; if an error ended a process, another Xid (48, 94 or 95) stands beside it.",
                cures=(check("see whether a row is pending or failed", "nvidia-smi -q -d ROW_REMAPPER,ECC"), cure("if one is pending, reset the GPU when nothing runs on it", "nvidia-smi --gpu-reset -i N", when(r": 63\b"))),
            ),
            Variant(
                when=when(r"SXid|Xid.{0,40}: (?:74|14[4-9]|150)\b"), sentence="a link between GPUs (NVLink, NVSwitch) reported an error",
                why="A program that uses the link may fail or hang; other programs go on.",
                cures=(check("see the links' errors, and their state", "nvidia-smi nvlink -e; nvidia-smi nvlink -s"), check("see the state of the fabric", "nvidia-smi -q | grep -A3 Fabric; systemctl status nvidia-fabricmanager"), cure("if the counters of one link go on rising, drain the host, and have the link's hardware checked", None, when(r"Xid"))),
            ),
            Variant(
                when=when(r"device-side assert triggered"),
                sentence="a kernel on the GPU checked a value, found it wrong and stopped (device-side assert)",
                why="This does not mean that the GPU is broken. Most often the value is an index (a token, position or block) that its table does not have. The kernel prints the check as a line with `Assertion … failed`; it stands before this line, or is missing in this log.",
                cures=(check("look for that line in the output of the whole server (standard error, all workers)", "kubectl logs POD   (or docker logs, journalctl -u vllm) | grep -m3 Assertion"), check("find the call", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(lacks=_AMD)), check("find the call", "AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 vllm serve …", when(seen=_AMD))),
            ),
            Variant(
                when=when(r"launch timed out"), sentence="a kernel ran longer than the driver allows, and the driver ended it",
                why="Such a limit applies to a GPU that drives a display, and under Windows (WSL); servers have none.",
                cures=(check("check whether a display uses the GPU", "nvidia-smi --query-gpu=index,name,display_active --format=csv"), cure("if one does, serve on another GPU, or without the desktop", None, when(r"timed out")), cure("otherwise find the kernel", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(lacks=_AMD))),
            ),
            Variant(
                when=when(r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)", lacks=r"Xid|illegal memory access|device-side assert"), sentence="cuBLAS could not compute a product of matrices on the GPU",
                why="Either a kernel before it failed (the error is reported late), or little GPU memory is free, or another cuBLAS is loaded than the one of this PyTorch.",
                cures=(check("see whether the GPU reported an error, and how much of its memory is free", "dmesg -T | grep -i -E 'xid|nvrm'; nvidia-smi"), check("see which cuBLAS is installed and found", "echo $LD_LIBRARY_PATH; python -m pip list | grep -i -E 'cublas|^torch'"), check("find the call that failed first", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(r"CUBLAS"))),
            ),
            Variant(
                when=when(r"device critical error"), sentence="the accelerator's runtime reported a critical error of the device, and ended the process",
                why="The reason is in the line or in the driver's report; only a new process can use the device again.",
                cures=(check("see the driver's own report, and the state of the devices", "dmesg -T | tail -50; hl-smi", when(r"Synapse|hl:")), check("see the driver's own report", "dmesg -T | tail -50", when(lacks=r"Synapse|hl:"))),
            ),
            Variant(
                when=when(r"Engine reset: engine_class|GPU HANG: |_RESULT_ERROR_DEVICE_LOST"),
                sentence="a kernel hung or failed, and the driver reset a part of the Intel GPU",
                why="The process that used it lost its work there.",
                cures=(check("see the driver's own report", "dmesg -T | grep -i -E 'xe |i915'"),),
            ),
            Variant(
                when=when(r"amdgpu.{0,80}ring \S{1,40} timeout"), sentence="the AMD driver reset a ring of the GPU, because a job took longer than its limit",
                why="The lines after it name the process, and whether the reset succeeded; then only that process lost its job.",
                cures=(check("see whose process it was, and give the GPU shorter jobs (smaller batches), or more time (amdgpu.lockup_timeout)", None, when(r"timeout")),),
            ),
            Variant(
                when=when(r"HSA_STATUS|Memory access fault by GPU|hipError|HIP error", seen=r"(?i)aiter"),
                sentence="a kernel of AITER (AMD's kernel library) failed on the GPU",
                why="Such a kernel reads or writes memory that is not its own: a bug of this kernel for these shapes, not a lack of memory.",
                cures=(cure("compute experts without it", "VLLM_ROCM_USE_AITER_MOE=0", when(seen=r"(?i)aiter\S{0,40}moe")), cure("serve without AITER, or with another release of it", "VLLM_ROCM_USE_AITER=0", when(seen=r"(?i)aiter"))),
            ),
            Variant(
                when=when(r"Memory access fault by GPU node-(\d+)\b.{0,400}\n.{0,200}Memory access fault by GPU node-(?!\1\b)\d"),
                sentence="a kernel accessed memory that is not its own, on several GPUs at once",
                why="GPUs do not break at the same time: the kernel, or the shapes that it was given, is at fault.",
                cures=(check("find the kernel", "AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 vllm serve …", when(r"Memory access fault")), cure("if VLLM_ROCM_USE_AITER is on, or the log names AITER, serve once without it to compare", "VLLM_ROCM_USE_AITER=0", when(r"Memory access fault"))),
            ),
            Variant(
                when=when(r"HSA_STATUS|Memory access fault by GPU|Memory critical error|hipError|HIP error|HW Exception by GPU|amdgpu"), sentence="the AMD GPU, or a kernel on it, failed",
                why="The process cannot use the GPU any more, and only a new one can.",
                cures=(check("see the driver's own report", "dmesg -T | grep -i -E 'amdgpu|kfd'"), check("find the kernel", "AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 vllm serve …", when(r"HSA_|Memory access fault|HW Exception|hipError|HIP error"))),
            ),
        ),
        numbers=_xid,
    ),
    Failure(
        slug=NPU,
        sentence="an operator or a runtime call failed on the NPU (CANN)",
        why="The code names the call; CANN's own cause stands in the lines after it or in its plog.",
        cures=(
            check("read the lines after the code, and CANN's own log", "ls -t ~/ascend/log/debug/plog | head"),
            check("see whether driver, CANN, torch_npu and vllm-ascend are of the versions that vllm-ascend's release notes pair", "npu-smi info; python -m pip list | grep -i -E 'torch|vllm|ascend'"),
            check("find the operator", "ASCEND_LAUNCH_BLOCKING=1 vllm serve …", when(r"aclnn|ERR0|error code")),
        ),
        deterministic=False,
    ),
    Failure(
        slug=CONTEXT,
        sentence="a request was longer than the model's context",
        why="Prompt and requested output together must not exceed max_model_len; vLLM refuses such a request and lives on.",
        cures=(cure("send less, or ask for fewer tokens (max_tokens)", None, when(r"max|long|exceed")), cure("or allow more, as far as model and KV cache do: raise --max-model-len", None, when(r"maximum (?:context|model) length|context length is only|max_model_len|exceeds limit|too long"))),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"longer than the maximum model length", seen=r"profile_run|_dummy_|determine_available_memory"), sentence="the largest input of images, video or sound, with which the start is tested, is longer than max_model_len",
                why="No request is at fault: vLLM measures its memory with the largest input that the settings allow.",
                cures=(cure("allow fewer or smaller inputs of each kind", "--limit-mm-per-prompt '{\"image\": 1, \"video\": 0}'", when(r"maximum model length")), cure("or raise --max-model-len, as far as model and KV cache allow", None, when(r"maximum model length"))),
            ),
            Variant(
                when=when(r"exceeds limit of"), sentence="a prompt is longer than the scheduler allows for one step",
                why="The limit is the smaller of max_model_len and max_num_batched_tokens. The API server had accepted the request; it ends with an empty answer, and the server lives on.",
                cures=(cure("unless the limit is max_model_len itself, allow steps as long as the prompt", "--max-num-batched-tokens N", when(r"exceeds limit")), cure("or let the scheduler split prompts", "--enable-chunked-prefill", when(r"exceeds limit"))),
            ),
            Variant(
                when=when(r"exceeds the capacity"), sentence="a prompt is longer than the whole KV cache",
                cures=(cure("leave more memory to the KV cache, or send less", "a larger --gpu-memory-utilization", when(r"capacity")),),
            ),
            Variant(
                when=when(r"encoder cache"), sentence="an image, video or sound of a request is larger than the encoder cache",
                why="vLLM refuses such a request and lives on; the size of the cache follows from --max-num-batched-tokens and --limit-mm-per-prompt.",
                cures=(cure("send a smaller one, or change the flag that the message names", None, when(r"encoder cache")),),
            ),
        ),
        numbers=_context,
    ),
    Failure(
        slug=GRAMMAR,
        sentence="the grammar or schema of a request with structured output failed",
        why="In some releases such a request ends the engine for all: the grammar was not checked before, or the backend that was fixed by the first request cannot take it.",
        cures=(
            check("find the request that has this schema, regex or grammar, and keep it away"),
            _ANEW,
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"features (?:that are )?not supported by (?:xgrammar|outlines|guidance|lm-format-enforcer)"),
                sentence="the schema of a request has features that the chosen backend of structured output does not take, and the request was refused",
                cures=(cure("let the server choose the backend for each request: leave the setting out that names one, or name auto", "--structured-outputs-config '{\"backend\": \"auto\"}'   (before 0.11: --guided-decoding-backend auto)", when(r"not supported by")), cure("or leave those features out of the schema", None, when(r"not supported by"))),
            ),
            Variant(
                when=when(r"[Ff]ailed to advance FSM", seen=r"(?i)\b(?:grammar|structured outputs?)\b.{0,200}\b(?:not supported|will be ignored)\b"),
                sentence="tokens of a request do not follow its grammar, because the grammar was not applied",
                why="A warning next to this line reports that, and names the setting that does not go with structured output.",
                cures=(cure("turn off the setting that the warning names, or send requests without structured output", None, when(r"advance FSM")),),
            ),
            Variant(
                when=when(r"[Ff]ailed to advance FSM"),
                sentence="tokens of a request do not follow its grammar, so its output may break the format that was asked for",
                why="The grammar itself was accepted. Most often that is a bug of this release with these settings (such as asynchronous scheduling or speculative decoding).",
                cures=(
                    check("see whether it goes without asynchronous scheduling (if this release has the flag)", "--no-async-scheduling", when(r"advance FSM")),
                    check("see whether it goes without speculative decoding: leave --speculative-config out", None, when(seen=r"(?i)spec_?decod|speculative")),
                    check("search vLLM's issues for this message, with the release and the settings"),
                ),
            ),
            Variant(
                when=when(r"\A(?!.*(?i:grammar|schema|regex|outlines|guidance|structural))"),
                sentence="an error in the code for structured output (grammars), which does not name a grammar",
                why="A request, or a combination of settings such as speculative decoding, may have led to it.",
                cures=(check("see whether it comes only with structured output, and whether without speculative decoding and asynchronous scheduling, too"), check("search vLLM's issues for this message, with the release and the settings"), _ANEW),
            ),
        ),
    ),
    Failure(
        slug=BUG,
        sentence="an assertion failed in the code",
        why="That is a bug, or two settings that do not work together.",
        cures=(check("search vLLM's issues for the assertion and its file"),),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"Assertion error (?:csrc|\().{0,400}(?:contiguous|stride)"),
                sentence="a kernel library refused the memory layout of an argument",
                why="The code that calls the library made the argument, so the fault is probably in vLLM, for this model and these settings.",
                cures=(check("search vLLM's issues for the assertion and the function that calls the library"),),
            ),
            Variant(
                when=when(r"Assertion error (?:csrc|\()", seen=r"deep_?gemm|csrc|jit_kernels|fp8_gemm"),
                sentence="an assertion failed in a kernel library; the path in the line names it",
                why="Most often vLLM and the library are of versions that do not fit, or the library does not take these shapes or this GPU.",
                cures=(cure("multiply without DeepGEMM", "VLLM_USE_DEEP_GEMM=0", when(seen=r"jit_kernels|deep_?gemm|fp8_gemm")), check("search the library's issues for the assertion and its file")),
            ),
            Variant(
                when=when(frames=r"/entrypoints/\S{1,200} (?:to_|create_|_?preprocess|render)\w*", lacks=r"fatal error|failed to start|\bdied\b"),
                sentence="an assertion failed while the API server read one request",
                why="Only this request failed: it has parameters that this code does not expect.",
                cures=(check("check the warning before this line: the server ignored the field that it names, so the request may have it in the wrong place", None, when(facts=("ignored_fields",))), check("compare the parameters of this request with vLLM's documentation"), check("search vLLM's issues for the assertion and its file")),
            ),
            Variant(
                when=when(frames=r"core/sched/|kv_cache_manager|kv_connector|kv_transfer|offload"),
                sentence="an assertion failed in the scheduler or a KV connector: a bug of this release, or of the connector",
                why="The engine ends with it, and the requests in flight are lost.",
                cures=(
                    cure("restart the engine", None, when(serving=True)),
                    check("search vLLM's issues for the assertion and its file"),
                    cure("if it comes again, serve without the KV connector (offload, LMCache, NIXL)", None, when(frames=r"kv_connector|kv_transfer|offload|lmcache|nixl")),
                ),
            ),
        ),
    ),
    Failure(
        slug=HANG,
        sentence="the engine makes no tokens while requests run: it hangs",
        why="While it works, vLLM reports its throughput every ten seconds; its server may answer all the same.",
        cures=(
            check("see where engine core and workers are", "py-spy dump --pid PID_OF_ENGINE_CORE"),
            check("see whether a GPU reported an error", "dmesg -T | grep -i -E 'xid|amdgpu'", when(facts=("!device",))),
            cure("if no tokens come for minutes while requests run, restart the engine", None, when(serving=True)),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"Running: 0 reqs.{0,80}(?:Waiting|Pending): [1-9]"), sentence="requests wait and none runs: the scheduler admits no request",
                why="No prompt is read and no token made, so it is not slow work. Unless the engine is paused (POST /pause) or asleep, the waiting requests hold or lack pages of the KV cache, or wait for a transfer of KV.",
                cures=(
                    check("see where engine core and workers are", "py-spy dump --pid PID_OF_ENGINE_CORE"),
                    cure("if the KV cache in this line is nearly full although nothing runs, serve without the KV connector or offload", None, when(r"KV cache usage: (?:9\d|100)\.")),
                    cure("if it is neither paused nor asleep and waits for no KV of another server, restart it", None, when(r"Running: 0")),
                ),
            ),
            Variant(
                when=when(serving=False), sentence="the start never came up",
                why="Only waiting is logged after this line; slow work without a log of its own appears the same. A restart with nothing changed often stops at the same point.",
                cures=(
                    check("see where engine core and workers are", "py-spy dump --pid PID_OF_WORKER"),
                    cure("skip the profiling of images and videos", "--skip-mm-profiling", when(r"Encoder cache will be initialized")),
                    check("see whether weights are still being read (disk, network)", "iostat -x 5", when(phases=(1,))),
                    check("see how far the ranks come in connecting to each other", "NCCL_DEBUG=INFO vllm serve …", when(r"parallel_state|world_size|nccl|NCCL|rank \d")),
                    check("see whether direct copies between the GPUs hang (IOMMU or ACS on the PCIe path breaks them)", "NCCL_P2P_DISABLE=1 vllm serve … --disable-custom-all-reduce", when(r"world_size=(?!1\b)|nccl==")),
                    check("see whether a compilation goes on", "top -H -p PID_OF_WORKER", when(r"compil|[Cc]apturing|torch\.compile|[Aa]utotun|Graph")),
                ),
            ),
        ),
    ),
    Failure(
        slug=DEAD,
        sentence="the engine died; this log does not show why",
        why="These lines are only the consequences. If a process wrote the cause, it is in the lines before them.",
        variants=(
            Variant(
                when=when(r"Worker proc \S+ died unexpectedly|Worker \S+ pid \d+ died|worker process(?:es)? died", phases=(1, 2, 3, 4, 5)),
                sentence="a worker process vanished, and left no message of its own in this log",
                why="A process that ends without a message was usually killed, or crashed in native code or on the GPU. The reason is probably outside this log.",
                cures=(
                    check("check whether the kernel killed it, or the GPU driver reported an error", "dmesg -T | grep -i -E 'killed process|xid|segfault'"),
                    check("in Kubernetes, check restarts, events and the memory limit", "kubectl describe pod POD"),
                ),
            ),
            Variant(
                when=when(r"Back-off restarting|CrashLoopBackOff", lacks=r"failed (?:liveness|startup) probe"),
                sentence="Kubernetes starts a container that ends again and again; events do not show why it ends",
                why="Failed probes beside it follow from that.",
                cures=(check("read the log of the container before", "kubectl logs --previous POD"), check("see its exit code and reason (OOMKilled, Error)", "kubectl describe pod POD")),
            ),
            Variant(
                when=when(r"(?:Startup|Readiness|Liveness) probe failed: ", lacks=r"failed (?:liveness|startup) probe|statuscode: (?:401|403|404|405)"),
                sentence="Kubernetes asked the server, and it did not answer (yet)",
                why="While a start loads weights and compiles, that is normal; the events do not show a failure of vLLM.",
                cures=(
                    check("read the container's log: it shows how far the start is, or its error", "kubectl logs POD; kubectl logs --previous POD"),
                    cure("if Kubernetes ends it before it is up, allow a longer start (startupProbe: failureThreshold × periodSeconds)", None, when(r"probe failed")),
                ),
            ),
            Variant(
                when=when(r"failed (?:liveness|startup) probe|probe failed: ", seen=r"probe failed: HTTP probe failed with statuscode: (?:401|403|404|405)"),
                sentence="Kubernetes restarted the container: its probe asks for a path that the server refuses",
                why="The server answered the probe with 401, 403, 404 or 405: it runs, and the probe is wrong.",
                cures=(check("compare the path, port and headers of the probe with the server's: vLLM has /health", "kubectl get pod POD -o jsonpath='{.spec.containers[*].livenessProbe}'"),),
            ),
            Variant(
                when=when(seen=r"Liveness probe failed: .{0,300}(?:deadline|Timeout) exceeded", serving=True),
                sentence="Kubernetes restarted the container: the server answered its liveness probe too slowly",
                why="It had served requests, so it may have been busy rather than stuck.",
                cures=(cure("let the probe wait longer, and fail more often, before it restarts (timeoutSeconds, failureThreshold)", None, when(r"probe")), check("read the log of the container before", "kubectl logs --previous POD")),
            ),
            Variant(
                when=when(seen=r"failed (?:liveness|startup) probe"), sentence="Kubernetes restarted the container: its probe failed",
                why="A probe that does not wait for a whole start ends it each time; one that fails later shows an engine that does not answer.",
                cures=(
                    check("read the log of the container before", "kubectl logs --previous POD"),
                    cure("give the start a startupProbe that waits as long as it takes (failureThreshold × periodSeconds)", None, when(r"failed (?:liveness|startup) probe")),
                ),
            ),
            Variant(
                when=when(r"core proc\(s\): \{[^}]{0,200}: -9\b"), sentence="the engine core was killed (SIGKILL); this log does not show by whom",
                why="Most often the kernel does that when the host or the container is out of memory.",
                cures=(check("ask the kernel whether it killed it", "dmesg -T | grep -i -E 'killed process|out of memory'"), check("see why the container ended", "kubectl describe pod POD   (or docker inspect)")),
            ),
            Variant(
                when=when(r"core proc\(s\): \{[^}]{0,200}: -(?:4|6|7|8|11)\b"),
                sentence="the engine core crashed in native code (a signal), so Python wrote no error",
                why="The number is the signal: -4 an instruction that the CPU lacks, -6 abort, -7 bus error (often /dev/shm), -11 segmentation fault.",
                cures=(check("see the kernel's report, with the library", "dmesg -T | tail -50"), check("get the stack of the next crash", "PYTHONFAULTHANDLER=1 vllm serve …", when(r"core proc"))),
            ),
            Variant(
                when=when(r"(?:[Cc]ode:? {0,8}\(?|Exited \()13[2-69]\b"), sentence="a process crashed in native code (a signal), so Python wrote no error",
                why="The code is 128 and the signal: 132 an instruction that the CPU lacks, 134 abort, 135 bus error (often /dev/shm), 136 an arithmetic error, 139 segmentation fault.",
                cures=(check("read the last lines of the container before: an abort often has a message", "kubectl logs --previous POD   (or docker logs CONTAINER)"), check("see the kernel's report, with the library", "dmesg -T | grep -i -E 'segfault|trap|general protection'"), check("get the stack of the next crash", "PYTHONFAULTHANDLER=1 vllm serve …", when(r"13[2-69]"))),
            ),
            Variant(
                when=when(r"\.service: (?:Start operation|State '\S+') timed out"),
                sentence="systemd ended the service, because it took longer to start or stop than its unit allows",
                why="A start of vLLM takes minutes, and requests in flight are finished before a stop.",
                cures=(cure("allow it more time in the unit", "TimeoutStartSec=30min   TimeoutStopSec=5min", when(r"timed out")), check("see how far it came", "journalctl -u vllm -n 200")),
            ),
            Variant(
                when=when(r"\.service: Failed (?:to locate|at step)"), sentence="systemd could not run the command of the unit",
                why="The path of ExecStart is not there, or the unit's user may not run it or enter its folder.",
                cures=(check("see the path, and the rights of every folder on it", "systemctl cat vllm; namei -l /path/of/ExecStart"),),
            ),
            Variant(
                when=when(r"\.service: Main process exited"), sentence="the service ended with an error; this line does not show which",
                why="The process wrote its own lines before this one.",
                cures=(check("read them", "journalctl -u vllm -o cat -n 300"),),
            ),
            Variant(
                when=when(r"segfault at |general protection| trap "),
                sentence="a process crashed (segmentation fault); the kernel's line names the library in which it did",
                why="That is a bug of this library, or it does not fit the others; memory that is too small does not do that.",
                cures=(check("see the versions of the library in the line and of those it goes with", "python -m pip check; nvidia-smi", when(lacks=r"(?i)hip|rocm|amd")), check("get the stack of the next crash", "PYTHONFAULTHANDLER=1 vllm serve …", when(r"segfault|general protection"))),
            ),
            Variant(
                when=when(r"Timed out waiting for engine(?: core|s? to send)"), sentence="the engine was not up within the time that the API server waits for it",
                why="Slow disks, large models and long compilations need more; an engine that hangs never comes up.",
                cures=(check("see in its log how far it came, and whether it went on"), cure("if it did, wait longer", "VLLM_ENGINE_READY_TIMEOUT_S=SECONDS", when(r"VLLM_ENGINE_READY_TIMEOUT_S|Timed out waiting"))),
            ),
            Variant(
                when=when(r'/health\S* HTTP/[\d.]+" 503'), sentence="the server answers that its engine is dead (503 on /health)",
                why="The engine core or a worker ended before. If it wrote the cause, it is in an earlier line.",
                cures=(check("read the log before this line, from the first traceback on", "kubectl logs --previous POD   (or docker logs, journalctl -u vllm)"),),
            ),
            Variant(
                when=when(r"Segmentation fault|Segfault encountered|SIGSEGV|SIGABRT|core dumped|Fatal Python error|double free|corrupted size|free\(\): invalid|malloc\(\): |munmap_chunk", lacks=r"Illegal instruction|Bus error|SIGBUS"),
                sentence="a process crashed in native code, so Python wrote no error",
                why="A compiled library has a bug or does not fit the others, or an error that was printed before ended it.",
                cures=(check("see which packages do not fit each other", "python -m pip check", when(r"free|size|alloc|chunk")), check("see the lines before it, and the kernel's report with the library", "dmesg -T | tail -50"), check("get the stack of the next crash", "PYTHONFAULTHANDLER=1 vllm serve …", when(lacks=r"== backtrace")), check("check the libraries of the printed stack, below libc's: the first of them crashed", None, when(r"== backtrace"))),
            ),
            Variant(
                when=when(r"terminate called after throwing"), sentence="a process was ended by an exception in C++ code",
                why="The line `what():` after it has the reason; the process that waits for it only reports its death.",
                cures=(check("read the line that begins with what()"), check("see whether a GPU reported an error", "dmesg -T | grep -i xid", when(r"CUDA|cuda|Accelerator"))),
            ),
            Variant(
                when=when(r"Illegal instruction|SIGILL"), sentence="the process executed an instruction that this CPU does not have",
                why="The build needs a newer CPU: vLLM's CPU wheels need AVX512 or AVX2, and virtual machines often hide them.",
                cures=(check("see the instruction sets of this CPU", "lscpu | grep -o -w -E 'avx2|avx512[a-z]*|amx[a-z_0-9]*' | sort -u"),),
            ),
            Variant(
                when=when(r"Bus error|SIGBUS"), sentence="a process died of a bus error: memory behind a mapping was not there",
                why="Most often /dev/shm is too small, or the disk of a mapped file is full or gone.",
                cures=(check("see how full they are, from inside the container", "df -h /dev/shm /tmp"), cure("give the container shared memory", "docker run --ipc=host …   (or --shm-size=16g)", when(r"Bus error|SIGBUS"))),
            ),
        ),
        cures=(check("get the whole log, from the start to the first traceback of EngineCore or a worker", "kubectl logs --previous POD   (or docker logs, journalctl -u vllm)"), check("see whether it was killed", "dmesg -T | grep -i -E 'killed process|xid'", when(r"\A(?![\s\S]{0,400}(?:proc\(s\): \{[^}]{0,80}: 1\}|Exit Code: +[12]\b|Exited \([12]\)))"))),
        deterministic=False,
    ),
)  # fmt: skip
