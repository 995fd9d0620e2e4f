"""The scorer of the detection benchmark: what counts as found, as a false alarm, as right."""

import pytest

from benchmarks.detection.score import score, summary

HANG = {"kind": "engine_stalled", "cause": "hang", "engine": None, "start": 1000.0,
        "effect_start": 1010.0, "end": 1600.0}  # fmt: skip
SLOW = HANG | {"kind": "throughput_collapse", "cause": "slow_engine"}


def truth(*events, notes=(), helps=None):
    return {"name": "x", "scenario": "s", "interval_s": 5.0, "t0": 0.0, "t1": 86_400.0,
            "events": list(events), "notes": list(notes), "restart_helps": helps}  # fmt: skip


def said(opened, closed=None, kind="engine_stalled", cause="hang", *, name="1", **more):
    events = [{"t": opened, "event": "opened", "id": name, "kind": kind, "cause": cause, **more}]
    if closed is not None:
        events.append({"t": closed, "event": "resolved", "id": name, "kind": kind, "cause": cause})
    return events


def updated(t, kind="engine_stalled", cause="hang", **more):
    return {"t": t, "event": "updated", "id": "1", "kind": kind, "cause": cause, **more}


@pytest.mark.parametrize(
    ("story", "predictions", "delay"),
    [
        ("in time", said(1030, 1700), 20.0),
        ("before the effect, after the cause", said(1005, 1700), 0.0),
        ("two intervals before the cause", said(990, 1700), 0.0),
        ("open long before anything began", said(900, 1700), None),
        ("over before users felt anything", said(1001, 1005), None),
        ("never resolved", said(1030), 20.0),
        ("within two intervals after the end", said(1609, 1900), 599.0),
        ("too late", said(1611, 1900), None),
        ("another kind", said(1030, 1700, "engine_down", "crash"), None),
        ("a kind that was corrected", [*said(1020, None, "engine_down", "crash"), updated(1040.0)], 30.0),
        ("nothing", [], None),
    ],
)  # fmt: skip
def test_what_counts_as_found(story, predictions, delay):
    """An incident of the event's kind, open during it, not open long before."""
    (found,) = score(truth(HANG), predictions).events
    assert found.delay_s == delay


@pytest.mark.parametrize(
    ("predictions", "false_alarms", "right"),
    [
        (said(1030, 1700), 0, 1),
        (said(1030, 1700, "engine_down", "crash"), 0, 1),  # another of the three kinds, beside it
        (said(1899, 1950), 0, 1),  # queues drain, averages lag
        (said(1901, 1950), 1, 0),
        (said(900, 1700), 1, 0),  # rang before
        ([*said(1030, 1100), *said(5000, 5100, name="2")], 1, 1),
        (said(5000, 5100, "overload", "demand"), 0, 0),
    ],
)
def test_what_counts_as_a_false_alarm(predictions, false_alarms, right):
    """A collapse, stall or down where none was, up to five minutes after its end."""
    result = score(truth(HANG), predictions)
    assert (result.false_alarms, result.spans_right) == (false_alarms, right)


def test_a_note_excuses_its_kind_only():
    """A planned restart may be called down, and nothing else."""
    planned = truth(notes=[{"kind": "engine_down", "start": 1000.0, "end": 1100.0}])
    assert score(planned, said(1050, 1200, "engine_down", "crash")).false_alarms == 0
    assert score(planned, said(1050, 1200)).false_alarms == 1
    assert score(planned, said(1050, 1200, severity="page")).pages_outside == 0
    assert score(planned, said(9000, 9200, severity="page")).pages_outside == 1


def test_an_overload_beside_a_collapse_is_forgiven_and_one_alone_is_not():
    """The queue of an engine that collapsed is no mistake."""
    queue = said(1100, 1700, "overload", "demand")
    assert score(truth(SLOW), queue).other_false_alarms == 0
    assert score(truth(), queue).other_false_alarms == 1


def test_the_engine_counts_where_the_truth_names_one():
    """An alarm on the healthy neighbour finds nothing, and is false."""
    first = truth(HANG | {"engine": "0"})
    assert score(first, said(1030, 1700, engine="0")).events[0].delay_s == 20.0
    assert score(first, said(1030, 1700, engine=None)).events[0].delay_s == 20.0
    other = score(first, said(1030, 1700, engine="1"))
    assert (other.events[0].delay_s, other.false_alarms) == (None, 1)


@pytest.mark.parametrize(
    ("predictions", "right"),
    [
        (said(1030, 1700, cause="hang"), True),
        (said(1030, 1700, cause="unknown"), False),
        ([*said(1030, None, cause="unknown"), updated(1100.0)], True),
        ([*said(1030, None), updated(1100.0, cause="unknown")], False),
        ([*said(1030, None), updated(1700.0, cause="unknown")], True),  # said after the end
        (said(1605, 1700, cause="hang"), True),
    ],
)
def test_the_last_cause_within_the_event_counts(predictions, right):
    """A cause may sharpen; what is said afterwards changes nothing."""
    assert score(truth(HANG), predictions).events[0].cause_right is right


@pytest.mark.parametrize(
    ("helps", "predictions", "right"),
    [
        (True, said(1030, 1700, restart_advised=True), True),
        (True, [*said(1030, None), updated(1100.0, restart_advised=True)], True),
        (True, said(1030, 1700), False),
        (False, said(1030, 1700, restart_advised=True), False),
        (False, said(1030, 1700), True),
        (True, [], None),  # nothing was said: nothing was advised wrongly
        (None, said(1030, 1700), None),
    ],
)
def test_restart_advice(helps, predictions, right):
    """Advised where it cures, and not where it does not."""
    assert score(truth(SLOW, helps=helps), predictions).advice_right is right


def test_an_end_is_told_within_five_minutes():
    """Of every incident that found the event."""
    assert score(truth(HANG), said(1030, 1900)).events[0].resolved_in_time is True
    assert score(truth(HANG), said(1030, 1911)).events[0].resolved_in_time is False
    late = HANG | {"end": 86_300.0}
    assert score(truth(late), said(1030, 86_390)).events[0].resolved_in_time is None


def test_the_figures():
    """Over two recordings: one event found twice, one missed, one false alarm."""
    twice = score(truth(HANG), [*said(1030, 1100), *said(1200, 1300, name="2")])
    missed = score(truth(SLOW), said(9000, 9100))
    figures = summary([twice, missed])
    assert figures == {
        "recordings": 2, "days": 2.0, "events": 2, "recall_collapse": 0.0, "recall": 0.5,
        "precision": 2 / 3, "false_alarms_per_day": 0.5, "delay_median_s": 20.0, "delay_p95_s": 20.0,
        "cause_right": 1.0, "advice_right": None, "duplicates": 1, "resolved_in_time": 1.0,
        "recall_other": None, "other_false_alarms_per_day": 0.0, "pages_outside": 0,
    }  # fmt: skip


def test_an_open_event_lasts_to_the_end():
    """A fault that was never undone."""
    for_ever = SLOW | {"end": None}
    assert score(truth(for_ever), said(80_000, None, SLOW["kind"])).events[0].delay_s == 78_990.0
