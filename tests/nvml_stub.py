"""A fake NVIDIA driver for tests: a real libnvidia-ml.so.1 built from C, scripted while it runs.

    stub = NvmlStub(tmp_path)
    stub.set_state(count=1, gpus={0: h200(processes={4711: 20 * 2**30})})
    subprocess.run([...], env=os.environ | stub.env())      # a process of its own; or, in this one:
    stub.load()

The state is replaced as a whole, at any time; `patch` changes parts of it. Keys are those named in
sources/nvml/stub/libnvidia-ml.c; a key that a GPU lacks is "not supported" there.
"""

import ctypes
import itertools
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "sources" / "nvml" / "stub" / "libnvidia-ml.c"
LIBRARY = "libnvidia-ml.so.1"
GIB = 2**30

_xid_serials = itertools.count(1)  # the library delivers each serial once in a process's life
_revisions = itertools.count(1)


def h200(index=0, processes=None, **changes):
    """A healthy H200: `processes` maps PID → bytes of VRAM; `changes` are keys of the state."""
    held = processes or {}
    keys = {
        "uuid": f"GPU-{index:08x}-0000-4000-8000-000000000000", "name": "NVIDIA H200",
        "memory_total": 141 * GIB, "memory_used": sum(held.values()) + GIB // 2, "memory_reserved": GIB,
        "compute": ",".join(f"{pid}:{used}" for pid, used in held.items()), "graphics": "", "mps": "",
        "utilization": 93, "temperature": 61, "fan": 30, "power": 512_500, "power_limit": 700_000,
        "sm_clock": 1755, "sm_clock_max": 1980, "clock_event_reasons": 0, "ecc_uncorrected": 0,
        "remapped_rows": "0:0:0:0", "mig_mode": 0, "mig_devices_max": 7,
    }  # fmt: skip
    return {key: value for key, value in (keys | changes).items() if value is not None}


class NvmlStub:
    """One built library and its script."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.state_path = self.folder / "nvml.state"
        self.state = {}

    def build(self):
        """Compile the library into the folder, once; its path."""
        library = self.folder / LIBRARY
        if not library.exists():
            building = library.with_suffix(".building")
            subprocess.run(
                ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                 f"-Wl,-soname,{LIBRARY}", "-o", str(building), str(SOURCE), "-lpthread"],
                check=True, timeout=600,
            )  # fmt: skip
            building.replace(library)
        return library

    def env(self):
        """The environment in which a new process finds this driver."""
        return {
            "LD_LIBRARY_PATH": str(self.build().parent),
            "NVML_STUB_STATE": str(self.state_path),
        }

    def load(self):
        """Make this driver the one of this process, for good: pynvml finds what is loaded already."""
        os.environ["NVML_STUB_STATE"] = str(self.state_path)
        library = ctypes.CDLL(str(self.build()))
        library.stub_calls.argtypes = [ctypes.c_char_p]
        return library

    def set_state(self, *, gpus=None, driver="580.65.06", **keys):
        """The whole truth from now on: `gpus` maps index → keys, other keys as they stand in the script.

        Dots are written as double underscores: hang__nvmlDeviceGetName=3 is "hang.nvmlDeviceGetName 3".
        """
        state = {"driver": driver, "count": len(gpus or {})}
        state |= {key.replace("__", "."): value for key, value in keys.items()}
        for index, fields in (gpus or {}).items():
            state |= {f"gpu.{index}.{key}": value for key, value in fields.items()}
        self._write(state)

    def patch(self, changes=None, **keys):
        """Change some keys; None takes one away."""
        changes = dict(changes or {}) | {
            key.replace("__", "."): value for key, value in keys.items()
        }
        state = self.state | changes
        self._write({key: value for key, value in state.items() if value is not None})

    def xid(self, gpu, code):
        """Queue one Xid event."""
        self.patch({f"xid.{next(_xid_serials)}": f"{gpu}:{code}"})

    def unload_driver(self):
        """The library stays, its driver is gone: initialising says "driver not loaded"."""
        self.state_path.unlink(missing_ok=True)

    def _write(self, state):
        lines = [f"{key} {value}".encode(errors="surrogateescape") for key, value in state.items()]
        lines.sort(key=lambda line: line.split(b" ", 1)[0])  # as C's strcmp orders keys
        new = self.state_path.with_suffix(".new")
        new.write_bytes(b"\n".join(lines) + b"\n")
        # The library looks at the time only, which within one tick of the clock would not change.
        stamp = 1_700_000_000_000_000_000 + next(_revisions)
        os.utime(new, ns=(stamp, stamp))
        new.replace(self.state_path)
        self.state = state


async def one(source):
    """The GPUs of one good reading."""
    reading = await source.read()
    assert (reading.status, reading.text) == ("ok", "")
    return reading.gpus
