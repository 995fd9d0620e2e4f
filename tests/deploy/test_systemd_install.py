"""docs/install/bare-metal.md, followed as it stands: a service, two engines that it finds, their units, a test alert that arrives.

Its commands write into /etc, /opt and /usr/lib: so they run where those are layers of their own over this host's (a mount
namespace with overlays), with a `systemctl` that starts what the units say (host.py).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.daemon_process import ROOT
from tests.deploy.blocks import blocks

PAGE = ROOT / "docs/install/bare-metal.md"
HOWS = {"run as root", "run in the background", "run until", "add to /etc/vllm-watch/vllm-watch.yaml"}  # fmt: skip
ARRIVED = "PAGE test: INFO test: vllm-watch: test (test)"
INSTALL_SECONDS_MAX = 600
WRITTEN = ("/etc", "/opt", "/usr/lib/sysusers.d", "/var/lib")
# In the namespace: layers, the stand-ins, the page's commands, and what is to be seen afterwards.
SCRIPT = r"""
set -euo pipefail
layers=$1; shift
mount -t tmpfs -o mode=755 tmpfs "$layers"
for folder in "$@"; do
    mkdir -p "$layers$folder/upper" "$layers$folder/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$layers$folder/upper,workdir=$layers$folder/work" "$folder"
done
"$PYTHON" -m tests.deploy.host "$layers" prepare
export PATH=$layers/bin:/usr/bin:$PATH   # an environment of Debian's Python: any user may read it
bash -euo pipefail -c "$COMMANDS" >&2
as_service() { setpriv --reuid vllm-watch --regid vllm-watch --clear-groups "$@"; }
as_service test -r /etc/vllm-watch/vllm-watch.yaml
! as_service test -w /etc/vllm-watch/vllm-watch.yaml
! setpriv --reuid nobody --regid nogroup --clear-groups test -r /etc/vllm-watch/vllm-watch.yaml

/opt/vllm-watch/bin/python -m pip list --format json --disable-pip-version-check 2> /dev/null
ls -C /etc/systemd/system/vllm-watch.service.d
unshare --net --pid --fork --mount-proc "$PYTHON" -m tests.deploy.host "$layers"
bash -euo pipefail -c "$COMMANDS" >&2    # an upgrade
grep -q 'hook: unit' /etc/vllm-watch/vllm-watch.yaml
cp /bin/true /opt/vllm/bin/vllm
for unit in vllm-watch vllm@8000 vllm@8001; do systemd-analyze verify "$unit.service" >&2; done
cat "$layers/asked"
"""


def test_the_page_installs_a_service_that_finds_both_engines(tmp_path: Path) -> None:
    """Locked packages, the user, a configuration that it may read and not write, units that are sound, an alert."""
    assert {each.how for each in blocks(PAGE)} == HOWS
    tmp_path.chmod(0o755)
    namespaces = ["--mount"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    done = subprocess.run(
        ["unshare", *namespaces, "bash", "-c", SCRIPT, "bash", tmp_path, *WRITTEN], cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        | {"COMMANDS": blocks(PAGE)[0].text, "PYTHON": sys.executable}, capture_output=True, text=True,
        timeout=INSTALL_SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    listed, drop_ins, seen, *asked = done.stdout.splitlines()
    versions = {
        each["name"].lower().replace("_", "-"): each["version"] for each in json.loads(listed)
    }
    locked = (ROOT / "requirements-host.lock").read_text()
    for name in ("aiohttp", "textual", "apprise"):
        assert f"\n{name}=={versions[name]} " in locked
    assert "vllm-watch" in versions
    assert drop_ins.split() == ["10-gpus.conf", "20-processes.conf"]
    told = json.loads(seen)
    assert told["engines"] == [
        f"/usr/bin/python3 /opt/vllm/bin/vllm serve /srv/models/{model} --port {port}"
        for model, port in (("chat", 8000), ("embed", 8001))
    ]
    assert told["pager"][0].startswith("waiting for alerts")
    assert ARRIVED in told["pager"]
    assert '"event": "config_reloaded"' in told["watcher"] or "reload" in told["watcher"]
    assert asked[:3] == ["daemon-reload", "enable --quiet vllm-watch", "restart vllm-watch"]
    assert "enable --now vllm@8000.service vllm@8001.service" in asked
    assert asked[-1] == "restart vllm-watch"
