"""`vllm-watch gpus`: the same judgement of a recording and of this host, as a table and as JSON."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.nvml_stub import GIB, NvmlStub, h200
from tests.signals.holders.series import POD, T, core, gpu, kernel, process
from vllm_watch.__main__ import main
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.sources.trace_line import to_line

REFUSED = Call(outcome="refused", error="Connect call failed", latency_s=0.001)


def orphaned(second):
    """A core whose parent dies after a minute, and an idle kernel beside it."""
    key = process(9, "python3", "-m", "http.server", "--api-key", "sk-secret", cgroup=POD, gib=1)
    return gpu(core(ppid=4700 if second < 60 else 1, gib=50), kernel(), key)


@pytest.fixture
def trace(tmp_path):
    """Four minutes of looks at a host whose server is gone; one look has no GPUs."""
    path = tmp_path / "orphan.jsonl"
    lines = []
    for second in range(0, 240, 5):
        gpus = None if second == 235 else (orphaned(second),)
        look = Observation(t=T + second, target="http://x", scrape=REFUSED, gpus=gpus)
        lines.append(to_line(look, None))
    path.write_bytes(b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines))
    return path


def run(capsys, *arguments):
    status = main(["gpus", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_json_of_a_recording(trace, capsys):
    """Every published key; the holder that is stale has its reason; the exit status says so."""
    status, out, _ = run(capsys, "--trace", trace, "--json")
    (one,) = json.loads(out)["gpus"]
    assert status == 1
    assert one.keys() >= {
        "index", "uuid", "name", "memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes",
        "unaccounted_bytes", "holders",
    }  # fmt: skip
    assert one["unaccounted_bytes"] == 0
    first = one["holders"][0]
    assert first["evidence"][0].startswith("its parent, process 4700, died")
    assert {key: first[key] for key in ("pid", "used_bytes", "user", "command", "age_seconds", "verdict", "reason")} == {
        "pid": 4711, "used_bytes": 50 * GIB, "user": "1001", "command": "VLLM::EngineCore",
        "age_seconds": 86400.0 + 230, "verdict": "stale", "reason": "orphaned_worker",
    }  # fmt: skip
    assert [each["verdict"] for each in one["holders"]] == ["stale", "unknown", "unknown"]
    assert "sk-secret" not in out


@pytest.mark.parametrize("at", [T + 50, 50])
def test_at_a_moment_only_what_was_seen_until_then_counts(trace, capsys, at):
    status, out, _ = run(capsys, "--trace", trace, "--at", at, "--json")
    assert status == 0
    assert json.loads(out)["gpus"][0]["holders"][0]["verdict"] == "vllm"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_table_fits_its_width(trace, capsys, monkeypatch, columns):
    """Who, how much, why, what to do; no line is too long, and no secret is shown."""
    monkeypatch.setenv("COLUMNS", str(columns))
    status, out, _ = run(capsys, "--trace", trace)
    assert status == 1
    assert max(map(len, out.splitlines())) < columns
    assert "GPU 0  NVIDIA H100" in out
    assert "orphaned_worker" in out
    assert "kill 4711" in out
    assert out.rstrip().endswith("50.0 GiB are stale")
    assert "sk-secret" not in out


def test_a_host_without_a_driver(tmp_path):
    """Says so, with a status of its own: nothing was looked at, so nothing is known to be free."""
    done = gpus_process({"LD_LIBRARY_PATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith("no GPUs: no NVIDIA driver")
    done = gpus_process({"LD_LIBRARY_PATH": str(tmp_path)}, "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["gpus"], said["remarks"]) == (3, [], [])
    assert said["note"].startswith("no NVIDIA driver")


def test_a_live_zombie(tmp_path):
    """A real process that has ended and is not reaped, on a fake GPU: found within one call."""
    stub = NvmlStub(tmp_path)
    with subprocess.Popen(["true"]) as zombie:
        stub.set_state(gpus={0: h200(processes={zombie.pid: 20 * GIB})})
        done = gpus_process(stub.env(), "--json")
        (holder,) = json.loads(done.stdout)["gpus"][0]["holders"]
        assert (done.returncode, holder["verdict"], holder["reason"]) == (
            1, "stale", "zombie_context",
        )  # fmt: skip
        assert holder["user"] is not None


HIDDEN = {
    "a driver that says the host's numbers": "525.147.05",
    "a driver that says ours": "580.65.06",
    "a driver of which that is not known": "535.54.03",
}


@pytest.mark.parametrize("driver", HIDDEN.values(), ids=HIDDEN)
def test_from_inside_a_pid_namespace_nobody_outside_is_stale(tmp_path, driver):
    """In a real PID namespace of its own: a real zombie outside, and a number that means another process inside."""
    stub = NvmlStub(tmp_path)
    with subprocess.Popen(["true"]) as zombie:
        stub.set_state(driver=driver, gpus={0: h200(processes={zombie.pid: 20 * GIB, 1: 30 * GIB})})
        inside = ("unshare", "--pid", "--fork", "--mount-proc")
        done = gpus_process(stub.env(), "--json", inside=inside)
        assert done.returncode == 0, done.stdout + done.stderr
        holders = json.loads(done.stdout)["gpus"][0]["holders"]
        assert {holder["pid"] for holder in holders} == {zombie.pid, 1}
        assert {(holder["verdict"], holder["reason"]) for holder in holders} == {("unknown", None)}


def test_it_looks_on_until_it_is_stopped(tmp_path):
    """One JSON object a look; Ctrl-C is the normal end."""
    stub = NvmlStub(tmp_path)
    stub.set_state(gpus={0: h200()})
    with subprocess.Popen(
        [sys.executable, "-m", "vllm_watch", "gpus", "--watch", "--json"],
        stdout=subprocess.PIPE, text=True, env=os.environ | stub.env(),
    ) as watching:  # fmt: skip
        try:
            looks = [json.loads(watching.stdout.readline()) for _ in range(2)]
            watching.send_signal(2)
            assert watching.wait(60) == 130
        finally:
            watching.kill()
    assert all(look["gpus"][0]["holders"] == [] for look in looks)


def gpus_process(environment, *arguments, inside=()):
    return subprocess.run(
        [*inside, sys.executable, "-m", "vllm_watch", "gpus", *arguments],
        capture_output=True, text=True, timeout=600, env=os.environ | environment, check=False,
    )  # fmt: skip


def test_a_recording_without_gpus(tmp_path, capsys):
    path = tmp_path / "none.jsonl"
    look = Observation(t=T, target="http://x", scrape=REFUSED)
    path.write_bytes(to_line(look, None).rstrip() + b"\n")
    status, _, err = run(capsys, "--trace", path)
    assert status == 2
    assert "holds no GPUs" in err
    path.write_bytes(to_line(replace(look, gpus=()), None).rstrip() + b"\n")
    status, out, _ = run(capsys, "--trace", path)
    assert (status, out) == (0, "no GPUs: the recording lists no GPU at that moment\n")
