"""Short stories in which nothing breaks, unless a piece of the code is missing (machine_removals.py).

The random search (test_machine.py) meets these few times in 10,000 steps. So that each invariant is shown able to fail, the
search for what a removal breaks plays its story first.
"""

from collections.abc import Callable, Mapping

from tests.restart.virtual_site import Site

Story = Callable[[Site], None]


def a_hook_is_changed_while_it_drains(site: Site) -> None:
    site.start()
    site.passes(12.0)
    site.person("a")
    site.passes(2.0)
    site.reload({"hook": "2"})
    site.passes(20.0)


def an_engine_hangs_in_a_freeze(site: Site) -> None:
    site.start()
    site.passes(12.0)
    site.reload({"frozen_s": 600.0})
    site.hang("a")
    site.passes(30.0)


def a_schedule_falls_due_soon_after_a_replacement(site: Site) -> None:
    site.due(40.0)
    site.start()
    site.passes(12.0)
    site.engines["a"].start()
    site.passes(60.0)


def four_engines_hang_in_an_hour(site: Site) -> None:
    site.reload({"scheduled": False})
    site.start()
    site.passes(12.0)
    for name in "abca":
        site.hang(name)
        site.passes(120.0)


def two_engines_hang_in_a_minute(site: Site) -> None:
    site.start()
    site.passes(12.0)
    site.hang("a")
    site.passes(15.0)
    site.hang("b")
    site.passes(60.0)


def an_engine_comes_back_with_another_model(site: Site) -> None:
    site.start()
    site.passes(12.0)
    site.hook_does = "another model"
    site.hang("a")
    site.passes(60.0)


def an_attempt_is_given_up_before_its_call(site: Site) -> None:
    site.start()
    site.passes(12.0)
    site.hang("a")
    site.reload({"hook": "2"})


def an_engine_ends_and_nobody_starts_it(site: Site) -> None:
    site.start()
    site.passes(12.0)
    site.engines["a"].end()
    site.passes(12.0)


STORIES: Mapping[str, Story] = {
    "called with the program of an older configuration": a_hook_is_changed_while_it_drains,
    "called while restarts are frozen": an_engine_hangs_in_a_freeze,
    "a schedule called a process of": a_schedule_falls_due_soon_after_a_replacement,
    "restarts in an hour": four_engines_hang_in_an_hour,
    "after the last restart": two_engines_hang_in_a_minute,
    "another model came back": an_engine_comes_back_with_another_model,
    "and nobody restarts it": an_attempt_is_given_up_before_its_call,
    "and not paged for": an_engine_ends_and_nobody_starts_it,
}
"""By the words of the removal that each notices."""
