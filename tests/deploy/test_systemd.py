"""The units for systemd: sound, shut, and with command lines that work. No systemd runs here.

systemd-analyze reads them as systemd would, from a root folder of their own; what they start is started
as they say, with paths of the host mapped into a temporary folder.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from tests.daemon_process import ROOT, daemon
from tests.nvml_stub import NvmlStub, h200
from tests.support.test_service_manager import systemd

UNITS = ROOT / "deploy/systemd"
DROP_INS = sorted(path.name for path in (UNITS / "vllm-watch.service.d").iterdir())
EXPOSURE_MAX = 3.0
# The kernel refuses memory that is both written and run, as MemoryDenyWriteExecute does (PR_SET_MDWE, since
# Linux 6.3; before, this proves nothing). The driver's library is called through ctypes, which may want such.
SHUT = """
import ctypes, sys
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)
from vllm_watch.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host's root with the units, systemd's own and the programs that they start."""
    units = tmp_path / "etc/systemd/system"
    shutil.copytree(UNITS, units)
    for folder in ("vllm-watch.service.d", "vllm@.service.d"):
        for example in (units / folder).glob("*.example"):
            example.rename(example.with_suffix(""))
    shutil.copytree("/lib/systemd/system", tmp_path / "usr/lib/systemd/system", symlinks=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    for port in (8000, 8001):
        (tmp_path / "etc/vllm").mkdir(exist_ok=True)
        (tmp_path / f"etc/vllm/{port}.env").write_text("VLLM_ARGUMENTS=/srv/models/model\n")
    for program in ("opt/vllm-watch/bin/vllm-watch", "opt/vllm/bin/vllm", "bin/kill"):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", tmp_path / program)
    return tmp_path


def analyze(root: Path, *arguments: str) -> tuple[int, str]:
    """(exit status, all that it says) of systemd-analyze."""
    done = subprocess.run(
        ["systemd-analyze", f"--root={root}", "--no-pager", *arguments],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def exposure(root: Path) -> float:
    _, said = analyze(root, "security", "--offline=true", "vllm-watch.service")
    found = re.search(r"exposure level for vllm-watch.service: ([\d.]+)", said)
    assert found, said
    return float(found[1])


def service(file: Path) -> dict[str, list[str]]:
    """The keys of [Service], each with all its values."""
    values: dict[str, list[str]] = {}
    section = ""
    for line in file.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif "=" in line and section == "[Service]" and line[0] not in "#;":
            key, _, value = line.partition("=")
            values.setdefault(key, []).append(value)
    return values


@pytest.mark.parametrize("unit", ["vllm-watch.service", "vllm@8000.service"])
def test_unit_is_sound_with_all_its_drop_ins(root: Path, unit: str) -> None:
    """systemd has nothing to say against it: not even a warning of a key that it does not know."""
    assert analyze(root, "verify", unit) == (0, "")


CHOICES = [kept for count in (0, 1, len(DROP_INS)) for kept in combinations(DROP_INS, count)]


@pytest.mark.parametrize("kept", CHOICES, ids=lambda kept: "+".join(kept) or "none")
def test_service_stays_shut_with_each_drop_in(root: Path, kept: tuple[str, ...]) -> None:
    """Below 3.0 of 10 by systemd's own count, whatever is opened for a purpose."""
    for name in {*DROP_INS} - {*kept}:
        (root / "etc/systemd/system/vllm-watch.service.d" / name.removesuffix(".example")).unlink()
    found = exposure(root)
    print(f"exposure {found} with {', '.join(kept) or 'no drop-in'}")
    assert found < EXPOSURE_MAX


