"""Why pages lack: each fact alone, and what is said of it."""

from dataclasses import replace

import pytest

from vllm_watch.detectors.collapse_causes import (
    Cause,
    Starvation,
    crowded,
    is_asked_for,
    of_starvation,
    of_strange_load,
)

HELD = Starvation(
    running=4.0, usage=0.98, length_ratio=None, preempted_share=0.0, preempting=False,
    long_prompts_share=0.0, unheld=0.0, unheld_rise_seconds=None, unheld_surely=False,
)  # fmt: skip
"""Few requests hold all pages, as far as their tokens tell."""

LOST = {"unheld": 0.9}
LEAKED = LOST | {"unheld_rise_seconds": 60.0}
THRASH = {"length_ratio": 3.0, "preempted_share": 0.5, "preempting": True}
CAUSES = {  # what differs → cause, what speaks for it, what against, words of the last for it
    "few hold them": ({}, "kv_pinning", ["kv_unheld_ratio"], [], "the running requests (4) fill the KV cache themselves"),
    "... and others come and go": (
        {"length_ratio": 1.2}, "kv_pinning", ["kv_unheld_ratio", "request_length_ratio"], [], "1.2 times as long"),
    "... who push each other out": (
        {"length_ratio": 2.4, "preempting": True}, "kv_pinning", ["kv_unheld_ratio", "request_length_ratio"], [], "2.4 times as long"),
    "... and all that come are long": ({"length_ratio": 2.5}, "kv_pinning", ["kv_unheld_ratio"], [], "fill the KV cache themselves"),
    "they push each other out, and long prompts came": (
        {"preempting": True, "long_prompts_share": 0.5}, "kv_pinning", ["kv_unheld_ratio", "long_prompts_share"], [],
        "recent long prompts fill 50% of the KV cache"),
    "... and some came": (
        {"preempting": True, "long_prompts_share": 0.49}, "unknown", ["kv_unheld_ratio"], ["request_length_ratio"], "fill the KV cache themselves"),
    "... and what long prompts took is not known": (
        {"preempting": True, "long_prompts_share": None}, "unknown", ["kv_unheld_ratio"], ["request_length_ratio"], "fill the KV cache themselves"),
    "they push each other out": (
        {"preempting": True}, "unknown", ["kv_unheld_ratio"], ["request_length_ratio"], "fill the KV cache themselves"),
    "all became long, and push each other out": (
        THRASH, "preemption_thrash", ["request_length_ratio", "preemptions_per_request"], [], "0.50 preemptions"),
    "all became two and a half times as long, and one in ten pushes another out": (
        THRASH | {"length_ratio": 2.5, "preempted_share": 0.1}, "preemption_thrash",
        ["request_length_ratio", "preemptions_per_request"], [], "0.10 preemptions"),
    "how long they became is not known": (
        THRASH | {"length_ratio": None, "preempting": False}, "kv_pinning", ["kv_unheld_ratio"], [], "fill the KV cache themselves"),
    "all became long, and seldom push each other out": (
        THRASH | {"preempted_share": 0.09, "preempting": False}, "kv_pinning", ["kv_unheld_ratio"], [], "fill the KV cache themselves"),
    "all became long, and preemptions are not counted": (
        THRASH | {"preempted_share": None, "preempting": False}, "kv_pinning", ["kv_unheld_ratio"], [], "fill the KV cache themselves"),
    "half of them is for KV from elsewhere": (
        {"awaiting": 3.0, "awaited": 0.5}, "peer_wait", ["requests_awaiting_kv"], [], "wait for KV from another server"),
    "less than half is": ({"awaiting": 3.0, "awaited": 0.48}, "kv_pinning", ["kv_unheld_ratio"], [], "fill the KV cache themselves"),
    "they thrash in what a loss has left": (
        THRASH | LOST, "kv_pinning", ["kv_unheld_ratio"], [], "90% of the KV cache belongs to no running request"),
    "they thrash, and little is lost": (
        THRASH | {"unheld": 0.4}, "preemption_thrash", ["request_length_ratio", "preemptions_per_request"], [], "0.50"),
    "half of what is in use is lost": ({"unheld": 0.5}, "kv_pinning", ["kv_unheld_ratio"], [], "it came at once"),
    "... of a cache that is half in use": (
        {"unheld": 0.26, "usage": 0.5}, "kv_pinning", ["kv_unheld_ratio"], [], "it came at once"),
    "less than half is lost": ({"unheld": 0.48}, "kv_pinning", ["kv_unheld_ratio"], [], "fill the KV cache themselves"),
    "lost bit by bit": (LEAKED, "unknown", ["kv_unheld_ratio"], ["prefill"], "came within 60 s"),
    "... for sure": (LEAKED | {"unheld_surely": True}, "kv_leak", ["kv_unheld_ratio"], [], "came within 60 s"),
    "... within half a minute": (
        LEAKED | {"unheld_rise_seconds": 30.0, "unheld_surely": True}, "kv_leak", ["kv_unheld_ratio"], [], "came within 30 s"),
    "... within seconds": (LEAKED | {"unheld_rise_seconds": 29.0}, "kv_pinning", ["kv_unheld_ratio"], [], "at once"),
    "a fifth lost bit by bit": (
        LEAKED | {"unheld": 0.2, "unheld_surely": True}, "kv_leak", ["kv_unheld_ratio"], [], "20% of the KV cache"),
    "less than a fifth": (
        LEAKED | {"unheld": 0.19, "unheld_surely": True}, "kv_pinning", ["kv_unheld_ratio"], [], "fill the KV cache themselves"),
    "tokens are not counted": ({"unheld": None}, "unknown", [], ["kv_unheld_ratio"], ""),
    "... and they thrash": (
        THRASH | {"unheld": None}, "preemption_thrash", ["request_length_ratio", "preemptions_per_request"], [], "0.50"),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "cause", "pro", "contra", "words"), CAUSES.values(), ids=CAUSES)
