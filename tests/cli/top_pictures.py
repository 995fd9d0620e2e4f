"""What `vllm-watch top` shows in a terminal of 80 by 24, as docs/top.md has it: of the lab, so always the same.

python -m tests.cli.top_pictures    writes the pictures in docs/top.md anew
"""

import asyncio
import re
import sys
from pathlib import Path

from benchmarks.lab.virtual import EPOCH, observe
from tests.alerts.chain import Pipeline
from vllm_watch.cli.helpers.top.app import TopApp
from vllm_watch.cli.helpers.top.status import Status
from vllm_watch.export.status import Status as Shown
from vllm_watch.lab.stories import STORIES
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.signals.holders.judge import HolderJudge

PAGE = Path(__file__).parents[2] / "docs/top.md"
SIZE = (80, 24)
NEVER_SECONDS = 3600.0
# title of the picture → story of the lab, and when in it
PICTURES = {"stalled": ("demo", 42)}


class Once:
    """A daemon that always answers with the same."""

    url = "http://127.0.0.1:9470"

    def __init__(self, status: Status) -> None:
        self._status = status

    async def status(self) -> Status:
        return self._status

    async def close(self) -> None:
        return


def at(story: str, seconds: int) -> Status:
    """What a daemon says at that second of a story, looking at each target once a second."""
    scene = STORIES[story].build(1)
    scene.begin_at(EPOCH)
    pipeline, judge = Pipeline("", 1.0), HolderJudge()
    for t in range(seconds + 1):
        scene.advance(float(t))
        gpus = scene.rack.sample() if scene.rack else ()
        for server in scene.servers.values():
            pipeline.look(observe(server, gpus))
        holders = judge.look(float(t), EPOCH + t, gpus, answering=[frozenset()])
        reading = GpuReading(status="ok", t=EPOCH + t, driver_version="570.124.06", gpus=gpus)
        pipeline.board.publish_gpus(reading, holders)
        pipeline.board.call("nvml", "", "ok", 0.01, EPOCH + t)
    said = Status.model_validate_json(Shown(pipeline.board).whole(None))
    return said.model_copy(
        update={"t": EPOCH + seconds, "uptime_seconds": float(seconds), "version": "x.y.z"}
    )


async def _drawn(status: Status) -> str:
    app = TopApp(Once(status), NEVER_SECONDS)
    async with app.run_test(size=SIZE) as pilot:
        async with asyncio.timeout(30):
            while app.known is None:
                await pilot.pause(0.01)
        await pilot.pause()
        lines = [
            "".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()
        ]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def picture(name: str) -> str:
    """The screen, line by line."""
    return asyncio.run(_drawn(at(*PICTURES[name])))


def page() -> str:
    """docs/top.md with its pictures as they have to be."""
    text = PAGE.read_text()
    for name in PICTURES:
        drawn = f"<!-- {name}, made by tests/cli/top_pictures.py -->\n```\n{picture(name)}\n```\n"
        text, count = re.subn(rf"<!-- {name}, made .*?```\n.*?```\n", lambda _, d=drawn: d, text, flags=re.DOTALL)  # fmt: skip
        assert count == 1, f"{PAGE} has no place for the picture {name}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
