"""A real vLLM that is started again whenever it ends, as systemd's Restart=always or Kubernetes would.

The supervisor is a shell's loop in the server's own process group, so that no orphan outlives a test.
"""

import time
from pathlib import Path

from tests.real_vllm.server import READY_SECONDS_MAX, RealVllm

PAUSE_SECONDS = 1.0  # from one end to the next start; systemd's RestartSec is 0.1 s

LOOP = """
flags=$1; shift
while :; do
    more=()
    [ -e "$flags" ] && mapfile -t more < "$flags"
    "$@" "${more[@]}"
    echo "supervisor: ended with $?"
    sleep $PAUSE
done
"""


class SupervisedVllm(RealVllm):
    """A server that somebody looks after."""

    def __init__(self, folder: Path, layout: str = "uni") -> None:
        super().__init__(folder, layout)
        self._more = folder / "flags"

    def _command(self) -> list[str | Path]:
        loop = LOOP.replace("$PAUSE", f"{PAUSE_SECONDS:g}")
        return ["bash", "-c", loop, "supervisor", self._more, *super()._command()]

    def starts_with(self, *flags: str) -> None:
        """From its next start on it has these flags, too; the last of a kind holds."""
        self._more.write_text("".join(f"{flag}\n" for flag in flags))

    def ends(self) -> int:
        """How often a process of it has ended so far."""
        return self.log.read_bytes().count(b"supervisor: ended with")

    def wait_new(self) -> None:
        """Return once other processes than were last known serve; they are those that are known then."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            now = self.processes()
            new = not set(now.values()) & set(self._pids.values())
            if new and len(now) == len(self._pids) and self.answers():
                self._pids = now
                return
            time.sleep(0.25)
        raise TimeoutError(f"no new processes serve:\n{self.log_tail()}")