def test_why_pages_lack(facts, cause, pro, contra, words):
    found = of_starvation(replace(HELD, **facts))
    assert found.name == cause
    assert [each.name for each in found.evidence_for] == pro
    assert [each.name for each in found.evidence_against] == contra
    assert words in "".join(each.text for each in found.evidence_for[-1:])


def test_the_numbers_of_each_cause_say_what_would_be_normal():
    """Requests as long as ever, and no page that nobody holds."""
    normal = {"request_length_ratio": 1.0, "kv_unheld_ratio": 0.0}
    for facts, *_ in CAUSES.values():
        found = of_starvation(replace(HELD, **facts))
        for each in found.evidence_for:
            assert each.expected == normal.get(each.name)


@pytest.mark.parametrize(("unheld", "told"), [(-0.05, 0.0), (0.0, 0.0), (0.12, 0.12)])
def test_no_less_than_nothing_is_held_by_nobody(unheld, told):
    """The books are a little off; a share below zero is not shown."""
    assert of_starvation(replace(HELD, unheld=unheld)).evidence_for[0].value == told


@pytest.mark.parametrize(
    ("share", "asked"), [(None, False), (0.09, False), (0.1, True), (0.5, True)]
)
def test_from_which_share_on_long_prompts_are_why(share, asked):
    assert is_asked_for(replace(HELD, long_prompts_share=share)) == asked


def test_a_load_that_was_never_met_is_said_beside_what_was_found():
    """The cause becomes unknown, and no evidence is lost."""
    found = of_starvation(replace(HELD, preempting=True))
    strange = of_strange_load(Cause("slow_engine", found.evidence_for, found.evidence_against))
    assert (strange.name, strange.evidence_for) == ("unknown", found.evidence_for)
    assert [each.name for each in strange.evidence_against] == ["request_length_ratio", "load"]


@pytest.mark.parametrize(
    ("running", "expected", "words"),
    [
        (
            6.0,
            60.0,
            "6 requests run with 90% of the KV cache in use; that many usually use about 9%",
        ),
        (
            60.0,
            9.0,
            "60 requests run with 90% of the KV cache in use; that many usually use about 100%",
        ),
        (1.0, 30.0, "1 request runs with 90% of the KV cache in use; one usually uses about 3%"),
        (6.0, None, "6 requests run with 90% of the KV cache in use"),
        (0.0, 0.0, "0 requests run with 90% of the KV cache in use"),
    ],
)
def test_how_full_the_cache_is_with_so_few(running, expected, words):
    """Beside what so many requests usually use, where that is known."""
    said = crowded(running, 0.9, expected)
    assert said.text == words
    assert said.expected == (
        None if not expected else pytest.approx(min(1.0, 0.9 * running / expected))
    )
