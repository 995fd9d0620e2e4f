"""What a look has brought is shown before anybody is told of it, and told once."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tests.detectors.looks import T, engine, seen, silent
from tests.told import made, told
from vllm_watch.board.board import Board, Looked
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.samples.target import WATCHER, Target
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.vllm import Look
from vllm_watch.watch.host_watch import HostWatch
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.publishing import Publisher
from vllm_watch.watch.watch import Watch

HOST = "host:localhost"


class Other:
    """Another listener."""

    def __init__(self):
        self.heard = []

    def saw(self, target, events):
        self.heard.append([each.incident.id for each in events])


class Desk:
    """A publisher with all that is real behind it, and what its listener found on the board when it was told."""

    def __init__(self, *names):
        self.board = Board()
        self.fleet = Fleet()
        self.memory = Memory(None, self.board)
        self.recorder = FlightRecorder()
        self.other = Other()
        self.publisher = Publisher(
            self.board, self.fleet, self.recorder, self.memory, (self, self.other)
        )
        self.host = HostWatch("localhost")
        self.targets = {name: Target(name=name, url=f"http://{name}:8000") for name in names}
        self.watches = {name: Watch(name) for name in names}
        for target in self.targets.values():
            self.board.add_target(target, 5.0)
        self.heard = []  # (target, [(event, id, was it so on the board?)])

    def saw(self, target, events):
        self.heard.append((target, [(e.event, e.incident.id, self.is_shown(e)) for e in events]))

    def is_shown(self, event):
        shown = self.board.incidents.find(event.incident.id)
        return shown is not None and shown.open == event.incident.open

    def look(self, name, observation, events=None, late_s=0.0):
        """Judge an observation and show it; `events`: say that judgement led to these."""
        watch, observation = self.watches[name], replace(observation, target=name)
        found = watch.observe(observation)
        look = Look(observation, None, (("metrics", observation.scrape),))
        given = found if events is None else events
        looked = Looked.now().ended(5.0, 4.0)
        self.publisher.look(self.targets[name], watch, look, watch.signals, given, looked, late_s)

    def gpus(self, second, *gpus, servers=None):
        reading = GpuReading(status="ok", t=T + second, gpus=gpus)
        events = self.host.look(reading.t, None, gpus, servers or {})
        self.publisher.host(reading, self.host, events, Looked.now().ended(5.0, 5.0))

    def crash(self, name="a"):
        for second in (0, 5, 10):
            self.look(name, seen(second, engine(1000 + second)))
        for second in (15, 20):
            self.look(name, silent(second))


def test_the_board_shows_an_incident_before_anybody_is_told():
    """Who acts and who notifies read the board: the look's signals and calls stand there by then, too."""
    desk = Desk("a")
    desk.crash()
    (incident,) = desk.board.targets["a"].incidents.open.values()
    assert desk.heard[-1] == ("a", [("opened", incident.id, True)])
    assert desk.board.targets["a"].signals.state == "down"
    assert desk.board.targets["a"].sources["metrics"].calls == 5
    assert desk.other.heard == [[], [], [], [], [incident.id]]


def test_what_is_kept_is_on_its_way_to_the_disk_before_it_is_shown():
    """What was told of is never less than what another run will know."""
    desk, order = Desk("a"), []
    keep, observe, publish = desk.memory.keep, desk.recorder.observe, desk.board.publish
    desk.memory.keep = lambda *given: (order.append("memory"), keep(*given))
    desk.recorder.observe = lambda *given: (order.append("recorder"), observe(*given))
    desk.board.publish = lambda *given, **named: (order.append("board"), publish(*given, **named))
    saw = desk.saw
    desk.saw = lambda *given: (order.append("listener"), saw(*given))
    desk.look("a", seen(0))
    assert order == ["memory", "recorder", "board", "listener"]


def test_of_a_target_removed_meanwhile_nothing_is_shown_and_others_are():
    """What was under way may not bring it back; what it led to for others is not lost."""
    desk = Desk("a")
    desk.board.remove_target("a")
    common = told(id="common", target=WATCHER, engine=None, kind="engine_stalled")
    desk.look("a", seen(0), made(told(id="mine", target="a"), common))
    assert dict(desk.board.targets) == {}
    assert [each.id for each in desk.board.incidents.listed()] == ["common"]
    assert list(desk.board.own.incidents.open) == ["common"]


