"""Find the part of the software that raised an error."""

import re

from vllm_watch.diagnosis.report import Fix

AREAS = tuple((re.compile(pattern), words) for pattern, words in (
    (r" <module>$", "the import of this module"),
    (r"nixl|mooncake|lmcache|kv_transfer|kv_connector|/kv_offload", "the transfer or offload of KV (a KV connector)"),
    (r"/vllm/(?:multimodal|transformers_utils/processors)|mm_processor|preprocess", "the processing of images, video or sound"),
    (r"structured_output|xgrammar|llguidance|outlines", "structured output"),
    (r"spec_decode|eagle|medusa|draft_model|/mtp", "speculative decoding"),
    (r"/lora/|punica", "LoRA"),
    (r"/eplb", "the balancing of experts (EPLB)"),
    (r"tool_parser|reasoning_parser|/reasoning/", "the parser of tool calls or reasoning"),
    (r"layers/quantization|compressed_tensors", "the quantization"),
    (r"fused_moe|deep_ep|all2all", "the mixture of experts"),
    (r"/sample/|flashinfer/sampling", "the choice of the next token (sampling)"),
    (r"/attention/|flash_attn|backends/flashinfer|flashinfer/(?:attention|decode|prefill|mla|cascade)", "attention"),
    (r"/vllm/compilation|torch/_(?:inductor|dynamo)", "torch.compile"),
    (r"model_loader|weight_utils", "the loading of weights"),
    (r"model_executor/models", "this model's implementation"),
    (r"transformers_utils|/transformers/|/vllm/config", "the reading of the model's config or of settings"),
    (r"/core/sched|kv_cache_manager|kv_cache_utils|block_pool", "the scheduler or the KV cache"),
    (r"/vllm/distributed|torch/distributed|parallel_state", "the communication between workers"),
    (r"/vllm/platforms", "the choice of the platform"),
    (r"/entrypoints/|serving_\w{1,60}\.py|api_server", "the API server"),
    (r"model_runner|gpu_worker|/v1/worker", "a step of the model, or its preparation"),
))  # fmt: skip
_ROOT = re.compile(
    r"^(?:.*(?:site|dist)-packages/|.*?/(\w{1,60})/(?=(?i:\1)/)|.*/(?=vllm/)|\.{3}/)"
)
"""A folder of packages, a checkout or an abbreviated path; a package follows."""
_STANDARD = re.compile(r"/python3[\d.]{0,4}/(?!(?:site|dist)-packages/)|^<")
_LOGGER = re.compile(r"\[([\w/]{1,80}\.py):\d+\]")
_INSTALLED = {"flashinfer": "flashinfer-python", "PIL": "Pillow"}  # names of packages by folder
OF_INTERFACE = re.compile(r"\b(?:Import|ModuleNotFound|Attribute|Type)Error\b")
_BELOW = frozenset(("python", "torch", "vllm", "asyncio", "uvloop", "pydantic", "numpy"))


def raised_in(frames: tuple[str, ...], line: str, source: str) -> tuple[str, tuple[Fix, ...]]:
    """Return a sentence about the code that raised an error, and fixes."""
    logger = _LOGGER.search(line)
    found = next((each for each in map(_split, frames) if each[0] not in _BELOW - {"vllm"}), None)
    places = (*frames[:1], *([found[1]] if found else ()), *(each for each in frames if "/vllm/" in each), *([logger[1]] if logger else ()))  # fmt: skip
    area = next((words for place in places for pattern, words in AREAS if pattern.search(place)), None)  # fmt: skip
    said, fixes = [], []
    if found is not None:
        package, path, function = found
        said.append(f"{function} ({path}, at `{source}`)" if source else f"{function} ({path})")
        package = _INSTALLED.get(package, package)
        innermost = package not in _BELOW | {""} and found == _split(frames[0])
        if innermost and OF_INTERFACE.search(line):
            fixes.append(Fix(f"check whether {package} is of a version that goes with this vLLM, and search its issues for this message", f"python -m pip show {package} vllm"))  # fmt: skip
        elif innermost:
            fixes.append(Fix(f"search the issues of {package} and of vLLM for this message, with the releases"))  # fmt: skip
    if area is not None:
        said.append(area)
    if not fixes and (found is not None or area is not None):
        fixes.append(Fix("search vLLM's issues for this message, with the release"))
    return f"It comes from {': '.join(said)}." if said else "", tuple(fixes)


def _split(frame: str) -> tuple[str, str, str]:
    """Return package ("" if unknown), short path and function."""
    path, _, function = frame.replace("\\", "/").rpartition(" ")
    root = _ROOT.match(path)
    if root is None:
        return "python" if _STANDARD.search(path) else "", path, function
    return path[root.end() :].split("/")[0], path[root.end() :], function
