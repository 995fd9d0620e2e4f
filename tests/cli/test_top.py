"""The live view, against a real daemon's HTTP server: what it shows, its keys, and how calm it stays."""

import asyncio
import re
import socket
import sys
import time
from dataclasses import replace

import pytest

from tests.cli.top_pictures import Once
from tests.cli.top_screen import (
    add,
    engine,
    first_look,
    gpu,
    names,
    part,
    reading,
    row,
    selected,
    watching,
)
from vllm_watch.__main__ import main
from vllm_watch.cli.helpers.top import text as top_text
from vllm_watch.cli.helpers.top.app import TopApp
from vllm_watch.cli.helpers.top.rows import POINTS_MAX
from vllm_watch.cli.helpers.top.status import Daemon
from vllm_watch.errors import WatchError
from vllm_watch.export.server import Server
from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample
from vllm_watch.samples.observation import StartFailure
from vllm_watch.samples.target import Target
from vllm_watch.signals.holders.records import GpuHolders, Judged
from vllm_watch.signals.records import TargetSignals
from vllm_watch.signals.state import STATES

PARTS = ("header", "wrong", "engines", "gpus", "detail", "watcher", "keys")
SHORT = {
    top_text.count: [
        (None, "-"), (0, "0"), (7, "7"), (0.25, "0.2"), (12.6, "13"), (999.4, "999"), (999.6, "1.0k"),
        (34_500, "34k"), (5_600_000, "5.6M"), (2e12, "2000G"),
    ],
    top_text.seconds: [
        (None, "-"), (0, "0.0ms"), (0.0042, "4.2ms"), (0.45, "450ms"), (1.25, "1.25s"), (12.4, "12s"), (59.6, "1m00"), (185, "3m05"), (7620, "2h07"), (500_000, "5d"),
    ],
    top_text.age: [(None, "-"), (0, "now"), (0.99, "now"), (5.9, "5s"), (65, "1m05")],
    top_text.percent: [(None, "-"), (0, "0%"), (0.634, "63%"), (1, "100%")],
    lambda ratio: top_text.bar(ratio, 4).plain: [
        (None, "····"), (0, "    "), (0.53, "██▏ "), (1, "████"), (7, "████"), (-1, "    "),
    ],
    lambda points: top_text.sparkline(list(points), 2): [((0, 0), "▁▁"), ((1, 2, 3), "▆█"), ((None, 5), " █")],
}  # fmt: skip


@pytest.mark.parametrize("form", SHORT)
def test_numbers_bars_and_curves_are_short(form):
    """Unknown is not zero, a bar stays in its frame, a curve has gaps and its newest value on the right."""
    assert [(value, form(value)) for value, _ in SHORT[form]] == SHORT[form]


def test_every_state_has_a_style():
    """No state of an engine is without a colour and a place in the order."""
    assert set(top_text.STATES_BY_URGENCY) == set(STATES)


async def test_what_a_log_says_of_a_start_is_read_from_the_status(server, board):
    """It is published as `class`: one engine that failed so hid all others."""
    failed = StartFailure(failure="oom_kv_alloc_or_profiling", deterministic=True)
    board.publish(
        TargetSignals(
            target="chat-0", t=time.time(), up=False, outcome="refused", state="down", state_text="", start_failure=failed
        )
    )  # fmt: skip
    daemon = Daemon(f"http://127.0.0.1:{server.port}")
    told = {each.name: each for each in (await daemon.status()).targets}
    await daemon.close()
    assert told["chat-0"].signals.start_failure == failed


async def test_an_engine_and_its_numbers(server):
    """A row has the engine's state and numbers, the detail its sentence and what it serves."""
    async with watching(server).run_test(size=(120, 24)) as pilot:
        await first_look(pilot)
        assert "1 serving" in part(pilot, "header")
        assert row(pilot, "chat-0").split() == [
            "chat-0", "serving", "12", "3", "██▌", "42%", "43%", "1.2k", "█", "450ms", "21ms",
            "-", "12k", "-",
        ]  # fmt: skip
        assert part(pilot, "detail").splitlines()[1:] == [
            "chat-0: 12 running, 3 waiting",
            "llama · http://chat-0:8000 · vLLM 0.11.0 · KV 58k of 100k tokens free · 2 restarts seen",
        ]


