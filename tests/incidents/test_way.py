"""The way to a verdict: which rule spoke at each change, on what evidence, and who changed it afterwards."""

import json

from tests.incidents.test_lifecycle import Story, collapse, stall
from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents import way
from vllm_watch.incidents.lifecycle import Lifecycle

RULE = Evidence(name="rule", value="slow", text="steps take 1.4 times as long as usual")
NEXT = Evidence(
    name="next_rule", value="page", text="becomes critical when steps take 1.7 times as long"
)
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


def test_a_page_that_people_were_told_of_does_not_become_milder():
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
