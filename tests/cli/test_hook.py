"""`vllm-watch hook test` as an operator runs it: a process, a configuration, a hook, nothing changed."""

import json
import subprocess
import sys

import pytest

from tests.cli.answering import answer, answering

CONFIG = """\
targets:
  - {name: llama, url: "http://127.0.0.1:1", restart: {hook: site}}
  - {name: other, url: "http://127.0.0.1:2"}
hooks:
  command:
    - {name: site, argv: [/bin/true]}
    - {name: missing, argv: [/no/such]}
  systemd:
    - {name: unit, unit: no-such.service}
"""


@pytest.fixture
def hook_test(tmp_path):
    (tmp_path / "watch.yaml").write_text(CONFIG)

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "vllm_watch", "hook", "test", *words, "--config", tmp_path / "watch.yaml"],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


def test_findings_are_lines_with_remedies(hook_test):
    """Each finding is a line; what is wrong has a remedy, and makes the exit status 1."""
    status, said, _ = hook_test("site")
    assert status == 1
    lines = said.splitlines()
    assert lines[0] == "hook site (command) for target llama: nothing was restarted"
    assert lines[1].startswith("  WRONG  http://127.0.0.1:1 does not answer: ")
    assert lines[2] == "         → rehearse it while the server runs"
    assert lines[3].startswith("  ok     /bin/true can be run")
    assert "relaunches: true" in lines[4]
    assert len(lines) == 5


@pytest.mark.parametrize(("name", "kind"), [("missing", "command"), ("unit", "systemd")])
def test_json_is_one_object(hook_test, name, kind):
    """--json has the same findings, for the target that was named."""
    status, said, _ = hook_test(name, "--target", "other", "--json")
    document = json.loads(said)
    assert (status, document["hook"], document["kind"], document["ok"]) == (1, name, kind, False)
    [target] = document["targets"]
    assert (target["target"], target["ok"]) == ("other", False)
    assert all(set(finding) == {"ok", "text", "remedy"} for finding in target["findings"])
    assert all(finding["remedy"] for finding in target["findings"] if not finding["ok"])


def test_hook_that_would_work_is_status_0(hook_test, tmp_path):
    """With a server that answers, and a hook that can be called, nothing is to be mended."""
    running = b'vllm:num_requests_running{engine="0",model_name="m"} 0\n'
    with answering() as server:
        server.pieces = (answer(running + b"process_start_time_seconds 1.7e9\n"),)
        file = tmp_path / "watch.yaml"
        file.write_text(CONFIG.replace("http://127.0.0.1:1", server.url, 1))
        status, said, error = hook_test("site")
    assert (status, error) == (0, "")
    assert "it started at 2023-11-14T22:13:20+00:00" in said
