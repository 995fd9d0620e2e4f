"""An engine that fails what it is asked, told in time and with its cause; and what clients do to themselves."""

from dataclasses import dataclass, field

import pytest

from tests.detectors.looks import engine, gpu, seen
from vllm_watch.samples.observation import StartFailure
from vllm_watch.samples.record import changed
from vllm_watch.watch.watch import Watch

COUNTED = ("error", "stop", "length", "abort", "repetition")


@dataclass
class Server:
    """Counters of a server; `run` lets requests end, so many per second, look by look, and is judged."""

    interval: float = 5.0
    engines: int = 1
    pools: bool = False  # a pooling model, which generates nothing
    second: float = 0.0
    ended: dict = field(default_factory=lambda: dict.fromkeys(COUNTED, 0.0))
    api: dict = field(default_factory=lambda: {"2xx": 0.0, "4xx": 0.0, "5xx": 0.0})
    refused: float = 0.0
    tokens: float = 0.0
    nixl: float = 0.0
    steps: float = 1000.0
    watch: Watch = field(default_factory=lambda: Watch("x"))

    def run(self, seconds, *, api=None, refused=0.0, nixl=0.0, tokens=None, log=None, gpus=None, running=0.0, **ends):  # fmt: skip
        """`tokens`: each served request makes so many; `api`: responses per second by class."""
        events = []
        for _ in range(round(seconds / self.interval)):
            self.second += self.interval
            for reason, each in ends.items():
                self.ended[reason] += each * self.interval
            served = ends.get("stop", 0.0) + ends.get("length", 0.0)
            made = served * self.interval * (100 if tokens is None else tokens)
            self.tokens, self.steps = self.tokens + made, self.steps + made / 4
            for status, each in (api or {}).items():
                self.api[status] += each * self.interval
            self.refused += refused * self.interval
            self.nixl += nixl * self.interval
            look = seen(self.second, *self._samples(running), gpus=gpus)
            events += self.watch.observe(changed(look, start_failure=log))
        assert self.watch.failures == {}
        return events

    def _samples(self, running):
        sample = changed(
            engine(self.steps, running=running, kv=0.0 if not running else 0.3),
            request_success={k: float(int(v)) for k, v in self.ended.items()},
            http_responses={k: float(int(v)) for k, v in self.api.items()},
            admission_rejections={"max_num_queued_reqs": float(int(self.refused))},
            generation_tokens=0.0 if self.pools else 4000.0 + self.tokens,
            kv_failures={"nixl_num_failed_transfers": float(int(self.nixl))},
        )
        idle = changed(sample, request_success=dict.fromkeys(COUNTED, 0.0), kv_failures=None, engine="1")  # fmt: skip
        return (sample, idle)[: self.engines]

    @property
    def incidents(self):
        return [each for each in self.watch.incidents if each.kind == "engine_failing"]


WELL = {"stop": 2.0, "api": {"2xx": 2.0}, "running": 4.0}
FAILS = {"error": 2.0, "api": {"5xx": 2.0}}


def paged(events):
    """Seconds from the first look to the page, of what was told of this kind."""
    return [e.t - 1_700_000_000.0 for e in events if e.incident.severity == "page" and e.incident.kind == "engine_failing"]  # fmt: skip


@pytest.mark.parametrize("rate", [0.1, 2.0, 50.0])
def test_twenty_minutes_of_errors_page_within_half_a_minute(rate):
    """From the first look on, and after an hour of health; the state says so, and nothing advises a restart."""
    for before in (0, 600):
        server = Server()
        server.run(before + 5, **WELL)
        events = server.run(1200, error=rate, api={"5xx": rate})
        (incident,) = server.incidents
        assert (incident.cause, incident.severity, incident.restart_advised) == ("unknown", "page", False)  # fmt: skip
        assert paged(events)[0] - (before + 5) <= 30
        assert (server.watch.signals.state, server.watch.signals.engines["0"].state) == ("failing",) * 2  # fmt: skip
        assert "no token was generated" in incident.summary


def test_a_prefill_that_is_gone_is_named():
    """Failed transfers grow with the errors; the peer is to be looked at, however long it lasts."""
    server = Server()
    server.run(60, **WELL)
    server.run(600, **FAILS, nixl=2.0)
    (incident,) = server.incidents
    assert (incident.cause, incident.severity, incident.restart_advised) == ("kv_transfer", "page", False)  # fmt: skip
    assert "nixl_num_failed_transfers" in incident.evidence_for[1].text
    assert server.watch.signals.engines["0"].requests_finished_per_second == 0.0
    assert server.watch.signals.engines["0"].requests_finished_by_reason_per_second["error"] > 0


def test_a_transfer_that_failed_before_is_not_the_cause():
    server = Server()
    server.run(60, **WELL, nixl=1.0)
    server.run(60, **FAILS)
    assert [each.cause for each in server.incidents] == ["unknown"]


CUDA = StartFailure(failure="xid_or_gpu_lost", deterministic=False, sentence="a CUDA error")


def test_a_cuda_error_is_cured_by_a_restart():
    """Advised after a minute, and never where a GPU needs hands."""
    server = Server()
    server.run(60, **WELL)
    server.run(40, **FAILS, log=CUDA)
    assert [(each.cause, each.restart_advised) for each in server.incidents] == [("cuda_error", False)]  # fmt: skip
    server.run(40, **FAILS, log=CUDA)
    assert [each.restart_advised for each in server.incidents] == [True]
    server = Server()
    server.run(120, **FAILS, log=CUDA, gpus=(gpu(xid_errors=(79,)),))
    assert [(each.cause, each.restart_advised) for each in server.incidents] == [("cuda_error", False)]  # fmt: skip


