"""Read YAML strictly, with limits.

PyYAML silently accepts duplicate keys, and expands nested aliases until memory is exhausted.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from vllm_watch.errors import ConfigError
from vllm_watch.settings.base import quoted
from vllm_watch.support import regular_file

_DEPTH_MAX = 20  # the configuration uses 4
# libyaml is ten times faster and does not recurse. PyYAML may be built without it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Python can parse a hexadecimal number of more than 4,300 decimal digits, but cannot print it.
_LONG_NUMBER = re.compile(r"[-+]?[0-9][0-9a-fA-FxXob_:]{100,}+").fullmatch

Found = tuple[str, str]  # cause (with the key's path or the line) and remedy


def read(path: Path, bytes_max: int) -> tuple[dict[str, Any], list[Found]]:
    """Return the file's mapping and its duplicate keys. Raises ConfigError."""
    data, found = parse(text_of(path, bytes_max), str(path))
    if data is None:
        return {}, found
    if not isinstance(data, dict):
        cause = f"{path}: holds {quoted(data)}, not keys with values"
        raise ConfigError(cause, "write KEY: VALUE lines; see docs/configuration.md")
    return data, found


def parse(text: str, file: str) -> tuple[Any, list[Found]]:
    """Return the parsed text and its duplicate keys. Raises ConfigError."""
    try:
        _refuse_bombs(text, file)
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            found = _duplicates(root, "") if root is not None else []
            return (loader.construct_document(root) if root is not None else None), found
        finally:
            loader.dispose()
    except yaml.constructor.ConstructorError as error:
        cause = f"{file}: {_position(error.problem_mark)}{error.problem}"
        raise ConfigError(cause, "write plain text, numbers, lists and mappings") from None
    except yaml.MarkedYAMLError as error:
        position = _position(error.problem_mark or error.context_mark)
        cause = error.problem or error.context or "cannot be read"
        remedy = "check this line and the one before; quote values with ': ', '#', '[' or '{'"
        raise ConfigError(f"{file}: {position}{cause}", remedy) from None
    except yaml.reader.ReaderError as error:
        character = error.character if isinstance(error.character, int) else ord(error.character)
        cause = f"{file}: holds the character U+{character:04X}, which YAML does not allow"
        raise ConfigError(cause, "save it as plain text in UTF-8") from None
    except (ValueError, OverflowError) as error:  # a date such as 2026-13-45
        remedy = "quote it if it is meant as text"
        raise ConfigError(f"{file}: holds a value that cannot be read: {error}", remedy) from None


def text_of(path: Path, bytes_max: int) -> str:
    """Return a file's text. Raises ConfigError."""
    try:
        body = regular_file.read(path, bytes_max)
    except regular_file.TooLargeError:
        cause = f"{path}: is larger than {bytes_max >> 20} MiB"
        raise ConfigError(
            cause, "name a configuration file; long target lists go into several file_sd files"
        ) from None
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: {cause}", "name a file that can be read") from None
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}: line {line}: is not UTF-8", "save it as plain text in UTF-8"
        ) from None


def _refuse_bombs(text: str, file: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            cause = f"the alias *{event.anchor} is not supported"
            remedy = "write the value out; settings of all targets go under scrape or slo"
        elif isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _LONG_NUMBER(event.value):  # fmt: skip
            cause = f"a number of {len(event.value)} digits"
            remedy = "quote it if it is meant as text"
        elif depth > _DEPTH_MAX:
            cause = f"is nested deeper than {_DEPTH_MAX} levels"
            remedy = "check for brackets that are not closed"
        else:
            continue
        raise ConfigError(f"{file}: {_position(event.start_mark)}{cause}", remedy)


def _duplicates(node: yaml.Node, path: str) -> list[Found]:
    found: list[Found] = []
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            found += _duplicates(item, f"{path}[{number}]")
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the loader reports an error
            here = f"{path}.{key.value}" if path else key.value
            line = key.start_mark.line + 1
            if key.value in first:
                cause = f"{here}: is set twice, in lines {first[key.value]} and {line}"
                found.append((cause, "keep one of the two"))
            first.setdefault(key.value, line)
            found += _duplicates(value, here)
    return found


def _position(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
