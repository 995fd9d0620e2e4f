"""The way to a verdict: which rule spoke at each change, on what evidence, and who changed it afterwards."""

import json
from dataclasses import replace

from tests.incidents.test_lifecycle import FOUR, Story, collapse, gpu_fault, overload, ranks, stall
from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents import way
from vllm_watch.incidents.lifecycle import Lifecycle

RULE = Evidence(name="rule", value="slow", text="a ticket: 1.4× for 6 min")
NEXT = Evidence(name="next_rule", value="slow_page", text="a page needs 1.7×")
SLOW = Evidence(name="ratio", value=1.4, text="steps take 1.4× as long")
FEW = Evidence(name="waiting", value=0.0, text="nobody waits")
FOUND = {"severity": "ticket", "cause": "slow_engine", "evidence_for": (RULE, SLOW), "evidence_against": (NEXT, FEW)}  # fmt: skip


def one(story, kind="throughput_collapse"):
    return next(each for each in story.lifecycle.incidents if each.kind == kind)


def test_each_change_is_a_step_with_its_rule_and_evidence():
    """Not each look: what was known changed at two of ten; then it recovers."""
    story = Story().look(collapse(**FOUND), times=5).look(collapse(**FOUND | {"severity": "page"}), times=5)  # fmt: skip
    story.look(collapse("clear"))
    opened, worse, recovering = one(story).way
    assert (opened.event, opened.severity, worse.severity, recovering.event) == ("opened", "ticket", "page", "recovering")  # fmt: skip
    assert (opened.rule, opened.next_rule) == (RULE.text, NEXT.text)
    assert (opened.evidence, opened.against) == ((SLOW.text,), (FEW.text,))


def test_it_is_no_page_for_what_the_next_rule_lacks():
    story = Story().look(collapse(**FOUND))
    assert way.why_no_page(one(story)) == NEXT.text
    assert "the next one is not known" in way.why_no_page(one(Story().look(overload()), "overload"))  # fmt: skip
    assert way.why_no_page(one(Story().look(collapse()))) == ""


def test_who_made_a_ticket_of_a_page_is_named():
    """A GPU that has paged, or another rank; the page that people were told of does not become milder."""
    story = Story().look(gpu_fault(), collapse())
    cause = one(story, "gpu_fault").id
    assert f"critical → warning: {cause} pages for its cause" in way.why_no_page(one(story))
    story = Story().look(*ranks("0", "1"), moment=FOUR)
    first, second = story.lifecycle.incidents
    assert first.id in way.why_no_page(second)
    story = Story().look(collapse()).look(collapse(**FOUND | {"severity": "ticket"}), times=4)
    story.look(collapse(**FOUND | {"cause": "thermal_throttle"}), times=4)
    assert one(story).severity == one(story).way[-1].severity


def test_a_page_that_is_kept_says_so():
    story = Story().look(stall(severity="page")).look(stall(severity="ticket", restart_advised=True))  # fmt: skip
    (_, kept) = one(story, "engine_stalled").way
    assert (kept.severity, kept.restart_advised) == ("page", True)
    assert "stays critical" in kept.changes[0]


def test_one_more_of_the_same_says_who_told_it():
    story = Story()
    for _ in range(2):
        story.look(stall(), times=12).look(stall("clear"), times=84)
    story.look(stall())
    third = one(story, "engine_stalled")
    assert third.recurring.earlier in way.why_no_page(third)
    assert "not notified again" in third.way[-1].changes[0]


def test_it_is_bounded_and_outlives_the_watcher():
    story = Story()
    for _ in range(40):
        story.look(stall(), times=3).look(stall("clear"), times=3)
    steps = one(story, "engine_stalled").way
    assert (len(steps), steps[0].event) == (way.STEPS_MAX, "opened")
    again = Lifecycle("x")
    again.restore(json.loads(json.dumps(story.lifecycle.export_state())), ("engine_stalled",))
    assert again.incidents[0].way == steps


def test_the_fleet_is_named_where_many_fell_silent():
    opened = one(Story().look(stall()), "engine_stalled")
    shown = replace(opened, severity="ticket", related=("engine_down-1-common",))
    assert "engine_down-1-common pages for all of them" in way.why_no_page(shown)
