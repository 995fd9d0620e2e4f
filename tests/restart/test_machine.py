"""Any story of scrapes, replacements, reloads, kills and people: what must never happen does not.

A state machine of Hypothesis plays the real wiring from the scrape to the hook in virtual time, on a real state folder. What
it found is kept below as stories of its own. `make hunt` plays 20 times as many, other ones each time.
"""

import logging
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.examples import TEST, examples
from tests.faults.matrix import ROOT
from tests.faults.removing import PACKAGE, without
from tests.restart import virtual_engines
from tests.restart.machine_removals import NOTICED, REMOVALS
from tests.restart.machine_stories import STORIES, told
from tests.restart.virtual import CLOCK, virtual_time
from tests.restart.virtual_engines import HANGS, SILENT, WELL
from tests.restart.virtual_site import ANNA, URLS, Site
from vllm_watch.restart.hooks import base

STEPS = 25
EXAMPLES = 400
"""10,000 steps in all."""

MEMORY = Path("/dev/shm")

POINTS = (
    "before intent is written", "intent is written", "before calling is written", "calling is written", "the hook has begun",
    "the hook has ended the engine", "the hook has started the engine", "before verifying is written", "verifying is written",
    "before helped is written", "helped is written", "before uncertain is written", "uncertain is written",
    "before cancelled is written", "cancelled is written", "before failed is written", "failed is written",
)  # fmt: skip

NAMES = st.sampled_from("abc")
THEN = st.sampled_from((0.0, 0.0, 0.3, 1.0, 3.0, 6.0))
"""What comes next comes so soon."""

RELOADED: tuple[dict[str, Any], ...] = (
    {"urls": {"a": URLS["a"], "b": URLS["b"], "c": URLS["c"]}},  # as at the beginning
    {"urls": {"a": URLS["d"], "b": URLS["b"], "c": URLS["c"]}},  # another URL
    {"urls": {"b": URLS["b"], "c": URLS["c"]}},  # removed
    {"urls": {"z": URLS["a"], "b": URLS["b"], "c": URLS["c"]}},  # renamed
    {"urls": {"a": URLS["b"], "b": URLS["a"], "c": URLS["c"]}},  # one in the place of the other
    {"urls": {"a": URLS["a"], "b": URLS["d"], "c": URLS["c"]}},  # to one that started in the same 10 ms
    {"hook": "1"}, {"hook": "2"}, {"hook": "3"},
    {"mode": "auto"}, {"mode": "auto"}, {"mode": "approve"}, {"mode": "observe"}, {"mode": "off"},
    {"frozen_s": 60.0}, {"frozen_s": None},
)  # fmt: skip

BROKE = frozenset(
    ("restart_not_decided", "restart_broke", "restarts_not_resumed", "look_failed", "judgement_failed", "hook_broke",
     "schedule_broke", "restarts_not_shown", "objection_broke", "detector_failed", "restarts_not_stopped")
)  # fmt: skip


NOW: list[Site] = []

MEANWHILE: tuple[Callable[[Site, str], object], ...] = (
    *(partial(lambda change, site, _: site.reload(change), change) for change in RELOADED),
    lambda site, name: site.engines[name].start(),
    lambda site, name: site.engines[name].start(load_s=20.0),
    lambda site, name: site.engines[name].end(),
    lambda site, name: site.engines[name].sicken(HANGS),
    lambda site, name: site.engines[name].sicken(WELL),
    lambda site, _: site.pause(paused=True),
    lambda site, _: site.lose_lock(),
    lambda site, _: site.stop() if site.watcher else None,
    lambda site, _: site.kill() if site.watcher else None,
    lambda site, name: site.alert(name),
)
"""What may come in the middle."""


@contextmanager
def played():
    """Within, the watcher meets the engines and the hook of the site that is played now."""

    def noticed(_, __, event):
        if event["event"] in BROKE:
            NOW[-1].broken.append(str({k: v for k, v in event.items() if k != "exc_info"}))
        raise structlog.DropEvent

    structlog.configure(
        processors=[noticed], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR)
    )
    loops = "vllm_watch.watch.target_loop"
    with (
        virtual_time(),
        patch("vllm_watch.watch.watch.all_detectors", virtual_engines.detectors),
        patch(f"{loops}.CpuWaits", lambda *_, **__: None),
        patch(f"{loops}.VllmSource", lambda target, *_: virtual_engines.Source(NOW[-1], target)),
        patch.object(base, "make", lambda _, how, __: virtual_engines.Hook(NOW[-1], how)),
    ):
        yield
    structlog.reset_defaults()


