"""Any story of scrapes, replacements, reloads, kills and people: what must never happen does not.

A state machine of Hypothesis plays the real wiring from the scrape to the hook in virtual time, on a real state folder. What
it found is kept below as stories of its own. `make hunt` plays 20 times as many, other ones each time.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import structlog
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from tests.examples import examples
from tests.restart import virtual_engines, virtual_oracle
from tests.restart.virtual import CLOCK, virtual_time
from tests.restart.virtual_site import ANNA, Site
from vllm_watch.restart import hook_kinds
from vllm_watch.restart.locks import file as _  # noqa: F401 - loaded before time is virtual

STEPS = 50
EXAMPLES = 200
"""10,000 steps in all."""

MEMORY = Path("/dev/shm")  # noqa: S108 - a flush costs nothing there

POINTS = (
    "before intent is written", "intent is written", "before calling is written", "calling is written", "the hook has begun",
    "the hook has ended the engine", "the hook has started the engine", "before verifying is written", "verifying is written",
    "before helped is written", "helped is written", "before uncertain is written", "uncertain is written",
    "before cancelled is written", "cancelled is written", "before failed is written", "failed is written",
)  # fmt: skip

NAMES = st.sampled_from("abc")
SETTLE_SECONDS = 240.0
"""Longer than a lease, a verification, a cooldown and each pause before the next asking together."""

BROKE = frozenset(
    ("restart_not_decided", "restart_broke", "restarts_not_resumed", "look_failed", "judgement_failed", "hook_broke",
     "schedule_broke", "restarts_not_shown", "objection_broke", "detector_failed", "restarts_not_stopped")
)  # fmt: skip


NOW: list[Site] = []


@contextmanager
def played() -> Iterator[None]:
    """Within, the watcher meets the engines and the hook of the site that is played now."""

    def noticed(_: Any, __: str, event: dict[str, Any]) -> Any:
        if event["event"] in BROKE:
            NOW[-1].broken.append(str({k: v for k, v in event.items() if k != "exc_info"}))
        raise structlog.DropEvent

    structlog.configure(
        processors=[noticed], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR)
    )
    loops = "vllm_watch.watch.target_loops"
    with ExitStack() as stack:
        stack.enter_context(virtual_time())
        stack.enter_context(patch("vllm_watch.watch.watch.all_detectors", virtual_engines.detectors))
        stack.enter_context(patch(f"{loops}.CpuWaits", lambda *_, **__: None))
        stack.enter_context(patch(f"{loops}.VllmSource", lambda target, *_: virtual_engines.Source(NOW[-1], target)))
        stack.enter_context(
            patch.object(hook_kinds, "make", lambda _, settings, __: virtual_engines.Hook(NOW[-1], settings))
        )
        yield
    structlog.reset_defaults()


class Machine(RuleBasedStateMachine):
    """Whatever happens to three engines and their watcher."""

    site: Site

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))

    @initialize(due_s=st.sampled_from((20.0, 100.0, 300.0)), mode=st.sampled_from(("auto", "auto", "approve")), supervised=st.booleans())
    def begins(self, due_s: float, mode: str, supervised: bool) -> None:
        self.site = Site(self._folder, due_s)
        NOW[:] = [self.site]
        self.site.settings.mode, self.site.supervised = mode, supervised
        self.site.reload()
        self.site.start()
        self.site.passes(12.0)

    def teardown(self) -> None:
        try:
            if hasattr(self, "site"):
                self.settles()
        finally:
            if hasattr(self, "site"):
                self.site.close()
            shutil.rmtree(self._folder)

    # --- time

    @rule(seconds=st.sampled_from((0.3, 1.0, 3.0, 5.0, 5.0, 8.0, 13.0)))
    def time_passes(self, seconds: float) -> None:
        self.site.passes(seconds)

    @rule(seconds=st.sampled_from((40.0,)))
    def more_time_passes(self, seconds: float) -> None:
        self.site.passes(seconds)

    @rule(seconds=st.sampled_from((-3600.0, -30.0, 3.0, 90.0, 3600.0)))
    def the_clock_is_set(self, seconds: float) -> None:
        CLOCK.ahead_s += seconds

    @rule(seconds=st.sampled_from((4.0, 40.0, 1000.0)))
    def the_watcher_is_suspended(self, seconds: float) -> None:
        until_s = CLOCK.monotonic_s + seconds
        while until_s > CLOCK.monotonic_s:
            CLOCK.advance(until_s - CLOCK.monotonic_s)

    # --- engines

    @rule(name=NAMES, how=st.sampled_from((virtual_engines.HANGS, virtual_engines.HANGS, virtual_engines.SILENT)))
    def an_engine_falls_sick(self, name: str, how: str) -> None:
        self.site.engines[name].sicken(how)

    @rule(name=NAMES)
    def an_engine_recovers(self, name: str) -> None:
        self.site.engines[name].sicken(virtual_engines.WELL)

    @rule(name=NAMES, load_s=st.sampled_from((0.0, 3.0)), model=st.sampled_from(("m", "m", "another")))
    def an_engine_is_replaced(self, name: str, load_s: float, model: str) -> None:
        self.site.engines[name].start(load_s=load_s, model=model)

    @rule(name=NAMES)
    def an_engine_ends(self, name: str) -> None:
        self.site.engines[name].end()

    @rule()
    def two_engines_start_at_once(self) -> None:
        for name in "bc":
            self.site.engines[name].start()

    @rule(lasts=st.booleans())
    def the_network_fails_or_is_back(self, lasts: bool) -> None:
        self.site.network(fails=lasts)

    @rule(does=st.sampled_from(("restarts", "restarts", "does nothing", "fails", "never starts", "another model")))
    def the_hook_will(self, does: str) -> None:
        self.site.hook_does = does

    # --- the watcher

    @precondition(lambda self: self.site.watcher is not None)
    @rule()
    def the_watcher_is_killed(self) -> None:
        self.site.kill()

    @precondition(lambda self: self.site.watcher is not None)
    @rule(point=st.sampled_from(POINTS), later=st.sampled_from((0, 0, 0, 1)))
    def the_watcher_is_killed_when(self, point: str, later: int) -> None:
        self.site.kill_at = point, later

    @precondition(lambda self: self.site.watcher is not None)
    @rule()
    def the_watcher_is_stopped(self) -> None:
        self.site.stop()

    @precondition(lambda self: self.site.watcher is None)
    @rule()
    def the_watcher_starts(self) -> None:
        self.site.kill_at = None
        self.site.start()

    @rule(urls=st.sampled_from((
        {"a": "a", "b": "b", "c": "c"}, {"a": "d", "b": "b", "c": "c"}, {"b": "b", "c": "c"}, {"z": "a", "b": "b", "c": "c"},
        {"a": "b", "b": "a", "c": "c"},
    )))  # fmt: skip
    def a_reload_changes_targets(self, urls: dict[str, str]) -> None:
        site = self.site
        site.settings.urls = {name: site.engines[engine].url for name, engine in urls.items()}
        site.reload()

    @rule(hook=st.sampled_from(("1", "2")))
    def a_reload_changes_the_hook(self, hook: str) -> None:
        self.site.settings.hook = hook
        self.site.reload()

    @rule(mode=st.sampled_from(("auto", "auto", "approve", "observe", "off")))
    def a_reload_changes_the_mode(self, mode: str) -> None:
        self.site.settings.mode = mode
        self.site.reload()

    @rule(seconds=st.sampled_from((None, 60.0)))
    def a_reload_freezes(self, seconds: float | None) -> None:
        now_t = CLOCK.time()
        self.site.settings.freeze = None if seconds is None else (now_t // 1, now_t // 1 + seconds)
        self.site.reload()

    # --- the lock and the disk

    @rule()
    def another_watcher_takes_the_lock(self) -> None:
        self.site.take_lock()

    @rule()
    def the_lock_is_lost(self) -> None:
        self.site.lose_lock()

    @rule()
    def the_lock_is_given_back(self) -> None:
        self.site.give_lock_back()

    @precondition(lambda self: self.site.watcher is not None)
    @rule(full=st.booleans())
    def the_disk_is_full(self, full: bool) -> None:
        assert self.site.watcher is not None
        self.site.watcher.worker.full = full

    # --- people and machines

    @precondition(lambda self: self.site.watcher is not None)
    @rule(name=NAMES, override=st.booleans())
    def a_person_restarts(self, name: str, override: bool) -> None:
        self.site.ask(self.site.operators.restart(ANNA, name, "wanted", "urgent" if override else None))

    @precondition(lambda self: self.site.watcher is not None)
    @rule()
    def a_person_approves(self) -> None:
        for incident in self.site.waiting():
            self.site.approve(incident)

    @precondition(lambda self: self.site.watcher is not None)
    @rule()
    def a_person_silences(self) -> None:
        for incident in self.site.waiting():
            self.site.silence(incident)

    @precondition(lambda self: self.site.watcher is not None)
    @rule(paused=st.booleans())
    def a_person_pauses_or_resumes(self, paused: bool) -> None:
        self.site.pause(paused=paused)

    @precondition(lambda self: self.site.watcher is not None)
    @rule(name=NAMES, firing=st.sampled_from((True, True, False)))
    def an_alert_asks(self, name: str, firing: bool) -> None:
        self.site.alert(name, firing=firing)

    # ---

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "site"):
            self.site.broken += virtual_oracle.of_board(self.site)
            assert self.site.broken == [], self.site.broken

    def settles(self) -> None:
        """Whatever stood in the way is gone; who is still sick is restarted or paged for."""
        site = self.site
        site.kill_at = None
        site.network(fails=False)
        site.give_lock_back()
        if site.settings.freeze is not None:
            site.settings.freeze = None
        site.settings.mode = "auto"
        site.reload()
        if site.watcher is None:
            site.start()
        assert site.watcher is not None
        site.watcher.worker.full = False
        site.passes(30.0)
        site.pause(paused=False)
        before = len(site.calls)
        site.passes(SETTLE_SECONDS)
        site.broken += virtual_oracle.of_the_sick(site, before)
        self.nothing_is_broken()


def test_nothing_that_must_not_happens() -> None:
    with played():
        run_state_machine_as_test(Machine, settings=examples(int(os.environ.get("MACHINE_EXAMPLES", EXAMPLES)), stateful_step_count=STEPS))


if __name__ == "__main__":
    pytest.main([__file__])
