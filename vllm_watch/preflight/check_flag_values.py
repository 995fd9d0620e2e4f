"""Find flags, values and variables that vLLM refuses: numbers, choices, JSON. Source: vLLM's argument definitions."""

import re
from collections.abc import Callable, Iterator

from vllm_watch.preflight.command import Given, read_object
from vllm_watch.preflight.facts import PROBLEM, WARNING, Facts, Finding, Fix
from vllm_watch.support import json_text, vllm_flags
from vllm_watch.support.redaction import safe_arguments

_Numbers = tuple[int, ...]

_OPTIONAL_VALUE = ("hf-token", "enable-chunked-prefill", "multi-step-stream-outputs")
"""Flags that may have a value."""
_STORE_BOOLEAN = ("enable-chunked-prefill", "multi-step-stream-outputs")
"""Switches that took a value before 0.9.0."""
_ALWAYS_SWITCHES = ("enforce-eager", "trust-remote-code", "enable-lora", "enable-auto-tool-choice")
"""Switches that never took a value."""
_WITHOUT_NO = ("headless", "grpc", "data-parallel-multi-port-external-lb", "disable-log-stats", "aggregate-engine-logging")  # fmt: skip
"""Switches without a --no- form."""
_ONLY_SWITCHES: _Numbers = (0, 9, 0)
"""From this release on, no switch takes a value."""

_INTEGERS = (
    "max-num-seqs", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "data-parallel-size-local",
    "decode-context-parallel-size", "block-size", "max-loras", "max-lora-rank", "max-logprobs", "seed", "api-server-count", "nnodes", "node-rank",
)  # fmt: skip
_READABLE_INTEGERS = ("max-model-len", "max-num-batched-tokens")
_READABLE = re.compile(r"\d+(\.\d+)?[kmgt]|\d+[KMGT]")
_READABLE_SINCE: _Numbers = (0, 8, 0)
"""Before this release, 1k was refused. (Some later releases refuse it, too.)"""
_AUTO_SINCE: _Numbers = (0, 11, 0)
"""Before this release, --max-model-len auto was refused."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
    "uvicorn-log-level": ("critical", "error", "warning", "info", "debug", "trace"),
    "scheduling-policy": ("fcfs", "priority"),
    "chat-template-content-format": ("auto", "openai", "string"),
    "logprobs-mode": ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"),
    "runner": ("auto", "generate", "pooling", "draft"),
    "convert": ("auto", "none", "embed", "classify", "reward", "mm_encoder_only"),
    "data-parallel-backend": ("mp", "ray"),
}
"""All values that any release takes."""
_MEANT = {"fp16": "float16", "f16": "float16", "bf16": "bfloat16", "fp32": "float32", "f32": "float32"}  # fmt: skip
_EXECUTORS = ("mp", "ray", "uni", "external_launcher")
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)

_JSON_ALWAYS = ("allowed-origins", "allowed-methods", "allowed-headers", "hf-overrides", "kv-transfer-config", "speculative-config")  # fmt: skip
_JSON_NOW = ("compilation-config", "limit-mm-per-prompt", "mm-processor-kwargs", "override-generation-config", "pooler-config",
            "structured-outputs-config")  # fmt: skip
_JSON_SINCE: _Numbers = (0, 11, 0)
"""Before this release, some of _JSON_NOW had other spellings, such as image=2."""

_ADAPTERS_LOADED_SINCE: _Numbers = (0, 10, 0)
"""Before this release, vLLM may load the files of --lora-modules only when a request needs them."""


def _status(facts: Facts, since: _Numbers | None, before: _Numbers | None) -> str | None:
    """Return PROBLEM if the rule holds in this release, WARNING if that is unknown, else None."""
    release, newest = facts.release, vllm_flags.table()[1][-1]
    if release is None:
        unknown = facts.software.vllm is not None or since is not None or before is not None
        return WARNING if unknown else PROBLEM
    if (since is not None and release < since) or (before is not None and release >= before):
        return None
    return WARNING if release > newest else PROBLEM


def _is_integer(text: str) -> bool:
    """Return True if Python's int() accepts it, as argparse does."""
    try:
        int(text)
    except ValueError:
        return False
    return True


