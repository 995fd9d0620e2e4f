"""Extract facts about the engine from a log, such as its version and settings."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from vllm_watch.diagnosis.rule import whole

Value = str | float | int


@dataclass(frozen=True, slots=True)
class Pattern:
    """One fact and its pattern."""

    name: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    value: Callable[[str], Value]


_GIVEN = r"^(?!.{0,600}(?:(?:[Ee]rror|Exception)[:,] |for example|e\.g\.|[Uu]se |[Tt]ry )).*?"
"""Messages that only advise a flag have such words before it."""


def _setting(name: str, key: str, value: Callable[[str], Value], shape: str) -> tuple[Pattern, ...]:
    flag = "--" + key.replace("_", "-")
    given = rf"{_GIVEN}{flag}"
    return (
        Pattern(name, (key,), re.compile(rf"(?<!/ )\b{key}['\"]?\s*[=:]\s*['\"]?({shape})"), value),
        Pattern(name, (flag,), re.compile(rf"{given}[= ]['\"]?({shape})"), value),
    )


_UNITS = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _count(text: str) -> int:
    """Read a number as vLLM's flags do: 1k is 1,000, and 1K is 1,024."""
    return int(float(text.rstrip("kmgtKMGT")) * _UNITS.get(text[-1], 1))


NUMBER_MAX = 1e15
"""Maximum value of a number. Larger values come from damaged lines."""

_NUMBER, _COUNT, _DECIMAL, _WORD = (
    r"\d+(?![\d.])",
    r"\d+(?:\.\d+)?[kmgtKMGT]\b|\d+(?![\w.])",
    r"0?\.\d+|1(?:\.0)?\b",
    r"(?!invalid choice)[A-Za-z](?:[\w.-]*\w)?",
)

