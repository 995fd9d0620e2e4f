"""What the board keeps of incidents: the open ones, the last that ended, and how many there were."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from structlog.testing import capture_logs

from tests.export.small_board import SERVING, T, small_board
from vllm_watch.board.board import Board
from vllm_watch.board.incidents import RESOLVED_MAX
from vllm_watch.story.kinds import KINDS
from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents import incident as judged
from vllm_watch.incidents import relations
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.sources.vllm import Look
from vllm_watch.watch.target_loop import TargetLoop, tell_ended, tell_incident


def told(event: str = "opened", t: float = T, **more: object) -> dict:
    """One event in the published form."""
    return {
        "t": t, "event": event, "id": "engine_stalled-1", "target": "chat", "engine": "0", "kind": "engine_stalled",
        "cause": "hang", "severity": "page", "summary": "No step for 42 s.", "restart_advised": False,
        "evidence": {"for": [{"name": "steps_per_second", "value": 0.0, "unit": "", "expected": 31.0, "text": ""}], "against": []},
    } | ({"resolution": "healthy"} if event == "resolved" else {}) | more  # fmt: skip


def board_of(*events: dict) -> Board:
    board = small_board()
    board.incident_events("chat", events)
    return board


def open_ids(board: Board) -> list[str]:
    return list(board.targets["chat"].incidents.open)


def all_ids(board: Board) -> list[str]:
    return [incident.id for incident in board.incidents.listed()]


def test_incident_is_open_until_it_is_resolved():
    """It begins when it was opened, says what was told last, and ends with its resolution."""
    board = board_of(told(), told("updated", T + 9, cause="unknown", restart_advised=True))
    incident = board.targets["chat"].incidents.open["engine_stalled-1"]
    assert board.incidents.find("engine_stalled-1") is incident
    assert (incident.cause, incident.restart_advised) == ("unknown", True)
    assert (incident.opened_timestamp_seconds, incident.updated_timestamp_seconds) == (T, T + 9)
    board.incident_events("chat", [told("resolved", T + 60)])
    assert open_ids(board) == []
    ended = board.incidents.find("engine_stalled-1")
    assert ended is not None
    assert (ended.opened_timestamp_seconds, ended.resolved_timestamp_seconds) == (T, T + 60)
    assert ended.resolution == "healthy"


def test_every_kind_of_the_judgement_is_counted_from_the_start():
    """A rate over the first incident of a kind needs the 0 before it."""
    assert {*relations.ORDER, *relations.CAUSES_BESIDE} == set(KINDS)
    assert small_board().targets["chat"].incidents.opened == dict.fromkeys(KINDS, 0)


@pytest.mark.parametrize(
    ("events", "counted"),
    [
        ([told()], 1),
        ([told(), told("updated"), told("resolved")], 1),
        ([told(), told("resolved"), told(id="engine_stalled-2")], 2),
        ([told(), told()], 1),
        ([told("updated")], 0),
        ([told("resolved")], 0),
    ],
    ids=["open", "ended", "two", "told twice", "from before us", "ended from before us"],
)
def test_each_incident_is_counted_once(events, counted):
    """When it is opened; one that was open before the watcher started was counted then."""
    assert board_of(*events).targets["chat"].incidents.opened["engine_stalled"] == counted


def test_kind_that_is_no_word_of_ours_is_counted_too():
    """Kinds may grow."""
    assert board_of(told(kind="new_kind")).targets["chat"].incidents.opened["new_kind"] == 1


@pytest.mark.parametrize("event", ["updated", "resolved"])
def test_incident_from_before_the_watcher_has_no_beginning(event):
    """Its begin is unknown, not now."""
    incident = board_of(told(event)).incidents.find("engine_stalled-1")
    assert incident is not None
    assert incident.opened_timestamp_seconds is None


def test_those_that_ended_are_bounded():
    """The oldest end goes first."""
    board = board_of(
        *(told(e, T + i, id=str(i)) for i in range(RESOLVED_MAX + 3) for e in ("opened", "resolved"))
    )  # fmt: skip
    assert all_ids(board) == [str(i) for i in range(RESOLVED_MAX + 2, 2, -1)]
    assert board.incidents.find("2") is None


def test_open_ones_come_first_what_pages_on_top_then_the_newest():
    """In the order in which a person looks at them."""
    board = board_of(
        told(id="ended"), told("resolved", id="ended"), told(id="info", severity="info"), told(id="page"),
        told(id="ticket", severity="ticket", t=T + 5), told(id="later page", t=T + 1), told(id="odd", severity="alarm"),
    )  # fmt: skip
    assert all_ids(board) == ["later page", "page", "ticket", "info", "odd", "ended"]


def test_incident_that_opens_again_is_open_once_and_not_also_ended():
    """Under one id there is one incident."""
    board = board_of(told(), told("resolved", T + 1), told("opened", T + 2))
    assert all_ids(board) == ["engine_stalled-1"]
    assert open_ids(board) == ["engine_stalled-1"]


def test_target_that_goes_takes_its_incidents_with_it():
    """They end as target_gone when it was last looked at, and stay to be read; others stay open."""
    board = board_of(told())
    board.incident_events("gone", [told(id="other", target="gone")])
    board.publish(replace(SERVING, t=T + 30))
    (ended,) = board.remove_target("chat")
    assert (ended.id, ended.resolution) == ("engine_stalled-1", "target_gone")
    assert ended.resolved_timestamp_seconds == T + 30
    assert board.incidents.find("engine_stalled-1") is ended
    assert all_ids(board) == ["other", "engine_stalled-1"]
    assert board.remove_target("chat") == []


def test_target_that_goes_unseen_ends_its_incidents_when_they_were_last_told_of():
    """There is no later time that is known."""
    board = Board()
    board.add_target(Target(name="chat", url="http://h:1"), 5.0)
    board.incident_events("chat", [told(t=T + 3)])
    (ended,) = board.remove_target("chat")
    assert ended.resolved_timestamp_seconds == T + 3


def test_open_incident_says_what_the_last_look_found():
    """Between two events only its numbers change; what it is called, and when it began, stay."""
    board = board_of(told())
    latest = judged.Incident(
        id="engine_stalled-1", target="chat", engine="0", kind="engine_stalled", cause="hang",
        severity="page", summary="No step for 93 s.", opened_t=T,
        evidence_for=(Evidence(name="still_seconds", value=93.0, unit="s", text="93 s"),),
    )  # fmt: skip
    updates = board.listen()
    board.incident_news("chat", [latest, replace(latest, id="unknown to the board")], T + 51)
    board.incident_news("gone", [latest], T + 51)
    incident = board.incidents.find("engine_stalled-1")
    assert incident is not None
    assert incident is board.targets["chat"].incidents.open["engine_stalled-1"]
    assert incident.summary == "No step for 93 s."
    assert [each["value"] for each in incident.evidence["for"]] == [93.0]
    assert (incident.opened_timestamp_seconds, incident.updated_timestamp_seconds) == (T, T + 51)
    assert open_ids(board) == ["engine_stalled-1"]
    board.unlisten(updates)


def test_what_says_the_same_is_no_news():
    """A page that shows it is not told again and again."""
    board = board_of(told())
    same = judged.Incident(
        id="engine_stalled-1", target="chat", engine="0", kind="engine_stalled", cause="hang",
        severity="page", summary="No step for 42 s.", opened_t=T,
    )  # fmt: skip
    before = board.targets["chat"].revision
    board.incident_news("chat", [same], T + 5)
    assert board.targets["chat"].revision == before


def test_events_of_a_target_removed_meanwhile_are_dropped():
    """What was under way may not bring it back."""
    board = small_board()
    board.remove_target("chat")
    board.incident_events("chat", [told()])
    assert all_ids(board) == []


async def test_listener_is_told_of_each_incident_once():
    """However often it changed, and also when it ended because its target went."""
    board = small_board()
    updates = board.listen()
    board.incident_events("chat", [told(), told("updated"), told(id="another")])
    assert updates.take().incidents == ["another", "engine_stalled-1"]
    board.remove_target("chat")
    taken = updates.take()
    assert (taken.gone, taken.incidents) == (["chat"], ["another", "engine_stalled-1"])


class Source:
    """Looks at nothing, and says so."""

    local = False

    async def observe(self) -> Look:
        call = Call(outcome="refused", latency_s=0.001)
        return Look(Observation(t=T, target="chat", scrape=call), None, ())


class Judge:
    """A pipeline that tells these events at its first look."""

    signals = SERVING
    failures: Mapping[str, str] = MappingProxyType({})

    def __init__(self, events: list[dict]) -> None:
        self.events = events

    def observe(self, _: Observation) -> list[dict]:
        events, self.events = self.events, []
        return events


async def test_loop_hands_events_on_and_logs_begin_and_end():
    """One line when it opens (a warning where it pages) and one when it ends; what changes meanwhile is only shown."""
    events = [told(), told("updated"), told("resolved"), told(severity="ticket")]
    published: list = []
    looked = asyncio.Event()

    def publish(_look, signals, events) -> list:
        published.append((signals, events))
        looked.set()
        return events

    target = Target(name="chat", url="http://h:1")
    loop = TargetLoop(target, ScrapeSettings(), Source(), Judge(events), publish, lambda: None)
    with capture_logs() as logs:
        task = asyncio.create_task(loop.run(spread=False))
        async with asyncio.timeout(5):
            await looked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert published == [(SERVING, events)]
    lines = [line for line in logs if line["event"].startswith("incident_")]
    said = {name: told()[name] for name in ("id", "target", "engine", "kind", "cause", "severity", "summary")}  # fmt: skip
    assert lines == [
        said | {"event": "incident_opened", "log_level": "warning"},
        said | {"event": "incident_resolved", "log_level": "info", "resolution": "healthy"},
        said | {"event": "incident_opened", "log_level": "info", "severity": "ticket"},
    ]


def test_end_with_the_target_is_logged_as_any_other():
    """A reader of the log finds an end for each begin."""
    board = board_of(told())
    with capture_logs() as logs:
        tell_incident(told("resolved", resolution="target_gone"))
        for incident in board.remove_target("chat"):
            tell_ended(incident)
    assert logs[0] == logs[1]