_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def check_flag_values(facts: Facts) -> Iterator[Finding]:
    """Find values that vLLM refuses, first those of the command's form."""
    for rule in _RULES:
        yield from rule(facts)


def _refused(
    facts: Facts, text: str, *fixes: Fix, since: _Numbers | None = None, before: _Numbers | None = None,
    check: str = "flags", cause: str = "wrong_flag",
) -> Iterator[Finding]:  # fmt: skip
    status = _status(facts, since, before)
    if status is not None:
        yield Finding(check, status, text, cause, fixes)


def _switches(facts: Facts) -> Iterator[Finding]:
    """Find switches with a value: --enforce-eager=True. Without =, the value is a second model."""
    before: Given | None = None
    models = 0
    named = any(each.name in (None, "model") for each in facts.command.given)
    for each in facts.command.given:
        if each.name is None:
            models += 1
            word = each.word
            if before is not None and models > 1 and _is_word_of(before, word):
                yield from _switch(facts, Given(before.at, before.word, before.name, (word,)))
        elif _is_switch(each.name) and each.values and (each.joined or named):
            yield from _switch(facts, each)
        before = each


def _switch(facts: Facts, given: Given) -> Iterator[Finding]:
    name, value = given.name or "", given.values[0]
    always = name.removeprefix("no-") in _ALWAYS_SWITCHES
    since = None if always else _ONLY_SWITCHES
    off = value.lower() in _FALSE
    written = given.word.partition("=")[0]
    if not off:
        fix = Fix("leave the value out", facts.command.replaced(given, written))
    elif name.startswith("no-") or name in _WITHOUT_NO:
        fix = Fix("leave it out", facts.command.replaced(given))
    else:
        fix = Fix("switch it off", facts.command.replaced(given, f"--no-{name}"))
    yield from _refused(
        facts, f"--{name} is a switch and takes no value, but has {value!r}", fix, since=since
    )


def _is_word_of(before: Given, word: str) -> bool:
    return before.name is not None and _is_switch(before.name) and not before.values and word.lower() in _TRUE + _FALSE  # fmt: skip


def _is_switch(name: str) -> bool:
    return name != "help" and (vllm_flags.is_switch(name) or (name.startswith("no-") and vllm_flags.is_switch(name[3:])))  # fmt: skip


def _positionals(facts: Facts) -> Iterator[Finding]:
    """Find a second positional argument, if the end of each flag's values is known."""
    given = facts.command.given
    known = all(each.name is None or "." in each.name or _in_table(each.name) for each in given)
    found = [(index, each) for index, each in enumerate(given) if each.name is None]
    second = [each for index, each in found[1:] if not _is_word_of(given[index - 1], each.word)]
    if not known or not second:
        return
    old = any(each.name in _STORE_BOOLEAN for each in given)
    shown = safe_arguments(facts.command.argv)
    since = _ONLY_SWITCHES if old else None
    text = f"'{shown[second[0].at]}' is a second positional argument: vLLM takes only one, the model '{shown[found[0][1].at]}'"  # fmt: skip
    yield from _refused(facts, text, Fix("leave it out", facts.command.replaced(second[0]) if len(second) == 1 else None), since=since)  # fmt: skip


def _in_table(name: str) -> bool:
    return bool({name, name.removeprefix("no-")} & vllm_flags.table()[0].keys())


