"""Short stories in which nothing breaks, unless a piece of the code is missing (machine_removals.py).

The random search (test_machine.py) meets many of these few times in 10,000 steps. So that each invariant is shown able to
fail, the search for what a removal breaks plays its story first.
"""

from collections.abc import Mapping
from typing import Any

from tests.restart.virtual_engines import WELL
from tests.restart.virtual_site import URLS, Site

STEPS: Mapping[str, Any] = {
    "begins": lambda site: (site.start(), site.passes(12.0)),
    "is replaced": lambda site, name: site.engines[name].start(),
    "heals": lambda site, name: site.engines[name].sicken(WELL),
    "ends": lambda site, name: site.engines[name].end(),
    "the network fails": lambda site: site.network(fails=True),
    "the hook will": lambda site, does: setattr(site, "hook_does", does),
    "dies when": lambda site, point: setattr(site, "kill_at", (point, 0)),
    "a person pauses": lambda site: site.pause(paused=True),
    "a person silences what waits": lambda site: [site.silence(each) for each in site.waiting()],
}
"""What is said of a site in words; all else is a method of it."""

Step = tuple[Any, ...]
BEGINS = (("begins",),)
HANGS = (*BEGINS, ("hang", "a"))
UNAPPROVED = (*BEGINS, ("reload", {"mode": "approve"}), ("hang", "a"), ("passes", 20.0))
TWIN = {
    "a": URLS["a"],
    "b": URLS["d"],
    "c": URLS["c"],
}  # b is another, that started in the same 10 ms


def drains(name: str = "a") -> tuple[Step, ...]:
    """A person's restart waits for requests that are under way."""
    return (*BEGINS, ("person", name), ("passes", 2.0))


STORIES: Mapping[str, tuple[Step, ...]] = {
    "two calls for one intent": (*HANGS, ("passes", 30.0)),
    "called without a `calling` on the disk": (*HANGS, ("passes", 30.0)),
    "called on process": (*drains(), ("is replaced", "a"), ("passes", 20.0)),
    "which is not configured (any more)": (*drains("b"), ("reload", {"urls": TWIN}), ("passes", 20.0)),
    "called with the program of an older configuration": (*drains(), ("reload", {"hook": "2"}), ("passes", 20.0)),
    "that the last scrape did not find": (*HANGS, ("heals", "a"), ("passes", 20.0)),
    "is advised for what the last scrape did not find": (*HANGS, ("heals", "a"), ("passes", 20.0)),
    "a common outage": (*BEGINS, ("the network fails",), ("passes", 30.0)),
    "called in mode": UNAPPROVED,
    "that a person has silenced": (
        *UNAPPROVED, ("a person silences what waits",), ("reload", {"mode": "auto"}), ("passes", 30.0)),
    "called while a person has paused restarts": (*BEGINS, ("a person pauses",), ("hang", "a"), ("passes", 20.0)),
    "called while restarts are frozen": (*BEGINS, ("reload", {"frozen_s": 600.0}), ("hang", "a"), ("passes", 20.0)),
    "a schedule called a process of": (("due", 40.0), *BEGINS, ("is replaced", "a"), ("passes", 60.0)),
    "restarts in an hour": (*BEGINS, *(step for name in "abca" for step in (("hang", name), ("passes", 120.0)))),
    "after the last restart": (*HANGS, ("passes", 15.0), ("hang", "b"), ("passes", 60.0)),
    "in the group would be left healthy": (*HANGS, ("hang", "b"), ("passes", 20.0)),
    "the lock": (("take_lock",), *HANGS, ("passes", 30.0)),
    "a hook that had begun was cut off": (*HANGS, ("passes", 3.0), ("stop",)),
    "another model came back": (*BEGINS, ("the hook will", "another model"), ("hang", "a"), ("passes", 60.0)),
    "what was called is written down as": (
        *BEGINS, ("dies when", "the hook has begun"), ("hang", "a"), ("passes", 20.0)),
    "and nobody restarts it": (*HANGS, ("reload", {"hook": "2"})),
    "and not paged for": (*BEGINS, ("ends", "a"), ("passes", 12.0)),
}  # fmt: skip
"""By the words of the removal that each notices."""


def told(words: str, site: Site) -> None:
    """Play the story of these words."""
    for what, *how in STORIES[words]:
        if what in STEPS:
            STEPS[what](site, *how)
        else:
            getattr(site, what)(*how)
