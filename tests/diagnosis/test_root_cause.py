"""Among many errors the one that caused the others is named."""

import pytest

from tests.diagnosis.whole_log import diagnose

BANNER = "INFO 11-21 03:00:00 [api_server.py:1805] vLLM API server version 0.10.1\n"
LOADING = "INFO 11-21 03:00:05 [gpu_model_runner.py:1] Starting to load model meta/llama...\n"
LOADED = (
    "INFO 11-21 03:00:30 [gpu_model_runner.py:2] Model loading took 14.99 GiB and 9.1 seconds\n"
)
KV = "INFO 11-21 03:00:40 [kv_cache_utils.py:5] GPU KV cache size: 613,024 tokens\n"
CAPTURE = "INFO 11-21 03:00:41 [gpu_model_runner.py:9] Capturing cudagraphs for decoding.\n"
READY = "INFO:     Application startup complete.\n"
TOKENS = "INFO 11-21 03:05:00 [loggers.py:1] Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 61.0 tokens/s, Running: 2 reqs\n"
OOM = "ERROR 11-21 03:00:50 [core.py:7] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.27 GiB. GPU 0 has a total capacity of 79.33 GiB of which 109.81 MiB is free.\n"
DEAD = "ERROR 11-21 03:00:51 [core.py:8] RuntimeError: Engine core initialization failed. See root cause above.\n"
STALL = "INFO 11-21 03:06:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.\n"
XID = "[81234.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
ILLEGAL = "(Worker_TP1 pid=9) ERROR 11-21 03:07:00 [a.py:1] torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
TIMEOUT = "[rank0]:[E ProcessGroupNCCL.cpp:475] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)\n"
IMPORT = "ModuleNotFoundError: No module named 'regex'\n"
GONE = "INFO 11-21 04:00:00 [launcher.py:254] [shutdown] API server: shutdown triggered\n"
TRACE = '(Worker pid=3) ERROR 11-21 03:00:49 [w.py:1]   File "/x/vllm/v1/worker/gpu_worker.py", line 5, in {}\n'

STRANGE = (
    "(EngineCore pid=7) ERROR 11-21 03:00:50 [core.py:7] ZeroDivisionError: division by zero here\n"
)
BARE = "ERROR 11-21 03:00:50 [core.py:7] KeyError: 'w'\n"
START_FAILED = "(EngineCore pid=7) ERROR 11-21 03:00:51 [core.py:7] EngineCore failed to start.\n"
NCCL = "ERROR 11-21 03:00:50 [x.py:7] RuntimeError: NCCL error: unhandled system error\n"
NCCL_OF_ANOTHER = "(Worker_TP1 pid=8) " + NCCL
LINK = "\nThe above exception was the direct cause of the following exception:\n"
NINJA = "ERROR 11-21 03:00:50 [x.py:7] RuntimeError: Ninja build failed. Ninja output:\nFAILED: [code=1] x.o\n"
COMPILER = (
    'x.cu:12:3: error: identifier "foo" is undefined\nninja: build stopped: subcommand failed.\n'
)
PINNED = "(Worker_TP0 pid=4) WARNING 08-04 09:41:10 [w.py:141] cudaHostRegister failed for rank=0 (code=2)\n"
ECHO = (
    TRACE.format("capture_model")
    + "(Worker pid=4) ERROR 08-04 09:41:15 [m.py:9] torch.AcceleratorError: CUDA error: out of memory\n"
)
BAD_FLAG = "vllm: error: unrecognized arguments: --foo\n"
IN_A_REQUEST = (
    "ERROR 06-09 11:40:52 [serving_chat.py:883] Error in chat completion stream generator.\n"
)

FOLDER = "(EngineCore pid=6) PermissionError: [Errno 13] Permission denied: '/{}'\n"
OF_A_STAGE = FOLDER.replace(") ", ") x.exc.StageError: ")
CORE_DEAD = "(EngineCore pid=6) ERROR 05-05 10:00:00 [core.py:9] EngineCore failed to start.\n"

