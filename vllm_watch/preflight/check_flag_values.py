"""Find flags and values that vLLM's argument parser refuses."""

from collections.abc import Callable, Iterator

from vllm_watch.preflight import flag_rules as rules
from vllm_watch.preflight.command import Given
from vllm_watch.preflight.facts import Facts
from vllm_watch.preflight.findings import Finding, Fix
from vllm_watch.support import vllm_flags
from vllm_watch.support.redaction import safe_arguments

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def check_flag_values(facts: Facts) -> Iterator[Finding]:
    """Find values that vLLM refuses, first those of the command's form."""
    for rule in _RULES:
        yield from rule(facts)


def _finding(status: str | None, text: str, *fixes: Fix) -> Iterator[Finding]:
    if status is not None:
        yield Finding("flags", status, text, "wrong_flag", fixes)


def _switches(facts: Facts) -> Iterator[Finding]:
    """Find switches with a value: --enforce-eager=True. Without =, the value is a second model."""
    before: Given | None = None
    models = 0
    for each in facts.command.given:
        if each.name is None:
            models += 1
            word = each.word
            if before is not None and models > 1 and _is_word_of(before, word):
                yield from _switch(facts, Given(before.at, before.word, before.name, (word,)))
        elif _is_switch(each.name) and each.values and (each.joined or _has_model(facts)):
            yield from _switch(facts, each)
        before = each


def _switch(facts: Facts, given: Given) -> Iterator[Finding]:
    name, value = given.name or "", given.values[0]
    always = name.removeprefix("no-") in rules.ALWAYS_SWITCHES
    status = rules.status(facts, since=None if always else rules.ONLY_SWITCHES)
    off = value.lower() in _FALSE
    written = given.word.partition("=")[0]
    if not off:
        fix = Fix("leave the value out", facts.command.replaced(given, written))
    elif name.startswith("no-") or name in rules.WITHOUT_NO:
        fix = Fix("leave it out", facts.command.replaced(given))
    else:
        fix = Fix("switch it off", facts.command.replaced(given, f"--no-{name}"))
    yield from _finding(status, f"--{name} is a switch and takes no value, but has {value!r}", fix)


def _is_word_of(before: Given, word: str) -> bool:
    return before.name is not None and _is_switch(before.name) and not before.values and word.lower() in _TRUE + _FALSE  # fmt: skip


def _is_switch(name: str) -> bool:
    return name != "help" and (vllm_flags.is_switch(name) or (name.startswith("no-") and vllm_flags.is_switch(name[3:])))  # fmt: skip


def _has_model(facts: Facts) -> bool:
    return any(each.name in (None, "model") for each in facts.command.given)


def _positionals(facts: Facts) -> Iterator[Finding]:
    """Find a second positional argument, if the end of each flag's values is known."""
    given = facts.command.given
    known = all(each.name is None or "." in each.name or _in_table(each.name) for each in given)
    found = [(index, each) for index, each in enumerate(given) if each.name is None]
    second = [each for index, each in found[1:] if not _is_word_of(given[index - 1], each.word)]
    if not known or not second:
        return
    old = any(each.name in rules.STORE_BOOLEAN for each in given)
    shown = safe_arguments(facts.command.argv)
    status = rules.status(facts, since=rules.ONLY_SWITCHES if old else None)
    text = f"'{shown[second[0].at]}' is a second positional argument: vLLM takes only one, the model '{shown[found[0][1].at]}'"  # fmt: skip
    yield from _finding(status, text, Fix("leave it out", facts.command.replaced(second[0]) if len(second) == 1 else None))  # fmt: skip


def _in_table(name: str) -> bool:
    return bool({name, name.removeprefix("no-")} & vllm_flags.table()[0].keys())


def _bare(facts: Facts) -> Iterator[Finding]:
    """Find flags without their value, and --no- before a flag that has one."""
    flags = vllm_flags.table()[0]
    for each in facts.command.given:
        name = each.name or ""
        base = name.removeprefix("no-")
        if name in flags and not _is_switch(name) and not each.values and name not in rules.OPTIONAL_VALUE:  # fmt: skip
            yield from _finding(rules.status(facts), f"--{name} has no value", Fix("give one, or leave it out", facts.command.replaced(each)))  # fmt: skip
        elif base != name and name not in flags and base in flags:
            if not vllm_flags.is_switch(base):
                status = rules.status(facts)
            elif base == "enable-chunked-prefill":
                status = rules.status(facts, before=(0, 8, 0)) if facts.release else None
            else:
                continue
            yield from _finding(status, f"--{base} has no --no- form", Fix("leave it out", facts.command.replaced(each)))  # fmt: skip


def _values(facts: Facts) -> dict[str, str]:
    """Return the flags that have a value. vLLM takes "None", in most releases also "", as no value."""
    bare = {each.name for each in facts.command.given if not each.values}
    return {name: value for name, value in facts.command.flags.items() if name not in bare and value not in ("", "None")}  # fmt: skip


