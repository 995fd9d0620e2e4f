"""Report the answer of vLLM's own argument parser."""

import re
from collections.abc import Iterator

from vllm_watch.preflight.check_flag_names import check_flag_names
from vllm_watch.preflight.check_flag_values import check_flag_values
from vllm_watch.preflight.check_settings import check_flags
from vllm_watch.preflight.facts import Facts
from vllm_watch.preflight.findings import OK, PROBLEM, UNKNOWN, Finding, Fix

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
    own = [*check_flag_names(facts), *check_flag_values(facts), *check_flags(facts)]
    texts = [each.text for each in own if each.status == PROBLEM]
    _, listed, words = refusal.partition(_UNRECOGNIZED)
    options = [_long(each) for each in _OPTION.findall(words if listed else refusal)]
    if listed:
        return all(any(part in text for text in texts) for part in options or words.split())
    if options:
        return any(f"{options[0]} " in f"{text} " for text in texts)
    values = [value for value in facts.command.flags.values() if len(value) >= _VALUE_CHARACTERS_MIN]  # fmt: skip
    return any(value in refusal and value in text for value in values for text in texts)


def _long(option: str) -> str:
    return option.partition(".")[0].replace("_", "-")
