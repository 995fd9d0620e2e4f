"""Run vLLM's own argument parser on a command line, without an engine.

This file runs in vLLM's Python (3.9 or later), which does not have vllm-watch: it may import only the standard
library and vLLM. It reads a request from stdin, and writes one line of JSON: {"refusal", "unspecified"} or {"failure"}.
"""

import argparse
import importlib
import json
import os
import sys
from typing import Any, NoReturn

_PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")
_ARGUMENTS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
_SERVERS = ("vllm.entrypoints.launchers.launcher", "vllm.entrypoints.openai.api_server")
_CHARACTERS_MAX = 8000
_REFUSALS = (ValueError, TypeError)  # pydantic's ValidationError is a ValueError


class RefusedError(Exception):
    """The parser's error. Not a ValueError, which argparse replaces."""


class AbsentError(Exception):
    """This release does not have the name."""


def _refuse(parser: object, message: str) -> NoReturn:
    raise RefusedError(message)


def _find(name: str, modules: "tuple[str, ...]") -> Any:
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise AbsentError(name)


def _parser(serve: bool) -> Any:
    flexible = _find("FlexibleArgumentParser", _PARSERS)
    if not serve:
        return _find("make_arg_parser", _ARGUMENTS)(flexible())
    whole = flexible()
    command = _find("ServeSubcommand", ("vllm.entrypoints.cli.serve",))()
    command.subparser_init(whole.add_subparsers(dest="subparser"))
    return whole


def _refusal(serve: bool, words: "list[str]") -> "str | None":
    """Return why vLLM refuses the words, or None. Other exceptions pass."""
    sys.argv = ["vllm", *words]
    parser, validate = _parser(serve), _find("validate_parsed_serve_args", _ARGUMENTS)
    try:
        given = parser.parse_args(words)
        validate(given)
    except (RefusedError, *_REFUSALS) as error:
        return str(error)
    plugins = (getattr(given, name, None) for name in ("tool_parser_plugin", "reasoning_parser_plugin"))  # fmt: skip
    if any(plugins):
        return None
    try:
        check = _find("validate_api_server_args", _SERVERS)
    except (AbsentError, ImportError):
        return None
    try:
        check(given)
    except KeyError as error:
        return str(error.args[0])
    return _unknown_reasoning(getattr(given, "reasoning_parser", None))


def _unknown_reasoning(name: "str | None") -> "str | None":
    """Return why vLLM refuses the reasoning parser. Some releases check it only with the engine's settings."""
    try:
        known = _find("ReasoningParserManager", ("vllm.reasoning",)).list_registered()
    except (AbsentError, ImportError, AttributeError):
        return None
    return f"reasoning parser '{name}' not found; known: {', '.join(known)}" if name and name not in known else None  # fmt: skip


def _unspecified() -> bool:
    """Return True if vLLM found no accelerator, so a platform's plugin may be missing."""
    try:
        return bool(importlib.import_module("vllm.platforms").current_platform.is_unspecified())
    except Exception:  # noqa: BLE001 - older releases differ
        return True


def _answer(request: "dict[str, Any]") -> "dict[str, Any]":
    serve = bool(request["serve"])
    before = ["serve"] if serve else []
    setattr(argparse.ArgumentParser, "error", _refuse)  # noqa: B010 - mypy forbids the assignment
    try:
        importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        return {"failure": None if error.name == "vllm" else str(error)[:_CHARACTERS_MAX]}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any failure means unknown
        return {"failure": f"{type(error).__name__}: {error}"[:_CHARACTERS_MAX]}
    try:
        # If vLLM refuses the shortest command, the cause is this host, not the command.
        shortest = _refusal(serve, [*before, "m"] if serve else ["--model", "m"])
        if shortest is not None:
            return {"failure": f"it refuses every command: {shortest}"[:_CHARACTERS_MAX]}
        refusal = _refusal(serve, [*before, *request["words"]])
    except AbsentError:
        return {"failure": None}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any failure means unknown
        return {"failure": f"{type(error).__name__}: {error}"[:_CHARACTERS_MAX]}
    return {
        "refusal": refusal and refusal[:_CHARACTERS_MAX],
        "unspecified": _unspecified(),
    }


def main() -> None:
    """Answer one request."""
    if sys.path and not sys.path[0]:
        del sys.path[0]  # the working folder, which `vllm` does not search
    out = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    out.write(json.dumps(_answer(json.load(sys.stdin))) + "\n")
    out.flush()
    os._exit(0)  # threads of libraries may not end


if __name__ == "__main__":
    main()
