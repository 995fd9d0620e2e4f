"""The command hook runs real commands here: every machine we support has /bin/sh."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.restart.hooks.calls import CALL, alive, call, gone, until
from vllm_watch.restart.hooks import base, child, command
from vllm_watch.settings.hooks import CommandHook

# A daemon as daemons are made: two forks, a session of its own, and nothing of its parents' kept open.
DAEMON = (
    "setsid /bin/sh -c 'setsid sleep 300 & echo $! > {0}; exec sleep 300' & echo $! > {0}.first"
)


def hook(script, *, timeout_seconds=20.0, environ=None, **more):
    settings = CommandHook(
        name="a", argv=("/bin/sh", "-c", script), timeout_seconds=timeout_seconds, **more
    )
    tools = base.Tools() if environ is None else base.Tools(environ=environ)
    return command.Hook(settings, tools)


async def run(script, **more):
    return await hook(script, **more).restart(CALL)


@pytest.mark.parametrize(
    ("script", "outcome", "text"),
    [
        ("exit 0", "done", "/bin/sh ended with status 0"),
        ("echo busy; exit 75", "failed", "/bin/sh ended with status 75: try again later: busy"),
        ("echo no such unit >&2; exit 5", "uncertain", "/bin/sh ended with status 5: no such unit"),
        ("kill -9 $$", "uncertain", "/bin/sh was killed by signal 9"),
        ("kill -9 $PPID; sleep 30", "uncertain", "the exit status of /bin/sh is unknown"),
        ("echo api_key=hunter2; exit 1", "uncertain", "/bin/sh ended with status 1: api_key=[hidden]"),
    ],
)  # fmt: skip
async def test_status_is_the_outcome(script, outcome, text):
    """0 is done; 75 did nothing and may be tried again; whatever else may have acted."""
    result = await run(script)
    assert (result.outcome, result.text) == (outcome, text)


async def test_command_is_told_everything_and_sees_nothing_else(tmp_path):
    """Its environment is what was allowed, and the call; what else we know may be a secret. The kernel takes no NUL."""
    environ = {"PATH": os.environ["PATH"], "HOME": "/h", "SECRET": "s", "TZ": "UTC"}
    script = f"exec {sys.executable} -I -c 'import os, json; print(json.dumps(dict(os.environ)))' > {tmp_path}/told"
    asking = hook(script, environ=environ, environment=("HOME", "TZ", "ABSENT"))
    assert (await asking.restart(call(reason="a\0b"))).outcome == "done"
    told = json.loads((tmp_path / "told").read_text())
    for by_the_shell_or_python in ("PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"):
        told.pop(by_the_shell_or_python, None)
    assert told == {"HOME": "/h", "TZ": "UTC"} | call(reason="a b").environment()
    assert (told["VLLM_WATCH_REASON"], told["VLLM_WATCH_POD"]) == ("a b", "")


async def test_flood_of_output_is_bounded(tmp_path):
    """Who writes faster than anybody looks meets an error of writing, and takes no more memory; of the rest the end is kept."""
    script = f"head -c 200000000 /dev/zero; echo $? > {tmp_path}/status; exit 1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "_POLL_SECONDS", 20.0)
        result = await run(script)
    assert result.outcome == "uncertain"
    assert (tmp_path / "status").read_text() == "1\n"


@pytest.mark.parametrize("stopped", ["timeout", "cancelled"])
async def test_nothing_is_left_of_what_was_ended(tmp_path, stopped):
    """At the timeout, and when vllm-watch stops, its children go too: those that made themselves daemons, and those that ignore SIGTERM."""
    script = f"trap '' TERM; sleep 300 & echo $! > {tmp_path}/child; {DAEMON.format(tmp_path / 'daemon')}; wait"
    files = [tmp_path / name for name in ("child", "daemon", "daemon.first")]
    seconds = 3.0 if stopped == "timeout" else 60.0
    running = asyncio.create_task(run(script, timeout_seconds=seconds))
    assert await asyncio.to_thread(until, lambda: all(f.exists() and f.read_text() for f in files))
    pids = [int(file.read_text()) for file in files]
    assert all(alive(pid) for pid in pids)
    if stopped == "timeout":
        result = await running
        assert (result.outcome, result.text) == (
            "uncertain", "/bin/sh was ended after 3s with all its children",
        )  # fmt: skip
    else:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [pid for pid in pids if alive(pid)] == []


async def test_command_ends_with_a_watcher_that_is_killed(tmp_path):
    """kill -9 of vllm-watch leaves no command behind that goes on unbounded."""
    code = (
        "import asyncio\nfrom vllm_watch.restart.hooks import child\n"
        f"argv = ('/bin/sh', '-c', 'sleep 300 & echo $! > {tmp_path}/pid; wait')\n"
        "asyncio.run(child.run(argv, {'PATH': '/bin:/usr/bin'}, 60))\n"
    )
    root = Path(__file__).parents[3]
    watcher = subprocess.Popen([sys.executable, "-c", code], cwd=root)
    try:
        file = tmp_path / "pid"
        assert await asyncio.to_thread(until, lambda: file.exists() and file.read_text())
    finally:
        watcher.send_signal(signal.SIGKILL)
        watcher.wait(10)
    assert await asyncio.to_thread(gone, int(file.read_text()))


async def test_what_a_command_leaves_running_lives_on(tmp_path):
    """A script that starts vLLM in the background returns when the script does, and vLLM can still write."""
    script = f"(echo began; sleep 1; echo more && touch {tmp_path}/wrote; exec sleep 300) & echo $! > {tmp_path}/pid"
    result = await run(script, timeout_seconds=60)
    pid = int((tmp_path / "pid").read_text())
    try:
        assert result.outcome == "done"
        assert await asyncio.to_thread(until, (tmp_path / "wrote").exists)
        assert alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_command_has_no_input_and_no_descriptor_of_ours(tmp_path):
    """It reads an end of file, also where vllm-watch has an input, and none of our files is open in it."""
    (tmp_path / "ours").write_text("typed by somebody")
    kept = os.dup(0)
    try:
        with (tmp_path / "ours").open() as ours:
            os.dup2(ours.fileno(), 0)
            os.set_inheritable(ours.fileno(), True)
            result = await run("cat; ls -l /proc/self/fd; exit 1")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert result.outcome == "uncertain"
    assert "typed" not in result.text
    assert "ours" not in result.text
    assert "pipe:" not in result.text
    assert "/dev/null" in result.text


async def test_vllm_watch_can_be_run_by_a_hook(tmp_path):
    """What a hook is told does not keep `vllm-watch` from reading its own configuration."""
    told, config = os.environ | CALL.environment(), tmp_path / "empty.yaml"
    config.touch()
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", "check-config", config],
        env=told, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


async def test_what_is_left_of_its_processes_is_told(monkeypatch):
    async def run(argv, environment, seconds):
        assert (argv[0], seconds) == ("/bin/sh", 20.0)
        return child.Ended(timed_out=True, left=2, tail="busy")

    monkeypatch.setattr(child, "run", run)
    result = await hook("").restart(CALL)
    assert (result.outcome, result.text.partition("; ")[2]) == (
        "uncertain", "2 of its processes could not be ended: busy",
    )  # fmt: skip


async def test_rehearsal_runs_nothing(tmp_path):
    """It looks at the program and says who starts the server again; who would not is refused."""
    findings = await hook(f"touch {tmp_path}/ran").rehearse(CALL)
    assert [finding.ok for finding in findings] == [True, True]
    assert "relaunches: true" in findings[1].text
    assert not (tmp_path / "ran").exists()
    assert await hook("").refusal(CALL) is None
    nobody = call(url="http://127.0.0.1:1", process_start_time=1.0)
    assert "no vLLM server was found on port 1" in await hook("", relaunches=False).refusal(nobody)
