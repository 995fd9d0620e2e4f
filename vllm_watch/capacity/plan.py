"""Plan the GPU memory for a model, its flags and a GPU."""

from dataclasses import dataclass, replace

from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import Flags, Settings, obstacle, settle
from vllm_watch.capacity.gpus import Gpu
from vllm_watch.capacity.model import Model
from vllm_watch.capacity.overheads import Activation, activation, graph_bytes, non_torch_bytes
from vllm_watch.capacity.pool import Pool, draft_caches, layer_caches, make_pool, stage_layers
from vllm_watch.capacity.units import GIB
from vllm_watch.capacity.weights import Weights, infer_intermediate, weights_on_gpu
from vllm_watch.errors import WatchError

_NO_LIMIT = 1 << 24  # tokens, if the config has no limit


@dataclass(frozen=True, slots=True)
class Machine:
    """Identical GPUs."""

    memory_bytes: int
    memory_source: str
    gpu: Gpu | None = None
    gpu_name: str | None = None
    count: int | None = None
    """Number of GPUs. None if there are as many GPUs as the flags need."""
    beyond_bytes: int = 0
    """Memory that a real start needed beyond the plan. It may be negative."""
    beyond_source: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Known sizes of the weights."""

    given_gib: float | None = None
    bytes_total: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The memory of the fullest GPU in bytes, and the resulting KV cache."""

    model: Model
    settings: Settings
    machine: Machine
    checkpoint: Checkpoint
    budget_bytes: int
    """Memory that --gpu-memory-utilization allows."""
    weights: Weights
    activation: Activation
    non_torch_bytes: int
    graph_bytes: int
    kv_bytes: int
    """Memory left for the KV cache; may be negative."""
    pool: Pool
    num_blocks: int
    longest: int

    @property
    def flags(self) -> Flags:
        return self.settings.flags

    @property
    def gpus_needed(self) -> int:
        return self.flags.ranks * self.flags.data_parallel_size

    @property
    def has_memory(self) -> bool:
        if not self.pool.groups:
            return self.kv_bytes > 0
        if self.kv_bytes < 0 or self.lacks_state_blocks or self.over_bytes > 0:
            return False
        return self.num_blocks > 0 and self.pool.fits(self.num_blocks, self.settings.max_model_len)

    @property
    def lacks_state_blocks(self) -> bool:
        """True if there are fewer blocks than sequences. vLLM then captures no graphs."""
        settings = self.settings
        return (
            settings.release >= releases.STATE_BLOCK_PER_SEQUENCE
            and not settings.flags.enforce_eager
            and not settings.cpu
            and any(not group.block_tokens for group in self.pool.groups)
            and settings.max_num_seqs > self.num_blocks
        )

    @property
    def over_bytes(self) -> int:
        taken = self.weights.bytes_per_gpu + self.activation.peak_bytes + self.non_torch_bytes
        cache = self.num_blocks * self.pool.bytes_per_block + self.machine.beyond_bytes
        return taken + cache - self.machine.memory_bytes

    @property
    def lacks_gpus(self) -> bool:
        return self.machine.count is not None and self.gpus_needed > self.machine.count

    @property
    def fits(self) -> bool:
        return self.obstacle is None and self.has_memory and not self.lacks_gpus

    @property
    def obstacle(self) -> str | None:
        return obstacle(self.flags, self.model, self.settings.max_num_batched_tokens)

    @property
    def refusal(self) -> str | None:
        """Return why vLLM would not start."""
        short = self.kv_bytes <= 0 or self.over_bytes > 0
        if self.obstacle is not None or short or not self.lacks_state_blocks:
            return self.obstacle
        return (
            f"{self.settings.max_num_seqs} sequences (--max-num-seqs) each need a block for their "
            f"recurrent state, and {self.num_blocks} blocks fit"
        )

    @property
    def tokens(self) -> int:
        """KV cache size as vLLM logs it."""
        return self.pool.logged_tokens(self.num_blocks, self.settings.max_model_len)

    @property
    def concurrency(self) -> float:
        return self.pool.concurrency(self.num_blocks, self.settings.max_model_len)

    @property
    def bytes_per_token(self) -> float:
        """KV cache bytes per GPU, divided by the tokens that vLLM logs."""
        many = 1 << 20
        tokens = self.pool.logged_tokens(many, self.settings.max_model_len)
        return self.pool.bytes_per_block * many / tokens if tokens else 0.0


def make_plan(model: Model, flags: Flags, machine: Machine, checkpoint: Checkpoint) -> Plan:
    """Return the plan. Raises WatchError if the kind of KV cache is unknown."""
    if flags.language_model_only:
        model = replace(model, encoder=None, tower_parameters=0, multimodal=False)
    settings = settle(flags, model, machine.gpu, machine.memory_bytes, machine.gpu_name)
    weights = weights_on_gpu(
        model, settings, given_gib=checkpoint.given_gib, checkpoint_bytes=checkpoint.bytes_total
    )
    width = infer_intermediate(model, settings, weights.bytes_per_gpu)
    peak = activation(model, settings, intermediate=width, offloaded=weights.offloaded)
    budget = int(machine.memory_bytes * settings.gpu_memory_utilization)
    non_torch, graphs = non_torch_bytes(settings), graph_bytes(settings)
    left = (
        budget - weights.bytes_per_gpu - peak.peak_bytes - non_torch - graphs - machine.beyond_bytes
    )
    if flags.kv_cache_memory_bytes is not None:
        left = flags.kv_cache_memory_bytes
    if model.unread_cache is not None:
        raise _unsized(model, weights.bytes_per_gpu, left, budget)
    pool = _fullest_pool(model, settings)
    blocks = max(0, left) // pool.bytes_per_block if pool.bytes_per_block else 0
    if flags.num_gpu_blocks_override is not None:
        blocks = flags.num_gpu_blocks_override
    limit = model.length_limit or _NO_LIMIT
    if flags.allow_long:
        limit = max(limit, settings.max_model_len)
    return Plan(
        model, settings, machine, checkpoint, budget, weights, peak, non_torch, graphs, left, pool,
        blocks, longest=pool.longest(blocks, limit),
    )  # fmt: skip


def _unsized(model: Model, weights: int, left: int, budget: int) -> WatchError:
    beside = f"leave {left / GIB:.2f} of" if left > 0 else "do not fit beside its other memory into"
    return WatchError(
        f"{model.model_type or 'this model'} keeps its tokens compressed ({model.unread_cache}), and its effect in vLLM is not "
        f"known here: how many tokens fit is unknown. Weights of {weights / GIB:.2f} GiB per GPU {beside} the {budget / GIB:.2f} GiB that vLLM may take",
        "start it once: vLLM prints 'GPU KV cache size' and 'Maximum concurrency'",
    )


def with_flags(plan: Plan, flags: Flags, checkpoint: Checkpoint | None = None) -> Plan:
    """Plan the same model and machine with other flags."""
    return make_plan(plan.model, flags, plan.machine, checkpoint or plan.checkpoint)


def _fullest_pool(model: Model, settings: Settings) -> Pool:
    """All stages get as many blocks as fit into the stage with the largest blocks."""
    parts = stage_layers(model, min(settings.flags.pipeline_parallel_size, model.num_layers))
    pools = []
    for index, kinds in enumerate(parts):
        caches = layer_caches(model, settings, kinds)
        if index == len(parts) - 1:
            caches += draft_caches(model, settings)
        pools.append(make_pool(caches, settings))
    return max(pools, key=lambda pool: pool.bytes_per_block)