def _bare(facts: Facts) -> Iterator[Finding]:
    """Find flags without their value, and --no- before a flag that has one."""
    flags = vllm_flags.table()[0]
    for each in facts.command.given:
        name = each.name or ""
        base = name.removeprefix("no-")
        if name in flags and not _is_switch(name) and not each.values and name not in _OPTIONAL_VALUE:  # fmt: skip
            yield from _refused(facts, f"--{name} has no value", Fix("give one, or leave it out", facts.command.replaced(each)))  # fmt: skip
        elif base != name and name not in flags and base in flags:
            switch, before = vllm_flags.is_switch(base), None
            if switch and base == "enable-chunked-prefill" and facts.release:
                before = (0, 8, 0)
            if before or not switch:
                yield from _refused(facts, f"--{base} has no --no- form", Fix("leave it out", facts.command.replaced(each)), before=before)  # fmt: skip


def _values(facts: Facts) -> dict[str, str]:
    """Return the flags that have a value. vLLM takes "None", in most releases also "", as no value."""
    bare = {each.name for each in facts.command.given if not each.values}
    return {name: value for name, value in facts.command.flags.items() if name not in bare and value not in ("", "None")}  # fmt: skip


def _numbers(facts: Facts) -> Iterator[Finding]:
    values = _values(facts)
    for name in _INTEGERS + _READABLE_INTEGERS:
        text = values.get(name)
        if text is None or _is_integer(text):
            continue
        before = None
        if name in _INTEGERS:
            yield from _refused(facts, f"--{name} {text} is not an integer")
            continue
        if name == "max-model-len" and text.lower() == "auto":
            before = _AUTO_SINCE
        elif _READABLE.fullmatch(text.strip()):
            before = _READABLE_SINCE
        if before is None or facts.release:
            yield from _refused(facts, f"--{name} {text} is not a number that this vLLM takes", before=before)  # fmt: skip
    offload = facts.command.number("cpu-offload-gb")
    if offload is not None and offload < 0:
        yield from _refused(facts, f"--cpu-offload-gb {values['cpu-offload-gb']} is below 0")  # fmt: skip


def _choices(facts: Facts) -> Iterator[Finding]:
    values = _values(facts)
    for name, choices in _CHOICES.items():
        value = values.get(name)
        if value is None or value in choices:
            continue
        meant = _MEANT.get(value.lower(), value.lower())
        fix = Fix("write it as vLLM does", facts.command.shown(**{name: meant})) if meant in choices else Fix("take one of these values")  # fmt: skip
        yield from _refused(facts, f"--{name} {value} is not one of {', '.join(choices)}", fix)  # fmt: skip
    backend = values.get("distributed-executor-backend", "mp")
    if backend not in _EXECUTORS and "." not in backend:
        yield from _refused(facts, f"--distributed-executor-backend {backend} is neither one of {', '.join(_EXECUTORS)} nor a Python class", Fix("take mp on one host, ray on several", facts.command.shown(distributed_executor_backend="mp")))  # fmt: skip
    rank = values.get("max-lora-rank", "")
    if facts.command.switch("enable-lora") and _is_integer(rank) and int(rank) not in _LORA_RANKS:  # fmt: skip
        larger = next((each for each in _LORA_RANKS if each >= int(rank)), _LORA_RANKS[-1])  # fmt: skip
        yield from _refused(facts, f"--max-lora-rank {rank} is not one of {', '.join(map(str, _LORA_RANKS))}", Fix("take the next larger one", facts.command.shown(max_lora_rank=str(larger))))  # fmt: skip


def _json(facts: Facts) -> Iterator[Finding]:
    """Check the command's JSON. How a configuration file's objects are read depends on the release."""
    written = {each.name for each in facts.command.given}
    values = {name: value for name, value in _values(facts).items() if name in written}
    for name in _JSON_ALWAYS + _JSON_NOW:
        try:
            json_text.read(values.get(name, "{}"))
        except ValueError as error:  # it does not repeat the value
            since = _JSON_SINCE if name in _JSON_NOW else None
            yield from _refused(facts, f"--{name} is not JSON: {error}", Fix('write it as JSON, with double quotes, in single quotes: \'{"key": "value"}\''), since=since)  # fmt: skip


