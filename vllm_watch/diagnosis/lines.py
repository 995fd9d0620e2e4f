"""Clean a line, find its level, and recognise the program that wrote it.

Sources of other programs: ollama/ollama, ggml-org/llama.cpp, sgl-project/sglang, huggingface/text-generation-inference,
NVIDIA/TensorRT-LLM, InternLM/lmdeploy. FlashInfer has code of TensorRT-LLM, and vLLM reads models from Ollama's folders.
"""

import re

from vllm_watch.support import json_text

LINE_BYTES_MAX = 16 << 10
"""Bytes of a line to read. Prompts and dumps follow after the message."""

SHOWN_CHARACTERS_MAX = 8000
_SHOWN_BEFORE = 2000

_COLOUR = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LEVEL = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?= \d\d-\d\d \d\d:)|(?<![\w.'\"/-])(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|TRACE)(?=[\s:\]|,]|$)|\[([EWIF])(?:\d{3,4})? |^(W)(?=\d{4} [\d:.]{8,20} +(?:\d+ )?\S{1,80}\.(?:cpp|cc):)|\b\w*Warning(?=: )")  # fmt: skip
_DATE = re.compile(r" \d\d-\d\d \d\d:")
_QUIET = frozenset(("DEBUG", "INFO", "WARNING", "TRACE"))
_DOCKER = '{"log":"'


FRAME = re.compile(
    r'File "([^"]{1,300})",(?: line \d+,)? in(?: (?:(?:virtual )?(?:void|auto|int) (?=[\w:]+\())?(\S+)|$)'
)
"""A frame of a Python traceback: file and function."""

EXCEPTION = re.compile(r"\b[A-Z]\w{0,80}(?:Error|Exception)\b")
"""The name of an exception."""

IGNORES = re.compile(
    r"(?:[:;,.] ?|\band |\bis )ignor(?:ed|ing)(?: it)?[.)]?\s*$|\bIgnored error\b|\bignore (?:the |this )?error and (?:continue|go on)\b"
)
"""A program ignores the failure that this line reports."""


def clean(raw: bytes) -> str:
    """Return the text of a line."""
    text = raw[:LINE_BYTES_MAX].decode("utf-8", "replace")
    if text.startswith(_DOCKER):
        text = _unwrapped(text)
    if "\x1b" in text:
        text = uncoloured(text)
    return _CONTROL.sub("", text.rstrip("\r\n"))


def uncoloured(text: str) -> str:
    """Remove terminal escapes."""
    return _COLOUR.sub("", text)


def _unwrapped(text: str) -> str:
    try:
        said = json_text.read(text)
    except ValueError:
        return text
    log = said.get("log") if isinstance(said, dict) else None
    return log if isinstance(log, str) else text


def has_level(text: str) -> bool:
    """Return True if the line has a level. A line without one continues the line before it."""
    return _LEVEL.search(text) is not None


def is_quiet(text: str, at: int) -> bool:
    """Return True if the message at `at` has the level WARNING or below."""
    level, dated = None, False
    for found in _LEVEL.finditer(text, 0, at + 1):
        # vLLM writes a date after the level.
        if _DATE.match(text, found.end()) or not dated:
            level, dated = found, dated or _DATE.match(text, found.end()) is not None
    if level is None:
        return False
    if native := level[1] or level[2]:
        return native in "WI"
    return level[0] in _QUIET or level[0].endswith("Warning")


def shown(text: str, at: int) -> str:
    """Return a limited part of the text around `at`. Carriage returns end it."""
    begin = text.rfind("\r", 0, at) + 1
    end = text.find("\r", at)
    piece, at = text[begin : None if end < 0 else end], at - begin
    if len(piece) > SHOWN_CHARACTERS_MAX:
        begin = max(0, at - _SHOWN_BEFORE)
        piece = piece[begin : begin + SHOWN_CHARACTERS_MAX]
    return piece.strip()


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
_OTHER = re.compile("|".join(f"({each})" for each in _OTHERS.values()))
_PREFIX = re.compile(
    r"(?!(?:vllm|ray|rank|worker|engine|server|app|main|stderr|stdout|docker|kernel|error|warning|fatal|note|info|ld|nvcc|ninja|gcc|cc|sh|bash|pip|python)\d?:)([a-z][\w.-]{1,20}): \S|\S{8,12} \S{8,16} - (?!vllm|(?:root|main|app|server|worker|ray|uvicorn)\b)([a-z]\w{1,30})[\w.]{0,120} - (?:DEBUG|INFO|WARNING|ERROR)\b"
)
_STARTED = re.compile(r"""File "[^"]{0,300}[/\\](?!_|bin\b|scripts?\b|src\b|app\b|pip\b|uv\b|ray\b|torch\b|accelerate\b|\w{0,40}(?i:vllm|tpu))(\w{2,60})[/\\](?:cli|__main__|launch_server|server)\.py", line \d+, in <module>|(?:^|\s)(?!ray\b|\S{0,40}(?i:vllm))([a-z][\w-]{1,40}) serve(?: [^\s-]\S{0,300})? --(?:model|port|host)\b""")  # fmt: skip


def other_server(text: str) -> str | None:
    """Return the server that wrote this line, if it is not vLLM."""
    found = _OTHER.search(text)
    return None if found is None else tuple(_OTHERS)[(found.lastindex or 1) - 1]


def prefix(text: str) -> str | None:
    """Return the name with which a program begins each of its lines."""
    found = _PREFIX.match(text)
    return found and (found[1] or found[2])


def other_program(text: str) -> str | None:
    """Return the program other than vLLM that this command or outermost frame starts."""
    found = _STARTED.search(text)
    return found and (found[1] or found[2])
