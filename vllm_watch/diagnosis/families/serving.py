"""What goes wrong in a server that runs: the GPU, a request, the engine itself."""

from vllm_watch.diagnosis.families import serving_numbers
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Failure, Rank, rule

XID = "xid_or_gpu_lost"
CONTEXT = "context_length_exceeded"
DEAD = "engine_dead"

RULES = (
    rule(XID, "Xid", pattern=r"NVRM: .{0,20}Xid|\bXid \(PCI|XID error|\bXid[ :]+\d+", quiet=True),
    rule(XID, "fallen off the bus", "GPU is lost", "uncorrectable ECC error", "Uncorrectable ECC", "NVML_ERROR_GPU_IS_LOST", "Memory access fault by GPU", "HSA_STATUS_ERROR_MEMORY_APERTURE", "HSA_STATUS_ERROR_EXCEPTION", "GPU reset"),
    rule(XID, "illegal memory access", "unspecified launch failure", "device-side assert", "misaligned address", "illegal instruction was", "launch timed out", "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_INTERNAL_ERROR", "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorIllegalAddress", "cudaErrorLaunchFailure", "invalid program counter", "hardware stack error", "CUDA_ERROR_ECC", "cudaErrorECC", "NVLink error", "invalid address space", rank=Rank.GENERAL, quiet=True),
    rule(CONTEXT, "aximum context length", "maximum model length", "is too long and exceeds", pattern=r"[Tt]his model's maximum context length is|maximum context length (?:of|is|\()|longer than the maximum model length|is too long and exceeds (?:limit of|the capacity)|exceeds? (?:the )?model's maximum (?:context|model) length", rank=Rank.REQUEST, quiet=True),
    rule(CONTEXT, "max_model_len", "max_tokens", "max_completion_tokens", "encoder cache size", "prompt", pattern=r"(?:prompt|input|request)\b.{0,120}(?:exceeds?|longer than|greater than|more than) .{0,30}max_model_len|max_(?:completion_)?tokens\W.{0,60}(?:too large|exceeds)|max_tokens must be at least 1, got -|exceeds the pre-allocated encoder cache size|prompt is too long", rank=Rank.REQUEST, quiet=True),
    rule(DEAD, "EngineCore", "ngine core", pattern=r"EngineCore encountered (?:a fatal error|an issue)|EngineCore failed to start|EngineCore hit an exception|[Ww]aiting for engine core proc|Engine core initialization failed|EngineCore.{0,40}died|[Ee]ngine core proc .{0,60}died", rank=Rank.DEATH),
    rule(DEAD, "EngineDeadError", "EngineGenerateError", "ngine process", "Engine loop", "ngine is dead", "Task finished unexpectedly", "ackground loop", "Engine iteration timed out", "Engine background task failed", pattern=r"Engine background task failed|\b\w*EngineDeadError|EngineGenerateError|[Ee]ngine process .{0,40}(?:died|failed to start)|Engine loop (?:is not running|has died)|[Ee]ngine is dead|Task finished unexpectedly|[Bb]ackground loop (?:has errored|is not running|is stopped)|Engine iteration timed out", rank=Rank.DEATH),
    rule(DEAD, "orker", "WorkerProc", pattern=r"WorkerProc (?:initialization failed|failed to start|hit an exception)|Worker proc \S+ died unexpectedly|Worker \S+ pid \d+ died|[Oo]ne of the worker processes died|worker process died|Worker failed with error", rank=Rank.DEATH),
    rule(DEAD, "output_handler failed", "Terminating server process", "rror in calling", "Error in model execution", "Segmentation fault", "SIGSEGV", "Aborted (core dumped)", "core dumped", "SIGABRT", "Fatal Python error", rank=Rank.DEATH),
)  # fmt: skip

FAILURES = (
    Failure(
        slug=XID,
        sentence="the GPU, or a kernel on it, failed",
        why="The driver reported an error or a kernel touched memory it must not; the CUDA context is lost, and only a new process gets another. Without an Xid from the hardware it is usually a bug in a kernel.",
        fixes=(
            Fix("look for the driver's own report and its number", "dmesg -T | grep -i -E 'xid|nvrm'"),
            Fix("an Xid 48, 63, 64, 74, 79, 94, 95 or 119 is hardware: drain the host and reset or replace the GPU", "nvidia-smi -q -d ECC,PAGE_RETIREMENT"),
            Fix("without one, find the kernel", "CUDA_LAUNCH_BLOCKING=1 vllm serve … --enforce-eager"),
            Fix("and take a newer vLLM, or another attention backend", "--attention-backend TRITON_ATTN"),
        ),
        deterministic=False,
        numbers=serving_numbers.xid,
    ),
    Failure(
        slug=CONTEXT,
        sentence="a request was longer than the model's context",
        why="Prompt and requested output together must not exceed max_model_len; vLLM refuses such a request and lives on.",
        fixes=(Fix("send less, or ask for fewer tokens (max_tokens)"), Fix("or allow more, as far as model and KV cache do", "--max-model-len N")),
        deterministic=False,
        numbers=serving_numbers.context,
    ),
    Failure(
        slug=DEAD,
        sentence="the engine died; this log does not say of what",
        why="What is logged are only the consequences; the cause was written by the engine core or a worker, before these lines.",
        fixes=(Fix("get the whole log, from the start to the first traceback of EngineCore or a worker", "kubectl logs --previous POD   (or docker logs, journalctl -u vllm)"), Fix("see whether it was killed", "dmesg -T | grep -i -E 'killed process|xid'"), Fix("restart it; if it dies again in the same way, log more", "VLLM_LOGGING_LEVEL=DEBUG")),
        deterministic=False,
    ),
)  # fmt: skip
