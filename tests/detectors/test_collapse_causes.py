"""Why pages lack: each fact alone, and what is said of it."""

from dataclasses import replace

import pytest

from vllm_watch.detectors.collapse_causes import Starvation, of_starvation

HELD = Starvation(
    running=4.0, usage=0.98, length_ratio=1.0, preempted_share=0.0, preempting=False,
    long_prompts_share=0.0, long_prompt_tokens=0.0, late_length_ratio=None, unexplained=None,
    rise_seconds=None, unheld=0.0, unheld_rise_seconds=None, unheld_surely=False,
)  # fmt: skip
"""Few requests hold all pages, as far as their tokens tell."""

LOST = {"unheld": 0.9}
LEAKED = LOST | {"unheld_rise_seconds": 60.0}
THRASH = {"length_ratio": 3.0, "preempted_share": 0.5, "preempting": True}
CAUSES = {  # what differs → cause, what speaks for it, what against, words of the last for it
    "few hold them": ({}, "kv_pinning", ["kv_unheld_ratio"], [], "4 requests hold them"),
    "... and others come and go": (
        {"late_length_ratio": 1.2}, "kv_pinning", ["kv_unheld_ratio", "request_length_ratio"], [], "1.2 times as long"),
    "... and all that come are long": ({"late_length_ratio": 2.5}, "kv_pinning", ["kv_unheld_ratio"], [], "hold them"),
    "... and long prompts came": (
        {"long_prompts_share": 0.4, "long_prompt_tokens": 30_000.0}, "kv_pinning",
        ["kv_unheld_ratio", "long_prompt_tokens"], [], "prompts of 30000 tokens each fill 40% of the KV cache"),
    "... and some prompts came": (
        {"long_prompts_share": 0.39, "long_prompt_tokens": 30_000.0}, "kv_pinning", ["kv_unheld_ratio"], [], "hold them"),
    "they push each other out": (
        {"preempting": True}, "unknown", ["kv_unheld_ratio"], ["request_length_ratio"], "hold them"),
    "all became long, and push each other out": (
        THRASH, "preemption_thrash", ["request_length_ratio", "preemptions_per_request"], [], "0.50 preemptions"),
    "all became long, and seldom push each other out": (
        THRASH | {"preempted_share": 0.09, "preempting": False}, "kv_pinning", ["kv_unheld_ratio"], [], "hold them"),
    "all became long, and preemptions are not counted": (
        THRASH | {"preempted_share": None, "preempting": False}, "kv_pinning", ["kv_unheld_ratio"], [], "hold them"),
    "they push each other out, and are short": (
        THRASH | {"length_ratio": 2.4, "preempting": False}, "kv_pinning", ["kv_unheld_ratio"], [], "hold them"),
    "they thrash in what a loss has left": (
        THRASH | LOST, "kv_pinning", ["kv_unheld_ratio"], [], "90% of the KV cache belongs to no running request"),
    "they thrash, and little is lost": (
        THRASH | {"unheld": 0.4}, "preemption_thrash", ["request_length_ratio", "preemptions_per_request"], [], "0.50"),
    "half of what is in use is lost": ({"unheld": 0.5}, "kv_pinning", ["kv_unheld_ratio"], [], "it came at once"),
    "... of a cache that is half in use": (
        {"unheld": 0.26, "usage": 0.5}, "kv_pinning", ["kv_unheld_ratio"], [], "it came at once"),
    "less than half is lost": ({"unheld": 0.48}, "kv_pinning", ["kv_unheld_ratio"], [], "hold them"),
    "lost bit by bit": (LEAKED, "unknown", ["kv_unheld_ratio"], ["prefill"], "lost within 60 s"),
    "... for sure": (LEAKED | {"unheld_surely": True}, "kv_leak", ["kv_unheld_ratio"], [], "lost within 60 s"),
    "... over four minutes": (
        LEAKED | {"unheld_rise_seconds": 240.0}, "kv_leak", ["kv_unheld_ratio"], [], "lost within 4 min"),
    "... within seconds": (LEAKED | {"unheld_rise_seconds": 19.0}, "kv_pinning", ["kv_unheld_ratio"], [], "at once"),
    "a fifth lost bit by bit": (
        LEAKED | {"unheld": 0.2, "unheld_surely": True}, "kv_leak", ["kv_unheld_ratio"], [], "20% of the KV cache"),
    "less than a fifth": (
        LEAKED | {"unheld": 0.19, "unheld_surely": True}, "kv_pinning", ["kv_unheld_ratio"], [], "hold them"),
    "tokens are not counted": (
        {"unheld": None, "unexplained": 0.6}, "kv_pinning", ["kv_unexplained_ratio"], [], "60% of the cache is held beyond"),
    "... and it came slowly": (
        {"unheld": None, "unexplained": 0.6, "rise_seconds": 240.0}, "kv_leak", ["kv_unexplained_ratio"], [],
        "it came over 4 minutes and more"),
    "... and it came within minutes": (
        {"unheld": None, "unexplained": 0.6, "rise_seconds": 239.0}, "kv_pinning", ["kv_unexplained_ratio"], [], "at once"),
    "... and they thrash": (
        THRASH | {"unheld": None}, "preemption_thrash", ["request_length_ratio", "preemptions_per_request"], [], "0.50"),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "cause", "pro", "contra", "words"), CAUSES.values(), ids=CAUSES)
def test_why_pages_lack(facts, cause, pro, contra, words):
    found = of_starvation(replace(HELD, **facts))
    assert found.name == cause
    assert [each.name for each in found.evidence_for] == pro
    assert [each.name for each in found.evidence_against] == contra
    assert words in found.evidence_for[-1].text
