"""Requests that spend their time in the API server: a page where that is new and its CPU is used up."""

from dataclasses import dataclass, field

import pytest

from tests.detectors.looks import engine, seen
from vllm_watch.detectors.overload import Detector, Settings
from vllm_watch.samples.engine import Histogram
from vllm_watch.samples.record import changed
from vllm_watch.watch.watch import Watch

QUEUE_S, PREFILL_S, DECODE_S = 0.1, 0.2, 12.0


def a_watch():
    return Watch("x", detectors={"overload": Detector(Settings())})


@dataclass
class Server:
    """One engine behind an API server; `run` lets requests finish that spent so many seconds outside of the engine."""

    interval: float = 5.0
    second: float = 0.0
    done: float = 0.0
    sums: dict = field(
        default_factory=lambda: dict.fromkeys(
            ("e2e_latency", "queue_time", "prefill_time", "decode_time"), 0.0
        )
    )
    steps: float = 1000.0
    cpu: float = 100.0
    media: float = 0.0
    watch: Watch = field(default_factory=a_watch)

    def run(self, seconds, *, each=5.0, outside=0.02, cores=0.5, queue=QUEUE_S, steps=20.0, media=0.0, huge=0.0, without=()):  # fmt: skip
        """`each`: requests per second; `cores`: None where there is no process_cpu_seconds; `huge`: seconds that one more request spends outside, once."""
        events = []
        for turn in range(round(seconds / self.interval)):
            self.second += self.interval
            done = each * self.interval
            inside = {"queue_time": queue, "prefill_time": PREFILL_S, "decode_time": DECODE_S}
            for name, part in inside.items():
                self.sums[name] += part * done
            self.sums["e2e_latency"] += (sum(inside.values()) + outside) * done + (huge if not turn else 0.0)  # fmt: skip
            self.done += done
            self.steps += steps * self.interval
            self.cpu += (cores or 0.0) * self.interval
            self.media += media * done
            histograms = {name: Histogram(self.done, total) for name, total in self.sums.items() if name not in without}  # fmt: skip
            sample = changed(
                engine(self.steps, running=60.0),
                mm_cache_queries=self.media,
                request_success={"stop": self.done},
                **histograms,
            )
            known = {} if cores is None else {"process_cpu_seconds": self.cpu}
            events += self.watch.observe(seen(self.second, sample, fds=160.0, **known))
        assert self.watch.failures == {}
        return events

    @property
    def told(self):
        return [(each.kind, each.cause, each.severity, each.restart_advised, each.engine) for each in self.watch.incidents]  # fmt: skip


PAGE = [("overload", "api_overloaded", "page", False, None)]
TICKET = [("overload", "api_overloaded", "ticket", False, None)]


@pytest.mark.parametrize("cores", [1.0, 1.4, None])
@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
def test_requests_that_wait_in_the_api_server_page(interval, cores):
    """Also where several API servers hide what they use; and it ends when they are through."""
    server = Server(interval=interval)
    server.run(1200, cores=cores and 0.5)
    events = server.run(300, outside=14.0, cores=cores)
    assert server.told == PAGE
    assert events[0].t - 1_700_000_000.0 - 1200 <= 255
    assert "14 s in the API server" in events[0].incident.summary
    server.run(300, cores=cores and 0.5)
    assert server.told == []


def test_what_the_watcher_learnt_outlives_it():
    server = Server()
    server.run(1200)
    state = server.watch.export_state()
    server.watch = a_watch()
    assert server.watch.restore(state, 1_700_000_000.0 + server.second) == []
    server.run(300, outside=14.0, cores=1.0)
    assert server.told == PAGE


def test_harm_that_is_not_new_or_not_its_cpu_is_a_ticket():
    """A captioning job that was so when the watcher came; images that came lately; a process that waits for something else."""
    server = Server()
    server.run(3600, outside=12.0, cores=1.0, media=3.0)
    assert server.told == TICKET
    server = Server()
    server.run(1200)
    server.run(600, outside=12.0, cores=1.0, media=3.0)
    assert server.told == TICKET
    server = Server()
    server.run(1200)
    server.run(600, outside=12.0, cores=0.2)
    assert server.told == [("overload", "unknown", "ticket", False, None)]


QUIET = {
    "steady image preprocessing": {"outside": 4.0, "cores": 1.0, "media": 3.0},
    "a huge prompt": {"huge": 90.0},
    "a queue in the engine": {"queue": 60.0, "outside": 20.0, "cores": 1.0},
    "an engine that takes requests every 15 s": {"steps": 1 / 15, "outside": 14.0, "cores": None},
    "busy, and in time": {"cores": 1.0, "outside": 0.5},
    "nobody asks": {"each": 0.0},
    "three requests a minute": {"each": 0.05, "huge": 30.0},
    "no decode time": {"outside": 14.0, "cores": 1.0, "without": ("decode_time",)},
}


@pytest.mark.parametrize("load", QUIET.values(), ids=QUIET)
@pytest.mark.parametrize("interval", [5.0, 15.0])
def test_what_is_no_trouble_of_the_api_server(interval, load):
    server = Server(interval=interval)
    server.run(1200)
    assert server.run(1800, **load) == []


def test_a_burst_of_a_minute_is_none():
    """It is worked off within another, and its requests finish in one more."""
    server = Server()
    for _ in range(5):
        server.run(900)
        assert server.run(120, outside=20.0, cores=1.0) == []
