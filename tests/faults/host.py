"""A host that fails around a daemon: clocks that are set, a name server that goes, a process that is held up."""

import mmap
import os
import signal
import struct
import subprocess
import threading
import time
from pathlib import Path

SOURCE = Path(__file__).parent / "host.c"
NANO = 1_000_000_000
NAME = "engine.test"


class Host:
    """What one daemon runs on. `environ` makes a process live there."""

    def __init__(self, folder: Path):
        library, clocks = folder / "host.so", folder / "clocks"
        built = subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        assert built.returncode == 0, built.stderr
        self._names, self._disk = folder / "names", folder / "disk"
        clocks.write_bytes(struct.pack("<qq", 0, 0))
        with clocks.open("r+b") as file:
            self._clocks = mmap.mmap(file.fileno(), 16)
        self.environ = {
            "LD_PRELOAD": str(library), "HOST_CLOCKS": str(clocks), "HOST_NAMES": str(self._names),
            "HOST_DISK": str(self._disk),
        }  # fmt: skip
        self.resolve(answers=True)

    def step(self, unix_s=0.0, monotonic_s=0.0):
        """Set the clocks by so much. Both: so long nothing ran at all."""
        unix, monotonic = struct.unpack("<qq", self._clocks)
        moved = (unix + int(unix_s * NANO), monotonic + int(monotonic_s * NANO))
        self._clocks[:] = struct.pack("<qq", *moved)

    def resolve(self, *, answers):
        """Let the name server answer, or fail."""
        if answers:
            self._names.write_text("127.0.0.1\n")
        else:
            self._names.unlink(missing_ok=True)

    def slow_disk(self, seconds):
        """Each flush of the state file takes so many seconds more."""
        self._disk.write_text(str(seconds))

    def close(self):
        self._clocks.close()


class Starved:
    """While it is open, a process runs for `on_s` out of every `of_s` seconds: stopped and continued."""

    def __init__(self, pid, on_s, of_s):
        self._pid, self._on_s, self._off_s = pid, on_s, of_s - on_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rounds = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join(30)
        os.kill(self._pid, signal.SIGCONT)

    def _run(self):
        while not self._ended.is_set():
            os.kill(self._pid, signal.SIGSTOP)
            self._ended.wait(self._off_s)
            os.kill(self._pid, signal.SIGCONT)
            time.sleep(self._on_s)
            self.rounds += 1
