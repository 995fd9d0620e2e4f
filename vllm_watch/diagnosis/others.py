"""Other inference servers, by lines that only they write.

Sources: ollama/ollama, ggml-org/llama.cpp, sgl-project/sglang, huggingface/text-generation-inference, NVIDIA/TensorRT-LLM,
InternLM/lmdeploy.
"""

import re

_OTHERS = {
    "Ollama": r"\bollama(?:\[\d+\]|\S{0,20} +\|)|ollama_llama_server|[/\\]\.?ollama[/\\]|\bsource=\w+\.go:\d",
    "llama.cpp": r"\bggml_(?:cuda|backend|metal|vulkan|abort|gallocr|sycl)\w*\b|\bllama_(?:model|context|init|load|kv|params|decode)\w*:|\bllm_load_\w+:|^srv +\w+:|\bllama-server\b",
    "SGLang": r"[/\\]sglang[/\\]|\bsglang(?:\.\w|::)|sgl-workspace|^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:ATTN_)?[A-Z]{2}\d+)+\]",
    "Text Generation Inference": r"\btext[_-]generation[_-](?:launcher|router|server)\b",
    "TensorRT-LLM": r"\[(?:TensorRT|TRT)-LLM\]|\btensorrt_llm[/.:]|\btrtllm-serve\b",
    "vLLM's router (production stack)": r"\(\w+\.py:\d+:vllm_router\b",
    "LMDeploy": r"[/\\]lmdeploy[/\\]|\blmdeploy(?: serve|\.\w| - )|\[TM\]\[(?:ERROR|FATAL|INFO|WARNING)\]",
}
_ANY = re.compile("|".join(f"({each})" for each in _OTHERS.values()))


def named(text: str) -> str | None:
    """Return the server that wrote this line, if it is another than vLLM."""
    found = _ANY.search(text)
    return None if found is None else tuple(_OTHERS)[(found.lastindex or 1) - 1]
