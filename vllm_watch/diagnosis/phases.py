"""Find the phase of the start in which GPU memory ran out."""

import re

from vllm_watch.diagnosis.families import memory
from vllm_watch.diagnosis.families.memory_numbers import gib
from vllm_watch.diagnosis.finding import Finding
from vllm_watch.diagnosis.rule import DECIMAL

START, LOAD, PROFILE, ALLOCATE, CAPTURING, SERVE = range(6)

PROGRESS: tuple[tuple[str, int], ...] = (
    ("LLM engine (v", START),
    ("in world size", START),
    ("is using nccl", START),
    ("distributed_init_method=", START),
    ("Starting to load model", LOAD),
    ("Loading safetensors checkpoint shards", LOAD),
    ("Loading pt checkpoint shards", LOAD),
    ("Loading weights took", LOAD),  # the weights are converted next
    ("Loading model weights took", PROFILE),
    ("odel loading took", PROFILE),
    ("Encoder cache will be initialized", PROFILE),
    ("Dynamo bytecode transform time", PROFILE),
    ("orch.compile takes", PROFILE),
    ("Cache the graph for", PROFILE),
    ("ompiling a graph for", PROFILE),
    ("Available KV cache memory", ALLOCATE),
    ("GPU blocks:", ALLOCATE),
    ("CUDA blocks:", ALLOCATE),
    ("cuda blocks:", ALLOCATE),
    ("KV cache size:", ALLOCATE),
    ("Autotuning process starts", CAPTURING),
    ("Capturing", CAPTURING),
    ("Graph capturing finished", SERVE),
    ("init engine (profile", SERVE),
)
"""Messages at the beginning of a phase."""

HINTS = (
    "capture_model", "capture_graph", "_capture_cudagraphs", "warm_up_model", "compile_or_warm_up",
    "_dummy_sampler_run", "kernel_warmup", "_warmup.py", "cuda/graphs.py", "capture_begin", "capture_end",
    "profile_run", "determine_available_memory", "determine_num_available_blocks",
    "profile_num_available_blocks", "initialize_kv_cache", "_allocate_kv_cache", "initialize_from_config",
    "init_cache_engine", "initialize_cache", "cache_engine.py", "profile_cudagraph_memory",
    "init_device", "load_model", "load_weights", "process_weights_after_loading", "create_weights", "model_loader",
    "initialize_model", "get_model(", "torch/utils/_device.py",
    "run_busy_loop", "execute_model", "run_engine_loop", "engine_step", "step_async", "step_fn", "step_with_batch_queue",
    "structured_output/", "compile_grammar", "core/sched/", "kv_connector", "deep_gemm", "fp8_gemm_nt",
    "topk_topp_sampler", "flashinfer/sampling", "flashinfer/fused_moe", "backends/flashinfer", "wake_up",
    "acquire_read", "sample_tokens", "_process_engine_step", "start_worker_execution_loop", "Error in model execution", "Exception in ASGI", "completion stream",
    "llm.generate(", "llm.chat(", "llm.embed(", "llm.encode(", "llm.score(", "llm.classify(",
)  # fmt: skip
"""Names in a traceback that identify a phase or a component."""

_OF_HINTS = (
    (memory.CAPTURE, re.compile(r"capture_model|capture_graph|_capture_cudagraphs|warm_up_model|compile_or_warm_up|kernel_warmup|_warmup\.py|when warming up|cuda/graphs\.py|capture_begin|capture_end")),
    (memory.PROFILING, re.compile(r"blocks of KV cache|profile_run|determine_available_memory|determine_num_available_blocks|profile_num_available|initialize_kv_cache|_allocate_kv_cache|initialize_from_config|init_cache_engine|initialize_cache|cache_engine\.py|profile_cudagraph_memory")),
    (memory.CAPTURE, re.compile(r"_dummy_sampler_run")),  # the measurement runs it, too
    (memory.LOADING, re.compile(r"Failed to load model - not enough GPU memory|load_model|load_weights|process_weights_after_loading|create_weights|_repack\b|model_loader|initialize_model|get_model\(|torch/utils/_device\.py")),
    (memory.RUNTIME, re.compile(r"run_busy_loop|execute_model|run_engine_loop|engine_step|step_async|step_fn|step_with_batch_queue|sample_tokens|start_worker_execution_loop|Error in model execution|Error in request\b|serving_\w{1,60}\.py|Engine loop is not running|llm\.[a-z]{4,8}\(")),
    (memory.OCCUPIED, re.compile(r"init_device")),
)  # fmt: skip

_OF_PHASE = {
    LOAD: memory.LOADING,
    PROFILE: memory.PROFILING,
    ALLOCATE: memory.PROFILING,
    CAPTURING: memory.CAPTURE,
    SERVE: memory.RUNTIME,
}

_STEP = re.compile(r"/(?:models|layers)/\S{1,200} forward\b")  # a model's step; loading has none

