"""What is said of an engine that lacks KV pages: why, how urgent it is, whether to restart it, and in which words."""

from dataclasses import replace

import pytest

from tests.detectors.scripted_past import (
    CALM,
    CHUNKED,
    HELD,
    HOT,
    LONG_PROMPT,
    LOST,
    SLOW,
    STARVED,
    Judged,
    drained,
    evidence,
    said,
    well,
)
from vllm_watch.samples.engine import EngineSample

THRASH = HELD | {"finished_tokens": 6000.0, "preempted": 5.0}

AWAITED = {"awaiting_kv": 20.0}  # requests of 400 tokens in a cache of 16,000

PAGES = {  # load, seconds of it → cause, severity, restart
    "lost at once": (LOST, 5, "kv_pinning", "page", False),
    "lost for a while": (LOST, 15, "kv_pinning", "page", True),
    "lost, and a prompt may lengthen steps": (LOST | {"slow_log_ratio": 1.1}, 15, "kv_pinning", "page", False),
    "lost, and nobody knows how long steps should be": (LOST | {"slow_log_ratio": None}, 55, "kv_pinning", "page", False),
    "... and longer than a prompt takes": (LOST | {"slow_log_ratio": None}, 60, "kv_pinning", "page", True),
    "held by requests that wait for KV from another server": (LOST | AWAITED, 60, "peer_wait", "ticket", False),
    "... whose tokens are not counted": (LOST | AWAITED | {"tokens_in_flight": None}, 240, "peer_wait", "ticket", False),
    "... and more and more wait": (LOST | AWAITED | {"waiting": 500.0}, 60, "peer_wait", "ticket", False),
    "lost, and a few wait for KV": (LOST | {"awaiting_kv": 1.0}, 15, "kv_pinning", "page", False),
    "lost, and long prompts were computed": (LOST | {"long_prompts": True}, 15, "kv_pinning", "page", True),
    "held by few": (HELD, 60, "kv_pinning", "page", False),
    "a part is lost": (HELD | {"tokens_in_flight": 9600.0}, 60, "kv_pinning", "page", False),
    "held by long prompts": (LONG_PROMPT, 60, "kv_pinning", "ticket", False),
    "held by prompts computed in chunks": (CHUNKED, 60, "kv_pinning", "ticket", False),
    "... until the time is up": (CHUNKED, 115, "kv_pinning", "ticket", False),
    "... and longer": (CHUNKED, 120, "kv_pinning", "page", False),
    "all became long and push each other out": (THRASH, 60, "preemption_thrash", "ticket", False),
    "... for long": (THRASH, 240, "preemption_thrash", "ticket", False),
}  # fmt: skip


@pytest.mark.parametrize(("load", "seconds", "cause", "severity", "restart"), PAGES.values(), ids=PAGES)  # fmt: skip
def test_how_urgent_lost_pages_are(load, seconds, cause, severity, restart):
    """Long prompts pass within two minutes; pages that nobody holds come back by a restart alone."""
    verdict = well().see(seconds, **load)
    assert said(verdict) == ("firing", cause, severity, restart)
    assert verdict.since_seconds == seconds


IDLE = {
    "running": 0.0,
    "running_min": 0.0,
    "generated": 0.0,
    "steps": 0.0,
    "finished": 0.0,
    "tokens_in_flight": 0.0,
}


def test_pages_that_an_idle_engine_holds_are_lost():
    """A ticket, which stays while requests come again; a page with advice once others starve."""
    judged = well()
    assert judged.see(60, **IDLE, kv_usage=0.1, kv_usage_end=0.1).state == "clear"
    judged.see(60)
    assert judged.see(10, **IDLE, kv_usage=0.4, kv_usage_end=0.4).state == "clear"
    leak = judged.see(5, **IDLE, kv_usage=0.4, kv_usage_end=0.4)
    assert said(leak) == ("firing", "kv_leak", "ticket", False)
    assert said(judged.see(60, kv_usage=0.7, kv_usage_end=0.7)) == said(leak)
    assert judged.see(60, **LOST).severity == "page"


def test_finished_requests_may_keep_their_pages_for_another_server():
    """A prefill server holds them until they are fetched: they are not lost."""
    judged = well()
    judged.sample = replace(judged.sample, kv_transfers={})
    judged.see(5)
    assert judged.see(60, **IDLE, kv_usage=0.4, kv_usage_end=0.4).state == "clear"