FACTS: tuple[Pattern, ...] = (
    Pattern("vllm_version", ("version",), re.compile(r"vLLM API server version v?([\w.+-]+)"), str),
    Pattern("vllm_version", ("version",), re.compile(r"(?:[█▀▄]|utils\.py:\d{1,6}\])\s+version v?(\d[\w.+-]*)"), str),
    Pattern("vllm_version", ("LLM engine (v",), re.compile(r"LLM engine \(v([\w.+-]+)\)"), str),
    Pattern("vllm_version", ("vllm", "vLLM"), re.compile(r"\bvllm[-=]=?v?(\d+\.\d+\.\d+[\w.+]*?)(?=[-/\s,'\"]|\.(?:cpu|egg)|$)|vLLM [Vv]ersion:? v?(\d+\.\d+\.\d+[\w.+]*)|vllm/vllm-openai:v(\d+\.\d+\.\d+)"), str),
    Pattern("engine", ("V1 LLM engine", "V0 LLM engine"), re.compile(r"(V[01]) LLM engine"), str),
    Pattern("engine", ("EngineCore", "/v1/engine", "/v1/worker", "GPU KV cache size"), re.compile(r"EngineCore|/vllm/v1/|GPU KV cache size"), lambda _: "V1"),
    Pattern("engine", ("CPU blocks:", "Swapped:", "MQLLMEngine", "llm_engine.py:"), re.compile(r"# CPU blocks:|Swapped: \d+ reqs|MQLLMEngine|(?<!v1/engine/)\bllm_engine\.py:\d+"), lambda _: "V0"),
    Pattern("model", ("model",), re.compile(r"(?<![\w])model['\"]?\s*[=:]\s*'([^'\s]{1,300})'"), str),
    Pattern("model", ("--model", "vllm serve"), re.compile(_GIVEN + r"(?:--model[= ]|vllm serve )['\"]?(?!-)([\w./:@-]{2,300})"), str),
    Pattern("max_model_len", ("max model len", "max_seq_len", "max seq len"), re.compile(r"(?:Using max model len|max_seq_len=|max seq len\s*\(?) ?(\d+)"), int),
    Pattern("config_max_model_len", ("the derived max_model_len",), re.compile(r"greater than the derived max_model_len \(\w{1,40}=(\d{1,9})\b"), int),
    *_setting("max_model_len", "max_model_len", _count, _COUNT),
    Pattern("gpu_memory_utilization", ("gpu_memory_utilization (",), re.compile(r"gpu_memory_utilization \(([\d.]+)\)"), float),
    Pattern("gpu_memory_utilization", ("Desired GPU memory utilization is",), re.compile(r"Desired GPU memory utilization is \(([\d.]+),"), float),
    Pattern("weights_gib", ("GiB for weight",), re.compile(r"Actual usage is ([\d.]+) GiB for weight"), float),
    Pattern("unified_memory", ("GB10", "Jetson", "Orin", "Thor", "DGX Spark", "gfx1151", "Strix", "8060S", "compute_121", "sm_121", "/121a", "sm_110", "NvMap"), re.compile(r"\b(GB10|Jetson|Orin|NVIDIA Thor|DGX[ -]Spark|gfx1151|Strix Halo|Radeon 8060S|compute_121a?|sm_121a?|sm_110a?|/121a?|NvMapMem\w+)\b"), str),
    Pattern("coherent_memory", ("GB200", "GB300", "GH200"), re.compile(r"\b(?:NVIDIA[ _])?(GB[23]00|GH200)\b"), str),
    Pattern("gpu_memory_utilization", ("GPU memory utilization (",), re.compile(r"GPU memory utilization \(([\d.]+),"), float),
    *_setting("gpu_memory_utilization", "gpu_memory_utilization", float, _DECIMAL),
    *_setting("tensor_parallel_size", "tensor_parallel_size", int, _NUMBER),
    *_setting("pipeline_parallel_size", "pipeline_parallel_size", int, _NUMBER),
    *_setting("data_parallel_size", "data_parallel_size", int, _NUMBER),
    *_setting("max_num_seqs", "max_num_seqs", int, _NUMBER),
    *_setting("cpu_offload_gb", "cpu_offload_gb", float, r"[1-9]\d{0,4}(?:\.\d+)?"),
    *_setting("max_num_batched_tokens", "max_num_batched_tokens", _count, _COUNT),
    *_setting("kv_cache_dtype", "kv_cache_dtype", str, _WORD),
    *_setting("quantization", "quantization", str, r"(?!None|null)" + _WORD),
    Pattern("dtype", ("dtype=torch.", "--dtype", "'dtype':"), re.compile(r"\bdtype=torch\.(\w+), max_seq_len|" + _GIVEN + r"--dtype[= ]['\"]?([A-Za-z]\w*)|'dtype': '([A-Za-z]\w*)"), str),
    Pattern("port", ("port",), re.compile(r"^(?!.{0,800}ConnectionPool\().*?(?<!/ )\bport['\"]?\s*[=:]\s*['\"]?(\d{2,5}(?![\d.]))"), int),
    *_setting("port", "port", int, _NUMBER)[1:],
    Pattern("kv_cache_tokens", ("KV cache size:",), re.compile(r"KV cache size: ([\d,]+) tokens"), whole),
    Pattern("num_gpu_blocks", ("blocks:",), re.compile(r"# (?:GPU|CUDA|cuda) blocks: (\d+)"), int),
    Pattern("block_size", ("block_size",), re.compile(r"^(?:(?!extra_config).)*?\bblock_size['\"]?\s*[=:]\s*['\"]?(\d+(?![\d.]))"), int),
    *_setting("block_size", "block_size", int, _NUMBER)[1:],
    Pattern("block_size", ("Setting attention block size to",), re.compile(r"Setting attention block size to (\d+) tokens"), int),
    Pattern("max_concurrency", ("Maximum concurrency for",), re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"), float),
    Pattern("kv_cache_gib", ("KV cache memory:", "reserved for KV Cache is", "kv_cache_size="), re.compile(r"(?:Available KV cache memory: |reserved for KV Cache is |kv_cache_size=)(-?[\d.]+) ?Gi?B"), float),
    Pattern("weights_gib", ("weights took", "odel loading took", "model weights take"), re.compile(r"(?:odel (?:loading|weights) took|model weights take) ([\d.]+) ?Gi?B"), float),
    Pattern("weights_load_seconds", ("weights took", "odel loading took"), re.compile(r"(?:Loading weights took|[Mm]odel loading took [\d.]+ GiB(?: memory)? and) ([\d.]+) sec"), float),
    Pattern("gpu_memory_total_gib", ("total_gpu_memory (", "total_gpu_memory="), re.compile(r"total_gpu_memory ?[(=]([\d.]+) ?Gi?B"), float),
    Pattern("gpu_memory_total_gib", ("emory on device",), re.compile(r"memory on device\s{0,4}\S{0,40}\s{0,4}\([\d.]+/([\d.]+) GiB"), float),
    Pattern("gpu_memory_total_gib", ("total capacity",), re.compile(r"total capacity of ([\d.]{1,24}) GiB|([\d.]{1,24}) GiB total capacity"), float),
    Pattern("graph_estimate_gib", ("Estimated CUDA graph memory",), re.compile(r"Estimated CUDA graph memory: ([\d.]+) GiB"), float),
    Pattern("graph_capture_seconds", ("Graph capturing finished",), re.compile(r"Graph capturing finished in \W*(\d+) secs"), float),
    Pattern("graph_capture_gib", ("Graph capturing finished",), re.compile(r"Graph capturing finished.{0,800}took (-?[\d.]+) GiB"), float),
    Pattern("compile_seconds", ("torch.compile takes", "torch.compile took"), re.compile(r"torch\.compile (?:takes|took) \W*([\d.]+) s"), float),
    Pattern("engine_init_seconds", ("init engine (",), re.compile(r"init engine \(.{0,800}\) took \W*([\d.]+) s"), float),
    Pattern("attention_backend", ("backend",), re.compile(r"Using (?:AttentionBackendEnum\.)?(?![Tt]ransformers )(\w+) (?:attention )?backend|Using (Flash Attention|FlashInfer|Triton|XFormers|Torch SDPA|FlashMLA|Cutlass MLA) backend"), str),
    Pattern("attention_backend", ("VLLM_ATTENTION_BACKEND=", "attention_backend="), re.compile(r"(?:VLLM_ATTENTION_BACKEND|attention_backend)=['\"]?([A-Z]\w+)"), str),
    Pattern("gpu_memory_asleep_gib", ("Sleep mode freed",), re.compile(r"Sleep mode freed [\d.]+ GiB memory, ([\d.]+) GiB memory is still in use"), float),
    Pattern("missing_library", ("Failed to import ",), re.compile(r"Failed to import (?:from )?[\w.]{1,80}(?: with ImportError\(['\"]|: ?)(lib\w{1,60}\.so[.\d]{0,20}): cannot open"), str),
    Pattern("torch_memory_gib", ("torch_memory=",), re.compile(r"\btorch_memory=([1-9][\d.]{0,10}) ?GiB"), float),
    Pattern("rdma_devices", ("No RDMA devices found",), re.compile(r"\bNo RDMA devices found"), lambda _: 0),
    Pattern("ray_gpus_idle", (" GPU",), re.compile(r"^\s*0(?:\.0+)?/(\d{1,6}(?:\.\d+)?) GPU\s*$"), float),
    Pattern("ray_timeout_s", ("RAY_CGRAPH_get_timeout",), re.compile(r"RAY_CGRAPH_get_timeout is set to (\d{1,6})\b"), int),
    Pattern("device", ("cpu_worker", "cpu_model_runner", "platform cpu", "VLLM_CPU_KVCACHE_SPACE"), re.compile(r"\bcpu_worker\.py|cpu_model_runner\.py|detected platform (?=cpu\b)|\bVLLM_CPU_KVCACHE_SPACE\b(?!['\"]?[=:])"), lambda _: "cpu"),
    Pattern("architecture", ("architecture:",), re.compile(r"Resolved architectures?: (\w+)"), str),
)  # fmt: skip
"""Patterns of all facts. Only the first match of each fact is kept."""


@dataclass(slots=True)
class Facts:
    """The facts known about one start of the engine."""

    known: dict[str, Value] = field(default_factory=dict)

    def read(self, pattern: Pattern, text: str) -> None:
        if pattern.name in self.known:
            return
        found = pattern.pattern.search(text)
        if found is None:
            return
        said = next((each for each in found.groups() if each), "")
        if said or not found.re.groups:
            try:
                value = pattern.value(said)
            except ValueError:  # two decimal points in a damaged line
                return
            if not isinstance(value, (int, float)) or abs(value) < NUMBER_MAX:
                self.known[pattern.name] = value

    def complete(self) -> dict[str, Value]:
        known = dict(self.known)
        blocks = known.get("num_gpu_blocks")
        if "kv_cache_tokens" not in known and isinstance(blocks, int) and blocks:
            size = known.get("block_size", 16)
            known["kv_cache_tokens"] = blocks * size if isinstance(size, int) else blocks * 16
        total = known.get("gpu_memory_total_gib")
        if "unified_memory" not in known and isinstance(total, float) and 118 < total < 126:  # noqa: PLR2004
            # Only GB10 and Thor report 119 to 123 GiB, and Strix Halo 124.
            known["unified_memory"] = f"{total:g} GiB"
        return known