def test_a_target_that_goes_ends_its_incidents_everywhere():
    """On the board, in the log and for who listens; the fleet and the recorder forget it."""
    desk = Desk("a", "b")
    desk.crash()
    (name,) = desk.board.targets["a"].incidents.open
    with capture_logs() as logs:
        desk.publisher.gone(desk.targets["a"], desk.watches["a"])
    assert list(desk.board.targets) == ["b"]
    assert desk.heard[-1] == ("a", [("resolved", name, True)])
    (line,) = logs
    assert (line["event"], line["id"], line["resolution"]) == (
        "incident_resolved",
        name,
        "target_gone",
    )
    assert desk.fleet._targets.keys() == desk.fleet._singles.keys() == set()


def test_an_incident_is_logged_when_it_opens_and_when_it_ends():
    """One line when it opens (a warning where it pages) and one when it ends."""
    desk = Desk("chat")
    events = [told(), told("updated"), told("resolved"), told(severity="ticket")]
    with capture_logs() as logs:
        desk.look("chat", seen(0), made(*events))
    said = {
        name: told()[name]
        for name in ("id", "target", "engine", "kind", "cause", "severity", "summary")
    }
    assert logs == [
        said | {"event": "incident_opened", "log_level": "warning"},
        said | {"event": "incident_resolved", "log_level": "info", "resolution": "healthy"},
        said | {"event": "incident_opened", "log_level": "info", "severity": "ticket"},
    ]  # fmt: skip


CHANGES = {  # before → now: what is logged, how loudly
    "nothing that people were told": ({}, {}, None),
    "it pages now": ({"severity": "ticket"}, {}, ("incident_changed", "warning")),
    "it recovers": ({}, {"phase": "recovering"}, None),
    "it fires again, and pages now": (
        {"phase": "recovering", "severity": "ticket", "cause": "unknown"}, {}, ("incident_fires_again", "warning"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "logged"), CHANGES.values(), ids=CHANGES)
def test_an_incident_is_logged_when_it_changes_or_fires_again(before, now, logged):
    """With the cause and severity before, so that the log tells the whole story of an incident."""
    desk = Desk("chat")
    (event,) = made(told("updated", **now))
    was = replace(event.incident, **{"phase": "active", **before})
    with capture_logs() as logs:
        desk.look("chat", seen(0), [replace(event, before=was)])
    assert [(each["event"], each["log_level"]) for each in logs] == ([logged] if logged else [])
    if logs:
        found = logs[0]["cause_before"], logs[0]["severity_before"]
        assert found == (was.cause, was.severity)


# --- the host


def fall_silent(desk, names):
    for name in names:
        desk.look(name, seen(0, engine(1000)))
    for second in range(5, 40, 5):
        for name in names:
            desk.look(name, silent(second, "read_timeout"))


@pytest.mark.parametrize(("severity", "suspected"), [("page", False), ("ticket", True)])
def test_a_page_of_the_host_explains_the_silence_of_its_servers(severity, suspected):
    """Three servers of three fall silent: their lost GPUs have paged for it, and no network is suspected."""
    names = ("a", "b", "c")
    desk = Desk(*names)
    lost = told(
        id="lost", target=HOST, engine=None, kind="gpu_fault", severity=severity, concerns=[*names]
    )
    desk.board.tell(made(lost))
    fall_silent(desk, names)
    assert (desk.fleet.incidents != ()) is suspected
    assert bool(desk.board.own.incidents.open) is suspected


def test_what_many_had_open_is_held_as_the_watcher_begins():
    """Pages of an earlier run, and nothing of the fleet: tickets, before anything is scraped; each is told so once."""
    names = ("a", "b", "c")
    before = Desk(*names)
    for name in names:
        before.crash(name)
    desk = Desk(*names)
    desk.publisher.open(desk.host)
    for name in names:
        assert desk.watches[name].restore(before.watches[name].export_state(), T + 60) == []
    desk.publisher.take_up({name: (desk.targets[name], desk.watches[name]) for name in names})
    shown = [i for name in names for i in desk.board.targets[name].incidents.open.values()]
    assert [(each.severity, each.restart_advised) for each in shown] == [("ticket", False)] * 3
    told = sorted((name, event) for name, said in desk.heard for event, *_ in said)
    assert told == [(name, "updated") for name in names]