def test_waiting_for_a_peer_pages_when_the_queue_has_doubled():
    """Users are hit. A restart is never advised, nor once the KV comes again."""
    judged = well()
    judged.see(60, **LOST | AWAITED)
    verdict = judged.see(60, **LOST | AWAITED | {"waiting": 500.0})
    assert said(verdict) == ("firing", "peer_wait", "page", False)
    assert evidence(verdict, "requests_awaiting_kv").value == 20.0
    assert not judged.see(10, **HELD).restart_advised


def test_a_bunch_of_long_prompts_is_given_time_once():
    """What only drains neither uses it up nor wakes anybody, and a new alarm has its own."""
    judged = well()
    assert judged.see(100, **CHUNKED).severity == "ticket"
    assert judged.see(60, **drained(HELD)).severity == "ticket"
    assert judged.see(15, **HELD).severity == "ticket"
    assert judged.see(5, **HELD).severity == "page"
    assert judged.see(5, **drained(HELD)).severity == "page"
    judged.see(5)
    assert judged.see(60, **CHUNKED).severity == "ticket"
    judged.see(5)
    assert judged.see(5, **HELD).severity == "page"


def test_lost_pages_end_what_long_prompts_explained():
    """They came, and then most of the cache is nobody's: a page at once, also once it is held again."""
    judged = well()
    assert judged.see(30, **CHUNKED).severity == "ticket"
    assert judged.see(5, **LOST).severity == "page"
    assert judged.see(5, **HELD).severity == "page"


def test_long_prompts_explain_it_for_a_while():
    """Those that came before the shortage may hold the pages still."""
    for seconds, severity in ((30, "ticket"), (600, "page")):
        judged = well()
        judged.see(5, prompts=1.0, prompted=1000.0)
        judged.see(seconds, prompts=0.0)
        assert judged.see(5, **HELD).severity == severity


@pytest.mark.parametrize(
    ("differs", "severity"),
    [
        ({"request_tokens": 400.0, "blocks": "1000"}, "ticket"),
        ({"request_tokens": 400.0, "blocks": None}, "page"),
        ({"request_tokens": None, "blocks": "1000"}, "page"),
        ({"request_tokens": 400.0, "prompted": 410.0, "blocks": "1000"}, "ticket"),
        ({"request_tokens": 100.0, "prompted": 110.0, "blocks": "1000"}, "page"),
    ],
)
def test_long_prompts_explain_it_where_they_are_known_to_take_a_good_part(differs, severity):
    """A tenth of the cache, in prompts of five times a usual request; size and usual length must be known."""
    judged = Judged()
    config = {"num_gpu_blocks": differs["blocks"], "block_size": "16"} if differs["blocks"] else None  # fmt: skip
    judged.sample = EngineSample(engine="0", cache_config_info=config)
    judged.past.throughput.tokens = differs["request_tokens"]
    judged.see(300)
    judged.see(300, kv_usage_end=0.6, tokens_in_flight=9600.0)  # as much again, all accounted for
    load = LONG_PROMPT | {"prompted": differs.get("prompted", 1000.0)}
    assert judged.see(5, **load).severity == severity


def test_the_advice_to_restart_holds_until_the_alarm_ends():
    """Also when requests come to hold what nobody held; the next alarm must earn it again."""
    judged = well()
    assert judged.see(15, **LOST).restart_advised
    assert judged.see(10, **HELD).restart_advised
    judged.see(5)
    assert not judged.see(10, **LOST).restart_advised
    assert judged.see(5, **LOST).restart_advised
    judged.see(5)
    assert not judged.see(10, **HELD).restart_advised


@pytest.mark.parametrize(
    ("waiting", "load", "severity"),
    [
        (129.0, THRASH, "ticket"),
        (130.0, THRASH, "page"),
        (500.0, drained(THRASH), "ticket"),
    ],
)
def test_thrash_pages_when_the_queue_has_doubled_while_it_lasts(waiting, load, severity):
    """60 waited when it began; a queue while the alarm drains is of the recovery."""
    judged = well()
    judged.see(60, **THRASH)
    assert judged.see(5, **load | {"waiting": waiting}).severity == severity
    assert judged.see(5, **THRASH).severity == severity
    judged.see(5)
    assert judged.see(30, **THRASH).severity == "ticket"


