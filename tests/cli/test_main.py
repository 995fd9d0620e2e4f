"""The command line: quick to help, calm about mistakes, and exact about how it ended."""

import contextlib
import importlib.util
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_watch import cli
from vllm_watch.__main__ import main
from vllm_watch.cli.helpers import terminal
from vllm_watch.cli.helpers.commands import COMMANDS

# What a command imports to do its work; none of it may be loaded to print a help text.
HEAVY = ("aiohttp", "apscheduler", "prometheus_client", "pydantic", "rich", "structlog", "textual", "yaml")  # fmt: skip


CONFIG = """\
listen: 0.0.0.0:9470
scrape: {interval_seconds: 1}
slo: {time_to_first_token_seconds: 1.5}
discovery:
  file_sd: [/etc/targets/*.json]
  kubernetes: [{selector: app=vllm, port: 9000}, {selector: "a in (b,c)", namespaces: [x, y]}]
targets:
  - {name: chat-0, group: chat, url: http://10.0.0.7:8000}
  - {url: https://llm.example, scrape: {interval_seconds: 10, tls_config: {server_name: llm}}, slo: {e2e_latency_seconds: 30}}
"""
CHECKED = """\
{file} is usable.

TARGET           GROUP            URL                   INTERVAL  TIMEOUT  API KEY  TLS                               OBJECTIVES
chat-0           chat             http://10.0.0.7:8000  1 s       2 s      none     none                              TTFT 1.5 s
llm.example-443  llm.example-443  https://llm.example   10 s      4 s      none     this host's authorities, for llm  TTFT 1.5 s, E2E 30 s

discovered targets, searched every 30 s:
  file_sd  /etc/targets/*.json
  pods     app=vllm, in our own namespace, port 9000
  pods     a in (b,c), in x, y, port 8000

Changed from the defaults:
  listen: 0.0.0.0:9470
  scrape.interval_seconds: 1
  scrape.timeout_seconds: 2
  slo.time_to_first_token_seconds: 1.5
"""


def test_no_command_shows_the_help_and_is_wrong_usage(capsys):
    """Called bare, it shows what there is; the status says that nothing was done."""
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(f"\n  {name} " in shown.err for name in COMMANDS)


def test_every_command_is_a_module_and_every_module_a_command():
    """What the help lists exists, and what was written as a command is listed."""
    for name in COMMANDS:
        assert importlib.util.find_spec(f"vllm_watch.cli.{name.replace('-', '_')}"), name
    for file in Path(cli.__path__[0]).glob("*.py"):
        if "\ndef add_arguments(" in file.read_text():
            assert file.stem.replace("_", "-") in COMMANDS


def test_help_loads_no_command():
    """`vllm-watch --help` imports nothing heavy: it is there at once, whatever is installed."""
    program = (
        "import sys; from vllm_watch.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600
    ).stdout

    assert told.splitlines()[-1] == "[]"
    assert all(len(line) <= 88 for line in told.splitlines())


def test_check_config_says_what_a_file_means(tmp_path, capsys, monkeypatch):
    """Targets with what holds for each, aligned; then all that is not a default."""
    _forget_environment(monkeypatch)
    file = tmp_path / "vllm-watch.yaml"
    file.write_text(CONFIG)

    assert main(["check-config", str(file)]) == 0
    assert capsys.readouterr().out == CHECKED.format(file=file)
    assert main(["check-config", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["targets"][0]["scrape"]["interval_seconds"] == 1
    assert document["targets"][1]["slo"]["e2e_latency_seconds"] == 30


def test_check_config_says_when_a_schedule_falls_due(tmp_path, capsys, monkeypatch):
    file = tmp_path / "config.yaml"
    file.write_text(
        """\
targets: [{name: chat-0, url: http://10.0.0.1:8000}]
restart:
  mode: observe
  time_zone: Asia/Kolkata
  windows: ["Mon-Sun 04:00-05:00"]
  schedules: [{name: nightly, cron: "30 2 * * *", misfire_seconds: 9000}]
"""
    )
    assert main(["check-config", str(file)]) == 0
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if "nightly falls due" in line)
    assert "02:30+05:30, the hours are those of Asia/Kolkata; its window opens" in line
    assert line.endswith("04:00+05:30")


def test_check_config_says_that_nothing_is_watched(tmp_path, capsys, monkeypatch):
    _forget_environment(monkeypatch)
    file = tmp_path / "vllm-watch.yaml"
    file.write_text("")

    assert main(["check-config", str(file)]) == 0
    told = f"{file} is usable.\n\nNo targets configured: `run` will look for vLLM servers on this host\n"
    assert capsys.readouterr().out == told
    file.write_text("discovery: {host: true, file_sd: [a.json]}")
    assert main(["check-config", str(file)]) == 0
    assert (
        "No targets configured: `run` finds them by discovery.host, discovery.file_sd\n"
        in capsys.readouterr().out
    )


def test_a_reader_that_goes_away_is_met_quietly(tmp_path):
    """Piped into `head`, the command ends as others do: no traceback, the status of SIGPIPE."""
    file = tmp_path / "x.yaml"
    file.write_text("targets:\n" + "".join(f"  - url: http://h{i}:1\n" for i in range(5000)))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        process = subprocess.run(
            [sys.executable, "-m", "vllm_watch", "check-config", str(file)],
            stdout=output, stderr=subprocess.PIPE, text=True, timeout=600, check=False,
        )  # fmt: skip

    assert (process.returncode, process.stderr) == (141, "")


def test_control_c_is_met_quietly(tmp_path):
    """Interrupted while it waits, the command says nothing and ends with the status of SIGINT."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm_watch", "diagnose", str(fifo)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with open(fifo, "w"):  # opens when the command does: it waits in there now, or is about to
        process.send_signal(signal.SIGINT)
    out, told = process.communicate(
        timeout=60
    )  # a read that began too late to be interrupted ends, too

    assert (process.returncode, out, told) == (130, "", "")


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_sees_colour_unless_told_otherwise(environment, coloured):
    """On a terminal the cause stands out; NO_COLOR and pipes get plain text."""
    master, slave = pty.openpty()
    inherited = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    subprocess.run(
        [sys.executable, "-m", "vllm_watch", "tops"],
        stderr=slave, env=inherited | environment, timeout=600, check=False,
    )  # fmt: skip
    os.close(slave)
    told = io.BytesIO()
    with contextlib.suppress(OSError):  # Linux says EIO at the end of a terminal
        while piece := os.read(master, 4096):
            told.write(piece)
    os.close(master)

    assert (b"\x1b[" in told.getvalue()) is coloured
    assert b"there is no command 'tops'" in told.getvalue()


def _forget_environment(monkeypatch):
    for variable in [name for name in os.environ if name.startswith("VLLM_WATCH_")]:
        monkeypatch.delenv(variable)


PACKAGE = Path(terminal.__file__).parents[2]


def test_nobody_asks_elsewhere():
    """`gpus` and `journal` once forgot NO_COLOR."""
    pattern = re.compile(r"get_terminal_size|NO_COLOR\" |stdout\.isatty\(\) else")
    found = {
        str(f.relative_to(PACKAGE)) for f in PACKAGE.rglob("*.py") if pattern.search(f.read_text())
    }
    assert found == {"cli/helpers/terminal.py"}
