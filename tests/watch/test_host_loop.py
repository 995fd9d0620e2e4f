"""The loop of the host's GPUs: polled, judged with the servers that run there, published, ended when it is switched off."""

import asyncio
from contextlib import asynccontextmanager, suppress

from structlog.testing import capture_logs

from tests.watch.hosted import core, gpu
from vllm_watch.board.board import Board, Looked
from vllm_watch.config import Config
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.watch.host_loop import HostLoop
from vllm_watch.watch.host_watch import HostWatch, ServerScrape
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.publishing import Publisher

FINE, LOST = gpu(0, core(11, 10)), gpu(0, core(11, 10), lost=True)
HUNG = "hung"
SERVERS = {"a": ServerScrape(up=True, serves=True, pids=frozenset({11}))}


class Source:
    """Polls what it is told to, one reading after the other; then the last one again and again."""

    def __init__(self, *readings):
        self.readings = list(readings)
        self.polls = asyncio.Queue()
        self.closed = False
        self.t = 1e9

    async def read(self):
        one = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        self.t += 5.0
        self.polls.put_nowait(one)
        if isinstance(one, Exception):
            raise one
        if one == HUNG:
            return GpuReading(status=HUNG, t=self.t)
        return GpuReading(status="ok", t=self.t, gpus=one)

    async def close(self):
        self.closed = True


class Site:
    """The loop, and what became of its readings."""

    def __init__(self, source):
        self.board = Board()
        self.heard = []
        memory, recorder = Memory(None, self.board), FlightRecorder()
        publisher = Publisher(self.board, Fleet(), recorder, memory, (self,))
        self.sources = [source]
        self.loop = HostLoop(
            config(), lambda *_: self.sources[-1], HostWatch("localhost"), self.board, recorder, publisher,
            lambda: SERVERS,
        )  # fmt: skip

    def saw(self, target, events):
        self.heard += [(target, e.event, e.incident.kind) for e in events]


def config(**gpus):
    return Config.model_validate({"gpu": {"interval_seconds": 1} | gpus})


@asynccontextmanager
async def polling(*readings, polls):
    """After so many polls (and what came of them)."""
    site = Site(source := Source(*readings))
    task = asyncio.create_task(site.loop.run())
    try:
        async with asyncio.timeout(60):
            for _ in range(polls):
                await source.polls.get()
        yield site
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await site.loop.close()
        assert source.closed


async def test_a_reading_is_judged_shown_and_handed_to_each_look():
    """With the servers that run there: one incident, which names the one that it hits."""
    async with polling((FINE,), (LOST,), polls=3) as site:
        assert site.loop.gpus == (LOST,)
        assert site.board.gpus.gpus == (LOST,)
        assert site.board.host_sources["nvml"].outcome == "ok"
        assert site.heard == [("host:localhost", "opened", "gpu_fault")]
        (fault,) = site.loop.watch.concerning("a")
        assert fault == next(iter(site.board.host.incidents.open.values()))
        assert site.loop.watch.concerning("b") == ()


async def test_a_poll_without_gpus_says_nothing_of_them():
    """A driver that does not answer is no lost GPU, and looks at engines carry none."""
    async with polling((FINE,), HUNG, polls=3) as site:
        assert (site.loop.gpus, site.heard) == (None, [])
        assert site.board.gpus.status == HUNG


async def test_a_poll_that_breaks_is_said_and_the_next_one_goes_on():
    """The engines go on being watched meanwhile."""
    with capture_logs() as logs:
        async with polling(RuntimeError("x"), (FINE,), polls=3) as site:
            assert site.loop.gpus == (FINE,)
    assert [line["event"] for line in logs] == ["gpu_poll_failed"]


async def test_switched_off_its_incidents_end_and_nothing_old_is_shown():
    """By a reload; whoever listens is told. Another interval changes nothing of what is open."""
    async with polling((LOST,), polls=2) as site:
        await site.loop.configure(config(interval_seconds=2))
        assert len(site.board.host.incidents.open) == 1
        old = site.sources[0]
        site.sources.append(Source((LOST,)))
        await site.loop.configure(config(enabled="off"))
        assert old.closed
        old.closed = False  # each that was made is closed: this one, and the one in its place
        site.sources.append(old)
        site.loop._source = old
        assert site.heard[-1] == ("host:localhost", "resolved", "gpu_fault")
        assert site.board.host.incidents.open == {}
        assert "nvml" not in site.board.host_sources
        assert site.loop.gpus is None
        site.loop._take(
            GpuReading(status="ok", t=2e9, gpus=(LOST,)), Looked.now()
        )  # one that was under way
        assert (site.loop.gpus, len(site.board.host.incidents.open)) == (None, 0)


async def test_a_detector_that_breaks_is_said_once():
    class Breaks:
        def update(self, view):
            raise ValueError("no")

    site = Site(Source((FINE,)))
    site.loop.watch._detectors["stale_vram"] = Breaks()
    with capture_logs() as logs:
        for _ in range(3):
            site.loop._take(await site.sources[0].read(), Looked.now())
    (line,) = logs
    assert (line["event"], line["target"], line["detector"]) == (
        "detector_failed",
        "host:localhost",
        "stale_vram",
    )
