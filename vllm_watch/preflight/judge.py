"""Run all checks, in the order in which vLLM would fail."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vllm_watch.preflight.check_flag_values import check_environment, check_flag_values
from vllm_watch.preflight.check_flags import (  # fmt: skip
    check_command,
    check_dtype,
    check_flag_names,
    check_flags,
    check_length,
    check_names,
    check_vllm_parser,
)
from vllm_watch.preflight.check_gpus import check_fits, check_gpus, check_heads, check_memory
from vllm_watch.preflight.check_host import (
    check_disk,
    check_driver,
    check_files,
    check_port,
    check_shared_memory,
    check_token,
)
from vllm_watch.preflight.facts import PROBLEM, Facts, Finding

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_command, check_flag_names, check_names, check_flag_values, check_flags, check_vllm_parser, check_environment, check_files, check_token, check_disk, check_length, check_heads,
    check_gpus, check_driver, check_dtype, check_memory, check_fits, check_shared_memory, check_port,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings. A problem stops the launch."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.status == PROBLEM)

    @property
    def go(self) -> bool:
        return not self.problems


def judge(facts: Facts) -> Verdict:
    """Run all checks."""
    return Verdict(tuple(finding for check in CHECKS for finding in check(facts)))


def as_json(facts: Facts, verdict: Verdict) -> dict[str, Any]:
    """Return the JSON object."""
    return {
        "go": verdict.go,
        "command": facts.command.shown(),
        "model": facts.command.model,
        "vllm_version": facts.software.vllm,
        "problems": len(verdict.problems),
        "findings": [
            {
                "check": each.check,
                "status": each.status,
                "cause": each.cause,
                "text": each.text,
                "fixes": [{"what": fix.what, "command": fix.command} for fix in each.fixes],
            }
            for each in verdict.findings
        ],
    }
