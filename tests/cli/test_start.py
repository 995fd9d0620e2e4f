"""What a start loads: a sidecar starts often, and what no configuration asks for is not loaded."""

import os
import subprocess
import sys

import pytest

from tests.warm_starts import COLD
from vllm_watch.cli.helpers.commands import COMMANDS

PATIENCE_SECONDS = 120.0

# What `vllm-watch run` of one target does not load → what asks for it.
NOT_LOADED = {
    "vllm_watch.restart.restarts": "restarts, or operators who may ask: daemon.py",
    "apscheduler.schedulers": "restarts have a schedule",
    "vllm_watch.notify.notifications": "a notifier: notify/switch.py",
    "apprise": "a notifier of that kind",
    "vllm_watch.clients.kubernetes": "discovery.kubernetes: discovery/targets.py",
    "vllm_watch.diagnosis": "a log of the engine: sources/engine_log.py",
    "pynvml": "a driver: it is loaded in NVML's own thread",
    "vllm_watch.capacity": "a command of its own",
    "vllm_watch.preflight": "a command of its own",
    "vllm_watch.lab": "the demo",
    "textual": "top",
    "numpy": "nothing of ours",
}

# An engine in a thread of the same process, so that what is loaded can be seen the moment it is asked.
ASKED = """
import os, socket, sys, threading
from vllm_watch.__main__ import main

engine = socket.create_server(("127.0.0.1", 0))

def asked():
    engine.accept()
    print(*sorted(sys.modules), sep="\\n", flush=True)
    os._exit(0)

threading.Thread(target=asked, daemon=True).start()
url = f"http://127.0.0.1:{engine.getsockname()[1]}"
sys.exit(main(["run", "--target", f"one={url}", "--listen", "127.0.0.1:0"]))
"""


def python(code):
    """What a Python of its own prints, without any setting of ours around it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, env=environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_what_nobody_asks_for_is_not_loaded():
    """When the engine is first asked, what judges it is there, and what only others need is not."""
    loaded = python(ASKED).split()
    assert {"vllm_watch.detectors.engine_down", "vllm_watch.export.server"} <= set(loaded)
    found = [
        (name, asks)
        for name, asks in NOT_LOADED.items()
        if any(each == name or each.startswith(f"{name}.") for each in loaded)
    ]
    assert not found, "python -X importtime -m vllm_watch run shows who loads it"


def test_every_command_can_be_loaded_without_the_extras():
    """textual, the rich that it brings, and apprise need not be installed."""
    modules = [f"vllm_watch.cli.{name.replace('-', '_')}" for name in COMMANDS]
    python(
        "import importlib, sys\n"
        "sys.modules |= dict.fromkeys(('apprise', 'rich', 'textual'))\n"
        f"for name in {modules}: importlib.import_module(name)\n"
    )


def test_garbage_is_looked_for_rarely_and_still_is():
    """The looks of a moment hold more than Python's 700 new objects, and leave hardly any."""
    said = python(
        "import gc\n"
        "from vllm_watch.cli import run\n"
        "run.collect_rarely()\n"
        "collections = lambda: sum(each['collections'] for each in gc.get_stats())\n"
        "gc.collect()\n"
        "before = collections()\n"
        "kept = [[] for _ in range(15_000)]\n"
        "print(collections() - before)\n"
        "kept += [[] for _ in range(15_000)]\n"
        "print(collections() - before)\n"
    )
    assert said.split() == ["0", "1"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_starts_by_itself(command):
    """Most tests fork theirs from a process that has imported all of them: this one does not."""
    ended = subprocess.run(
        [*COLD, command, "--help"], check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"usage: vllm-watch {command}")