async def test_what_each_engine_shows(server, board):
    """Data-parallel engines have a row each; of one that stalls, is dead behind a live server or is gone, nothing is told as
    now; control characters of other programs are escapes."""
    stands = {"current_generation_tokens_per_second": 0.0}
    add(board, "dp", engine("0", "serving"), engine("1", "stalled", **stands))
    add(board, "gone", state="down", state_text="connection refused for 34 s", up=False)
    add(
        board,
        "dead",
        engine("0", "down", state_text="its engine core is dead", **stands),
        state="down",
    )
    add(board, "evil", engine("0", "stalled", state_text="x\x1b[2J\ny", model_name="m\x07"))
    async with watching(server).run_test(size=(100, 30)) as pilot:
        await first_look(pilot)
        assert names(pilot) == ["dead", "gone", "dp/1", "evil", "chat-0", "dp/0"]
        assert row(pilot, "dp/1").split()[6:] == ["-", "0", "▁", *"---"]
        assert row(pilot, "dp/0").split()[7] == "1.2k"
        assert row(pilot, "gone").split()[1:] == ["down", *"--", "······", *"------"]
        assert row(pilot, "dead").split()[1:8] == ["down", *"--", "······", *"--", "0"]
        assert "tokens free" not in part(pilot, "detail")
        await pilot.press("down")
        assert "gone: connection refused for 34 s" in part(pilot, "detail")
        await pilot.press("down", "down")
        shown = part(pilot, "detail") + part(pilot, "engines")
        assert r"evil: x\x1b[2J\x0ay" in shown
        assert not {"\x1b", "\x07"} & set(shown)


async def test_keys_move_sort_and_filter(server, board):
    """The cursor stays on its engine when rows move; the filter looks at names, states and models."""
    add(board, "busy", engine("0", "serving", current_generation_tokens_per_second=9e9))
    add(board, "idle", engine("0", "idle", current_generation_tokens_per_second=None))
    async with watching(server).run_test(size=(100, 24)) as pilot:
        await first_look(pilot)
        assert (names(pilot), selected(pilot)) == (["busy", "chat-0", "idle"], "busy")
        await pilot.press("down")
        assert selected(pilot) == "chat-0"
        await pilot.press("end", "down")
        assert selected(pilot) == "idle"
        await pilot.press("home", "up", "j", "k")
        assert selected(pilot) == "busy"
        await pilot.press("s", "s", "s")
        assert "sort: waiting" in part(pilot, "keys")
        await pilot.press("s", "s", "s")
        assert "sort: urgency" in part(pilot, "keys")

        await pilot.press("slash", *"IDL")
        assert (names(pilot), selected(pilot)) == (["idle"], "idle")
        await pilot.press("enter", "q")
        assert pilot.app.return_code == 0


GPU_STATES = {
    "no driver": (GpuReading(status="no_driver", text="libnvidia-ml.so.1 is missing"), "GPUs: no GPU driver here (libnvidia-ml.so.1 is missing)"),
    "hung": (GpuReading(status="hung", text="no answer for 10 s"), "GPUs: the GPU driver does not answer (no answer for 10 s)"),
    "none": (GpuReading(status="ok", gpus=()), "GPUs: none visible"),
    "lost": (GpuReading(status="ok", gpus=(GpuSample(index=3, uuid="u", lost=True),)), " 3 lost: fell off the bus"),
    "hidden": (GpuReading(status="ok", gpus=(GpuSample(index=0, uuid="u"),)), "   holders unknown"),
}  # fmt: skip


@pytest.mark.parametrize(("found", "told"), GPU_STATES.values(), ids=GPU_STATES)
async def test_a_gpu_that_cannot_be_read_is_told(server, board, found, told):
    board.publish_gpus(found)
    async with watching(server).run_test(size=(100, 24)) as pilot:
        await first_look(pilot)
        assert told in part(pilot, "gpus").splitlines()


