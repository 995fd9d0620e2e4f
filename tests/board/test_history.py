"""A chart's past is bounded, whatever pace its points come at."""

import math
import struct
from copy import deepcopy

import pytest

from tests.export.small_board import T
from vllm_watch.board.history import CHARTED, POINTS, SPANS, History, Ring
from vllm_watch.signals.records import EngineSignals, Quantiles


def charted(**values: float) -> list[float]:
    return values_of(EngineSignals(engine="0", **values))


def values_of(signals: EngineSignals) -> list[float]:
    history = History()
    history.push(T, signals)
    _, series = history.ring(SPANS[0]).series(T)
    return [math.nan if value is None else value for (value,) in series.values()]


def test_history_keeps_the_last_ten_minutes_at_any_pace():
    """One look per second leaves a point per 5 s; the oldest goes as the newest comes."""
    history = Ring(600.0, mean=False)
    for second in range(5000):
        history.push(T + second, charted(requests_running=second))
    times, series = history.series(T + 4999)
    assert len(times) == POINTS
    assert times[-1] == T + 4999
    assert times == sorted(times)
    assert times[-1] - times[0] <= 600
    assert series["requests_running"] == [t - T for t in times]


def test_history_tells_unknown_from_zero():
    """What was not known, or cannot be drawn, is None."""
    history = Ring(600.0, mean=False)
    history.push(T, charted(requests_running=0.0, requests_waiting=float("inf")))
    _, series = history.series(T)
    assert series == {name: [None] for name in CHARTED} | {"requests_running": [0.0]}


def test_history_charts_what_the_page_draws():
    history = Ring(600.0, mean=False)
    history.push(T, values_of(EngineSignals(
        engine="0", current_generation_tokens_per_second=7, generation_tokens_per_second=1, requests_running=2, requests_waiting=3, kv_cache_usage_ratio=0.5,
        time_to_first_token_seconds=Quantiles(p95=4), inter_token_latency_seconds=Quantiles(p95=5), step_time_seconds=6,
    )))  # fmt: skip
    _, series = history.series(T)
    assert [column[0] for column in series.values()] == [7, 1, 2, 3, 0.5, 4, 5, 6]


def test_history_begins_anew_when_the_clock_steps_back():
    """Points from a future that did not come would hide the present."""
    history = Ring(600.0, mean=False)
    history.push(T, charted())
    history.push(T - 3600, charted())
    assert history.series(T - 3600)[0] == [T - 3600]


def test_each_span_has_its_own_points():
    """Six hours at a look each five seconds: what was asked for, in as many points, and what was frozen stays."""
    history = History()
    for look in range(6 * 3600 // 5):
        history.push(T + 5 * look, EngineSignals(engine="0", requests_running=float(look)))
    last_t = T + 6 * 3600 - 5
    frozen = deepcopy(history.ring(3600))
    before = frozen.series(last_t)
    history.push(last_t + 5, EngineSignals(engine="0"))
    for asked, seconds in ((60, 600), (600, 600), (601, 3600), (21600, 21600), (1e9, 21600)):
        times, _ = history.ring(asked).series(last_t + 5)
        assert len(times) == POINTS
        assert seconds * 0.98 < times[-1] - times[0] <= seconds
    assert frozen.series(last_t) == before


def test_what_was_exported_goes_on():
    """Rings that went round, in order, with what was unknown; the next points come behind them."""
    history = History()
    for look in range(5000):
        running = None if look % 7 == 0 else float(look)
        history.push(T + 5 * look, EngineSignals(engine="0", requests_running=running))
    again = History.restored(history.export())
    last_t = T + 5 * 4999
    for seconds in SPANS:
        assert again.ring(seconds).series(last_t) == history.ring(seconds).series(last_t)
    for each in (history, again):
        each.push(last_t + 900, EngineSignals(engine="0", requests_running=1.0))
    for seconds in SPANS:
        assert again.ring(seconds).series(last_t + 900) == history.ring(seconds).series(
            last_t + 900
        )
    assert History.restored(History().export()).ring(SPANS[0]).series(T)[0] == []


RINGS = len(SPANS)
BACKWARDS = b"\x02" + struct.pack("2d", 2.0, 1.0) + bytes(2 * 4 * len(CHARTED)) + bytes(RINGS - 1)
NEVER = b"\x01" + struct.pack("d", math.nan) + bytes(4 * len(CHARTED)) + bytes(RINGS - 1)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\xff" * 5000, bytes(RINGS + 1), b"\x01" * 9, BACKWARDS, NEVER]
)
def test_what_is_no_history_is_not_taken_up(data):
    with pytest.raises(ValueError, match=r"^(it has bytes|it is|its times|bytes length)"):
        History.restored(data)
