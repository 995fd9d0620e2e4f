"""A chart's past is bounded, whatever pace its points come at."""

from tests.export.small_board import T
from vllm_watch.board.history import CHARTED, POINTS, History
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
