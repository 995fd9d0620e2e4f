"""Engine flags, as given and as vLLM resolves them."""

import math
from dataclasses import dataclass

from vllm_watch.capacity import release as releases
from vllm_watch.capacity.gpus import Gpu
from vllm_watch.capacity.kv_types import check_config_dtype, dtype_bytes
from vllm_watch.capacity.model import FeedForward, LayerKind, Model
from vllm_watch.capacity.release import Release
from vllm_watch.capacity.units import GIB
from vllm_watch.errors import WatchError

ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
LENGTH_UNSAID = 2048  # tokens, if the config gives no length
_LONG_CONTEXT = 32768  # tokens; V0 chunks prefills of longer contexts
_LARGE_GPU_BYTES, _HUGE_GPU_BYTES = 70 * GIB, 160 * GIB  # as in vLLM's get_batch_defaults
_MULTIMODAL_BATCH = 5120  # V0's floor for models with an encoder
_BEFORE_AMPERE = ("T4", "V100", "V100 32GB", "P100")
_FP8_KV_GPUS = ("H100", "H200", "H20", "GH200")  # Hopper: FlashAttention 3 has an fp8 cache
_UTILIZATION_OLD, _UTILIZATION_NEW = 0.9, 0.92
_REFINED_LEAST = 32  # side of fp8 blocks; source: vLLM's fp8_utils.py and fused_moe/oracle/fp8.py


@dataclass(frozen=True, slots=True)
class Drafter:
    """Speculative decoding. `layers` is the number of drafter layers with a KV cache."""

    method: str
    tokens: int
    layers: int
    model: Model | None = None
    """None if the drafter's layers are shaped like full-attention layers of the target."""


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags as given. vLLM chooses the value of a flag that is None."""

    release: Release = releases.NEWEST
    use_v0: bool | None = None
    max_model_len: int | None = None
    allow_long: bool = False
    gpu_memory_utilization: float | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    dtype: str = "auto"
    quantization: str | None = None
    enforce_eager: bool = False
    language_model_only: bool = False
    enable_prefix_caching: bool = True
    async_scheduling: bool | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    cpu_offload_bytes: int = 0
    drafter: Drafter | None = None

    @property
    def ranks(self) -> int:
        """GPUs that share one copy of the model."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags as they take effect."""

    flags: Flags
    engine: str
    """"V0" or "V1"."""
    max_model_len: int
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    dtype: str
    kv_cache_dtype: str
    cpu: bool

    @property
    def tensor_parallel_size(self) -> int:
        return self.flags.tensor_parallel_size

    @property
    def release(self) -> Release:
        return self.flags.release


def settle(
    flags: Flags, model: Model, gpu: Gpu | None, memory_bytes: int, gpu_name: str | None
) -> Settings:
    """Return the flags as this release resolves them. Raises WatchError."""
    release = flags.release
    if release < releases.OLDEST:
        cause = (
            f"vLLM {release} is older than {releases.OLDEST}, the first release that is planned for"
        )
        remedy = "plan for 0.6.0 or later; for this one, start it once: its log has '# GPU blocks'"
        raise WatchError(cause, remedy)
    if flags.dtype == "auto":
        check_config_dtype(model.dtype)
    length = flags.max_model_len or model.max_position_embeddings or LENGTH_UNSAID
    v0 = flags.use_v0 if flags.use_v0 is not None else _defaults_to_v0(flags, model, gpu)
    cpu = (gpu_name or "").lower() == "cpu"
    tokens, seqs = (
        _batch_v0(flags, model, length) if v0 else _batch_v1(flags, gpu, memory_bytes, cpu=cpu)
    )
    if flags.max_num_batched_tokens is None and not v0:
        tokens = min(tokens, (flags.max_num_seqs or seqs) * length)
    tokens = flags.max_num_batched_tokens or tokens
    utilization = flags.gpu_memory_utilization
    if utilization is None:
        utilization = default_utilization(release)
    cached = flags.kv_cache_dtype
    if cached == "auto" and release >= releases.CHECKPOINT_CACHE_DTYPE:
        cached = model.kv_cache_dtype or "auto"
    return Settings(
        flags=flags,
        engine="V0" if v0 else "V1",
        max_model_len=length,
        gpu_memory_utilization=utilization,
        max_num_seqs=min(flags.max_num_seqs or seqs, tokens),
        max_num_batched_tokens=tokens,
        block_size=_block_size(flags, model, cpu=cpu),
        dtype=model.dtype if flags.dtype == "auto" else flags.dtype,
        kv_cache_dtype=cached,
        cpu=cpu,
    )


def default_utilization(release: Release) -> float:
    """Return the --gpu-memory-utilization of a start that does not give it."""
    return _UTILIZATION_NEW if release >= releases.UTILIZATION_92 else _UTILIZATION_OLD