@pytest.mark.parametrize(("drained", "severity"), [(0.0, "ticket"), (1.0, "page")])
def test_a_queue_grows_from_when_it_was_empty(drained, severity):
    """60 waited at first; a relapse at 100 does not begin to count anew, unless the queue drained."""
    judged = well()
    judged.see(60, **THRASH)
    judged.see(30, waiting=100.0, waiting_min=drained)
    judged.see(60, **THRASH | {"waiting": 100.0})
    assert judged.see(5, **THRASH | {"waiting": 150.0}).severity == severity


def leaked(judged, seconds=100):
    """Pages are lost bit by bit, until six tenths of the cache are nobody's."""
    for step in range(1, seconds // 5 + 1):
        judged.see(5, kv_usage_end=0.3 + 0.6 * step * 5 / seconds)
    return judged


def test_a_leak_is_told_by_how_slowly_it_came_until_the_alarm_ends():
    """For sure once no prompt under way can be it; what is lost at once later is judged by itself."""
    judged = leaked(well())
    first = judged.see(5, **LOST)
    assert said(first) == ("firing", "unknown", "page", False)
    assert [each.name for each in first.evidence_against] == ["prefill"]
    assert said(judged.see(15, **LOST)) == ("firing", "kv_leak", "page", True)
    judged.see(600)
    assert said(judged.see(30, **LOST)) == ("firing", "kv_pinning", "page", True)


def test_what_showed_the_cause_is_told_as_earlier_once_it_is_not_seen_any_more():
    """While the queue drains, the pages are there again: 94 % held by nobody is no sight of now."""
    judged = leaked(well())
    verdict = judged.see(30, **LOST)
    assert not any(each.text.startswith("earlier: ") for each in verdict.evidence_for)
    verdict = judged.see(5, **LOST | {"kv_usage_end": 0.3, "kv_usage": 0.3})
    assert verdict.cause == "kv_leak"
    assert evidence(verdict, "kv_unheld_ratio").text.startswith("earlier: ")


def test_a_leak_is_told_after_pages_that_were_lost_at_once():
    judged = well()
    assert judged.see(30, **LOST).cause == "kv_pinning"
    judged.see(600)
    assert leaked(judged).see(30, **LOST).cause == "kv_leak"


def test_a_leak_pages_though_long_prompts_came():
    """A third of the cache is lost, less than what requests hold."""
    judged = well()
    for step in range(1, 21):
        judged.see(5, kv_usage_end=0.3 + 0.3 * step / 20)
    load = CHUNKED | {"tokens_in_flight": 9600.0}
    assert said(judged.see(30, **load)) == ("firing", "kv_leak", "page", True)


HOLDS = {  # what is seen after pages were held, for how long → cause
    "all became long, a moment": (THRASH, 10, "kv_pinning"),
    "all became long": (THRASH, 15, "preemption_thrash"),
    "all became long, while the alarm drains": (drained(THRASH), 120, "kv_pinning"),
}


@pytest.mark.parametrize(("load", "seconds", "cause"), HOLDS.values(), ids=HOLDS)
def test_a_cause_is_replaced_once_another_was_found_for_a_while(load, seconds, cause):
    judged = well()
    judged.see(30, **HELD | {"finished": 0.0, "finished_tokens": 0.0})
    judged.see(5, **load | {"finished": 100.0, "finished_tokens": 120_000.0, "preempted": 100.0})
    assert judged.see(seconds - 5, **load).cause == cause


def test_another_cause_must_be_found_in_one_go():
    """Each time the old one is found again, the wait begins anew."""
    judged = well()
    judged.see(30, **LOST | {"finished": 100.0, "finished_tokens": 120_000.0, "preempted": 100.0})
    for _ in range(4):
        assert judged.see(10, **THRASH).cause == "kv_pinning"
        assert judged.see(5, **LOST | {"preempted": 5.0}).cause == "kv_pinning"
    assert judged.see(15, **THRASH).cause == "preemption_thrash"


MUTE = HELD | {"finished": 0.0, "finished_tokens": 0.0, "preempted": 1.0}


@pytest.mark.parametrize(("long", "severity"), [(False, "page"), (True, "ticket")])
def test_who_pushes_each_other_out_is_told_once_enough_have_finished(long, severity):
    """Until then the cause is unknown, and what is found then is said at once."""
    judged = well()
    judged.see(10, **MUTE | {"starved": False}, starved_level=0.5)
    assert said(judged.see(5, **MUTE, long_prompts=long)) == ("firing", "unknown", severity, False)
    many = {"finished": 100.0, "finished_tokens": 120_000.0, "preempted": 100.0}
    assert judged.see(5, **THRASH | many).cause == "preemption_thrash"


def test_an_unknown_cause_replaces_no_known_one():
    """Requests that push each other out, of whom too few finish, say nothing against pages that few hold."""
    judged = well()
    judged.see(30, **HELD | {"finished": 0.0, "finished_tokens": 0.0})
    assert judged.see(120, **MUTE).cause == "kv_pinning"


def test_pages_are_lost_on_a_gpu_that_was_hot():
    """Heat explains slow steps, not lost pages."""
    judged = well()
    judged.see(30, gpus=HOT, **SLOW)
    assert judged.see(15, gpus=CALM, **LOST).cause == "kv_pinning"
    assert judged.see(5, gpus=CALM, **LOST).cause == "kv_pinning"


@pytest.mark.parametrize(
    "load", [THRASH, HELD, HELD | {"finished": 0.0, "finished_tokens": 0.0}],
    ids=["long ones finish", "usual ones finish", "none finish"],
)  # fmt: skip
def test_the_length_of_requests_says_nothing_where_the_usual_one_is_not_known(load):
    judged = Judged()
    judged.past.throughput.tokens = None
    judged.see(300)
    verdict = judged.see(60, **load)
    assert verdict.cause in ("kv_pinning", "unknown")
    named = (*verdict.evidence_for, *verdict.evidence_against)
    assert [each.value for each in named if each.name == "request_length_ratio"] in ([], [None])


def test_requests_are_said_to_be_long_by_how_much_longer_they_are():
    verdict = well().see(60, **THRASH)
    assert evidence(verdict, "request_length_ratio").value == pytest.approx(3.0)
    assert evidence(verdict, "preemptions_per_request").value == pytest.approx(1.0)


DONE = {  # share of the usual throughput → how bad, what is said
    "a fifth": (0.2, 5.0, "is at 20% of its usual throughput, with 60 requests waiting"),
    "nothing": (0.0, 1000.0, "is at 0% of its usual throughput, with 60 requests waiting"),
    "not known": (None, 1000.0, "is at 0% of its usual throughput, with 60 requests waiting"),
    "nearly all": (0.99, 1.0 / 0.99, "is at 99% of its usual throughput, with 60 requests waiting"),
    "all": (1.0, 1.0, "has its usual throughput again, with 60 requests waiting"),
    "more": (1.5, 1.0, "has its usual throughput again, with 60 requests waiting"),
}


@pytest.mark.parametrize(("done", "measure", "words"), DONE.values(), ids=DONE)
def test_how_little_gets_done_is_said(done, measure, words):
    judged = well()
    judged.past.throughput.done = done
    verdict = judged.see(30, **LOST)
    assert words in verdict.summary
    assert verdict.measure == pytest.approx(measure)
    ratio, few = verdict.evidence_for[:2]
    assert (ratio.value, ratio.expected) == (min(1.0, done or 0.0), 1.0)
    assert (few.value, few.expected) == pytest.approx((0.9, 0.03))  # as 4 of 120 hold


UNCOUNTED = STARVED | {"tokens_in_flight": None}


def test_where_tokens_are_not_counted_nobody_knows_who_holds_the_pages():
    """It is critical all the same; a restart may change nothing."""
    judged = Judged()
    judged.see(300, tokens_in_flight=None)
    verdict = judged.see(600, **UNCOUNTED)
    assert said(verdict) == ("firing", "unknown", "page", False)
    assert "lengths of requests are not counted" in verdict.evidence_against[0].text


def test_usage_that_a_look_does_not_tell_is_no_end_of_a_starving_engine():
    verdict = well().see(15, **LOST | {"kv_usage": None})
    assert said(verdict) == ("firing", "kv_pinning", "page", True)
    assert "0% of the KV cache" in evidence(verdict, "kv_usage_ratio").text


def test_each_time_that_it_starves_is_timed_by_itself():
    """Who waited first, and for how long pages were nobody's."""
    judged = well()
    judged.see(30, **LOST)
    judged.see(30)
    judged.see(5, **LOST | {"waiting": 7.0})
    kept = judged.kept
    assert kept["waiting_first"] == 7.0
    assert (kept["unread_seconds"], kept["starved_seconds"], kept["finished"]) == (5.0, 5.0, [0.0] * 3)  # fmt: skip
    judged.see(10, **LOST)
    kept = judged.kept
    assert kept["waiting_first"] == 7.0
    assert kept["finished"][0] > 5.0
