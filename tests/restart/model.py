"""One attempt to restart one engine as a small machine of states, with every crash: all that it can come to is tried.

The steps are those of the code (STEPS). Between any two the watcher may be killed and the world may change, but not between
the last scrape and the call: an engine that is replaced in those milliseconds only the hook itself can tell.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

BUDGET, ATTEMPTS_MAX, PROCESSES_MAX, CALLS_MAX = 1, 3, 3, 3

FOLLOWS = {
    "intent": ("calling", "cancelled"),
    "calling": ("verifying", "failed", "uncertain", "cancelled", "helped", "did_not_help"),
    "verifying": ("helped", "did_not_help", "uncertain"),
    "uncertain": ("helped", "did_not_help"),
    "helped": (), "did_not_help": (), "failed": (), "cancelled": (), "dry_run": (),
}  # fmt: skip
"""What the journal may have of an attempt after what; the disk may have missed the states between."""

OPEN = ("intent", "calling", "verifying")
SPENT = ("calling", "verifying", "helped", "did_not_help", "failed", "uncertain")

STEPS = {
    "scrape": "targets.Targets.scraped", "intend": "restart.Restart.intend", "prepare": "restart.Restart._prepare",
    "object": "restart.Restart._recheck", "write_call": "restart.Restart._write_call", "call": "restart.Restart._call_hook",
    "again": "restart.Restart._retry_refusal", "move": "restart.Restart._move", "verify": "restart.Restart._verify",
    "give_up": "restart.Restart.give_up", "resume": "attempts.Attempts.resume", "flush": "restart.PendingWrites.flush",
}  # fmt: skip
"""The watcher's steps, and where below vllm_watch/restart/ the code takes them."""


@dataclass(frozen=True)
class Guards:
    """What keeps it safe. Without any one of them something breaks (test_model.py)."""

    writes_first: bool = True  # `calling` is on the disk before the hook is called
    never_again: bool = True  # what was `calling` when the watcher died is not called again
    same_process: bool = True  # the last scrape found the process that was decided about
    new_scrape: bool = True  # ... and began after the engine was drained
    asks_again: bool = True  # the guard is asked once more, with that scrape
    counts_spent: bool = True  # what may have touched the engine counts against the budget
    kept_in_memory: bool = True  # what the disk would not take is written later
    pages: bool = True  # what is found is paged for


class State(NamedTuple):
    """All that matters."""

    at: str = ""  # where the living watcher stands; "": it is dead
    disk: str = ""  # the last attempt as the journal has it; "": there was none
    mind: str = ""  # ... and as the watcher knows it
    now: int = 0  # the process that serves,
    decided: int = -1  # the one that the attempt is of,
    seen: int = -1  # and the one that the last scrape found
    sick: bool = True
    found: bool = False  # sick, by the last scrape
    fresh: bool = False  # did that begin since the engine was drained?
    lock: bool = True  # is it ours?
    full: bool = False  # is the disk?
    calls: int = 0  # of this attempt
    failed: bool = False  # did the last of them surely do nothing?
    spent: int = 0  # restarts that the journal counts,
    made: int = 0  # attempts that called,
    attempts: int = 0  # and all
    paged: bool = False
    broken: str = ""  # what must not have happened


Step = tuple[str, State]


def world(s: State) -> Iterator[Step]:
    """What others do."""
    unseen = s.at in ("agreed", "written") or (s.at in ("drained", "again") and s.fresh)
    if not unseen:
        if s.now < PROCESSES_MAX:
            yield "replace", s._replace(now=s.now + 1, sick=False)
        yield "recover" if s.sick else "sicken", s._replace(sick=not s.sick)
    yield "disk", s._replace(full=not s.full)
    if s.lock:
        yield "lose the lock", s._replace(lock=False)
    if s.at:
        yield "kill", s._replace(at="", mind="", fresh=False, lock=True)
    else:
        yield "start", s._replace(at="starts")


def watcher(s: State, guards: Guards) -> Iterator[Step]:
    """What the code may do next."""
    if s.at == "starts":
        yield "resume", _resumed(s, guards)
    elif s.at == "idle":
        yield from _idle(s, guards)
    elif s.at == "answered":
        state, at = ("failed", "idle") if s.failed else ("verifying", "verifies")
        yield "move", _moved(s, state, at, guards)
    elif s.at == "verifies":
        for step, state in (
            ("verify", "helped"), ("verify", "did_not_help"), ("give_up", "uncertain"),
        ):  # fmt: skip
            yield step, _moved(s, state, "idle", guards)
    else:
        yield from _to_the_call(s, guards)


