"""The board keeps the last results and a bounded past, whatever order things come in."""

from dataclasses import replace

import pytest

from tests.export.small_board import ENGINE, SERVING, T, small_board
from vllm_watch.board.board import Board
from vllm_watch.board.history import CHARTED, POINTS, History
from vllm_watch.board.updates import LISTENERS_MAX, Changes, TooManyListenersError
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import EngineSignals, Quantiles


def charted(**values: float) -> EngineSignals:
    return EngineSignals(engine="0", **values)


def test_history_keeps_the_last_ten_minutes_at_any_pace():
    """One look per second leaves a point per 5 s; the oldest goes as the newest comes."""
    history = History(600.0)
    for second in range(5000):
        history.push(T + second, charted(requests_running=second))
    times, series = history.series(T + 4999)
    assert len(times) == POINTS
    assert times[-1] == T + 4999
    assert times == sorted(times)
    assert times[-1] - times[0] <= 600
    assert series["requests_running"] == [t - T for t in times]


def test_history_of_a_slow_target_has_fewer_points_and_none_too_old():
    """At one look per minute ten minutes are eleven points, not a hundred and twenty."""
    history = History(600.0)
    for minute in range(60):
        history.push(T + 60 * minute, charted())
    times, _ = history.series(T + 60 * 59)
    assert times == [T + 60 * minute for minute in range(49, 60)]


def test_history_tells_unknown_from_zero():
    """What was not known, or cannot be drawn, is None."""
    history = History(600.0)
    history.push(T, charted(requests_running=0.0, requests_waiting=float("inf")))
    _, series = history.series(T)
    assert series == {name: [None] for name in CHARTED} | {"requests_running": [0.0]}


def test_history_charts_what_the_page_draws():
    """Each column is the signal that it is named for."""
    history = History(600.0)
    history.push(T, EngineSignals(
        engine="0", generation_tokens_per_second=1, requests_running=2, requests_waiting=3, kv_cache_usage_ratio=0.5,
        time_to_first_token_seconds=Quantiles(p95=4), inter_token_latency_seconds=Quantiles(p95=5), step_time_seconds=6,
    ))  # fmt: skip
    _, series = history.series(T)
    assert [column[0] for column in series.values()] == [1, 2, 3, 0.5, 4, 5, 6]


def test_history_begins_anew_when_the_clock_steps_back():
    """Points from a future that did not come would hide the present."""
    history = History(600.0)
    history.push(T, charted())
    history.push(T - 3600, charted())
    assert history.series(T - 3600)[0] == [T - 3600]


def test_target_that_is_down_keeps_its_charts():
    """They show how it fell."""
    board = small_board()
    board.publish(replace(SERVING, t=T + 5, up=False, state="down", engines={}))
    assert list(board.targets["chat"].history) == ["0"]


def test_target_added_again_keeps_its_results_and_takes_the_new_identity():
    """A reload that changes a group must not blank a target."""
    board = small_board()
    board.add_target(Target(name="chat", url="http://10.0.0.9:8000", group="new"), 1.0)
    entry = board.targets["chat"]
    assert (entry.target.group, entry.interval_seconds, entry.signals) == ("new", 1.0, SERVING)


def test_removing_what_is_not_there_is_no_error():
    """Discovery may say it twice."""
    Board().remove_target("never")


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