STORIES = {
    "of two folders the one that the end follows": (FOLDER.format("a") + "...\n" + OF_A_STAGE.format("b") + CORE_DEAD, "folder_not_writable", 3),
    "of two folders the first, if both are of one chain": (FOLDER.format("a") + LINK.replace("\nThe", "\n(EngineCore pid=6) The") + OF_A_STAGE.format("b") + CORE_DEAD, "folder_not_writable", 1),
    "of one folder the first error": (FOLDER.format("a") + "...\n" + OF_A_STAGE.format("a") + CORE_DEAD, "folder_not_writable", 1),
    "of two processes' folders the first": (FOLDER.format("a").replace("=6", "=7") + OF_A_STAGE.format("b") + CORE_DEAD, "folder_not_writable", 1),
    "of two folders the first, if nothing ended": (FOLDER.format("a") + "...\n" + OF_A_STAGE.format("b"), "folder_not_writable", 1),
    "the cause comes before the engine's death": (OOM + DEAD, "out_of_memory", 1),
    "and even when it is printed after it": (DEAD + OOM, "out_of_memory", 2),
    "memory runs out while loading": (BANNER + LOADING + OOM + DEAD, "oom_loading_weights", 3),
    "after the weights, while profiling": (BANNER + LOADING + LOADED + OOM, "oom_kv_alloc_or_profiling", 4),
    "while the cache is set up": (BANNER + LOADED + KV + OOM, "oom_kv_alloc_or_profiling", 4),
    "while graphs are captured": (BANNER + LOADED + KV + CAPTURE + OOM, "oom_cuda_graph_capture", 5),
    "while it serves": (BANNER + LOADED + READY + TOKENS + OOM + DEAD, "oom_runtime", 5),
    "the traceback tells the phase": (TRACE.format("load_model") + OOM, "oom_loading_weights", 2),
    "the traceback beats the progress": (LOADING + TRACE.format("profile_run") + OOM, "oom_kv_alloc_or_profiling", 3),
    "a traceback after the message": (OOM + TRACE.format("capture_model"), "oom_cuda_graph_capture", 1),
    "the GPU fell off, the rest waits": (READY + XID + STALL + TIMEOUT + DEAD, "xid_or_gpu_lost", 2),
    "one rank crashed, the others wait": (READY + TIMEOUT + ILLEGAL + DEAD, "nccl_timeout", 2),
    "a stall and then the end": (READY + TOKENS + STALL + DEAD, "shm_broadcast_hang", 3),
    "an import that is missing is often lived with": (IMPORT + OOM, "out_of_memory", 2),
    "or it is the cause": (IMPORT + DEAD, "missing_dependency_or_import_error", 1),
    "an error that it started after": (BANNER + OOM + READY + TOKENS, "benign_warning_noise", 2),
    "a stall during the start": (BANNER + STALL + READY, "benign_warning_noise", 2),
    "a stall long ago": (READY + STALL + TOKENS * 30, "benign_warning_noise", 2),
    "a stall just now": (READY + TOKENS * 30 + STALL + TOKENS, "shm_broadcast_hang", 32),
    "it was asked to stop": (READY + TOKENS + GONE + DEAD, "healthy", None),
    "only the death": (READY + DEAD, "engine_dead", 2),
    "an unknown error: no rule matches it, above the death": (STRANGE + DEAD, "unknown", 1),
    "and below it": (DEAD + STRANGE, "unknown", 2),
    "a bare exception": (START_FAILED + BARE, "unknown", 2),
    "the first error, not the one that a rule knows": (LOADED + STRANGE + NCCL + DEAD, "unknown", 2),
    "of linked exceptions the one that says more": (NCCL + LINK + OOM + DEAD, "out_of_memory", 4),
    "linked in another process": (NCCL_OF_ANOTHER + LINK + OOM, "nccl_init_failure", 1),
    "the compiler's own line in its output": (NINJA + COMPILER + DEAD, "compile_failure", 3),
    "the failed pinning, not its echo": (PINNED + ECHO + START_FAILED, "host_memory_not_pinned", 1),
    "a failed pinning that was lived with": (PINNED + READY, "healthy", None),
    "memory runs out after a line of throughput": (TOKENS + OOM + DEAD, "oom_runtime", 2),
    "another error of the API server": (READY + IN_A_REQUEST + DEAD, "engine_dead", 3),
    "the last of several starts counts": (BANNER + LOADING + OOM + BANNER + READY, "healthy", None),
    "the last of several failures": (BANNER + LOADING + OOM + BANNER + IMPORT + DEAD, "missing_dependency_or_import_error", 5),
    "a new start says nothing yet": (BANNER + LOADING + OOM + DEAD + BANNER, "oom_loading_weights", 3),
}  # fmt: skip


@pytest.mark.parametrize(("log", "failure", "line"), STORIES.values(), ids=STORIES)
def test_story(log, failure, line):
    """Class and line."""
    found = diagnose(log.encode())
    assert (found.failure, found.line_number) == (failure, line)


def test_a_failure_in_service_is_not_of_the_start():
    """Only what failed before it was ready may fail again at each start."""
    assert diagnose((BANNER + BAD_FLAG).encode()).deterministic_start_failure
    assert not diagnose((BANNER + READY + BAD_FLAG + DEAD).encode()).deterministic_start_failure
    assert not diagnose((BANNER + READY + OOM).encode()).deterministic_start_failure
    assert not diagnose((BANNER + READY + IMPORT + DEAD).encode()).deterministic_start_failure


def test_what_is_not_sure_is_not_called_deterministic():
    """An out-of-memory error of which only the allocator's numbers tell the phase."""
    found = diagnose(OOM.encode())
    assert found.failure == "out_of_memory"
    assert not found.deterministic_start_failure
    loading = diagnose((BANNER + LOADING + OOM).encode())
    assert not loading.deterministic_start_failure  # another process may have held the rest
    own = OOM.replace(
        "109.81 MiB is free.", "9.8 MiB is free. this process has 78.00 GiB memory in use."
    )
    assert diagnose((BANNER + LOADING + own).encode()).deterministic_start_failure


def test_a_capture_whose_end_is_missing_is_not_called_certain():
    """A traceback through the capture, cut off: no class is claimed."""
    found = diagnose((BANNER + TRACE.format("capture_model") + DEAD).encode())
    assert found.failure == "unknown"
    assert "capture" in found.sentence
    named = BANNER + TRACE.format("capture_model") + "KeyError: no such graph here\n" + DEAD
    assert diagnose(named.encode()).failure == "unknown"


def test_an_error_that_no_rule_knows_is_unknown():
    """It is shown, and not guessed at."""
    found = diagnose((BANNER + LOADING + "ZeroDivisionError: division by zero here\n").encode())
    assert (found.failure, found.line_number) == ("unknown", 3)
    assert found.confidence < 0.5
