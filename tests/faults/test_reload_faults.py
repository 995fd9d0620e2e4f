"""A real daemon that is told to reload at a bad moment, or far too often."""

import asyncio
import errno
import os
import re
import signal
from pathlib import Path

from tests.daemon_process import daemon
from tests.faults.engine import Engine
from tests.faults.site import ENVIRON, PATIENCE_SECONDS, calls, named

CONFIG = """\
targets:
  - name: one
    url: http://127.0.0.1:{port}
    group: chat
  - name: two
    url: http://127.0.0.1:{port}/again
scrape:
  interval_seconds: 0.5
"""
STORM = 100
PENDING = (
    r"(?:Sig|Shd)Pnd:\s*0*[1-9a-f]"  # of /proc/PID/status: signals that were not delivered yet
)


def names(status):
    return [each["name"] for each in status["targets"]]


async def test_a_configuration_that_is_half_written(tmp_path):
    """Read while it is written, cut anywhere, it is refused or is a whole one; empty, it takes no target away."""
    config, engine = tmp_path / "watch.yaml", Engine()
    await engine.start()
    text = CONFIG.format(port=engine.port)
    config.write_text(text)
    async with daemon("--config", config, environ=ENVIRON) as process:
        await process.until(lambda status: names(status) == ["one", "two"], PATIENCE_SECONDS)
        refused = 0
        for cut in [0, 1, *range(7, len(text), 11)]:
            config.write_text(text[:cut])
            code, said = await process.get("/-/reload", "POST")
            found = names(await process.status())
            if code == 200:
                # As far as it was written it is a configuration: nothing can tell that more was to come.
                assert found in (["one"], ["one", "two"], ["vllm"]), text[:cut]
            else:
                refused += 1
                assert code == 500, said
                assert "remedy" in said
        assert refused > len(text) / 11 / 3
        config.write_text(text)
        assert (await process.get("/-/reload", "POST"))[0] == 200
        config.write_text("")
        assert (await process.get("/-/reload", "POST"))[0] == 500
        status = await process.status()
        assert names(status) == ["one", "two"]
        before = calls(named(status, "one"))
        await process.until(lambda status: calls(named(status, "one")) > before + 2)
        assert "is empty" in process.events("reload_refused")[-1]["cause"]
    await engine.stop()


def naming(port, last):
    """Two targets, of which the second says which text this is."""
    return f"targets:\n  - {{name: one, url: 'http://127.0.0.1:{port}'}}\n  - {{name: {last}, url: 'http://127.0.0.1:{port}/last'}}\n"


async def being_read(pipe):
    """The other end of a pipe, as soon as somebody reads there."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                await asyncio.sleep(0.05)


async def delivered(process):
    """Wait until no signal is on its way to the process: two of a kind would arrive as one."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while re.search(PENDING, Path(f"/proc/{process.pid}/status").read_text()):
            await asyncio.sleep(0.01)


SLOW_DISK = """
import os

opened, times = os.open, []


def slow(path, *more, **options):
    found = opened(path, *more, **options)
    gate = os.environ["SLOW_UNTIL_CLOSED"]
    if str(path) == os.environ["SLOW_FILE"] and os.path.exists(gate):
        times.append(path)
        if len(times) == 2:  # the first look only asks whether it is empty
            with open(gate) as waits:
                waits.read()
    return found


os.open = slow
"""
"""Opens one file, and waits before it is read: as a disk on a network does that is slow."""


async def test_a_storm_of_sighups(tmp_path):
    """A hundred signals during one reload are one more, with the newest text; looks go on meanwhile."""
    config, newest, gate = (tmp_path / name for name in ("watch.yaml", "newest.yaml", "gate"))
    engine = Engine()
    await engine.start()
    config.write_text(naming(engine.port, "old"))
    (tmp_path / "sitecustomize.py").write_text(SLOW_DISK)
    slow = {"PYTHONPATH": str(tmp_path), "SLOW_FILE": str(config), "SLOW_UNTIL_CLOSED": str(gate)}
    async with daemon("--config", config, environ=ENVIRON | slow) as process:
        await process.until(lambda status: calls(named(status, "one")), PATIENCE_SECONDS)
        config.write_text(naming(engine.port, "middle"))
        os.mkfifo(gate)  # this reload takes as long as we like
        process.process.send_signal(signal.SIGHUP)
        end = await being_read(gate)
        gate.unlink()
        newest.write_text(naming(engine.port, "new"))
        newest.rename(config)  # the one that is read is still the one before
        before = calls(named(await process.status(), "one"))
        for _ in range(STORM):
            process.process.send_signal(signal.SIGHUP)
            await delivered(process.process)
        await process.until(
            lambda status: calls(named(status, "one")) > before + 2, PATIENCE_SECONDS
        )
        os.close(end)
        await process.until(lambda status: "new" in names(status), PATIENCE_SECONDS)
        assert (await process.get("/-/reload", "POST"))[0] == 200  # in its turn: after all others
        assert len(process.events("reloaded")) == 3  # the slow one, one for the storm, ours
        assert [e["target"] for e in process.events("target_added")] == [
            "one",
            "old",
            "middle",
            "new",
        ]
        assert process.events("reload_refused") == []
        assert await process.end() == 0
    await engine.stop()


async def test_a_reload_while_it_starts(tmp_path):
    """It serves before all has begun: whoever reloads then waits for that, and nothing is begun twice."""
    config, token, engine = tmp_path / "watch.yaml", tmp_path / "token", Engine()
    await engine.start()
    token.write_text("0123456789abcdef0123456789abcdef")
    token.chmod(0o600)
    tokens = f"api:\n  tokens: [{{name: ana, file: {token}, may: [reload]}}]\n"
    hook = "restart: {hook: h}\nhooks: {command: [{name: h, argv: [/bin/true]}]}\n"
    config.write_text(CONFIG.format(port=engine.port) + tokens + hook)
    async with daemon("--config", config, environ=ENVIRON) as process:
        codes = [(await process.get("/-/reload", "POST"))[0] for _ in range(3)]
        assert codes == [200] * 3, process.lines
        await process.until(lambda status: names(status) == ["one", "two"], PATIENCE_SECONDS)
    await engine.stop()
