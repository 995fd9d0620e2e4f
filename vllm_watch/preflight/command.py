"""Parse a vLLM command line, its configuration file and its environment like vLLM."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from vllm_watch.errors import WatchError
from vllm_watch.support import json_text, vllm_flags
from vllm_watch.support.redaction import safe_arguments

SERVE, API_SERVER = "serve", "api_server"
_API_SERVER_MODULE = "vllm.entrypoints.openai.api_server"
_CLI_MODULES = ("vllm.entrypoints.cli.main", "vllm")
_SHELLS = ("sh", "bash", "dash", "zsh", "ash")
_EXAMPLE = (
    "write it as you would start it: vllm-watch preflight -- vllm serve MODEL --max-model-len 8192"
)
_OPTION = re.compile(r"-{1,2}[A-Za-z]")
_WHOLE = re.compile(r"[0-9]{1,12}")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def is_whole(text: str) -> bool:
    """Return True if the text consists of one to twelve digits."""
    return _WHOLE.fullmatch(text) is not None


ALIASES = {"device-memory-utilization": "gpu-memory-utilization"}

READ = (
    "model", "served-model-name", "tokenizer", "hf-config-path", "revision", "hf-token", "hf-overrides", "load-format", "download-dir",
    "max-model-len", "dtype", "quantization", "kv-cache-dtype", "gpu-memory-utilization",
    "kv-cache-memory-bytes", "num-gpu-blocks-override", "block-size", "max-num-seqs",
    "max-num-batched-tokens", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size",
    "data-parallel-size-local", "decode-context-parallel-size", "prefill-context-parallel-size", "nnodes",
    "distributed-executor-backend", "data-parallel-backend", "device-ids", "device", "enforce-eager", "enable-lora",
    "max-loras", "max-lora-rank", "cpu-offload-gb", "speculative-config", "enable-prefix-caching",
    "port", "host", "uds", "headless", "skip-tokenizer-init", "config",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """An option with its values, or a positional argument (`name` is None)."""

    at: int
    """Index in argv."""
    word: str
    name: str | None = None
    values: tuple[str, ...] = ()
    joined: bool = False
    """True if the word contains the value: --name=value."""

    @property
    def end(self) -> int:
        return self.at + 1 + (0 if self.joined else len(self.values))


@dataclass(frozen=True, slots=True)
class Command:
    """A command. `flags` has long names with dashes. Switches are "true" or "false"."""

    argv: tuple[str, ...]
    program: str
    executable: str
    arguments: tuple[str, ...] = ()
    """The words after the program."""
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    """From here on, `split` leaves the fields empty and `parse` fills them."""
    flags: Mapping[str, str] = field(default_factory=dict)
    config_ignored: str | None = None
    """The FILE of --config=FILE, a form that vLLM ignores."""
    given: tuple[Given, ...] = ()

    @property
    def config_path(self) -> str | None:
        """The FILE of --config FILE. Raises WatchError if it is missing."""
        words = self.arguments
        if "--config" not in words:
            return None
        index = words.index("--config")
        if index + 1 == len(words):
            raise WatchError("--config without a file", "name the YAML file: --config FILE")
        return words[index + 1]

    def text(self, name: str) -> str | None:
        return self.flags.get(name)

    def switch(self, name: str, default: bool = False) -> bool:
        value = self.flags.get(name)
        return default if value is None else value.lower() not in ("false", "0", "no")

    def whole(self, name: str, default: int) -> int:
        """Return a flag as an integer, or the default if the flag is absent or invalid."""
        value = self.flags.get(name, "")
        return int(value) if is_whole(value) else default

    def number(self, name: str) -> float | None:
        try:
            return float(self.flags.get(name, ""))
        except ValueError:
            return None

    def shown(self, environment: Mapping[str, str] | None = None, /, **changes: str) -> str:
        """Return the command for copying, without secrets. `changes` has flags, with underscores instead of dashes."""
        words, start = self.argv, len(self.argv) - len(self.arguments)
        for name, value in changes.items():
            words = _changed(words, start, name.replace("_", "-"), value)
        before = [f"{key}={value}" for key, value in (environment or {}).items()]
        return " ".join([*before, _quoted(words)])

    def without(self, name: str) -> str | None:
        at = self._at(name)
        return None if at is None else self.replaced(at)

    def renamed(self, name: str, right: str) -> str | None:
        at = self._at(name)
        if at is None:
            return None
        _, equals, value = at.word.partition("=")
        return self.replaced(at, f"--{right}{equals}{value}", *(() if at.joined else at.values))

    def replaced(self, given: Given, *words: str) -> str:
        """Return the command for copying, with other words in place of an option and its values."""
        return _quoted((*self.argv[: given.at], *words, *self.argv[given.end :]))

    def _at(self, name: str) -> Given | None:
        return next((each for each in self.given if each.name and each.name.partition(".")[0] == name), None)  # fmt: skip


def _quoted(words: tuple[str, ...]) -> str:
    return " ".join(map(shlex.quote, safe_arguments(words)))


def split(argv: Sequence[str], environment: Mapping[str, str]) -> Command:
    """Find vLLM after variables and wrappers such as env or tini. Raises WatchError for other commands."""
    words = list(argv)
    if not words:
        raise WatchError("no command is named", _EXAMPLE)
    for index, word in enumerate(words):
        name, rest = PurePath(word).name, words[index + 1 :]
        if name == "vllm" and rest[:1] == ["serve"]:
            return _taken(words, index, SERVE, rest[1:], environment)
        if name.startswith("python") and "-m" in rest:
            at = rest.index("-m")
            module, after = rest[at + 1 : at + 2], rest[at + 2 :]
            if module == [_API_SERVER_MODULE]:
                return _taken(words, index, API_SERVER, after, environment)
            if module and module[0] in _CLI_MODULES and after[:1] == ["serve"]:
                return _taken(words, index, SERVE, after[1:], environment)
        if name in _SHELLS and "-c" in rest:
            raise WatchError(
                f"{name} -c: a shell's command text is not parsed",
                "name the command itself after --, and set variables before vllm-watch",
            )
    raise WatchError(f"'{shlex.join(words[:3])}' does not start a vLLM server", _EXAMPLE)


def _taken(
    words: list[str], index: int, program: str, rest: list[str], environment: Mapping[str, str]
) -> Command:
    set_before = dict(word.split("=", 1) for word in words[:index] if _ASSIGNMENT.match(word))
    return Command(tuple(words), program, words[index], tuple(rest), {**environment, **set_before})


def parse(parts: Command, config: Mapping[str, Any] | None = None) -> Command:
    """Parse the command. Its flags override the configuration file."""
    given = tuple(_read(parts.arguments, len(parts.argv) - len(parts.arguments)))
    flags = _flags_of(given)
    model = next((each.word for each in given if each.name is None), None)
    ignored = flags.pop("config", None) if parts.config_path is None else None
    flags.pop("config", None)
    merged = {**_of_config(config or {}), **flags}
    named = merged.pop("model", None)
    return replace(
        parts,
        model=(model if parts.program == SERVE else None) or flags.get("model") or named,
        flags=merged,
        config_ignored=ignored,
        given=given,
    )


def _read(words: Sequence[str], start: int) -> Iterator[Given]:
    index = 0
    while index < len(words):
        at, word = index, words[index]
        index += 1
        if word == "--":  # all words after it are positional
            yield from (Given(start + at, words[at]) for at in range(index, len(words)))
            return
        if not _OPTION.match(word):
            yield Given(start + at, word)
            continue
        name, equals, value = _named(word)
        taken = (value,) if equals else tuple(_values(name, words[index:]))
        index += 0 if equals else len(taken)
        yield Given(start + at, word, name, taken, bool(equals))


def _flags_of(given: Iterable[Given]) -> dict[str, str]:
    flags: dict[str, str] = {}
    for each in given:
        if each.name is None:
            continue
        name, value = each.name, " ".join(each.values) if each.values else "true"
        if name.startswith("no-") and vllm_flags.is_switch(name[3:]):
            name, value = name[3:], "false"
        key, dot, below = name.partition(".")
        flags[key] = _nested(flags.get(key), below, value) if dot else value
    return flags


def _named(word: str) -> tuple[str, str, str]:
    """Split "--name=value" into the long name, "=" and the value. Without "=", the last two are ""."""
    option, equals, value = word.partition("=")
    if option == "-O":
        return "optimization-level", equals, value
    if option.startswith("-O"):
        return "optimization-level", "=", option[2:] or value
    head, dot, below = option.partition(".")
    if not option.startswith("--"):
        return vllm_flags.shorts().get(head, head.lstrip("-")) + dot + below, equals, value
    head = head[2:]
    return _whole_name(head.replace("_", "-")) + dot + below, equals, value


def _whole_name(name: str) -> str:
    name = ALIASES.get(name, name)
    if name in READ or name in vllm_flags.table()[0]:
        return name
    longer = [each for each in READ if each.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def _values(name: str, rest: Sequence[str]) -> list[str]:
    if vllm_flags.is_switch(name) or vllm_flags.is_switch(name.removeprefix("no-")):
        # Some releases took a value: --enable-chunked-prefill False.
        return list(rest[:1]) if rest[:1] and rest[0] in ("True", "False") else []
    taken: list[str] = []
    for word in rest:
        if _OPTION.match(word) or (taken and not vllm_flags.takes_several(name)):
            break
        taken.append(word)
    return taken


def _nested(before: str | None, path: str, value: str) -> str:
    """Merge a dotted flag, such as --hf-overrides.rope_scaling.factor 2, into its JSON object."""
    whole = read_object(before)
    below = whole
    *parents, last = path.rstrip("+").split(".")
    for name in parents:
        inner = below.get(name)
        if not isinstance(inner, dict):
            inner = below[name] = {}
        below = inner
    try:
        below[last] = json_text.read(value)
    except ValueError:
        below[last] = value
    return json.dumps(whole)


def read_object(text: str | None) -> dict[str, Any]:
    """Return a flag's JSON object, or an empty one if the flag is absent or invalid."""
    try:
        found = json_text.read(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _of_config(config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in config.items():
        name = _whole_name(str(key).replace("_", "-"))
        if isinstance(value, bool):
            found[name] = "true" if value else "false"
        elif isinstance(value, list):
            found[name] = " ".join(map(str, value))
        elif isinstance(value, Mapping):
            found[name] = json.dumps(value)
        else:
            found[name] = str(value)
    return found


def _changed(words: tuple[str, ...], start: int, name: str, value: str) -> tuple[str, ...]:
    found = [each for each in _read(words[start:], start) if each.name == name]
    if not found:
        return (*words, f"--{name}", value) if value else (*words, f"--{name}")
    for each in reversed(found):
        option = each.word.partition("=")[0]
        new = (f"{option}={value}",) if each.joined else (option, value)
        words = (*words[: each.at], *(new if each is found[-1] else ()), *words[each.end :])
    return words