def obstacle(flags: Flags, model: Model, batched_tokens: int) -> str | None:
    """Return why vLLM refuses these flags on every GPU, or None."""
    heads, ranks = model.num_attention_heads, flags.tensor_parallel_size
    if heads % ranks:
        return f"--tensor-parallel-size {ranks} does not divide the model's {heads} attention heads"
    stages = flags.pipeline_parallel_size
    if stages > model.num_layers:
        return (
            f"--pipeline-parallel-size {stages} is more than the model's {model.num_layers} layers"
        )
    wide = flags.decode_context_parallel_size
    if ranks % wide:
        return (
            f"--decode-context-parallel-size {wide} does not divide --tensor-parallel-size {ranks}"
        )
    split = _block_obstacle(model, ranks, flags.release)
    if split is not None:
        return split
    seqs = flags.max_num_seqs
    if seqs is not None and seqs > batched_tokens:
        default = "" if flags.max_num_batched_tokens else ", the default here"
        return f"--max-num-seqs {seqs} is more than --max-num-batched-tokens {batched_tokens}{default}"  # fmt: skip
    length = flags.max_model_len or 0
    if length > accepted_length(flags, model, length):
        return f"--max-model-len {length} is more than the {model.length_limit:,} tokens that the model's config allows"  # fmt: skip
    return None


def _block_obstacle(model: Model, ranks: int, release: Release) -> str | None:
    block = model.weight_block
    if block is None or ranks == 1:
        return None
    experts = model.experts
    if experts is not None and not experts.intermediate_size % ranks:
        size = experts.intermediate_size // ranks
        refined = math.gcd(block, size, model.hidden_size) >= _REFINED_LEAST
        if size % block and not (refined and release >= releases.FP8_BLOCKS_REFINED):
            return _not_whole(ranks, "an expert", size, block)
    width = model.intermediate_size or 0
    if FeedForward.DENSE in model.feeds and not width % ranks and width // ranks % block:
        return _not_whole(ranks, "an MLP", width // ranks, block)
    return None


def _not_whole(ranks: int, part: str, size: int, block: int) -> str:
    return f"--tensor-parallel-size {ranks} gives each GPU {size} columns of {part}, not a multiple of the checkpoint's fp8 block of {block}"


def accepted_length(flags: Flags, model: Model, length: int) -> int:
    """Shorten a length to the model's limit."""
    return length if flags.allow_long else min(length, model.length_limit or length)


def _defaults_to_v0(flags: Flags, model: Model, gpu: Gpu | None) -> bool:
    """Decide as EngineArgs._is_v1_supported_oracle of vLLM 0.8.5 does."""
    if flags.release < releases.V1_BY_DEFAULT:
        return True
    if flags.release >= releases.V0_IS_GONE:
        return False
    if gpu is not None and gpu.name in _BEFORE_AMPERE:
        return True
    name = gpu.name if gpu is not None else ""
    dtype = model.dtype if flags.dtype == "auto" else flags.dtype
    unable = (
        flags.quantization == "gguf",
        flags.drafter is not None,
        flags.kv_cache_dtype != "auto" and not name.startswith(_FP8_KV_GPUS),
        dtype_bytes(dtype) > 2,  # noqa: PLR2004 - FlashAttention reads 16 bits
        any(kind in (LayerKind.STATE, LayerKind.STATE_AND_FULL) for kind in model.layer_kinds),
        flags.pipeline_parallel_size > 1,  # except with Ray
        name.startswith("MI"),
    )
    return any(unable) and flags.release < releases.HYBRID_POOL


def _batch_v0(flags: Flags, model: Model, length: int) -> tuple[int, int]:
    if length > _LONG_CONTEXT and not model.multimodal:
        return (2048 if flags.release >= releases.CHUNK_OF_2048 else 512), 256
    return max(length, 2048, _MULTIMODAL_BATCH if model.multimodal else 0), 256


def _batch_v1(flags: Flags, gpu: Gpu | None, memory_bytes: int, *, cpu: bool) -> tuple[int, int]:
    if cpu:
        return 2048 * flags.ranks, 128 * flags.ranks
    a100 = gpu is not None and gpu.name.startswith("A100")
    if flags.release < releases.BATCH_DEFAULTS_BY_GPU:
        return (8192 if memory_bytes >= _LARGE_GPU_BYTES else 2048), 1024
    if memory_bytes >= _HUGE_GPU_BYTES and flags.release >= releases.LARGE_BATCH_OF_160_GIB:
        return 16384, 1024
    small = a100 and flags.release >= releases.SMALL_BATCH_OF_A100
    if memory_bytes >= _LARGE_GPU_BYTES and not small:
        return 8192, 1024
    return 2048, 256


def _block_size(flags: Flags, model: Model, *, cpu: bool) -> int:
    if cpu and model.latent is not None:
        return 16  # the only size its kernel has
    if flags.block_size is not None:
        return flags.block_size
    if cpu:
        return 128
    latent_kernel = model.latent is not None and flags.release >= Release(0, 8, 5)
    hybrid = any(kind is LayerKind.STATE for kind in model.layer_kinds)
    return 64 if latent_kernel and not hybrid else 16