NUMBERS = {failure: phase for phase, failure in reversed(_OF_PHASE.items())}

IN_WORDS = (
    "it had not begun to load the weights",
    "it was loading the weights",
    "it was measuring the memory that a step needs (profiling, compiling)",
    "it was setting the KV cache up",
    "it was tuning kernels or capturing CUDA graphs",
    "it had captured its graphs and was about to serve",
)

_UNSEEN = "GPU memory ran out; no line of this log shows in which phase"
GUESSED = {
    memory.LOADING: f"{_UNSEEN} (the allocator's numbers look like loading)",
    memory.PROFILING: f"{_UNSEEN} (so large a piece is asked for by profiling, or for the KV cache)",
    memory.RUNTIME: f"{_UNSEEN} (the allocator's numbers look like a step, in profiling or in service)",
}

_ALLOCATED = re.compile(rf"({DECIMAL} [MG]iB) (?:is allocated by PyTorch|already allocated)")
_RESERVED = re.compile(
    rf"({DECIMAL} [MG]iB) is reserved by PyTorch but unallocated|({DECIMAL} [MG]iB) reserved in total"
)
_GRAPHS = re.compile(r"with (?!0 bytes|0\.0+ )\S{1,20} \w{1,5} allocated in private pools")
_TRIED = re.compile(rf"[Tt]ried to allocate (?:({DECIMAL})|\w+) ([KMG])")
_OTHERS = re.compile(rf"Process \d+ has ({DECIMAL}) GiB memory in use")
_OWN = re.compile(rf"this process has ({DECIMAL}) GiB memory in use")
_CAPACITY = re.compile(rf"total capacity of ({DECIMAL}) GiB")

LOADING_SPARE_GIB = 64 / 1024
"""Maximum unused GiB that PyTorch reserves while weights load. While requests are computed, the unused part is larger."""

LARGE_GIB = 4.0
"""Minimum GiB of an allocation for the KV cache or the profiling run. Other allocations are smaller."""

OTHERS_RATIO = 0.3
"""Minimum share of a GPU that other processes hold before they are the cause. They must also hold more than the engine."""


def of_out_of_memory(found: Finding, *, served: bool) -> tuple[str, float, bool]:
    """Return the failure class, the confidence, and whether the log shows the phase."""
    failure, confidence, read = _of_place(found, served=served)
    by_driver = memory.BY_DRIVER.search(found.text) and not _TRIED.search(found.text)
    return failure, min(confidence, 0.5) if by_driver else confidence, read


def _of_place(found: Finding, *, served: bool) -> tuple[str, float, bool]:
    text, phase = found.text, found.phase
    if _held_by_others(text) and not served and "rror in request" not in text:
        return memory.OCCUPIED, 0.7, False
    if served:
        return memory.RUNTIME, 0.8, True
    own_frames = tuple(each for each in _OF_HINTS if each[0] != memory.RUNTIME)
    for source, table in (
        (text, _OF_HINTS),
        ("\n".join(found.frames), own_frames),  # V0's profiling has a step's frames
        ("\n".join(found.hints), _OF_HINTS),
        (found.before, _OF_HINTS),
    ):
        for failure, pattern in table:
            if pattern.search(source):
                # V0 captures in initialize_cache.
                later = failure == memory.PROFILING and phase == CAPTURING
                return memory.CAPTURE if later else failure, 0.8, True
    if phase == LOAD and _STEP.search("\n".join(found.frames)):
        phase = PROFILE
    if phase in _OF_PHASE:
        return _OF_PHASE[phase], 0.7, True
    if memory.SAMPLES.search("\n".join((found.before, *found.frames))):
        return memory.CAPTURE, 0.6, True
    return *_of_numbers(text), False


def names_capture(hints: str) -> bool:
    """Return True if a name belongs to the capture of CUDA graphs."""
    return _OF_HINTS[0][1].search(hints) is not None


def _held_by_others(text: str) -> bool:
    own, capacity = _OWN.search(text), _CAPACITY.search(text)
    if own is None or capacity is None:
        return False  # "Process N" may be this process, seen from outside its container
    held = sum(float(each) for each in _OTHERS.findall(text))
    return held > OTHERS_RATIO * float(capacity[1]) and held > float(own[1])


def _of_numbers(text: str) -> tuple[str, float]:
    tried, allocated, reserved = (each.search(text) for each in (_TRIED, _ALLOCATED, _RESERVED))
    large = tried and (tried[1] is None or (tried[2] == "G" and float(tried[1]) >= LARGE_GIB))
    if large and not _GRAPHS.search(text):  # graphs are captured after the cache is allocated
        return memory.PROFILING, 0.4
    if allocated and reserved:
        spare = gib(reserved[1]) if reserved[1] else gib(reserved[2]) - gib(allocated[1])
        if spare > LOADING_SPARE_GIB:
            return memory.RUNTIME, 0.5
        if not _GRAPHS.search(text):
            return memory.LOADING, 0.5
    return memory.OOM, 0.7
