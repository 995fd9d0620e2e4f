"""Pages of docs, followed as a new user would from an empty home: what they say to type works, and shows what it says.

The commands of docs/install/bare-metal.md write into /etc, /opt and /usr/lib: so they run where those are layers of their own
over this host's (a mount namespace with overlays), with a `systemctl` that starts what the units say (host.py).
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon_process import ROOT
from tests.deploy.alone import alone
from tests.deploy.reader import blocks
from vllm_watch import __version__

STARTED, INSTALLED, SERVICE = (
    ROOT / "docs" / name for name in ("getting-started.md", "install.md", "install/bare-metal.md")
)
HERE = {"run"}  # those install, and need an index of packages
ALONE = {"run in the background", "run until"}  # those serve, on the port that the page says
HOWS = {
    STARTED: HERE | ALONE | {"run on a screen", "add to /etc/prometheus/prometheus.yml"},
    INSTALLED: HERE | ALONE,
    SERVICE: ALONE | {"run as root", "add to /etc/vllm-watch/vllm-watch.yaml"},
}
WALK_SECONDS_MAX = 1800
INSTALL_SECONDS_MAX = 600


@pytest.mark.parametrize("page", HOWS, ids=lambda page: page.name)
def test_every_command_is_tried(page: Path) -> None:
    """Each block says how it is run."""
    assert {block.how for block in blocks(page)} == HOWS[page]
    assert len(blocks(page)) == page.read_text().count("\n```") / 2


def test_getting_started_works_from_an_empty_home(clone: Path) -> None:
    """Install, the demo, an alert in a Prometheus that was there, an engine: every step as it stands."""
    home, page = clone.parent / "home", STARTED.relative_to(ROOT)
    home.mkdir()
    reader = "tests.deploy.reader"
    (installed,) = alone(clone, reader, "begin", page, home, kinds=(), seconds=WALK_SECONDS_MAX)
    assert re.search(r"^vllm-watch \d", installed, re.MULTILINE)
    said = alone(clone, reader, "walk", page, home, seconds=WALK_SECONDS_MAX, environ={"ALONE": "1"})  # fmt: skip
    assert len(said) == len(blocks(STARTED)[1:])


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of somebody who has uv and pipx."""
    folder = tmp_path_factory.mktemp("tools")
    install = ["install", "--quiet", "--no-compile", "uv", "pipx"]
    for command in (
        ["venv", "--without-pip", folder],
        ["pip", "--python", folder / "bin/python", *install],
    ):
        subprocess.run([sys.executable, "-m", *command], check=True, timeout=INSTALL_SECONDS_MAX)
    return folder / "bin"


def test_the_page_installs_by_pip_uv_and_pipx(
    clone: Path, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wheel, every way to install it, with extras, and to take it away again; then it serves and says that it lives."""
    for name in list(os.environ):
        if name.startswith(("VIRTUAL_ENV", "UV_", "PIPX_", "XDG_")):
            monkeypatch.delenv(name)
    own = {"PATH": f"{tools}:{os.environ['PATH']}", "UV_PYTHON_DOWNLOADS": "never", "PIP_COMPILE": "0"}  # fmt: skip
    follow = ("tests.deploy.reader", "follow", INSTALLED.relative_to(ROOT), tmp_path)
    said = alone(clone, *follow, *HERE, kinds=(), environ=own)
    versions = sum(f"\nvllm-watch {__version__}\n" in f"\n{each}" for each in said)
    assert versions == 3  # pip, uv, pipx
    assert not (tmp_path / ".local/bin/vllm-watch").exists()
    assert len(alone(clone, *follow, *ALONE, kinds=["net"], environ=own | {"ALONE": "1"})) == 2


ARRIVED = "PAGE test: INFO test: vllm-watch: test (test)"
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
    tmp_path.chmod(0o755)
    namespaces = ["--mount"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    done = subprocess.run(
        ["unshare", *namespaces, "bash", "-c", SCRIPT, "bash", tmp_path, *WRITTEN], cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        | {"COMMANDS": blocks(SERVICE)[0].text, "PYTHON": sys.executable}, capture_output=True, text=True,
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
