"""What stands for a container here: a PID namespace with a /proc of its own, in which probes are run."""

import subprocess
from pathlib import Path

from tests.restart.hooks.calls import started, until

RUN_SECONDS = (
    60.0  # a machine that runs other tests at the same time; a probe itself takes milliseconds
)


class Container:
    """One process that poses as an engine, the first of its namespace as in a pod."""

    def __init__(self):
        self._outer = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "1000"]
        )
        assert until(lambda: self._first() is not None)
        self.pid = self._first()
        self.started = started(self.pid)

    def _first(self):
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text()
        for pid in children.split():
            if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                return int(pid)
        return None

    def execute(self, command):
        """Run it inside, as an exec probe is; return its exit status."""
        inside = ["nsenter", "--target", str(self.pid), "--pid", "--mount", *command]
        done = subprocess.run(inside, capture_output=True, timeout=RUN_SECONDS, check=False)
        return done.returncode

    def end(self):
        """The container ends."""
        self._outer.kill()  # --kill-child: its child goes with it
        self._outer.wait()