async def test_it_starts_as_the_unit_says_and_tells_systemd(tmp_path: Path) -> None:
    """ExecStart's very arguments with the configuration that is shipped: READY, a beat, SIGHUP, SIGTERM."""
    unit = service(UNITS / "vllm-watch.service")
    program, command, *arguments = shlex.split(unit["ExecStart"][0])
    assert (program, command) == ("/opt/vllm-watch/bin/vllm-watch", "run")
    config = (UNITS / "vllm-watch.yaml").read_text().replace("127.0.0.1:9470", "127.0.0.1:0")
    (tmp_path / "etc/vllm-watch").mkdir(parents=True)
    (tmp_path / "etc/vllm-watch/vllm-watch.yaml").write_text(config)
    (tmp_path / "var/lib/vllm-watch").mkdir(parents=True)
    arguments = [f"{tmp_path}{each}" if each.startswith("/") else each for each in arguments]
    watchdog = {"WATCHDOG_USEC": f"{int(unit['WatchdogSec'][0])}000000"}
    assert (unit["Type"], unit["NotifyAccess"]) == (["notify"], ["main"])
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    with systemd(tmp_path) as (bound, environ):
        async with daemon(*arguments, environ=watchdog | environ) as process:
            await bound.until("READY=1")
            await bound.until("WATCHDOG=1")
            process.process.send_signal(signal.SIGHUP)
            await bound.until("RELOADING=1")
            assert await process.end() == 0
            await bound.until("STOPPING=1")
    assert (tmp_path / "var/lib/vllm-watch/vllm-watch.sqlite").exists()


async def test_a_watchdogs_end_says_where_it_hung() -> None:
    """systemd ends with SIGABRT what does not beat; Python then writes every thread's stack."""
    environ = dict(
        each.split("=", 1) for each in service(UNITS / "vllm-watch.service")["Environment"]
    )
    for _ in range(3):
        async with daemon(environ=environ) as process:
            ended = await process.end(signal.SIGABRT)
        if ended != -signal.SIGSEGV:  # CPython reads the stacks of threads that run on meanwhile
            break
    assert ended == -signal.SIGABRT
    said = "".join(line.get("text", "") for line in process.lines)
    assert "Fatal Python error: Aborted" in said
    assert re.search(r'File ".+", line \d+ in ', said)


def test_gpus_are_read_without_memory_that_is_written_and_run(tmp_path: Path) -> None:
    """MemoryDenyWriteExecute holds for the driver's library, too."""
    stub = NvmlStub(tmp_path)
    stub.build()
    stub.set_state(gpus={0: h200(0)})
    done = subprocess.run(
        [sys.executable, "-c", SHUT, "gpus", "--json"], cwd=ROOT, env=os.environ | stub.env(),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert '"NVIDIA H200"' in done.stdout, done.stderr


def test_the_user_is_made(tmp_path: Path) -> None:
    """systemd-sysusers makes the user that the unit runs as, with no shell."""
    (tmp_path / "etc").mkdir()
    file = UNITS / "vllm-watch.sysusers"
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", file], check=True, timeout=600)
    users = [line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines()]
    (user,) = service(UNITS / "vllm-watch.service")["User"]
    assert [(name, shell) for name, *_, shell in users if name == user] == [
        (user, "/usr/sbin/nologin")
    ]


UNIT_NAMES = (
    "vllm@8000.service", "vllm@8001.service", "vllm.service", "vllm@.service", "vllm@x.service", "xvllm@8000.service", "vllm@8000.service.d",
    "vllm@8000xservice", "sshd.service", "vllm-watch.service", "vllm@8000.service\nsshd.service",
)  # fmt: skip


def test_polkits_rule_is_the_one_in_the_docs() -> None:
    """One right, for the units of one template, one verb and one user."""
    rule = (UNITS / "50-vllm-watch.rules").read_text().partition("\n")[2].strip()
    page = (ROOT / "docs/hooks/systemd.md").read_text()
    assert f"```js\n{rule}\n```" in page
    assert {'"vllm-watch"', '"restart"'} <= set(re.findall(r'"[^"]+"', rule))
    [pattern] = re.findall(r"/(\^.+\$)/\.test\(action\.lookup\(\"unit\"\)\)", rule)
    assert [name for name in UNIT_NAMES if re.search(pattern, name)] == ["vllm@8000.service", "vllm@8001.service"]  # fmt: skip


def test_restarts_do_not_race() -> None:
    """systemd's own restart and the hook's never overlap: the unit stops well within the hook's patience."""
    from vllm_watch.settings.hooks import SystemdHook  # noqa: PLC0415 - the only test that needs it

    unit = service(UNITS / "vllm@.service.d/00-vllm-watch.conf")
    assert unit["Restart"] == ["always"]
    assert unit["KillMode"] == ["mixed"]
    hook = SystemdHook(name="x", unit="vllm@{port}.service")
    assert float(unit["TimeoutStopSec"][0]) < hook.timeout_seconds
