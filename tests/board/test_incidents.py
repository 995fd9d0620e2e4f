"""What the board keeps of incidents: the open ones, the last that ended, and how many there were."""

from dataclasses import replace

import pytest

from tests.export.small_board import SERVING, T, small_board
from tests.told import made, told
from vllm_watch.board.board import RESOLVED_MAX, Board
from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents import relations
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.story.kinds import KINDS


def board_of(*events: dict) -> Board:
    board = small_board()
    board.tell(made(*events, opened_t=T))
    return board


def open_ids(board: Board, target: str = "chat") -> list[str]:
    return list(board.targets[target].incidents.open)


def all_ids(board: Board) -> list[str]:
    return [incident.id for incident in board.incidents.listed()]


def test_incident_is_open_until_it_is_resolved():
    """It begins when it was opened, says what was told last, and ends with its resolution."""
    board = board_of(told(), told("updated", T + 9, cause="unknown", restart_advised=True))
    incident = board.targets["chat"].incidents.open["engine_stalled-1"]
    assert board.incidents.find("engine_stalled-1") is incident
    assert (incident.cause, incident.restart_advised) == ("unknown", True)
    assert (incident.opened_t, incident.updated_t) == (T, T + 9)
    board.tell(made(told("resolved", T + 60), opened_t=T))
    assert open_ids(board) == []
    ended = board.incidents.find("engine_stalled-1")
    assert ended is not None
    assert (ended.opened_t, ended.resolved_t) == (T, T + 60)
    assert ended.resolution == "healthy"


def test_every_kind_of_the_judgement_is_counted_from_the_start():
    """A rate over the first incident of a kind needs the 0 before it."""
    assert {*relations.ORDER, *relations.CAUSES_BESIDE} <= set(KINDS)
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


def test_those_that_ended_are_bounded():
    board = board_of(
        *(told(e, T + i, id=str(i)) for i in range(RESOLVED_MAX + 3) for e in ("opened", "resolved"))
    )  # fmt: skip
    assert all_ids(board) == [str(i) for i in range(RESOLVED_MAX + 2, 2, -1)]
    assert board.incidents.find("2") is None


def test_open_ones_come_first_what_pages_on_top_then_the_newest():
    board = board_of(
        told(id="ended"), told("resolved", id="ended"), told(id="info", severity="info"), told(id="page"),
        told(id="ticket", severity="ticket", t=T + 5), told(id="later page", t=T + 1), told(id="odd", severity="alarm"),
    )  # fmt: skip
    assert all_ids(board) == ["later page", "page", "ticket", "info", "odd", "ended"]


def test_open_incident_says_what_the_last_look_found():
    """Between two events its numbers change, and a page that is open is told; what the board does not know stays so."""
    board = board_of(told())
    (known,) = board.targets["chat"].incidents.open.values()
    evidence = (Evidence(name="still_seconds", value=93.0, unit="s", text="93 s"),)
    latest = replace(
        known, summary="No step for 93 s.", evidence_for=evidence, updated_t=T + 51, firing=False
    )
    updates = board.listeners.add()
    board.publish(SERVING, incidents=[latest, replace(latest, id="unknown to the board")])
    assert board.incidents.find("engine_stalled-1") is latest
    assert list(board.targets["chat"].incidents.open.values()) == [latest]
    assert updates.take()["incidents"] == ["engine_stalled-1"]


def test_what_a_look_led_to_comes_before_what_it_found():
    """One look opens an incident and has its newest numbers; events may be of others, too, also after its target went."""
    board = small_board()
    opened, other = made(told(), told(id="down", target="gone", kind="engine_down"))
    newest = replace(opened.incident, summary="No step for 43 s.")
    board.publish(SERVING, incidents=[newest], events=[opened, other])
    assert board.incidents.find("engine_stalled-1") is newest
    board.tell(made(told("resolved")))
    board.remove_target("chat")
    (ended,) = made(told("resolved", id="down", target="gone", kind="engine_down"))
    board.publish(SERVING, incidents=[newest], events=[opened, ended])
    assert open_ids(board, "gone") == []
    assert "chat" not in board.targets
    assert not board.incidents.find("engine_stalled-1").open


def test_incidents_of_the_host_stand_on_its_entry():
    """They are counted and found as any other, and the last look at the GPUs renews them."""
    board = Board(host="gpu-7")
    lost = told(id="lost", target="host:gpu-7", engine=None, kind="gpu_fault", concerns=["chat"])
    (event,) = made(lost)
    board.publish_gpus(GpuReading(status="ok", t=T, gpus=()), events=[event])
    assert board.host.incidents.open == {"lost": event.incident}
    assert board.host.incidents.opened["gpu_fault"] == 1
    newer = replace(event.incident, concerns=("chat", "code"))
    board.publish_gpus(GpuReading(status="ok", t=T + 5, gpus=()), incidents=[newer])
    assert board.incidents.find("lost") is newer
    assert board.incidents.listed() == [newer]


def test_what_an_earlier_run_had_opened_is_shown_and_not_counted_twice():
    """The kept count holds what is open; of a target that is not there nothing is shown."""
    board = small_board()
    (event,) = made(told())
    board.restore_incidents("chat", [event], {"engine_stalled": 7})
    board.restore_incidents("never", made(told(target="never")), {"engine_stalled": 1})
    assert open_ids(board) == ["engine_stalled-1"]
    assert board.targets["chat"].incidents.opened["engine_stalled"] == 7
    assert all_ids(board) == ["engine_stalled-1"]


async def test_listener_is_told_of_each_incident_once():
    """However often it changed; and of a target that goes."""
    board = small_board()
    updates = board.listeners.add()
    board.tell(made(told(), told("updated"), told(id="another")))
    assert updates.take()["incidents"] == ["another", "engine_stalled-1"]
    board.remove_target("chat")
    taken = updates.take()
    assert (taken["gone"], taken["incidents"]) == (["chat"], [])
