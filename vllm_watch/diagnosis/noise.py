"""Harmless errors, lines with users' text, and lines that show progress."""

USERS_TEXT = ("Received request", "Generated response", "Added request", "prompt: '")
"""Lines with users' text, which are not searched for errors."""

HARMLESS = (
    "Error retrieving file list",
    "Error retrieving safetensors",
    ", retrying ",
    "Retrying with a new port",
    "Cannot use FA version",
    "Error ignored in is_in_the_same_node",
    "Failed to initialize FlashInfer All",
    "destroy_process_group() was not called",
    "Unable to register cu",
    "computation placer already registered",
    "resource_tracker: There appear to be",
    "Address family not supported by protocol",
    "Failed to import from vllm.",
    "Failed to import Triton kernels",
    "Failed to import from amdsmi",
    "Error importing OSS server tool",
    "ras/client_support.cc",
    "nanobind: leaked",
    "ERR99999 UNKNOWN applic",
    "Failed to load NCCL library from",
    "encountered while exporting traces",
    "Failed to export traces to",
    "Failed to export metrics to",
)
"""Messages that vLLM and its libraries log as errors, but survive."""

IGNORED = ("Exception ignored in", "_report_usage_worker", "was found but failed to import")
"""Messages before an exception that the process survives."""

_COMPLAINTS = ("rror:", "FAILED", "ailed", "annot ", "refused", "not permitted", "format error", "denied", "exceeds ", "must ", "Missing ", "CMake Error", "ould not", "[error]")  # fmt: skip

MARKS: dict[str, tuple[str, ...]] = {
    "banner": ("vLLM API server version", "  version "),
    "ready": ("Application startup complete", "Uvicorn running on", "Starting vLLM API server"),
    "serving": ("throughput:", '" 200', "Finished request"),
    "request": ('"POST /v1/', '"POST /generate'),
    "sleep": ("to fall asleep", "to wake up"),
    "stop": (
        "shutdown triggered",
        "received signal=SIGTERM",
        "Gracefully stopping http server",
        "SIGTERM received",
        "Received SIGTERM",
        "KeyboardInterrupt",
    ),
    "end": ("to clean up at shutdown",),
    "nccl_debug": ("NCCL INFO", "NCCL WARN"),
    "ignored_fields": ("present in the request but ignored",),
    "wsl": ("WSL is detected", "microsoft-standard-WSL"),
    "warning": ("WARNING", "Warning:"),
    "error": ("ERROR", "CRITICAL", "Error", "Exception", "Traceback", "what(): "),
    "complaint": _COMPLAINTS,
    "import": ("ailed to import", "rror importing"),
    "link": ("During handling of the above", "direct cause of the following", *IGNORED),
}
