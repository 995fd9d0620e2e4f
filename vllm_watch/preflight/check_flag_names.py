"""Find flags that this vLLM release does not know."""

from collections.abc import Iterator

from vllm_watch.preflight.facts import Facts
from vllm_watch.preflight.findings import PROBLEM, UNKNOWN, WARNING, Finding, Fix
from vllm_watch.support.vllm_flags import Answer, Standing, look_up, table


def check_flag_names(facts: Facts) -> Iterator[Finding]:
    """Find unknown flags. If the release is unknown, the flags of all releases pass."""
    version = facts.software.vllm
    short = {each.name for each in facts.command.given if each.word.startswith("-O")}
    for name in facts.command.flags:
        if name in short:  # before 0.12.0, -O set another flag
            continue
        found = look_up(name, version)
        if found.standing is not Standing.KNOWN:
            text, sure = _text(facts, name, found)
            status = PROBLEM if sure else WARNING if version else UNKNOWN
            yield Finding("flags", status, text, "unknown_flag" if status != UNKNOWN else None, tuple(_fixes(facts, name, found)))  # fmt: skip


def _text(facts: Facts, name: str, found: Answer) -> tuple[str, bool]:
    version = facts.software.vllm
    this = f"vLLM {version}" if version else "this vLLM (its release is not known)"
    if not found.exact and version:
        this += f" (the flags of {'.'.join(map(str, table()[1][-1]))} and before are known)"
    if found.standing is Standing.REMOVED:
        return f"--{name} was removed in vLLM {found.removed_in} ({found.releases} had it): {this} does not know it", found.exact  # fmt: skip
    if found.standing is Standing.NOT_YET:
        return (
            f"--{name} comes with vLLM {found.releases}: {this} does not know it yet",
            found.exact,
        )
    if found.standing is Standing.UNSURE:
        return f"--{name} is a flag of vLLM {found.releases}: whether {this} has it is unknown", False  # fmt: skip
    guess = f"; --{found.nearest} is meant?" if found.nearest else ""
    sure = not facts.software.plugins and (found.exact or (not version and bool(guess)))
    plugin = ", unless a plugin that is installed brings it" if facts.software.plugins else ""
    return f"no release of vLLM has --{name}{plugin}{guess}", sure


def _fixes(facts: Facts, name: str, found: Answer) -> Iterator[Fix]:
    if found.nearest:
        yield Fix("write it as vLLM does", facts.command.renamed(name, found.nearest))
    elif found.standing is Standing.NOT_YET:
        yield Fix(f"leave it out, or install vLLM {found.releases}", facts.command.without(name))
    elif found.standing is not Standing.UNSURE:
        yield Fix(f"leave it out{f' ({found.instead})' if found.instead else ''}", facts.command.without(name))  # fmt: skip
