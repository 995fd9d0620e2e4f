"""The loop of one target: when it looks, what is judged with its answer; a look that fails is one look."""

import asyncio
import itertools
from collections import Counter
from contextlib import asynccontextmanager, suppress

from structlog.testing import capture_logs

from tests.detectors.looks import seen
from tests.ports import free_port
from vllm_watch.board.board import Board
from vllm_watch.detectors.base import Around
from vllm_watch.incidents.verdicts import NO_RESTART, RestartNews
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.sources import http
from vllm_watch.sources.engine_log import EngineLog
from vllm_watch.sources.vllm import VllmSource
from vllm_watch.watch.peers import Peers
from vllm_watch.watch.target_loop import BATCH_SECONDS, TargetLoop, first_scrape_s
from vllm_watch.watch.watch import NOTHING_AROUND, Watch

LOG = """\
INFO 11-21 03:00:00 [api_server.py:1805] vLLM API server version 0.10.1
INFO 11-21 03:00:02 [cuda.py:290] Using XFormers backend.
ERROR 11-21 03:00:09 [core.py:7] ValueError: No available memory for the cache blocks.
"""


class Host:
    """The host of a target: what the loop asks of it. `read` gives the GPUs of a look."""

    def __init__(self, read=lambda: None):
        self.read = read

    @property
    def gpus(self):
        return self.read()

    @property
    def watch(self):
        return self

    def concerning(self, target):
        return (f"what hits {target}",)

    def around(self, target):
        return Around(
            others_gpus=frozenset({f"not of {target}"}),
            core=f"core of {target}",
            left_core=f"core that {target} left",
        )


class Publisher:
    """Keeps the observation and the signals of each look."""

    def __init__(self):
        self.seen = asyncio.Queue()
        self.signals = []

    def look(self, target, watch, look, signals, events, looked, late_s):
        self.signals.append(signals)
        self.seen.put_nowait(look.observation)


class Judge(Watch):
    """A Watch that keeps what it is told beside each observation; at some looks it breaks."""

    def __init__(self, *breaks_at):
        super().__init__("t", detectors={})
        self.told, self.around, self.breaks_at = [], [], breaks_at

    def observe(self, observation, *, beside=(), restart=NO_RESTART, around=NOTHING_AROUND):
        self.told.append((tuple(beside), restart))
        self.around.append(around)
        if len(self.told) in self.breaks_at:
            raise ValueError("a bug of ours")
        return super().observe(observation, around=around)


@asynccontextmanager
async def looking(host=None, *, watch=None, board=None, **settings):
    """The real loop, at a port where nothing listens; gives what its publisher is shown."""
    target = Target(name="t", url=f"http://127.0.0.1:{free_port()}")
    scrape = ScrapeSettings(interval_seconds=0.2)
    async with http.Session() as session:
        source, publisher = VllmSource(target, scrape, session), Publisher()
        watch = watch or Watch("t", detectors={})
        board = board or Board()
        loop = TargetLoop(
            target,
            scrape,
            source,
            watch,
            board,
            host or Host(),
            publisher,
            Peers(board),
            **settings,
        )
        task = asyncio.create_task(loop.run(spread=False))
        try:
            yield publisher
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_a_look_carries_what_the_log_says(tmp_path):
    """The attention kernels for advice, the failure for incidents: from a real file, once it was read."""
    path = tmp_path / "vllm.log"
    path.write_text(LOG)
    async with asyncio.timeout(60), looking(log=EngineLog("t", path)) as shown:
        look = await shown.seen.get()
        while look.attention_backend is None:
            look = await shown.seen.get()
    assert look.attention_backend == "XFormers"
    assert look.start_failure.failure == "oom_kv_alloc_or_profiling"


def test_first_looks_are_spread_over_the_interval_and_some_begin_together():
    """A thousand targets at 5 s: ten moments, half a second apart, about a hundred targets at each."""
    now_s, interval = 1234.567, 5.0
    first = [first_scrape_s(f"vllm-{number}:8000", now_s, interval) for number in range(1000)]
    assert all(at % BATCH_SECONDS == 0 for at in first)
    assert now_s <= min(first) <= max(first) <= now_s + interval + BATCH_SECONDS
    together = Counter(at % interval for at in first)
    assert len(together) == interval / BATCH_SECONDS
    assert max(together.values()) < 150


