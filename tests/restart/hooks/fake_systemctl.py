"""A systemctl for machines without systemd: units in a JSON file, systemd 252's output and exit statuses.

Its file: {"units": {NAME: {property: value}}, "refuse": {"status": n, "text": …}, "seconds": until a restart is done}
"""

import json
import os
import sys
import time
from pathlib import Path

ABSENT = {
    "LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead", "Result": "success",
    "MainPID": "0", "NRestarts": "0", "Restart": "no", "InvocationID": "", "ControlGroup": "", "CanStart": "no",
}  # fmt: skip


def main():
    file = Path(__file__).parent / "systemd.json"
    state = json.loads(file.read_text())
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    with (file.parent / "asked").open("a") as asked:
        asked.write(" ".join(sys.argv[1:]) + "\n")
    if state.get("dead"):
        print(
            "System has not been booted with systemd as init system (PID 1). Can't operate.",
            file=sys.stderr,
        )
        print("Failed to connect to bus: Host is down", file=sys.stderr)
        return 1
    verb, unit = words
    if verb == "show":
        [wanted] = [word for word in sys.argv if word.startswith("--property=")]
        said = ABSENT | state["units"].get(unit, {})
        for key in wanted.removeprefix("--property=").split(","):
            print(f"{key}={said[key]}")
        return 0
    refuse = state.get("refuse")
    if refuse:
        print(refuse["text"], file=sys.stderr)
        return refuse["status"]
    if "seconds" in state and os.fork() == 0:
        time.sleep(state["seconds"])
        state["units"][unit] |= {"InvocationID": "b" * 32, "MainPID": "4712"}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.rename(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
