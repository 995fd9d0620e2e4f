"""Runs modules of these tests in namespaces of their own, where ports and paths are as pages have them."""

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def alone(cwd: Path, module: str, *arguments: object, kinds: Iterable[str] = ("mount", "net"),
          seconds: float = 600, environ: Mapping[str, str] | None = None) -> Any:  # fmt: skip
    """What a module that is run in such namespaces prints, read as JSON; in this host's own without `kinds`."""
    namespaces = [f"--{each}" for each in kinds]
    unshare = ["unshare", *namespaces, *(["--user", "--map-root-user"] if os.geteuid() else [])]
    own = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "PYTHON"))}
    done = subprocess.run(
        [*(unshare if namespaces else []), sys.executable, "-m", module, *map(str, arguments)], cwd=cwd,
        env=own | (environ or {}), capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout)


def loopback_up() -> None:
    """A new network namespace has a loopback that is down (SIOCSIFFLAGS: up and running)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
