"""The watcher that is measured: the daemon as `vllm-watch run` makes it, and how late its looks began.

`python watching.py INTERVAL FOLDER` watches the URLs of FOLDER/targets and writes its own into FOLDER/url. It
forgets its lateness when FOLDER/reset appears, and writes it into FOLDER/late when FOLDER/tell does. With a third
word, `timed`, it times its stages, and writes their shares since FOLDER/reset into FOLDER/shares.
"""

import asyncio
import sys
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.performance.share import Timers
from vllm_watch.cli.run import collect_rarely
from vllm_watch.config import load
from vllm_watch.daemon import Daemon
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
from vllm_watch.support import logs

POLL_SECONDS = 1.0  # each time is two looks at the disk, which are not the watcher's


async def main(interval: str, folder: Path, timed: str = "") -> None:
    timers = Timers() if timed else None
    collect_rarely()  # as run does
    urls = (folder / "targets").read_text().split()
    environ = {"VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": interval, "VLLM_WATCH_LOG__LEVEL": "error"}
    config = load(
        None,
        environ=environ,
        targets=[f"t{number}={url}" for number, url in enumerate(urls)],
        listen="127.0.0.1:0",
    )
    logs.configure(config.log.level, config.log.format)
    daemon = Daemon(
        config, lambda settings, config: NvmlSource(settings, ProcReader(config.procfs))
    )
    tasks = []

    async def appears(name: str) -> None:
        while not (folder / name).exists():
            await asyncio.sleep(POLL_SECONDS)

    async def tell() -> None:
        (folder / "url").write_text(daemon.url)
        await appears("reset")
        for late in (loop.lateness_seconds for loop in daemon.loops):
            while len(late) > 1:  # the look that is under way still needs its own
                late.popleft()
        if timers is not None:
            timers.reset()
        await appears("tell")
        if timers is not None:
            (folder / "shares").write_text(timers.lines())
        kept = (islice(loop.lateness_seconds, 1, None) for loop in daemon.loops)
        all_ = sorted(seconds for late in kept for seconds in late)
        (folder / "late").write_text("\n".join(map(str, all_)))

    await daemon.run(lambda: tasks.append(asyncio.create_task(tell())))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
