"""Run all checks, in the order in which vLLM would fail."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from vllm_watch.preflight import check_flags, check_gpus, check_host
from vllm_watch.preflight.check_flag_values import check_environment, check_flag_values
from vllm_watch.preflight.facts import PROBLEM, Facts, Finding

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_flags.check_command, check_flags.check_flag_names, check_flags.check_names, check_flag_values,
    check_flags.check_flags, check_flags.check_vllm_parser, check_environment,
    check_host.check_files, check_host.check_token, check_host.check_disk,
    check_flags.check_length, check_gpus.check_heads, check_gpus.check_gpus, check_host.check_driver, check_flags.check_dtype,
    check_gpus.check_memory, check_gpus.check_fits, check_host.check_shared_memory, check_host.check_port,
)  # fmt: skip


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Run all checks."""
    return tuple(finding for check in CHECKS for finding in check(facts))


def problems(findings: tuple[Finding, ...]) -> int:
    """Return the number of problems. One stops the launch."""
    return sum(each.status == PROBLEM for each in findings)


def as_json(facts: Facts, findings: tuple[Finding, ...]) -> dict[str, Any]:
    """Return the JSON object."""
    return {
        "go": not problems(findings),
        "command": facts.command.shown(),
        "model": facts.command.model,
        "vllm_version": facts.software.vllm,
        "problems": problems(findings),
        "findings": [
            {
                "check": each.check,
                "status": each.status,
                "cause": each.cause,
                "text": each.text,
                "fixes": [asdict(fix) for fix in each.fixes],
            }
            for each in findings
        ],
    }
