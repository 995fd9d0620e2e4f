"""Check that all ranks have a GPU and the same number of attention heads."""

from collections.abc import Iterator

from vllm_watch.preflight.facts import OK, PROBLEM, UNKNOWN, WARNING, Facts, Finding, Fix
from vllm_watch.preflight.sizing import VARIABLE, Visible, order_unknown, ranks_here, visible

_RANKS = (1, 2, 4, 8, 16)


def check_gpus(facts: Facts) -> Iterator[Finding]:
    """Compare TP × PP × DP with the GPUs visible to vLLM."""
    if facts.software.device not in (None, "cuda"):
        yield Finding("gpus", UNKNOWN, f"this vLLM is built for {facts.software.device}: NVIDIA's GPUs are not checked")  # fmt: skip
        return
    if facts.gpus is None or not facts.gpus:
        yield _none(facts)
        return
    seen, needed = visible(facts), ranks_here(facts)
    lost = [each.gpu for each in seen.gpus[:needed] if each.gpu.lost]
    if seen.not_there is not None:
        yield _not_there(facts, seen)
    elif len(seen.gpus) < needed:
        yield _too_few(facts, seen, needed)
    elif lost:
        yield Finding(
            "gpus", PROBLEM, f"GPU {lost[0].index} ({lost[0].name or 'name unknown'}) fell off the bus: CUDA fails on it until it is reset",
            "gpu_lost", (Fix("reset it, or reboot the host", f"nvidia-smi --gpu-reset -i {lost[0].index}"),),
        )  # fmt: skip
    else:
        yield Finding("gpus", OK, f"{_product(facts)} wants {needed} {_gpus(needed)}, {len(seen.gpus)} visible")  # fmt: skip
    if order_unknown(facts) and len(seen.gpus) < len(facts.gpus):
        yield Finding(
            "gpus", WARNING, f"the cards differ, so CUDA counts the fastest first and {VARIABLE} may mean others than nvidia-smi shows",
            "gpu_order", (Fix("count as nvidia-smi does", "export CUDA_DEVICE_ORDER=PCI_BUS_ID"),),
        )  # fmt: skip


def check_heads(facts: Facts) -> Iterator[Finding]:
    """Check that the attention heads can be divided among the ranks."""
    model, ranks = facts.model, facts.command.whole("tensor-parallel-size", 1)
    if model is None or ranks <= 1:
        return
    heads = model.num_attention_heads
    if heads % ranks == 0:
        yield Finding("heads", OK, f"{heads} attention heads, {heads // ranks} to each of {ranks} ranks")  # fmt: skip
        return
    below = max(each for each in range(1, min(ranks, heads + 1)) if heads % each == 0)
    above = next((each for each in _RANKS if each > ranks and heads % each == 0), None)
    fixes = [Fix(f"{heads // below} heads to each", facts.command.shown(tensor_parallel_size=str(below)))]  # fmt: skip
    if above is not None:
        fixes.append(Fix(f"{heads // above} heads to each, on {above} GPUs", facts.command.shown(tensor_parallel_size=str(above))))  # fmt: skip
    yield Finding(
        "heads", PROBLEM, f"--tensor-parallel-size {ranks} does not divide the model's {heads} attention heads",
        "tp_not_dividing_heads", tuple(fixes),
    )  # fmt: skip


def _none(facts: Facts) -> Finding:
    text = facts.gpus_text or "the driver lists no GPU"
    if facts.gpus is None or facts.software.device is None:
        return Finding("gpus", UNKNOWN, f"the GPUs cannot be read: {text}")
    return Finding(
        "gpus", PROBLEM, f"vLLM {facts.software.vllm or ''} for CUDA wants {ranks_here(facts)} {_gpus(ranks_here(facts))}, none is here: {text}".replace("  ", " "),
        "no_gpu", (
            Fix("see whether the driver works", "nvidia-smi"),
            Fix("give the container its GPUs", "docker run --gpus all …, in Kubernetes resources.limits: nvidia.com/gpu"),
        ),
    )  # fmt: skip


def _not_there(facts: Facts, seen: Visible) -> Finding:
    every = len(seen.gpus) + seen.hidden
    named = facts.command.text("device-ids") or facts.command.environment.get(VARIABLE, "")
    variable = "--device-ids" if facts.command.text("device-ids") else VARIABLE
    return Finding(
        "gpus", PROBLEM, f"{variable}={named} names '{seen.not_there}', and this host has {every} {_gpus(every)}: CUDA ignores it and all after it",
        "gpu_not_there", (Fix("see their numbers and UUIDs", "nvidia-smi -L"),),
    )  # fmt: skip


def _too_few(facts: Facts, seen: Visible, needed: int) -> Finding:
    command, count = facts.command, len(seen.gpus)
    text = f"{_product(facts)} wants {needed} GPUs, {count} {'is' if count == 1 else 'are'} visible"
    if "ray" in (command.text("distributed-executor-backend"), command.text("data-parallel-backend")):  # fmt: skip
        return Finding("gpus", UNKNOWN, f"{text} here; Ray may have others, on other hosts")
    fixes = []
    if count + seen.hidden >= needed:
        text += f": {VARIABLE}={command.environment.get(VARIABLE)} hides {seen.hidden} more"
        numbers = ",".join(map(str, range(needed)))
        fixes.append(Fix("show vLLM enough of them", command.shown({VARIABLE: numbers})))  # fmt: skip
    smaller = _smaller(facts, count)
    if smaller is not None:
        fixes.append(Fix(f"share each layer among {smaller}", command.shown(tensor_parallel_size=str(smaller))))  # fmt: skip
    if not fixes:
        fixes.append(Fix("give the container more GPUs, or lower the parallel sizes", None))
    return Finding("gpus", PROBLEM, text, "tp_exceeds_gpus", tuple(fixes))


def _smaller(facts: Facts, count: int) -> int | None:
    ranks = facts.command.whole("tensor-parallel-size", 1)
    others = ranks_here(facts) // max(1, ranks)
    heads = facts.model.num_attention_heads if facts.model else None
    for each in reversed(_RANKS):
        if each < ranks and each * others <= count and (heads is None or heads % each == 0):
            return each
    return None


def _product(facts: Facts) -> str:
    parts = (("TP", "tensor-parallel-size"), ("PP", "pipeline-parallel-size"), ("DP", "data-parallel-size"))  # fmt: skip
    said = [(word, facts.command.whole(name, 1)) for word, name in parts]
    return " × ".join(f"{word} {size}" for word, size in said if size > 1 or word == "TP")


def _gpus(count: int) -> str:
    return "GPU" if count == 1 else "GPUs"
