"""Recognise other inference servers by lines that only they write.

Sources: ollama/ollama, ggml-org/llama.cpp, sgl-project/sglang, huggingface/text-generation-inference, NVIDIA/TensorRT-LLM,
InternLM/lmdeploy. FlashInfer has code of TensorRT-LLM, and vLLM reads models from Ollama's folders.
"""

import re

_OTHERS = {
    "Ollama": r"\bollama(?:\[\d+\]|\S{0,20} +\|)|ollama_llama_server|\bsource=\w+\.go:\d",
    "llama.cpp": r"\bggml_(?:cuda|backend|metal|vulkan|abort|gallocr|sycl)\w*\b|\bllama_(?:model|context|init|load|kv|params|decode|perf|new)\w*:|\bllm_load_\w+:|^srv +\w+:|\bllama-server\b",
    "SGLang": r"[/\\]sglang[/\\]|\bsglang(?:\.\w|::)|sgl-workspace|server_args=ServerArgs\(|#new-seq: \d|\bLoad weight (?:begin|end)\. |GET /get_model_info|^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:ATTN_)?[A-Z]{2}\d+)+\]",
    "Text Generation Inference": r"\btext[_-]generation[_-](?:launcher|router|server)\b",
    "TensorRT-LLM": r"\[TRT-LLM\]|-packages/tensorrt_llm/|\btrtllm-serve\b",
    "vLLM's router (production stack)": r"\(\w+\.py:\d+:vllm_router\b",
    "LM Studio": r"\[LM ?STUDIO",
    "LMDeploy": r"[/\\]lmdeploy[/\\]|\blmdeploy(?: serve|\.\w| - )|\[TM\]\[(?:ERROR|FATAL|INFO|WARNING)\]",
}
_ANY = re.compile("|".join(f"({each})" for each in _OTHERS.values()))


def named(text: str) -> str | None:
    """Return the server that wrote this line, if it is not vLLM."""
    found = _ANY.search(text)
    return None if found is None else tuple(_OTHERS)[(found.lastindex or 1) - 1]