WITHOUT_MEMORY = (2, 3, 5)
"""Looks for which there is none."""


async def test_looks_that_fail_are_said_once_and_the_next_one_goes_on():
    """Out of memory at a look: one line with where it happened, however many fail in a row, and the loop lives."""
    numbers, shown = itertools.count(1), asyncio.Queue()

    def gpus():
        number = next(numbers)
        if number in WITHOUT_MEMORY:
            raise MemoryError(f"at look {number}")
        shown.put_nowait(number)

    with capture_logs() as said:
        async with asyncio.timeout(60), looking(Host(gpus)):
            looks = [await shown.get() for _ in range(3)]
    assert looks == [1, 4, 6]
    failed = [line for line in said if line["event"] == "look_failed"]
    assert [(line["target"], line["log_level"]) for line in failed] == [("t", "error")] * 2
    assert all(line["exc_info"] for line in failed)


async def test_a_loop_that_was_ended_shows_no_look_though_its_cancellation_is_lost():
    """Its target may be watched by another loop by then, which would be told that it is down."""
    target = Target(name="t", url=f"http://127.0.0.1:{free_port()}")
    scrape = ScrapeSettings(interval_seconds=0.2)
    asked, publisher = asyncio.Event(), Publisher()

    class Deaf(VllmSource):
        async def observe(self):
            asked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return await super().observe()

    async with asyncio.timeout(60), http.Session() as session:
        source, watch = Deaf(target, scrape, session), Watch("t", detectors={})
        loop = TargetLoop(
            target, scrape, source, watch, board := Board(), Host(), publisher, Peers(board)
        )
        task = asyncio.create_task(loop.run(spread=False))
        await asked.wait()
        loop.end()
        task.cancel()
        await task
    assert publisher.signals == []


async def test_judgement_is_told_what_is_known_beside_the_look():
    """What its host has that hits it; and of our own restart of it, as the board says at that moment."""
    board, judge = Board(), Judge()
    board.add_target(Target(name="t", url="http://t"), 0.2)
    under_way = RestartNews(under_way=True)
    async with asyncio.timeout(60), looking(watch=judge, board=board) as shown:
        await shown.seen.get()
        board.targets["t"].restart_news = under_way
        await shown.seen.get()
        await shown.seen.get()
        board.remove_target("t")  # as it goes, a look may still be under way
        await shown.seen.get()
        await shown.seen.get()
    assert {beside for beside, _ in judge.told} == {("what hits t",)}
    assert {around.others_gpus for around in judge.around} == {frozenset({"not of t"})}
    assert {around.core for around in judge.around} == {"core of t"}
    news = [key for key, _ in itertools.groupby(restart for _, restart in judge.told)]
    assert news == [None, under_way, NO_RESTART]


async def test_a_look_that_judgement_breaks_on_is_shown_as_not_judged():
    """Nothing of the look before is taken for this one; it is said once, and the next look is judged again."""
    judge = Judge(2, 3)
    with capture_logs() as said:
        async with asyncio.timeout(60), looking(watch=judge) as shown:
            for _ in range(4):
                await shown.seen.get()
    assert [each.state for each in shown.signals[:4]] == [
        "starting",
        "unknown",
        "unknown",
        "starting",
    ]
    assert "vllm-watch failed to judge" in shown.signals[1].state_text
    assert [line["event"] for line in said if line["log_level"] == "error"] == ["judgement_failed"]


async def test_what_the_host_takes_of_a_target():
    """Of one that runs here its last look, its incidents and its processes; of one elsewhere nothing."""

    class Cpu:
        pids = frozenset({7, 8})

    board = Board()
    async with http.Session() as session:

        def loop(url, cpu=None):
            target, scrape = Target(name="t", url=url), ScrapeSettings()
            source, watch = VllmSource(target, scrape, session), Watch("t")
            made = TargetLoop(
                target, scrape, source, watch, board, Host(), Publisher(), Peers(board), cpu=cpu
            )
            for second in (0, 5):
                watch.observe(seen(second))
            return made

        assert loop("http://10.9.8.7:8000", Cpu()).on_host() is None
        here = loop("http://127.0.0.1:8000", Cpu()).on_host()
        assert (here.up, here.serves, here.pids) == (True, True, Cpu.pids)
        assert loop("http://127.0.0.1:8000").on_host().pids == frozenset()