@pytest.mark.parametrize("trouble", [{"xid_errors": (13,)}, {"xid_errors": (79,)}, {"lost": True}])
def test_an_xid_on_the_host_may_be_another_engines(trouble):
    """With eight engines on a host it is, seven times of eight: what fails here is not cured by a restart for it."""
    server = Server()
    server.run(300, **FAILS, gpus=(gpu(**trouble),))
    (incident,) = server.incidents
    assert (incident.cause, incident.severity, incident.restart_advised) == ("unknown", "page", False)  # fmt: skip
    assert "gpu_trouble" in [each.name for each in incident.evidence_for]


ILL = {
    "half of all": ({"error": 2.0, "stop": 2.0}, "page", 40),
    "one of eight": ({"error": 1.0, "stop": 7.0}, "page", 90),
    "one of thirty": ({"error": 1.0, "stop": 30.0}, "ticket", 90),
    "a 5xx that no engine has seen": ({"stop": 1.0, "api": {"2xx": 1.0, "5xx": 3.0}}, "page", 40),
    "answers without a token": ({"stop": 2.0, "tokens": 0}, "page", 60),
    "repetition": ({"repetition": 2.0, "stop": 1.0}, "ticket", 90),
    "all hang up before the first token": ({"abort": 2.0}, "ticket", 90),
}


@pytest.mark.parametrize(("ends", "severity", "within"), ILL.values(), ids=ILL)
def test_what_is_told(ends, severity, within):
    server = Server()
    server.run(120, **WELL)
    server.run(within, **ends)
    assert [each.severity for each in server.incidents] == [severity]


def rejected(rate):
    return {"api": {"5xx": rate, "2xx": 1.0}, "refused": rate, "stop": 1.0, "running": 4.0}


WELL_ENOUGH = {
    "4xx storm": {"api": {"4xx": 50.0}},
    "4xx storm beside work": {"api": {"4xx": 50.0, "2xx": 2.0}, "stop": 2.0, "running": 4.0},
    "clients that hang up": {"abort": 20.0, "stop": 1.0, "running": 4.0},
    "admission refuses": rejected(40.0),
    "a router that retries what is refused": rejected(400.0),
    "one error now and then": {"error": 0.01, "stop": 2.0, "running": 4.0},
    "nothing is asked": {},
}


@pytest.mark.parametrize("ends", WELL_ENOUGH.values(), ids=WELL_ENOUGH)
@pytest.mark.parametrize("interval", [1.0, 5.0, 30.0])
def test_what_is_not_the_engines(ends, interval):
    """Twenty minutes, and never a page; nor a ticket."""
    server = Server(interval=interval)
    server.run(120, **WELL)
    assert server.run(1200, **ends) == []
    assert server.incidents == []


def test_a_refusal_is_counted_before_its_503():
    """Some are on their way at every look; none of it is a failure."""
    server = Server()
    server.run(60, **WELL)
    for late in (3.0, 0.0, 8.0, 0.0, 5.0, 0.0) * 20:
        server.refused += 50.0
        server.api["5xx"] = server.refused - late
        server.run(5, stop=1.0)
    assert server.incidents == []


def test_a_pooling_model_generates_nothing():
    server = Server(pools=True)
    server.run(600, stop=5.0, tokens=0)
    assert server.incidents == []


def test_one_moment_of_failures_is_none():
    """All that was in flight when a peer was restarted; afterwards all is well, or nobody asks."""
    for after in (WELL, {}):
        server = Server()
        server.run(60, **WELL)
        server.ended["error"] += 200.0
        server.api["5xx"] += 200.0
        server.run(600, **after)
        assert server.watch.opened == {}


def test_it_ends_when_requests_succeed():
    """And while nobody asks it stays, for five minutes."""
    server = Server()
    server.run(60, **WELL)
    server.run(60, **FAILS)
    server.run(120)
    assert [each.phase for each in server.incidents] == ["active"]
    events = server.run(180, **WELL)
    assert server.incidents == []
    assert events[-1].incident.resolution == "healthy"
    server.run(60, **FAILS)
    server.run(500)
    assert server.incidents == []


def test_a_failing_api_server_before_several_engines_is_told_once():
    """What no engine has counted is the server's; what an engine has counted is its own."""
    server = Server(engines=2)
    server.run(60, **WELL)
    server.run(60, stop=0.5, api={"5xx": 4.0})
    assert [each.engine for each in server.incidents] == [None]
    server = Server(engines=2)
    server.run(60, **WELL)
    server.run(60, **FAILS)
    assert [each.engine for each in server.incidents] == ["0"]


def test_a_restart_begins_anew():
    """Counters that fall are another process's."""
    server = Server()
    server.run(60, **WELL)
    server.run(60, **FAILS)
    server.ended, server.api = dict.fromkeys(COUNTED, 0.0), dict.fromkeys(server.api, 0.0)
    server.tokens, server.steps = -3000.0, 100.0
    server.run(200, **WELL)
    assert server.incidents == []


def test_a_lost_answer_changes_nothing():
    """Nor is a failure counted twice because a look was lost."""
    server = Server()
    server.run(60, **WELL)
    server.run(60, **FAILS)
    (incident,) = server.incidents
    server.watch.observe(changed(seen(server.second + 5), reading=None))
    assert [each.id for each in server.incidents] == [incident.id]


def test_only_hanging_up_never_pages():
    """Clients that hang up before the first token may have their reasons."""
    server = Server()
    server.run(120, **WELL)
    events = server.run(1200, abort=20.0)
    assert paged(events) == []
