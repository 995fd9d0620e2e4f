"""The last 24 hours of a target and its uptime: the worst of each span, and nothing is healthy that nobody saw."""

from dataclasses import replace

import pytest

from tests.export.small_board import DOWN, SERVING, T
from tests.told import made, told
from vllm_watch.board.board import Board
from vllm_watch.board.uptime import CELL_SECONDS, CELLS, DAY_SECONDS, STATES, Day, Uptime, rank
from vllm_watch.incidents.incident import RECOVERING, Incident
from vllm_watch.samples.target import Target

BEGIN = T - T % CELL_SECONDS
UNKNOWN, HEALTHY, WARNING, CRITICAL, DOWN_RANK = range(len(STATES))
MIDNIGHT = 20_000 * DAY_SECONDS


def incident(kind: str = "engine_stalled", severity: str = "page", **more: object) -> Incident:
    (event,) = made(told(id="one", kind=kind, severity=severity))
    return replace(event.incident, **more)


@pytest.mark.parametrize(
    ("signals", "incidents", "state"),
    [
        (SERVING, [], "healthy"),
        (replace(SERVING, state="unknown"), [], "unknown"),
        (DOWN, [], "unknown"),  # perhaps a restart of ours
        (SERVING, [incident()], "critical"),
        (SERVING, [incident(), incident(severity="ticket")], "critical"),
        (SERVING, [incident(severity="ticket")], "warning"),
        (SERVING, [incident(severity="info")], "healthy"),
        (DOWN, [incident(severity="info")], "unknown"),
        (SERVING, [incident(phase=RECOVERING)], "healthy"),
        (DOWN, [incident("engine_down")], "down"),
        (DOWN, [incident("engine_down", "ticket")], "warning"),
    ],
)
def test_what_a_look_has_found(signals, incidents, state):
    assert STATES[rank(signals, incidents)] == state


def test_each_span_has_its_worst_and_the_oldest_goes():
    """A day and a half of looks; one bad look is enough for a span."""
    day = Day()
    for look in range(int(1.5 * CELLS * CELL_SECONDS / 60)):
        bad = look * 60 // CELL_SECONDS == CELLS  # the first span of the second day
        day.push(BEGIN + 60 * look, CRITICAL if bad and look % 15 == 7 else HEALTHY, 60.0)
    last = BEGIN + 1.5 * CELLS * CELL_SECONDS - 60
    found = day.cells(last)
    assert (len(found.states), found.seconds) == (CELLS, CELL_SECONDS)
    assert found.t == BEGIN + 0.5 * CELLS * CELL_SECONDS
    assert found.states.count("critical") == 1
    assert found.states[CELLS // 2] == "critical"
    assert found.states.count("healthy") == CELLS - 1


def test_what_nobody_saw_is_unknown():
    """Less than half of a span is not the whole of it; of the span that goes on, what has passed counts."""
    day = Day()
    for second in range(0, 440, 5):
        day.push(BEGIN + second, HEALTHY, 5.0)
    assert day.cells(BEGIN + 439).states[-1] == "healthy"
    assert day.cells(BEGIN + 899).states[-1] == "unknown"
    assert day.cells(BEGIN + CELL_SECONDS).states[-2:] == ("unknown", "unknown")
    day.push(BEGIN + 500, DOWN_RANK, 5.0)
    assert day.cells(BEGIN + CELL_SECONDS).states[-2] == "down"
    assert set(day.cells(BEGIN + CELLS * CELL_SECONDS).states) == {"unknown"}


def test_a_clock_that_was_set_back_shows_what_was_seen_then():
    day = Day()
    day.push(BEGIN + CELLS * CELL_SECONDS, CRITICAL, 5.0)
    day.push(BEGIN, HEALTHY, 5.0)
    assert day.cells(BEGIN + 4).states[-1] == "healthy"
    assert "critical" not in day.cells(BEGIN + CELLS * CELL_SECONDS).states


def test_the_board_takes_each_look_in_with_what_is_open():
    """The incident that a look opened is in that look's span."""
    board = Board()
    board.add_target(Target(name="chat", url="http://h:8000"), 5.0)
    board.publish(replace(SERVING, t=BEGIN))
    board.publish(
        replace(SERVING, t=BEGIN + 5), events=made(told(id="one", target="chat", severity="page"))
    )
    assert board.targets["chat"].day.cells(BEGIN + 6).states[-1] == "critical"


def test_what_was_exported_goes_on():
    day = Day()
    day.push(BEGIN, HEALTHY, 900.0)
    day.push(BEGIN + CELL_SECONDS, CRITICAL, 5.0)
    data = day.export()
    assert Day.restored(data).cells(BEGIN + 1000) == day.cells(BEGIN + 1000)
    for wrong in (b"", data[:-1], data + b"x", b"\xff" * len(data)):
        with pytest.raises(ValueError, match="not a day"):
            Day.restored(wrong)


def shares(uptime, t):
    return [(each.up_ratio, round(each.unknown_ratio, 2)) for each in uptime.shares(t)]


def test_it_outlives_the_watcher():
    """What was exported is the same again; something else is refused."""
    uptime = Uptime()
    uptime.push(MIDNIGHT, HEALTHY, 5.0)
    uptime.push(MIDNIGHT + 5, DOWN_RANK, 5.0)
    again = Uptime.restored(uptime.export())
    assert again.shares(MIDNIGHT + 10) == uptime.shares(MIDNIGHT + 10)
    for data in (b"", uptime.export()[:-1], b"\xff" * len(uptime.export())):
        with pytest.raises(ValueError, match="it "):
            Uptime.restored(data)