class Machine(RuleBasedStateMachine):
    """Whatever happens to three engines and their watcher."""

    site: Site

    def __init__(self):
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))

    @initialize(
        due_s=st.sampled_from((20.0, 100.0, 300.0)),
        mode=st.sampled_from(("auto", "auto", "approve")),
        supervised=st.booleans(),
        peers=st.sampled_from(("watched", "none")),
    )
    def begins(self, due_s, mode, supervised, peers):
        self.site = Site(self._folder, due_s)
        NOW[:] = [self.site]
        self.site.supervised = supervised
        self.site.reload({"mode": mode, "peers": peers})
        self.site.start()
        self.site.passes(12.0)

    def teardown(self):
        try:
            if hasattr(self, "site"):
                self.settles()
        finally:
            if hasattr(self, "site"):
                self.site.close()
            shutil.rmtree(self._folder)

    @invariant()
    def nothing_is_broken(self):
        if hasattr(self, "site"):
            self.judged()

    def judged(self):
        assert self.site.broken == [], self.site.broken

    def settles(self):
        self.site.settle()
        self.nothing_is_broken()


def answered(site, answer):
    for incident in site.waiting():
        answer(site, incident)


def under_way(site, name, asks, after_s, happens):
    asks(site, name)
    site.passes(after_s)
    happens(site, name)


def some(*values):
    return st.sampled_from(values)


RULES: dict[str, tuple[bool | None, dict[str, Any], Callable[..., object]]] = {
    # what happens: must a watcher run (None: either), with what, how
    "time_passes": (None, {"seconds": some(0.3, 1.0, 3.0, 5.0, 8.0, 13.0, 40.0)}, Site.passes),
    "the_clock_is_set": (
        None, {"seconds": some(-3600.0, -30.0, 3.0, 90.0, 3600.0)},
        lambda site, seconds: setattr(CLOCK, "ahead_s", CLOCK.ahead_s + seconds)),
    "the_watcher_is_suspended": (
        None, {"seconds": some(4.0, 40.0, 1000.0)}, lambda site, seconds: CLOCK.pass_unseen(seconds)),
    "an_engine_is_sick_or_well": (
        None, {"name": NAMES, "how": some(HANGS, HANGS, SILENT, WELL)},
        lambda site, name, how: site.engines[name].sicken(how)),
    "an_engine_is_replaced": (
        None, {"name": NAMES, "load_s": some(0.0, 3.0, 20.0), "model": some("m", "m", "another")},
        lambda site, name, **how: site.engines[name].start(**how)),
    "an_engine_ends": (None, {"name": NAMES}, lambda site, name: site.engines[name].end()),
    "two_engines_start_at_once": (None, {}, lambda site: [site.engines[name].start() for name in "bc"]),
    "the_network_fails_or_is_back": (None, {"fails": st.booleans()}, Site.network),
    "the_hook_will": (
        None, {"does": some("restarts", "restarts", "does nothing", "fails", "never starts", "another model")},
        lambda site, does: setattr(site, "hook_does", does)),
    "the_watcher_is_killed_when": (
        True, {"point": st.sampled_from(POINTS), "later": some(0, 0, 0, 1)},
        lambda site, point, later: setattr(site, "kill_at", (point, later))),
    "the_watcher_ends": (True, {"kindly": st.booleans()}, lambda site, kindly: site.stop() if kindly else site.kill()),
    "the_watcher_starts": (False, {}, lambda site: (setattr(site, "kill_at", None), site.start())),
    "a_reload": (None, {"change": st.sampled_from(RELOADED)}, Site.reload),
    "another_watcher": (
        None, {"does": some(Site.take_lock, Site.lose_lock, Site.give_lock_back)}, lambda site, does: does(site)),
    "the_disk_is_full": (
        True, {"full": st.booleans()}, lambda site, full: setattr(site.watcher.worker, "full", full)),
    "a_person_restarts": (
        True, {"name": NAMES, "override": some(None, None, "urgent")},
        lambda site, name, override: site.ask(site.operators.restart(ANNA, name, "wanted", override))),
    "a_person_approves_or_rejects": (True, {"answer": some(Site.approve, Site.approve, Site.silence)}, answered),
    "a_person_pauses_or_resumes": (True, {"paused": st.booleans()}, Site.pause),
    "an_alert_asks": (
        True, {"name": NAMES, "firing": some(True, True, False)},
        lambda site, name, firing: site.alert(name, firing=firing)),
    "something_happens_as_a_restart_is_under_way": (
        True, {"name": NAMES, "asks": some(Site.person, Site.alert, Site.hang), "after_s": some(0.5, 3.0),
               "happens": st.sampled_from(MEANWHILE)}, under_way),
}  # fmt: skip