def _to_the_call(s: State, guards: Guards) -> Iterator[Step]:
    if s.at in ("drains", "failed"):
        yield "scrape", _scraped(s, guards)
        step, at = ("prepare", "drained") if s.at == "drains" else ("again", "again")
        yield step, s._replace(at=at, fresh=False)
    elif s.at in ("drained", "again"):
        if not s.fresh:
            yield "scrape", _scraped(s, guards)
        if s.fresh or not guards.new_scrape:
            yield "object", _objected(s, guards)
    elif s.at == "agreed":
        yield "write_call", _call_written(s, guards)
    elif s.at == "written" and not s.lock and not s.calls:
        yield "write_call", _moved(s, "cancelled", "idle", guards)
    elif s.at == "written":
        yield from _called(s)


def _resumed(s: State, guards: Guards) -> State:
    if s.disk == "intent":
        return _moved(s, "cancelled", "idle", guards)
    if s.disk == "calling":
        if not guards.never_again:
            return s._replace(at="written", mind="calling", failed=False)
        return _moved(s, "uncertain", "verifies", guards)
    at = "verifies" if s.disk in ("verifying", "uncertain") else "idle"
    return s._replace(at=at, mind=s.disk)


def _idle(s: State, guards: Guards) -> Iterator[Step]:
    if s.mind != s.disk and not s.full and guards.kept_in_memory:
        yield "flush", _on_disk(s, s.mind, guards)
    yield "scrape", _scraped(s, guards)
    spent = s.spent + (s.mind in SPENT and s.disk not in SPENT)
    idle = not s.full and not {s.mind, s.disk} & {*OPEN} and s.attempts < ATTEMPTS_MAX
    if idle and s.found and s.lock and spent < BUDGET:
        begun = s._replace(at="drains", mind="intent", disk="", attempts=s.attempts + 1)
        begun = begun._replace(decided=s.seen, calls=0, failed=False)
        yield "intend", _on_disk(begun, "intent", guards)


def _scraped(s: State, guards: Guards) -> State:
    return s._replace(seen=s.now, found=s.sick, fresh=True, paged=s.sick and guards.pages)


def _objected(s: State, guards: Guards) -> State:
    against = guards.same_process and s.seen != s.decided
    against |= guards.asks_again and not (s.found and s.lock)
    if against:
        return _moved(s, "cancelled" if s.at == "drained" else "failed", "idle", guards)
    return s._replace(at="agreed" if s.at == "drained" else "written")


def _call_written(s: State, guards: Guards) -> State:
    if s.full and guards.writes_first:
        return _moved(s, "cancelled", "idle", guards)
    s = s._replace(at="written", mind="calling")
    return _on_disk(s, "calling", guards) if guards.writes_first else s


def _called(s: State) -> Iterator[Step]:
    wrong = {
        "called before it was on the disk": s.disk != "calling",
        "two calls for one intent": s.calls > 0 and not s.failed,
        "called on another process than the decided one": s.now != s.decided,
        "called for what the last scrape did not find": not s.found,
        "more restarts than the budget": s.made + (s.calls == 0) > BUDGET,
    }
    broken = s.broken or next((text for text, so in wrong.items() if so), "")
    called = s._replace(calls=s.calls + 1, made=s.made + (s.calls == 0), broken=broken)
    acted = called._replace(at="answered", failed=False, now=min(s.now + 1, PROCESSES_MAX))
    yield "call", acted._replace(sick=False)
    yield "call", acted._replace(sick=True)
    at = "failed" if called.calls < CALLS_MAX else "answered"
    yield "call", called._replace(at=at, failed=True, fresh=False)


def _moved(s: State, state: str, at: str, guards: Guards) -> State:
    return _on_disk(s._replace(at=at, mind=state), state, guards)


def _on_disk(s: State, state: str, guards: Guards) -> State:
    if s.full or state == s.disk:
        return s
    wrong = {
        f"{s.disk} became {state}": bool(s.disk) and state not in FOLLOWS[s.disk],
        "what was called is written down as never called": s.calls > 0 and state == "cancelled",
    }
    broken = s.broken or next((text for text, so in wrong.items() if so), "")
    new = guards.counts_spent and state in SPENT and s.disk not in SPENT
    return s._replace(disk=state, spent=s.spent + new, broken=broken)
