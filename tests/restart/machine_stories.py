"""Short stories in which nothing breaks, unless a piece of the code is missing (machine_removals.py).

The random search (test_machine.py) meets many of these few times in 10,000 steps. So that each invariant is shown able to
fail, the search for what a removal breaks plays its story first.
"""

from collections.abc import Callable, Mapping

from tests.restart.virtual_engines import WELL
from tests.restart.virtual_site import URLS, Site

Story = Callable[[Site], None]


def an_engine_hangs(site: Site) -> None:
    begins(site)
    site.hang("a")
    site.passes(30.0)


def an_engine_is_replaced_while_it_drains(site: Site) -> None:
    drains(site)
    site.engines["a"].start()
    site.passes(20.0)


def a_target_is_moved_to_a_twin_while_it_drains(site: Site) -> None:
    """To an engine that started in the same 10 ms."""
    drains(site, "b")
    site.reload({"urls": {"a": URLS["a"], "b": URLS["d"], "c": URLS["c"]}})
    site.passes(20.0)


def a_hook_is_changed_while_it_drains(site: Site) -> None:
    drains(site)
    site.reload({"hook": "2"})
    site.passes(20.0)


def an_engine_hangs_and_goes_on(site: Site) -> None:
    begins(site)
    site.hang("a")
    site.engines["a"].sicken(WELL)
    site.passes(20.0)


def nobody_answers(site: Site) -> None:
    begins(site)
    site.network(fails=True)
    site.passes(30.0)


def an_engine_hangs_and_nobody_approves(site: Site) -> None:
    begins(site)
    site.reload({"mode": "approve"})
    site.hang("a")
    site.passes(20.0)


def a_person_silences_what_waits(site: Site) -> None:
    an_engine_hangs_and_nobody_approves(site)
    for incident in site.waiting():
        site.silence(incident)
    site.reload({"mode": "auto"})
    site.passes(30.0)


def an_engine_hangs_in_a_pause(site: Site) -> None:
    begins(site)
    site.pause(paused=True)
    site.hang("a")
    site.passes(20.0)


def an_engine_hangs_in_a_freeze(site: Site) -> None:
    begins(site)
    site.reload({"frozen_s": 600.0})
    site.hang("a")
    site.passes(20.0)


def a_schedule_falls_due_soon_after_a_replacement(site: Site) -> None:
    site.due(40.0)
    begins(site)
    site.engines["a"].start()
    site.passes(60.0)


def four_engines_hang_in_an_hour(site: Site) -> None:
    begins(site)
    for name in "abca":
        site.hang(name)
        site.passes(120.0)


def one_hangs_after_the_other_is_cured(site: Site) -> None:
    begins(site)
    site.hang("a")
    site.passes(15.0)
    site.hang("b")
    site.passes(60.0)


def two_of_three_hang(site: Site) -> None:
    begins(site)
    site.hang("a")
    site.hang("b")
    site.passes(20.0)


def an_engine_hangs_while_another_watcher_restarts(site: Site) -> None:
    site.take_lock()
    an_engine_hangs(site)


def the_watcher_stops_in_the_middle_of_a_hook(site: Site) -> None:
    begins(site)
    site.hang("a")
    site.passes(3.0)
    site.stop()


def an_engine_comes_back_with_another_model(site: Site) -> None:
    begins(site)
    site.hook_does = "another model"
    site.hang("a")
    site.passes(60.0)


def the_watcher_is_killed_in_the_middle_of_a_hook(site: Site) -> None:
    begins(site)
    site.kill_at = "the hook has begun", 0
    site.hang("a")
    site.passes(20.0)


def an_attempt_is_given_up_before_its_call(site: Site) -> None:
    begins(site)
    site.hang("a")
    site.reload({"hook": "2"})


def an_engine_ends_and_nobody_starts_it(site: Site) -> None:
    begins(site)
    site.engines["a"].end()
    site.passes(12.0)


def begins(site: Site) -> None:
    site.start()
    site.passes(12.0)


def drains(site: Site, name: str = "a") -> None:
    """A person's restart waits for requests that are under way."""
    begins(site)
    site.person(name)
    site.passes(2.0)


STORIES: Mapping[str, Story] = {
    "two calls for one intent": an_engine_hangs,
    "called without a `calling` on the disk": an_engine_hangs,
    "called on process": an_engine_is_replaced_while_it_drains,
    "which is not configured (any more)": a_target_is_moved_to_a_twin_while_it_drains,
    "called with the program of an older configuration": a_hook_is_changed_while_it_drains,
    "that the last scrape did not find": an_engine_hangs_and_goes_on,
    "is advised for what the last scrape did not find": an_engine_hangs_and_goes_on,
    "a common outage": nobody_answers,
    "called in mode": an_engine_hangs_and_nobody_approves,
    "that a person has silenced": a_person_silences_what_waits,
    "called while a person has paused restarts": an_engine_hangs_in_a_pause,
    "called while restarts are frozen": an_engine_hangs_in_a_freeze,
    "a schedule called a process of": a_schedule_falls_due_soon_after_a_replacement,
    "restarts in an hour": four_engines_hang_in_an_hour,
    "after the last restart": one_hangs_after_the_other_is_cured,
    "in the group would be left healthy": two_of_three_hang,
    "the lock": an_engine_hangs_while_another_watcher_restarts,
    "a hook that had begun was cut off": the_watcher_stops_in_the_middle_of_a_hook,
    "another model came back": an_engine_comes_back_with_another_model,
    "what was called is written down as": the_watcher_is_killed_in_the_middle_of_a_hook,
    "and nobody restarts it": an_attempt_is_given_up_before_its_call,
    "and not paged for": an_engine_ends_and_nobody_starts_it,
}
"""By the words of the removal that each notices."""
