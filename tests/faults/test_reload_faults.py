"""A real daemon that is told to reload at a bad moment, or far too often."""

import asyncio
import signal

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
SELDOM = 800  # targets that are hardly looked at, and make a configuration slow to read
SELDOM_ENVIRON = {"VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "20"}


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


def large(port, last):
    """A configuration that takes a while to read, of which one target is looked at often."""
    seldom = "".join(
        f"  - {{name: t{n}, url: 'http://127.0.0.1:{port}/{n}'}}\n" for n in range(SELDOM)
    )
    often = (
        f"  - {{name: one, url: 'http://127.0.0.1:{port}', scrape: {{interval_seconds: 0.5}}}}\n"
    )
    return f"targets:\n{often}{seldom}  - {{name: {last}, url: 'http://127.0.0.1:{port}/last'}}\n"


async def test_a_storm_of_sighups(tmp_path):
    """A hundred signals are a few reloads, the last of them with the newest text; looks go on meanwhile."""
    config, engine = tmp_path / "watch.yaml", Engine()
    await engine.start()
    config.write_text(large(engine.port, "old"))
    async with daemon("--config", config, environ=ENVIRON | SELDOM_ENVIRON) as process:
        await process.until(
            lambda status: calls(named(status, "one")) and "old" in names(status), PATIENCE_SECONDS
        )
        before = calls(named(await process.status(), "one"))
        for number in range(STORM):
            if number == STORM - 1:
                config.write_text(large(engine.port, "new"))
            process.process.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.02)
        await process.until(lambda status: "new" in names(status), PATIENCE_SECONDS)
        await process.until(
            lambda status: calls(named(status, "one")) > before + 2, PATIENCE_SECONDS
        )
        assert (await process.get("/-/reload", "POST"))[0] == 200  # in its turn: after all others
        assert 1 <= len(process.events("reloaded")) <= STORM / 2
        assert process.events("reload_refused") == []
        assert len([e for e in process.events("target_added") if e["target"] == "one"]) == 1
        assert await process.end() == 0
    await engine.stop()
