"""A package `vllm` whose parser accepts, refuses, hangs, or cannot be imported, with a program of its own Python."""

import sys
from pathlib import Path

PARSER = """
import argparse
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
ARGUMENTS = """
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model")
    parser.add_argument("--port", type=int)
    parser.add_argument("--dtype", choices=["auto", "half"])
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--api-key", nargs="+")
    parser.add_argument("--stream-interval", type=int)
    parser.add_argument("--tokenizer")
    parser.add_argument("--tool-call-parser")
    parser.add_argument("--reasoning-parser")
    return parser

def validate_parsed_serve_args(given):
    if given.tokenizer == "wrong":
        raise ValueError("tokenizer 'wrong' has no files")
    if given.tokenizer == "cuda-only":
        raise ValueError("this tokenizer needs a CUDA device")
    if given.tokenizer == "broken":
        raise RuntimeError("no driver")
"""
SERVE = """
class ServeSubcommand:
    def subparser_init(self, commands):
        from vllm.entrypoints.openai.cli_args import make_arg_parser
        return make_arg_parser(commands.add_parser("serve"))
"""
SERVER = """
def validate_api_server_args(given):
    name = getattr(given, "tool_call_parser", None)
    if name not in (None, "hermes"):
        raise KeyError("invalid tool call parser: " + name)
"""
REASONING = """
class ReasoningParserManager:
    @staticmethod
    def list_registered():
        return ["qwen3"]
"""
PLATFORMS = """
class current_platform:
    @staticmethod
    def is_unspecified():
        return True
"""
FILES = {
    "__init__.py": "", "utils.py": PARSER, "platforms.py": PLATFORMS, "reasoning.py": REASONING, "entrypoints/__init__.py": "",
    "entrypoints/cli/__init__.py": "", "entrypoints/cli/serve.py": SERVE,
    "entrypoints/openai/__init__.py": "", "entrypoints/openai/api_server.py": SERVER, "entrypoints/openai/cli_args.py": ARGUMENTS,
}  # fmt: skip


def install(folder: Path, version: str = "0.32.0+cpu", **changed: str) -> Path:
    """Return the program. `changed` has texts of files, by their stems."""
    packages = folder / "lib" / "python3.12" / "site-packages"
    (packages / f"vllm-{version}.dist-info").mkdir(parents=True)
    for name, text in FILES.items():
        path = packages / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        stem = path.stem if path.stem != "__init__" else path.parent.name
        path.write_text(changed.get(stem, text))
    programs = folder / "bin"
    programs.mkdir()
    python = programs / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    program = programs / "vllm"
    program.write_text('#!/bin/sh\necho "vllm got $*"\n')
    for each in (python, program):
        each.chmod(0o755)
    return program
