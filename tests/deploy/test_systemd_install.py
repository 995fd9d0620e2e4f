"""The commands of docs/install/bare-metal.md, run as they stand: a service that could start, and a test alert that arrives.

They write into /etc, /opt and /usr/lib: so they run where those are layers of their own over this host's (a mount
namespace with overlays), with a `systemctl` that only notes what it is asked for.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.daemon_process import ROOT
from tests.deploy.blocks import blocks

PAGE = ROOT / "docs/install/bare-metal.md"
STEPS = ("add to /etc/vllm-watch/vllm-watch.yaml", "run in the background", "run until")
ARRIVED = "PAGE test: INFO test: vllm-watch: test (test)"
INSTALL_SECONDS_MAX = 600
WRITTEN = ("/etc", "/opt", "/usr/lib/sysusers.d", "/var/lib")
# In the namespace: layers, the stand-in, the page's commands, and what is to be seen afterwards.
SCRIPT = r"""
set -euo pipefail
mapfile -t STEPS <<< "$STEPS"
layers=$1; shift
mount -t tmpfs tmpfs "$layers"
for folder in "$@"; do
    mkdir -p "$layers$folder/upper" "$layers$folder/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$layers$folder/upper,workdir=$layers$folder/work" "$folder"
done
mkdir "$layers/bin"
printf '#!/bin/sh\necho "$@" >> %s/asked\n' "$layers" > "$layers/bin/systemctl"
chmod +x "$layers/bin/systemctl"
PATH=$layers/bin:$PATH bash -euo pipefail -c "$COMMANDS" >&2
systemd-analyze verify /etc/systemd/system/vllm-watch.service >&2
as_service() { setpriv --reuid vllm-watch --regid vllm-watch --clear-groups "$@"; }
as_service test -r /etc/vllm-watch/vllm-watch.yaml
! as_service test -w /etc/vllm-watch/vllm-watch.yaml
! setpriv --reuid nobody --regid nogroup --clear-groups test -r /etc/vllm-watch/vllm-watch.yaml
/opt/vllm-watch/bin/vllm-watch check-config /etc/vllm-watch/vllm-watch.yaml >&2
/opt/vllm-watch/bin/python -m pip list --format json --disable-pip-version-check 2> /dev/null
ls /etc/systemd/system/vllm-watch.service.d
cat "$layers/asked"
mkdir "$layers/home"
PATH=$layers/bin:$PATH ALONE=1 unshare --net "$PYTHON" -m tests.deploy.follow docs/install/bare-metal.md "$layers/home" "${STEPS[@]}" >&2
as_service test -r /etc/vllm-watch/vllm-watch.yaml
cat "$layers/home/background.log"
"""


def test_the_page_installs_a_service(tmp_path: Path) -> None:
    """Locked packages, the user, a configuration that it may read and not write, units that are sound, an alert."""
    assert {each.how for each in blocks(PAGE)} == {"run as root", *STEPS}
    (block,) = [block for block in blocks(PAGE) if block.how == "run as root"]
    namespaces = ["--mount"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    done = subprocess.run(
        ["unshare", *namespaces, "bash", "-c", SCRIPT, "bash", tmp_path, *WRITTEN], cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        | {"COMMANDS": block.text, "PYTHON": sys.executable, "STEPS": "\n".join(STEPS)}, capture_output=True, text=True,
        timeout=INSTALL_SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    listed, *rest = done.stdout.splitlines()
    versions = {
        each["name"].lower().replace("_", "-"): each["version"] for each in json.loads(listed)
    }
    locked = (ROOT / "requirements.lock").read_text()
    assert f"aiohttp=={versions['aiohttp']} " in locked
    assert "vllm-watch" in versions
    assert rest[:5] == [
        "10-gpus.conf", "20-processes.conf",
        "daemon-reload", "enable --now vllm-watch", "status vllm-watch",
    ]  # fmt: skip
    assert rest[5].startswith("waiting for alerts")
    assert rest[6] == ARRIVED
