"""Drafts that are accepted no more: told as such, once the usual share is known; and mixes that only differ."""

import pytest

from tests.detectors.looks import engine, seen
from vllm_watch.detectors.base import FIRING, Verdict
from vllm_watch.detectors.throughput_collapse import Acceptances
from vllm_watch.samples.engine import Histogram
from vllm_watch.watch.watch import Watch


class Drafting:
    """An engine with speculative decoding that steps at its usual pace."""

    def __init__(self):
        self.watch, self.second, self.drafted, self.accepted = Watch("x"), 0, 0.0, 0.0

    def run(self, seconds, share, drafted=300.0):
        events = []
        for _ in range(0, seconds, 5):
            self.second += 5
            self.drafted += 5 * drafted
            self.accepted += 5 * drafted * share
            steps = 1000 + 10 * self.second
            sample = engine(
                steps, prompt_tokens=steps * 2.0, inter_token_latency=Histogram(steps * 4.0, steps * 0.4),
                spec_num_draft_tokens=self.drafted, spec_num_accepted_tokens=self.accepted,
            )  # fmt: skip
            events += self.watch.observe(seen(self.second, sample))
        assert self.watch.failures == {}
        return events


def test_it_is_told_after_two_minutes_and_over_when_drafts_are_accepted_again():
    drafting = Drafting()
    drafting.run(610, 0.7)
    assert drafting.run(120, 0.2049) == []
    (opened,) = drafting.run(120, 0.2049)
    incident = opened.incident
    assert (incident.kind, incident.cause, incident.severity) == ("throughput_collapse", "spec_acceptance", "ticket")  # fmt: skip
    assert not incident.restart_advised
    assert incident.summary.startswith("Engine 0: 20% of drafted tokens are accepted, usually 6")
    share = incident.evidence_for[0]
    assert (share.value, share.expected) == (0.205, 0.688)
    drafting.run(300, 0.7)
    assert drafting.watch.incidents == ()


QUIET = {
    "a third less": [(600, 0.7, 300.0), (1200, 0.47, 300.0)],
    "two minutes": [(600, 0.7, 300.0), (100, 0.2, 300.0), (600, 0.7, 300.0)],
    "nothing is drafted": [(600, 0.7, 300.0), (1200, 0.0, 0.0)],
    "too little is known yet": [(120, 0.7, 300.0), (600, 0.4, 300.0)],
    "it never hit often": [(600, 0.15, 300.0), (1200, 0.01, 300.0)],
}  # fmt: skip


@pytest.mark.parametrize("parts", QUIET.values(), ids=QUIET)
def test_what_is_none(parts):
    drafting = Drafting()
    for part in parts:
        drafting.run(*part)
    assert drafting.watch.opened == {}


@pytest.mark.parametrize(("cause", "told"), [("slow_engine", "spec_acceptance"), ("kv_leak", "kv_leak")])  # fmt: skip
def test_it_explains_slow_steps_and_nothing_else(cause, told):
    """An engine without a step counter looks slow for it: no restart is advised."""
    drafting, acceptances = Drafting(), Acceptances()
    heard = []

    class Slow:
        def update(self, view):
            found = Verdict(state=FIRING, kind="throughput_collapse", engine="0", cause=cause, severity="page", restart_advised=True)  # fmt: skip
            heard.extend(acceptances.told(view, [found]))
            return []

    drafting.watch = Watch("x", detectors={"slow": Slow()})
    drafting.run(600, 0.7)
    drafting.run(
        60, 0.2
    )  # at once: by the time that a ticket waits for, a restart would be under way
    assert (heard[-1].cause, heard[-1].severity) == (told, "page")
    assert heard[-1].restart_advised is (told == cause)
