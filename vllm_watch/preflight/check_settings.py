"""Check that vLLM is installed, and that its flags are valid."""

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_watch.capacity.bounds import is_size
from vllm_watch.preflight.check_flag_values import check_flag_values
from vllm_watch.preflight.facts import Facts
from vllm_watch.preflight.findings import OK, PROBLEM, UNKNOWN, WARNING, Finding, Fix
from vllm_watch.preflight.visible_gpus import taken

# Config keys from which vLLM takes a model's context limit.
_LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
# With these kinds of rope scaling, max_position_embeddings needs no factor.
_NOT_SCALING = ("default", "llama3", "mrope", "su", "longrope")
_BEFORE_AMPERE = ("t4", "v100", "p100", "p40", "p4", "gtx 10", "titan v", "rtx 20", "quadro rtx")


def check_command(facts: Facts) -> Iterator[Finding]:
    """Check the installed vLLM and its version."""
    software, command = facts.software, facts.command
    if software.missing is not None:
        where = "it is not an executable file" if "/" in software.missing else "not in PATH"
        yield Finding("command", PROBLEM, f"'{software.missing}' cannot be started: {where}", "command_missing", (Fix("install vLLM, correct the name, or run preflight where vLLM is installed", "pip install vllm"),))  # fmt: skip
    elif software.vllm is None:
        yield Finding("command", UNKNOWN, f"the version of vLLM is unknown: the packages of {software.executable} are not in the usual place; the rules of the newest release apply")  # fmt: skip
    else:
        yield Finding("command", OK, f"vLLM {software.vllm}, {software.executable}")
    if command.config_ignored is not None:
        yield Finding("command", WARNING, f"vLLM does not read --config={command.config_ignored}: it wants a space in place of the =", "config_ignored", (Fix("write it apart", f"--config {command.config_ignored}"),))  # fmt: skip


def check_flags(facts: Facts) -> Iterator[Finding]:
    """Find invalid values."""
    share = facts.command.text("gpu-memory-utilization")
    given = facts.command.number("gpu-memory-utilization")
    if share is not None and (given is None or not 0 < given <= 1):
        yield Finding("flags", PROBLEM, f"--gpu-memory-utilization {share} is not above 0 and up to 1", "wrong_flag", (Fix("give a share", facts.command.shown(gpu_memory_utilization="0.9")),))  # fmt: skip
    elif facts.flags_error is not None:
        cause, remedy = facts.flags_error
        if any(_flag(each.text) == _flag(cause) for each in check_flag_values(facts)):
            return
        if _is_number(cause):
            yield Finding("flags", PROBLEM, cause, "wrong_flag", (Fix(remedy),))
        else:
            yield Finding("flags", UNKNOWN, f"{cause}: whether it fits is unknown")


def check_length(facts: Facts) -> Iterator[Finding]:
    """Find a --max-model-len above the model's limit."""
    flags, config = facts.flags, facts.files.config if facts.files else None
    if flags is None or flags.max_model_len is None or config is None:
        return
    limit = _limit(config)
    if limit is None or "hf-overrides" in facts.command.flags or "rope-scaling" in facts.command.flags:  # fmt: skip
        return
    allowed = facts.command.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") in ("1", "true")
    if flags.max_model_len <= limit or allowed:
        return
    yield Finding(
        "length", PROBLEM, f"--max-model-len {flags.max_model_len} is more than the {limit:,} tokens that the model's config allows",
        "context_length_exceeded", (
            Fix("take the model's own limit", facts.command.shown(max_model_len=str(limit))),
            Fix("or override it, but the output may be garbage beyond that length", facts.command.shown({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"})),
        ),
    )  # fmt: skip


def check_dtype(facts: Facts) -> Iterator[Finding]:
    """Find an explicit bfloat16 on cards that do not support it."""
    if facts.command.text("dtype") != "bfloat16" or not facts.gpus:
        return
    for judged in taken(facts):
        name = judged.gpu.name or ""
        words = f" {name.lower().replace('-', ' ')} "
        if any(f" {old} " in words or (" " in old and old in words) for old in _BEFORE_AMPERE):
            yield Finding("dtype", PROBLEM, f"GPU {judged.gpu.index} ({name}) has no bfloat16 (compute capability below 8.0)", "dtype_unsupported", (Fix("take half", facts.command.shown(dtype="half")),))  # fmt: skip
            return


def _limit(config: Mapping[str, Any]) -> int | None:
    text = config.get("text_config")
    for each in (text, config):
        if not isinstance(each, Mapping):
            continue
        sizes = [each[key] for key in _LENGTH_KEYS if is_size(each.get(key))]
        if sizes:
            factor = _scale(each)
            return None if factor is None else int(min(sizes) * factor)
    return None


def _scale(config: Mapping[str, Any]) -> float | None:
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return 1.0
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind in _NOT_SCALING and "original_max_position_embeddings" not in scaling:
        return 1.0
    return 1.0 if kind == "llama3" else None


def _flag(text: str) -> str:
    return text.partition(" ")[0].partition("/")[0].rstrip(":")


def _is_number(cause: str) -> bool:
    # Other values, such as unknown types, may be valid in newer releases.
    return any(each in cause for each in ("is not a number", "is not above", "does not divide", "invalid"))  # fmt: skip
