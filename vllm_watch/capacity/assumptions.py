"""Everything a plan takes for granted, in words: so that who reads it can object."""

from vllm_watch.capacity import calibration
from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import LENGTH_UNSAID
from vllm_watch.capacity.plan import Plan


def assumptions(plan: Plan) -> tuple[str, ...]:
    """One sentence each, those that matter most first."""
    settings, flags = plan.settings, plan.settings.flags
    said = [
        f"vLLM {settings.release}, engine {settings.engine}",
        f"memory per GPU: {plan.machine.memory_source}, none of it used by others",
        f"weights: {plan.weights.source}",
        f"profiled batch: {settings.max_num_batched_tokens} tokens, {settings.max_num_seqs} sequences",
        *_figures(plan),
        *plan.model.notes,
    ]
    if flags.max_model_len is None and plan.model.max_position_embeddings is None:
        said.append(f"max_model_len {LENGTH_UNSAID}: the config names no limit")
    if plan.model.intermediate_size is None and plan.model.experts is None:
        said.append(
            "the config gives no intermediate_size: the MLP's width follows from the weights"
        )
    if plan.model.multimodal:
        said.append(
            "the encoder's own peak while profiling images is not counted (often 0.2 to 1 GiB)"
        )
    if plan.model.draft_layers and flags.drafter is None:
        said.append("no speculative decoding, though the checkpoint has draft layers")
    if flags.drafter is not None and flags.drafter.model is None:
        said.append(
            f"{flags.drafter.method}: {flags.drafter.layers} draft layers shaped as the model's own"
        )
    if flags.release > releases.NEWEST:
        said.append(f"rules as of vLLM {releases.NEWEST}: newer ones were not checked")
    if (
        settings.engine == "V1"
        and settings.release < releases.GRAPHS_IN_BUDGET
        and not flags.enforce_eager
    ):
        said.append("CUDA graphs (0.1 to 1 GiB) come on top of the budget in this release")
    return tuple(said)


def _figures(plan: Plan) -> list[str]:
    if plan.settings.flags.kv_cache_memory_bytes is not None:
        return ["the KV cache is as given: --gpu-memory-utilization has no say"]
    copies = calibration.SAMPLER_COPIES
    said = [f"sampler: {copies.value} ({copies.low} to {copies.high}) {copies.unit}"]
    figure = (
        calibration.NON_TORCH_PARALLEL_GIB
        if plan.gpus_needed > 1
        else calibration.NON_TORCH_ONE_GPU_GIB
    )
    if plan.non_torch_bytes:
        said.append(
            f"CUDA context and libraries: {figure.value} ({figure.low} to {figure.high}) GiB"
        )
    if plan.graph_bytes:
        graphs = calibration.GRAPHS_GIB
        said.append(f"CUDA graphs: {graphs.value} ({graphs.low} to {graphs.high}) GiB")
    return [*said, f"calibration of {calibration.VERSION}"]