@pytest.mark.parametrize("size", [(200, 50), (60, 10), (1, 1)])
async def test_it_fits_every_terminal(server, board, size):
    """No line is wider than the terminal, no part is pushed out, the rows get what is left."""
    for number in range(60):
        add(board, f"fleet-member-with-a-long-name-{number:02}", engine("0", "serving"))
    board.publish_gpus(reading(*(gpu(index, 70) for index in range(8))))
    width, height = size
    async with watching(server).run_test(size=size) as pilot:
        await first_look(pilot)
        parts = [part(pilot, name) for name in PARTS]
        lines = [line for each in parts if each for line in each.split("\n")]
        if width > 20:
            assert max(map(len, lines)) <= width
        if height >= 10:
            assert len(lines) == height
        assert len(parts[2].splitlines()) >= 2


async def test_the_curve_grows_with_every_look_of_the_daemon(server, board):
    """A point per look, none for a look seen twice, a gap while the target is down, a bounded number."""
    app = watching(server)
    async with app.run_test(size=(150, 24)) as pilot:
        await first_look(pilot)
        for number in range(3):
            add(board, "chat-0", engine("0", "serving"), t=100.0 + number)
            await app.look()
            await app.look()
        assert " ████ " in row(pilot, "chat-0")  # the first was seen when it began
        curve = app._rows[0].curve
        assert len(curve) == 4
        add(board, "chat-0", engine("0", "down"), t=200.0, up=False)
        await app.look()
        assert list(curve)[-1] is None
        for number in range(POINTS_MAX):
            add(board, "chat-0", engine("0", "serving"), t=300.0 + number)
            await app.look()
        assert len(curve) == POINTS_MAX


async def test_a_daemon_that_is_away_is_told_and_comes_back(board):
    """No answer: said in one calm line with what was last known; then all is as before."""
    server = Server(board, host="127.0.0.1", port=0, ready=lambda: None)
    await server.start()
    app = watching(server)
    async with app.run_test(size=(120, 24)) as pilot:
        await first_look(pilot)
        await server.stop()
        await app.look()
        told = f"vllm-watch no answer from http://127.0.0.1:{server.port}: connection refused; this is now old"
        assert part(pilot, "header").replace("1s", "now") == f"{told}; retrying"
        assert names(pilot) == ["chat-0"]

        again = Server(board, host="127.0.0.1", port=server.port, ready=lambda: None)
        await again.start()
        await app.look()
        assert "1 serving" in part(pilot, "header")
        await again.stop()


async def test_answers_while_it_ends_are_not_drawn(server):
    """The screen is taken down part by part, and an answer may come between any two of them."""
    daemon = Daemon(f"http://127.0.0.1:{server.port}")
    source = Once(await daemon.status())
    await daemon.close()
    app = TopApp(source, interval_seconds=0.0)
    async with app.run_test(size=(100, 24)) as pilot:  # raises at its end what broke the app
        await first_look(pilot)
    assert not app.is_running