def add(name, running, given, does):
    """A rule of the machine: it happens, and some time passes."""

    def step(self, then, **how):
        does(self.site, **how)
        self.site.passes(then)

    step.__name__ = name
    made = rule(then=THEN, **given)(step)
    if running is not None:
        made = precondition(lambda self: (self.site.watcher is not None) is running)(made)
    setattr(Machine, name, made)


for rule_name, made_of in RULES.items():
    add(rule_name, *made_of)


def play(machine, **how):
    # A step is a story of its own, and takes as long as it takes.
    how = {"stateful_step_count": STEPS, "suppress_health_check": list(HealthCheck), **how}
    with played():
        run_state_machine_as_test(machine, settings=examples(EXAMPLES, **how))


@pytest.mark.hypothesis
def test_nothing_that_must_not_happens():
    """10,000 steps, the same each time; other ones in `make hunt`."""
    play(Machine)


@pytest.fixture
def site(tmp_path):
    """What the machine found, as stories of their own."""
    with played():
        NOW[:] = [Site(tmp_path)]
        yield NOW[0]
        NOW[0].close()


def test_a_schedule_knows_no_uptime_of_an_engine_that_loads(site):
    """What it knew was that of the process before, and the one that loaded was restarted."""
    site.due(20.0)
    site.start()
    site.passes(12.0)
    site.engines["a"].start(load_s=20.0)
    site.passes(16.0)
    assert site.broken == []
    assert site.calls == []


def test_a_clock_that_was_ahead_makes_no_version_new_for_long(site):
    """The version ran here first at a time that is in the future now: what hangs is restarted all the same."""
    site.start()
    CLOCK.ahead_s -= 3600.0
    site.passes(12.0)
    site.engines["a"].sicken(HANGS)
    site.passes(12.0)
    assert [each.target for each in site.calls] == ["a"]


def test_a_watcher_that_starts_in_a_common_outage_restarts_nobody(site):
    """Nor does it advise that: the outage was common before it died, and is."""
    site.reload({"peers": "none"})
    site.start()
    site.passes(12.0)
    site.network(fails=True)
    common = site.common
    site.passes(20.0)
    assert len(common) == len(site.settings.urls)
    site.kill()
    site.start()
    site.passes(60.0)
    assert site.calls == []


@pytest.mark.parametrize("words", STORIES)
def test_a_story_breaks_nothing(words, site):
    """What it breaks without a piece of the code, machine_removals.py shows."""
    judged(words, site)
    assert site.broken == []


def judged(words, site):
    """Play the story of these words to its end, and let the oracle judge it."""
    told(words, site)
    site.settle()


@pytest.mark.parametrize("words", REMOVALS)
def test_every_removal_applies(words):
    """Each piece stands in the code once, and what is left is Python."""
    for path, text in without(REMOVALS[words], ROOT / PACKAGE).items():
        compile(text, path, "exec")
        assert text != path.read_text()


class NoticedError(Exception):
    """It happened."""


def look_for(words):
    """Play its story, if it has one, and then others until it happens, whatever else does; NOTICED where it did."""
    if words in STORIES:
        with tempfile.TemporaryDirectory() as folder, played():
            NOW[:] = [Site(Path(folder))]
            judged(words, NOW[0])
            NOW[0].close()
        found = [text for text in NOW[0].broken if words in text]
        if found:
            print(found[0])
            return NOTICED
        print("its story does not show it;", end=" ")

    class Searching(Machine):
        def judged(self):
            found = [text for text in self.site.broken if words in text]
            self.site.broken.clear()
            if found:
                raise NoticedError(found[0])

    settings.load_profile(TEST)
    try:
        play(Searching, phases=[Phase.generate], derandomize=False)
    except NoticedError as noticed:
        print(noticed)
        return NOTICED
    return 0


if __name__ == "__main__":
    sys.exit(look_for(sys.argv[1]))