def _pairs(facts: Facts) -> Iterator[Finding]:
    command, values = facts.command, _values(facts)
    if command.switch("enable-auto-tool-choice") and "tool-call-parser" not in command.flags:
        yield from _refused(facts, "--enable-auto-tool-choice needs --tool-call-parser", Fix("name the parser of the model's family", command.shown(tool_call_parser="PARSER")))  # fmt: skip
    tokens, requests = values.get("max-num-batched-tokens", ""), values.get("max-num-seqs", "")
    if _is_integer(tokens) and _is_integer(requests) and 0 < int(tokens) < int(requests):
        yield from _refused(
            facts, f"--max-num-batched-tokens {tokens} is less than --max-num-seqs {requests}",
            Fix("raise the tokens", command.shown(max_num_batched_tokens=requests)), Fix("or lower the requests", command.shown(max_num_seqs=tokens)),
        )  # fmt: skip
    drafted = read_object(values.get("speculative-config")).get("num_speculative_tokens")
    if isinstance(drafted, int) and drafted < 1:
        yield from _refused(facts, f"--speculative-config has num_speculative_tokens {drafted}: the least is 1")  # fmt: skip
    ranks, wide = command.whole("tensor-parallel-size", 1), command.whole("decode-context-parallel-size", 1)  # fmt: skip
    if ranks and wide and ranks % wide:
        yield from _refused(facts, f"--decode-context-parallel-size {wide} does not divide --tensor-parallel-size {ranks}", Fix("leave it out", command.without("decode-context-parallel-size")))  # fmt: skip


def _files(facts: Facts) -> Iterator[Finding]:
    path = facts.command.config_path
    if path is not None and path.rpartition(".")[2] not in ("yaml", "yml"):
        yield from _refused(facts, f"--config {path} does not end in .yaml or .yml", Fix("rename the file"))  # fmt: skip
    for name, file in facts.absent.items():
        since = _ADAPTERS_LOADED_SINCE if name == "lora-modules" else None
        yield from _refused(facts, f"--{name} {file} does not exist", Fix("correct the path; in a container, mount it"), since=since)  # fmt: skip


_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _switches, _positionals, _bare, _numbers, _choices, _json, _pairs, _files,
)  # fmt: skip


_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
_LOG_FLAGS = {"log-level", "log-config-file", "logging-config"}
_METHODS = ("fork", "spawn")
_METHODS_CHECKED_SINCE = (0, 11, 0)


def check_environment(facts: Facts) -> Iterator[Finding]:
    """Find variables with invalid values."""
    environment = facts.command.environment
    port = environment.get("VLLM_PORT")
    if port is not None and not _is_integer(port):
        if "://" in port:
            fix = Fix("set enableServiceLinks: false in the pod's spec, or rename the service: for a service named vllm, Kubernetes sets it")  # fmt: skip
        else:
            fix = Fix("set a number, or unset it")
        yield from _variable(facts, f"VLLM_PORT={port} is not a port number", fix)
    method = environment.get("VLLM_WORKER_MULTIPROC_METHOD")
    if method is not None and method not in _METHODS:
        yield from _variable(facts, f"VLLM_WORKER_MULTIPROC_METHOD={method} is neither fork nor spawn", Fix("set spawn, or unset it"), _METHODS_CHECKED_SINCE)  # fmt: skip
    level = environment.get("VLLM_LOGGING_LEVEL")
    logs = environment.get("VLLM_CONFIGURE_LOGGING", "1") == "1" and "VLLM_LOGGING_CONFIG_PATH" not in environment and not _LOG_FLAGS & facts.command.flags.keys()  # fmt: skip
    if level and logs and level.upper() not in _LEVELS:
        yield from _variable(facts, f"VLLM_LOGGING_LEVEL={level} is not a level of Python's logging", Fix("set DEBUG, INFO, WARNING or ERROR"))  # fmt: skip


def _variable(facts: Facts, text: str, fix: Fix, since: _Numbers | None = None) -> Iterator[Finding]:  # fmt: skip
    return _refused(facts, text, fix, since=since, check="environment", cause="wrong_variable")
