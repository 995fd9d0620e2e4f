"""Who listens to the board gets the newest of each, and there are only so many."""

from dataclasses import replace

import pytest

from tests.export.small_board import ENGINE, SERVING, T, small_board
from vllm_watch.board.board import Board
from vllm_watch.board.updates import LISTENERS_MAX, Changes, TooManyListenersError


async def test_listener_gets_the_newest_of_each_however_late_it_looks():
    """What waits is one mark per target, not one per publish."""
    board = small_board()
    updates = board.listen()
    for second in range(1000):
        board.publish(replace(SERVING, t=T + second, engines={"0": ENGINE}))
    board.remove_target("gone")
    await updates.wait()
    assert updates.take() == Changes(["chat"], ["gone"], [], gpus=False)
    assert updates.take() == Changes([], [], [], gpus=False)


def test_listeners_are_bounded():
    """The sixty-fifth page is refused in words; a place given back can be taken."""
    board = Board()
    first, *_ = [board.listen() for _ in range(LISTENERS_MAX)]
    with pytest.raises(TooManyListenersError, match="64 pages already listen"):
        board.listen()
    board.unlisten(first)
    board.listen()
