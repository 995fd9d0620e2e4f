"""Recognise other inference servers by lines that only they write.

Sources: ollama/ollama, ggml-org/llama.cpp, sgl-project/sglang, huggingface/text-generation-inference, NVIDIA/TensorRT-LLM,
InternLM/lmdeploy. FlashInfer has code of TensorRT-LLM, and vLLM reads models from Ollama's folders.
"""

import re

_OTHERS = {
    "Ollama": r"\bollama(?:\[\d+\]|\S{0,20} +\|)|ollama_llama_server|\bsource=\w+\.go:\d",
    "llama.cpp": r"\bggml_(?:cuda|backend|metal|vulkan|abort|gallocr|sycl)\w*\b|\bllama_(?:model|context|init|load|kv|params|decode|perf|new)\w*:|\bllm_load_\w+:|(?:^|\d [DIWE] )srv +\w+(?:\(\))?:|\bllama-server\b",
    "SGLang": r"[/\\]sglang[/\\]|\bsglang(?:\.\w|::)|sgl-workspace|server_args=ServerArgs\(|#new-seq: \d|\bLoad weight (?:begin|end)\. |GET /get_model_info|^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:ATTN_)?[A-Z]{2}\d+)+\]",
    "Text Generation Inference": r"\btext[_-]generation[_-](?:launcher|router|server)\b",
    "TensorRT-LLM": r"\[TRT-LLM\]|-packages/tensorrt_llm/|\btrtllm-serve\b",
    "vLLM's router (production stack)": r"\(\w+\.py:\d+:vllm_router\b",
    "LiteLLM": r"\bLiteLLM Proxy\b|[/\\]litellm[/\\]proxy[/\\]",
    "LM Studio": r"\[LM ?STUDIO",
    "LMDeploy": r"[/\\]lmdeploy[/\\]|\blmdeploy(?: serve|\.\w| - )|\[TM\]\[(?:ERROR|FATAL|INFO|WARNING)\]",
}
_ANY = re.compile("|".join(f"({each})" for each in _OTHERS.values()))
_PREFIX = re.compile(
    r"(?!(?:vllm|ray|rank|worker|engine|server|app|main|stderr|stdout|docker|kernel|error|warning|fatal|note|info|ld|nvcc|ninja|gcc|cc|sh|bash|pip|python)\d?:)([a-z][\w.-]{1,20}): \S|\S{8,12} \S{8,16} - (?!vllm|(?:root|main|app|server|worker|ray|uvicorn)\b)([a-z]\w{1,30})[\w.]{0,120} - (?:DEBUG|INFO|WARNING|ERROR)\b"
)
_PROGRAM = re.compile(r"""File "[^"]{0,300}[/\\](?!_|bin\b|scripts?\b|src\b|app\b|pip\b|uv\b|ray\b|torch\b|accelerate\b|\w{0,40}(?i:vllm|tpu))(\w{2,60})[/\\](?:cli|__main__|launch_server|server)\.py", line \d+, in <module>|(?:^|\s)(?!ray\b|\S{0,40}(?i:vllm))([a-z][\w-]{1,40}) serve(?: [^\s-]\S{0,300})? --(?:model|port|host)\b""")  # fmt: skip


def named(text: str) -> str | None:
    """Return the server that wrote this line, if it is not vLLM."""
    found = _ANY.search(text)
    return None if found is None else tuple(_OTHERS)[(found.lastindex or 1) - 1]


def prefix(text: str) -> str | None:
    """Return the name with which a program begins each of its lines."""
    found = _PREFIX.match(text)
    return found and (found[1] or found[2])


def program(text: str) -> str | None:
    """Return the program other than vLLM that this command or outermost frame starts."""
    found = _PROGRAM.search(text)
    return found and (found[1] or found[2])