def _numbers(facts: Facts) -> Iterator[Finding]:
    values = _values(facts)
    for name in rules.INTEGERS:
        text = values.get(name)
        if text is not None and not rules.is_integer(text):
            yield from _finding(rules.status(facts), f"--{name} {text} is not an integer")
    for name in rules.READABLE_INTEGERS:
        text = values.get(name)
        if text is None or rules.is_integer(text):
            continue
        status = rules.status(facts)
        if name == "max-model-len" and text.lower() == "auto":
            status = rules.status(facts, before=rules.AUTO_SINCE) if facts.release else None
        elif rules.is_readable_integer(text):
            status = rules.status(facts, before=rules.READABLE_SINCE) if facts.release else None
        yield from _finding(status, f"--{name} {text} is not a number that this vLLM takes")
    offload = facts.command.number("cpu-offload-gb")
    if offload is not None and offload < 0:
        yield from _finding(rules.status(facts), f"--cpu-offload-gb {values['cpu-offload-gb']} is below 0")  # fmt: skip


def _choices(facts: Facts) -> Iterator[Finding]:
    values = _values(facts)
    for name, choices in rules.CHOICES.items():
        value = values.get(name)
        if value is None or value in choices:
            continue
        meant = rules.MEANT.get(value.lower(), value.lower())
        fix = Fix("write it as vLLM does", facts.command.shown(**{name: meant})) if meant in choices else Fix("take one of these values")  # fmt: skip
        yield from _finding(rules.status(facts), f"--{name} {value} is not one of {', '.join(choices)}", fix)  # fmt: skip
    backend = values.get("distributed-executor-backend", "mp")
    if backend not in rules.EXECUTORS and "." not in backend:
        yield from _finding(rules.status(facts), f"--distributed-executor-backend {backend} is neither one of {', '.join(rules.EXECUTORS)} nor a Python class", Fix("take mp on one host, ray on several", facts.command.shown(distributed_executor_backend="mp")))  # fmt: skip
    rank = values.get("max-lora-rank", "")
    if facts.command.switch("enable-lora") and rules.is_integer(rank) and int(rank) not in rules.LORA_RANKS:  # fmt: skip
        larger = next((each for each in rules.LORA_RANKS if each >= int(rank)), rules.LORA_RANKS[-1])  # fmt: skip
        yield from _finding(rules.status(facts), f"--max-lora-rank {rank} is not one of {', '.join(map(str, rules.LORA_RANKS))}", Fix("take the next larger one", facts.command.shown(max_lora_rank=str(larger))))  # fmt: skip


def _json(facts: Facts) -> Iterator[Finding]:
    """Check the command's JSON. How a configuration file's objects are read depends on the release."""
    written = {each.name for each in facts.command.given}
    values = {name: value for name, value in _values(facts).items() if name in written}
    for name in rules.JSON_ALWAYS + rules.JSON_NOW:
        error = rules.json_error(values[name]) if name in values else None
        if error is not None:
            since = rules.JSON_SINCE if name in rules.JSON_NOW else None
            yield from _finding(rules.status(facts, since=since), f"--{name} is not JSON: {error}", Fix('write it as JSON, with double quotes, in single quotes: \'{"key": "value"}\''))  # fmt: skip


def _pairs(facts: Facts) -> Iterator[Finding]:
    """Find flags that need or exclude each other."""
    command, values = facts.command, _values(facts)
    if command.switch("enable-auto-tool-choice") and "tool-call-parser" not in command.flags:
        yield from _finding(rules.status(facts), "--enable-auto-tool-choice needs --tool-call-parser", Fix("name the parser of the model's family", command.shown(tool_call_parser="PARSER")))  # fmt: skip
    tokens, requests = values.get("max-num-batched-tokens", ""), values.get("max-num-seqs", "")
    if rules.is_integer(tokens) and rules.is_integer(requests) and 0 < int(tokens) < int(requests):
        yield from _finding(
            rules.status(facts), f"--max-num-batched-tokens {tokens} is less than --max-num-seqs {requests}",
            Fix("raise the tokens", command.shown(max_num_batched_tokens=requests)), Fix("or lower the requests", command.shown(max_num_seqs=tokens)),
        )  # fmt: skip
    drafted = rules.drafter_tokens(values.get("speculative-config", ""))
    if drafted is not None and drafted < 1:
        yield from _finding(rules.status(facts), f"--speculative-config has num_speculative_tokens {drafted}: the least is 1")  # fmt: skip
    ranks, wide = command.whole("tensor-parallel-size", 1), command.whole("decode-context-parallel-size", 1)  # fmt: skip
    if ranks and wide and ranks % wide:
        yield from _finding(rules.status(facts), f"--decode-context-parallel-size {wide} does not divide --tensor-parallel-size {ranks}", Fix("leave it out", command.without("decode-context-parallel-size")))  # fmt: skip


def _files(facts: Facts) -> Iterator[Finding]:
    path = facts.command.config_path
    if path is not None and path.rpartition(".")[2] not in ("yaml", "yml"):
        yield from _finding(rules.status(facts), f"--config {path} does not end in .yaml or .yml", Fix("rename the file"))  # fmt: skip
    for name, file in facts.absent.items():
        since = rules.ADAPTERS_LOADED_SINCE if name == "lora-modules" else None
        yield from _finding(rules.status(facts, since=since), f"--{name} {file} does not exist", Fix("correct the path; in a container, mount it"))  # fmt: skip


_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _switches, _positionals, _bare, _numbers, _choices, _json, _pairs, _files,
)  # fmt: skip
