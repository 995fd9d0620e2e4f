"""Follows docs/install/bare-metal.md on a host of its own: `python -m tests.deploy.host FOLDER`, after its first block.

Started in namespaces (`unshare --mount --net --pid`): ports and processes are those of this host alone. `systemctl` is a
stand-in that starts what a unit's ExecStart says, as another user than root. It prints what was seen, as JSON.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.deploy.alone import loopback_up
from tests.deploy.reader import Reader, blocks

PAGE = Path("docs/install/bare-metal.md")
UNITS = Path("/etc/systemd/system")
SYSTEMCTL = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.deploy import host
host.systemctl({folder!r}, sys.argv[1:])
"""
ENGINE = '''\
#!/usr/bin/python3
"""Poses as vLLM: it answers on the port that it is given."""
import http.server, sys

class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = open({capture!r}, "rb").read() if self.path == "/metrics" else b"{{}}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args): pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Engine).serve_forever()
'''


def systemctl(folder: str, words: list[str]) -> None:
    """Note what is asked; start, restart and reload units as they say, once this host's processes are its own."""
    with Path(folder, "asked").open("a") as asked:
        asked.write(" ".join(words) + "\n")
    names = [word.removesuffix(".service") for word in words[1:] if not word.startswith("-")]
    for name in names if os.getenv("ON_ITS_OWN") else ():
        pid = Path(folder, f"{name}.pid")
        if words[0] == "reload":
            os.kill(int(pid.read_text()), signal.SIGHUP)
        elif words[0] == "restart" or "--now" in words:
            pid.write_text(str(start(name, Path(folder, f"{name}.log"))))


def start(name: str, log: Path) -> int:
    """Run ExecStart of a unit, also of a template, with its environment file; the process's id."""
    template, _, instance = name.partition("@")
    unit = (UNITS / f"{template}{'@' if instance else ''}.service").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit.replace("%i", instance), re.MULTILINE))
    environ = {"PATH": "/usr/bin:/bin"}
    if file := settings.get("EnvironmentFile"):
        environ |= dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
    command = shlex.split(re.sub(r"\$(\w+)", lambda each: environ[each[1]], settings["ExecStart"]))
    user = settings["User"]
    state = Path("/var/lib", settings["StateDirectory"])
    state.mkdir(exist_ok=True)
    subprocess.run(["chown", user, state], check=True, timeout=600)
    with log.open("w") as out:
        return subprocess.Popen(
            ["setpriv", "--reuid", user, "--regid", settings["Group"], "--clear-groups", *command],
            env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        ).pid  # fmt: skip


def prepare(folder: Path) -> None:
    """The stand-ins of systemctl and of vLLM."""
    (folder / "bin").mkdir()
    program = folder / "bin/systemctl"
    program.write_text(SYSTEMCTL.format(python=sys.executable, root=os.getcwd(), folder=str(folder)))  # fmt: skip
    capture = folder / "metrics.txt"
    capture.write_bytes(Path("tests/sources/captures/0.32.0-v1-cpu-midload.txt").read_bytes())
    engine = Path("/opt/vllm/bin/vllm")
    engine.parent.mkdir(parents=True)
    engine.write_text(ENGINE.format(capture=str(capture)))
    for each in (program, engine):
        each.chmod(0o755)


def main() -> None:
    """Raises TimeoutError where a block does not show what the page promises."""
    folder = Path(sys.argv[1])
    if sys.argv[2:] == ["prepare"]:
        prepare(folder)
        return
    os.environ["ON_ITS_OWN"] = "1"
    loopback_up()
    home = folder / "home"
    home.mkdir()
    by_hand = [subprocess.Popen(["/opt/vllm/bin/vllm", "serve", "m", "--port", port]) for port in ("8000", "8001")]  # fmt: skip
    subprocess.run(["systemctl", "restart", "vllm-watch"], check=True, timeout=600)
    reader = Reader(home)
    shown = []
    for block in blocks(PAGE)[1:]:
        if "enable --now vllm@" in block.text:
            for each in by_hand:
                each.kill()
                each.wait(timeout=30)
        shown.append(reader.follow(block))
    reader.stop()
    commands = [Path(f"/proc/{(folder / f'vllm@{port}.pid').read_text()}/cmdline") for port in (8000, 8001)]  # fmt: skip
    told = {
        "shown": shown,
        "engines": [each.read_text().replace("\0", " ").strip() for each in commands],
        "pager": (home / "background.log").read_text().splitlines(),
        "watcher": (folder / "vllm-watch.log").read_text(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
