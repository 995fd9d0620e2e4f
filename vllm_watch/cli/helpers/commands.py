"""List the commands. Their modules are imported on use."""

import argparse
import gc
import importlib
import sys
from typing import Protocol, cast

# The summaries are here, so that --help need not import the commands.
COMMANDS = {
    "run": "watch vLLM servers and this host's GPUs, and serve the results",
    "demo": "watch a simulated fleet: see it all without a GPU",
    "read": "show one /metrics body under vllm-watch's names",
    "record": "record a server's answers to a trace file",
    "replay": "run the live detectors on a recording",
    "capacity": "check whether a model fits on a GPU, or what would make it fit",
    "preflight": "check a launch of vLLM, and optionally start it",
    "gpus": "show who holds the memory of the GPUs, and how much of it is stale",
    "explain": "explain why an incident is not critical, or why no restart is advised",
    "restart": "restart a target now, if the usual checks pass",
    "approve": "approve the restart that an incident waits for",
    "silence": "block restarts for one incident for a while",
    "pause": "block all restarts, for a while or until resume",
    "resume": "end a pause, and allow restarts again after one that did not help",
    "journal": "show all actions, their authors and results",
    "advise": "suggest better settings, from observed traffic",
    "top": "show a running vllm-watch in the terminal",
    "diagnose": "find out from a log why vLLM did not start, or died",
    "hook": "test a restart hook: would it work, and would the server start again",
    "notify": "send a test message through a notifier",
    "probe": "check that the local watcher answers (a container's health check)",
    "check-config": "explain a configuration, or list all of its errors",
    "completion": "print the completion script of bash or zsh",
}


class Command(Protocol):
    """The interface of a module in vllm_watch/cli."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command, and return the exit status."""


def load(name: str) -> Command:
    """Import the module of a command."""
    gc.disable()  # saves an eighth of the import time
    try:
        _import_structlog_alone()
        module = importlib.import_module(f"vllm_watch.cli.{name.replace('-', '_')}")
    finally:
        gc.enable()
    return cast("Command", module)


def _import_structlog_alone() -> None:
    """Only tracebacks need rich, which is slow to import."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
