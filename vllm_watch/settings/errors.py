"""Turn pydantic's errors, and uses of removed keys, into operators' errors: path, value and remedy."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from vllm_watch.errors import ConfigError
from vllm_watch.settings.base import quoted
from vllm_watch.support.redaction import is_secret_name

_DOCS = "docs/configuration.md explains every key"
# pydantic's error type → cause and remedy, formatted with `value` and the error's context
_WORDS: dict[str, tuple[str, str]] = {
    "greater_than": ("{value} is not above {gt}", "set it above {gt}"),
    "greater_than_equal": ("{value} is below {ge}", "set it to {ge} or more"),
    "less_than_equal": ("{value} is above {le}", "set it to {le} or less"),
    "finite_number": ("{value} is not a finite number", "write a number"),
    **dict.fromkeys(("float_type", "float_parsing"), ("{value} is not a number", "write a number")),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), ("{value} is not a whole number", "write a whole number")),
    "int_parsing_size": ("{value} is too large", "write a smaller number"),
    "literal_error": ("{value} is not one of {expected}", "write one of {expected}"),
    "less_than": ("{value} is not below {lt}", "set it below {lt}"),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("{value} is neither true nor false", "write true or false")),
    "string_type": ("{value} is not text", "put it in quotes if it is meant as text"),
    "string_too_short": ("is empty", "write at least {min_length} character"),
    "string_too_long": ("is longer than {max_length} characters", "shorten it"),
    "path_type": ("{value} is not a path", "write the path of a file or folder"),
    **dict.fromkeys(("model_type", "model_attributes_type"), ("{value} is not a group of keys", "write KEY: VALUE lines there")),
    "tuple_type": ("{value} is not a list", "write a list, one item per line, each begun with '- '"),
    "too_long": ("has {actual_length} entries, more than {max_length}", "split them between several vllm-watches"),
    "invalid_key": ("is not a key", "write keys as text; " + _DOCS),
    "missing": ("is missing", "add it; " + _DOCS),
}  # fmt: skip

_OF_ETCD = ("kind=etcd", "endpoints", "ca_file", "certificate_file", "key_file")

REMOVED = {
    **dict.fromkeys(
        (f"restart.lock.{key}" for key in _OF_ETCD),
        "set restart.lock.kind to lease (in Kubernetes) or file (on one host); for several hosts without Kubernetes, "
        "let one vllm-watch watch them all",
    ),
    "restart.freeze_calendar_file": "use restart.freezes, or let the program that fetched the file call vllm-watch pause",
    "notifications.jsonl": (
        "set log.format to json, whose incident_* lines stdout gets, use GET /api/v1/events and GET /api/v1/journal, "
        "or use notifications.webhook"
    ),
    "hooks.signal": (
        "use hooks.systemd for a unit, hooks.gate in a pod, hooks.docker for a container, else hooks.command with the "
        "supervisor's own command, such as sv restart vllm"
    ),
    "hooks.gate.kill_dir": "leave it out: the probe asks over HTTP, see deploy/gate/http.yaml",
    "discovery.dns": (
        "use discovery.kubernetes for a headless Service, discovery.file_sd for addresses that a script or Consul writes, or targets "
        "for names that stay"
    ),
}
"""Replacements by dotted path, without list indices. A path ends in `=VALUE` if only that value was
removed."""

KeyPath = tuple[str | int, ...]


class InvalidConfigError(ConfigError):
    """All errors of a configuration."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        super().__init__(
            "; ".join(problem.cause for problem in problems),
            "; ".join(dict.fromkeys(problem.remedy for problem in problems)),
        )
        self.problems = tuple(problems)


def explained(
    error: ValidationError, model: type[BaseModel], label: Callable[[KeyPath], str]
) -> list[ConfigError]:
    """Return one error per problem; `label` returns the name of the value at a path."""
    found: list[ConfigError] = []
    for details in error.errors(include_url=False):
        if details["type"] == "default_factory_not_called":
            continue  # another key's problem has caused this one
        if details["type"] == "problems":
            for path, cause, remedy in details["ctx"]["problems"]:
                found.append(ConfigError(f"{label((*details['loc'], *path))}: {cause}", remedy))
        else:
            cause, remedy = _cause_and_remedy(details, model)
            found.append(ConfigError(f"{label(details['loc'])}: {cause}", remedy))
    return found


def dotted(path: KeyPath) -> str:
    """Return a path as text: `targets[0].url`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    """Return the model at a path, even inside a list, or None."""
    current: type[BaseModel] | None = model
    for key in path:
        if isinstance(key, str) and current is not None:
            field = current.model_fields.get(key)
            current = _inner_model(field.annotation) if field else None
    return current


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, Union, UnionType):
        models = (_inner_model(argument) for argument in get_args(annotation))
        return next((found for found in models if found is not None), None)
    return None


def _cause_and_remedy(details: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    path, kind = details["loc"], details["type"]
    instead = instead_of(path, details["input"])
    if instead is not None:
        value = "" if kind == "extra_forbidden" else f"{_value(details)} "
        return f"{value}was removed", instead
    if kind == "extra_forbidden":
        return _unknown_key(str(path[-1]), model_at(model, path[:-1]))
    if kind not in _WORDS:
        return f"{_value(details)}: {details['msg'].lower()}", _DOCS
    context = {key: _plain(value) for key, value in details.get("ctx", {}).items()}
    cause, remedy = _WORDS[kind]
    return cause.format(value=_value(details), **context), remedy.format(**context)


def _unknown_key(key: str, model: type[BaseModel] | None) -> tuple[str, str]:
    if model is None:
        return "unknown key", _DOCS
    known = list(model.model_fields)
    deeper: dict[str, str] = {}
    for name in reversed(known):
        inner = model_at(model, (name,))
        deeper |= {leaf: f"{name}.{leaf}" for leaf in (inner.model_fields if inner else ())}
    close = get_close_matches(key, known, n=1)
    close += [deeper[leaf] for leaf in get_close_matches(key, deeper, n=1)]
    meant = f"did you mean {close[0]}?" if close else f"the keys here are {', '.join(known)}"
    if not close and (others := getattr(model, "OTHERS", "")):
        meant = f"{others}; {meant}"
    return "unknown key", meant


def _value(details: ErrorDetails) -> str:
    name = next((key for key in reversed(details["loc"]) if isinstance(key, str)), "")
    return (
        "the value (not shown)"
        if is_secret_name(name.removesuffix("_file"))
        else quoted(details["input"])
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:g}"
    return value.replace("'", "").replace(" or ", ", ") if isinstance(value, str) else value


def instead_of(path: KeyPath, value: object = None) -> str | None:
    """Return the replacement of a removed key or value, or None."""
    names = [key for key in path if isinstance(key, str)]
    for start in range(len(names)):
        dotted = ".".join(names[start:])
        if dotted in REMOVED:
            return REMOVED[dotted]
        if isinstance(value, str) and f"{dotted}={value}" in REMOVED:
            return REMOVED[f"{dotted}={value}"]
    return None
