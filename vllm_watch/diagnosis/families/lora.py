"""Failures of LoRA adapters.

Sources: vllm/lora of vLLM 0.6 to 0.32.
"""

import re

from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import WHOLE, Facts, Failure, Rank, Told, Variant, cure, rule, when

_RANK = re.compile(rf"rank \(?({WHOLE})\)? is greater than max_lora_rank")
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that --max-lora-rank takes (vllm/config/lora.py)."""


def _rank(text: str, facts: Facts) -> Told:
    """Suggest a sufficient LoRA rank."""
    found = _RANK.search(text)
    if not found:
        return Told()
    wanted = int(found[1])
    enough = next((each for each in _RANKS if each >= wanted), None)
    if enough is None:
        return Told(f"Rank {wanted} is above vLLM's limit ({_RANKS[-1]}).")
    return Told(f"Its rank is {wanted}.", (Fix("allow its rank", f"--max-lora-rank {enough}"),))


LORA = "lora_mismatch"

RULES = (
    rule(LORA, "LoRA rank", "lora_rank", pattern=r"LoRA rank \S+ is greater than max_lora_rank|max_lora_rank \(\d+\) must be"),
    rule(LORA, "LoRA", "Lora", "lora", "LORA", "No suitable kernel. h_in", pattern=r"No suitable kernel\. h_in|does not support (?:LoRA|LORA|lora)|not supported for (?:LoRA|LORA)|LoRA (?:is|was) not (?:enabled|supported)|LoRA is not enabled|no support for LORA|is unsupported LoRA weight|[Uu]nsupported LoRA weight|No adapter found for|LoRA added vocab size|[Nn]o free (?:LoRA|lora) slots|greater than the number of GPU LoRA slots|Adapter bias cannot be used|LoRA adapter .{0,80}(?:not found|does not exist|contains)|The lora adapter .{0,80}(?:does not exist|not found)|When using LoRA, vocab|max_cpu_loras \(\d+\) must be|[Pp]unica LoRA kernels|Long LoRA scaling factor|supported LoRA modules found|LoRA path must be"),
    rule(LORA, "Loading lora", pattern=r"Loading lora \S+ failed(?!: No adapter)", rank=Rank.SYMPTOM),
    rule(LORA, "expected target modules in", "adapter_config.json", "vLLM only supports modules_to_save", "vLLM does not yet support DoRA", "Adapter rank", pattern=r"expected target modules in|(?:Error|error|not|No)\b.{0,200}adapter_config\.json|adapter_config\.json.{0,80}(?:not|missing)|vLLM only supports modules_to_save|vLLM does not yet support DoRA"),
)  # fmt: skip

FAILURES = (
    Failure(
        slug=LORA,
        sentence="the LoRA adapter does not fit the server's settings or the model",
        why="",
        cures=(cure("see the adapter's targets", "cat adapter_config.json"),),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"(?:LoRA rank|Adapter rank) \S+ is greater than|max_lora_rank"),
                sentence="the adapter's rank is larger than the server allows",
                deterministic=True,
            ),
            Variant(
                when=when(r"is not enabled|not enabled"),
                sentence="the server was started without LoRA",
                cures=(cure("allow adapters", "--enable-lora", when(r"not enabled")),),
            ),
            Variant(
                when=when(r"does not support (?:LoRA|LORA|lora)|not supported for (?:LoRA|LORA)|no support for LORA"),
                sentence="this vLLM does not serve LoRA adapters for this model",
                cures=(cure("merge the adapter into the model's weights before serving (peft: merge_and_unload)", None, when(r"support")),),
            ),
            Variant(
                when=when(r"is unsupported LoRA weight|vLLM only supports modules_to_save"),
                sentence="the adapter has weights other than LoRA matrices, which vLLM does not serve",
                why="Such are whole copies of a module (PEFT's modules_to_save, or lm_head and embeddings among target_modules); the message names the weight.",
                cures=(cure("see which modules it saves whole", "grep -A4 -E 'modules_to_save|target_modules' adapter_config.json"), cure("train it without modules_to_save, or merge it into the model's weights (peft: merge_and_unload)", None, when(r"LoRA weight|modules_to_save"))),
            ),
            Variant(
                when=when(r"expected target modules|[Uu]nsupported LoRA weight|modules_to_save|supported LoRA modules|DoRA|Adapter bias|nsupported LoRA"),
                sentence="the adapter changes modules that this vLLM cannot serve as LoRA",
                why="Its rank has nothing to do with it: the names in target_modules are not among those of this model's implementation.",
                cures=(cure("compare target_modules with the names in the message", "cat adapter_config.json"), cure("train it on supported modules, or merge it into the model's weights", None, when(r"module|weight|DoRA|bias"))),
            ),
            Variant(
                when=when(r"Loading lora (?!.{0,200}No adapter found).{1,200} failed"),
                sentence="an adapter could not be loaded; this line has no reason",
                why="The exception that it was raised from stands in the traceback that belongs to it.",
                cures=(cure("read that exception; if it names a file, see whether the adapter's files are there, seen from inside the container", "ls -l /path/to/adapter"),),
            ),
            Variant(
                when=when(r"No adapter found|does not exist|not found|path must be|adapter_config\.json"),
                sentence="the adapter is not in the place that vLLM reads",
                cures=(cure("see whether adapter_config.json and the weights are there, seen from inside the container", "ls -l /path/to/adapter"),),
            ),
            Variant(
                when=when(r"[Nn]o free (?:LoRA|lora) slots|number of GPU LoRA slots|max_cpu_loras"),
                sentence="more adapters are asked for at once than the server has slots",
                cures=(cure("allow more at once (each takes GPU memory)", "--max-loras N", when(r"slots|max_cpu_loras")),),
                deterministic=False,
            ),
        ),
        numbers=_rank,
    ),
)  # fmt: skip