async def test_a_daemon_that_accepts_and_says_nothing_is_given_up_on(monkeypatch):
    """A server that hangs is told after the timeout, not waited for."""
    monkeypatch.setattr("vllm_watch.cli.helpers.top.status._TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        daemon = Daemon(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(WatchError, match=r"nothing within 0\.05 s"):
            await daemon.status()
        await daemon.close()


async def test_enter_opens_a_target_with_its_charts_and_processes(server, board):
    """Tokens, first token, KV cache and queue; the GPUs that it runs on, each process below its parent."""
    for t in range(0, 600, 5):
        rate = 0.0 if t > 300 else 800.0
        now = engine("0", "serving", current_generation_tokens_per_second=rate)
        add(board, "chat-0", now, t=time.time() - 600 + t)
    holders = (
        ProcessSample(pid=10, name="vllm", used_bytes=1 << 30, create_time=time.time() - 7200, cpu_seconds=95.0),
        ProcessSample(pid=11, name="VLLM::EngineCore", ppid=10, used_bytes=60 << 30, ancestors=("vllm",)),
    )  # fmt: skip
    one = replace(gpu(0, 61), processes=holders)
    judged = GpuHolders(
        gpu=one, holders=None, unaccounted_bytes=None, unaccounted=Judged(verdict="unknown"), targets=("chat-0",)
    )  # fmt: skip
    board.publish_gpus(reading(one), [judged])
    async with watching(server).run_test(size=(100, 40)) as pilot:
        await first_look(pilot)
        await pilot.press("enter")
        async with asyncio.timeout(30):
            while "Tokens/s: 0" not in part(pilot, "engines"):
                await pilot.pause(0.01)
        shown = part(pilot, "engines")
        for title in (
            "TTFT p95, last minute: 450ms",
            "KV cache in use: 42%",
            "Waiting requests: 3",
        ):
            assert title in shown
        drawn = [line for line in shown.splitlines() if line.lstrip().startswith("800 █")]
        assert drawn
        assert drawn[0].split()[1].startswith("█" * 10)
        assert "  └─ vllm 10  1.0 GiB  age 2h00  CPU 1m35" in shown
        assert "     └─ VLLM::EngineCore 11  60.0 GiB" in shown
        assert part(pilot, "gpus") == ""
        await pilot.press("escape")
        assert names(pilot) == ["chat-0"]


WITHOUT = """
import sys
sys.modules |= dict.fromkeys(("textual", "rich"))
from vllm_watch.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("option", ["--once", "--json"])
async def test_without_textual_and_rich_it_prints_the_same(server, board, option):
    """They are an extra that the live view alone needs."""
    add(board, "ill", engine("0", "stalled", state_text="no step"), state="stalled")
    said = []
    for script in (WITHOUT, WITHOUT.replace('"textual", "rich"', "")):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, "top", option, "--url", f"http://127.0.0.1:{server.port}",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == 0
        times = r"\d\d:\d\d:\d\d UTC|up \S+|\"(t|\w*_seconds)\":[\d.]+"
        said.append(re.sub(times, "", out.decode()))
    assert said[0] == said[1]
    assert "no step" in said[0]


async def test_a_terminal_without_textual_gets_it_once(server, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    url = f"http://127.0.0.1:{server.port}"
    assert await asyncio.to_thread(main, ["top", "--url", url]) == 0
    said = capsys.readouterr()
    assert "pip install 'vllm-watch[top]'" in said.err
    assert "chat-0" in said.out


async def test_gpus_and_their_holders(server, board):
    """A GPU has its memory, load and heat; its holders are named, the largest first."""
    board.publish_gpus(reading(gpu(0, 70), gpu(1, 3, throttle_reasons=("sw_thermal_slowdown",))))
    async with watching(server).run_test(size=(100, 24)) as pilot:
        await first_look(pilot)
        shown = part(pilot, "gpus").splitlines()
        assert "driver 570.86" in shown[0]
        assert " 70.0/80.0 GiB  util  93%  61 °C  410 W" in shown[1]
        assert shown[2] == "   VLLM::EngineCore 4711 60.0 GiB · python3 99 1.0 GiB · sh 7 - GiB"
        assert "util  93%  sw_thermal_slowdown" in shown[3]


async def test_what_is_asked_after_the_end_is_no_crash(server):
    """The screen may be left between the two questions of one look."""
    daemon = Daemon(f"http://127.0.0.1:{server.port}")
    await daemon.status()
    await daemon.close()
    with pytest.raises(WatchError, match="is not asked any more"):
        await daemon.status()


async def test_help_filter_and_mouse(server, board):
    """Every key is listed; Escape goes back and shows all again; a click selects, another opens, on the titles it sorts."""
    add(board, "idle", engine("0", "idle"))
    board.add_target(Target(name="new", url="http://new:8000"), 5)  # not looked at yet
    async with watching(server).run_test(size=(100, 30)) as pilot:
        await first_look(pilot)
        assert row(pilot, "new").split()[1] == "unknown"
        await pilot.press("question_mark")
        for key in ("Enter", "s, S", "1 … 6", "/", "Esc", "?", "q"):
            assert key in part(pilot, "engines")
        await pilot.press("escape", "slash", *"nothing")
        assert "no match for 'nothing' (escape shows all)" in part(pilot, "engines")
        await pilot.press("escape", "4", "S")
        assert "sort: tokens" in part(pilot, "keys")
        third = names(pilot)[2]
        await pilot.pause()
        await pilot.click("#engines", offset=(3, 3))
        assert selected(pilot) == third
        await pilot.press("1")
        await pilot.click("#engines", offset=(3, 0))
        assert "sort: name" in part(pilot, "keys")
        pilot.app.on_mouse_scroll_up()
        assert selected(pilot) != third
        await pilot.press("home")
        await pilot.click("#engines", offset=(3, 1))
        assert "Last 10 minutes" in part(pilot, "engines")
