"""Check that vLLM is installed and knows its flags, that their values fit the model, and report vLLM's own parser."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_watch.capacity.read_config import LENGTH_KEYS, UNSCALED
from vllm_watch.capacity.units import is_size
from vllm_watch.preflight.check_flag_values import check_flag_values
from vllm_watch.preflight.facts import OK, PROBLEM, UNKNOWN, WARNING, Facts, Finding, Fix
from vllm_watch.preflight.sizing import taken
from vllm_watch.support.vllm_flags import (
    ARCHITECTURE,
    VALUE,
    VARIABLE,
    Answer,
    Standing,
    look_up,
    table,
)

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
        # Other values, such as unknown types, may be valid in newer releases.
        if any(each in cause for each in ("is not a number", "is not above", "does not divide", "invalid")):  # fmt: skip
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
        keys = (*LENGTH_KEYS, "model_max_length")
        sizes = [each[key] for key in keys if is_size(each.get(key))]
        if sizes:
            return None if _is_scaled(each) else min(sizes)
    return None


def _is_scaled(config: Mapping[str, Any]) -> bool:
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return False
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    plain = kind in UNSCALED and "original_max_position_embeddings" not in scaling
    return not plain and kind != "llama3"


def _flag(text: str) -> str:
    return text.partition(" ")[0].partition("/")[0].rstrip(":")


def check_flag_names(facts: Facts) -> Iterator[Finding]:
    """Find unknown flags. If the release is unknown, the flags of all releases pass."""
    version = facts.software.vllm
    short = {each.name for each in facts.command.given if each.word.startswith("-O")}
    for name in facts.command.flags:
        if name in short:  # before 0.12.0, -O set another flag
            continue
        found = look_up(name, version)
        if found.standing is not Standing.KNOWN:
            text, sure = _text(facts, f"--{name}", found, "--")
            status = PROBLEM if sure else WARNING if version else UNKNOWN
            yield Finding("flags", status, text, "unknown_flag" if status != UNKNOWN else None, tuple(_fixes(facts, name, found)))  # fmt: skip


_NAMED = {
    "quantization": "leave it out, if the checkpoint's config names its quantization",
    "tool-call-parser": "take the parser that the model's page names for this release",
    "reasoning-parser": "take the parser that the model's page names for this release",
    "load-format": "leave it out",
    "kv-cache-dtype": "leave it out",
    "attention-backend": "leave it out",
}
"""Flags with names as values, and the advice for an unknown name."""

_WRITTEN_FOR_VLLM = re.compile(r"\w+(?:ForCausalLM|ForConditionalGeneration|LMHeadModel)")
"""vLLM makes other architectures of these, such as classifiers and embedding models."""
_NOT_OF_VLLM = re.compile(r"VLLM_WATCH_|\w+_(?:SERVICE_(?:HOST|PORT)|PORT(?:_\w+)?)$")


def check_names(facts: Facts) -> Iterator[Finding]:
    """Find values of flags, an architecture and variables that this release does not have."""
    version, command = facts.software.vllm, facts.command
    for flag, advice in _NAMED.items():
        value = command.text(flag)
        if value is None or f"{flag.partition('-')[0]}-parser-plugin" in command.flags:
            continue
        written = value.upper() if flag == "attention-backend" else value
        found = look_up(f"{flag}={written}", version, VALUE)
        if found.standing not in (Standing.KNOWN, Standing.UNSURE):
            text, sure = _text(facts, f"--{flag} {value}", found)
            fix = Fix("write it as vLLM does", command.shown({}, **{flag.replace("-", "_"): found.nearest})) if found.nearest else Fix(advice, command.without(flag))  # fmt: skip
            yield Finding("flags", PROBLEM if sure else WARNING, text, "wrong_flag", (fix,))
    architectures = (facts.files.config or {}).get("architectures") if facts.files else None
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    if isinstance(name, str) and _WRITTEN_FOR_VLLM.fullmatch(name):
        found = look_up(name, version, ARCHITECTURE)
        if found.exact and found.standing is not Standing.KNOWN:
            text, _ = _text(facts, f"the architecture {name}", found)
            yield Finding("model", WARNING, f"{text}; it may run through Transformers, more slowly, or not at all", "unsupported_architecture")  # fmt: skip
    yield from _variables(facts)


def _variables(facts: Facts) -> Iterator[Finding]:
    for name in sorted(facts.command.environment):
        if not name.startswith("VLLM_") or _NOT_OF_VLLM.match(name):
            continue
        found = look_up(name, facts.software.vllm, VARIABLE)
        if not found.exact or found.standing in (Standing.KNOWN, Standing.UNSURE):
            continue
        if found.standing is not Standing.NEVER or found.nearest:  # others may be a plugin's
            text, _ = _text(facts, name, found)
            instead = f" ({found.instead})" if found.instead else ""
            fix = f"write {found.nearest}" if found.nearest else f"unset it{instead}"
            yield Finding("environment", WARNING, f"{text} (vLLM ignores it)", "wrong_variable", (Fix(fix),))  # fmt: skip


def _text(facts: Facts, name: str, found: Answer, mark: str = "") -> tuple[str, bool]:
    version = facts.software.vllm
    this = f"vLLM {version}" if version else "this vLLM (its release is not known)"
    if not found.exact and version:
        this += f" (the flags of {'.'.join(map(str, table()[1][-1]))} and before are known)"
    if found.standing is Standing.REMOVED:
        return f"{name} was removed in vLLM {found.removed_in} ({found.releases} had it): {this} does not know it", found.exact  # fmt: skip
    if found.standing is Standing.NOT_YET:
        return (
            f"{name} comes with vLLM {found.releases}: {this} does not know it yet",
            found.exact,
        )
    if found.standing is Standing.UNSURE:
        return f"{name} is a flag of vLLM {found.releases}: whether {this} has it is unknown", False  # fmt: skip
    guess = f"; {mark}{found.nearest} is meant?" if found.nearest else ""
    sure = not facts.software.plugins and (found.exact or (not version and bool(guess)))
    plugin = ", unless a plugin that is installed brings it" if facts.software.plugins else ""
    return f"no release of vLLM has {name}{plugin}{guess}", sure


def _fixes(facts: Facts, name: str, found: Answer) -> Iterator[Fix]:
    if found.nearest:
        yield Fix("write it as vLLM does", facts.command.renamed(name, found.nearest))
    elif found.standing is Standing.NOT_YET:
        yield Fix(f"leave it out, or install vLLM {found.releases}", facts.command.without(name))
    elif found.standing is not Standing.UNSURE:
        yield Fix(f"leave it out{f' ({found.instead})' if found.instead else ''}", facts.command.without(name))  # fmt: skip


_UNRECOGNIZED = "unrecognized arguments:"
# Errors of the grammar are the same on each host.
_GRAMMAR = re.compile(
    r"unrecognized arguments|invalid choice|invalid \S+ value|expected (?:one|at least one|\d+) argument"
    r"|ignored explicit argument|ambiguous option|cannot be converted|requires --|(?:tool call|reasoning) parser"
)
_HARDWARE = re.compile(
    r"\b(?:cuda|gpus?|rocm|hip|amd|nvidia|nvml|[xtnh]pu|devices?|platforms?|drivers?|capability|hopper|blackwell|sm_?\d+|torch)\b",
    re.IGNORECASE,
)
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w.-]*")
_VALUE_CHARACTERS_MIN = 4


def check_vllm_parser(facts: Facts) -> Iterator[Finding]:
    """Report a refusal, unless another check already explains it, or the cause may be this host."""
    asked = facts.asked
    if asked is None:
        return
    took = f"({asked.seconds:.1f} s)"
    if asked.failure is not None:
        yield Finding("flags", UNKNOWN, f"vLLM's own parser did not check the command {took}: {asked.failure}")  # fmt: skip
    elif asked.refusal is None:
        yield Finding("flags", OK, f"vLLM's own parser accepts the command {took}")
    elif _depends_on_host(facts, asked.refusal):
        yield Finding("flags", UNKNOWN, f"vLLM's own parser refuses the command {took}, perhaps only on this host: {asked.refusal}")  # fmt: skip
    elif not _explained(facts, asked.refusal):
        yield Finding("flags", PROBLEM, f"vLLM's own parser refuses the command {took}: {asked.refusal}", "wrong_flag", (Fix("correct the flag"),))  # fmt: skip


def _depends_on_host(facts: Facts, refusal: str) -> bool:
    asked = facts.asked
    if asked is not None and asked.no_accelerator and facts.software.plugins:
        return True  # a platform's plugin adds flags and choices only on its hardware
    return _GRAMMAR.search(refusal) is None and _HARDWARE.search(refusal) is not None


def _explained(facts: Facts, refusal: str) -> bool:
    own = [
        *check_flag_names(facts),
        *check_names(facts),
        *check_flag_values(facts),
        *check_flags(facts),
    ]
    texts = [each.text for each in own if each.status == PROBLEM]
    _, listed, words = refusal.partition(_UNRECOGNIZED)
    found = _OPTION.findall(words if listed else refusal)
    options = [each.partition(".")[0].replace("_", "-") for each in found]
    if listed:
        return all(any(part in text for text in texts) for part in options or words.split())
    if options:
        return any(f"{options[0]} " in f"{text} " for text in texts)
    values = [value for value in facts.command.flags.values() if len(value) >= _VALUE_CHARACTERS_MIN]  # fmt: skip
    return any(value in refusal and value in text for value in values for text in texts)
