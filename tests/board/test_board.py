"""The board keeps the last results, whatever order things come in; who listens gets the newest of each."""

from dataclasses import replace

import pytest

from tests.export.small_board import ENGINE, SERVING, T, small_board
from vllm_watch.board.board import LISTENERS_MAX, Board, TooManyListenersError
from vllm_watch.samples.target import Target


def test_target_added_again_keeps_its_results_and_takes_the_new_identity():
    """A reload that changes a group must not blank a target."""
    board = small_board()
    board.add_target(Target(name="chat", url="http://10.0.0.9:8000", group="new"), 1.0)
    entry = board.targets["chat"]
    assert (entry.target.group, entry.interval_seconds, entry.signals) == ("new", 1.0, SERVING)


@pytest.mark.parametrize(
    ("outcomes", "errors", "succeeded"),
    [
        (["ok"], {}, True),
        (["refused", "refused", "http"], {"refused": 2, "http": 1}, False),
        (["no_driver"], {}, False),
        (["hung"], {"hung": 1}, False),
    ],
)
def test_calls_are_counted_by_how_they_ended(outcomes, errors, succeeded):
    """A machine without a driver is no error, and no success either."""
    board = Board()
    for outcome in outcomes:
        board.call("nvml", "", outcome, 0.5, T)
    health = board.host_sources["nvml"]
    assert health.calls == len(outcomes)
    assert health.errors == errors
    assert health.last_success_timestamp_seconds == (T if succeeded else None)
    assert health.duration_seconds == 0.5


async def test_listener_gets_the_newest_of_each_however_late_it_looks():
    """What waits is one mark per target, not one per publish."""
    board = small_board()
    updates = board.listeners.add()
    for second in range(1000):
        board.publish(replace(SERVING, t=T + second, engines={"0": ENGINE}))
    board.remove_target("gone")
    await updates.wait()
    assert updates.take() == {"targets": ["chat"], "gone": ["gone"], "incidents": [], "gpus": []}
    assert updates.take() == {"targets": [], "gone": [], "incidents": [], "gpus": []}


def test_listeners_are_bounded():
    """The sixty-fifth page is refused in words; a place given back can be taken."""
    board = Board()
    first, *_ = [board.listeners.add() for _ in range(LISTENERS_MAX)]
    with pytest.raises(TooManyListenersError, match="64 pages already listen"):
        board.listeners.add()
    board.listeners.remove(first)
    board.listeners.add()


def test_removing_what_is_not_there_is_no_error():
    """Discovery may say it twice."""
    Board().remove_target("never")
