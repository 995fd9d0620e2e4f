"""What hooks are told in these tests, processes that outlive no test, and a systemctl."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from vllm_watch.restart.hooks.base import HookCall

CALL = HookCall(
    attempt_id="2026-11-21-1",
    target="llama",
    url="http://127.0.0.1:8000",
    group="llama",
    trigger="incident",
    reason="engine 0 has made no token for 60 s",
    engine="0",
    incident_id="7",
    kind="engine_stalled",
    cause="hung",
)


def call(**changed) -> HookCall:
    return replace(CALL, **changed)


def alive(pid: int) -> bool:
    """Does the process run? A zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Wait for the process to end; return whether it has."""
    return until(lambda: not alive(pid), seconds)


def until(holds, seconds: float = 20.0) -> bool:
    """Wait until it holds; return whether it does."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def started(pid: int) -> float:
    """When the process started, in Unix seconds, as vLLM's own metrics say it."""
    with open("/proc/stat") as file:
        boot = next(float(line.split()[1]) for line in file if line.startswith("btime "))
    with open(f"/proc/{pid}/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def systemctl(folder: Path, units: dict, **state) -> None:
    """Put a systemctl that knows these units into the folder (fake_systemctl.py)."""
    program = folder / "systemctl"
    fake = Path(__file__).parent / "fake_systemctl.py"
    program.write_text(f"#!{sys.executable} -IS\n" + fake.read_text())
    program.chmod(0o755)
    (folder / "systemd.json").write_text(json.dumps({"units": units} | state))
