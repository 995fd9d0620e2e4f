"""Runs modules of these tests in namespaces of their own, where ports, paths and names are as pages and examples have them."""

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

FRESH = {"etc", "opt", "var"}  # of the host's, these are not shown: volumes are mounted below them
OF_ETC = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "localtime", "ssl", "alternatives")


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


def bind(source: Path | str, target: Path) -> None:
    source = Path(source)
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    subprocess.run(["mount", "--rbind", source, target], check=True, timeout=600)


def make_host(root: Path, names: Iterable[str]) -> None:
    """The host's programs, seen from a root in which /etc, /opt and /var are its own, and these names are this host's."""
    root.mkdir(parents=True)
    for entry in Path("/").iterdir():
        if entry.is_symlink():
            (root / entry.name).symlink_to(entry.readlink())
        elif entry.is_dir() and entry.name not in FRESH:
            bind(entry, root / entry.name)
    for name in OF_ETC:
        if (Path("/etc") / name).exists():
            bind(Path("/etc") / name, root / "etc" / name)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {' '.join(sorted(names))}\n")
